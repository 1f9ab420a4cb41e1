"""The best split of a ranked sample into intervals, exact on a grid of candidate edges.

F adds up over categories, so the best K categories that end at an edge are the best K - 1 that end at an earlier one
plus the category between the two. Every pair of edges is tried: noise in the cells breaks the quadrangle inequality
that would allow to skip some.

Edges are chosen for yields with less noise than the events have, those of `fivesigma.cut.yield_model`. Few events, and
events that contradict the model, are averaged along the score instead. So are yields with systematics: shifts can only
be averaged, and modelled yields beside them were worse.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.categories.floors import Floors
from fivesigma.cut.ranking import Cuts, Ranking
from fivesigma.cut.yield_model import NOISE, MovingAverage, RankedYields
from fivesigma.significance import Utility
from fivesigma.yields import valid_yields

MAX_EDGES = 4096
_ROWS = 32  # right ends handled at once: their pairs stay in the cache while all categories pass over them

_MANY = 20_000  # effective background events with which a measurement keeps half of the noise


@dataclass(frozen=True)
class Grid:
    """Running yields at candidate edges, from the edge that keeps nothing, index 0, to the one that keeps most."""

    s: Array
    b: Array
    b2: Array  # squared background weights
    heaviest: float = np.inf  # background weight that no event exceeds, infinity if some weights are negative
    smooth: tuple[Array, Array] | None = None  # s and b with less noise, which replace them in F, not in the floors
    floor: Array | None = None  # background that counts for the floors, if not all does; b2 is then of the same events
    s2: Array | None = None  # squared signal weights, for a model of the yields
    noise: float = NOISE  # share of the noise that an average has left in the smooth yields

    @property
    def counted(self) -> Array:
        """Background that counts for the floors."""
        return self.b if self.floor is None else self.floor

    @property
    def driving(self) -> tuple[Array, Array]:
        """Signal and background that F is computed from."""
        return (self.s, self.b) if self.smooth is None else self.smooth

    def objective(self, utility: Utility, floors: Floors, first: int, stop: int) -> Array:
        """F of categories with lower edges in [first, stop) and upper edges in [0, stop); -inf where forbidden."""
        s, b = (v[first:stop, None] - v[None, :stop] for v in self.driving)
        n = 0
        if self.heaviest < np.inf:
            # Without negative weights sum w^2 <= max w * sum w: with enough background all else is fulfilled.
            # A share of all of it keeps differences of smoothed yields away from rounding.
            enough = max(floors.min_background, floors.min_effective * self.heaviest, 1e-12 * self.b[-1])
            n = int(np.searchsorted(self.counted[:first], self.counted[first] - enough))
        forbidden = ~floors.allow(*(v[first:stop, None] - v[None, n:stop] for v in (self.s, self.counted, self.b2)))
        forbidden[:, first - n :] |= ~np.tri(stop - first, k=-1, dtype=np.bool_)
        if self.smooth is not None or self.floor is not None:
            forbidden |= ~valid_yields(s[:, n:], b[:, n:])
        s[:, n:][forbidden], b[:, n:][forbidden] = 0.0, 1.0
        F = utility.objective(s, b)
        F[:, n:][forbidden] = -np.inf
        return F


def candidate_cuts(ranking: Cuts, max_edges: int = MAX_EDGES) -> IntArray:
    """Indices of at most `max_edges` cuts: weighted quantiles of signal and background, each class scaled to one.

    Half of them keep evenly growing shares and half shares that grow by a factor, so that the purest events, few as
    they are, can be split as finely as the bulk.
    """
    n_cuts = ranking.last.size
    # A category {score = inf} could not be told from the open end above it.
    first = 1 if n_cuts > 1 and ranking.thresholds([0])[0] == np.inf else 0
    if n_cuts - first <= max_edges:
        return np.arange(first, n_cuts)
    mass: Array = np.zeros(1)
    for running in (ranking.s, ranking.b):
        rising = np.maximum.accumulate(running)  # negative weights make sums fall
        if rising[-1] > 0:
            rising /= rising[-1]
            rising += mass
            mass = rising
    half = max_edges // 2
    shares = np.concatenate([np.arange(1, half) / half, np.geomspace(1 / n_cuts, 1.0, max_edges - half)])
    cuts = np.searchsorted(mass, mass[-1] * shares).clip(first, n_cuts - 1)
    return np.unique(np.append(cuts, n_cuts - 1))


def grid_of(ranking: Cuts, cuts: IntArray) -> Grid:
    """Running yields of a ranking at some of its cuts."""
    s, b, s2, b2 = (np.append(0.0, v) for v in (ranking.s[cuts], ranking.b[cuts], *ranking.variances(cuts)))
    rising = ranking.lightest >= 0 and bool((np.diff(s) >= 0).all())
    return Grid(s, b, b2, ranking.heaviest if rising else np.inf, s2=s2)


def model_yields(grid: Grid, last: IntArray) -> Grid:
    """Take the noise out of the running yields, given the last event above each edge."""
    assert grid.s2 is not None
    fraction = (last + 1.0) / (last[-1] + 1.0)
    measured = RankedYields(fraction, *(v[1:] for v in (grid.s, grid.b, grid.s2, grid.b2)))
    if not measured.can_be_modelled:
        return average_yields(grid)
    s, b = measured.by_fraction()
    if measured.contradict(s, b):
        return average_yields(grid)
    return replace(grid, smooth=(np.append(0.0, s), np.append(0.0, b)))


def average_yields(grid: Grid, goal: str = "discovery") -> Grid:
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


def best_totals(grid: Grid, utility: Utility, floors: Floors, n_categories: int) -> Array:
    """Largest sum of F over k + 1 (row) categories that together keep what is above each edge (column)."""
    n = grid.s.size
    best = np.full((n_categories, n), -np.inf)
    for first in range(1, n, _ROWS):
        stop = min(first + _ROWS, n)
        F = grid.objective(utility, floors, first, stop)
        best[0, first:stop] = F[:, 0]
        for k in range(1, n_categories):
            # Rows of this block need the row below from the same block: it is complete, as k - 1 came first.
            best[k, first:stop] = (F + best[k - 1, :stop]).max(axis=1)
    return best


def best_edges(grid: Grid, utility: Utility, floors: Floors, best: Array, n_categories: int) -> IntArray:
    """Grid indices of the edges of the best `n_categories`, from the tightest to the loosest, without the open end."""
    edges = np.empty(n_categories, dtype=np.intp)
    edges[-1] = best[n_categories - 1].argmax()
    for k in range(n_categories - 1, 0, -1):
        end = int(edges[k])
        F = grid.objective(utility, floors, end, end + 1)[0]
        edges[k - 1] = (F + best[k - 1, : end + 1]).argmax()
    return edges


def edges_at(ranking: Cuts, cuts: IntArray) -> Array:
    """Ascending edges for cuts from the tightest to the loosest; the cut that keeps all events is minus infinity."""
    lower = np.where(cuts == ranking.last.size - 1, -np.inf, ranking.thresholds(cuts))
    return np.append(lower[::-1], np.inf)


def events_above(ranking: Ranking, edges: Array) -> IntArray:
    """Numbers of events at or above each edge, from the highest edge, which has none, to the lowest."""
    ascending = ranking.score[ranking.order[::-1]]
    above: IntArray = ascending.size - np.searchsorted(ascending, edges[:-1])
    return np.append(0, above[::-1])


def from_zero(running: Array) -> Array:
    """Running sums with a first column of zeros: what lies above the edge that keeps nothing."""
    return np.pad(running, ((0, 0), (1, 0)))


def combined_significance(utility: Utility, s: Array, b: Array, at: IntArray) -> Array:
    """Z of all categories between the columns `at` of running sums, row by row; NaN where one is not valid."""
    s, b = np.diff(s[:, at], axis=1), np.diff(b[:, at], axis=1)
    valid = valid_yields(s, b).all(axis=1)
    z = np.full(valid.size, np.nan)
    z[valid] = utility.from_objective(utility.objective(s[valid], b[valid]).sum(axis=1))
    return z
