"""Ratios of densities from classifiers: two weighted samples are told apart, and the odds are the ratio.

Both samples weigh the same in training, whatever they sum to; the ratio of their sums is a prior that is added to the
log-odds afterwards. Rare processes and small differences are then learned as well as any.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import brentq
from scipy.special import expit, logit
from sklearn.utils import _safe_indexing

from fivesigma._tools.extras import need
from fivesigma._types import AnyArray, Array, BoolArray
from fivesigma.learners.decomposition import TINY
from fivesigma.learners.libraries import bind_learner, library_of
from fivesigma.learners.protocols import Binding, Model
from fivesigma.yields import balanced_class_weights, learner_weights

SHARE, OPPOSITE, ONE_SIDED = "share", "opposite", "one-sided"


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

    Parameters
    ----------
    kind : {"share", "opposite", "one-sided"}
        What was told apart: the events that are scaled by `size` from the others; the events up from those down, of
        which half the difference is the shift; or the events up from the nominal ones.
    size : float
        Relative size of a normalisation.
    odds : array
        Log of the ratio of the two.

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
