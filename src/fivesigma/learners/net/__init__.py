"""A small net that knows the symmetries of a collision, as a classifier that takes weights."""
