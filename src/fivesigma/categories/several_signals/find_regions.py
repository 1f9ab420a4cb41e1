"""Categories for several signals: the front door."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import Array
from fivesigma.categories.floors import Floors
from fivesigma.categories.ratios.calibration import check_prior
from fivesigma.categories.ratios.cells import densities
from fivesigma.categories.ratios.class_sample import ClassSample, Roles, check_sample
from fivesigma.categories.several_signals.goal import Goal, Settings
from fivesigma.categories.several_signals.region_fit import Fit, bound_of_any, bounds, fit
from fivesigma.categories.several_signals.region_result import Bound, Judged, ScoreCategories, filled, goal_of
from fivesigma.categories.several_signals.region_rules import Rule, SeenEvents, most_probable
from fivesigma.cut.best_cut import MIN_EFFECTIVE
from fivesigma.errors import InputError
from fivesigma.significance import AMS2, Utility, resolve_utility

_JUDGES = 1 << 16  # events of a class that judge; more would not make the choice surer
_MANY = 200_000  # events beyond which one half judges the other, and not both each other

BOUND = (
    "the goal if every signal could have its own best K intervals of its calibrated ratio on these events, under the "
    "same floors; no K categories reach more where the calibrated ratios order the events rightly"
)


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
        _check_number(n_categories),
        bool(discard),
        None if prior is None else check_prior(prior, len(roles.columns)),
        bool(calibrate),
    )
    settings.goal.check(len(roles.signals))
    sample = check_sample(scores, process, sample_weight, roles)
    judged = _judged(sample, settings)
    found = fit(sample, settings)
    chosen = _chosen(found, judged)
    if chosen[-1] is None:
        most, largest = (
            settings.n_categories,
            max((k for k, rule in enumerate(chosen, 1) if rule is not None), default=0),
        )
        counts = sample.weight[sample.floor[sample.process]]
        raise InputError(
            f"{most} {'category does' if most == 1 else 'categories do'} not fit: each needs {settings.floors}, and "
            f"{largest} {'is' if largest == 1 else 'are'} the most that was found (all events that count for "
            f"the floors have b = {counts.sum():g} and an effective background count of {sample.floor_count:.3g}); ask "
            "for fewer categories or lower the floors"
        )
    largest_F = bounds(found.events.density, sample, settings)
    any_number = bound_of_any(found.cells, settings.goal)
    path: list[ScoreCategories] = []
    for k, (rule, verdict, F) in enumerate(zip(chosen, judged, largest_F, strict=True)):
        if rule is not None:
            z = dict(zip(roles.signals, np.sqrt(2 * F).tolist(), strict=True))
            bound = Bound(float(settings.goal.value(F)), z, any_number, BOUND)
            known = found.categories[k] if rule is found.search[k] else None
            category = rule.assign_seen(found.events) if known is None else known
            record = filled(
                sample, category.astype(np.intp), rule, settings, held_out=False, bound=bound, judged=verdict
            )
            path.append(record)
    return replace(path[-1], path=tuple(path[:-1]))


def _check_names(name: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"{name} must be a list of names, got {given!r}")
    return tuple(map(str, given))


def _check_number(n_categories: object) -> int:
    if isinstance(n_categories, bool) or not isinstance(n_categories, int | np.integer) or n_categories < 1:
        raise InputError(f"n_categories must be a whole number from 1, got {n_categories!r}")
    return int(n_categories)


def _judged(sample: ClassSample, settings: Settings) -> list[Judged]:
    """Goal of both ways on the half of the events that they were not fitted on."""
    thin = sample.thinned(_JUDGES).scaled_to(sample.process_yields)
    halves = thin.halves()
    how = "cross-fitted" if sample.size <= _MANY else "held-out"
    values: list[list[tuple[float, ...]]] = []
    for here, there in (halves, halves[::-1])[: 2 if how == "cross-fitted" else 1]:
        if not (here.class_yields > 0).all() or not there.class_yields[-1] > 0:
            return [Judged(None, None, how)] * settings.n_categories
        # Fewer events stand for the same yields, so that the same regions have fewer effective events.
        share = here.floor_count / max(sample.floor_count, 1e-300)
        found = fit(here, replace(settings, floors=settings.floors.scaled(share)))
        events = SeenEvents(
            densities(found.calibration.of(there.scores)), *most_probable(there.scores, settings.argmax_prior)
        )
        values.append(
            [
                tuple(
                    np.nan
                    if rule is None
                    else goal_of(there, rule.assign_seen(events).astype(np.intp), len(rule), settings.goal)
                    for rule in ways
                )
                for ways in zip(found.search, found.simple, strict=True)
            ]
        )
    means = np.mean(values, axis=0)  # NaN where a half had no such categories
    known = [[None if np.isnan(value) else float(value) for value in pair] for pair in means]
    return [Judged(search, simple, how) for search, simple in known]


def _chosen(found: Fit, judged: Sequence[Judged]) -> list[Rule | None]:
    """The better way of each number of categories; the simple one where nothing can be said."""
    out: list[Rule | None] = []
    for search, simple, verdict in zip(found.search, found.simple, judged, strict=True):
        if search is None or simple is None:
            out.append(simple if search is None else search)
        elif verdict.simple is None:
            out.append(simple if verdict.search is None else search)
        else:
            out.append(search if verdict.search is not None and verdict.search > verdict.simple else simple)
    return out
