"""Significance as a scorer for scikit-learn's cross-validation."""

from __future__ import annotations

from typing import Any

import numpy as np
import sklearn.metrics

from fivesigma.errors import InputError
from fivesigma.significance import AMS2, Utility, resolve_utility
from fivesigma.yields import check_weights, rescale, signal_and_background, significance_or_zero, split_labels


def make_scorer(
    utility: str | Utility = AMS2(), *, yields: tuple[float, float] | None = None, pos_label: Any = None
) -> Any:
    """Make a scorer of the significance of what a classifier's `predict` selects.

    Parameters
    ----------
    utility : str or Utility, default=AMS2()
        What is measured.
    yields : (float, float), optional
        Expected signal and background events that the weights are scaled to, class by class. A fold needs it: its
        weights sum to a part of the yields, and significance is not free of scale.
    pos_label : label, optional
        The signal; see `fivesigma.yields.split_labels`.

    Returns
    -------
    scorer
        Called as ``scorer(model, X, y, sample_weight=w)``. A selection that keeps no background, or nothing, is not
        valid and has the score 0, so that scikit-learn's ``TunedThresholdClassifierCV`` passes by it. In
        cross-validation, weights reach it by metadata routing: ``scorer.set_score_request(sample_weight=True)``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fivesigma import make_scorer
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 1, 0, 1])
    >>> scorer = make_scorer("ams3", yields=(20.0, 400.0))
    >>> model = LogisticRegression().fit(X, y)
    >>> round(scorer(model, X, y, sample_weight=np.ones(4)), 3)
    0.707
    """
    resolved = resolve_utility(utility)
    return sklearn.metrics.make_scorer(_significance, utility=resolved, yields=yields, pos_label=pos_label)


def _significance(
    y_true: Any,
    y_pred: Any,
    *,
    sample_weight: Any = None,
    utility: Utility,
    yields: tuple[float, float] | None,
    pos_label: Any,
) -> float:
    if sample_weight is None:
        raise InputError(
            "significance needs sample_weight: pass it to the scorer, or in cross-validation route it with "
            "scorer.set_score_request(sample_weight=True)"
        )
    signal, classes = split_labels(y_true, pos_label)
    weight = check_weights(sample_weight, signal.size)
    if yields is not None:
        weight = rescale(weight, signal, yields)
    selected = np.asarray(y_pred) == classes[1]
    return significance_or_zero(utility, *signal_and_background(weight, signal, selected))
