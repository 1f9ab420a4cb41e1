"""Peers on the same events: other tools' ways to a selection, beside ours.

All train on the same events, 3/4 of which fit and 1/4 of which tune the cut (plateau of the scan) where a tool does not
tune its own. All boosters have 100 trees of depth 6, eta 0.1. hep_ml's trees are slow, so it and its baseline
train on a tenth of the events. Trained on set t, scored on sets b and u.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.studies.protocol import TOTALS, UTILITY, scaled_part
from benchmarks.studies.study import nets
from benchmarks.studies.study.arms import SHAPE, TREES, Arm, boosted, decomposed, fitted, fixed_ratio, plain
from benchmarks.studies.study.data import Source
from benchmarks.studies.study.runs import Cache, Fitted, Run
from benchmarks.studies.study.summary import Comparison, compared
from fivesigma import CascadeClassifier, CascadePool, GrownCascadeClassifier, make_scorer, scan
from fivesigma._tools.extras import need
from fivesigma._types import AnyArray, Array
from fivesigma.challenge import MISSING
from fivesigma.datasets import Events
from fivesigma.yields import balanced_class_weights, learner_weights

SAMPLED = {"subsample": 0.8, "colsample_bytree": 0.8}


def split(train: Events, seed: int) -> tuple[Events, Events]:
    """Events to fit and events that tune the cut."""
    rows = np.random.default_rng(seed).permutation(len(train))
    n = rows.size // 4
    return scaled_part(train, rows[n:]), scaled_part(train, rows[:n])


def weights(events: Events, *, balanced: bool) -> Array:
    """Learner weights of mean one: physics weights, or with balanced classes."""
    class_weights = balanced_class_weights(events.weight, events.is_signal) if balanced else (1.0, 1.0)
    return learner_weights(events.weight, events.is_signal, class_weights)


def tuned(make: Callable[[int], Any], *, balanced: bool) -> Arm:
    """A classifier of scikit-learn's kind, and the cut tuned on events that it did not see."""

    def fit(train: Events, seed: int) -> Fitted:
        part, held = split(train, seed)
        model = make(seed).fit(part.X, part.is_signal.astype(int), sample_weight=weights(part, balanced=balanced))

        def score(X: AnyArray) -> Array:
            return np.asarray(model.predict_proba(X)[:, 1], dtype=np.float64)

        return Fitted(score, scan(score(held.X), held.is_signal, held.weight, UTILITY).cut)

    return fit


def xgboost(seed: int, **more: Any) -> Any:
    return need("xgboost").XGBClassifier(n_estimators=TREES, **SHAPE, **SAMPLED, random_state=seed, n_jobs=1, **more)


def lightgbm(seed: int) -> Any:
    return need("lightgbm").LGBMClassifier(
        n_estimators=TREES,
        learning_rate=SHAPE["learning_rate"],
        num_leaves=63,
        subsample=0.8,
        subsample_freq=1,
        colsample_bytree=0.8,
        random_state=seed,
        n_jobs=1,
        verbose=-1,
    )


def tuned_threshold(train: Events, seed: int) -> Fitted:
    """scikit-learn's TunedThresholdClassifierCV with an AMS scorer, refitted on all training events."""
    from sklearn import config_context
    from sklearn.model_selection import StratifiedShuffleSplit, TunedThresholdClassifierCV

    with config_context(enable_metadata_routing=True):
        learner = xgboost(seed).set_fit_request(sample_weight=True)
        model = TunedThresholdClassifierCV(
            learner,
            scoring=make_scorer(UTILITY, yields=TOTALS).set_score_request(sample_weight=True),
            cv=StratifiedShuffleSplit(1, test_size=0.25, random_state=seed),
            refit=True,
        )
        # One set of weights serves the fit and the scorer, so it trains at the ratio of the physics weights.
        model.fit(train.X, train.is_signal.astype(int), sample_weight=learner_weights(train.weight, train.is_signal))
    return Fitted(lambda X: np.asarray(model.predict_proba(X)[:, 1], dtype=np.float64), float(model.best_threshold_))


def ams_stopping(train: Events, seed: int) -> Fitted:
    """XGBoost's own ams@0.15 decides how many trees are kept, at most as many as the others have."""
    part, held = split(train, seed)
    stop = need("xgboost").callback.EarlyStopping(rounds=30, metric_name="ams@0.15", maximize=True, save_best=True)
    model = xgboost(seed, eval_metric="ams@0.15", callbacks=[stop])
    model.fit(
        part.X,
        part.is_signal.astype(int),
        sample_weight=weights(part, balanced=True),
        eval_set=[(held.X, held.is_signal.astype(int))],
        sample_weight_eval_set=[held.weight],
        verbose=False,
    )

    def score(X: AnyArray) -> Array:
        return np.asarray(model.predict_proba(X)[:, 1], dtype=np.float64)

    facts = {"trees": float(model.get_booster().num_boosted_rounds())}
    return Fitted(score, scan(score(held.X), held.is_signal, held.weight, UTILITY).cut, facts)


def hep_ml(loss: str) -> Arm:
    """hep_ml's gradient boosting with one of its losses, on a tenth of the events."""

    def fit(train: Events, seed: int) -> Fitted:
        losses = importlib.import_module("hep_ml.losses")
        boosting = importlib.import_module("hep_ml.gradientboosting")
        few = _tenth(train, seed)
        part, held = split(few, seed)
        settings = {"max_depth": 6, "learning_rate": 0.1, "subsample": 0.8, "max_features": 0.8, "min_samples_leaf": 20}
        model = boosting.UGradientBoostingClassifier(
            getattr(losses, loss)(), n_estimators=TREES, random_state=seed, **settings
        )
        model.fit(_filled(part.X), part.is_signal.astype(int), sample_weight=weights(part, balanced=True))

        def score(X: AnyArray) -> Array:
            return np.asarray(model.predict_proba(_filled(X))[:, 1], dtype=np.float64)

        return Fitted(score, scan(score(held.X), held.is_signal, held.weight, UTILITY).cut)

    return fit


def few_events(arm: Arm) -> Arm:
    """Another arm on the events of hep_ml's."""
    return lambda train, seed: arm(_tenth(train, seed), seed)


def retrained(train: Events, seed: int) -> Fitted:
    """The paper's first cascade; the best of at most three rounds is kept."""
    learner = need("xgboost").XGBClassifier(n_estimators=TREES, **SHAPE, **SAMPLED)
    model = CascadeClassifier(learner, max_rounds=3, extra_rounds=1, utility=UTILITY, random_state=seed, n_jobs=1)
    return fitted(model.fit(train.X, train.is_signal.astype(int), train.weight, train.process))


def pool(*cascades: bool) -> Arm:
    """A pool of grown and plain members."""

    def fit(train: Events, seed: int) -> Fitted:
        members = [
            (f"member {k}", GrownCascadeClassifier(n_trees=TREES, params=SHAPE, cascade=c))
            for k, c in enumerate(cascades)
        ]
        model = CascadePool(members, utility=UTILITY, random_state=seed, n_jobs=1)
        model.fit(train.X, train.is_signal.astype(int), train.weight, train.process)
        return Fitted(lambda X: np.asarray(model.predict_proba(X)[:, 1]), model.cut_)

    return fit


def _tenth(train: Events, seed: int) -> Events:
    rows = np.random.default_rng(seed).permutation(len(train))
    return scaled_part(train, rows[: rows.size // 10])


def _filled(X: AnyArray) -> AnyArray:
    return np.nan_to_num(X, nan=MISSING)


ARMS: dict[str, Arm] = {
    "XGBoost, balanced": tuned(xgboost, balanced=True),
    "XGBoost, physics weights": tuned(xgboost, balanced=False),
    "LightGBM, balanced": tuned(lightgbm, balanced=True),
    "LightGBM, physics weights": tuned(lightgbm, balanced=False),
    "TunedThresholdClassifierCV": tuned_threshold,
    "XGBoost, ams@0.15 stopping": ams_stopping,
    "hep_ml, log loss": hep_ml("LogLossFunction"),
    "hep_ml, composite loss": hep_ml("CompositeLossFunction"),
    "XGBoost, a tenth of the events": few_events(tuned(xgboost, balanced=True)),
    "net, plain": nets.net(direct=False),
    "net, AMS loss": nets.net(direct=True),
    "plain": plain(),
    "grown": boosted(),
    "ratio 38": fixed_ratio(38),
    "retrained": retrained,
    "decomposed": decomposed(),
    "pool of 4 plain": pool(False, False, False, False),
    "pool of 2 plain, 2 grown": pool(False, False, True, True),
}
SEEDS, FEW = range(3), range(2)
SLOW = ("pool", "net", "hep_ml", "retrained", "Tuned")
PACKAGES = {"hep_ml": "hep_ml", "net": "torch", "LightGBM": "lightgbm"}
BASELINES = {
    "hep_ml, composite loss": "hep_ml, log loss",
    "hep_ml, log loss": "XGBoost, a tenth of the events",
    "net, AMS loss": "net, plain",
    "pool of 2 plain, 2 grown": "pool of 4 plain",
}


def available() -> list[str]:
    """Arms whose package is installed; the others are named."""
    out = []
    for arm in ARMS:
        package = next((p for start, p in PACKAGES.items() if arm.startswith(start)), "fivesigma")
        if importlib.util.find_spec(package) is None:
            print(f"{arm}: skipped, because {package} is not installed")
        else:
            out.append(arm)
    return out


def seeds(arm: str) -> range:
    """Seeds of an arm; slow ones have fewer."""
    return FEW if arm.startswith(SLOW) else SEEDS


def runs(folder: str) -> list[Run]:
    """All runs, seed by seed."""
    source = Source("unseen", folder)
    return [Run(source, __name__, arm, k) for k in SEEDS for arm in available() if k in seeds(arm)]


def results(folder: str, cache: Cache) -> list[dict[str, Any]]:
    """Each peer against plain + tuned cut, and against the same learner without what is special about it."""
    source = Source("unseen", folder)
    pairs = [(arm, "plain") for arm in available() if arm != "plain"]
    pairs += [(arm, base) for arm, base in BASELINES.items() if arm in available()]
    return [compared(Comparison(a, b, tuple(seeds(a))), source, cache) for a, b in pairs]
