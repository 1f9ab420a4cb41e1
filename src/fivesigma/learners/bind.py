"""The choice of how to train a learner."""

from __future__ import annotations

from typing import Any

from fivesigma.learners import lightgbm, xgboost
from fivesigma.learners.base import Binding, Trainer
from fivesigma.learners.sklearn import SklearnTrainer


def bind(estimator: Any, binding: Binding) -> Trainer:
    """Bind a learner to its events, binned once where its library allows that."""
    library = type(estimator).__module__.partition(".")[0]
    if library == "xgboost" and xgboost.can_bin_once(estimator):
        return xgboost.XGBoostTrainer(estimator, binding)
    if library == "lightgbm" and lightgbm.can_bin_once(estimator):
        return lightgbm.LightGBMTrainer(estimator, binding)
    return SklearnTrainer(estimator, binding)
