"""Scored events: in memory, in files, and part by part."""
