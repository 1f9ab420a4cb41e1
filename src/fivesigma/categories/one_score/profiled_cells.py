"""Categories whose background moves along systematics: what every interval between two edges counts, at any pulls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fivesigma._types import Array, BoolArray, IntArray
from fivesigma.categories.floors import Floors
from fivesigma.categories.one_score.exact import Grid
from fivesigma.cut.yield_model import MovingAverage
from fivesigma.likelihood.measurement import Derivatives, expand_measurement, profile_measurement
from fivesigma.likelihood.profile import Counts, Expansion, Freedom, Profile, expand, lowest, profile
from fivesigma.likelihood.shifts import YieldShifts, stack_scaled
from fivesigma.likelihood.terms import OwnUncertainty, deviance
from fivesigma.significance import GaussianBackground, RelativeBackground, Utility

_OPPOSITE = 1e-9  # relative difference of up and -down
MAX_EDGES_PROFILED = 512  # candidate edges with systematics; more are not better on other events


@dataclass(frozen=True, eq=False)
class Cells(ABC):
    """Running sums from the edge that keeps nothing to the one that keeps all, and the intervals that are allowed.

    Attributes
    ----------
    n : array of shape (n_edges,)
        Expected counts s + b above each edge, zero at index 0.
    allowed : bool array of shape (n_edges, n_edges)
        Whether the interval from the upper edge (column) to the lower edge (row) may be a category.
    offset : float
        Background that every category has besides: b_reg.
    constant : array of shape (n_systematics,)
        Shift that every category has besides, as large up as down.
    """

    n: Array
    allowed: BoolArray
    offset: float
    constant: Array

    @cached_property
    def _pairs(self) -> tuple[IntArray, IntArray]:
        lower, upper = np.nonzero(self.allowed)
        return upper, lower

    @abstractmethod
    def values(self, theta: Array, upper: IntArray, lower: IntArray) -> Array:
        """G of the categories between edges, at some pulls."""

    @abstractmethod
    def penalty(self, theta: Array) -> float:
        """Price of some pulls."""

    @abstractmethod
    def profile(self, partitions: IntArray, start: Array) -> Profile:
        """Profile several partitions from the same pulls."""

    @abstractmethod
    def lowest(self, edges: IntArray, start: Array | None = None) -> Profile:
        """Profile one partition from several pulls."""

    @abstractmethod
    def expand(self, partitions: IntArray, theta: Array) -> Expansion:
        """F of several partitions to second order at the same pulls."""

    @abstractmethod
    def moved(self, theta: Array) -> Array:
        """What a replica needs to know of the pulls; see `Moved`."""

    @property
    def least(self) -> Array | float:
        """Smallest pull of each systematic."""
        return -np.inf

    def matrix(self, theta: Array) -> Array:
        """G of all categories: rows are lower edges, columns upper ones, minus infinity where not allowed."""
        upper, lower = self._pairs
        out = np.full(self.allowed.shape, -np.inf)
        out[lower, upper] = self.values(theta, upper, lower)
        return out

    def at(self, theta: Array, partitions: IntArray) -> Array:
        """F of partitions at some pulls; each is given by its edges without the first, which is zero."""
        out: Array = self.values(theta, uppers(partitions), partitions).sum(axis=-1) + self.penalty(theta)
        return out


@dataclass(frozen=True, eq=False)
class DiscoveryCells(Cells):
    """Cells for the largest profiled significance.

    Attributes
    ----------
    b : array of shape (n_edges,)
        Background above each edge.
    up, down : arrays of shape (n_systematics, n_edges)
        Shifts of the background above each edge.
    freedom : Freedom, optional
        Pulls without a constraint.
    scaled : (array, array), optional
        Running shifts that free normalisations scale, of shape (n_scales, n_systematics, n_edges).
    """

    b: Array
    up: Array
    down: Array
    freedom: Freedom | None = None
    scaled: tuple[Array, Array] | None = None

    def between(self, upper: IntArray, lower: IntArray) -> Counts:
        """Counts of the categories between edges, of shape (..., n_categories)."""
        n, b = (v[lower] - v[upper] + self.offset for v in (self.n, self.b))
        up, down = (
            np.moveaxis(v[:, lower] - v[:, upper], 0, -2) + sign * self.constant[:, None]
            for v, sign in ((self.up, 1.0), (self.down, -1.0))
        )
        scaled = None
        if self.scaled is not None:
            first, second = (np.moveaxis(v[..., lower] - v[..., upper], (0, 1), (-3, -2)) for v in self.scaled)
            scaled = first, second
        return Counts(n, b, up, down, None, self.freedom, scaled)

    @property
    def least(self) -> Array | float:
        """Smallest pull of each systematic."""
        return -np.inf if self.freedom is None else self.freedom.least

    def penalty(self, theta: Array) -> float:
        """Price of some pulls."""
        return float(theta @ theta / 2 if self.freedom is None else self.freedom.penalty(theta))

    def shift(self, theta: Array) -> Array:
        """Running shift of the background at some pulls."""
        counts = Counts(self.n, self.b, self.up, self.down, None, self.freedom, self.scaled)
        return counts.shifts(theta)[0]

    def values(self, theta: Array, upper: IntArray, lower: IntArray) -> Array:
        """G of the categories between edges, at some pulls."""
        moved = self.b + self.shift(theta)
        n, m, b = (v[lower] - v[upper] + self.offset for v in (self.n, moved, self.b))
        return deviance(n, m + self.constant @ theta, b).value

    def profile(self, partitions: IntArray, start: Array) -> Profile:
        """Profile several partitions from the same pulls."""
        return profile(self.between(uppers(partitions), partitions), start)

    def lowest(self, edges: IntArray, start: Array | None = None) -> Profile:
        """Profile one partition from several pulls."""
        return lowest(self.between(uppers(edges), edges), start)

    def expand(self, partitions: IntArray, theta: Array) -> Expansion:
        """F of several partitions to second order at the same pulls."""
        counts = self.between(uppers(partitions), partitions)
        return expand(counts, np.broadcast_to(theta, (len(partitions), theta.size)))

    def moved(self, theta: Array) -> Array:
        """Ratio of the background at the pulls to the nominal one, above each edge but the first."""
        b = self.b[1:]
        return np.divide(b + self.shift(theta)[1:], b, out=np.ones_like(b), where=b > 0)


@dataclass(frozen=True, eq=False)
class MeasurementCells(Cells):
    """Cells for the smallest uncertainty of the signal strength.

    Attributes
    ----------
    s : array of shape (n_edges,)
        Signal above each edge.
    delta : array of shape (n_systematics, n_edges)
        Derivatives of the counts above each edge along the pulls.
    constraint : array of shape (n_systematics,)
        One, or zero for a free pull.
    """

    s: Array
    delta: Array
    constraint: Array

    def between(self, upper: IntArray, lower: IntArray) -> Derivatives:
        """What the uncertainty needs of the categories between edges."""
        s, n = (v[lower] - v[upper] for v in (self.s, self.n))
        delta = np.moveaxis(self.delta[:, lower] - self.delta[:, upper], 0, -2) + self.constant[:, None]
        return Derivatives(s, n + self.offset, delta, self.constraint)

    def penalty(self, theta: Array) -> float:
        """Price of some pulls."""
        return float((self.constraint * theta * theta).sum() / 2)

    def values(self, theta: Array, upper: IntArray, lower: IntArray) -> Array:
        """(s - a.Delta)^2 / (2 n) of the categories between edges."""
        signal = self.s - theta @ self.delta
        rest = signal[lower] - signal[upper] - self.constant @ theta
        out: Array = rest * rest / (2 * (self.n[lower] - self.n[upper] + self.offset))
        return out

    def profile(self, partitions: IntArray, start: Array) -> Profile:  # noqa: ARG002 - as in discovery
        """Minimise over a; there is one minimum, whatever the start."""
        return profile_measurement(self.between(uppers(partitions), partitions))

    def lowest(self, edges: IntArray, start: Array | None = None) -> Profile:  # noqa: ARG002 - as in discovery
        """Minimise over a; there is one minimum, whatever the start."""
        return profile_measurement(self.between(uppers(edges), edges))

    def expand(self, partitions: IntArray, theta: Array) -> Expansion:
        """F of several partitions to second order at the same a."""
        at = self.between(uppers(partitions), partitions)
        return expand_measurement(at, np.broadcast_to(theta, (len(partitions), theta.size)))

    def moved(self, theta: Array) -> Array:
        """a.Delta over the counts, above each edge but the first."""
        n = self.n[1:]
        return np.divide((theta @ self.delta)[1:], n, out=np.zeros_like(n), where=n > 0)


def uppers(partitions: IntArray) -> IntArray:
    """Upper edge of every category."""
    return np.concatenate([np.zeros((*partitions.shape[:-1], 1), dtype=np.intp), partitions[..., :-1]], axis=-1)


def is_profiled(utility: Utility, shifts: YieldShifts | None, mc_statistics: bool, correlated: bool) -> bool:
    """Whether the significance of categories is a profiled one, and not h of a sum of F."""
    own = correlated and isinstance(utility, GaussianBackground | RelativeBackground)
    return shifts is not None or mc_statistics or own


class Moved(NamedTuple):
    """Where the pulls that fit the chosen categories move the yields above each threshold; see `Cells.moved`."""

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


def replica_precisions(at: Derivatives, s: Array, n: Array, counts: Array) -> Array:
    """1 / sigma_mu of replicas, one per row, whose yields move as much in proportion.

    Parameters
    ----------
    at : Derivatives
        Of the categories themselves.
    s, n : arrays of shape (n_replicas, n_categories)
        Signal and expected counts of the replicas, b_reg included.
    counts : array of shape (n_categories,)
        Expected counts of the categories themselves.
    """
    share = n / counts
    replicas = Derivatives(s, at.n * share, at.delta * share[:, None, :], at.constraint)
    precision: Array = np.sqrt(2 * np.maximum(profile_measurement(replicas).objective, 0.0))
    return precision


def make_cells(
    grid: Grid, shifts: YieldShifts | None, floors: Floors, utility: Utility, goal: str = "discovery"
) -> Cells:
    """Running sums of a grid with those of its variations, smoothed as the grid is.

    Parameters
    ----------
    grid : Grid
        From `grid_of`, smoothed or not.
    shifts : YieldShifts, optional
        In the cells between the edges of the grid, in ascending order of the score.
    floors : Floors
    utility : Utility
    goal : {"discovery", "measurement"}, default="discovery"
    """
    own = OwnUncertainty.of(utility)
    s, b = (grid.s, grid.b) if grid.smooth is None else grid.smooth
    average = None if grid.smooth is None else MovingAverage.of(grid.s, grid.b)

    def running(shift: Array, along: Array) -> Array:
        raw = np.append(0.0, np.cumsum(shift[::-1]))
        return raw if average is None else average.shift(along, raw)

    def pair(up: Array, down: Array) -> tuple[Array, Array]:
        # What is opposite stays so: averaged by itself, a large shift down would be bent.
        above, opposite = running(up, grid.b), np.abs(up + down).max() <= _OPPOSITE * np.abs(up).max()
        return above, -above if opposite else running(down, grid.b)

    rows = [] if shifts is None else [pair(up, down) for up, down in shifts.background_shifts()]
    freedom = None if shifts is None else shifts.freedom(others=int(own.uncertain))
    constant = np.zeros(len(rows) + own.uncertain)
    if own.uncertain:
        rows.append((own.fraction * b, -own.fraction * b))
        constant[-1] = own.constant
    up, down = (np.array([row[i] for row in rows]).reshape(-1, b.size) for i in (0, 1))
    shared = (s + b, _allowed(grid, s, b, floors), own.offset, constant)
    if goal == "measurement":
        delta = (up - down) / 2
        for k, (high, low) in enumerate([] if shifts is None else shifts.shifts_of(signal=True)):
            delta[k] += running((high - low) / 2, grid.s)
        return MeasurementCells(*shared, s, delta, np.ones(constant.size) if freedom is None else freedom.constraint)
    scaled = None
    if shifts is not None and freedom is not None and freedom.scales.size:
        parts = [[pair(high, low) for high, low in by] for by in shifts.scaled_shifts()]
        scaled = stack_scaled(parts, int(own.uncertain))
    return DiscoveryCells(*shared, b, up, down, freedom, scaled)


def _allowed(grid: Grid, s: Array, b: Array, floors: Floors) -> BoolArray:
    pairs = [v[:, None] - v[None, :] for v in (grid.s, grid.counted, grid.b2)]
    allowed = floors.allow(*pairs) & np.tri(grid.s.size, k=-1, dtype=np.bool_)
    # As in `Grid.objective`: a share of all background keeps differences of smoothed yields away from rounding.
    allowed &= (s[:, None] >= s[None, :]) & (b[:, None] - b[None, :] > 1e-12 * grid.b[-1])
    return allowed


def moved_background(cells: Cells, theta: Array, thresholds: Array) -> Moved:
    """Remember where the pulls have moved the yields, for thresholds from the tightest to the loosest."""
    return Moved(thresholds[::-1], cells.moved(theta)[::-1], float(cells.constant @ theta))


def replica_cells(  # noqa: PLR0917 - as `make_cells`
    grid: Grid, moved: Moved, thresholds: Array, floors: Floors, utility: Utility, goal: str
) -> Cells:
    """Running sums of a replica that is moved in proportion, as the chosen categories are; it is there at a pull of 1.

    The parameters are those of `make_cells`, with `Moved` in the place of variations.
    """
    s, b = (grid.s, grid.b) if grid.smooth is None else grid.smooth
    ratio, constant = moved.at(thresholds), np.array([moved.constant])
    shared = (s + b, _allowed(grid, s, b, floors), OwnUncertainty.of(utility).offset, constant)
    if goal == "measurement":
        return MeasurementCells(*shared, s, ((s + b) * np.append(0.0, ratio))[None], np.ones(1))
    shift = (b * (np.append(1.0, ratio) - 1.0))[None]
    return DiscoveryCells(*shared, b, shift, -shift)


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
