"""Categories whose background moves along systematics: their significance, and the sums that a search needs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fivesigma._types import Array, BoolArray, IntArray
from fivesigma.categories.cells import Cells
from fivesigma.categories.partition import Grid, Limits, Smoother
from fivesigma.errors import InputError
from fivesigma.profiled.likelihood import interpolate
from fivesigma.profiled.profile import Counts, Profile, lowest, profile
from fivesigma.significance import AMS2, GaussianBackground, RelativeBackground, Utility
from fivesigma.variations import YieldShifts

MAX_EDGES = 512  # candidate edges with systematics; more are not better on other events


class OwnUncertainty(NamedTuple):
    """What a utility says of the background of every category: an offset, and one correlated uncertainty of it."""

    offset: float
    fraction: float
    constant: float

    @classmethod
    def of(cls, utility: Utility) -> OwnUncertainty:
        """Refuse utilities whose F is no likelihood ratio of counts."""
        if isinstance(utility, GaussianBackground):
            return cls(utility.b_reg, 0.0, utility.sigma)
        if isinstance(utility, RelativeBackground):
            return cls(utility.b_reg, utility.fraction, utility.fraction * utility.b_reg)
        if not isinstance(utility, AMS2):
            raise InputError(
                f"systematics need utility AMS2, GaussianBackground or RelativeBackground, got {utility!r}; the "
                "significance is a profiled likelihood ratio"
            )
        return cls(utility.b_reg, 0.0, 0.0)

    @property
    def uncertain(self) -> bool:
        """Whether there is an uncertainty."""
        return self.fraction > 0 or self.constant > 0


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


def counts_of(utility: Utility, s: Array, b: Array, shifts: YieldShifts | None, variance: Array | None) -> Counts:
    """What the likelihood needs of categories that all have s >= 0 and b > 0."""
    own = OwnUncertainty.of(utility)
    rows = [] if shifts is None else list(shifts.background_shifts())
    if own.uncertain:
        size = own.fraction * b + own.constant
        rows.append((size, -size))
    up, down = (np.array([row[i] for row in rows]).reshape(-1, b.size) for i in (0, 1))
    total = b + own.offset
    return Counts(s + total, total, up, down, None if variance is None else variance / total**2)


def profiled_value(
    utility: Utility, s: Array, b: Array, shifts: YieldShifts | None, variance: Array | None, valid: BoolArray
) -> float:
    """Profiled significance of the valid categories."""
    counts = counts_of(utility, s, np.where(valid, b, 1.0), shifts, variance)
    kept = Counts(*(None if v is None else v[..., valid] for v in counts))
    return float(np.sqrt(2 * lowest(kept).objective))


def replica_values(counts: Counts, s: Array, b: Array, offset: float) -> Array:
    """Profiled significance of replicas of shape (n_boot, n_categories), whose backgrounds move as much in proportion."""
    total = b + offset
    up, down = (v * (total / counts.b)[:, None, :] for v in (counts.up, counts.down))
    relative = None if counts.relative is None else np.broadcast_to(counts.relative, total.shape)
    start = lowest(counts).theta
    return np.sqrt(2 * profile(Counts(s + total, total, up, down, relative), start).objective)


def check_size(shifts: YieldShifts) -> tuple[str, ...]:
    """Refuse variations that are larger than the background; say which move none of it."""
    b = shifts.yields(signal=False)
    notes = []
    for name, (up, down) in zip(shifts.up, shifts.background_shifts(), strict=True):
        for side, shift in (("up", up), ("down", down)):
            if abs(shift.sum()) > b.sum():
                raise InputError(
                    f"{name} {side} moves the background from {b.sum():g} to {b.sum() + shift.sum():g}, by more than "
                    "itself; one standard deviation cannot be that large: check the weights of the variation"
                )
        if not (up.any() or down.any()):
            notes.append(f"systematic {name!r} moves no background: it changes nothing")
    return tuple(notes)


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
    smoother = None if grid.smooth is None else Smoother.of(grid)

    def running(shift: Array) -> Array:
        raw = np.append(0.0, np.cumsum(shift[::-1]))
        return raw if smoother is None else smoother.shift(grid.b, raw)

    rows = [] if shifts is None else [(running(up), running(down)) for up, down in shifts.background_shifts()]
    constant = np.zeros(len(rows) + own.uncertain)
    if own.uncertain:
        rows.append((own.fraction * b, -own.fraction * b))
        constant[-1] = own.constant
    up, down = (np.array([row[i] for row in rows]).reshape(-1, b.size) for i in (0, 1))
    return Cells(s + b, b, up, down, _allowed(grid, s, b, limits), own.offset, constant)


def _allowed(grid: Grid, s: Array, b: Array, limits: Limits) -> BoolArray:
    pairs = [v[:, None] - v[None, :] for v in (grid.s, grid.b, grid.b2)]
    allowed = limits.allow(*pairs) & np.tri(grid.s.size, k=-1, dtype=np.bool_)
    # As in `Grid.objective`: a share of all background keeps differences of smoothed yields away from rounding.
    return allowed & (s[:, None] >= s[None, :]) & (b[:, None] - b[None, :] > 1e-12 * grid.b[-1])


def moved_background(cells: Cells, theta: Array, thresholds: Array) -> Moved:
    """Where the background has moved, for thresholds from the tightest to the loosest."""
    shift = interpolate(theta[:, None], cells.up, cells.down)[0].sum(axis=0)[1:]
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
            sum_of_weights=add(rows.sum_of_weights), sum_of_squares=add(rows.sum_of_squares), events=add(rows.events)
        )
        for name, rows in shifts.nominal.items()
    }
    up, down = (
        {name: {key: add(values) for key, values in by.items()} for name, by in side.items()}
        for side in (shifts.up, shifts.down)
    )
    return YieldShifts(edges, nominal, up, down)
