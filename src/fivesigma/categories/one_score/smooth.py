"""Yields with less noise, for which the rule "smooth" chooses the edges.

They are those of `fivesigma.cut.yield_model`. Few events, and events that contradict the model, are averaged along the
score instead. So are yields with systematics: shifts can only be averaged, and modelled yields beside them were worse.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.categories.one_score.exact import Grid
from fivesigma.cut.yield_model import NOISE, MovingAverage, RankedYields

_MANY = 20_000  # effective background events with which a measurement keeps half of the noise


def modelled(grid: Grid, s2: Array, last: IntArray) -> Grid:
    """Take the noise out of the running yields, given squared signal weights and the last event above each edge."""
    measured = RankedYields((last + 1.0) / (last[-1] + 1.0), grid.s[1:], grid.b[1:], s2, grid.b2[1:])
    if not measured.can_be_modelled:
        return averaged(grid)
    s, b = measured.by_fraction()
    if measured.contradict(s, b):
        return averaged(grid)
    return replace(grid, smooth=(np.append(0.0, s), np.append(0.0, b)))


def averaged(grid: Grid, goal: str = "discovery") -> Grid:
    """Take most of the noise out of the running yields; of a measurement with many events less of it.

    An average blurs the lowest scores, which hold the control regions of a measurement: beyond some 10,000 events that
    costs more than the noise.
    """
    average = MovingAverage.of(grid.s, grid.b)
    if average is None:
        return grid
    noise = NOISE
    if goal == "measurement" and grid.b2[-1] > 0:
        effective = grid.counted[-1] ** 2 / grid.b2[-1]
        noise = max(NOISE, float(effective / (effective + _MANY)))
    return replace(grid, smooth=(average(grid.s, noise), average(grid.b, noise)), noise=noise)
