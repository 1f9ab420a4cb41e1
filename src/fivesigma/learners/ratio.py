"""The ratio of signal to background as a product: an unweighted classifier times mean weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logit
from threadpoolctl import threadpool_limits

from fivesigma._types import Array, BoolArray
from fivesigma.learners.base import Binding, Model
from fivesigma.learners.bind import bind
from fivesigma.learners.regression import MeanWeight, fit_mean_weight
from fivesigma.learners.sklearn import SklearnModel, seeded

_TINY = 1e-7  # keeps log-odds finite, so that events of which a classifier is certain are still ordered by weight
_LIBRARIES_WITH_BINS = ("xgboost", "lightgbm")


@dataclass(frozen=True)
class RatioModel:
    """R(x) = P(s|x)/P(b|x) x E[w|s,x]/E[w|b,x], trained on one set of events.

    Attributes
    ----------
    classifier : Model
        P(s|x) among unweighted events.
    signal, background : MeanWeight
        E[w|s,x] and E[w|b,x].
    log_balance : float
        log(B/S), the logarithm of the yields of background and signal: what makes the classes weigh the same.
    """

    classifier: Model
    signal: MeanWeight
    background: MeanWeight
    log_balance: float

    def log_ratio(self, X: Any) -> Array:
        """Log R of each row, in units of expected events."""
        p = np.clip(self.classifier.signal_probability(X), _TINY, 1 - _TINY)
        return np.asarray(logit(p)) + self.signal.log_mean(X) - self.background.log_mean(X)

    def signal_probability(self, X: Any) -> Array:
        """P(signal) if both classes had the same yield: R B/S / (1 + R B/S)."""
        return np.asarray(expit(self.log_ratio(X) + self.log_balance))


def fit_ratio(estimator: Any, weight_estimator: Any, binding: Binding, weight: Array) -> RatioModel:
    """Train the classifier and both regressions.

    Parameters
    ----------
    estimator, weight_estimator : classifier and regressor
    binding : Binding
        The events; rows to hold out are not looked at.
    weight : array
        Positive weights of the training rows.
    """
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
    """Train a classifier in which every event counts the same; it need not take weights."""
    if type(estimator).__module__.partition(".")[0] in _LIBRARIES_WITH_BINS:
        return bind(estimator, binding).fit(np.ones(binding.train.size))
    with threadpool_limits(limits=binding.n_threads, user_api="openmp"):
        model = seeded(estimator, binding.seed, binding.n_threads)
        return SklearnModel(model.fit(binding.rows(binding.train), binding.target[binding.train]))
