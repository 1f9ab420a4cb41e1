"""What would make the challenge's best recipe cheaper or higher: trials within set t (docs/validation/challenge.md).

``python -m benchmarks.studies.higgsml_trials run EVENTS FOLDER [NAME ...]`` trains what is missing, on one core.
``table EVENTS FOLDER`` adds to benchmarks/studies/higgsml_trials.json and prints the table. The folder is called
simulated or
real, as the events are.

Each trial is fitted on one half of the events and scores the other, and the other way round; all trials have the same
halves. Of simulated events set b is not read. Scores of the two fits are compared by their ranks. Gains are those of
`benchmarks.studies.protocol`, against the net of the recipe, over the seeds that both have; loss is the class-balanced
cross-entropy, which has less noise. Blends take the scores of trials: what they learn of one half, they use on the
other.
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

from benchmarks.studies.protocol import as_measured, entering_steps, mean_significance, paired_gain, ranks
from benchmarks.studies.recipes import whole
from fivesigma import CascadePool, DecomposedClassifier, NetClassifier
from fivesigma._tools.files import written_whole
from fivesigma._types import AnyArray, Array, BoolArray
from fivesigma.blend import Blend
from fivesigma.challenge import B_REG
from fivesigma.datasets import Events
from fivesigma.higgsml import engineer, load
from fivesigma.higgsml.data import FEATURES
from fivesigma.higgsml.features import ALL_SETS, MOMENTA
from fivesigma.learners.libraries import default_regressor

RESULTS = Path(__file__).parent / "higgsml_trials.json"
BASE, TREE, GROUPED, PROCESS = "net", "trees", "4 groups of weight beside", "Process"
FOCUSED, BOTH = "focus 3", "4 groups, focus 3"
SETTINGS: dict[str, Any] = {"epochs": 15, "batch_size": 1024, "dropout": 0.1, "weight_groups": 1}
TREES = {"max_depth": 6, "subsample": 0.8}

Make = Callable[[Any], Any]


def net(names: Any, columns: Any = FEATURES, **settings: Any) -> Any:
    """Return a net on some columns, with the particles as vectors."""
    at = {name: k for k, name in enumerate(names)}
    momenta = [tuple(None if c is None else at[c] for c in triple) for triple in MOMENTA]
    return NetClassifier(columns=[at[c] for c in columns], momenta=momenta, n_jobs=1, **(SETTINGS | settings))


def trees(names: Any, columns: Any, n_trees: int = 300, rate: float = 0.1, share: float = 0.5, **options: Any) -> Any:
    """Return decomposed trees."""
    from xgboost import XGBClassifier

    shape = TREES | {"colsample_bytree": share, "learning_rate": rate} | options
    return decomposed(names, columns, XGBClassifier(n_estimators=n_trees, **shape))


def decomposed(names: Any, columns: Any, classifier: Any) -> Any:
    """Return a decomposed learner that sees some columns; the number of the process must not be one of them."""
    at = [list(names).index(c) for c in columns]
    return Columns(DecomposedClassifier(classifier, default_regressor()), at)


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
    return [*FEATURES, *(n for n in names if n.startswith(prefixes) and n not in (*FEATURES, PROCESS))]


TRIALS: dict[str, Make] = {
    BASE: net,
    "7 epochs": lambda n: net(n, epochs=7),
    "10 epochs": lambda n: net(n, epochs=10),
    "batch 512, 10 epochs": lambda n: net(n, epochs=10, batch_size=512),
    "batch 256 (LUMIN's), 10 epochs": lambda n: net(n, epochs=10, batch_size=256, learning_rate=0.005),
    "batch 2500, 20 epochs": lambda n: net(n, epochs=20, batch_size=2500),
    "batch 2500, 30 epochs": lambda n: net(n, epochs=30, batch_size=2500),
    "batch 4096, 20 epochs": lambda n: net(n, epochs=20, batch_size=4096),
    "width 80, depth 4": lambda n: net(n, width=80, depth=4),
    "decomposed": lambda n: decomposed(n, FEATURES, net(FEATURES)),
    "decomposed, 10 epochs": lambda n: decomposed(n, FEATURES, net(FEATURES, epochs=10)),
    "pairs": lambda n: net(n, with_sets(n, "mass_", "mT_", "dR_", "deta_", "dphi_")),
    "experts by jets": lambda n: Experts(net(n), list(n).index("PRI_jet_num")),
    "one net per background": lambda n: PerBackground(net(n)),
    "one net per third of background by weight": lambda n: PerBackground(net(n), by="weight"),
    "2 groups of weight beside": lambda n: net(n, weight_groups=2),
    GROUPED: lambda n: net(n, weight_groups=4),
    "8 groups of weight beside": lambda n: net(n, weight_groups=8),
    FOCUSED: lambda n: net(n, focus=3.0),
    "4 groups, width 80, depth 4": lambda n: net(n, weight_groups=4, width=80, depth=4),
    "4 groups, 25 epochs": lambda n: net(n, weight_groups=4, epochs=25),
    "4 groups, focus 1": lambda n: net(n, weight_groups=4, focus=1.0),
    BOTH: lambda n: net(n, weight_groups=4, focus=3.0),
    "4 groups, focus 10": lambda n: net(n, weight_groups=4, focus=10.0),
    TREE: lambda n: trees(n, FEATURES),
    "trees with features": lambda n: trees(n, with_sets(n, "")),
    "120 trees with features": lambda n: trees(n, with_sets(n, ""), n_trees=120, rate=0.2),
    "120 trees": lambda n: trees(n, FEATURES, n_trees=120, rate=0.2),
}

# Trials of a blend, its scale, and how the trials are weighted.
BLENDS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "net + trees, even": ((BASE, TREE), "rank", "even"),
    "net + trees, fitted weights": ((BASE, TREE), "rank", "fit"),
    "net + trees, fitted weights of log-odds": ((BASE, TREE), "margin", "fit"),
    "net + trees, monotone stack": ((BASE, TREE), "margin", "stack"),
    "net + trees with features, fitted weights": ((BASE, "trees with features"), "rank", "fit"),
    "three nets + trees, fitted weights": (("three nets", TREE), "rank", "fit"),
    "net with groups + trees, fitted weights": ((GROUPED, TREE), "rank", "fit"),
    "net with groups and focus + trees, fitted weights": ((BOTH, TREE), "rank", "fit"),
}


def with_process(events: Events) -> Events:
    """Give events a last column that says of which process each is; only `PerBackground` sees it, in training."""
    numbers = np.unique(np.asarray(events.process), return_inverse=True)[1]
    X = np.column_stack([events.X, numbers.astype(np.float32)])
    return replace(events, X=X, feature_names=(*events.feature_names, PROCESS))


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


def blended(members: list[Array], kind: str, how: str, events: Events) -> Array:
    """Blend scores of trials; what is learnt of one half is used on the other."""
    half, out = halves(events), np.empty(len(events))
    balanced = events.scaled_to(s=1.0, b=1.0).weight
    for k in range(2):
        learnt, used = half != k, half == k
        known, new = ([m[rows] for m in members] for rows in (learnt, used))
        signal, weight = events.is_signal[learnt], balanced[learnt]
        blend = Blend.fitted(kind, known)
        if how == "stack":
            out[used] = stack(blend.columns(known), signal, weight, blend.columns(new))
        else:
            out[used] = (blend if how == "even" else blend.reweighted(known, signal, weight))(new)
    return out


def stack(known: list[Array], signal: BoolArray, weight: Array, new: list[Array]) -> Array:
    """P(signal) by trees that rise with every score."""
    from xgboost import XGBClassifier

    rising = tuple(1 for _ in known)
    shape: dict[str, Any] = {"max_depth": 3, "learning_rate": 0.05, "min_child_weight": 50}
    model = XGBClassifier(n_estimators=150, monotone_constraints=rising, n_jobs=1, random_state=0, **shape)
    model.fit(np.column_stack(known), signal, sample_weight=weight / weight.mean())
    return np.asarray(model.predict_proba(np.column_stack(new))[:, 1], dtype=np.float64)


def table(events: Events, folder: Path) -> None:
    """Print all trials and blends with their gain over the base, and write them."""
    measured = as_measured(events)
    found: dict[str, dict[int, Array]] = {}
    seconds: dict[str, list[float]] = {}
    for path in folder.glob("*.npz"):
        name, _, seed = path.stem.partition("#")
        with np.load(path) as stored:
            found.setdefault(name, {})[int(seed or 0)] = stored["score"]
            seconds.setdefault(name, []).append(float(stored["seconds"]))
    for name, (members, kind, how) in BLENDS.items():
        if set(members) <= set(found):
            shared = sorted(set.intersection(*(set(found[m]) for m in members)))
            found[name] = {s: blended([found[m][s] for m in members], kind, how, events) for s in shared}
            seconds[name] = [sum(float(np.mean(seconds[m])) for m in members)]
    out = {}
    for name in (n for n in (*TRIALS, *BLENDS) if n in found):
        seeds = sorted(set(found[name]) & set(found[BASE]))
        mine, base = ([by_rank(found[n][s], events) for s in seeds] for n in (name, BASE))
        gain, error = (0.0, 0.0) if name == BASE else paired_gain(mine, base, measured, entering_steps)
        out[name] = {
            "seeds": len(seeds),
            "ams": round(float(np.mean([mean_significance(m, measured) for m in mine])), 4),
            "gain": round(gain, 4),
            "error": round(error, 4),
            "loss": round(float(np.mean([loss(found[name][s], events) for s in seeds])), 4),
            "seconds": round(float(np.mean(seconds[name])), 1),
        }
        print(name, out[name], flush=True)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[folder.name] = results.get(folder.name, {}) | out
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    command, path, folder, *names = sys.argv[1:]
    data = load(path, sample=True)
    t = engineer(data.subset("t") if "simulated" in folder else whole(data), (*ALL_SETS, "raw"))
    t = t if t.process is None else with_process(t)
    if command == "run":
        run(t, Path(folder), names)
    else:
        table(t, Path(folder))
