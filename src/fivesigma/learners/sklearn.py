"""Any classifier with scikit-learn's interface."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn import get_config
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from fivesigma._tools.threads import limit_threads, threads_for
from fivesigma._types import Array
from fivesigma.errors import InputError
from fivesigma.learners.protocols import Binding

# Parameters by which learners weight classes themselves; they would count twice.
_OWN_CLASS_WEIGHTS = {
    "class_weight": (None,),
    "class_weights": (None,),
    "auto_class_weights": (None, "None"),
    "scale_pos_weight": (None, 1, 1.0),
    "is_unbalance": (None, False),
    "unbalance": (None, False),
    "unbalanced_sets": (None, False),
}
_THREADS = ("n_jobs", "nthread", "num_threads", "thread_count")


@dataclass(frozen=True)
class SklearnModel:
    """A fitted scikit-learn classifier of the labels 0 and 1."""

    estimator: Any

    def signal_probability(self, X: Any) -> Array:
        """P(signal); the logistic function of the margin for learners without probabilities."""
        with limit_threads(threads_for(-1, X.shape[0] * X.shape[1])):
            if hasattr(self.estimator, "predict_proba"):
                p = np.asarray(self.estimator.predict_proba(X), dtype=np.float64)
                if p.shape != (X.shape[0], 2):
                    kind = type(self.estimator).__name__
                    raise InputError(f"predict_proba of {kind} must give two columns, got the shape {p.shape}")
                return p[:, 1]
            if not hasattr(self.estimator, "decision_function"):
                raise InputError(f"this {type(self.estimator).__name__} gives no score, only labels")
            return np.asarray(expit(np.asarray(self.estimator.decision_function(X), dtype=np.float64)))

    def gains(self, n_features: int) -> Any:  # noqa: ARG002 - the estimator knows
        """Importances of the features by the estimator's own measure; None if it has none."""
        return getattr(self.estimator, "feature_importances_", None)


def seeded(estimator: Any, seed: int, n_threads: int) -> Any:
    """Clone a learner, seed it and keep it within its threads."""
    out = clone(estimator)
    changes: dict[str, Any] = {}
    for name, value in out.get_params(deep=True).items():
        last = name.rpartition("__")[2]
        if last in ("random_state", "random_seed") and (last == "random_state" or value is not None):
            changes[name] = seed
        elif last in _THREADS and value is not None:
            changes[name] = n_threads if value < 1 else min(int(value), n_threads)
    return out.set_params(**changes)


class SklearnTrainer:
    """Clones a classifier and fits it from scratch."""

    def __init__(self, estimator: Any, binding: Binding) -> None:
        self._estimator = seeded(estimator, binding.seed, binding.n_threads)
        self._weight = weight_parameter(estimator)
        self._threads = binding.n_threads
        self._X, self._target = binding.rows(binding.train), binding.target[binding.train]

    def fit(self, weight: Array) -> SklearnModel:
        """Train a clone."""
        with limit_threads(self._threads):
            estimator = clone(self._estimator)
            if not get_config()["enable_metadata_routing"] or not hasattr(estimator, "steps"):
                estimator.fit(self._X, self._target, **{self._weight: weight})
                return SklearnModel(estimator)
            # With routing on, a Pipeline takes weights by their own name and asks each step whether it wants them.
            for _, step in estimator.steps:
                if has_fit_parameter(step, "sample_weight"):
                    step.set_fit_request(sample_weight=step is estimator.steps[-1][1])
            estimator.fit(self._X, self._target, sample_weight=weight)
            return SklearnModel(estimator)


def weight_parameter(estimator: Any) -> str:
    """Name under which `estimator.fit` takes learner weights."""
    steps = getattr(estimator, "steps", None)  # a Pipeline hands them to its last step
    if steps:
        name, last = steps[-1]
        return f"{name}__{weight_parameter(last)}"
    takes = signature(estimator.fit).parameters
    # Voting, stacking and searches hand on whatever they are given.
    if "sample_weight" not in takes and not any(p.kind is Parameter.VAR_KEYWORD for p in takes.values()):
        raise InputError(
            f"{type(estimator).__name__}.fit does not take sample_weight; a cascade needs a learner that does, and "
            "DecomposedClassifier needs none"
        )
    return "sample_weight"


def check_learner(estimator: Any, *, weighted: bool = True) -> None:
    """Refuse a learner that gives no score, weights the classes itself or, if it is to be weighted, cannot be."""
    if not hasattr(estimator, "fit") or not hasattr(estimator, "get_params"):
        raise InputError(f"estimator must be a scikit-learn classifier, got {estimator!r}")
    if hasattr(estimator, "__fivesigma_score__"):
        raise InputError(
            f"{type(estimator).__name__} takes physics weights, and a learner is given others; give its own learner"
        )
    # What a meta-estimator has, its class says; the object itself knows after its fit.
    if not any(
        hasattr(e, name) for e in (estimator, type(estimator)) for name in ("predict_proba", "decision_function")
    ):
        raise InputError(
            f"{type(estimator).__name__} has neither predict_proba nor decision_function; it gives no score"
        )
    if weighted:
        weight_parameter(estimator)
    for name, value in estimator.get_params(deep=True).items():
        neutral = _OWN_CLASS_WEIGHTS.get(name.rpartition("__")[2])
        if neutral is not None and not any(value is n or value == n for n in neutral):
            raise InputError(f"{name}={value!r} weights the classes, and so does the cascade: leave it at its default")
        if name.rpartition("__")[2] in ("early_stopping_rounds", "early_stopping_round") and value is not None:
            raise InputError(f"{name}={value!r} needs an evaluation set that a cascade does not pass: leave it out")
