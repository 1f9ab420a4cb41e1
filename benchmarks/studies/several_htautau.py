"""Two production modes of simulated H -> tautau (gluon fusion and vector-boson fusion): the search beside argmax + 1-D.

::

    python -m benchmarks.studies.several_htautau PATH/htautau_pythia8.parquet

A three-class XGBoost gives out-of-fold scores of set t, on which both ways choose their categories; its mean over the
folds scores set b, on which they are judged. The errors are paired: from a bootstrap of the events of b, and from part
to part of t where each of five parts chooses.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._types import Array, IntArray
from fivesigma.categories.class_sample import ClassSample, Roles, check_sample
from fivesigma.categories.floors import Floors
from fivesigma.categories.several_signals import categorise_scores
from fivesigma.categories.several_signals.goal import Goal, Settings
from fivesigma.categories.several_signals.region_result import goal_of
from fivesigma.categories.several_signals.regions import fit

SIGNALS = ("htautau_ggF", "htautau_VBF")
COLUMNS = (*SIGNALS, "background")
FOLDS, TREES, REPLICAS, PARTS = 2, 120, 200, 5
NUMBERS = (3, 5, 10)  # of categories


def learner_weights(weight: Array, classes: IntArray) -> Array:
    """Physics weights as learner weights: every class with the same sum, mean one."""
    balanced = weight / np.bincount(classes, weight)[classes]
    return np.asarray(balanced / balanced.mean())


def class_scores(train: Any, test: Any) -> tuple[Array, Array]:
    """Out-of-fold scores of the training set, by event number, and mean scores of the test set."""
    xgboost = need("xgboost")
    X, classes, weight, number = train
    inside, outside = np.empty((len(X), len(COLUMNS))), np.zeros((len(test), len(COLUMNS)))
    for fold in range(FOLDS):
        rest = number % FOLDS != fold
        model = xgboost.XGBClassifier(n_estimators=TREES, max_depth=5, learning_rate=0.1, n_jobs=1, missing=-999.0)
        model.fit(X[rest], classes[rest], sample_weight=learner_weights(weight[rest], classes[rest]))
        inside[~rest] = model.predict_proba(X[~rest])
        outside += model.predict_proba(test) / FOLDS
    return inside, outside


def main(path: str) -> None:
    """Print one line for each number of categories."""
    frame = need("polars").read_parquet(path)
    features = [name for name in frame.columns if name[:4] in ("DER_", "PRI_")]
    part = {name: frame.filter(frame["KaggleSet"] == name) for name in ("t", "b")}
    X = {name: rows.select(features).to_numpy().astype(np.float32) for name, rows in part.items()}
    process = {name: rows["Process"].to_numpy().astype(str) for name, rows in part.items()}
    weight = {name: rows["KaggleWeight"].to_numpy() for name, rows in part.items()}
    classes = np.array([COLUMNS.index(p) if p in SIGNALS else 2 for p in process["t"]])
    number = part["t"]["EventId"].to_numpy()
    scores = dict(zip("tb", class_scores((X["t"], classes, weight["t"], number), X["b"]), strict=True))
    rng = np.random.default_rng(0)
    copies = rng.poisson(1.0, size=(REPLICAS, len(weight["b"])))
    for k in NUMBERS:
        parts = [_both(scores, process, weight, number // FOLDS % PARTS == part, k) for part in range(PARTS)]
        gains = np.array([search - simple for search, simple in parts])
        error = gains.std(ddof=1) / np.sqrt(PARTS)
        each = ", ".join(f"{search:.3f} - {simple:.3f}" for search, simple in parts)
        print(
            f"K = {k}, chosen on each of {PARTS} parts of t: search - argmax + 1-D {each}: "
            f"{gains.mean():+.3f} +- {error:.3f} from part to part",
            flush=True,
        )
    for k in NUMBERS:
        found = categorise_scores(scores["t"], process["t"], weight["t"], k, signals=SIGNALS, processes=COLUMNS)
        settings = found.settings
        tune = check_sample(scores["t"], process["t"], weight["t"], settings.roles)
        test = check_sample(scores["b"], process["b"], weight["b"], settings.roles)
        both = fit(tune, settings)
        values = []
        for rule in (both.search[-1], both.simple[-1]):
            assert rule is not None
            category = rule.assign(test.scores)
            values.append([goal_of(sample, category, k, settings.goal) for sample in _replicas(test, copies)])
        out = np.array(values)
        gain = out[0] - out[1]
        print(
            f"K = {k}: chosen {found.way} ({found.judged}); "
            f"on set b search {out[0, 0]:.3f}, argmax + 1-D {out[1, 0]:.3f}, difference {gain[0]:+.3f} "
            f"+- {gain[1:].std(ddof=1):.3f}; found / bound {found.value / found.bound.value:.3f}",
            flush=True,
        )


def _both(scores: Any, process: Any, weight: Any, chosen: Any, k: int) -> tuple[float, float]:
    """Goals on set b of the search and of the simple way, fitted on some events of t; NaN where there is none."""
    tune = (scores["t"][chosen], process["t"][chosen], weight["t"][chosen])
    roles = Roles(COLUMNS, SIGNALS)
    full = check_sample(scores["t"], process["t"], weight["t"], roles)
    sample = check_sample(*tune, roles).scaled_to(full.process_yields)
    both = fit(sample, Settings(roles, Goal(), Floors(0.0, 10.0), k, True, None, True))
    test = check_sample(scores["b"], process["b"], weight["b"], roles)
    search, simple = (
        np.nan if rule is None else goal_of(test, rule.assign(test.scores), k, Goal())
        for rule in (both.search[-1], both.simple[-1])
    )
    return search, simple


def _replicas(sample: ClassSample, copies: Any) -> list[ClassSample]:
    """The sample itself, then its replicas."""
    from dataclasses import replace

    return [sample, *(replace(sample, weight=sample.weight * row) for row in copies)]


if __name__ == "__main__":
    main(sys.argv[1])
