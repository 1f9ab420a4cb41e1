"""Categories for several signals: the front door, and one fit behind it.

A fit has a calibration, cells of events, growth from one category to many, and floors on events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import Array, IntArray
from fivesigma.categories.class_ratios import Ratios, check_prior, fit_ratios
from fivesigma.categories.class_sample import (
    ClassSample,
    Points,
    Roles,
    cells_of,
    check_sample,
    floor_points,
    information,
    sum_cells,
)
from fivesigma.categories.floors import Floors, check_number
from fivesigma.categories.several_signals import ascent
from fivesigma.categories.several_signals.goal import Goal, Settings
from fivesigma.categories.several_signals.region_result import Bound, Judged, ScoreCategories, fill_regions, goal_of
from fivesigma.categories.several_signals.region_rules import (
    ArgmaxRule,
    LinearRule,
    Rule,
    SeenEvents,
    best_intervals,
    simple_way,
)
from fivesigma.cut.best_cut import MIN_EFFECTIVE
from fivesigma.errors import InputError
from fivesigma.significance import AMS2, Utility, resolve_utility

_JUDGES = 1 << 16  # events of a class that judge; more would not make the choice surer
_MANY = 200_000  # events beyond which one half judges the other, and not both each other
_CELLS_PER_CATEGORY = 100
_LEAST_CELLS = 1024


def categorise_scores(
    scores: ArrayLike,
    process: ArrayLike,
    sample_weight: ArrayLike,
    n_categories: int,
    *,
    signals: Sequence[str],
    processes: Sequence[str],
    goal: str | Callable[[Array], float] = "geometric",
    others: str = "background",
    prior: ArrayLike | None = None,
    calibrate: bool = True,
    discard: bool = True,
    min_effective: float = MIN_EFFECTIVE,
    min_background: float = 0.0,
    floor_processes: Sequence[str] | None = None,
    utility: Utility | str = AMS2(),
) -> ScoreCategories:
    """Find categories in the class probabilities of a classifier that are good for several signals at once.

    Two ways are taken and compared on events that they were not fitted on: the simple way, which gives every event to
    its most probable class and finds exact intervals in each, and a search for regions of all ratios of densities,
    which starts from it. Each half of the events judges what the other half found, or one of them alone if there are
    more than 200,000 events. The better way is refitted on all events. There is no seed: the same events give the same
    categories.

    Parameters
    ----------
    scores : array-like of shape (n_events, n_columns)
        Class probabilities of any classifier, of events that it was not trained on.
    process : array-like of shape (n_events,)
        Name of the process of each event. Every process that is no signal is background.
    sample_weight : array-like of shape (n_events,)
        Physics weights: expected yields, scaled so that the sample stands for the whole experiment.
    n_categories : int
    signals : sequence of str
        Columns that are signals, each with a strength of its own.
    processes : sequence of str
        Names of the columns of `scores`. One background column may stand for all processes that no column names.
    goal : {"geometric", "sum", "minimum"} or callable, default="geometric"
        Geometric mean of the Z of the signals, root of the sum of their squares, their minimum, or a function of the
        array of Z that increases with each of them.
    others : {"background", "ignore"}, default="background"
        What the other signals are to a signal.
    prior : array-like of shape (n_columns,), optional
        Class shares that the classifier was trained with. By default they are found from the events, and the simple
        way compares the probabilities as they are.
    calibrate : bool, default=True
        Whether to correct the ratios of the probabilities by a multinomial logit, quadratic in all of them.
    discard : bool, default=True
        Whether events may be left out; otherwise the categories hold all of them.
    min_effective, min_background : float
        Effective count and yield that every category must have, of events that count for the floors.
    floor_processes : sequence of str, optional
        Processes that count for the floors; by default every background. A signal never does.
    utility : Utility or str, default=AMS2()
        Its F is summed over the categories; Z = sqrt(2 F).

    Returns
    -------
    ScoreCategories

    Examples
    --------
    >>> import numpy as np
    >>> from fivesigma import categorise_scores
    >>> rng = np.random.default_rng(0)
    >>> process = np.repeat(["ggF", "VBF", "Z"], 4000)
    >>> centre = np.repeat([[1.5, 0.0], [0.0, 1.5], [0.0, 0.0]], 4000, axis=0)
    >>> x = rng.normal(centre)
    >>> density = np.exp(1.5 * x - 1.125)  # ratios of the Gaussians to that at the origin
    >>> scores = np.column_stack([density, np.ones(12000)]) / (1 + density.sum(axis=1, keepdims=True))
    >>> weight = np.repeat([0.01, 0.005, 0.25], 4000)
    >>> four = categorise_scores(
    ...     scores, process, weight, 4, signals=["ggF", "VBF"], processes=["ggF", "VBF", "Z"]
    ... )
    >>> len(four), sorted(four.z), len(four.path)
    (4, ['VBF', 'ggF'], 3)
    >>> bool(four.value <= four.bound.value)
    True
    """
    roles = Roles(
        _check_names("processes", processes),
        _check_names("signals", signals),
        None if floor_processes is None else _check_names("floor_processes", floor_processes),
    )
    settings = Settings(
        roles,
        Goal(goal, others, resolve_utility(utility)),
        Floors.checked(min_background, min_effective),
        check_number(n_categories),
        bool(discard),
        None if prior is None else check_prior(prior, len(roles.columns)),
        bool(calibrate),
    )
    settings.goal.check(len(roles.signals))
    sample = check_sample(scores, process, sample_weight, roles)
    judged = _judge(sample, settings)
    found = fit(sample, settings)
    chosen = _choose(found, judged)
    if chosen[-1] is None:
        most = settings.n_categories
        largest = max((k for k, rule in enumerate(chosen, 1) if rule is not None), default=0)
        counts = sample.weight[sample.floor[sample.process]]
        raise InputError(
            f"{most} {'category does' if most == 1 else 'categories do'} not fit: each needs {settings.floors}, and "
            f"{largest} {'is' if largest == 1 else 'are'} the most that was found (all events that count for "
            f"the floors have b = {counts.sum():g} and an effective background count of {sample.floor_count:.3g}); ask "
            "for fewer categories or lower the floors"
        )
    largest_F = bounds(found.events.density, sample, settings)
    # The f-divergences of the cells: no number of categories of these cells has more, by these densities.
    total = np.maximum(found.cells.yields, 0.0).sum(axis=1, keepdims=True)
    filled = total[:, 0] > 0
    any_number = settings.goal.total(found.cells.density[filled] * total[filled])
    path: list[ScoreCategories] = []
    for rule, verdict, F in zip(chosen, judged, largest_F, strict=True):
        if rule is not None:
            z = dict(zip(roles.signals, np.sqrt(2 * F).tolist(), strict=True))
            bound = Bound(float(settings.goal.value(F)), z, any_number)
            by_process = fill_regions(sample, rule.assign(sample.scores, found.events), len(rule))
            path.append(ScoreCategories(by_process, bound, verdict, (), False, rule, settings))
    return replace(path[-1], path=tuple(path[:-1]))


def _check_names(name: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"{name} must be a list of names, got {given!r}")
    return tuple(map(str, given))


def _judge(sample: ClassSample, settings: Settings) -> list[Judged]:
    """Goal of both ways on the half of the events that they were not fitted on."""
    thin = sample.thinned(_JUDGES).scaled_to(sample.process_yields)
    halves = thin.halves()
    how = "cross-fitted" if sample.size <= _MANY else "held-out"
    values: list[Array] = []
    for here, there in (halves, halves[::-1])[: 2 if how == "cross-fitted" else 1]:
        if not (here.class_yields > 0).all() or not there.class_yields[-1] > 0:
            return [Judged(None, None, how)] * settings.n_categories
        # Fewer events stand for the same yields, so that the same regions have fewer effective events.
        share = here.floor_count / max(sample.floor_count, 1e-300)
        floors = replace(settings.floors, min_effective=settings.floors.min_effective * share)
        found = fit(here, replace(settings, floors=floors))
        events = SeenEvents.of(there.scores, found.calibration.of(there.scores), settings.argmax_prior)
        goals = (
            np.nan if rule is None else goal_of(there, rule.assign(there.scores, events), len(rule), settings.goal)
            for ways in zip(found.search, found.simple, strict=True)
            for rule in ways
        )
        values.append(np.fromiter(goals, dtype=np.float64).reshape(-1, 2))
    means = np.mean(values, axis=0)  # NaN where a half had no such categories
    known = [[None if np.isnan(value) else float(value) for value in pair] for pair in means]
    return [Judged(search, simple, how) for search, simple in known]


def _choose(found: Fit, judged: Sequence[Judged]) -> list[Rule | None]:
    """The better way of each number of categories; the simple one where nothing can be said."""
    out: list[Rule | None] = []
    for search, simple, verdict in zip(found.search, found.simple, judged, strict=True):
        of_search, of_simple = (-np.inf if value is None else value for value in (verdict.search, verdict.simple))
        better = search is not None and (simple is None or of_search > of_simple)
        out.append(search if better else simple)
    return out


@dataclass(frozen=True)
class Fit:
    """Rules with one category and more, None where there is none."""

    search: list[LinearRule | None]
    simple: list[ArgmaxRule | None]
    calibration: Ratios
    cells: Points
    events: SeenEvents  # what the rules know of the events


def fit(sample: ClassSample, settings: Settings) -> Fit:
    """Find categories both ways, of one to the number asked for."""
    calibration = fit_ratios(sample, settings.roles, settings.prior, calibrate=settings.calibrate)
    ratios, most = calibration.of(sample.scores), settings.n_categories
    n_cells = 2 ** int(np.ceil(np.log2(max(_LEAST_CELLS, _CELLS_PER_CATEGORY * most))))
    cells = sum_cells(ratios, sample, cells_of(ratios, n_cells, information(ratios, sample)))
    events = SeenEvents.of(sample.scores, ratios, settings.argmax_prior)
    simple = simple_way(sample, events, settings)
    in_cells = ascent.Problem(cells, settings.goal, settings.floors, settings.discard)
    if sample.n_signals == 1:
        # One ratio is left, in which the best categories are intervals: no search is needed. The upper envelope of the
        # rows has its corners at their edges.
        edges = [np.exp(part.edges) for part in best_intervals(ratios[:, 0], sample, 0, settings)]
        rows: list[Array | None] = [np.stack([np.arange(1.0, e.size + 1), -np.cumsum(e)], axis=1) for e in edges]
    else:
        states = _grow(in_cells, [None if way is None else way[1] for way in simple])
        rows = [None if state is None else state.rows[_order(state.yields, settings.goal)] for state in states]
    # Floors are for events, not for cells.
    in_events = in_cells._replace(points=floor_points(events.density, sample))
    search: list[LinearRule | None] = []
    for found_rows in [*rows, *[None] * most][:most]:
        held = None if found_rows is None else ascent.hold_floors(in_events, found_rows)
        if held is None and search and search[-1] is not None and sample.n_signals > 1:
            tried = (ascent.hold_floors(in_events, trial) for trial in _split_once(in_cells, search[-1].rows))
            held = next((trial for trial in tried if trial is not None), None)
        search.append(None if held is None else LinearRule(calibration, held[0], settings.discard))
    return Fit(search, [None if way is None else way[0] for way in simple], calibration, cells, events)


def _grow(problem: ascent.Problem, starts: list[Array | None]) -> list[ascent.State | None]:
    """Grow by splits, from the simple way where that is the better start."""
    out: list[ascent.State | None] = []
    state: ascent.State | None = None
    for number, yields in enumerate(starts):
        trials = [ascent.first(problem) if number == 0 else None if state is None else ascent.one_more(problem, state)]
        if yields is not None:
            trials.append(ascent.state_of(problem, problem.goal.rows(yields)))
        climbed = [ascent.climb(problem, s) for s in trials if s is not None and s.value > -np.inf]
        state = max(climbed, key=lambda s: s.value, default=None)
        if state is not None:
            state = ascent.polish(problem, ascent.rearrange(problem, state))
        out.append(state)
    return out


def _split_once(problem: ascent.Problem, rows: Array) -> list[Array]:
    """Rows with one category in two parts, from the best on, for where the growth has none with the floors.

    Each part has twice the floors in cells, so that it probably has them in events.
    """
    state = ascent.state_of(problem._replace(floors=Floors()), rows, repair=False)
    if state is None:
        return []
    found = ascent.splits(problem._replace(floors=problem.floors.times(2.0)), state)
    return [new[_order(yields, problem.goal)] for yields, new in found]


def _order(yields: Array, goal: Goal) -> IntArray:
    """Order of categories for readers: by the signal that gains most from each, then by its purity."""
    F = goal.objectives(yields)
    total = F.sum(axis=0)
    signal = np.divide(F, total, out=np.zeros_like(F), where=total > 0).argmax(axis=1)
    s, b = goal.split(yields)
    purity = (s / b)[np.arange(signal.size), signal]
    return np.lexsort((purity, signal))


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
