"""XGBoost: the matrix is binned once, and only weights change.

Bins are those of the unweighted events: they describe where events lie, the weights say what is asked of them, so
models at different class weights differ in nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fivesigma._extras import need
from fivesigma._types import Array
from fivesigma.learners.base import Binding
from fivesigma.learners.sklearn import seeded


@dataclass(frozen=True)
class XGBoostModel:
    """A trained booster with logistic output."""

    booster: Any
    missing: float = np.nan
    categorical: bool = False

    def signal_probability(self, X: Any) -> Array:
        """P(signal)."""
        if isinstance(X, np.ndarray):
            p = self.booster.inplace_predict(X, missing=self.missing, validate_features=False)
        else:
            matrix = need("xgboost").DMatrix(X, missing=self.missing, enable_categorical=self.categorical)
            p = self.booster.predict(matrix, validate_features=False)
        return np.asarray(p, dtype=np.float64)


def can_bin_once(estimator: Any) -> bool:
    """Whether an estimator is an XGBClassifier that trains on a binned matrix."""
    xgboost = need("xgboost")
    return (
        type(estimator) is xgboost.XGBClassifier
        and estimator.booster in (None, "gbtree", "dart")
        and estimator.tree_method in (None, "auto", "hist")
        and estimator.objective in (None, "binary:logistic")
        and not estimator.callbacks
    )


class XGBoostTrainer:
    """Trains boosters on one binned matrix."""

    def __init__(self, estimator: Any, binding: Binding) -> None:
        xgboost = need("xgboost")
        settings = seeded(estimator, binding.seed, binding.n_threads)
        threads = settings.n_jobs or binding.n_threads
        self._params = {**settings.get_xgb_params(), "objective": "binary:logistic", "nthread": threads}
        self._rounds = settings.get_num_boosting_rounds()
        options = {
            "missing": settings.missing,
            "enable_categorical": settings.enable_categorical,
            "feature_types": settings.feature_types,
            "nthread": threads,
        }
        bins = {} if settings.max_bin is None else {"max_bin": settings.max_bin}
        self._train = xgboost.QuantileDMatrix(
            binding.rows(binding.train), label=binding.target[binding.train], **bins, **options
        )
        self._held = xgboost.QuantileDMatrix(binding.rows(binding.held_out), ref=self._train, **bins, **options)
        self._missing, self._categorical = settings.missing, bool(settings.enable_categorical)

    def fit(self, weight: Array) -> XGBoostModel:
        """Train a new booster."""
        self._train.set_weight(weight)
        booster = need("xgboost").train(self._params, self._train, num_boost_round=self._rounds)
        return XGBoostModel(booster, self._missing, self._categorical)

    def score_held_out(self, model: XGBoostModel) -> Array:
        """P(signal) of the held-out rows."""
        return self._score(model, self._held)

    def score_train(self, model: XGBoostModel) -> Array:
        """P(signal) of the training rows."""
        return self._score(model, self._train)

    @staticmethod
    def _score(model: XGBoostModel, matrix: Any) -> Array:
        return np.asarray(model.booster.predict(matrix), dtype=np.float64)
