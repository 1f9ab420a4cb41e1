"""Categories whose background moves along systematics: their significance, and the sums that a search needs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fivesigma._types import Array, BoolArray, IntArray
from fivesigma.categories.one_score.cells import Cells
from fivesigma.categories.one_score.optimum import Grid, Limits
from fivesigma.cut.moving_average import MovingAverage
from fivesigma.likelihood.own import OwnUncertainty
from fivesigma.likelihood.profile import Counts, lowest, profile
from fivesigma.likelihood.shifts import YieldShifts, stack_scaled
from fivesigma.significance import GaussianBackground, RelativeBackground, Utility

_OPPOSITE = 1e-9  # relative difference of up and -down
MAX_EDGES = 512  # candidate edges with systematics; more are not better on other events


def is_profiled(utility: Utility, shifts: YieldShifts | None, mc_statistics: bool, correlated: bool) -> bool:
    """Whether the significance of categories is a profiled one, and not h of a sum of F."""
    own = correlated and isinstance(utility, GaussianBackground | RelativeBackground)
    return shifts is not None or mc_statistics or own


class Moved(NamedTuple):
    """The background at the pulls that fit the chosen categories, over the nominal one, above each threshold."""

    threshold: Array  # ascending
    ratio: Array
    constant: float

    def at(self, thresholds: Array) -> Array:
        """Ratio above any thresholds."""
        return np.interp(thresholds, self.threshold, self.ratio)


def replica_values(counts: Counts, s: Array, b: Array, offset: float) -> Array:
    """Profiled significance of replicas, one per row, whose backgrounds move as much in proportion."""
    total = b + offset
    up, down = (v * (total / counts.b)[:, None, :] for v in (counts.up, counts.down))
    relative = None if counts.relative is None else np.broadcast_to(counts.relative, total.shape)
    scaled = None
    if counts.scaled is not None:
        share = (total / counts.b)[:, None, None, :]
        scaled = counts.scaled[0] * share, counts.scaled[1] * share
    replicas = Counts(s + total, total, up, down, relative, counts.freedom, scaled)
    z: Array = np.sqrt(2 * np.maximum(profile(replicas, lowest(counts).theta).objective, 0.0))
    return z


def cells_of(grid: Grid, shifts: YieldShifts | None, limits: Limits, utility: Utility) -> Cells:
    """Running sums of a grid with those of its variations, smoothed as the grid is.

    Parameters
    ----------
    grid : Grid
        From `grid_of`, smoothed or not.
    shifts : YieldShifts, optional
        In the cells between the edges of the grid, in ascending order of the score.
    """
    own = OwnUncertainty.of(utility)
    s, b = (grid.s, grid.b) if grid.smooth is None else grid.smooth
    average = None if grid.smooth is None else MovingAverage.of(grid.s, grid.b)

    def running(shift: Array) -> Array:
        raw = np.append(0.0, np.cumsum(shift[::-1]))
        return raw if average is None else average.shift(grid.b, raw)

    def pair(up: Array, down: Array) -> tuple[Array, Array]:
        # What is opposite stays so: averaged by itself, a large shift down would be bent.
        above, opposite = running(up), np.abs(up + down).max() <= _OPPOSITE * np.abs(up).max()
        return above, -above if opposite else running(down)

    rows = [] if shifts is None else [pair(up, down) for up, down in shifts.background_shifts()]
    freedom = None if shifts is None else shifts.freedom(others=int(own.uncertain))
    scaled = None
    if shifts is not None and freedom is not None and freedom.scales.size:
        parts = [[pair(up, down) for up, down in by] for by in shifts.scaled_shifts()]
        scaled = stack_scaled(parts, int(own.uncertain))
    constant = np.zeros(len(rows) + own.uncertain)
    if own.uncertain:
        rows.append((own.fraction * b, -own.fraction * b))
        constant[-1] = own.constant
    up, down = (np.array([row[i] for row in rows]).reshape(-1, b.size) for i in (0, 1))
    return Cells(s + b, b, up, down, _allowed(grid, s, b, limits), own.offset, constant, freedom, scaled)


def _allowed(grid: Grid, s: Array, b: Array, limits: Limits) -> BoolArray:
    pairs = [v[:, None] - v[None, :] for v in (grid.s, grid.counted, grid.b2)]
    allowed = limits.allow(*pairs) & np.tri(grid.s.size, k=-1, dtype=np.bool_)
    # As in `Grid.objective`: a share of all background keeps differences of smoothed yields away from rounding.
    allowed &= (s[:, None] >= s[None, :]) & (b[:, None] - b[None, :] > 1e-12 * grid.b[-1])
    return allowed


def moved_background(cells: Cells, theta: Array, thresholds: Array) -> Moved:
    """Where the background has moved, for thresholds from the tightest to the loosest."""
    shift = cells.shift(theta)[1:]
    b = cells.b[1:]
    ratio = np.divide(b + shift, b, out=np.ones_like(b), where=b > 0)
    return Moved(thresholds[::-1], ratio[::-1], float(cells.constant @ theta))


def replica_cells(grid: Grid, moved: Moved, thresholds: Array, limits: Limits, utility: Utility) -> Cells:
    """Running sums of a replica whose background moves as the chosen categories' does; it is there at a pull of one."""
    s, b = (grid.s, grid.b) if grid.smooth is None else grid.smooth
    shift = (b * (np.append(1.0, moved.at(thresholds)) - 1.0))[None]
    allowed = _allowed(grid, s, b, limits)
    return Cells(s + b, b, shift, -shift, allowed, OwnUncertainty.of(utility).offset, np.array([moved.constant]))


def merged(shifts: YieldShifts, ends: IntArray, edges: Array) -> YieldShifts:
    """Sum cells into categories.

    Parameters
    ----------
    shifts : YieldShifts
        In fine cells, in ascending order.
    ends : int array
        Cell at which each category begins, ascending.
    edges : array
        Of the categories.
    """

    def add(values: Array) -> Array:
        out: Array = np.add.reduceat(values, ends)
        return out

    nominal = {
        name: rows._replace(
            sum_of_weights=add(rows.sum_of_weights),
            sum_of_squares=add(rows.sum_of_squares),
            events=np.add.reduceat(rows.events, ends),
        )
        for name, rows in shifts.nominal.items()
    }
    up, down = (
        {name: {key: add(values) for key, values in by.items()} for name, by in side.items()}
        for side in (shifts.up, shifts.down)
    )
    return YieldShifts(edges, nominal, up, down, shifts.free)
