"""Categories for several signals in the scores of a multi-class classifier."""

from __future__ import annotations

from fivesigma.categories.several_signals.find_regions import categorise_scores
from fivesigma.categories.several_signals.region_result import Bound, Judged, ScoreCategories

__all__ = ["Bound", "Judged", "ScoreCategories", "categorise_scores"]
