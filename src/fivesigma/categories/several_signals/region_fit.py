"""One fit: calibration, cells, growth from one category to many, floors on events."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.categories.floors import Floors
from fivesigma.categories.ratios.calibration import Ratios, fit_ratios
from fivesigma.categories.ratios.cells import Points, cells_of, densities, floor_points, information, summed
from fivesigma.categories.ratios.class_sample import ClassSample, added
from fivesigma.categories.several_signals.ascent import (
    Problem,
    State,
    climb,
    first,
    one_more,
    polish,
    rearrange,
    repair_floors,
    splits,
    state_of,
)
from fivesigma.categories.several_signals.goal import Goal, Settings
from fivesigma.categories.several_signals.region_rules import (
    ArgmaxRule,
    Category,
    LinearRule,
    SeenEvents,
    best_intervals,
    most_probable,
    simple_way,
)

_CELLS_PER_CATEGORY = 100
_LEAST_CELLS = 1024


@dataclass(frozen=True)
class Fit:
    """Rules with one category and more, None where there is none."""

    search: list[LinearRule | None]
    simple: list[ArgmaxRule | None]
    categories: list[Category | None]  # what the search gives the events
    calibration: Ratios
    cells: Points
    events: SeenEvents  # what the rules know of the events


def fit(sample: ClassSample, settings: Settings) -> Fit:
    """Find categories both ways, of one to the number asked for."""
    goal, floors, discard, most = settings.goal, settings.floors, settings.discard, settings.n_categories
    calibration = fit_ratios(sample, settings.roles, settings.prior, calibrate=settings.calibrate)
    ratios = calibration.of(sample.scores)
    n_cells = 2 ** int(np.ceil(np.log2(max(_LEAST_CELLS, _CELLS_PER_CATEGORY * most))))
    cells = summed(ratios, sample, cells_of(ratios, n_cells, information(ratios, sample)))
    events = SeenEvents(densities(ratios), *most_probable(sample.scores, settings.argmax_prior))
    simple = simple_way(sample, events, settings)
    if sample.n_signals == 1:
        # One ratio is left, in which the best categories are intervals: no search is needed.
        found = best_intervals(ratios[:, 0], sample, 0, settings)
        rows: list[Array | None] = [envelope(np.exp(part.edges)) for part in found]
    else:
        starts = [None if way is None else way[1] for way in simple]
        states = _grown(Problem(cells, goal, floors, discard), starts)
        rows = [None if state is None else state.rows[_order(state.yields, goal)] for state in states]
    search: list[LinearRule | None] = []
    categories: list[Category | None] = []
    counting = np.flatnonzero(sample.floor[sample.process])
    problem = Problem(floor_points(events.density, sample, counting), goal, floors, discard)
    for found_rows in [*rows, *[None] * most][:most]:
        rule = None if found_rows is None else LinearRule(calibration, found_rows, discard)
        kept, category = (None, None) if rule is None else _with_floors(rule, events, counting, problem)
        if kept is None and search and search[-1] is not None and sample.n_signals > 1:
            trials = _split_once(search[-1], Problem(cells, goal, floors, discard))
            tried = (_with_floors(trial, events, counting, problem) for trial in trials)
            kept, category = next((pair for pair in tried if pair[0] is not None), (None, None))
        search.append(kept)
        categories.append(category)
    return Fit(search, [None if way is None else way[0] for way in simple], categories, calibration, cells, events)


def _grown(problem: Problem, starts: list[Array | None]) -> list[State | None]:
    """Grow by splits, from the simple way where that is the better start."""
    out: list[State | None] = []
    state: State | None = None
    for number, yields in enumerate(starts):
        trials = [first(problem) if number == 0 else None if state is None else one_more(problem, state)]
        if yields is not None:
            trials.append(state_of(problem, problem.goal.rows(yields)))
        climbed = [climb(problem, s) for s in trials if s is not None and s.value > -np.inf]
        state = max(climbed, key=lambda s: s.value, default=None)
        if state is not None:
            state = polish(problem, rearrange(problem, state))
        out.append(state)
    return out


def _split_once(rule: LinearRule, problem: Problem) -> list[LinearRule]:
    """Rules with one category of `rule` in two parts, from the best on, for where the growth has none with the floors.

    Each part has twice the floors in cells, so that it probably has them in events.
    """
    state = state_of(problem._replace(floors=Floors()), rule.rows, repair=False)
    if state is None:
        return []
    found = splits(problem._replace(floors=problem.floors.times(2.0)), state)
    return [replace(rule, rows=rows[_order(yields, problem.goal)]) for yields, rows in found]


def _order(yields: Array, goal: Goal) -> IntArray:
    """Order of categories for readers: by the signal that gains most from each, then by its purity."""
    F = goal.objectives(yields)
    total = F.sum(axis=0)
    signal = np.divide(F, total, out=np.zeros_like(F), where=total > 0).argmax(axis=1)
    s, b = goal.split(yields)
    purity = (s / b)[np.arange(signal.size), signal]
    return np.lexsort((purity, signal))


def envelope(edges: Array) -> Array:
    """Rows of values that make intervals of one density ratio: their upper envelope has its corners at the edges."""
    slopes = np.arange(1.0, edges.size + 1)
    return np.stack([slopes, -np.cumsum(edges)], axis=1)


def _with_floors(
    rule: LinearRule, events: SeenEvents, counting: IntArray, problem: Problem
) -> tuple[LinearRule, Category] | tuple[None, None]:
    """The rule if its categories of events, not of cells, reach the floors; else one that was made to, or None."""
    category = rule.assign_seen(events)
    if _held(category, counting, problem, len(rule)):
        return rule, category
    rows = repair_floors(problem, rule.rows)
    if rows is None:
        return None, None
    repaired = LinearRule(rule.ratios, rows, rule.discard)
    category = repaired.assign_seen(events)
    return (repaired, category) if _held(category, counting, problem, len(rule)) else (None, None)


def _held(category: Category, counting: IntArray, problem: Problem, n: int) -> bool:
    """Whether every category reaches the floors."""
    number = category[counting].astype(np.intp) + 1
    return bool(problem.floors.hold(*(added(number, w, n + 1)[1:] for w in problem.points.floor.T)).all())


def bounds(density: Array, sample: ClassSample, settings: Settings) -> Array:
    """Largest F of each signal alone, with one category and more: exact intervals of its own ratio."""
    out = np.zeros((settings.n_categories, sample.n_signals))
    for m in range(sample.n_signals):
        background = density[:, -1] if settings.goal.others == "ignore" else 1.0 - density[:, m]
        value = density[:, m] / np.maximum(background, 1e-300)
        found = best_intervals(value, sample, m, settings)
        F = [part.objective for part in found] or [0.0]
        out[:, m] = np.maximum.accumulate([*F, *[F[-1]] * settings.n_categories][: settings.n_categories])
    return out


def bound_of_any(cells: Points, goal: Goal) -> float:
    """Goal of the f-divergences of the cells: no number of categories of these cells has more, by these densities."""
    total = np.maximum(cells.yields, 0.0).sum(axis=1, keepdims=True)
    return goal.total(cells.density[total[:, 0] > 0] * total[total[:, 0] > 0])
