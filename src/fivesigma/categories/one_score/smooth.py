"""Yields with less noise, for which the rule "smooth" chooses the edges.

They are those of `fivesigma.cut.yield_model`. Few events, and events that contradict the model, are averaged along the
score instead. So are yields with systematics: shifts can only be averaged, and modelled yields beside them were worse.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.categories.one_score.exact import Grid
from fivesigma.cut.moving_average import MovingAverage
from fivesigma.cut.yield_model import RankedYields


def modelled(grid: Grid, s2: Array, last: IntArray) -> Grid:
    """Take the noise out of the running yields, given squared signal weights and the last event above each edge."""
    measured = RankedYields((last + 1.0) / (last[-1] + 1.0), grid.s[1:], grid.b[1:], s2, grid.b2[1:])
    if not measured.can_be_modelled:
        return averaged(grid)
    s, b = measured.by_fraction()
    if measured.contradict(s, b):
        return averaged(grid)
    return replace(grid, smooth=(np.append(0.0, s), np.append(0.0, b)))


def averaged(grid: Grid) -> Grid:
    """Take most of the noise out of the running yields."""
    average = MovingAverage.of(grid.s, grid.b)
    return grid if average is None else replace(grid, smooth=(average(grid.s), average(grid.b)))
