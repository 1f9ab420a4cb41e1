"""Categories whose background moves along systematics: what every interval between two edges counts, at any pulls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

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

    Several channels follow each other, each from its own zero; a partition is the ascending list of the lower edges of
    all categories, and a category ends at the edge before it or at the start of its channel.
    """

    n: Array  # (n_edges,): expected counts s + b above each edge, zero at the start of a channel
    allowed: BoolArray  # (n_edges, n_edges): may the interval from the upper (column) to the lower edge be a category?
    offset: float  # background that every category has besides: b_reg
    constant: Array  # (n_systematics,): shift that every category has besides, as large up as down
    starts: tuple[int, ...] = field(default=(0,), kw_only=True)  # first edge of each channel
    whole: bool = field(default=False, kw_only=True)  # must categories cover every channel to its end?
    shares: tuple[int, ...] | None = field(default=None, kw_only=True)  # categories of each channel, if they are given

    @cached_property
    def ends(self) -> tuple[IntArray, IntArray]:
        """Edges at which each channel starts, and where it has ended."""
        return np.array(self.starts), np.array([*self.starts[1:], self.n.size])

    @cached_property
    def start(self) -> IntArray:
        """Start of the channel of each edge."""
        first, stop = self.ends
        return np.repeat(first, stop - first)

    @cached_property
    def _pairs(self) -> list[tuple[IntArray, ...]]:
        return [np.nonzero(self.allowed[i:j, i:j]) for i, j in zip(*self.ends, strict=True)]

    def uppers(self, partitions: IntArray) -> IntArray:
        """Upper edge of every category."""
        before = np.concatenate([np.zeros_like(partitions[..., :1]), partitions[..., :-1]], axis=-1)
        out: IntArray = np.maximum(before, self.start[partitions])
        return out

    def may_follow(self, last: IntArray, edge: IntArray) -> BoolArray:
        """Whether an edge may come after another."""
        same = self.start[last] == self.start[edge]
        out: BoolArray = same | (self.start[edge] == last + 1 if self.whole else self.start[edge] > last)
        return out

    def split(self, edges: IntArray) -> list[IntArray]:
        """Edges of each channel, counted from its start."""
        return [edges[(edges > i) & (edges < j)] - i for i, j in zip(*self.ends, strict=True)]

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

    @property
    def least(self) -> Array | float:
        """Smallest pull of each systematic."""
        return -np.inf

    def blocks(self, theta: Array) -> list[Array]:
        """G of all categories of each channel: rows are lower edges, columns upper ones; -inf where not allowed."""
        out = []
        for first, stop, (lower, upper) in zip(*self.ends, self._pairs, strict=True):
            G = np.full((stop - first, stop - first), -np.inf)
            G[lower, upper] = self.values(theta, upper + first, lower + first)
            out.append(G)
        return out

    def at(self, theta: Array, partitions: IntArray) -> Array:
        """F of partitions at some pulls."""
        out: Array = self.values(theta, self.uppers(partitions), partitions).sum(axis=-1) + self.penalty(theta)
        return out


@dataclass(frozen=True, eq=False)
class DiscoveryCells(Cells):
    """Cells for the largest profiled significance; all arrays are running sums."""

    b: Array  # (n_edges,)
    up: Array  # (n_systematics, n_edges): shifts of the background
    down: Array
    freedom: Freedom | None = None
    scaled: tuple[Array, Array] | None = None  # (n_scales, n_systematics, n_edges): shifts that free yields scale

    def between(self, partitions: IntArray) -> Counts:
        """Counts of the categories of partitions, of shape (..., n_categories)."""
        lower, upper = partitions, self.uppers(partitions)
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
        return Counts(self.n, self.b, self.up, self.down, None, self.freedom, self.scaled).shifts(theta)[0]

    def values(self, theta: Array, upper: IntArray, lower: IntArray) -> Array:
        """G of the categories between edges, at some pulls."""
        moved = self.b + self.shift(theta)
        n, m, b = (v[lower] - v[upper] + self.offset for v in (self.n, moved, self.b))
        return deviance(n, m + self.constant @ theta, b).value

    def profile(self, partitions: IntArray, start: Array) -> Profile:
        """Profile several partitions from the same pulls."""
        return profile(self.between(partitions), start)

    def lowest(self, edges: IntArray, start: Array | None = None) -> Profile:
        """Profile one partition from several pulls."""
        return lowest(self.between(edges), start)

    def expand(self, partitions: IntArray, theta: Array) -> Expansion:
        """F of several partitions to second order at the same pulls."""
        return expand(self.between(partitions), np.broadcast_to(theta, (len(partitions), theta.size)))


class QuadraticCells(Cells):
    """Cells for the smallest uncertainty of the signal strength."""

    @abstractmethod
    def between(self, partitions: IntArray) -> Derivatives:
        """What the uncertainty needs of the categories of partitions."""

    def profile(self, partitions: IntArray, start: Array) -> Profile:  # noqa: ARG002 - as in discovery
        """Minimise over a; there is one minimum, whatever the start."""
        return profile_measurement(self.between(partitions))

    def lowest(self, edges: IntArray, start: Array | None = None) -> Profile:  # noqa: ARG002 - as in discovery
        """Minimise over a; there is one minimum, whatever the start."""
        return profile_measurement(self.between(edges))

    def expand(self, partitions: IntArray, theta: Array) -> Expansion:
        """F of several partitions to second order at the same a."""
        return expand_measurement(self.between(partitions), np.broadcast_to(theta, (len(partitions), theta.size)))


@dataclass(frozen=True, eq=False)
class MeasurementCells(QuadraticCells):
    """Cells for the smallest uncertainty of the signal strength; all arrays are running sums."""

    s: Array  # (n_edges,)
    delta: Array  # (n_systematics, n_edges): derivatives of the counts along the pulls
    constraint: Array  # (n_systematics,): one, or zero for a free pull

    def between(self, partitions: IntArray) -> Derivatives:
        """What the uncertainty needs of the categories of partitions."""
        lower, upper = partitions, self.uppers(partitions)
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


def join_cells(channels: Sequence[Cells], *, whole: bool = False, shares: Sequence[int] | None = None) -> Cells:
    """Put the cells of several channels, or regions, into one chain, in which `dual.search` shares the categories.

    Parameters
    ----------
    channels : sequence of Cells
        From `make_cells`, all for one goal and with the same systematics in the same order: a pull is one for all
        channels. A systematic that does not move a channel has zeros there.
    whole : bool, default=False
        Whether the categories must cover every channel to its end. Otherwise what is below the lowest edge of a channel
        is discarded, which may be all of it.
    shares : sequence of int, optional
        Categories of each channel; by default the search finds how many each is worth.
    """
    sizes = [cells.n.size for cells in channels]
    starts = np.cumsum([0, *sizes])
    allowed = np.zeros((starts[-1], starts[-1]), dtype=np.bool_)
    for first, size, cells in zip(starts, sizes, channels, strict=False):
        allowed[first : first + size, first : first + size] = cells.allowed
    first_cells: Any = channels[0]
    joined: dict[str, Any] = {}
    for name in (f.name for f in fields(first_cells)):
        values = [getattr(cells, name) for cells in channels]
        if isinstance(values[0], tuple) and name == "scaled":
            joined[name] = tuple(np.concatenate(side, axis=-1) for side in zip(*values, strict=True))
        elif name in {"n", "b", "up", "down", "s", "delta"}:
            joined[name] = np.concatenate(values, axis=-1)
    chain: Cells = replace(
        first_cells,
        **joined,
        allowed=allowed,
        starts=tuple(starts[:-1].tolist()),
        whole=whole,
        shares=None if shares is None else tuple(shares),
    )
    return chain


def is_profiled(utility: Utility, shifts: YieldShifts | None, mc_statistics: bool, correlated: bool) -> bool:
    """Whether the significance of categories is a profiled one, and not h of a sum of F."""
    own = correlated and isinstance(utility, GaussianBackground | RelativeBackground)
    return shifts is not None or mc_statistics or own


class Moved(NamedTuple):
    """Where the pulls that fit the chosen categories move the yields above each threshold.

    The ratio is the background there to the nominal one; for a measurement it is a.Delta over the counts.
    """

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
    """1 / sigma_mu of replicas, one per row, whose yields move as those of the categories, with `counts`, do."""
    share = n / counts
    replicas = Derivatives(s, at.n * share, at.delta * share[:, None, :], at.constraint)
    precision: Array = np.sqrt(2 * np.maximum(profile_measurement(replicas).objective, 0.0))
    return precision


def make_cells(
    grid: Grid, shifts: YieldShifts | None, floors: Floors, utility: Utility, goal: str = "discovery"
) -> Cells:
    """Running sums of a grid with those of its variations in ascending cells, smoothed as the grid is."""
    own = OwnUncertainty.of(utility)
    s, b = (grid.s, grid.b) if grid.smooth is None else grid.smooth
    average = None if grid.smooth is None else MovingAverage.of(grid.s, grid.b)

    def running(shift: Array, along: Array) -> Array:
        raw = np.append(0.0, np.cumsum(shift[::-1]))
        return raw if average is None else average.shift(along, raw, grid.noise)

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
    if isinstance(cells, DiscoveryCells):
        total, nominal, moved = cells.b[1:], 1.0, cells.b[1:] + cells.shift(theta)[1:]
    elif isinstance(cells, MeasurementCells):
        total, nominal, moved = cells.n[1:], 0.0, (theta @ cells.delta)[1:]
    ratio = np.divide(moved, total, out=np.full_like(total, nominal), where=total > 0)
    return Moved(thresholds[::-1], ratio[::-1], float(cells.constant @ theta))


def replica_cells(  # noqa: PLR0917 - as `make_cells`
    grid: Grid, moved: Moved, thresholds: Array, floors: Floors, utility: Utility, goal: str
) -> Cells:
    """Running sums of a replica that moves in proportion, as the chosen categories do; it is there at a pull of 1."""
    s, b = (grid.s, grid.b) if grid.smooth is None else grid.smooth
    ratio, constant = moved.at(thresholds), np.array([moved.constant])
    shared = (s + b, _allowed(grid, s, b, floors), OwnUncertainty.of(utility).offset, constant)
    if goal == "measurement":
        return MeasurementCells(*shared, s, ((s + b) * np.append(0.0, ratio))[None], np.ones(1))
    shift = (b * (np.append(1.0, ratio) - 1.0))[None]
    return DiscoveryCells(*shared, b, shift, -shift)


def merged(shifts: YieldShifts, ends: IntArray, edges: Array) -> YieldShifts:
    """Sum ascending cells into categories with `edges`, which begin at the cells `ends`."""

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
