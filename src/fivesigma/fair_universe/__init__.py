"""A benchmark with nuisances in the manner of the FAIR-Universe HiggsML uncertainty challenge.

The challenge asks for an interval of the signal strength mu from events whose energy scales, soft momentum and
background yields are not known exactly. `load` reads its file, or events with the columns of 2014, `move_events`
applies its nuisances, `make_experiments` draws pseudo-experiments, `Templates` fits them, and `score_intervals` is its
score.
"""

from __future__ import annotations

from fivesigma.fair_universe.comparison import Comparison, compare
from fivesigma.fair_universe.nuisances import FEATURES, Nuisances, load, make_experiments, move_events
from fivesigma.fair_universe.strength import Interval, Score, Templates, score_intervals

__all__ = [
    "FEATURES",
    "Comparison",
    "Interval",
    "Nuisances",
    "Score",
    "Templates",
    "compare",
    "load",
    "make_experiments",
    "move_events",
    "score_intervals",
]
