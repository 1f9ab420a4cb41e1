"""Growing categories: one split more at a time, so that every smaller number comes for free and no seed is needed."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from fivesigma._types import Array
from fivesigma.categories.ratios.class_sample import added_rows
from fivesigma.categories.several_signals.ascent import Problem, State, climb, keep, state_of

_TRIALS = 3  # splits that are followed up by a climb
_TRIAL_STEPS = 4
_SLIGHT = 1e-6  # relative height of a new row above the one that it is split from
_POLISH = (0.2, 0.05, 0.0125)  # relative steps of the pattern search


def directions(n_signals: int) -> list[tuple[int, int]]:
    """Pairs of classes whose ratio a split can cut: each signal and background, and each pair of signals."""
    return [(m, n_signals) for m in range(n_signals)] + list(combinations(range(n_signals), 2))


def splits(problem: Problem, state: State) -> list[tuple[Array, Array]]:
    """Yields and rows of the categories after each of the best splits, from the best on.

    For every category and ratio of two densities all thresholds are tried at once: F adds up, so that only two parts
    change. What is discarded can be split too; one part of it stays discarded.
    """
    points, goal, floors = problem.points, problem.goal, problem.floors
    own = goal.objectives(state.yields)
    rest = np.concatenate([own.sum(axis=0) - own, [own.sum(axis=0)]])  # of all other categories; the last: discarded
    logs = np.concatenate([points.ratios, np.zeros((len(points.ratios), 1))], axis=1)
    found: list[tuple[float, int, tuple[int, int], float, float, Array, Array]] = []
    for above, below in directions(points.ratios.shape[1]):
        ratio = logs[:, above] - logs[:, below]
        order = np.lexsort((ratio, state.category))
        category = state.category[order]
        starts = np.flatnonzero(np.diff(category, prepend=category[0] - 1))
        ends = np.append(starts[1:], order.size)
        running = np.cumsum(points.content[order], axis=0)
        before = np.concatenate([np.zeros((1, running.shape[1])), running[starts[1:] - 1]])
        segment = np.repeat(np.arange(starts.size), ends - starts)
        left = running - before[segment]
        right = running[ends - 1][segment] - running
        held = [floors.hold(part[:, -2], part[:, -1]) for part in (left, right)]
        F = [
            goal.objectives(np.where(ok[:, None], part[:, :-2], 1.0))
            for ok, part in zip(held, (left, right), strict=True)
        ]
        both = np.where(held[0] & held[1], goal.value(rest[category] + F[0] + F[1]), -np.inf)
        out = slice(0, int(ends[0]) if category[0] < 0 else 0)  # what is discarded comes first
        alone = [np.where(ok[out], goal.value(rest[-1] + part[out]), -np.inf) for ok, part in zip(held, F, strict=True)]
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            k = int(category[start])
            for G, sign in ((both, 1.0),) if k >= 0 else zip(alone, (-1.0, 1.0), strict=True):
                at = start + int(G[start : end - 1].argmax()) if end - start > 1 else start
                if G[at] > -np.inf:
                    edge = float(ratio[order[at]] + ratio[order[min(at + 1, order.size - 1)]]) / 2
                    parts = left[at, :-2], (right if sign > 0 else left)[at, :-2]
                    found.append((float(G[at]), k, (above, below), edge, sign, *parts))
    found.sort(key=lambda item: -item[0])
    best = []
    for _, k, classes, edge, sign, old, new in found[:_TRIALS]:
        yields = np.concatenate([state.yields, new[None]])
        if k >= 0:
            yields[k] = old
        best.append((yields, _split_rows(state.rows, k, classes, edge, sign)))
    return best


def _split_rows(rows: Array, k: int, classes: tuple[int, int], edge: float, sign: float) -> Array:
    """Rows in which a new category takes from category `k`, or from what is discarded, one side of an edge.

    The new row exceeds that of category `k` by so little that no other boundary moves.
    """
    above, below = classes
    new = np.zeros(rows.shape[1]) if k < 0 else rows[k].copy()
    size = np.abs(rows).max(initial=1e-3) * _SLIGHT * sign / (1.0 + np.exp(edge))
    new[above] += size
    new[below] -= size * np.exp(edge)
    return np.concatenate([rows, new[None]])


def first(problem: Problem) -> State | None:
    """One category: of all events, and then what is left of it where events may be discarded."""
    yields, _ = keep(np.zeros(problem.points.density.shape[0], dtype=np.intp), 1, problem.points)
    rows = problem.goal.rows(yields)
    if not problem.discard:
        return state_of(problem, rows)
    trials = [state_of(problem, rows), *_split(problem, _nothing(problem))]
    climbed = [climb(problem, state) for state in trials if state is not None and state.value > -np.inf]
    return max(climbed, key=lambda state: state.value, default=None)


def _nothing(problem: Problem) -> State:
    n, n_classes = problem.points.density.shape
    return State(
        np.zeros((0, n_classes)),
        np.full(n, -1),
        np.zeros((0, n_classes)),
        np.zeros((0, 2)),
        np.zeros(n_classes - 1),
        0.0,
    )


def _split(problem: Problem, state: State, trials: int = _TRIALS) -> list[State | None]:
    """States after the best splits: a whole step ahead, or as they are where that step leaves a category too little."""
    return [
        state_of(problem, problem.goal.rows(yields)) or state_of(problem, rows)
        for yields, rows in splits(problem, state)[:trials]
    ]


def one_more(problem: Problem, state: State, trials: int = _TRIALS) -> State | None:
    """Split once and climb; None if no split has enough events for the floors."""
    states = _split(problem, state, trials)
    climbed = [climb(problem, t, _TRIAL_STEPS, (1.0,)) for t in states if t is not None and t.value > -np.inf]
    best = max(climbed, key=lambda trial: trial.value, default=None)
    return None if best is None else climb(problem, best)


def rearrange(problem: Problem, state: State) -> State:
    """Merge the pair that loses least and split anew, for as long as the goal rises."""
    n = state.yields.shape[0]
    for _ in range(n if n > 1 else 0):
        own = problem.goal.objectives(state.yields)
        total = own.sum(axis=0)
        pairs = list(combinations(range(n), 2))
        i, j = np.array(pairs).T
        merged = problem.goal.objectives(state.yields[i] + state.yields[j])
        a, b = pairs[int(problem.goal.value(total - own[i] - own[j] + merged).argmax())]
        yields = np.delete(state.yields, b, axis=0)
        yields[a] = state.yields[a] + state.yields[b]
        fewer = state_of(problem, problem.goal.rows(yields))
        new = None if fewer is None or fewer.value == -np.inf else one_more(problem, fewer, 1)
        if new is None or not new.value > state.value * (1 + 1e-6):
            break
        state = new
    return state


def polish(problem: Problem, state: State) -> State:
    """Try smaller and larger values of each class in each category, with ever smaller steps.

    Only points that change their category are summed anew.
    """
    points, floors = problem.points, problem.floors
    rows, category = state.rows.copy(), state.category
    n = rows.shape[0]
    kept = np.concatenate([state.yields, state.floor], axis=1)
    value = state.value
    worth = rows @ points.density.T
    classes, signs = (part.ravel() for part in np.meshgrid(np.arange(rows.shape[1]), (1.0, -1.0), indexing="ij"))
    density = points.density.T[classes]
    for step in _POLISH:
        for k in range(n):
            others = worth.copy()
            others[k] = -np.inf
            second, height = others.argmax(axis=0), others.max(axis=0)
            if problem.discard:
                second[height < 0] = -1
                height = np.maximum(height, 0.0)
            changes = signs * step * rows[k, classes]
            categories = np.where(worth[k] + changes[:, None] * density >= height, k, second)
            trial, moved = np.nonzero(categories != category)
            to, away = (
                added_rows(trial * (n + 1) + where + 1, points.content[moved], changes.size * (n + 1))
                for where in (categories[trial, moved], category[moved])
            )
            trials = kept + (to - away).reshape(changes.size, n + 1, -1)[:, 1:]
            held = floors.hold(trials[..., -2], trials[..., -1]).all(axis=1)
            G = np.where(held, problem.goal.value(problem.goal.objectives(trials[..., :-2]).sum(axis=1)), -np.inf)
            best = int(G.argmax())
            if G[best] > value:
                rows[k, classes[best]] += changes[best]
                worth[k] += changes[best] * density[best]
                category, kept, value = categories[best], trials[best], float(G[best])
    polished = state_of(problem, rows, repair=False)  # ties and rounding may be settled otherwise
    return state if polished is None or polished.value < state.value else polished
