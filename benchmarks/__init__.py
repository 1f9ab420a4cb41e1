"""Measurements of speed and memory, each against a limit: ``python -m benchmarks [pattern]``."""
