"""The decomposed learner against one weighted fit with a tuned cut: same trees, same splits, same events.

``python -m benchmarks.decomposed simulated|real|time events folder`` trains what is missing in the folder and prints
the figures of docs/decomposed.md. `simulated` trains on set t and quotes set b of a parquet file with the columns of
the 2014 challenge; `real` cross-fits the challenge's own csv file; `time` compares processor times on set t.

A gain is the mean over K seeds of the difference on the same test events. Its error is
sqrt(V + S^2 / K), V the variance of that mean over Poisson replicas of the test events (the same replicas for both
learners and all seeds, each class scaled to its full yield) and S the spread of the difference over seeds, which draw
another part of the training events and other trees.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import StratifiedKFold

from benchmarks.harness import best_times
from fivesigma import AMS2, CascadeClassifier, DecomposedClassifier
from fivesigma._extras import need
from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.datasets import load_events
from fivesigma.datasets.htautau import YIELDS
from fivesigma.poisson import PoissonCounts
from fivesigma.yields import rescale

UTILITY = AMS2(b_reg=10.0)
FRACTIONS = np.linspace(0.10, 0.20, 41)  # selected shares of events over which significance is averaged
SEEDS = tuple(range(5))
N_BOOT = 400


class Events(NamedTuple):
    """Events of one set, weighted to the yields of the challenge."""

    X: Array
    signal: BoolArray
    weight: Array
    process: AnyArray

    @property
    def totals(self) -> tuple[float, float]:
        """Full yields."""
        return YIELDS["s"], YIELDS["b"]

    def take(self, rows: IntArray) -> Events:
        """Some rows, scaled to the full yields."""
        signal = self.signal[rows]
        return Events(self.X[rows], signal, rescale(self.weight[rows], signal, self.totals), self.process[rows])


def read_set(path: str, name: str) -> Events:
    """Read one KaggleSet of a parquet file."""
    pl = need("polars")
    frame = pl.read_parquet(path).filter(pl.col("KaggleSet") == name)
    features = [c for c in frame.columns if c.startswith(("DER_", "PRI_"))]
    signal = (frame["Label"] == "s").to_numpy()
    weight = rescale(frame["KaggleWeight"].to_numpy(), signal, (YIELDS["s"], YIELDS["b"]))
    X = frame.select(features).to_numpy()
    return Events(np.where(X == -999.0, np.nan, X), signal, weight, frame["Process"].to_numpy())


def mean_significance(score: Array, events: Events) -> float:
    """Mean AMS over cuts that select 10 to 20 % of the events."""
    return _significance(entering_steps(score), events.weight, events)


def paired_gain(
    scores: Sequence[Array], baseline: Sequence[Array], events: Events, steps: Callable[[Array], IntArray]
) -> tuple[float, float]:
    """Mean gain over seeds and its error, as in the text above."""
    entering = [[steps(s) for s in group] for group in (scores, baseline)]

    def gains(weight: Array) -> Array:
        ours, theirs = ([_significance(e, weight, events) for e in group] for group in entering)
        return np.subtract(ours, theirs)

    found = gains(events.weight)
    source = PoissonCounts(0, events.weight.size)
    replicas = [
        gains(rescale(events.weight * source.draw(events.weight.size), events.signal, events.totals)).mean()
        for _ in range(N_BOOT)
    ]
    spread = found.var(ddof=1) / found.size if found.size > 1 else 0.0
    return float(found.mean()), float(np.sqrt(np.var(replicas, ddof=1) + spread))


def entering_steps(score: Array) -> IntArray:
    """Number of the first cut at which each event is selected, counted from the tightest."""
    rank = np.empty(score.size, dtype=np.intp)
    rank[np.argsort(-score, kind="stable")] = np.arange(score.size)
    return np.searchsorted(FRACTIONS * score.size, rank, side="right")


def _significance(step: IntArray, weight: Array, events: Events) -> float:
    """Mean AMS over the cuts at which events enter in steps."""
    n = int(step.max()) + 1
    s, b = (np.cumsum(np.bincount(step[c], weight[c], minlength=n))[: n - 1] for c in (events.signal, ~events.signal))
    return float(UTILITY.value(s, b).mean())


def _learner() -> Any:
    return need("xgboost").XGBClassifier(
        n_estimators=300, max_depth=6, learning_rate=0.05, subsample=0.8, colsample_bytree=0.8
    )


def _models(seed: int) -> dict[str, Any]:
    """The learners, with the same classifier, held-out events and rule for the cut."""
    shared: dict[str, Any] = {"b_reg": 10.0, "random_state": seed, "n_jobs": 1}
    return {
        "plain": CascadeClassifier(_learner(), max_rounds=0, **shared),
        "decomposed": DecomposedClassifier(_learner(), **shared),
    }


def _fit_and_score(train: Events, test: Events, seed: int) -> dict[str, Array]:
    """Scores of the test events and which of them are selected, by learner."""
    out = {}
    for name, model in _models(seed).items():
        model.fit(train.X, train.signal.astype(int), train.weight, train.process)
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
    events = load_events(path, weight="KaggleWeight")
    signal = np.asarray(events.is_signal)
    weight = rescale(events.weight, signal, (YIELDS["s"], YIELDS["b"]))
    everything = Events(np.asarray(events.X), signal, weight, signal)

    def repeat(seed: int) -> dict[str, Array]:
        out: dict[str, Array] = {}
        for rows, rest in StratifiedKFold(5, shuffle=True, random_state=seed).split(everything.X, signal):
            parts = _fit_and_score(everything.take(rows), everything.take(rest), seed)
            for name, values in parts.items():
                ranks = values if values.dtype == bool else np.argsort(np.argsort(values, kind="stable")) / values.size
                out.setdefault(name, np.empty(signal.size, dtype=ranks.dtype))[rest] = ranks
        return out

    found = [_kept(Path(folder) / f"real-{seed}.npz", partial(repeat, seed)) for seed in SEEDS]
    _print(found, everything)


def _print(found: list[dict[str, Array]], events: Events) -> None:
    """Both measures of each learner and of the blend of its seeds, with the gain over the learners before it."""
    names = [name for name in found[0] if not name.endswith(" selected")]
    scores: dict[str, dict[str, list[Array]]] = {
        "10-20 %": {name: [f[name] for f in found] for name in names},
        "own cut": {name: [np.where(f[f"{name} selected"], 0, 1) for f in found] for name in names},
        "blend, 10-20 %": {name: [np.mean([_rank(f[name]) for f in found], axis=0)] for name in names},
    }
    for measure, of in scores.items():
        steps = _as_steps if measure == "own cut" else entering_steps
        for k, name in enumerate(names):
            z = float(np.mean([_significance(steps(score), events.weight, events) for score in of[name]]))
            gains = [(other, *paired_gain(of[name], of[other], events, steps)) for other in names[:k]]
            text = "".join(f"   over {other} {gain:+.4f} ± {error:.4f}" for other, gain, error in gains)
            print(f"{measure:14} {name:10} {z:.4f}{text}", flush=True)


def _as_steps(selected: Array) -> IntArray:
    return selected.astype(np.intp)


def _rank(score: Array) -> Array:
    return np.asarray(np.argsort(np.argsort(score, kind="stable")) / score.size)


def price(path: str, _folder: str) -> None:
    """Processor time against one weighted fit."""
    events = read_set(path, "t")
    models = _models(0)
    fits = [partial(m.fit, events.X, events.signal.astype(int), events.weight) for m in models.values()]
    times = best_times(3, *fits, clock=time.process_time)
    for name, seconds in zip(models, times, strict=True):
        print(f"{name:12} {seconds:.1f} s, {seconds / times[0]:.2f} of plain")


if __name__ == "__main__":
    {"simulated": simulated, "real": real, "time": price}[sys.argv[1]](sys.argv[2], sys.argv[3])
