"""Categories that maximise the combined significance: intervals of one score, or regions of several."""

from __future__ import annotations

from fivesigma.categories.one_score.result import Categories
from fivesigma.categories.one_score.search import categorise

__all__ = ["Categories", "categorise"]
