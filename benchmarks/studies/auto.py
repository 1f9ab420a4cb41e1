"""`AutoClassifier` beside one plain model, on events that nothing was tuned on.

``python -m benchmarks.studies.auto run DATA [PROBLEM ...] [SEEDS]`` trains, and adds to benchmarks/studies/auto.json
after every seed:
it can be killed, and the same call resumes.

*One plain model* is XGBoost with class-balanced weights and the number of trees with which the loss of held-out events
is lowest, a quarter of the events held out, and a cut by the rule "model" on those. ``fast`` is the plain model on five
folds, from the same fits as ``auto``; so are ``simplest`` and ``all``, other rules of what to blend. Real events are
cross-fitted: trained on one half and tested on the other, both ways, and each seed is another pair of halves. A seed
draws other training events everywhere; test events stay, so that the error of a mean gain is sqrt(V + S^2 / K) as in
`benchmarks.studies.protocol`. No model has a net here; what it adds is in `benchmarks.studies.auto_net`.
"""

from __future__ import annotations

import copy
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.studies.protocol import (
    UTILITY,
    add_missing,
    as_measured,
    entering_steps,
    gains_with_replicas,
    read_real,
    read_set,
    scaled_part,
    selection_steps,
    step_significance,
)
from benchmarks.studies.study.data import REAL, SIMULATED
from fivesigma import AutoClassifier, GrownCascadeClassifier
from fivesigma._tools.extras import need
from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.challenge import YIELDS
from fivesigma.datasets import Events, make_htautau
from fivesigma.estimators.auto import BINS, MORE_TREES, NET
from fivesigma.estimators.blended import WINDOW, Choice, compare_blends, gains, held_out_scores
from fivesigma.estimators.member_fits import MemberFit
from fivesigma.estimators.split_steps import TuningEvents
from fivesigma.estimators.training_sample import TrainingSample
from fivesigma.yields import balanced_class_weights, learner_weights

HERE = Path(__file__).parent
RESULTS = HERE / "auto.json"
BASE = "one plain model"
SEEDS, N_BOOT = 10, 50
N_TEST = 20_000


class Problem(NamedTuple):
    """Events to train on and rows to test on, perhaps several pairs, and the events that the rows belong to."""

    parts: list[tuple[Events, IntArray]]
    test: Events


def _one(train: Events, test: Events) -> Problem:
    return Problem([(train, np.arange(len(test)))], test)


def _simulated(data: str, seed: int) -> Problem:
    """10,000 events of set t, tested on 20,000 of b."""
    t, b = (read_set(str(Path(data) / SIMULATED), name) for name in "tb")
    rows = np.random.default_rng(seed).permutation(len(t))[:10_000]
    return _one(scaled_part(t, np.sort(rows)), scaled_part(b, np.arange(N_TEST)))


def _real(data: str, seed: int) -> Problem:
    """Each half of the real events, tested on the other."""
    events = read_real(str(Path(data) / REAL))
    halves = np.array_split(np.random.default_rng(seed).permutation(len(events)), 2)
    pairs = [(np.sort(a), np.sort(b)) for a, b in (halves, halves[::-1])]
    return Problem([(scaled_part(events, train), test) for train, test in pairs], events)


def _toy(n: int, _: str, seed: int) -> Problem:
    return _one(as_measured(make_htautau(n, 2000 + seed)), as_measured(make_htautau(N_TEST, 8)))


def _made(X: AnyArray, signal: BoolArray, weight: Array) -> Events:
    names = tuple(f"x{k}" for k in range(X.shape[1]))
    label = np.where(signal, "s", "b")
    events = Events(X=X, y=label, weight=weight, feature_names=names, signal="s", process=label)
    return events.scaled_to(**YIELDS)


def _heavy(n: int, rng: np.random.Generator) -> Events:
    """Weights that scatter over decades, more so in the signal region, and a tenth of them negative."""
    signal = rng.random(n) < 0.3
    X = rng.normal(size=(n, 8)) + 0.9 * signal[:, None] * np.array([1, 1, 1, 0.5, 0.5, 0, 0, 0])
    weight = np.exp(1.2 * rng.normal(size=n) - 0.7 * X[:, 0]) * np.where(rng.random(n) < 0.1, -1.0, 1.0)
    return _made(X, signal, weight)


def _weak(n: int, rng: np.random.Generator) -> Events:
    """Sixty features of which each says little."""
    signal = rng.random(n) < 0.3
    X = rng.normal(size=(n, 60)) + 0.25 * signal[:, None]
    return _made(X, signal, rng.exponential(size=n))


def _drawn(make: Callable[[int, np.random.Generator], Events], n: int, _: str, seed: int) -> Problem:
    return _one(make(n, np.random.default_rng(2000 + seed)), make(N_TEST, np.random.default_rng(10**6 + 1)))


PROBLEMS: dict[str, Callable[[str, int], Problem]] = {
    "few": partial(_toy, 1_500),
    "toy-5000": partial(_toy, 5_000),
    "t-b": _simulated,
    "heavy": partial(_drawn, _heavy, 5_000),
    "weak": partial(_drawn, _weak, 3_000),
    "real": _real,
    "toy-10000": partial(_toy, 10_000),
}


class Tried(NamedTuple):
    """What a model made of test events: their scores, and those that it selects."""

    score: Array
    selected: BoolArray


class Recorded(AutoClassifier):
    """Keeps the fits of all members, so that other rules can choose among them."""

    recorded: tuple[TrainingSample, list[MemberFit], int]

    def _choose(self, sample: TrainingSample, fits: list[MemberFit], root: int) -> Choice:
        self.recorded = sample, fits, root
        return super()._choose(sample, fits, root)

    def blending(self, members: tuple[str, ...], extra: str | None = NET) -> AutoClassifier:
        """Return the model that a rule would have made that blends these members; the extra one weighs a half."""
        sample, fits, _ = self.recorded
        model = copy.copy(self)
        chosen = [fit for fit in fits if fit.task.name in members]
        model._blend_members(sample, chosen, [(fit.task.train, fit.task.held_out) for fit in chosen], extra=extra)
        return model

    def simplest(self) -> tuple[str, ...]:
        """Return the blend with the fewest members that is within a standard error of the best one."""
        sample, fits, root = self.recorded
        gauge = TuningEvents.of(sample, np.arange(sample.signal.size), self.utility_)
        blends, z = compare_blends(held_out_scores(fits, sample.signal.size), gauge, root)
        behind = gains(z[:, [int(np.argmax(z[0]))]] - z)
        return next(members for members, (loss, error) in zip(blends, behind, strict=True) if loss <= error)


def train_all(train: Events, X: AnyArray, seed: int, *, time_fast: bool) -> tuple[dict[str, Any], dict[str, Tried]]:
    """Train on some events; return notes, and what each model made of the test events."""
    shared: dict[str, Any] = {"utility": UTILITY, "net": False, "random_state": seed, "n_jobs": 1}
    if (train.weight < 0).any():
        shared["negative_weights"] = "zero"
    auto, seconds = _timed(lambda: Recorded(**shared).fit(train))
    notes = {"chosen": auto.choice_, "trees": auto.n_trees_, "seconds": seconds, "comparisons": auto.comparisons_}
    if time_fast:
        notes["seconds of fast"] = _timed(lambda: AutoClassifier(fast=True, **shared).fit(train))[1]
    bare: dict[int, list[float]] = {256: [], BINS["xgboost"]["max_bin"]: []}
    for _ in range(3 if time_fast else 1):
        for bins, times in bare.items():
            times.append(_timed(partial(_bare, train, auto.n_trees_, seed, bins))[1])
    notes |= {f"seconds of a fit, {bins} bins": float(np.median(times)) for bins, times in bare.items()}
    plain = GrownCascadeClassifier(cascade=False, n_trees=round(auto.n_trees_ / MORE_TREES), **shared).fit(train)
    p = plain.predict_proba(X)[:, 1]
    found = {BASE: Tried(p, p >= plain.cut_)}
    everything = tuple(dict.fromkeys(fit.task.name for fit in auto.recorded[1]))
    scores = auto.blending(everything).member_scores(X)
    rules = {
        "fast": everything[:1],
        "simplest": auto.simplest(),
        "all": everything,
        "auto": tuple(auto.held_out_scores_),
    }
    for name, members in rules.items():
        model = auto.blending(members)
        blended = model.blend_([scores[member] for member in members])
        found[name] = Tried(blended, blended >= model.cut_)
    notes["members"] = {name: list(rules[name]) for name in ("simplest", "auto")}
    return notes, found


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    return work(), time.process_time() - start


def _bare(events: Events, n_trees: int, seed: int, bins: int) -> None:
    """One plain fit: XGBoost on all events, with the settings of the grown models."""
    weight = np.maximum(events.weight, 0.0)
    weight = learner_weights(weight, events.is_signal, balanced_class_weights(weight, events.is_signal))
    shape = {"learning_rate": 0.05, "max_depth": 6, "subsample": 0.8, "colsample_bytree": 0.8, "max_bin": bins}
    model = need("xgboost").XGBClassifier(n_estimators=n_trees, n_jobs=1, random_state=seed, **shape)
    model.fit(events.X, events.is_signal, sample_weight=weight)


def one_seed(problem: str, data: str, seed: int) -> dict[str, Any]:
    """Train on the events of one seed, and measure all models on the test events."""
    parts, test = PROBLEMS[problem](data, seed)
    own: dict[str, IntArray] = {}
    over: dict[str, IntArray] = {}
    notes = []
    for train, rows in parts:
        note, found = train_all(train, test.X[rows], seed, time_fast=seed < 3)
        notes.append(note)
        window = np.clip(WINDOW * found[BASE].selected.mean(), 0, 1)
        for name, tried in found.items():
            for steps, made in ((own, selection_steps(tried.selected)), (over, entering_steps(tried.score, window))):
                steps.setdefault(name, np.zeros(len(test), dtype=np.intp))[rows] = made
    models = {
        name: {
            what: {
                "significance": step_significance(steps[name], test),
                "gains": np.round(gains_with_replicas(steps[name], steps[BASE], test, N_BOOT), 4).tolist(),
            }
            for what, steps in (("own", own), ("over", over))
        }
        for name in own
    }
    return {"notes": notes, "models": models}


def run(data: str, *wanted: str) -> None:
    """Train every seed of every problem that is not in the results yet, seed by seed."""
    add_missing(RESULTS, wanted, PROBLEMS, range(SEEDS), lambda problem, seed: one_seed(problem, data, seed))


def mean_gain(seeds: list[list[float]]) -> tuple[float, float]:
    """Mean gain over seeds and its error, from gains of the events and of their replicas."""
    values = np.array(seeds)
    spread = values[:, 0].var(ddof=1) / len(values) if len(values) > 1 else 0.0
    return float(values[:, 0].mean()), float(np.sqrt(values[:, 1:].mean(axis=0).var(ddof=1) + spread))


def means(results: dict[str, Any], name: str, what: str, base: str = BASE) -> list[tuple[float, float]]:
    """Mean gain of a model over another on each problem, and its error."""
    out = []
    for seeds in results.values():
        of = [[np.array(found["models"][model][what]["gains"]) for found in seeds.values()] for model in (name, base)]
        out.append(mean_gain([(a - b).tolist() for a, b in zip(*of, strict=True)]))
    return out


def _mean(pairs: list[tuple[float, float]]) -> str:
    gain, error = np.array(pairs).T
    return f"{gain.mean():+.3f} ± {np.sqrt(np.square(error).sum()) / gain.size:.3f}"


def _rows(results: dict[str, Any]) -> Iterator[str]:
    yield "| problem (seeds) | model | at its own cut | gain | over cuts | gain |"
    yield "|" + " --- |" * 6
    for k, (problem, seeds) in enumerate(results.items()):
        for name in (BASE, "fast", "auto"):
            cells = []
            for what in ("own", "over"):
                z = np.mean([found["models"][name][what]["significance"] for found in seeds.values()])
                gain, error = means(results, name, what)[k]
                cells += [f"{z:.3f}", "" if name == BASE else f"{gain:+.3f} ± {error:.3f}"]
            yield f"| {problem} ({len(seeds)}) | {name} | {' | '.join(cells)} |"
    for name in ("fast", "auto"):
        own, over = (_mean(means(results, name, what)) for what in ("own", "over"))
        yield f"| **mean** | {name} |  | {own} |  | {over} |"


def _rules(results: dict[str, Any]) -> Iterator[str]:
    """Gains of the rule over other rules, from the same fits."""
    yield "| auto less | " + " | ".join(results) + " | mean |"
    yield "|" + " --- |" * (len(results) + 2)
    for what, words in (("own", "at its own cut"), ("over", "over cuts")):
        for name in ("simplest", "all", "fast"):
            pairs = means(results, "auto", what, name)
            cells = [f"{gain:+.3f} ± {error:.3f}" for gain, error in pairs]
            yield f"| {name}, {words} | {' | '.join(cells)} | {_mean(pairs)} |"


def _times(results: dict[str, Any]) -> Iterator[str]:
    yield "| problem | trees | `AutoClassifier` | `fast=True` | 128 bins: `AutoClassifier` | `fast=True` |"
    yield "|" + " --- |" * 6
    for problem, seeds in results.items():
        notes = [note for found in seeds.values() for note in found["notes"]]
        trees = [note["trees"] for note in notes]
        cells = [
            f"{np.median([note[what] / note[f'seconds of a fit, {bins} bins'] for note in notes if what in note]):.1f}"
            for bins in (256, 128)
            for what in ("seconds", "seconds of fast")
        ]
        yield f"| {problem} | {min(trees)} to {max(trees)} | {' | '.join(cells)} |"


def tables() -> dict[str, str]:
    """All tables as Markdown."""
    results = json.loads(RESULTS.read_text())
    makers = {"gains": _rows, "rules": _rules, "times": _times}
    return {name: "\n".join(make(results)) for name, make in makers.items()}


def main(what: str, *arguments: str) -> None:
    """See the module."""
    warnings.simplefilter("ignore")
    {"run": run}[what](*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
