"""The mean weight of events given their features: a regression of a positive quantity, for one class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from threadpoolctl import threadpool_limits

from fivesigma._extras import installed, need
from fivesigma._types import Array
from fivesigma.errors import InputError
from fivesigma.learners.sklearn import seeded

_CONSTANT = 1e-9  # relative width below which the weights of a class are one number


@dataclass(frozen=True)
class MeanWeight:
    """E[w | x] of one class.

    Attributes
    ----------
    regressor : fitted regressor or None
        Predicts w / scale; None if all weights are the same.
    scale : float
        Mean weight.
    bounds : (float, float)
        Least and largest weight that was seen. A mean lies between them, whatever a regressor says, so its logarithm
        is finite.
    """

    regressor: Any
    scale: float
    bounds: tuple[float, float]

    def log_mean(self, X: Any) -> Array:
        """Logarithm of the mean weight of each row."""
        if self.regressor is None:
            return np.full(X.shape[0], np.log(self.scale))
        mean = self.scale * np.asarray(self.regressor.predict(X), dtype=np.float64).reshape(-1)
        return np.asarray(np.log(np.clip(mean, *self.bounds)))


def default_regressor() -> Any:
    """Return the best regressor with gamma loss that is installed: XGBoost, LightGBM, else scikit-learn's boosting."""
    if installed("xgboost"):
        return need("xgboost").XGBRegressor(objective="reg:gamma", n_estimators=100, learning_rate=0.1, max_depth=4)
    if installed("lightgbm"):
        return need("lightgbm").LGBMRegressor(objective="gamma", n_estimators=100, num_leaves=15, verbosity=-1)
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(loss="gamma", max_iter=100, max_leaf_nodes=15, early_stopping=False)


def check_regressor(estimator: Any) -> None:
    """Refuse what cannot regress weights."""
    if not all(hasattr(estimator, name) for name in ("fit", "predict", "get_params")) or is_classifier(estimator):
        raise InputError(f"weight_estimator must be a scikit-learn regressor, got {estimator!r}")


def fit_mean_weight(estimator: Any, X: Any, weight: Array, seed: int, n_threads: int) -> MeanWeight:
    """Regress positive weights on features.

    Parameters
    ----------
    estimator : regressor
        Cloned. It sees weights of mean one, because the regularisation of boosters acts on absolute sums.
    X : table
        Events of one class.
    weight : array
        Their weights, all positive.
    seed, n_threads : int
        Of the regressor.
    """
    bounds = (float(weight.min()), float(weight.max()))
    scale = float(np.clip(weight.mean(), *bounds))  # rounding moves the mean of equal weights off them
    if bounds[1] - bounds[0] <= _CONSTANT * scale:
        return MeanWeight(None, scale, bounds)
    regressor = seeded(estimator, seed, n_threads)
    if regressor.get_params().get("n_jobs", n_threads) is None:  # to boosters None means all cores
        regressor.set_params(n_jobs=n_threads)
    with threadpool_limits(limits=n_threads, user_api="openmp"):
        regressor.fit(X, weight / scale)
    return MeanWeight(regressor, scale, bounds)
