"""The decomposed learner against one weighted fit with a tuned cut: same trees, same splits, same events.

``python -m benchmarks.studies.decomposed simulated|real|time events folder`` trains what is missing in the folder
and prints the figures of docs/validation/decomposed.md. `simulated` trains on set t and quotes set b of a parquet file
with the columns of the 2014 challenge; `real` cross-fits the challenge's own csv file; `time` compares processor times
on set t.

Gains and their errors are those of benchmarks/studies/protocol.py; seeds draw another part of the training events
and other trees.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from benchmarks.harness import best_times
from benchmarks.studies.protocol import (
    entering_steps,
    paired_gain,
    ranks,
    read_real,
    read_set,
    scaled_part,
    selection_steps,
    step_significance,
)
from fivesigma import CascadeClassifier, DecomposedClassifier
from fivesigma._tools.extras import need
from fivesigma._types import Array
from fivesigma.datasets import Events

SEEDS = tuple(range(5))


def _learner() -> Any:
    return need("xgboost").XGBClassifier(
        n_estimators=300, max_depth=6, learning_rate=0.05, subsample=0.8, colsample_bytree=0.8
    )


def _models(seed: int) -> dict[str, Any]:
    """The learners, with the same classifier, held-out events and rule for the cut."""
    shared: dict[str, Any] = {"b_reg": 10.0, "random_state": seed, "n_jobs": 1}
    return {
        "plain": CascadeClassifier(_learner(), cascade=False, **shared),
        "decomposed": DecomposedClassifier(_learner(), **shared),
    }


def _fit_and_score(train: Events, test: Events, seed: int) -> dict[str, Array]:
    """Scores of the test events and which of them are selected, by learner."""
    out = {}
    for name, model in _models(seed).items():
        model.fit(train.X, train.is_signal.astype(int), train.weight, train.process)
        score = model.predict_proba(test.X)[:, 1]
        out[name], out[f"{name} selected"] = score, score >= model.cut_
    return out


def _kept(path: Path, make: Callable[[], dict[str, Array]]) -> dict[str, Array]:
    """Results of an earlier run, or new ones."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **make())  # type: ignore[arg-type]  # no name is allow_pickle
        print(f"  {path.name}", flush=True)
    with np.load(path) as stored:
        return dict(stored)


def simulated(path: str, folder: str) -> None:
    """Train on set t, quote set b."""
    train, test = read_set(path, "t"), read_set(path, "b")
    found = [
        _kept(Path(folder) / f"simulated-{seed}.npz", partial(_fit_and_score, train, test, seed)) for seed in SEEDS
    ]
    _print(found, test)


def real(path: str, folder: str) -> None:
    """Cross-fit five times with five folds; a score is made comparable between folds by its rank."""
    everything = read_real(path)
    signal = everything.is_signal

    def repeat(seed: int) -> dict[str, Array]:
        out: dict[str, Array] = {}
        for rows, rest in StratifiedKFold(5, shuffle=True, random_state=seed).split(everything.X, signal):
            parts = _fit_and_score(scaled_part(everything, rows), scaled_part(everything, rest), seed)
            for name, values in parts.items():
                comparable = values if values.dtype == bool else ranks(values)
                out.setdefault(name, np.empty(signal.size, dtype=comparable.dtype))[rest] = comparable
        return out

    found = [_kept(Path(folder) / f"real-{seed}.npz", partial(repeat, seed)) for seed in SEEDS]
    _print(found, everything)


def _print(found: list[dict[str, Array]], events: Events) -> None:
    """Both measures of each learner and of the blend of its seeds, with the gain over the learners before it."""
    names = [name for name in found[0] if not name.endswith(" selected")]
    scores: dict[str, dict[str, list[Array]]] = {
        "10-20 %": {name: [f[name] for f in found] for name in names},
        "own cut": {name: [f[f"{name} selected"] for f in found] for name in names},
        "blend, 10-20 %": {name: [np.mean([ranks(f[name]) for f in found], axis=0)] for name in names},
    }
    for measure, of in scores.items():
        steps = selection_steps if measure == "own cut" else entering_steps
        for k, name in enumerate(names):
            z = float(np.mean([step_significance(steps(score), events) for score in of[name]]))
            gains = [(other, *paired_gain(of[name], of[other], events, steps)) for other in names[:k]]
            text = "".join(f"   over {other} {gain:+.4f} ± {error:.4f}" for other, gain, error in gains)
            print(f"{measure:14} {name:10} {z:.4f}{text}", flush=True)


def price(path: str, _folder: str) -> None:
    """Processor time against one weighted fit."""
    events = read_set(path, "t")
    models = _models(0)
    fits = [partial(m.fit, events.X, events.is_signal.astype(int), events.weight) for m in models.values()]
    times = best_times(3, *fits, clock=time.process_time)
    for name, seconds in zip(models, times, strict=True):
        print(f"{name:12} {seconds:.1f} s, {seconds / times[0]:.2f} of plain")


if __name__ == "__main__":
    {"simulated": simulated, "real": real, "time": price}[sys.argv[1]](sys.argv[2], sys.argv[3])
