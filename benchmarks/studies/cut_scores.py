"""Scores on which rules for the cut are compared: four kinds of model, each trained once, and the events they score.

``python -m benchmarks.studies.cut_scores DATA FOLDER`` trains them and writes one file per model and set of events:
the toy
(60,000 events to train on, 2,000,000 scored), the simulated events (set t: 30,000 to train on, 95,000 scored; set b:
50,000 scored by the same models) and the real events (five folds, each scored by the model of the other four).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import StratifiedKFold

from benchmarks.studies.protocol import UTILITY, as_measured, ranks, read_real, read_set, scaled_part
from benchmarks.studies.study.data import REAL, SIMULATED
from fivesigma import DecomposedClassifier, GrownCascadeClassifier, NetClassifier
from fivesigma._tools.extras import need
from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.datasets import Events, make_htautau
from fivesigma.yields import balanced_class_weights, learner_weights

KINDS = ("plain", "cascade", "decomposed", "net")
_TREES, _SHAPE = 100, {"max_depth": 6, "learning_rate": 0.1}
_ROWS = 100_000  # events scored at once

Score = Callable[[AnyArray], Array]


class Scored(NamedTuple):
    """Scores of one model, which events are signal, and weights that sum to the challenge's yields."""

    score: Array
    signal: BoolArray
    weight: Array

    def part(self, rows: IntArray, factor: float = 1.0) -> Scored:
        """Some events, their weights multiplied by a factor."""
        return Scored(self.score[rows], self.signal[rows], factor * self.weight[rows])


def read_scored(folder: str, name: str) -> Scored:
    """Read what `main` wrote."""
    with np.load(Path(folder) / f"{name}.npz") as file:
        return Scored(*(file[field] for field in Scored._fields))


def train(kind: str, events: Events) -> Score:
    """Fit one kind of model, on all events if it needs no held-out ones."""
    y, boosted = events.is_signal.astype(int), need("xgboost").XGBClassifier(n_estimators=_TREES, n_jobs=1, **_SHAPE)
    model: Any
    if kind == "cascade":
        model = GrownCascadeClassifier(n_trees=_TREES, params=_SHAPE, utility=UTILITY, random_state=0, n_jobs=1)
        model.fit(events.X, y, events.weight, events.process)
    elif kind == "decomposed":
        model = DecomposedClassifier(boosted, utility=UTILITY, random_state=0, n_jobs=1)
        model.fit(events.X, y, events.weight, events.process)
    else:
        weight = learner_weights(
            events.weight, events.is_signal, balanced_class_weights(events.weight, events.is_signal)
        )
        model = boosted if kind == "plain" else NetClassifier(epochs=3, random_state=0)
        model.fit(events.X, y, sample_weight=weight)

    def score(X: AnyArray) -> Array:
        parts = [model.predict_proba(X[i : i + _ROWS])[:, 1] for i in range(0, len(X), _ROWS)]
        return np.concatenate(parts).astype(np.float64)

    return score


def main(data: str, folder: str) -> None:
    """Train and score everything."""
    warnings.simplefilter("ignore")
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)

    def write(name: str, score: Array, events: Events) -> None:
        np.savez(out / f"{name}.npz", score=score, signal=events.is_signal, weight=events.weight)
        print(name, flush=True)

    rows = np.random.default_rng(0).permutation(125_000)
    t, b = (read_set(str(Path(data) / SIMULATED), name) for name in "tb")
    fit, rest = scaled_part(t, rows[:30_000]), scaled_part(t, rows[30_000:])
    real = read_real(str(Path(data) / REAL))
    toy_fit, toy = (as_measured(make_htautau(n, random_state=seed)) for n, seed in ((60_000, 11), (2_000_000, 12)))
    for kind in KINDS:
        if all((out / f"{events}-{kind}.npz").exists() for events in ("toy", "t", "b", "real")):
            continue
        score = train(kind, toy_fit)
        write(f"toy-{kind}", score(toy.X), toy)
        score = train(kind, fit)
        write(f"t-{kind}", score(rest.X), rest)
        write(f"b-{kind}", score(b.X), b)
        folded = np.empty(len(real))
        for learn, held in StratifiedKFold(5, shuffle=True, random_state=0).split(real.X, real.is_signal):
            folded[held] = ranks(train(kind, scaled_part(real, learn))(real.X[held]))
        write(f"real-{kind}", folded, real)


if __name__ == "__main__":
    main(*sys.argv[1:])
