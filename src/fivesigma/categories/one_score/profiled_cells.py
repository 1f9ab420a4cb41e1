"""Categories whose background moves along systematics: what every interval between two edges counts, at any pulls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from fivesigma._types import Array, BoolArray, IntArray
from fivesigma.categories.floors import Floors
from fivesigma.categories.one_score.exact import Grid
from fivesigma.cut.yield_model import MovingAverage
from fivesigma.likelihood.profile import CONSTRAINED, Counts, Derivatives, Freedom, Likelihood, OwnUncertainty, deviance
from fivesigma.likelihood.shifts import YieldShifts
from fivesigma.significance import Utility
from fivesigma.yields import ProcessYields

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

    tried = 1 << 30  # places of an edge that the search profiles: those with the highest bounds

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
        return np.asarray(np.maximum(before, self.start[partitions]))

    def may_follow(self, last: IntArray, edge: IntArray) -> BoolArray:
        """Whether an edge may come after another."""
        same = self.start[last] == self.start[edge]
        return np.asarray(same | (self.start[edge] == last + 1 if self.whole else self.start[edge] > last))

    def split(self, edges: IntArray) -> list[IntArray]:
        """Edges of each channel, counted from its start."""
        return [edges[(edges > i) & (edges < j)] - i for i, j in zip(*self.ends, strict=True)]

    @abstractmethod
    def between(self, partitions: IntArray) -> Likelihood | Derivatives:
        """What is profiled, of the categories of one partition or of several."""

    @abstractmethod
    def values(self, theta: Array, upper: IntArray, lower: IntArray) -> Array:
        """G of the categories between edges, at some pulls."""

    @abstractmethod
    def penalty(self, theta: Array) -> float:
        """Price of some pulls."""

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
        return np.asarray(self.values(theta, self.uppers(partitions), partitions).sum(axis=-1) + self.penalty(theta))


@dataclass(frozen=True, eq=False)
class DiscoveryCells(Cells):
    """Cells for the largest profiled significance; all arrays are running sums."""

    b: Array  # (n_edges,)
    up: Array  # (n_systematics, n_edges): shifts of the background
    down: Array
    freedom: Freedom = CONSTRAINED
    scaled: Array | None = None  # (2, n_scales, n_systematics, n_edges): shifts that free yields scale

    def between(self, partitions: IntArray) -> Counts:  # noqa: D102 - as in Cells
        lower, upper = partitions, self.uppers(partitions)
        n, b = (v[lower] - v[upper] + self.offset for v in (self.n, self.b))
        up, down = (
            np.moveaxis(v[:, lower] - v[:, upper], 0, -2) + sign * self.constant[:, None]
            for v, sign in ((self.up, 1.0), (self.down, -1.0))
        )
        scaled = self.scaled
        if scaled is not None:
            scaled = np.moveaxis(scaled[..., lower] - scaled[..., upper], (0, 1, 2), (-4, -3, -2))
        return Counts(n, b, up, down, None, self.freedom, scaled)

    def penalty(self, theta: Array) -> float:  # noqa: D102
        return float(self.freedom.penalty(theta))

    def values(self, theta: Array, upper: IntArray, lower: IntArray) -> Array:  # noqa: D102
        running = Counts(self.n, self.b, self.up, self.down, None, self.freedom, self.scaled)
        moved = self.b + running.shifts(theta)[0]
        n, m, b = (v[lower] - v[upper] + self.offset for v in (self.n, moved, self.b))
        return deviance(n, m + self.constant @ theta, b).value


@dataclass(frozen=True, eq=False)
class MeasurementCells(Cells):
    """Cells for the smallest uncertainty of the signal strength; all arrays are running sums."""

    s: Array  # (n_edges,)
    delta: Array  # (n_systematics, n_edges): derivatives of the counts along the pulls
    constraint: Array  # (n_systematics,): one, or zero for a free pull
    # (3, n_gammas, n_edges): yields that each staterror or shapesys scales, those of its templates, and their variance
    gammas: Array | None = None
    fixed: Derivatives | None = None  # of bins that are the same in all partitions

    def _counts(self, upper: IntArray, lower: IntArray) -> Array:
        """Expected counts of categories, with the variance of their gammas."""
        n: Array = self.n[lower] - self.n[upper] + self.offset
        if self.gammas is not None:
            scaled, nominal, variance = self.gammas[..., lower] - self.gammas[..., upper]
            n = n + gamma_variance(scaled, nominal, variance).sum(axis=0)
        return n

    def between(self, partitions: IntArray) -> Derivatives:
        """What the uncertainty needs of the categories of partitions, and of the bins that are always there."""
        lower, upper = partitions, self.uppers(partitions)
        delta = np.moveaxis(self.delta[:, lower] - self.delta[:, upper], 0, -2) + self.constant[:, None]
        parts = [self.s[lower] - self.s[upper], self._counts(upper, lower), delta]
        if self.fixed is not None:
            others = (self.fixed.s, self.fixed.n, self.fixed.delta)
            parts = [
                np.concatenate([own, np.broadcast_to(other, (*partitions.shape[:-1], *other.shape))], axis=-1)
                for own, other in zip(parts, others, strict=True)
            ]
        return Derivatives(parts[0], parts[1], parts[2], self.constraint)

    def penalty(self, theta: Array) -> float:
        """Price of some pulls, and F of the bins that are always there."""
        if self.fixed is not None:
            return float(self.fixed.expand(theta).value)
        return float((self.constraint * theta * theta).sum() / 2)

    def values(self, theta: Array, upper: IntArray, lower: IntArray) -> Array:
        """(s - a.Delta)^2 / (2 n) of the categories between edges."""
        signal = self.s - theta @ self.delta
        rest = signal[lower] - signal[upper] - self.constant @ theta
        return np.asarray(rest * rest / (2 * self._counts(upper, lower)))


def gamma_variance(scaled: Array, nominal: Array, variance: Array) -> Array:
    """Variance that gammas add to the counts of bins; pyhf has none where the template or its error is zero."""
    real = (nominal > 0) & (variance > 0)
    return np.divide(scaled**2 * variance, nominal**2, out=np.zeros_like(scaled), where=real)


def join_cells(channels: Sequence[Cells], *, whole: bool = False, shares: Sequence[int] | None = None) -> Cells:
    """Put the cells of several channels, or regions, into one chain, in which `dual.search` shares the categories.

    All are for one goal and have the same systematics in the same order: a pull is one for all channels. A systematic
    that does not move a channel has zeros there.
    """
    names = {f.name for f in fields(channels[0])} & {"n", "b", "up", "down", "scaled", "s", "delta"}
    running: dict[str, Any] = {
        name: np.concatenate([getattr(cells, name) for cells in channels], axis=-1)
        for name in names
        if getattr(channels[0], name) is not None
    }
    starts = np.cumsum([0, *(cells.n.size for cells in channels)])
    return replace(
        channels[0],
        **running,
        allowed=block_diag(*(cells.allowed for cells in channels)),  # none crosses from one channel to the next
        starts=tuple(starts[:-1].tolist()),
        whole=whole,
        shares=None if shares is None else tuple(shares),
    )


def make_cells(
    grid: Grid, shifts: YieldShifts | None, floors: Floors, utility: Utility, goal: str = "discovery"
) -> Cells:
    """Running sums of a grid with those of its variations in ascending cells, smoothed as the grid is."""
    own = OwnUncertainty.of(utility)
    s, b = grid.driving
    average = None if grid.smooth is None else MovingAverage.of(grid.s, grid.b)

    def running(shift: Array, along: Array) -> Array:
        raw = np.append(0.0, np.cumsum(shift[::-1]))
        return raw if average is None else average.shift(along, raw, grid.noise)

    def sides(shifts: Array) -> Array:
        """Running shifts up and down, which are the first axis."""
        out = []
        for up, down in zip(*shifts.reshape(2, -1, shifts.shape[-1]), strict=True):
            # What is opposite stays so: averaged by itself, a large shift down would be bent.
            above, opposite = running(up, grid.b), np.abs(up + down).max() <= _OPPOSITE * np.abs(up).max()
            out.append((above, -above if opposite else running(down, grid.b)))
        return np.array(out).reshape(-1, 2, b.size).swapaxes(0, 1).reshape(*shifts.shape[:-1], b.size)

    moved, freedom, scaled = np.zeros((2, 0, b.size)), CONSTRAINED, None
    if shifts is not None:
        moved, freedom = sides(shifts.background_shifts().swapaxes(0, 1)), shifts.freedom(int(own.uncertain))
        scaled = shifts.scaled_shifts(int(own.uncertain))
    constant = np.zeros(moved.shape[1] + own.uncertain)
    if own.uncertain:
        size = own.fraction * b
        moved = np.concatenate([moved, [[size], [-size]]], axis=1)
        constant[-1] = own.constant
    up, down = moved
    pairs = [v[:, None] - v[None, :] for v in (grid.s, grid.counted, grid.b2)]
    allowed = floors.allow(*pairs) & np.tri(grid.s.size, k=-1, dtype=np.bool_)
    # As in `Grid.objective`: a share of all background keeps differences of smoothed yields away from rounding.
    allowed &= (s[:, None] >= s[None, :]) & (b[:, None] - b[None, :] > 1e-12 * grid.b[-1])
    shared = (s + b, allowed, own.offset, constant)
    if goal == "measurement":
        delta = (up - down) / 2
        for k, (high, low) in enumerate([] if shifts is None else shifts.shifts_of(signal=True)):
            delta[k] += running((high - low) / 2, grid.s)
        return MeasurementCells(*shared, s, delta, np.broadcast_to(freedom.constraint, constant.size))
    return DiscoveryCells(*shared, b, up, down, freedom, None if scaled is None else sides(scaled))


def merge_cells(shifts: YieldShifts, first: IntArray, edges: Array) -> YieldShifts:
    """Sum ascending cells into categories with `edges`, of which `first` are the first cells."""
    nominal = {
        name: ProcessYields(rows.signal, *(np.add.reduceat(v, first) for v in rows[1:]))
        for name, rows in shifts.nominal.items()
    }
    up, down = (
        {name: {key: np.add.reduceat(v, first) for key, v in by.items()} for name, by in side.items()}
        for side in (shifts.up, shifts.down)
    )
    return YieldShifts(edges, nominal, up, down, shifts.free)
