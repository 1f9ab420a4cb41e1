"""Exact intervals of one value per event, for one of several signals: the dynamic programming of `categorise`.

Floors are on the processes that count, the objective is on all that is background.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.categories.one_score.optimum import MAX_EDGES, Grid, Limits, best_edges, best_totals, candidate_cuts
from fivesigma.categories.ratios.sample import Sample, added
from fivesigma.categories.several_signals.settings import Settings
from fivesigma.cut.ranking import rank_events

FEWER_EDGES = 1024


class Intervals(NamedTuple):
    """The best k intervals of one signal.

    Attributes
    ----------
    edges : array of shape (k,)
        Ascending lower edges; the first is minus infinity if nothing is left out.
    content : array of shape (k, n_signals + 3)
        Yields by class, then sums of weights and of squared weights that count for the floors.
    objective : float
        Sum of F of that signal.
    """

    edges: Array
    content: Array
    objective: float

    @classmethod
    def none(cls, n_signals: int) -> Intervals:
        """No intervals at all."""
        return cls(np.empty(0), np.empty((0, n_signals + 3)), 0.0)


def best_intervals(
    value: Array, sample: Sample, signal: int, settings: Settings, *, discard: bool | None = None
) -> list[Intervals]:
    """Best intervals of `value` for one signal, from one on; fewer than asked for if the floors allow no more.

    Parameters
    ----------
    value : array of shape (n_events,)
        Larger means more like the signal.
    sample : Sample
        Of the same events.
    signal : int
    settings : Settings
    discard : bool, optional
        Whether the lowest values may be left out; as the settings say if not given.
    """
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
    limits = Limits(floors.min_background, floors.min_effective)
    best = best_totals(grid, goal.utility, limits, min(most, cuts.size))
    out = []
    for k in range(1, best.shape[0] + 1):
        ends = best.copy()
        if not discard:
            ends[k - 1, :-1] = -np.inf
        objective = float(ends[k - 1].max())
        if objective == -np.inf:
            break
        chosen = best_edges(grid, goal.utility, limits, ends, k)
        edges = np.where(chosen == cuts.size, -np.inf, ranking.thresholds(cuts[chosen - 1]))
        content = np.diff(running[np.append(0, chosen)], axis=0)
        out.append(Intervals(edges[::-1], content[::-1], objective))
    return out


def _running(sample: Sample, order: IntArray, weight: Array, last: IntArray) -> Array:
    """Sums over the events up to each cut: weights of each class, weights and squares of what counts for the floors."""
    n_processes, n_signals = len(sample.names), sample.n_signals
    order, weight = order[: last[-1] + 1], weight[: last[-1] + 1]
    process = sample.process.astype(np.int16).take(order)  # small numbers are gathered faster
    cell = np.repeat(np.arange(last.size) * n_processes, np.diff(last, prepend=-1)) + process
    first, second = (
        added(cell, values, last.size * n_processes).reshape(last.size, n_processes)
        for values in (weight, np.square(weight))
    )
    out = np.zeros((last.size + 1, n_signals + 3))
    out[1:, :n_signals] = first[:, :n_signals]
    out[1:, n_signals] = first[:, n_signals:].sum(axis=1)
    out[1:, -2] = first[:, sample.floor].sum(axis=1)
    out[1:, -1] = second[:, sample.floor].sum(axis=1)
    return np.cumsum(out, axis=0)
