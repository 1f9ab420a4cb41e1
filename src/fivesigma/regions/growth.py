"""Growing categories: one split more at a time, so that every smaller number comes for free and no seed is needed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from fivesigma._types import Array
from fivesigma.regions.ascent import Problem, State, climb, keep, state_of

_TRIALS = 3  # splits that are followed up by a climb
_POLISH = (0.3, 0.1, 0.03, 0.01)  # relative steps of the pattern search


def directions(n_signals: int) -> Array:
    """Directions of the splits in the ratios: each signal against background, and each pair of signals."""
    eye = np.eye(n_signals)
    return np.concatenate([eye, [eye[i] - eye[j] for i, j in combinations(range(n_signals), 2)]]).reshape(-1, n_signals)


def splits(problem: Problem, state: State) -> list[Array]:
    """Yields of the categories after each of the best splits, from the best on.

    For every category and direction all thresholds are tried at once: F adds up, so that only two parts change.
    What is discarded can be split too; one part of it stays discarded.
    """
    points, goal, floors = problem.points, problem.goal, problem.floors
    own = goal.objectives(state.yields)
    rest = np.concatenate([own.sum(axis=0) - own, [own.sum(axis=0)]])  # of all other categories; the last: discarded
    content = np.concatenate([points.yields, points.floor], axis=1)
    found: list[tuple[float, Array]] = []
    for direction in directions(points.ratios.shape[1]):
        order = np.lexsort((points.ratios @ direction, state.category))
        category = state.category[order]
        starts = np.flatnonzero(np.diff(category, prepend=category[0] - 1))
        ends = np.append(starts[1:], order.size)
        running = np.cumsum(content[order], axis=0)
        before = np.concatenate([np.zeros((1, running.shape[1])), running[starts[1:] - 1]])
        segment = np.repeat(np.arange(starts.size), ends - starts)
        left = running - before[segment]
        right = running[ends - 1][segment] - running
        held = [floors.hold(part[:, -2], part[:, -1]) for part in (left, right)]
        F = [
            goal.objectives(np.where(ok[:, None], part[:, :-2], 1.0))
            for ok, part in zip(held, (left, right), strict=True)
        ]
        G = np.where(held[0] & held[1], goal.value(rest[category] + F[0] + F[1]), -np.inf)
        kept_alone = [np.where(ok, goal.value(rest[-1] + part), -np.inf) for ok, part in zip(held, F, strict=True)]
        for start, end in zip(starts, ends, strict=True):
            k = int(category[start])
            if k >= 0:
                at = start + int(G[start:end].argmax())
                grown = np.concatenate([state.yields, right[at : at + 1, :-2]])
                grown[k] = left[at, :-2]
                found.append((float(G[at]), grown))
            else:
                for value, part in zip(kept_alone, (left, right), strict=True):
                    at = start + int(value[start:end].argmax())
                    found.append((float(value[at]), np.concatenate([state.yields, part[at : at + 1, :-2]])))
    found = [item for item in found if item[0] > -np.inf]
    found.sort(key=lambda item: -item[0])
    return [grown for _, grown in found[:_TRIALS]]


def first(problem: Problem) -> State | None:
    """One category: of all events, and then what is left of it where events may be discarded."""
    yields, _ = keep(np.zeros(problem.points.density.shape[0], dtype=np.intp), 1, problem.points)
    start = state_of(problem._replace(discard=False), problem.goal.rows(yields))
    if start is None or not problem.discard:
        return start
    states = [state_of(problem, problem.goal.rows(grown)) for grown in [yields, *splits(problem, _nothing(problem))]]
    climbed = [climb(problem, state) for state in states if state is not None and state.value > -np.inf]
    return max(climbed, key=lambda state: state.value, default=None)


def _nothing(problem: Problem) -> State:
    n, n_classes = problem.points.density.shape
    return State(
        np.zeros((0, n_classes)), np.full(n, -1), np.zeros((0, n_classes)), np.zeros((0, 2)), 0.0
    )


def one_more(problem: Problem, state: State) -> State | None:
    """Split once and climb; None if no split has enough events for the floors."""
    trials = [state_of(problem, problem.goal.rows(grown)) for grown in splits(problem, state)]
    climbed = [climb(problem, trial) for trial in trials if trial is not None and trial.value > -np.inf]
    return max(climbed, key=lambda trial: trial.value, default=None)


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
        new = None if fewer is None else one_more(problem, fewer)
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
    content = np.concatenate([points.yields, points.floor], axis=1)
    kept = np.concatenate([state.yields, state.floor], axis=1)
    value = state.value
    worth = points.density @ rows.T
    for step in _POLISH:
        for k in range(n):
            others = np.delete(worth, k, axis=1)
            second = others.argmax(axis=1) if n > 1 else np.full(len(others), -1)
            height = np.take_along_axis(others, second[:, None], axis=1)[:, 0] if n > 1 else np.full(len(others), -np.inf)
            second += second >= k
            if problem.discard:
                second[height < 0] = -1
                height = np.maximum(height, 0.0)
            for c in range(rows.shape[1]):
                for change in (step * rows[k, c], -step * rows[k, c]):
                    own = worth[:, k] + change * points.density[:, c]
                    new = np.where(own >= height, k, second)
                    moved = np.flatnonzero(new != category)
                    if moved.size == 0:
                        continue
                    trial = kept.copy()
                    np.subtract.at(trial, category[moved[category[moved] >= 0]], content[moved[category[moved] >= 0]])
                    np.add.at(trial, new[moved[new[moved] >= 0]], content[moved[new[moved] >= 0]])
                    if not floors.hold(trial[:, -2], trial[:, -1]).all():
                        continue
                    G = problem.goal.total(trial[:, :-2])
                    if G > value:
                        rows[k, c] += change
                        worth[:, k], category, kept, value = own, new, trial, G
    return State(rows, category, *keep(category, n, points), value)


