"""Rules that give an event of any sample its category, and the simple way to one.

The simple way gives each event to its most probable class, in which each signal has exact intervals of its own. The
intervals are those of the dynamic programme of `categorise`: floors are on the processes that count, the objective is
on all that is background.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fivesigma._types import Array, IntArray
from fivesigma.categories.class_ratios import Ratios
from fivesigma.categories.class_sample import CHUNK, ClassSample, add_up, densities
from fivesigma.categories.floors import Floors
from fivesigma.categories.one_score.exact import MAX_EDGES, Grid, best_edges, best_totals, candidate_cuts
from fivesigma.categories.several_signals.ascent import assign
from fivesigma.categories.several_signals.goal import Goal, Settings
from fivesigma.cut.ranking import rank_events

Category = NDArray[np.int16]  # two bytes, as several numbers of categories are kept beside each other
FEWER_EDGES = 1024
_BEAM = 256  # ways to share out categories that are kept for each number: all of them for up to three signals


class SeenEvents(NamedTuple):
    """What rules need to know of events; computed once, where several rules are applied to the same events."""

    density: Array  # (n_events, n_signals + 1): relative densities, from the calibration
    column: IntArray  # (n_events,): the most probable class, of classes with equal shares
    probability: Array  # (n_events,): its probability

    @classmethod
    def of(cls, scores: Array, ratios: Array, prior: Array) -> SeenEvents:
        """From class probabilities, calibrated ratios and the shares of the classes."""
        return cls(densities(ratios), *most_probable(scores, prior))


@dataclass(frozen=True)
class LinearRule:
    """The category where an event is worth most, by calibrated densities."""

    ratios: Ratios  # the calibration
    rows: Array  # (n_categories, n_signals + 1): value of an event of each class in each category
    discard: bool  # whether an event that is worth less than nothing everywhere is discarded

    name = "search"

    def __len__(self) -> int:
        return len(self.rows)

    def assign(self, scores: Array, seen: SeenEvents | None = None) -> Category:
        """Category of each event, -1 if it is discarded; of events that were seen the densities are known."""
        density = densities(self.ratios.of(scores)) if seen is None else seen.density
        parts = [assign(density[part], self.rows, discard=self.discard) for part in _chunks(len(density))]
        return np.concatenate(parts).astype(np.int16)


def most_probable(scores: Array, prior: Array) -> tuple[IntArray, Array]:
    """Column of the most probable class, if the classes had equal shares, and its probability."""
    column, probability = np.empty(len(scores), dtype=np.intp), np.empty(len(scores))
    for part in _chunks(len(scores)):
        relative = scores[part].T / prior[:, None]  # column by column, as reductions over a short axis are slow
        column[part] = relative.argmax(axis=0)
        np.divide(relative.max(axis=0), relative.sum(axis=0), out=probability[part])
    return column, probability


@dataclass(frozen=True)
class ArgmaxRule:
    """The simple way: the class with the largest probability, and intervals of that probability in each signal."""

    signals: IntArray  # (n_signals,): columns of the signals
    prior: Array  # (n_columns,): shares of the classes in the training, by which probabilities are divided
    # ascending lower edges of the intervals of each signal's probability, none where a signal has no category
    edges: tuple[Array, ...]
    rest: bool  # whether all that is in no interval is the last category, or is discarded

    name = "argmax"

    def __len__(self) -> int:
        return sum(edges.size for edges in self.edges) + self.rest

    def assign(self, scores: Array, seen: SeenEvents | None = None) -> Category:
        """Category of each event, -1 if it is discarded; of events that were seen the most probable class is known."""
        largest, probability = most_probable(scores, self.prior) if seen is None else (seen.column, seen.probability)
        category = np.full(largest.size, len(self) - 1 if self.rest else -1, dtype=np.int16)
        first = 0
        for column, edges in zip(self.signals, self.edges, strict=True):
            members = np.flatnonzero(largest == column)
            found = np.searchsorted(edges, probability[members], side="right") - 1
            category[members[found >= 0]] = found[found >= 0] + first
            first += edges.size
        return category


Rule = LinearRule | ArgmaxRule


def _chunks(n: int) -> Iterator[slice]:
    return (slice(start, start + CHUNK) for start in range(0, n, CHUNK))


# Positions in the menus of the signals, objectives, and content that is kept.
Way = tuple[tuple[int, ...], Array, Array]


class Intervals(NamedTuple):
    """The best k intervals of one signal."""

    edges: Array  # (k,): ascending lower edges; the first is minus infinity if nothing is left out
    # (k, n_signals + 3): yields by class, then sums of weights and of squared weights that count for the floors
    content: Array
    objective: float  # sum of F of that signal


def best_intervals(
    value: Array, sample: ClassSample, signal: int, settings: Settings, *, discard: bool | None = None
) -> list[Intervals]:
    """Best intervals of `value` for one signal, from one on; fewer than asked for if the floors allow no more."""
    goal, floors, most = settings.goal, settings.floors, settings.n_categories
    discard = settings.discard if discard is None else discard
    classes = sample.classes
    own = classes == signal
    weight = sample.weight
    if goal.others == "ignore":
        weight = np.where(own | (classes == sample.n_signals), weight, 0.0)
    if own.all() or not own.any() or not weight.any():
        return []
    ranking = rank_events(value, own, weight)
    # With one signal these intervals are the result; with several they are a start and a bound.
    cuts = candidate_cuts(ranking, MAX_EDGES if sample.n_signals == 1 else FEWER_EDGES)
    last = ranking.last[cuts]
    weights = ranking.weight if goal.others == "background" else sample.weight.take(ranking.order)
    running = _running(sample, ranking.order, weights, last)
    floor, floor2 = running[:, -2], running[:, -1]
    s, b = (np.append(0.0, yields[cuts]) for yields in (ranking.s, ranking.b))
    counts = sample.weight[sample.floor[sample.process]]
    rising = counts.size > 0 and counts.min() >= 0 and bool((np.diff(s) >= 0).all())
    grid = Grid(s, b, floor2, float(counts.max()) if rising else np.inf, floor=floor)
    best = best_totals(grid, goal.utility, floors, min(most, cuts.size))
    out = []
    for k in range(1, best.shape[0] + 1):
        ends = best.copy()
        if not discard:
            ends[k - 1, :-1] = -np.inf
        objective = float(ends[k - 1].max())
        if objective == -np.inf:
            break
        chosen = best_edges(grid, goal.utility, floors, ends, k)
        edges = np.where(chosen == cuts.size, -np.inf, ranking.thresholds(cuts[chosen - 1]))
        content = np.diff(running[np.append(0, chosen)], axis=0)
        out.append(Intervals(edges[::-1], content[::-1], objective))
    return out


def _running(sample: ClassSample, order: IntArray, weight: Array, last: IntArray) -> Array:
    """Sums over the events up to each cut: weights of each class, weights and squares of what counts for the floors."""
    n_processes, n_signals = len(sample.names), sample.n_signals
    order, weight = order[: last[-1] + 1], weight[: last[-1] + 1]
    process = sample.process.astype(np.int16).take(order)  # small numbers are gathered faster
    cell = np.repeat(np.arange(last.size) * n_processes, np.diff(last, prepend=-1)) + process
    first, second = (
        add_up(cell, values, last.size * n_processes).reshape(last.size, n_processes)
        for values in (weight, np.square(weight))
    )
    out = np.zeros((last.size + 1, n_signals + 3))
    out[1:, :n_signals] = first[:, :n_signals]
    out[1:, n_signals] = first[:, n_signals:].sum(axis=1)
    out[1:, -2] = first[:, sample.floor].sum(axis=1)
    out[1:, -1] = second[:, sample.floor].sum(axis=1)
    return np.cumsum(out, axis=0)


def simple_way(sample: ClassSample, events: SeenEvents, settings: Settings) -> list[tuple[ArgmaxRule, Array] | None]:
    """Rules and yields of the simple way with one to `most` categories; None where the floors allow none.

    Every way to share out the categories among the signals is tried. What is in no interval is discarded or, where
    nothing may be, one category more.
    """
    roles, prior, goal, discard = settings.roles, settings.argmax_prior, settings.goal, settings.discard
    sample = replace(sample, scores=np.empty((sample.size, 0)))  # intervals need the probability alone
    menus: list[list[Intervals]] = []
    none = Intervals(np.empty(0), np.empty((0, sample.n_signals + 3)), 0.0)
    for signal, column in enumerate(roles.signal_columns):
        members = np.flatnonzero(events.column == column)
        value = events.probability[members]
        found = best_intervals(value, sample.part(members), signal, settings, discard=True) if members.size else []
        menus.append([none, *found])
    counts = np.where(sample.floor[sample.process], sample.weight, 0.0)
    total = np.append(sample.class_yields, [counts.sum(), np.square(counts).sum()])
    ways = _share_out(menus, goal, settings.n_categories)
    if not discard:
        ways = {number + 1: _with_rest(some, total, goal, settings.floors) for number, some in ways.items()}
    out: list[tuple[ArgmaxRule, Array] | None] = []
    for number in range(1, settings.n_categories + 1):
        best = _best(ways.get(number, []), goal, 1)
        if not best:
            out.append(None)
            continue
        parts = [menu[i] for menu, i in zip(menus, best[0][0], strict=True)]
        content = np.concatenate([part.content for part in parts])
        if not discard:
            content = np.concatenate([content, [total - content.sum(axis=0)]])
        rule = ArgmaxRule(roles.signal_columns, prior, tuple(part.edges for part in parts), rest=not discard)
        out.append((rule, content[:, :-2]))
    return out


def _share_out(menus: list[list[Intervals]], goal: Goal, most: int) -> dict[int, list[Way]]:
    """Positions in the menus of all signals, the best ones of each number of categories in all."""
    n_signals = len(menus)
    ways: dict[int, list[Way]] = {0: [((), np.zeros(n_signals), np.zeros(n_signals + 3))]}
    for menu in menus:
        longer: dict[int, list[Way]] = {}
        items = [(goal.objectives(part.content[:, :-2]).sum(axis=0), part.content.sum(axis=0)) for part in menu]
        for number, so_far in ways.items():
            for at, (F, content) in enumerate(items):
                size = number + menu[at].edges.size
                if size <= most and np.isfinite(F).all():
                    longer.setdefault(size, []).extend((((*p, at), G + F, c + content)) for p, G, c in so_far)
        ways = {number: _best(some, goal, _BEAM) for number, some in longer.items()}
    return ways


def _with_rest(ways: list[Way], total: Array, goal: Goal, floors: Floors) -> list[Way]:
    """Ways with one more category of all that is left, where it reaches the floors."""
    out = []
    for positions, F, content in ways:
        rest = total - content
        if floors.hold(rest[-2:-1], rest[-1:])[0]:
            G = F + goal.objectives(rest[:-2])
            if np.isfinite(G).all():
                out.append((positions, G, total))
    return out


def _best(ways: list[Way], goal: Goal, number: int) -> list[Way]:
    if len(ways) <= number:
        return ways
    G = goal.value(np.array([F for _, F, _ in ways]))
    return [ways[i] for i in np.argsort(-G, kind="stable")[:number]]
