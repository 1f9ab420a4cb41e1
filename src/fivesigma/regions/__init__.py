"""Categories for several signals in the scores of a multi-class classifier."""

from __future__ import annotations

from fivesigma.regions.record import Bound, Judged, ScoreCategories
from fivesigma.regions.search import categorise_scores

__all__ = ["Bound", "Judged", "ScoreCategories", "categorise_scores"]
