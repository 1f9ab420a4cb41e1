"""Dask DataFrames and Arrays: parts in the memory of workers, as events."""

from __future__ import annotations
