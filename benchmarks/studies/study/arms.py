"""The named settings that are compared: each trains on events and returns how it scores others, and its own cut.

An arm is paired with a baseline of the same trees, splits and events. The class ratio k is the signal's class weight
over the background's: 594 balances the classes of the challenge, 1 leaves the physics weights alone, and a cascade at u
has k = u / f*(u), about 2/u.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from benchmarks.studies.protocol import UTILITY, scaled_part
from benchmarks.studies.study.runs import Fitted
from fivesigma import AMS3, DecomposedClassifier, GaussianBackground, GrownCascadeClassifier, OnOff, scan
from fivesigma._tools.extras import need
from fivesigma._types import AnyArray, Array
from fivesigma.challenge import B_REG
from fivesigma.datasets import Events
from fivesigma.significance import Utility
from fivesigma.yields import learner_weights

Arm = Callable[[Events, int], Fitted]

TREES = 100
SHAPE: dict[str, Any] = {"learning_rate": 0.1, "max_depth": 6}  # rows and columns are sampled at 0.8 by default


def fitted(model: Any) -> Fitted:
    """An estimator that was fitted, with the u of its last rounds if it is a cascade."""
    last = [r.u for r in model.history_[-20:] if r.u is not None]
    return Fitted(
        lambda X: np.asarray(model.predict_proba(X)[:, 1]), model.cut_, {"u": float(np.mean(last))} if last else {}
    )


def boosted(n_events: int | None = None, **settings: Any) -> Arm:
    """A grown cascade, or the plain model with ``cascade=False``, on the first `n_events` or on all."""

    def fit(train: Events, seed: int) -> Fitted:
        events = train if n_events is None else scaled_part(train, _some(train, n_events, seed))
        return fitted(_grown(settings, seed).fit(events.X, events.is_signal.astype(int), events.weight, events.process))

    return fit


def plain(**settings: Any) -> Arm:
    """Class-balanced weights throughout."""
    return boosted(cascade=False, **settings)


def fixed_ratio(k: float, **settings: Any) -> Arm:
    """A fixed class ratio without a cascade: u stays where u / f*(u) is k."""
    u = float(brentq(lambda v: np.divide(*UTILITY.weights_at(v)) - k, 1e-4, 3.0))
    n_trees = settings.get("n_trees", TREES)
    return boosted(u_init=u, warmup=n_trees, **settings)


def fixed_at_end(train: Events, seed: int) -> Fitted:
    """The end without the path: u stays at the value at which a grown cascade on the same events ends."""
    u = boosted()(train, seed).facts["u"]
    return boosted(u_init=u, warmup=TREES)(train, seed)


def path_average(**settings: Any) -> Arm:
    """Mean of the margins after 60, 70, ..., 100 % of the trees."""
    stages = [TREES * share // 10 for share in range(6, 11)]

    def fit(train: Events, seed: int) -> Fitted:
        model = _grown(settings, seed).fit(train.X, train.is_signal.astype(int), train.weight, train.process)
        booster = model.models_[0].booster

        def score(X: AnyArray) -> Array:
            options = {"predict_type": "margin", "validate_features": False}
            parts = [booster.inplace_predict(X, iteration_range=(0, n), **options) for n in stages]
            return np.asarray(expit(np.mean(parts, axis=0)), dtype=np.float64)

        return Fitted(score, model.cut_)

    return fit


def tight_loss(width: float, floor: float = 0.2, warmup: int = 50) -> Arm:
    """A cascade whose trees see events by their distance to the boundary, as the gradient of a tighter loss would.

    u stays at the value at which a grown cascade ends, so that the boundary is at margin zero; from `warmup` trees on,
    learner weights have the factor of the logistic density of the booster's own margin, above a floor.
    """

    def fit(train: Events, seed: int) -> Fitted:
        xgboost = need("xgboost")
        u = boosted()(train, seed).facts["u"]
        rows = np.random.default_rng(seed).permutation(len(train))
        held, kept = scaled_part(train, rows[: rows.size // 4]), scaled_part(train, rows[rows.size // 4 :])
        signal, background = UTILITY.weights_at(u)
        base = learner_weights(kept.weight, kept.is_signal, (float(signal), float(background)))
        matrix = xgboost.QuantileDMatrix(kept.X, label=kept.is_signal, weight=base)
        more = {"subsample": 0.8, "colsample_bytree": 0.8, "nthread": 1, "seed": seed, "base_score": 0.5}
        booster = xgboost.Booster({**SHAPE, **more, "objective": "binary:logistic"}, [matrix])
        for t in range(TREES):
            if t >= warmup:
                p = expit(booster.predict(matrix, output_margin=True) / width)
                weight = base * (floor + (1 - floor) * 4 * p * (1 - p))
                matrix.set_weight(weight / weight.mean())
            booster.update(matrix, t)

        def score(X: AnyArray) -> Array:
            return np.asarray(booster.inplace_predict(X, validate_features=False), dtype=np.float64)

        return Fitted(score, scan(score(held.X), held.is_signal, held.weight, UTILITY).cut)

    return fit


def decomposed(sampled: float = 0.8, n_trees: int = TREES, **shape: Any) -> Arm:
    """The decomposed learner with the same trees."""

    def fit(train: Events, seed: int) -> Fitted:
        learner = need("xgboost").XGBClassifier(
            n_estimators=n_trees, subsample=sampled, colsample_bytree=sampled, **(SHAPE | shape)
        )
        model = DecomposedClassifier(learner, b_reg=B_REG, random_state=seed, n_jobs=1)
        return fitted(model.fit(train.X, train.is_signal.astype(int), train.weight, train.process))

    return fit


def _grown(settings: dict[str, Any], seed: int) -> GrownCascadeClassifier:
    given = dict(settings)
    params = SHAPE | given.pop("params", {})
    utility: Utility = given.pop("utility", UTILITY)
    n_trees = given.pop("n_trees", TREES)
    given.setdefault("update_every", 1)  # as in the paper, unless a setting is about that
    return GrownCascadeClassifier(n_trees=n_trees, params=params, utility=utility, random_state=seed, n_jobs=1, **given)


def _some(events: Events, n: int, seed: int) -> Any:
    """Rows of a random part."""
    return np.random.default_rng(seed).permutation(len(events))[:n]


WHOLE = {"subsample": 1.0, "colsample_bytree": 1.0}
SHALLOW, DEEP = {"max_depth": 3}, {"max_depth": 9}
LONGER = (60, 200)
HEAVY = {"min_child_weight": 20}  # leaves of at least so much: less variance
SYSTEMATIC = GaussianBackground(sigma=50.0, b_reg=B_REG)
CONTROL = OnOff(tau=1.0, b_reg=B_REG)
CUBIC = AMS3(b_reg=B_REG)

ARMS: dict[str, Arm] = {
    "plain": plain(),
    "grown": boosted(),
    # the ratio that the classes have, without a cascade
    "ratio 150": fixed_ratio(150),
    "ratio 38": fixed_ratio(38),
    "ratio 10": fixed_ratio(10),
    "ratio 1": fixed_ratio(1),
    # the path or its end
    "u fixed at end": fixed_at_end,
    # where u comes from; cross-fitting averages four boosters, and so does its baseline
    "u from train": boosted(update="train"),
    "plain, 4 folds": plain(cv=4),
    "u cross-fit": boosted(update="cross-fit"),
    "u cross-fit, smoothed": boosted(update="cross-fit", update_cut="plateau", damping=0.9),
    # how u follows the yields
    "every 5": boosted(update_every=5),
    "every 25": boosted(update_every=25),
    "damping 0.5": boosted(damping=0.5),
    "damping 0.9": boosted(damping=0.9),
    "warm-up 25": boosted(warmup=25),
    "warm-up 50": boosted(warmup=50),
    "plateau cut": boosted(update_cut="plateau"),
    # the cut of the final selection
    "cut at zero": boosted(cut="zero"),
    "plain, smooth cut": plain(cut="smooth"),
    "grown, smooth cut": boosted(cut="smooth"),
    # capacity
    "plain, 30 trees": plain(n_trees=30),
    "grown, 30 trees": boosted(n_trees=30),
    "ratio 38, 30 trees": fixed_ratio(38, n_trees=30),
    "plain, depth 3": plain(params=SHALLOW),
    "grown, depth 3": boosted(params=SHALLOW),
    "plain, depth 9": plain(params=DEEP),
    "grown, depth 9": boosted(params=DEEP),
    "plain, heavy leaves": plain(params=HEAVY),
    "grown, heavy leaves": boosted(params=HEAVY),
    "plain, eta 0.3": plain(params={"learning_rate": 0.3}),
    "grown, eta 0.3": boosted(params={"learning_rate": 0.3}),
    **{f"plain, {n} trees": plain(n_trees=n) for n in LONGER},
    **{f"grown, {n} trees": boosted(n_trees=n) for n in LONGER},
    "plain, early stopping": plain(n_trees=200, early_stopping=30),
    "grown, early stopping": boosted(n_trees=200, early_stopping=30),
    # training events
    "plain, 10,000 events": plain(n_events=10_000),
    "grown, 10,000 events": boosted(n_events=10_000),
    "plain, 25,000 events": plain(n_events=25_000),
    "grown, 25,000 events": boosted(n_events=25_000),
    # utility
    "grown, AMS3": boosted(utility=CUBIC),
    "grown, OnOff": boosted(utility=CONTROL),
    "grown, Gaussian": boosted(utility=SYSTEMATIC),
    # remedies
    "plain, path average": path_average(cascade=False),
    "grown, path average": path_average(),
    "tight loss": tight_loss(1.0),
    # the decomposed learner, with and without sampling of rows and columns
    "decomposed": decomposed(),
    "plain, unsampled": plain(params=WHOLE),
    "grown, unsampled": boosted(params=WHOLE),
    "decomposed, unsampled": decomposed(1.0),
}
