"""Ways to point an unweighted classifier at the boundary of a cascade's round, by cross-validation within set t.

``python -m benchmarks.studies.decomposed_focus events.parquet folder [variant ...]`` trains every variant on three
folds of
set t of a file with the columns of the 2014 challenge, for several seeds, keeps the scores in the folder, resumes where
it was stopped, and prints the gain over the decomposed learner as it is. Set b is not read. The derivations are in
docs/validation/decomposed.md; all variants are XGBoost with the same number of trees.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit
from sklearn.model_selection import StratifiedKFold

from benchmarks.studies.protocol import (
    TOTALS,
    UTILITY,
    entering_steps,
    mean_significance,
    paired_gain,
    ranks,
    read_set,
    scaled_part,
)
from fivesigma import scan
from fivesigma._tools.extras import need
from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.datasets import Events
from fivesigma.yields import balanced_class_weights, learner_weights, rescale

SEEDS = (0, 1)
FLOOR = 0.2  # least factor of an event far from the boundary
TREES: dict[str, Any] = {"n_estimators": 300, "max_depth": 6, "learning_rate": 0.05}
DRAWS: dict[str, Any] = {"subsample": 0.8, "colsample_bytree": 0.8, "n_jobs": 1}


class Split(NamedTuple):
    """Training events, events to score, and what a first, cross-fitted fit says of them."""

    X: AnyArray
    signal: BoolArray
    weight: Array
    X_test: AnyArray
    means: tuple[Array, Array]  # E[w | s, x] and E[w | b, x] of the training events
    log_means: Array  # the logarithm of their ratio for the events to score
    margin: Array  # cross-fitted log R of the training events, less the round's boundary
    costs: tuple[float, float]  # (u, f*(u)) at the plateau cut of the cross-fitted R
    seed: int


def fit_margin(X: AnyArray, signal: BoolArray, weight: Array | None, seed: int) -> Callable[[AnyArray], Array]:
    """Train a classifier and return its log-odds."""
    model = need("xgboost").XGBClassifier(**TREES, **DRAWS, random_state=seed).fit(X, signal, sample_weight=weight)
    return lambda table: np.asarray(model.predict(table, output_margin=True), dtype=np.float64)


def fit_mean(
    X: AnyArray, target: Array, seed: int, weight: Array | None = None, **shape: Any
) -> Callable[[AnyArray], Array]:
    """Regress a positive quantity and return its logarithm."""
    settings = {"n_estimators": 100, "max_depth": 4, "learning_rate": 0.1} | shape
    scale = float(target.mean())
    model = need("xgboost").XGBRegressor(objective="reg:gamma", **settings, **DRAWS, random_state=seed)
    model.fit(X, target / scale, sample_weight=weight)
    return lambda table: np.log(scale * np.asarray(model.predict(table), dtype=np.float64))


def fit_ratio(
    X: AnyArray, signal: BoolArray, weight: Array, seed: int, **shape: Any
) -> tuple[Callable[[AnyArray], Array], Callable[[AnyArray], Array]]:
    """Fit log E[w | s, x] and log E[w | b, x]."""
    up, down = (fit_mean(X[c], weight[c], seed, **shape) for c in (signal, ~signal))
    return up, down


def prepare(events: Events, train: IntArray, test: IntArray, seed: int) -> Split:
    """Fit the weight models, and the first round on halves of the training events."""
    X, signal = events.X[train], events.is_signal[train]
    weight = rescale(events.weight[train], signal, TOTALS)
    up, down = fit_ratio(X, signal, weight, seed)
    log_ratio = np.empty(signal.size)
    for fit, rest in StratifiedKFold(2, shuffle=True, random_state=seed).split(X, signal):
        log_ratio[rest] = fit_margin(X[fit], signal[fit], None, seed)(X[rest])
    log_ratio += up(X) - down(X)
    best = scan(log_ratio, signal, weight, UTILITY)
    u = float(UTILITY.u(best.s, best.b))
    costs = tuple(float(v) for v in UTILITY.weights_at(u))
    boundary = np.log(costs[1] / costs[0])
    X_test = events.X[test]
    print(f"  u {u:.4f}, boundary at log R = {boundary:.2f}, best cut at {best.cut:.2f}", flush=True)
    return Split(
        X,
        signal,
        weight,
        X_test,
        (np.exp(up(X)), np.exp(down(X))),
        up(X_test) - down(X_test),
        log_ratio - boundary,
        (costs[0], costs[1]),
        seed,
    )


def plain(s: Split) -> Array:
    """One weighted fit with balanced classes: the baseline."""
    return fit_margin(s.X, s.signal, _balanced(s.weight, s.signal), s.seed)(s.X_test)


def smoothed(s: Split) -> Array:
    """One fit with the regressed weights in place of the true ones."""
    return fit_margin(s.X, s.signal, _balanced(np.where(s.signal, *s.means), s.signal), s.seed)(s.X_test)


def decomposed(s: Split) -> Array:
    """The decomposed learner as it is."""
    return _event_factors(s, np.ones(s.signal.size))


def deep_weights(s: Split) -> Array:
    """Three times the trees, and deeper ones, for the weights."""
    up, down = fit_ratio(s.X, s.signal, s.weight, s.seed, n_estimators=300, max_depth=6, learning_rate=0.05)
    return fit_margin(s.X, s.signal, None, s.seed)(s.X_test) + up(s.X_test) - down(s.X_test)


def unweighted(s: Split) -> Array:
    """The classifier alone, without a model of the weights."""
    return decomposed(s) - s.log_means


def class_factors(s: Split) -> Array:
    """Class factors at which the boundary lies at even odds for the median event near it."""
    near = np.abs(s.margin) < 0.5
    theta = np.median(_threshold(s)[near])
    return _tilted(s, np.full(s.signal.size, theta)) + s.log_means


def tilt(s: Split) -> Array:
    """Factors by class and event at which every event's boundary lies at even odds."""
    return _tilted(s, _threshold(s))


def focus(width: float, floor: float = FLOOR) -> Callable[[Split], Array]:
    """Event factors that are large near the boundary."""
    return lambda s: _event_factors(s, _near(s.margin, width, floor))


def shuffled_focus(s: Split) -> Array:
    """The same event factors, dealt out at random: a check that the place matters and not the spread."""
    return _event_factors(s, np.random.default_rng(s.seed).permutation(_near(s.margin, 1.0)))


def weighted_focus(s: Split) -> Array:
    """The same event factors for the weighted fit."""
    weight = _balanced(s.weight, s.signal) * _near(s.margin, 1.0)
    return fit_margin(s.X, s.signal, weight / weight.mean(), s.seed)(s.X_test)


def focus_tilt(s: Split) -> Array:
    """Event factors and, by class, factors at which every event's boundary lies at even odds."""
    theta = _threshold(s)
    weight = np.where(s.signal, 1 - theta, theta) * _near(s.margin, 1.0)
    return fit_margin(s.X, s.signal, weight / weight.mean(), s.seed)(s.X_test)


def focus_costs(s: Split) -> Array:
    """Event factors of the local regret: the costs of an event near the boundary."""
    costs = s.costs[0] * s.means[0] + s.costs[1] * s.means[1]
    return _event_factors(s, _near(s.margin, 2.0) * costs)


def temper(alpha: float) -> Callable[[Split], Array]:
    """Learner weights w^alpha; the regressions take the rest, E[w | x] / E[w^alpha | x]."""

    def score(s: Split) -> Array:
        part = s.weight**alpha
        total = fit_margin(s.X, s.signal, _balanced(part, s.signal), s.seed)(s.X_test)
        for sign, c in ((1, s.signal), (-1, ~s.signal)):
            rest = s.weight[c] ** (1 - alpha)
            total += sign * fit_mean(s.X[c], rest, s.seed, part[c] / part[c].mean())(s.X_test)
        return total

    return score


def grown_focus(warmup: int, width: float) -> Callable[[Split], Array]:
    """A tighter loss: event factors that follow the booster's own margin, tree by tree."""

    def score(s: Split) -> Array:
        xgb = need("xgboost")
        params: dict[str, Any] = {
            "max_depth": 6,
            "eta": 0.05,
            "subsample": 0.8,
            "colsample_bytree": 0.8,
            "nthread": 1,
            "seed": s.seed,
        }
        params |= {"objective": "binary:logistic", "base_score": float(s.signal.mean())}
        matrix = xgb.QuantileDMatrix(s.X, label=s.signal)
        booster = xgb.Booster(params, [matrix])
        offset = np.log(s.means[0] / s.means[1]) + np.log(s.costs[0] / s.costs[1])
        for t in range(TREES["n_estimators"]):
            if t >= warmup:
                margin = booster.predict(matrix, output_margin=True) + offset
                factor = _near(margin, width)
                matrix.set_weight(factor / factor.mean())
            booster.update(matrix, t)
        test = xgb.QuantileDMatrix(s.X_test, ref=matrix)
        return np.asarray(booster.predict(test, output_margin=True), dtype=np.float64) + s.log_means

    return score


VARIANTS: dict[str, Callable[[Split], Array]] = {
    "plain": plain,
    "decomposed": decomposed,
    "unweighted": unweighted,
    "deep_weights": deep_weights,
    "smoothed": smoothed,
    "class_factors": class_factors,
    "tilt": tilt,
    "focus_1": focus(1.0),
    "focus_2": focus(2.0),
    "focus_0.5": focus(0.5),
    "focus_1_low": focus(1.0, 0.05),
    "focus_tilt": focus_tilt,
    "weighted_focus": weighted_focus,
    "shuffled_focus": shuffled_focus,
    "focus_costs": focus_costs,
    "temper_0.5": temper(0.5),
    "grown_focus": grown_focus(150, 2.0),
}


def _threshold(s: Split) -> Array:
    """theta(x), the share of signal among unweighted events at which the costs of both errors are equal."""
    return np.asarray(expit(np.log(s.costs[1] * s.means[1]) - np.log(s.costs[0] * s.means[0])))


def _tilted(s: Split, theta: Array) -> Array:
    """Log R, up to a constant, of a fit with factors 1 - theta for signal and theta for background."""
    weight = np.where(s.signal, 1 - theta, theta)
    return fit_margin(s.X, s.signal, weight / weight.mean(), s.seed)(s.X_test)


def _event_factors(s: Split, factor: Array) -> Array:
    """Log R of a fit with factors that depend on x alone, which leave the odds of an event as they are."""
    return fit_margin(s.X, s.signal, factor / factor.mean(), s.seed)(s.X_test) + s.log_means


def _near(margin: Array, width: float, floor: float = FLOOR) -> Array:
    """Event factors: the logistic density about the boundary, one at its top, above a floor."""
    p = expit(margin / width)
    return np.asarray(floor + (1 - floor) * 4 * p * (1 - p))


def _balanced(weight: Array, signal: BoolArray) -> Array:
    return learner_weights(weight, signal, balanced_class_weights(weight, signal))


def main(path: str, folder: str, chosen: list[str]) -> None:
    """Train what is missing, then print the table."""
    events, out = read_set(path, "t"), Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    names = chosen or list(VARIANTS)
    for seed in SEEDS:
        missing = [name for name in names if not (out / f"{name}-{seed}.npy").exists()]
        if not missing:
            continue
        scores = {name: np.empty(len(events)) for name in missing}
        folds = StratifiedKFold(3, shuffle=True, random_state=100 + seed)
        for train, test in folds.split(events.X, events.process):
            split = prepare(events, train, test, seed)
            for name in missing:
                raw = VARIANTS[name](split)
                # Folds are joined by the share of events below a score.
                scores[name][test] = ranks(raw)
                print(f"  {name} {mean_significance(raw, scaled_part(events, test)):.4f}", flush=True)
        for name in missing:
            np.save(out / f"{name}-{seed}.npy", scores[name])
    have = [name for name in VARIANTS if all((out / f"{name}-{seed}.npy").exists() for seed in SEEDS)]
    scores_of = {name: [np.load(out / f"{name}-{seed}.npy") for seed in SEEDS] for name in have}
    for name in have:
        z = np.mean([mean_significance(score, events) for score in scores_of[name]])
        gain, error = paired_gain(scores_of[name], scores_of["decomposed"], events, entering_steps)
        print(f"{name:14} {z:.4f}   against decomposed {gain:+.4f} ± {error:.4f}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
