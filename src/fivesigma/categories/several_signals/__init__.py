"""Categories for several signals in the scores of a multi-class classifier."""

from __future__ import annotations

from fivesigma.categories.several_signals.region_result import Bound, Judged, ScoreCategories
from fivesigma.categories.several_signals.regions import categorise_scores

__all__ = ["Bound", "Judged", "ScoreCategories", "categorise_scores"]
