"""The paper's step for many categories at once.

G is minorised at the present yields by a linear function in each category (`Goal.rows`), so every point goes to the
category where it is worth most, and the yields follow. It is a k-means with a Bregman divergence: the boundaries are
linear in the densities. With exact densities and the goal "sum" no step lowers G. With fitted densities, or floors, a
step is kept only if G rises.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.categories.class_sample import Points, add_up_rows
from fivesigma.categories.floors import Floors
from fivesigma.categories.several_signals.goal import Goal

STEPS = (1.0, 0.5, 0.25, 0.1)
_MAX_CLIMB = 40
_MAX_REPAIRS = 3  # per category
_MORE = 1.1  # times as much is asked for by a category that lost again what it had taken
_ENOUGH = 1e-6  # relative gain below which a climb ends
_TRIALS = 3  # splits that are followed up by a climb
_TRIAL_STEPS = 4
_SLIGHT = 1e-6  # relative height of a new row above the one that it is split from
_POLISH = (0.2, 0.05, 0.0125)  # relative steps of the pattern search


class Problem(NamedTuple):
    """All that a search needs to know."""

    points: Points
    goal: Goal
    floors: Floors
    discard: bool


class State(NamedTuple):
    """Categories as rows of values, and what they keep."""

    rows: Array
    category: IntArray
    yields: Array
    floor: Array
    objectives: Array
    value: float


def assign(density: Array, rows: Array, *, discard: bool) -> IntArray:
    """Category where each point is worth most; -1 where it is worth less than nothing and may be discarded."""
    worth = rows @ density.T
    best = np.zeros(density.shape[0]) if discard else worth[0].copy()
    number = np.full(density.shape[0], 0 if discard else 1, dtype=np.int16)  # small, so that much of it is cached
    for k in range(0 if discard else 1, rows.shape[0]):
        better = worth[k] > best
        np.maximum(number, better * np.int16(k + 1), out=number)
        np.maximum(best, worth[k], out=best)
    return number.astype(np.intp) - 1


def keep(category: IntArray, n_categories: int, points: Points) -> tuple[Array, Array]:
    """Yields and floor sums of the categories."""
    sums = add_up_rows(category + 1, points.content, n_categories + 1)[1:]
    return sums[:, :-2], sums[:, -2:]


def hold_floors(problem: Problem, rows: Array, *, repair: bool = True) -> tuple[Array, IntArray, Array, Array] | None:
    """Rows, their categories and what these keep; None if the floors do not hold and cannot be made to."""
    category = assign(problem.points.density, rows, discard=problem.discard)
    yields, floor = keep(category, rows.shape[0], problem.points)
    if problem.floors.hold(*floor.T).all():
        return rows, category, yields, floor
    repaired = repair_floors(problem, rows) if repair else None
    return None if repaired is None else hold_floors(problem, repaired, repair=False)


def state_of(problem: Problem, rows: Array, *, repair: bool = True) -> State | None:
    """Categories of the rows; None if the floors do not hold and cannot be made to."""
    held = hold_floors(problem, rows, repair=repair)
    if held is None:
        return None
    F = problem.goal.objectives(held[2]).sum(axis=0)
    return State(*held, F, float(problem.goal.value(F)))


def repair_floors(problem: Problem, rows: Array) -> Array | None:
    """Raise the value of background in categories below a floor until they have enough.

    The smallest rise that is enough follows from one sort: a category gains points in the order of what they are worth
    less there than elsewhere, per background. Neighbours lose these points and may need the same. Two of them could
    take the same points from each other for long, so that each asks for more every time, and reaches those of others.
    """
    density, floor, rows = problem.points.density, problem.points.floor, rows.copy()
    n = rows.shape[0]
    background = np.maximum(density[:, -1], 1e-300)
    worth = rows @ density.T
    category, height = worth.argmax(axis=0), worth.max(axis=0)
    if problem.discard:
        category[height <= 0] = -1
        np.maximum(height, 0.0, out=height)
    asked = np.ones(n)
    for _ in range(_MAX_REPAIRS * n):
        kept = add_up_rows(category + 1, floor, n + 1)[1:]
        held = problem.floors.hold(*kept.T)
        if held.all():
            return rows
        k = int(held.argmin())
        others = np.flatnonzero(category != k)
        rise = (height[others] - (rows[k] @ density.T)[others]) / background[others]
        order = np.argsort(rise)
        sums = (kept[k] + np.cumsum(floor[others[order]], axis=0)).T
        enough = problem.floors.times(asked[k]).hold(*sums)
        if not enough.any():
            enough = problem.floors.hold(*sums)
        if not enough.any():
            return None
        asked[k] *= _MORE
        last = int(enough.argmax())
        here, after = rise[order[last]], rise[order[min(last + 1, rise.size - 1)]]
        if not np.isfinite(here):
            return None
        # Beyond the last point that is needed, so that rounding does not leave it out again.
        rows[k, -1] += here + min((after - here) / 2, 1e-6 * abs(here)) + 1e-12 * np.abs(rows[k]).max()
        own = rows[k] @ density.T
        category[own > height] = k
        np.maximum(height, own, out=height)
    return None


def climb(problem: Problem, state: State, max_steps: int = _MAX_CLIMB, steps: tuple[float, ...] = STEPS) -> State:
    """Take steps, whole ones or parts of them, for as long as the goal rises."""
    for _ in range(max_steps):
        target = problem.goal.rows(state.yields, state.objectives)
        for step in steps:
            new = state_of(problem, state.rows + step * (target - state.rows))
            if new is not None and new.value > state.value:
                break
        else:
            return state
        gain = new.value - state.value
        state = new
        if gain < _ENOUGH * abs(state.value):
            break
    return state


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
    n_signals = points.ratios.shape[1]
    pairs = [*((m, n_signals) for m in range(n_signals)), *combinations(range(n_signals), 2)]
    for above, below in pairs:
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
    n, n_classes = problem.points.density.shape
    none = np.zeros((0, n_classes))
    nothing = State(none, np.full(n, -1), none, np.zeros((0, 2)), np.zeros(n_classes - 1), 0.0)
    trials = [state_of(problem, rows), *_split(problem, nothing)]
    climbed = [climb(problem, state) for state in trials if state is not None and state.value > -np.inf]
    return max(climbed, key=lambda state: state.value, default=None)


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
                add_up_rows(trial * (n + 1) + where + 1, points.content[moved], changes.size * (n + 1))
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
