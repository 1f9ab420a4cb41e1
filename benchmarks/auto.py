"""`AutoClassifier` beside the plain model, on events that nothing was tuned on.

``python -m benchmarks.auto run DATA FILE PROBLEM:SEEDS...`` trains and adds to FILE (JSON) after every seed;
``python -m benchmarks.auto table FILE`` prints the tables of docs/auto.md.

The plain model is XGBoost with class-balanced weights, the number of trees that `AutoClassifier` found, and a cut by
the rule "model" on a quarter of the events that is held out. ``fast`` is the plain model on five folds. Every even
blend of the members is measured too, from the same fits, so that rules of choice can be compared: a blend selects the
share of the test events that its held-out scores chose.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from benchmarks.protocol import (
    UTILITY,
    as_measured,
    entering_steps,
    paired_gain,
    read_real,
    read_set,
    replicated,
    scaled_part,
    selection_steps,
    step_significance,
)
from benchmarks.study.data import REAL, SIMULATED
from fivesigma import AutoClassifier, GrownCascadeClassifier, scan
from fivesigma._extras import need
from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.blend import Blend
from fivesigma.challenge import YIELDS
from fivesigma.datasets import Events, make_htautau
from fivesigma.estimators.blend_choice import WINDOW, Choice, name_of
from fivesigma.estimators.fits import Fit
from fivesigma.estimators.sample import Sample
from fivesigma.yields import balanced_class_weights, learner_weights

MEMBERS = ("plain", "cascade", "decomposed")
BLENDS = [m for size in (1, 2, 3) for m in combinations(MEMBERS, size)]
N_BOOT = 100
Part = tuple[Events, Events]


class _Everything(AutoClassifier):
    """Notes what it would choose, and keeps all members."""

    would_choose: tuple[str, ...]

    def _choose(self, sample: Sample, fits: list[Fit], root: int) -> Choice:
        choice = super()._choose(sample, fits, root)
        self.would_choose = choice.members
        return Choice(MEMBERS, choice.comparisons)


def _simulated(data: str, seed: int) -> Part:
    """50,000 events of set t, tested on b."""
    t, b = (read_set(str(Path(data) / SIMULATED), name) for name in "tb")
    rows = np.random.default_rng(seed).permutation(len(t))[:50_000]
    return scaled_part(t, np.sort(rows)), b


def _inside(data: str, seed: int) -> Part:
    """30,000 events of set t, tested on other 60,000 of t: what rules of choice were compared on."""
    t = read_set(str(Path(data) / SIMULATED), "t")
    rows = np.random.default_rng(100 + seed).permutation(len(t))
    return scaled_part(t, np.sort(rows[:30_000])), scaled_part(t, np.sort(rows[-60_000:]))


def _real(data: str, seed: int) -> Part:
    """Four fifths of the real events, tested on the fifth: each seed is another fifth."""
    events = read_real(str(Path(data) / REAL))
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(events.X, events.is_signal))
    train, test = folds[seed % 5]
    return scaled_part(events, train), scaled_part(events, test)


def _toy(n: int, _: str, seed: int) -> Part:
    return as_measured(make_htautau(n, 1000 + seed)), as_measured(make_htautau(100_000, 7))


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


def _drawn(make: Callable[[int, np.random.Generator], Events], n: int, _: str, seed: int) -> Part:
    return make(n, np.random.default_rng(seed)), make(100_000, np.random.default_rng(10**6))


PROBLEMS: dict[str, Callable[[str, int], Part]] = {
    "t-b": _simulated,
    "t-t": _inside,
    "real": _real,
    "toy-5000": partial(_toy, 5_000),
    "toy-30000": partial(_toy, 30_000),
    "few": partial(_toy, 1_500),
    "heavy": partial(_drawn, _heavy, 20_000),
    "weak": partial(_drawn, _weak, 20_000),
}


def one_seed(problem: str, data: str, seed: int) -> tuple[dict[str, Any], Events, dict[str, tuple[Array, float]]]:
    """Train on one part; return notes, the test events, and of each model the test scores and its share."""
    train, test = PROBLEMS[problem](data, seed)
    shared: dict[str, Any] = {"utility": UTILITY, "random_state": seed, "n_jobs": 1}
    if (train.weight < 0).any():
        shared["negative_weights"] = "zero"
    auto, seconds = _timed(lambda: _Everything(**shared).fit(train))
    fast, fast_seconds = _timed(lambda: AutoClassifier(fast=True, **shared).fit(train))
    plain = GrownCascadeClassifier(cascade=False, n_trees=auto.n_trees_, **shared).fit(train)
    _, one = _timed(lambda: _bare(train, auto.n_trees_, seed))
    held, new = auto.held_out_scores_, auto.member_scores(test)
    seen = np.isfinite(held[MEMBERS[0]])
    models: dict[str, tuple[Array, float]] = {}
    for members in BLENDS:
        known = [held[m][seen] for m in members]
        blend = Blend.fitted("rank", known)
        share = scan(blend(known), train.is_signal[seen], train.weight[seen], UTILITY).fraction
        models[name_of(members)] = blend([new[m] for m in members]), share
    p = fast.predict_proba(test)[:, 1]
    models["fast"] = p, float(np.mean(p >= fast.cut_))
    p = plain.predict_proba(test)[:, 1]
    models["one plain model"] = p, float(np.mean(p >= plain.cut_))
    models["auto"] = models[name_of(auto.would_choose)]
    notes = {
        "chosen": name_of(auto.would_choose),
        "comparisons": auto.comparisons_,
        "trees": auto.n_trees_,
        "fits": seconds / one,
        "fits of fast": fast_seconds / one,
    }
    return notes, test, models


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    return work(), time.process_time() - start


def _bare(events: Events, n_trees: int, seed: int) -> None:
    """One plain fit: XGBoost on all events, with the settings of the grown models."""
    weight = np.maximum(events.weight, 0.0)
    weight = learner_weights(weight, events.is_signal, balanced_class_weights(weight, events.is_signal))
    shape = {"learning_rate": 0.05, "max_depth": 6, "subsample": 0.8, "colsample_bytree": 0.8}
    model = need("xgboost").XGBClassifier(n_estimators=n_trees, n_jobs=1, random_state=seed, **shape)
    model.fit(events.X, events.is_signal, sample_weight=weight)


def _selected(score: Array, share: float) -> IntArray:
    return selection_steps(score >= np.quantile(score, 1.0 - share))


def run_problem(problem: str, data: str, n_seeds: int, out: Path) -> None:
    """Train on every seed, and write gains over one plain model after each."""
    notes, scores, tests = [], [], []
    for seed in range(n_seeds):
        note, test, models = one_seed(problem, data, seed)
        notes.append(note)
        scores.append(models)
        tests.append(test)
        found = json.loads(out.read_text()) if out.exists() else {}
        found[problem] = {"notes": notes, "models": _measured(scores, tests)}
        out.write_text(json.dumps(found, indent=1) + "\n")
        print(problem, seed, note["chosen"], flush=True)


def _measured(scores: list[dict[str, tuple[Array, float]]], tests: list[Events]) -> dict[str, Any]:
    """AMS at the own cut and over cuts, and gains over one plain model, of all models."""
    base = "one plain model"
    fractions = np.unique(np.clip(WINDOW * np.mean([m[base][1] for m in scores]), 0, 1))
    over = partial(entering_steps, fractions=fractions)
    own = [{name: _selected(*pair) for name, pair in m.items()} for m in scores]
    out = {}
    for name in scores[0]:
        steps = [m[name] for m in own], [m[base] for m in own]
        cuts = [over(m[name][0]) for m in scores], [over(m[base][0]) for m in scores]
        out[name] = {
            "own": float(np.mean([step_significance(s, t, UTILITY) for s, t in zip(steps[0], tests, strict=True)])),
            "own gain": _gain(*steps, tests),
            "over": float(np.mean([step_significance(s, t, UTILITY) for s, t in zip(cuts[0], tests, strict=True)])),
            "over gain": _gain(*cuts, tests),
        }
    return out


def _gain(ours: list[IntArray], theirs: list[IntArray], tests: list[Events]) -> tuple[float, float]:
    """Gain and error; seeds with test events of their own are independent, so only their spread counts."""
    if all(t is tests[0] or np.array_equal(t.weight, tests[0].weight) for t in tests):
        return paired_gain(ours, theirs, tests[0], lambda s: s, replicas=replicated(tests[0], N_BOOT))
    pairs = [
        paired_gain([a], [b], t, lambda s: s, replicas=replicated(t, N_BOOT))
        for a, b, t in zip(ours, theirs, tests, strict=True)
    ]
    gains, errors = np.array(pairs).T
    return float(gains.mean()), float(np.sqrt(np.square(errors).sum()) / gains.size)


def main(arguments: list[str]) -> None:
    """See the module."""
    warnings.simplefilter("ignore")
    if arguments[0] == "run":
        for item in arguments[3:]:
            problem, _, n = item.partition(":")
            run_problem(problem, arguments[1], int(n), Path(arguments[2]))
        return
    for problem, found in json.loads(Path(arguments[1]).read_text()).items():
        m, notes = found["models"], found["notes"]
        for name in ("one plain model", "fast", "auto", *map(name_of, BLENDS)):
            (g, e), (h, f) = m[name]["own gain"], m[name]["over gain"]
            cells = [f"{m[name]['own']:.3f}", f"{g:+.3f} ± {e:.3f}", f"{m[name]['over']:.3f}", f"{h:+.3f} ± {f:.3f}"]
            print(f"| {problem} ({len(notes)}) | {name} | {' | '.join(cells)} |")
        fits = [np.mean([n[k] for n in notes]) for k in ("fits", "fits of fast")]
        print(f"{problem}: {fits[0]:.1f} and {fits[1]:.1f} plain fits; chosen {[n['chosen'] for n in notes]}")


if __name__ == "__main__":
    main(sys.argv[1:])
