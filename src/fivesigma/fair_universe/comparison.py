"""The whole benchmark: train, choose categories, fill templates, fit pseudo-experiments, and judge the intervals.

Three models are compared on the same experiments: the score that knows the nuisances with its own categories, a plain
score in categories of equal content, and the first one with a fit that ignores the nuisances.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fivesigma._tools.files import written_whole
from fivesigma._tools.progress import steps
from fivesigma._types import Array, BoolArray
from fivesigma.categories import categorise
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError
from fivesigma.estimators.grown import GrownCascadeClassifier
from fivesigma.estimators.profiled import ProfiledClassifier
from fivesigma.fair_universe.experiments import MU_RANGE, Score, make_experiments, score_intervals
from fivesigma.fair_universe.nuisances import NUISANCES, Nuisances, move_events
from fivesigma.fair_universe.strength import Interval, Templates
from fivesigma.likelihood.shifts import Normalisation, Varied

__all__ = ["ARMS", "Comparison", "compare"]

#: The models that are compared, and what each is.
ARMS = {
    "profiled": "score and categories that know the nuisances, fit with pulls",
    "plain": "plain score in categories of equal content, fit with pulls",
    "ignoring": "score and categories that know the nuisances, fit without pulls",
}
MAX_TRANSVERSE_MASS = 70.0  # GeV, of lepton and missing momentum: above it are W bosons and top quarks
SHARES = (0.4, 0.3)  # of the events: for training, and for categories and templates; the rest makes experiments
_SOFT = 1.0  # GeV, the median of soft_met, from which one standard deviation is a factor of e
_SCALES = {"ttbar_scale": ["ttbar"], "diboson_scale": ["diboson"]}

Varying = Mapping[str, tuple[Events, Events]]


class Sample(NamedTuple):
    """Selected events, nominal and one standard deviation away."""

    nominal: Events
    varied: Varying


@dataclass(frozen=True, eq=False)
class Arm:
    """A score, its edges, and the templates in them."""

    score: Callable[[Events], Array]
    edges: Array
    templates: Templates

    def count(self, score: Array) -> Array:
        """Events in each category."""
        return np.histogram(score, bins=self.edges)[0].astype(np.float64)


def select_events(events: Events, nuisances: Nuisances, seed: int) -> Events:
    """Move events, and keep those with a small transverse mass."""
    moved = move_events(events, nuisances, np.random.default_rng(seed))
    return moved[moved.column("DER_mass_transverse_met_lep") < MAX_TRANSVERSE_MASS]


def vary(events: Events, seed: int = 0) -> Sample:
    """Nominal events and those with one energy scale or the soft momentum one standard deviation away.

    The same random numbers make the soft momentum of all of them, so that what differs is the nuisance.
    """
    nominal = Nuisances(soft_met=_SOFT)
    ends = {name: tuple(1.0 + side * NUISANCES[name][1] for side in (1, -1)) for name in ("tes", "jes")}
    ends["soft_met"] = (_SOFT * np.e, _SOFT / np.e)
    varied = {
        name: (
            select_events(events, nominal._replace(**{name: up}), seed),
            select_events(events, nominal._replace(**{name: down}), seed),
        )
        for name, (up, down) in ends.items()
    }
    return Sample(select_events(events, nominal, seed), varied)


def list_nuisances(sample: Sample) -> dict[str, Any]:
    """Variations and normalisations, as `ProfiledClassifier` takes them."""
    backgrounds = sorted(set(np.asarray(sample.nominal.process)[~sample.nominal.is_signal].tolist()))
    named = {"bkg_scale": backgrounds} | {k: v for k, v in _SCALES.items() if v[0] in backgrounds}
    return dict(sample.varied) | {k: Normalisation(v, NUISANCES[k][1]) for k, v in named.items()}


def fill_templates(score: Callable[[Events], Array], edges: Array, sample: Sample) -> Templates:
    """Templates of signal and background in the categories of a score."""

    def sums(events: Events, power: int = 1) -> tuple[Array, Array]:
        values = score(events)

        def of(mask: BoolArray) -> Array:
            return np.histogram(values[mask], bins=edges, weights=events.weight[mask] ** power)[0]

        return of(events.is_signal), of(~events.is_signal)

    s, b = sums(sample.nominal)
    shifts = [(sums(up), sums(down)) for up, down in sample.varied.values()]
    up_s, up_b, down_s, down_b = (
        [pair[side][of] - (s, b)[of] for pair in shifts] for side, of in ((0, 0), (0, 1), (1, 0), (1, 1))
    )
    process = np.asarray(sample.nominal.process)
    for one in list_nuisances(sample).values():
        if isinstance(one, Normalisation):
            size = (one.fraction or 0.0) * sums(sample.nominal[np.isin(process, one.process)])[1]
            for rows, shift in ((up_s, 0 * s), (down_s, 0 * s), (up_b, size), (down_b, -size)):
                rows.append(shift)
    moved = [np.stack(rows) for rows in (up_s, down_s, up_b, down_b)]
    return Templates(s, b, moved[0], moved[1], moved[2], moved[3], variance=sums(sample.nominal, power=2)[1])


def equal_edges(score: Array, weight: Array, n: int) -> Array:
    """Edges of categories with the same expected content."""
    order = np.argsort(score)
    share = np.cumsum(weight[order]) / weight.sum()
    inner = score[order][np.searchsorted(share, np.arange(1, n) / n)]
    return np.concatenate([[-np.inf], np.unique(inner), [np.inf]])


@dataclass(frozen=True)
class Comparison:
    """What the intervals of each model are worth.

    Attributes
    ----------
    scores : mapping of str to Score
        Width, coverage and the challenge's score, by model.
    errors : mapping of str to (float, float)
        Standard errors of width and coverage, from the spread between sets.
    expected : mapping of str to float
        Uncertainty of mu = 1 that the templates promise.
    seconds : mapping of str to float
        Time of each step.
    """

    scores: Mapping[str, Score]
    errors: Mapping[str, tuple[float, float]]
    expected: Mapping[str, float]
    seconds: Mapping[str, float]

    def __repr__(self) -> str:
        lines = [f"{'model':<10} {'width':>15} {'coverage':>15} {'score':>7}  expected +- of mu = 1"]
        for name, found in self.scores.items():
            width, coverage = self.errors[name]
            lines.append(
                f"{name:<10} {found.width:>7.3f} ± {width:.3f} {found.coverage:>7.3f} ± {coverage:.3f} "
                f"{found.score:>7.3f}  {self.expected[name]:.3f}"
            )
        n = next(iter(self.scores.values())).n
        steps_of = ", ".join(f"{name} {value:.0f} s" for name, value in self.seconds.items())
        return "\n".join([*lines, f"{n} pseudo-experiments; {steps_of}"])


def compare(
    events: Events,
    output: Path | None = None,
    *,
    n_categories: int = 10,
    sets: int = 10,
    experiments: int = 100,
    estimator: Any = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Comparison:
    """Train on a part of the events, and judge intervals of mu on pseudo-experiments from another.

    Parameters
    ----------
    events : Events
        As `load` or `from_higgsml` give them. They are split at random: 40 % train, 30 % choose categories and fill
        templates, 30 % make experiments.
    output : path, optional
        JSON file with every interval; it is written after each set, and a run that broke off resumes there.
    n_categories : int, default=10
        Of each score.
    sets, experiments : int
        Sets, each with a mu of its own between 0.1 and 3, and pseudo-experiments in each.
    estimator : classifier, optional
        Of all scores; by default boosted trees.
    random_state : int, default=0
        Seed.
    n_jobs, verbose : int
        Threads of the training, and whether to show a bar.

    Returns
    -------
    Comparison
    """
    if events.process is None:
        raise InputError("these events have no processes, which the nuisances need")
    done = _read(output, {"sets": sets, "experiments": experiments, "seed": random_state, "n_events": len(events)})
    started = time.perf_counter()
    seconds: dict[str, float] = {}
    rest, train = events.split(SHARES[0], random_state=random_state)
    test, templates = rest.split(SHARES[1] / (1 - SHARES[0]), random_state=random_state)
    training = vary(train)
    model = ProfiledClassifier(
        estimator, goal="measurement", cv=2, random_state=random_state, n_jobs=n_jobs, verbose=verbose
    )
    arms = _arms(training, vary(templates, seed=1), n_categories, model)
    seconds["training and templates"] = time.perf_counter() - started
    started = time.perf_counter()
    found = _run_sets(arms, test, output, done, verbose)
    seconds["experiments"] = time.perf_counter() - started
    scores, errors = {}, {}
    for name in ARMS:
        truth, low, high = (
            np.concatenate([np.asarray(one[name][key]) for one in found]) for key in ("mu", "low", "high")
        )
        scores[name] = score_intervals(truth, low, high)
        each = [score_intervals(one[name]["mu"], one[name]["low"], one[name]["high"]) for one in found]
        root = max(len(each) - 1, 1) ** 0.5
        errors[name] = (float(np.std([e.width for e in each]) / root), float(np.std([e.coverage for e in each]) / root))
    expected = {name: _expected(arm.templates) for name, arm in arms.items()}
    return Comparison(scores, errors, expected, seconds)


def _arms(training: Sample, filling: Sample, n_categories: int, model: ProfiledClassifier) -> dict[str, Arm]:
    """Train both scores, choose categories and fill templates."""
    model.fit(training.nominal, systematics=list_nuisances(training))
    seed, n_jobs = model.random_state, model.n_jobs
    plain = GrownCascadeClassifier(cascade=False, n_trees=100, random_state=seed, n_jobs=n_jobs).fit(training.nominal)

    def knowing(events: Events) -> Array:
        return np.asarray(model.decision_function(events))

    def ordinary(events: Events) -> Array:
        return np.asarray(plain.predict_proba(events)[:, 1])

    nominal = filling.nominal
    score = knowing(nominal)

    def scored(events: Events) -> Varied:
        return Varied(score=knowing(events), weight=events.weight, y=events.y, process=events.process)

    varied = {name: (scored(up), scored(down)) for name, (up, down) in filling.varied.items()}
    normalisations = {k: v for k, v in list_nuisances(filling).items() if isinstance(v, Normalisation)}
    categories = categorise(
        score,
        nominal.y,
        nominal.weight,
        n_categories,
        goal="measurement",
        systematics={**varied, **normalisations},
        process=nominal.process,
        pos_label=nominal.signal,
    )
    own = np.concatenate([[-np.inf], categories.edges[1:]]) if np.isfinite(categories.edges[0]) else categories.edges
    equal = equal_edges(ordinary(nominal), nominal.weight, n_categories)
    first = Arm(knowing, own, fill_templates(knowing, own, filling))
    second = Arm(ordinary, equal, fill_templates(ordinary, equal, filling))
    return {"profiled": first, "plain": second, "ignoring": Arm(knowing, own, first.templates.without_nuisances())}


class Done(NamedTuple):
    """Settings of a run, and the intervals of the sets that are done, by model."""

    settings: dict[str, int]
    found: list[dict[str, dict[str, list[float]]]]


def _read(output: Path | None, settings: dict[str, int]) -> Done:
    """What an earlier run with the same settings has done."""
    if output is None or not output.exists():
        return Done(settings, [])
    try:
        saved = json.loads(output.read_text(encoding="utf-8"))
        known, found = saved["settings"], saved["found"]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{output} is not a file of intervals; choose another name") from None
    if known != settings:
        raise InputError(f"{output} holds a run with other settings; choose another name or remove it")
    return Done(settings, found)


def _run_sets(
    arms: Mapping[str, Arm], test: Events, output: Path | None, done: Done, verbose: int
) -> list[dict[str, dict[str, list[float]]]]:
    """Intervals of each model in each set."""
    (settings, found), seed = done, done.settings["seed"]
    sets, experiments = settings["sets"], settings["experiments"]
    truths = np.random.default_rng([seed, 1]).uniform(*MU_RANGE, sets)
    with steps(sets * experiments, bool(verbose), "experiments", done=len(found) * experiments) as advance:
        for k in range(len(found), sets):
            counts: dict[str, list[Array]] = {name: [] for name in arms}
            for one in make_experiments(test, truths[k], experiments, np.random.default_rng([seed, 2, k])):
                kept = one.events[one.events.column("DER_mass_transverse_met_lep") < MAX_TRANSVERSE_MASS]
                by_score: dict[int, Array] = {}
                for name, arm in arms.items():
                    if id(arm.score) not in by_score:
                        by_score[id(arm.score)] = arm.score(kept)
                    counts[name].append(arm.count(by_score[id(arm.score)]))
                advance(1, f"mu = {truths[k]:.2f}")
            fitted = {name: arm.templates.fit(np.stack(counts[name])) for name, arm in arms.items()}
            found.append({name: _listed(float(truths[k]), interval) for name, interval in fitted.items()})
            if output is not None:
                with written_whole(output) as beside:
                    beside.write_text(json.dumps({"settings": settings, "found": found}), encoding="utf-8")
    return found


def _listed(mu: float, interval: Interval) -> dict[str, list[float]]:
    return {"mu": [mu] * interval.mu.size, **{name: getattr(interval, name).tolist() for name in ("low", "high")}}


def _expected(templates: Templates) -> float:
    """Half of the interval on the Asimov counts of mu = 1."""
    found = templates.fit((templates.s + templates.b)[None])
    return float((found.high - found.low)[0] / 2)
