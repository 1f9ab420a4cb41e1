"""Measurements: each module has functions that return figures, and prints them when run."""
