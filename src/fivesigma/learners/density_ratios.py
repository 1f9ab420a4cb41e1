"""Ratios of densities from classifiers: two weighted samples are told apart, and the odds are the ratio.

Both samples weigh the same in training, whatever they sum to; the ratio of their sums is a prior that is added to the
log-odds afterwards. Rare processes and small differences are then learned as well as any.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import brentq
from scipy.special import expit, logit
from sklearn.base import is_classifier
from sklearn.utils import _safe_indexing

from fivesigma._tools.extras import need
from fivesigma._tools.threads import limit_threads, threads_for
from fivesigma._types import AnyArray, Array, BoolArray
from fivesigma.errors import InputError
from fivesigma.learners.libraries import bind_learner, library_of
from fivesigma.learners.protocols import Binding, Model
from fivesigma.learners.sklearn import SklearnModel, seeded
from fivesigma.yields import balanced_class_weights, learner_weights

SHARE, OPPOSITE, ONE_SIDED = "share", "opposite", "one-sided"
_CONSTANT = 1e-9  # relative width below which the weights of a class are one number
TINY = 1e-7  # keeps log-odds finite, so that events of which a classifier is certain are still ordered by weight


class ContrastTrainer:
    """Trains a classifier of one sample against another, each with the same sum of weights, on one table.

    XGBoost bins the table once, and a row that both samples have is one row with a label between 0 and 1; other
    classifiers see such a row twice.
    """

    def __init__(self, estimator: Any, X: Any, *, negative: str, seed: int, n_threads: int) -> None:
        self._estimator, self._X, self._negative = estimator, X, negative
        self._options = seed, n_threads
        library = library_of(estimator)
        self._soft: Any = None
        if library is not None and hasattr(library.trainer, "set_target") and library.can_bin_once(estimator):
            self._soft = library.trainer(estimator, self._bind(X, np.zeros(X.shape[0])))

    def _bind(self, X: Any, target: AnyArray) -> Binding:
        rows = np.arange(target.size)
        return Binding(X, target, rows, rows[:1], *self._options)

    def fit(self, first: Array, second: Array) -> Model:
        """Train on the weights of the rows in the first sample and in the second."""
        rows = [np.flatnonzero(weight) for weight in (first, second)]
        member = np.repeat([True, False], [rows[0].size, rows[1].size])
        weight = np.concatenate([first[rows[0]], second[rows[1]]])
        factors = balanced_class_weights(weight, member, self._negative)
        weight = learner_weights(weight, member, factors, self._negative)
        if self._soft is None:
            table = _safe_indexing(self._X, np.concatenate(rows))
            return bind_learner(self._estimator, self._bind(table, member.astype(np.intp))).fit(weight)
        one, both = np.zeros(first.size), np.zeros(first.size)
        one[rows[0]] = weight[member]
        both[rows[1]] = weight[~member]
        both += one
        self._soft.set_target(np.divide(one, both, out=np.zeros_like(one), where=both > 0))
        model: Model = self._soft.fit(both)
        return model


def fit_log_prior(probability: Array, first: BoolArray, weight: Array) -> float:
    """Log of the prior odds at which the expected sum of the first sample is what it is.

    A classifier that is regularised is timid, and with rare heavy events it is so on one side. Events that it was not
    trained on say by how much.
    """
    margin, positive = log_odds(probability, 0.0), np.maximum(weight, 0.0)
    total = positive[first].sum()
    return float(brentq(lambda prior: positive @ expit(margin + prior) - total, -60.0, 60.0))


def log_odds(probability: Array, log_prior: float) -> Array:
    """Log of the ratio of two densities, each with its own sum, from the probability at equal sums."""
    return np.asarray(logit(np.clip(probability, TINY, 1 - TINY))) + log_prior


def relative_shift(kind: str, size: float, odds: Array) -> Array:
    """Shift over background of one systematic, at one standard deviation.

    `kind` is what was told apart, and `odds` are the log of its ratio: with "share" the events that are scaled by
    `size` from the others, with "opposite" the events up from those down, of which half the difference is the shift,
    with "one-sided" the events up from the nominal ones.

    Examples
    --------
    >>> import numpy as np
    >>> relative_shift("share", 0.1, np.log([1.0, 3.0])).round(3).tolist()
    [0.05, 0.075]
    >>> relative_shift("opposite", 1.0, np.log([1.1 / 0.9])).round(3).tolist()
    [0.1]
    """
    if kind == SHARE:
        return np.asarray(size * expit(odds))
    return np.tanh(odds / 2) if kind == OPPOSITE else np.expm1(odds)


def stack_tables(tables: list[Any]) -> Any:
    """Tables of the same type and columns, one below the other."""
    if isinstance(tables[0], np.ndarray):
        return np.concatenate(tables)
    if sparse.issparse(tables[0]):
        return sparse.vstack(tables, format="csr")
    if hasattr(tables[0], "iloc"):
        return need("pandas").concat(tables, ignore_index=True)
    return need("polars").concat(tables)


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
