"""Categories with the largest profiled significance, and an upper bound on what any categories could have.

For fixed pulls theta the objective is a sum over categories, so dynamic programming finds the best partition at theta.
The best partition profiled over theta is never above that: max over partitions of min over theta of F <= max over
partitions of F(theta), for any theta. So every theta bounds the optimum from above, every partition from below, and
their distance is a certificate. Cutting planes choose the thetas: the next one is best for all partitions seen so far.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.categories.one_score.profiled_cells import Cells
from fivesigma.categories.one_score.survivors import Totals, settle, survivors
from fivesigma.errors import InputError
from fivesigma.likelihood.profile import enough_digits

MAX_CUTS = 12  # dynamic programs
CLOSE = 1e-3  # gap in significance below which the search stops
_SCALES = (0.0, 0.5, 1.0, 1.5)  # of the best pulls, at which the local search also starts
_TEMPERATURES = (1e1, 1e2, 1e3, 1e4)
_SWEEPS = 20


class Optimum(NamedTuple):
    """Edges of the best partition found, its F, its pulls, and a bound on the F of all partitions.

    `candidates` are all partitions that were profiled, and their F.
    """

    edges: IntArray
    objective: float
    theta: Array
    bound: float
    candidates: dict[tuple[int, ...], float]


@dataclass
class _Search:
    cells: Cells
    n_categories: int
    bound: float = np.inf
    found: dict[tuple[int, ...], tuple[float, Array]] = field(default_factory=dict)
    programs: list[Totals] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.node_bound = np.full((self.n_categories, self.cells.n.size), np.inf)

    @property
    def best(self) -> tuple[tuple[int, ...], float, Array]:
        edges = max(self.found, key=lambda p: self.found[p][0])
        return edges, *self.found[edges]

    @property
    def gap(self) -> float:
        return float(np.sqrt(2 * self.bound) - np.sqrt(2 * self.best[1]))

    def totals(self, theta: Array) -> Totals:
        """Dynamic programs from both ends; partitions with an edge that cannot be in a better one are left out."""
        G, k = self.cells.matrix(theta), self.n_categories
        alive = self.node_bound >= self.best[1] if self.found else np.ones(self.node_bound.shape, dtype=np.bool_)
        down_to, below = np.full((2, k, G.shape[0]), -np.inf)
        down_to[0] = np.where(alive[0], G[:, 0], -np.inf)
        below[0] = 0.0
        for i in range(1, k):
            down_to[i] = np.where(alive[i], (G + down_to[i - 1]).max(axis=1), -np.inf)
            below[i] = (G + np.where(alive[k - i], below[i - 1], -np.inf)[:, None]).max(axis=0)
        totals = Totals(down_to, below, G, self.cells.penalty(theta))
        self.programs.append(totals)
        self._tighten(totals)
        return totals

    def _tighten(self, totals: Totals) -> None:
        """Lower the bound of all partitions, and of those with a certain k-th edge."""
        node = totals.down_to + totals.below[::-1] + totals.penalty
        np.minimum(self.node_bound, node, out=self.node_bound)
        # Partitions that were left out are below the best that was found.
        least = self.best[1] if self.found else -np.inf
        self.bound = max(least, min(self.bound, float(self.node_bound.max(axis=1).min())))

    def backtrack(self, totals: Totals) -> IntArray:
        edges = np.empty(self.n_categories, dtype=np.intp)
        edges[-1] = totals.down_to[-1].argmax()
        for k in range(self.n_categories - 1, 0, -1):
            edges[k - 1] = (totals.matrix[edges[k]] + totals.down_to[k - 1]).argmax()
        return edges

    def add(self, edges: IntArray, start: Array | None = None) -> tuple[float, Array]:
        """F of a partition and its pulls."""
        key = tuple(edges.tolist())
        if key not in self.found:
            fitted = self.cells.lowest(edges, start)
            self.found[key] = float(fitted.objective), fitted.theta
        return self.found[key]

    def improve(self, edges: IntArray) -> None:
        """Move one edge after the other to its best place, until none moves.

        Any theta bounds what a profile can reach, so that only places which are better at the present pulls are tried.
        """
        value, theta = self.add(edges)
        allowed, last = self.cells.allowed, self.cells.n.size - 1
        for _ in range(_SWEEPS):
            before = value
            for k in range(edges.size):
                above = edges[k - 1] if k else 0
                places = np.arange(above + 1, edges[k + 1] if k + 1 < edges.size else last + 1)
                places = places[allowed[places, above]]
                if k + 1 < edges.size:
                    places = places[allowed[edges[k + 1], places]]
                trials = np.repeat(edges[None], places.size, axis=0)
                trials[:, k] = places
                trials = trials[self.cells.at(theta, trials) > value * (1 + 1e-9)]
                if not trials.size:
                    continue
                fitted = self.cells.profile(trials, theta)
                top = int(fitted.objective.argmax())
                if fitted.objective[top] > value:
                    there = self.add(trials[top], fitted.theta[top])
                    if there[0] > value:
                        edges, (value, theta) = trials[top], there
            if value <= before * (1 + 1e-9):
                break

    def close(self) -> None:
        """Settle all partitions that could still be better, if they are few enough."""
        best = self.best[1]
        left = survivors(self.programs, self.node_bound >= best, best)
        if left is not None:
            edges, value, theta, self.bound = settle(self.cells, left, best)
            if edges is not None and theta is not None:
                self.found[tuple(edges.tolist())] = value, theta


def best_at(cells: Cells, n_categories: int, theta: Array) -> IntArray | None:
    """Edges of the partition with the largest F at some pulls, or None if no partition is allowed."""
    at = _Search(cells, n_categories)
    totals = at.totals(theta)
    return at.backtrack(totals) if totals.down_to[-1].max() > -np.inf else None


@enough_digits()
def search(cells: Cells, n_categories: int) -> Optimum:
    """Find the partition with the largest profiled F.

    Parameters
    ----------
    cells : Cells
        At least one partition must be allowed.
    n_categories : int
    """
    at = _Search(cells, n_categories)
    theta = np.zeros(cells.constant.size)
    for _ in range(MAX_CUTS):
        totals = at.totals(theta)
        if totals.down_to[-1].max() == -np.inf:
            break  # nothing is left that could be better
        edges = at.backtrack(totals)
        seen = tuple(edges.tolist()) in at.found
        at.add(edges)
        if seen or at.gap < CLOSE:
            break
        theta = at.best[2] if len(at.found) == 1 else minimax(cells, list(at.found), at.best[2])
    if not at.found:
        raise InputError(
            f"no {n_categories} categories are allowed on the smoothed yields; ask for fewer or lower limits"
        )
    if at.gap >= CLOSE:
        starts = [np.array(p) for p in sorted(at.found, key=lambda p: -at.found[p][0])[:3]]
        for scale in _SCALES:
            totals = at.totals(scale * at.best[2])
            if totals.down_to[-1].max() > -np.inf:
                starts.append(at.backtrack(totals))
        for edges in starts:
            at.improve(edges)
        at.bound = max(at.bound, at.best[1])
    if at.gap >= CLOSE:
        at.close()
    edges_, value, theta = at.best
    candidates = {edges: found[0] for edges, found in at.found.items()}
    return Optimum(np.array(edges_), value, theta, max(at.bound, value), candidates)


def minimax(cells: Cells, partitions: list[tuple[int, ...]], start: Array) -> Array:
    """Pulls at which the largest F of some partitions is smallest, by Newton steps on a soft maximum."""
    lower, theta = np.array(partitions), start
    for temperature in _TEMPERATURES:
        for _ in range(20):
            value, gradient, hessian = _soft_maximum(cells, lower, theta, temperature)
            step = np.linalg.solve(hessian, gradient)
            decrease, length = float(gradient @ step), 1.0
            if decrease < 1e-2 / temperature:
                break
            while (
                length > 1e-6
                and _soft_maximum(cells, lower, theta - length * step, temperature)[0] > value - 0.1 * length * decrease
            ):
                length /= 2
            theta = np.maximum(theta - length * step, cells.least)
    return theta


def _soft_maximum(cells: Cells, partitions: IntArray, theta: Array, temperature: float) -> tuple[float, Array, Array]:
    """log(sum of exp(temperature F)) / temperature over the partitions, its gradient and its Hessian."""
    at = cells.expand(partitions, theta)
    top = at.value.max()
    share = np.exp(temperature * (at.value - top))
    total = share.sum()
    share /= total
    gradient = share @ at.gradient
    spread = at.gradient - gradient
    hessian = np.tensordot(share, at.hessian, 1) + temperature * (spread * share[:, None]).T @ spread
    return float(top + np.log(total) / temperature), gradient, hessian
