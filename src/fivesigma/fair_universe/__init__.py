"""A benchmark with nuisances in the manner of the FAIR-Universe HiggsML uncertainty challenge.

The challenge asks for an interval of the signal strength mu from events whose energy scales, soft momentum and
background yields are not known exactly. `load` reads its file, or events with the columns of 2014; `compare` applies
its nuisances, draws pseudo-experiments, fits them and scores the intervals.
"""

from __future__ import annotations

from fivesigma.fair_universe.comparison import Comparison, compare
from fivesigma.fair_universe.nuisances import load

__all__ = ["Comparison", "compare", "load"]
