"""LightGBM: the data set is binned once, and only weights change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fivesigma._extras import need
from fivesigma._types import Array
from fivesigma.learners.base import Binding
from fivesigma.learners.sklearn import seeded

# What LGBMClassifier keeps for itself; all else is an alias of one of LightGBM's own parameters.
_NOT_FOR_TRAINING = ("class_weight", "importance_type", "n_estimators", "objective")


@dataclass(frozen=True)
class LightGBMModel:
    """A trained booster with logistic output."""

    booster: Any
    n_threads: int = 0

    def signal_probability(self, X: Any) -> Array:
        """P(signal)."""
        return np.asarray(self.booster.predict(X, num_threads=self.n_threads), dtype=np.float64)


def can_bin_once(estimator: Any) -> bool:
    """Whether an estimator is an LGBMClassifier with logistic loss."""
    return type(estimator) is need("lightgbm").LGBMClassifier and estimator.objective in (None, "binary")


def set_weights(dataset: Any, weight: Array) -> None:
    """Replace the weights of a data set; `set_weight` would drop weights that are all one and keep the old ones."""
    dataset.set_field("weight", weight.astype(np.float32))


class LightGBMTrainer:
    """Trains boosters on one binned data set."""

    def __init__(self, estimator: Any, binding: Binding) -> None:
        lightgbm = need("lightgbm")
        settings = seeded(estimator, binding.seed, binding.n_threads)
        given = {k: v for k, v in settings.get_params().items() if k not in _NOT_FOR_TRAINING and v is not None}
        self._params = {"verbosity": -1, "n_jobs": binding.n_threads, **given, "objective": "binary"}
        self._rounds = settings.n_estimators
        self._threads = binding.n_threads
        self._X, self._X_held = binding.rows(binding.train), binding.rows(binding.held_out)
        self._train = lightgbm.Dataset(self._X, label=binding.target[binding.train], params=self._params).construct()

    def fit(self, weight: Array) -> LightGBMModel:
        """Train a new booster."""
        set_weights(self._train, weight)
        booster = need("lightgbm").train(dict(self._params), self._train, num_boost_round=self._rounds)
        return LightGBMModel(booster, self._threads)

    def score_held_out(self, model: LightGBMModel) -> Array:
        """P(signal) of the held-out rows."""
        return model.signal_probability(self._X_held)

    def score_train(self, model: LightGBMModel) -> Array:
        """P(signal) of the training rows."""
        return model.signal_probability(self._X)
