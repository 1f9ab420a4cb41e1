"""The paper's step for many categories at once.

G is minorised at the present yields by a linear function in each category (`Goal.rows`), so every point goes to the
category where it is worth most, and the yields follow. It is a k-means with a Bregman divergence: the boundaries are
linear in the densities. With exact densities and the goal "sum" no step lowers G. With fitted densities, or floors, a
step is kept only if G rises.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.categories.floors import Floors
from fivesigma.categories.ratios.cells import Points
from fivesigma.categories.ratios.class_sample import added_rows
from fivesigma.categories.several_signals.goal import Goal

STEPS = (1.0, 0.5, 0.25, 0.1)
_MAX_CLIMB = 40
_MAX_REPAIRS = 3  # per category
_MORE = 1.1  # times as much is asked for by a category that lost again what it had taken
_ENOUGH = 1e-6  # relative gain below which a climb ends


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
    sums = added_rows(category + 1, points.content, n_categories + 1)[1:]
    return sums[:, :-2], sums[:, -2:]


def state_of(problem: Problem, rows: Array, *, repair: bool = True) -> State | None:
    """Categories of the rows; None if the floors do not hold and cannot be made to."""
    category = assign(problem.points.density, rows, discard=problem.discard)
    yields, floor = keep(category, rows.shape[0], problem.points)
    if not problem.floors.hold(*floor.T).all():
        if not repair:
            return None
        repaired = repair_floors(problem, rows)
        return None if repaired is None else state_of(problem, repaired, repair=False)
    F = problem.goal.objectives(yields).sum(axis=0)
    return State(rows, category, yields, floor, F, float(problem.goal.value(F)))


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
        kept = added_rows(category + 1, floor, n + 1)[1:]
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
