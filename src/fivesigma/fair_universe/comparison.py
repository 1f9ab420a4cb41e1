"""The whole benchmark: train, choose categories, fill templates, fit pseudo-experiments, and judge the intervals.

Three models are compared on the same experiments: the score that knows the nuisances with its own categories
("profiled"), a plain score in categories of equal content ("plain"), and the first one with a fit that ignores the
nuisances ("ignoring").

Templates and experiments come from simulated events. Where these are not many times as many as an experiment has, what
chance has made of them moves the fit of every experiment to the same side, and intervals cover too little.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fivesigma._tools.files import refuse_special, write_text
from fivesigma._tools.progress import steps
from fivesigma._types import Array
from fivesigma.categories import categorise
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError
from fivesigma.estimators.grown import GrownCascadeClassifier
from fivesigma.estimators.profiled import ProfiledClassifier
from fivesigma.fair_universe.nuisances import MU_RANGE, NUISANCES, SCALES, Nuisances, make_experiments, move_events
from fivesigma.fair_universe.strength import Score, Templates, score_intervals
from fivesigma.likelihood.shifts import Normalisation, Varied, with_variations, yield_shifts
from fivesigma.scored.scored_events import ScoredEvents

ARMS = ("profiled", "plain", "ignoring")  # the models that are compared, as above
MAX_TRANSVERSE_MASS = 70.0  # GeV, of lepton and missing momentum: above it are W bosons and top quarks
SHARES = (0.15, 0.1, 0.35, 0.4)  # of the events: for training, for categories, for templates, for experiments
MOST_NOISE = 0.2  # variance of the simulated events in that of an experiment's counts, above which it is said
_SOFT = 1.0  # GeV, the median of soft_met, from which one standard deviation is a factor of e


class Sample(NamedTuple):
    """Selected events, and the nuisances as `ProfiledClassifier` takes them."""

    nominal: Events
    systematics: dict[str, tuple[Events, Events] | Normalisation]

    def scored(self, model: Any) -> tuple[ScoredEvents, dict[str, Any]]:
        """Scores of all events, as `categorise` and `yield_shifts` take them."""

        def varied(_: str, events: Events) -> Varied:
            return Varied(model.decision_function(events), events.weight, events.is_signal.astype(int), events.process)

        e = self.nominal
        scored = ScoredEvents(model.decision_function(e), e.is_signal, e.weight, process=e.process)
        return scored, with_variations(self.systematics, varied)


def _low_mass(events: Events) -> Events:
    return events[events.column("DER_mass_transverse_met_lep") < MAX_TRANSVERSE_MASS]


def vary(events: Events, seed: int) -> Sample:
    """Nominal events and those one standard deviation away.

    The same random numbers make the soft momentum of all of them, so that what differs is the nuisance.
    """

    def selected(**moved: float) -> Events:
        nuisances = Nuisances(soft_met=_SOFT)._replace(**moved)
        return _low_mass(move_events(events, nuisances, np.random.default_rng(seed)))

    ends = {name: (1.0 + NUISANCES[name][1], 1.0 - NUISANCES[name][1]) for name in ("tes", "jes")}
    ends["soft_met"] = (_SOFT * np.e, _SOFT / np.e)
    nominal = selected()
    backgrounds = sorted(set(np.asarray(nominal.process)[~nominal.is_signal].tolist()))
    scales = {"bkg_scale": backgrounds} | {k: [v] for k, v in SCALES.items() if v in backgrounds}
    return Sample(
        nominal,
        {name: (selected(**{name: up}), selected(**{name: down})) for name, (up, down) in ends.items()}
        | {name: Normalisation(of, NUISANCES[name][1]) for name, of in scales.items()},
    )


@dataclass(frozen=True, eq=False)
class Arm:
    """A score, its edges, and the templates in them."""

    model: Any
    edges: Array
    templates: Templates

    @property
    def expected(self) -> float:
        """Half of the interval on the Asimov counts of mu = 1."""
        found = self.templates.fit((self.templates.s + self.templates.b)[None])
        return float((found.high - found.low)[0] / 2)


def make_arms(
    train: Sample, choose: Sample, fill: Sample, model: ProfiledClassifier, n_categories: int
) -> dict[str, Arm]:
    """Train both scores, choose categories, and fill templates with other events, which did not choose them."""
    model.fit(train.nominal, systematics=train.systematics)
    plain = GrownCascadeClassifier(cascade=False, n_trees=100, random_state=model.random_state, n_jobs=model.n_jobs)
    plain.fit(train.nominal)
    scored, systematics = choose.scored(model)
    own = categorise(scored, n_categories=n_categories, goal="measurement", systematics=systematics).edges
    equal = equal_edges(plain.decision_function(choose.nominal), choose.nominal.weight, n_categories)

    def arm(of: Any, edges: Array) -> Arm:
        filled, moved = fill.scored(of)
        return Arm(of, edges, Templates.of(yield_shifts(edges, filled, systematics=moved)))

    first, second = arm(model, own), arm(plain, equal)
    return {"profiled": first, "plain": second, "ignoring": Arm(model, own, first.templates.without_nuisances())}


def equal_edges(score: Array, weight: Array, n: int) -> Array:
    """Edges of categories with the same expected content."""
    inner = np.quantile(score, np.arange(1, n) / n, weights=weight, method="inverted_cdf")
    return np.concatenate([[-np.inf], np.unique(inner), [np.inf]])


@dataclass(frozen=True)
class Comparison:
    """Width, coverage and score of the intervals of each model.

    Attributes
    ----------
    scores : mapping of str to Score
        Width, coverage and the challenge's score, by model.
    errors : mapping of str to (float, float)
        Standard errors of width and coverage, from the spread between sets.
    expected : mapping of str to float
        Uncertainty of mu = 1 that the templates promise.
    noise : float
        Variance of the templates from the number of simulated events, over that of an experiment's counts.
    seconds : mapping of str to float
        Time of each step.
    """

    scores: Mapping[str, Score]
    errors: Mapping[str, tuple[float, float]]
    expected: Mapping[str, float]
    noise: float
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
        lines.append(f"{n} experiments; " + ", ".join(f"{name} {value:.0f} s" for name, value in self.seconds.items()))
        if self.noise > MOST_NOISE:
            lines.append(
                f"the simulated events of the templates have {self.noise:.2g} of the variance of an experiment, so "
                "that intervals cover too little: give more events or a smaller luminosity"
            )
        return "\n".join(lines)


Found = list[dict[str, dict[str, list[float]]]]  # of each set, by model: mu, low and high of its experiments


def fit_experiments(
    arms: Mapping[str, Arm], events: Events, *, sets: int, experiments: int, seed: int = 0, verbose: int = 0
) -> Found:
    """Fit all sets of experiments."""
    found: Found = []
    truths = np.random.default_rng([seed, 1]).uniform(*MU_RANGE, sets)
    models = {id(arm.model): arm.model for arm in arms.values()}
    with steps(sets * experiments, bool(verbose), "experiments") as advance:
        for k, mu in enumerate(truths):
            counts: dict[str, list[Array]] = {name: [] for name in arms}
            for drawn, _ in make_experiments(events, mu, experiments, np.random.default_rng([seed, 2, k])):
                kept = _low_mass(drawn)
                score = {key: model.decision_function(kept) for key, model in models.items()}
                for name, arm in arms.items():
                    counts[name].append(np.histogram(score[id(arm.model)], bins=arm.edges)[0])
                advance(1, f"mu = {mu:.2f}")
            found.append({})
            for name, arm in arms.items():
                fitted = arm.templates.fit(np.stack(counts[name]))
                # No strength is negative: what is below zero can be cut off without a loss of coverage.
                low, high = (np.maximum(end, 0.0).tolist() for end in (fitted.low, fitted.high))
                found[-1][name] = {"mu": [mu] * experiments, "low": low, "high": high}
    return found


def judge_intervals(arms: Mapping[str, Arm], found: Found, seconds: Mapping[str, float]) -> Comparison:
    """Width, coverage and score of each model."""
    scores, errors = {}, {}
    for name in ARMS:
        ends = {key: [one[name][key] for one in found] for key in ("mu", "low", "high")}
        scores[name] = score_intervals(*map(np.concatenate, ends.values()))
        each = [score_intervals(*one) for one in zip(*ends.values(), strict=True)]
        root = max(len(each) - 1, 1) ** 0.5
        width, coverage = (float(np.std([e[i] for e in each]) / root) for i in (0, 1))
        errors[name] = width, coverage
    templates = arms["profiled"].templates
    noise = 0.0 if templates.variance is None else float(templates.variance.sum() / templates.b.sum())
    return Comparison(scores, errors, {name: arm.expected for name, arm in arms.items()}, noise, seconds)


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
        As `load` gives them. They are split at random: 15 % train, 10 % choose categories, 35 % fill
        templates, 40 % make experiments. The last two should be many times what an experiment has.
    output : path, optional
        JSON file with every interval.
    n_categories : int, default=10
        Of each score.
    sets, experiments : int
        Sets, each with a mu of its own between 0.1 and 3, and pseudo-experiments in each.
    estimator : classifier, optional
        Of the score that knows the nuisances; by default boosted trees.
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
    if output is not None:
        refuse_special(output)  # before anything is trained
    started = time.perf_counter()
    *parts, test = split_events(events, random_state)
    train, choose, fill = (vary(part, seed=k) for k, part in enumerate(parts))
    model = ProfiledClassifier(
        estimator, goal="measurement", cv=2, random_state=random_state, n_jobs=n_jobs, verbose=verbose
    )
    arms = make_arms(train, choose, fill, model, n_categories)
    between = time.perf_counter()
    found = fit_experiments(arms, test, sets=sets, experiments=experiments, seed=random_state, verbose=verbose)
    if output is not None:
        settings = {"sets": sets, "experiments": experiments, "seed": random_state, "n_events": len(events)}
        write_text(output, json.dumps({"settings": settings, "found": found}))
    seconds = {"training and templates": between - started, "experiments": time.perf_counter() - between}
    return judge_intervals(arms, found, seconds)


def split_events(events: Events, seed: int) -> list[Events]:
    """Four parts that share no event, each of which stands for the whole."""
    out, rest = [], 1.0
    for share in SHARES[:-1]:
        events, part = events.split(share / rest, random_state=seed)
        out.append(part)
        rest -= share
    return [*out, events]
