"""What would make the challenge's best recipe cheaper or higher: trials within set t, the table of docs/higgsml.md.

``python -m benchmarks.higgsml_trials run EVENTS FOLDER [NAME ...]`` trains what is missing, on one core.
``table EVENTS FOLDER`` adds to benchmarks/higgsml_trials.json and prints the table. The folder is called simulated or
real, as the events are.

Each trial is fitted on one half of the events and scores the other, and the other way round; all trials have the same
halves. Of simulated events set b is not read. Scores of the two fits are compared by their ranks. Gains are those of
`benchmarks.protocol`, against the net of the recipe as it was before these trials; loss is the class-balanced
cross-entropy, which has less noise.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import StratifiedKFold

from benchmarks.protocol import as_measured, entering_steps, mean_significance, paired_gain, ranks
from benchmarks.recipes import whole
from fivesigma import CascadePool, DecomposedClassifier, NetClassifier
from fivesigma._files import written_whole
from fivesigma._types import AnyArray, Array
from fivesigma.challenge import B_REG
from fivesigma.datasets import Events
from fivesigma.higgsml import engineer, load
from fivesigma.higgsml.data import FEATURES
from fivesigma.higgsml.features import ALL_SETS
from fivesigma.higgsml.orientation import MOMENTA
from fivesigma.learners.decomposition import default_regressor

RESULTS = Path(__file__).parent / "higgsml_trials.json"
BASE = "net before"
OLD: dict[str, Any] = {"epochs": 15, "batch_size": 1024, "dropout": 0.1}
NEW: dict[str, Any] = {"epochs": 30, "batch_size": 4096, "dropout": 0.1}
WIDE = NEW | {"width": 80, "depth": 4}
TREES = {"max_depth": 6, "subsample": 0.8}

Make = Callable[[Any], Any]


def net(names: Any, columns: Any = FEATURES, **settings: Any) -> Any:
    """Return a net on some columns, with the particles as vectors."""
    at = {name: k for k, name in enumerate(names)}
    momenta = [tuple(None if c is None else at[c] for c in triple) for triple in MOMENTA]
    return NetClassifier(columns=[at[c] for c in columns], momenta=momenta, n_jobs=1, **settings)


def trees(names: Any, columns: Any, n_trees: int = 300, rate: float = 0.1, share: float = 0.5, **options: Any) -> Any:
    """Return decomposed trees."""
    from xgboost import XGBClassifier

    at = [list(names).index(c) for c in columns]
    shape = TREES | {"colsample_bytree": share, "learning_rate": rate} | options
    return Columns(DecomposedClassifier(XGBClassifier(n_estimators=n_trees, **shape), default_regressor()), at)


class Columns(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that sees some columns."""

    def __init__(self, estimator: Any = None, columns: Any = None) -> None:
        self.estimator = estimator
        self.columns = columns

    def fit(self, X: AnyArray, y: AnyArray, sample_weight: AnyArray) -> Columns:
        """Train it."""
        self.classes_ = np.unique(y)
        self.fitted_ = clone(self.estimator).fit(X[:, self.columns], y, sample_weight)
        return self

    def predict_proba(self, X: AnyArray) -> Array:
        """Probabilities of both classes."""
        return np.asarray(self.fitted_.predict_proba(X[:, self.columns]))


class Experts(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """One classifier for each number of jets: none, one, more."""

    def __init__(self, estimator: Any = None, column: int = 0) -> None:
        self.estimator = estimator
        self.column = column

    def fit(self, X: AnyArray, y: AnyArray, sample_weight: AnyArray) -> Experts:
        """Train them; the weights of all events together make their probabilities comparable."""
        self.classes_ = np.unique(y)
        groups = self._groups(X)
        self.fitted_ = [
            clone(self.estimator).fit(X[groups == k], y[groups == k], sample_weight[groups == k]) for k in range(3)
        ]
        return self

    def predict_proba(self, X: AnyArray) -> Array:
        """Probabilities of both classes."""
        out, groups = np.empty((X.shape[0], 2)), self._groups(X)
        for k, expert in enumerate(self.fitted_):
            out[groups == k] = expert.predict_proba(X[groups == k])
        return out

    def _groups(self, X: AnyArray) -> AnyArray:
        return np.minimum(X[:, self.column], 2).astype(int)


class PerBackground(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """One classifier for each part of the background, whose ratios to signal add.

    The parts are the processes, whose numbers are the last column, or thirds of the background by weight.
    """

    def __init__(self, estimator: Any = None, by: str = "process") -> None:
        self.estimator = estimator
        self.by = by

    def fit(self, X: AnyArray, y: AnyArray, sample_weight: AnyArray) -> PerBackground:
        """Train each with as much background as signal."""
        self.classes_ = np.unique(y)
        self.fitted_ = []
        thirds = np.searchsorted(np.quantile(sample_weight[y == 0], [1 / 3, 2 / 3]), sample_weight)
        part = thirds if self.by == "weight" else X[:, -1]
        for one in np.unique(part[y == 0]):
            rows = (y == 1) | (part == one)
            share = sample_weight[rows & (y == 0)].sum() / sample_weight[y == 1].sum()
            balanced = np.where(y == 1, 1.0, 1.0 / share) * sample_weight
            self.fitted_.append((clone(self.estimator).fit(X[rows], y[rows], balanced[rows]), share))
        return self

    def predict_proba(self, X: AnyArray) -> Array:
        """Probabilities of both classes."""
        ratio = sum(share * np.exp(-one.decision_function(X)) for one, share in self.fitted_)
        return np.column_stack([ratio / (1.0 + ratio), 1.0 / (1.0 + ratio)])


def with_sets(names: Any, *prefixes: str) -> list[str]:
    """Return the challenge's columns and engineered ones by the beginning of their names."""
    return [*FEATURES, *(n for n in names if n.startswith(prefixes) and n not in FEATURES)]


TRIALS: dict[str, Make] = {
    BASE: lambda n: net(n, **OLD),
    "batch 4096, 30 epochs": lambda n: net(n, **NEW),
    "batch 1024, 30 epochs": lambda n: net(n, **NEW | {"batch_size": 1024}),
    "default batch, 30 epochs": lambda n: net(n, **NEW | {"batch_size": None}),
    "width 80, depth 4": lambda n: net(n, **WIDE),
    "width 80, depth 4, batch 2048, 20 epochs": lambda n: net(n, **WIDE | {"epochs": 20, "batch_size": 2048}),
    "one net per background": lambda n: PerBackground(net(n, **NEW)),
    "one net per third of background by weight": lambda n: PerBackground(net(n, **NEW), by="weight"),
    "default batch, one net per third by weight": lambda n: PerBackground(
        net(n, **NEW | {"batch_size": None}), by="weight"
    ),
    "batch 4096, 20 epochs": lambda n: net(n, **NEW | {"epochs": 20}),
    "pairs": lambda n: net(n, with_sets(n, "mass_", "mT_", "dR_", "deta_", "dphi_"), **NEW),
    "experts by jets": lambda n: Experts(net(n, **NEW), list(n).index("PRI_jet_num")),
    "trees, 30 columns": lambda n: trees(n, FEATURES),
    "fewer trees, 30 columns": lambda n: trees(n, FEATURES, n_trees=200, rate=0.15),
}


def with_process(events: Events) -> Events:
    """Give events a last column that says of which process each is; only `PerBackground` sees it, in training."""
    numbers = np.unique(np.asarray(events.process), return_inverse=True)[1]
    X = np.column_stack([events.X, numbers.astype(np.float32)])
    return replace(events, X=X, feature_names=(*events.feature_names, "Process"))


def halves(events: Events) -> AnyArray:
    """Return the half of each event."""
    out = np.empty(len(events), dtype=int)
    for k, (_, rows) in enumerate(StratifiedKFold(2, shuffle=True, random_state=0).split(events.X, events.is_signal)):
        out[rows] = k
    return out


def score(make: Make, events: Events, seed: int = 0) -> tuple[Array, float]:
    """P(signal) of each event by the fit that has not seen it, and seconds of one core."""
    start = time.process_time()
    pool = CascadePool(
        [("one", make(events.feature_names))], b_reg=B_REG, cv=halves(events), random_state=seed, n_jobs=1
    )
    pool.fit(events.X, events.is_signal.astype(int), events.weight)
    return pool.held_out_scores_["one"], time.process_time() - start


def run(events: Events, folder: Path, names: list[str]) -> None:
    """Train what is missing; NAME#1 is the same with another seed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or TRIALS:
        path = folder / f"{name}.npz"
        if path.exists():
            continue
        kind, _, seed = name.partition("#")
        found, seconds = score(TRIALS[kind], events, int(seed or 0))
        with written_whole(path) as beside, beside.open("wb") as file:
            np.savez(file, score=found, seconds=seconds)
        print(
            f"{name}: {mean_significance(by_rank(found, events), as_measured(events)):.3f}, {seconds:.0f} s", flush=True
        )


def by_rank(found: Array, events: Events) -> Array:
    """Scores of both halves as ranks within them."""
    half, out = halves(events), np.empty(found.size)
    for k in range(2):
        out[half == k] = ranks(found[half == k])
    return out


def loss(found: Array, events: Events) -> float:
    """Class-balanced cross-entropy, with the scale of the log-odds as it is."""
    signal, p = events.is_signal, np.clip(found, 1e-6, 1 - 1e-6)
    each = -np.where(signal, np.log(p), np.log(1 - p))
    return float(np.mean([np.average(each[c], weights=events.weight[c]) for c in (signal, ~signal)]))


def table(events: Events, folder: Path) -> None:
    """Print all trials and their gain over the base, and write them."""
    measured = as_measured(events)
    found = {p.stem: dict(np.load(p)) for p in sorted(folder.glob("*.npz"))}
    base = by_rank(found[BASE]["score"], events)
    out = {}
    for name, one in found.items():
        mine = by_rank(one["score"], events)
        gain, error = paired_gain([mine], [base], measured, entering_steps)
        out[name] = {
            "ams": round(mean_significance(mine, measured), 4),
            "gain": round(gain, 4),
            "error": round(error, 4),
            "loss": round(loss(one["score"], events), 4),
            "seconds": round(float(one["seconds"]), 1),
        }
        print(name, out[name], flush=True)
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(stored | {folder.name: out}, indent=1) + "\n")


if __name__ == "__main__":
    command, path, folder, *names = sys.argv[1:]
    data = load(path, sample=True)
    t = engineer(data.subset("t") if "simulated" in folder else whole(data), (*ALL_SETS, "raw"))
    t = t if t.process is None else with_process(t)
    if command == "run":
        run(t, Path(folder), names)
    else:
        table(t, Path(folder))
