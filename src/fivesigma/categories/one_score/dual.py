"""Categories with the largest profiled significance, and an upper bound on what any categories could have.

For fixed pulls theta the objective is a sum over categories, so dynamic programming finds the best partition at theta.
The best partition profiled over theta is never above that: max over partitions of min over theta of F <= max over
partitions of F(theta), for any theta. So every theta bounds the optimum from above, every partition from below, and
their distance is a certificate. Cutting planes choose the thetas: the next one is best for all partitions seen so far.

Several channels are one chain of cells in which no category crosses from one channel to the next, so that the same
programme also finds how many categories each channel is worth.

With few categories the bound is loose, and branch and bound closes the gap: partitions are built edge by edge and
dropped as soon as one of the pulls shows that they cannot exceed the best one known. If few enough are left, each is
profiled, and its pulls bound the others. Without this step gaps of 0.05 (three categories) to 1.4 (one) remain, and one
in ten searches misses the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from fivesigma._types import Array, BoolArray, IntArray
from fivesigma.categories.one_score.profiled_cells import Cells
from fivesigma.errors import InputError
from fivesigma.likelihood.profile import enough_digits

MAX_CUTS = 12  # dynamic programs
CLOSE = 1e-3  # gap in significance below which the search stops
MAX_LISTED = 200_000  # beginnings of partitions
_TRIED = 4_000_000  # of them with one more edge
_ROUNDS = 200
_CHUNK = 1 << 22
_SLACK = 1e-9  # relative, against rounding
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


class Totals(NamedTuple):
    """Best sums of G at one theta, over k + 1 categories down to each edge and over k categories below each.

    At the start of a channel `down_to` has the best of the channels before. `blocks` are G of all categories, a matrix
    for each channel.
    """

    cells: Cells
    down_to: Array
    below: Array
    blocks: list[Array]
    penalty: float

    @property
    def final(self) -> Array:
        """Best sum of all categories for each last edge."""
        return np.asarray(self.down_to[-1] + self.below[0])

    def of(self, lower: IntArray, upper: IntArray) -> Array:
        """G of some categories."""
        out = np.empty(lower.shape)
        for first, stop, block in zip(*self.cells.ends, self.blocks, strict=True):
            own = (lower >= first) & (lower < stop)
            out[own] = block[lower[own] - first, upper[own] - first]
        return out

    def backtrack(self) -> IntArray:
        """Edges of the best partition."""
        edges = np.empty(len(self.down_to), dtype=np.intp)
        edges[-1] = self.final.argmax()
        starts, stops = self.cells.ends
        for k in range(edges.size - 1, 0, -1):
            channel = int(np.searchsorted(starts, edges[k], side="right")) - 1
            first, stop = starts[channel], stops[channel]
            edge = first + (self.blocks[channel][edges[k] - first] + self.down_to[k - 1, first:stop]).argmax()
            while edge == first:  # the category begins the channel: the edge before it is in another one
                channel, stop = channel - 1, first
                first = starts[channel]
                edge = stop - 1 if self.cells.whole else first + self.down_to[k - 1, first:stop].argmax()
            edges[k - 1] = edge
        return edges


def programs(cells: Cells, n_categories: int, theta: Array, alive: BoolArray | None = None) -> Totals:
    """Dynamic programs from both ends; `alive` says which edges can be the k-th one of a better partition."""
    blocks, k, size = cells.blocks(theta), n_categories, cells.n.size
    channels = list(zip(*cells.ends, blocks, strict=True))
    # The number of categories before each channel and after it, if it is given.
    before = None if cells.shares is None else np.cumsum((0, *cells.shares))
    level = np.arange(k)
    alive = np.ones((k, size), dtype=np.bool_) if alive is None else alive
    down_to, below = np.full((2, k, size), -np.inf)
    left = np.full(k, -np.inf)
    may_begin = True
    for c, (first, stop, G) in enumerate(channels):
        down_to[:, first] = left if before is None else np.where(level + 1 == before[c], left, -np.inf)
        if may_begin and (before is None or before[c] == 0):
            down_to[0, first + 1 : stop] = np.where(alive[0, first + 1 : stop], G[1:, 0], -np.inf)
        for i in range(1, k):
            best = (G[1:] + down_to[i - 1, first:stop]).max(axis=1)
            down_to[i, first + 1 : stop] = np.where(alive[i, first + 1 : stop], best, -np.inf)
        left = down_to[:, stop - 1].copy() if cells.whole else down_to[:, first:stop].max(axis=1)
        may_begin = not cells.whole
    left = np.where(level == 0, 0.0, -np.inf)
    for c, (first, stop, G) in reversed(list(enumerate(channels))):
        ending = left if before is None else np.where(k - level == before[c + 1], left, -np.inf)
        below[:, stop - 1 if cells.whole else slice(first, stop)] = ending if cells.whole else ending[:, None]
        for i in range(1, k):
            after = np.where(alive[k - i, first:stop], below[i - 1, first:stop], -np.inf)
            best = (G + after[:, None]).max(axis=0)
            np.maximum(below[i, first:stop], best, out=below[i, first:stop])
        left = below[:, first].copy()
    return Totals(cells, down_to, below, blocks, cells.penalty(theta))


@dataclass
class _Search:
    cells: Cells
    n_categories: int
    bound: float = np.inf
    found: dict[tuple[int, ...], tuple[float, Array]] = field(default_factory=dict)
    programs: list[Totals] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.node_bound = np.full((self.n_categories, self.cells.n.size), np.inf)
        self.node_bound[:, self.cells.ends[0]] = -np.inf

    @property
    def best(self) -> tuple[tuple[int, ...], float, Array]:
        edges = max(self.found, key=lambda p: self.found[p][0])
        return edges, *self.found[edges]

    @property
    def gap(self) -> float:
        return float(np.sqrt(2 * self.bound) - np.sqrt(2 * self.best[1]))

    def totals(self, theta: Array) -> Totals:
        """Run the programs at theta, and lower the bounds of all partitions and of those with a certain k-th edge."""
        alive = self.node_bound >= self.best[1] if self.found else None
        totals = programs(self.cells, self.n_categories, theta, alive)
        self.programs.append(totals)
        np.minimum(self.node_bound, totals.down_to + totals.below[::-1] + totals.penalty, out=self.node_bound)
        # Partitions that were left out are below the best that was found.
        least = self.best[1] if self.found else -np.inf
        self.bound = max(least, min(self.bound, float(self.node_bound.max(axis=1).min())))
        return totals

    def add(self, edges: IntArray, start: Array | None = None) -> tuple[float, Array]:
        """F of a partition and its pulls."""
        key = tuple(edges.tolist())
        if key not in self.found:
            fitted = self.cells.between(edges).lowest(start)
            self.found[key] = float(fitted.objective), fitted.theta
        return self.found[key]

    def improve(self, edges: IntArray) -> None:
        """Move one edge after the other to its best place, until none moves.

        Any theta bounds what a profile can reach, so that only places which are better at the present pulls are tried.
        """
        value, theta = self.add(edges)
        allowed, (starts, stops) = self.cells.allowed, self.cells.ends
        for _ in range(_SWEEPS):
            before = value
            for k in range(edges.size):
                above = self.cells.uppers(edges)[k]
                stop = stops[np.searchsorted(starts, edges[k], side="right") - 1]
                inner = k + 1 < edges.size and edges[k + 1] < stop
                if not inner and self.cells.whole:
                    continue  # the last edge of a channel
                places = np.arange(above + 1, edges[k + 1] if inner else stop)
                places = places[allowed[places, above]]
                if inner:
                    places = places[allowed[edges[k + 1], places]]
                trials = np.repeat(edges[None], places.size, axis=0)
                trials[:, k] = places
                reach = self.cells.at(theta, trials)
                trials, reach = trials[reach > value * (1 + _SLACK)], reach[reach > value * (1 + _SLACK)]
                if not trials.size:
                    continue
                if len(trials) > self.cells.tried:
                    trials = trials[np.argsort(-reach)[: self.cells.tried]]
                fitted = self.cells.between(trials).profile(theta)
                top = int(fitted.objective.argmax())
                if fitted.objective[top] > value:
                    there = self.add(trials[top], fitted.theta[top])
                    if there[0] > value:
                        edges, (value, theta) = trials[top], there
            if value <= before * (1 + _SLACK):
                break

    def survivors(self, alive: BoolArray, best: float) -> IntArray | None:
        """Partitions that no theta so far excludes from being better than `best`, or None if they are too many."""
        cells = self.cells
        partitions = np.zeros((1, 0), dtype=np.intp)
        sums = np.zeros((len(self.programs), 1))
        for k in range(self.n_categories):
            places = np.flatnonzero(alive[k])
            last = partitions[:, -1] if k else np.zeros(1, dtype=np.intp)
            if last.size * places.size > _TRIED:
                return None
            kept: list[tuple[IntArray, IntArray]] = []
            for rows in np.array_split(np.arange(last.size), 1 + last.size * places.size // _CHUNK):
                row, at = np.repeat(rows, places.size), np.tile(places, rows.size)
                follows = cells.may_follow(last[row], at)
                row, at = row[follows], at[follows]
                for t, total in enumerate(self.programs):
                    reach = sums[t, row] + total.of(at, np.maximum(last[row], cells.start[at]))
                    reach += total.below[self.n_categories - 1 - k, at]
                    ok = reach + total.penalty > best * (1 + _SLACK)
                    row, at = row[ok], at[ok]
                kept.append((row, at))
            row, at = (np.concatenate(parts) for parts in zip(*kept, strict=True))
            if row.size > MAX_LISTED:
                return None
            upper = np.maximum(last[row], cells.start[at])
            sums = np.stack([sums[t, row] + total.of(at, upper) for t, total in enumerate(self.programs)])
            partitions = np.column_stack([partitions[row], at])
        return partitions

    def close(self) -> None:
        """Settle all partitions that could still be better, if they are few enough."""
        best = self.best[1]
        partitions = self.survivors(self.node_bound >= best, best)
        if partitions is None:
            return
        bound = np.full(len(partitions), np.inf)
        for _ in range(_ROUNDS):
            open_ = bound > best * (1 + _SLACK)
            partitions, bound = partitions[open_], bound[open_]
            if not bound.size:
                break
            top = partitions[int(bound.argmax())]
            fitted = self.cells.between(top).lowest()
            if fitted.objective > best:
                best = float(fitted.objective)
                self.found[tuple(top.tolist())] = best, fitted.theta
            bound = np.minimum(bound, self.cells.at(fitted.theta, partitions))
        self.bound = max(best, float(bound.max(initial=-np.inf)))


@enough_digits()
def search(cells: Cells, n_categories: int) -> Optimum:
    """Find the partition with the largest profiled F, of one channel or of several that share the categories.

    Its edges are numbers of running sums; ``cells.split(edges)`` has them by channel. The significance, or the inverse
    of the uncertainty of mu, is sqrt(2 F), and sqrt(2 bound) is what no partition exceeds.
    """
    at = _Search(cells, n_categories)
    theta = np.zeros(cells.constant.size)
    for _ in range(MAX_CUTS):
        totals = at.totals(theta)
        if totals.final.max() == -np.inf:
            break  # nothing is left that could be better
        edges = totals.backtrack()
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
            if totals.final.max() > -np.inf:
                starts.append(totals.backtrack())
        for edges in starts:
            at.improve(edges)
        at.bound = max(at.bound, at.best[1])
    if at.gap >= CLOSE:
        at.close()
    edges_, value, theta = at.best
    candidates = {edges: found[0] for edges, found in at.found.items()}
    return Optimum(np.array(edges_), value, theta, max(at.bound, value), candidates)


def minimax(cells: Cells, partitions: list[tuple[int, ...]], theta: Array) -> Array:
    """Pulls at which the largest F of some partitions is smallest, by Newton steps from `theta` on a soft maximum."""
    all_of = cells.between(np.array(partitions))

    def soft_maximum(theta: Array, temperature: float) -> tuple[float, Array, Array]:
        """log(sum of exp(temperature F)) / temperature over the partitions, its gradient and its Hessian."""
        at = all_of.expand(np.broadcast_to(theta, (len(partitions), theta.size)))
        top = at.value.max()
        share = np.exp(temperature * (at.value - top))
        total = share.sum()
        share /= total
        gradient = share @ at.gradient
        spread = at.gradient - gradient
        hessian = np.tensordot(share, at.hessian, 1) + temperature * (spread * share[:, None]).T @ spread
        return float(top + np.log(total) / temperature), gradient, hessian

    for temperature in _TEMPERATURES:
        for _ in range(20):
            value, gradient, hessian = soft_maximum(theta, temperature)
            step = np.linalg.solve(hessian, gradient)
            decrease, length = float(gradient @ step), 1.0
            if decrease < 1e-2 / temperature:
                break
            while length > 1e-6:
                if soft_maximum(theta - length * step, temperature)[0] <= value - 0.1 * length * decrease:
                    break
                length /= 2
            theta = np.clip(theta - length * step, *all_of.limits)
    return theta
