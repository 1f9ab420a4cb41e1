"""The ratio of signal to background as a product: an unweighted classifier times the mean weights of both classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logit
from sklearn.base import is_classifier

from fivesigma._tools.threads import limit_threads, threads_for
from fivesigma._types import Array, BoolArray
from fivesigma.errors import InputError
from fivesigma.learners.libraries import bind_learner, library_of
from fivesigma.learners.protocols import Binding, Model
from fivesigma.learners.sklearn import SklearnModel, seeded

_CONSTANT = 1e-9  # relative width below which the weights of a class are one number
TINY = 1e-7  # keeps log-odds finite, so that events of which a classifier is certain are still ordered by weight


@dataclass(frozen=True)
class MeanWeight:
    """E[w | x] of one class."""

    regressor: Any  # predicts w / scale; None if all weights are the same
    scale: float  # mean weight
    bounds: tuple[float, float]  # of the weights that were seen: a mean lies between them, so its logarithm is finite

    def log_mean(self, X: Any) -> Array:
        """Logarithm of the mean weight of each row."""
        if self.regressor is None:
            return np.full(X.shape[0], np.log(self.scale))
        with limit_threads(threads_for(-1, X.shape[0] * X.shape[1])):
            mean = self.scale * np.asarray(self.regressor.predict(X), dtype=np.float64).reshape(-1)
        return np.asarray(np.log(np.clip(mean, *self.bounds)))


def check_regressor(estimator: Any) -> None:
    """Refuse what cannot regress weights."""
    if not all(hasattr(estimator, name) for name in ("fit", "predict", "get_params")) or is_classifier(estimator):
        raise InputError(f"weight_estimator must be a scikit-learn regressor, got {estimator!r}")


def fit_mean_weight(estimator: Any, X: Any, weight: Array, seed: int, n_threads: int) -> MeanWeight:
    """Regress positive weights on features."""
    bounds = (float(weight.min()), float(weight.max()))
    scale = float(np.clip(weight.mean(), *bounds))  # rounding moves the mean of equal weights off them
    if bounds[1] - bounds[0] <= _CONSTANT * scale:
        return MeanWeight(None, scale, bounds)
    regressor = seeded(estimator, seed, n_threads)
    if regressor.get_params().get("n_jobs", n_threads) is None:  # to boosters None means all cores
        regressor.set_params(n_jobs=n_threads)
    with limit_threads(n_threads):
        regressor.fit(X, weight / scale)
    return MeanWeight(regressor, scale, bounds)


@dataclass(frozen=True)
class RatioModel:
    """R(x) = P(s|x)/P(b|x) x E[w|s,x]/E[w|b,x], trained on one set of events."""

    classifier: Model  # P(s|x) among unweighted events
    signal: MeanWeight
    background: MeanWeight
    log_balance: float  # log(B/S), which makes the classes weigh the same

    def log_ratio(self, X: Any) -> Array:
        """Log R of each row, in units of expected events."""
        p = np.clip(self.classifier.signal_probability(X), TINY, 1 - TINY)
        return np.asarray(logit(p)) + self.signal.log_mean(X) - self.background.log_mean(X)

    def signal_probability(self, X: Any) -> Array:
        """P(signal) if both classes had the same yield: R B/S / (1 + R B/S)."""
        return np.asarray(expit(self.log_ratio(X) + self.log_balance))

    def gains(self, n_features: int) -> Any:
        """Importances of the features for the classifier; None if it has none."""
        return self.classifier.gains(n_features) if hasattr(self.classifier, "gains") else None


def fit_ratio_model(estimator: Any, weight_estimator: Any, binding: Binding, weight: Array) -> RatioModel:
    """Train the classifier and both regressions."""
    signal: BoolArray = binding.target[binding.train] == 1
    means = [
        fit_mean_weight(
            weight_estimator, binding.rows(binding.train[c]), weight[c], binding.seed + k, binding.n_threads
        )
        for k, c in enumerate((signal, ~signal))
    ]
    log_balance = float(np.log(weight[~signal].sum() / weight[signal].sum()))
    return RatioModel(_fit_unweighted(estimator, binding), means[0], means[1], log_balance)


def _fit_unweighted(estimator: Any, binding: Binding) -> Model:
    """Train a classifier for which every event has the same weight; it need not take weights."""
    if library_of(estimator) is not None:
        return bind_learner(estimator, binding).fit(np.ones(binding.train.size))
    with limit_threads(binding.n_threads):
        model = seeded(estimator, binding.seed, binding.n_threads)
        return SklearnModel(model.fit(binding.rows(binding.train), binding.target[binding.train]))
