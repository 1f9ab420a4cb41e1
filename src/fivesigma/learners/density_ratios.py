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

from fivesigma._tools.extras import need
from fivesigma._types import Array, BoolArray
from fivesigma.learners.decomposition import TINY
from fivesigma.learners.libraries import bind_learner
from fivesigma.learners.protocols import Binding, Model
from fivesigma.yields import balanced_class_weights, learner_weights

SHARE, OPPOSITE, ONE_SIDED = "share", "opposite", "one-sided"


def fit_contrast(
    estimator: Any, X: Any, first: BoolArray, weight: Array, *, negative: str, seed: int, n_threads: int
) -> Model:
    """Train a classifier of the first sample against the second, each with the same sum of weights.

    Parameters
    ----------
    estimator : classifier
        Cloned.
    X : table
        Events of both samples.
    first : bool array
        Which of them belong to the first.
    weight : array
        Physics weights.
    negative : {"error", "zero", "abs"}
        What the classifier sees of negative weights.
    seed, n_threads : int
        Of the classifier.
    """
    factors = balanced_class_weights(weight, first, negative)
    rows = np.arange(first.size)
    binding = Binding(X, first.astype(np.intp), rows, rows[:1], seed, n_threads)
    return bind_learner(estimator, binding).fit(learner_weights(weight, first, factors, negative))


def fit_log_prior(probability: Array, first: BoolArray, weight: Array) -> float:
    """Log of the prior odds at which the expected sum of the first sample is what it is.

    A classifier that is regularised is timid, and with rare heavy events it is so on one side. Events that it was not
    trained on say by how much.

    Parameters
    ----------
    probability : array
        Of the first sample at equal sums, of events of both.
    first : bool array
        Which of them belong to the first.
    weight : array
        Physics weights.
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
