"""Exact categories: the intervals of one score that maximise the combined significance."""

from __future__ import annotations

from fivesigma.categories.record import Categories
from fivesigma.categories.search import categorise

__all__ = ["Categories", "categorise"]
