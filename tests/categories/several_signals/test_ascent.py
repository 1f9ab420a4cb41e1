"""The step for many categories: it never falls where the densities are exact, and it finds what brute force finds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fivesigma import AMS2, AMS3, OnOff, SOverRootSB, Utility
from fivesigma._types import Array
from fivesigma.categories.class_sample import Points
from fivesigma.categories.floors import Floors
from fivesigma.categories.several_signals.ascent import (
    Problem,
    assign,
    climb,
    first,
    keep,
    one_more,
    polish,
    rearrange,
    repair_floors,
    state_of,
)
from fivesigma.categories.several_signals.goal import Goal


def exact(yields: Array, weights: Array | None = None) -> Points:
    """Points whose densities are their yields."""
    density = yields / yields.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        ratios = np.log(density[:, :-1]) - np.log(density[:, -1:])
    b = yields[:, -1]
    return Points(ratios, density, yields, np.stack([b, b * b if weights is None else weights], axis=1))


def random_points(seed: int, n: int, n_signals: int) -> Points:
    rng = np.random.default_rng(seed)
    yields = rng.gamma(0.5, size=(n, n_signals + 1)) + 1e-3
    yields[:, :-1] *= 0.1
    return exact(yields)


@pytest.mark.parametrize("utility", [AMS2(), AMS3(), SOverRootSB(), OnOff(tau=2.0)])
@pytest.mark.parametrize("others", ["background", "ignore"])
@given(seed=st.integers(0, 10_000), n_signals=st.integers(1, 4), k=st.integers(1, 6), discard=st.booleans())
@settings(max_examples=25)
def test_no_full_step_falls_with_exact_densities_and_the_goal_sum(  # noqa: PLR0917
    utility: Utility, others: str, seed: int, n_signals: int, k: int, discard: bool
) -> None:
    points = random_points(seed, 60, n_signals)
    goal = Goal("sum", others, utility)
    category = np.random.default_rng(seed).integers(-1 if discard else 0, k, size=60)
    category[:k] = np.arange(k)
    yields, _ = keep(category, k, points)
    value = goal.total(yields)
    for _ in range(15):
        category = assign(points.density, goal.rows(yields), discard=discard)
        used = np.unique(category[category >= 0])
        yields = keep(category, k, points)[0][used]  # a category that lost all its points adds nothing to F
        new = goal.total(yields)
        assert new >= value * (1 - 1e-12)
        value = new
        k = used.size
        if k == 0:
            break


def test_the_rows_minorise_the_objective() -> None:
    rng = np.random.default_rng(1)
    goal = Goal("sum")
    for _ in range(200):
        here, there = rng.gamma(1.0, size=(2, 5, 4))
        rows = goal.rows(here)
        F, F_there = (goal.objectives(y).sum() for y in (here, there))
        assert (rows * there).sum() <= F_there * (1 + 1e-12)
        assert (rows * here).sum() == pytest.approx(F, rel=1e-12)


def best_of_all(points: Points, goal: Goal, k: int, discard: bool) -> float:
    """Largest goal of all assignments of points to k categories, none of them empty."""
    n = points.yields.shape[0]
    choices = np.array(list(itertools.product(range(-1 if discard else 0, k), repeat=n)))
    inside = choices[:, None, :] == np.arange(k)[None, :, None]
    inside = inside[inside.any(axis=2).all(axis=1)]
    return float(goal.value(goal.objectives(inside @ points.yields).sum(axis=1)).max())


def found_by_growth(points: Points, goal: Goal, k: int, discard: bool) -> float:
    problem = Problem(points, goal, Floors(), discard)
    state = first(problem)
    for number in range(1, k + 1):
        assert state is not None
        state = polish(problem, rearrange(problem, state))
        if number < k:
            state = one_more(problem, state)
    assert state is not None
    return state.value


# Least share of optima, least mean and least value over the optimum. They have some room below what other seeds gave,
# as a single case can be bad; docs/validation/several-signals.md has the figures of these.
ASKED = {"sum": (0.9, 0.999, 0.95), "geometric": (0.9, 0.997, 0.85), "minimum": (0.7, 0.98, 0.7)}


@pytest.mark.parametrize("kind", ["sum", "geometric", "minimum"])
def test_growth_against_brute_force(kind: str) -> None:
    goal = Goal(kind)
    found = []
    for seed in range(300, 330):
        for n, k, discard in ((9, 2, False), (7, 2, True), (7, 3, False)):
            points = random_points(seed, n, 2)
            found.append(found_by_growth(points, goal, k, discard) / best_of_all(points, goal, k, discard))
    ratios = np.array(found)
    assert ratios.max() <= 1 + 1e-12
    optima, mean, least = ASKED[kind]
    assert np.mean(ratios > 1 - 1e-9) >= optima
    assert ratios.mean() >= mean
    assert ratios.min() >= least


def test_a_step_is_kept_only_if_the_goal_rises() -> None:
    rng = np.random.default_rng(3)
    points = random_points(3, 200, 2)
    wrong = points.density * rng.gamma(4.0, 0.25, size=points.density.shape)  # densities that are off by a half
    wrong_points = Points(points.ratios, wrong / wrong.sum(axis=1, keepdims=True), points.yields, points.floor)
    problem = Problem(wrong_points, Goal("geometric"), Floors(), discard=False)
    state = state_of(problem, problem.goal.rows(rng.gamma(1.0, size=(4, 3))))
    assert state is not None
    values = [state.value]
    for _ in range(20):
        state = climb(problem, state, 1)
        values.append(state.value)
    assert (np.diff(values) >= 0).all()
    assert values[-1] > values[0]


@given(seed=st.integers(0, 2000), floor=st.floats(1.0, 12.0), discard=st.booleans())
def test_repaired_categories_reach_the_floor(seed: int, floor: float, discard: bool) -> None:
    points = random_points(seed, 80, 2)
    floors = Floors(0.0, floor)
    problem = Problem(points, Goal("sum"), floors, discard)
    rows = problem.goal.rows(np.random.default_rng(seed).gamma(1.0, size=(4, 3)))
    repaired = repair_floors(problem, rows)
    if repaired is not None:
        _, sums = keep(assign(points.density, repaired, discard=discard), 4, points)
        assert (sums[:, 0] ** 2 >= floor * sums[:, 1] * (1 - 1e-6)).all()
        np.testing.assert_array_equal(repaired[:, :-1], rows[:, :-1])


@pytest.mark.parametrize("discard", [True, False])
@pytest.mark.parametrize(("n", "share", "least"), [(3, 0.1, 1.0), (6, 0.1, 1.0), (4, 0.3, 0.85)])
def test_floors_that_leave_room_are_reached(n: int, share: float, least: float, discard: bool) -> None:
    """Categories that were drawn at random ask for `share` of all points; neighbours take them from each other."""
    reached = []
    for seed in range(40):
        points = random_points(seed, 300, 2)
        alike = Points(points.ratios, points.density, points.yields, np.ones((300, 2)))
        problem = Problem(alike, Goal("sum"), Floors(0.0, share * 300 / n), discard)
        rows = problem.goal.rows(np.random.default_rng(seed).gamma(1.0, size=(n, 3)))
        reached.append(repair_floors(problem, rows) is not None)
    assert np.mean(reached) >= least


def test_a_floor_that_nothing_reaches() -> None:
    points = random_points(0, 30, 2)
    problem = Problem(points, Goal("sum"), Floors(min_background=1e9), discard=True)
    assert first(problem) is None
    assert repair_floors(problem, problem.goal.rows(points.yields[:2])) is None
