"""Exact categories of one score."""
