"""What a cascade asks of a learner, and which learners it refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from sklearn.utils import _safe_indexing
from sklearn.utils.validation import has_fit_parameter

from fivesigma._extras import installed, need
from fivesigma._types import Array, IntArray
from fivesigma.errors import InputError

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


_FORBIDDEN = re.compile(r'[\[\]<>{}",:]')


class Model(Protocol):
    """A trained classifier."""

    def signal_probability(self, X: Any) -> Array:
        """P(signal) of each row, float64."""


class StagedModel(Model, Protocol):
    """A boosted model that can say what it was after each tree."""

    def staged_probability(self, X: Any) -> Iterator[Array]:
        """P(signal) after each tree."""

    def gains(self, n_features: int) -> Array:
        """Total gain of each feature."""


class Trainer(Protocol):
    """A learner bound to its training events and to the events that it is judged on."""

    def fit(self, weight: Array) -> Model:
        """Train anew with learner weights of the training rows."""

    def score_held_out(self, model: Any) -> Array:
        """P(signal) of the held-out rows."""

    def score_train(self, model: Any) -> Array:
        """P(signal) of the training rows."""


class Grower(Protocol):
    """A booster bound to its events that gains one tree at a time."""

    def set_weights(self, weight: Array) -> None:
        """Set the learner weights of the training rows for the trees to come."""

    def grow(self) -> None:
        """Add a tree."""

    def score_held_out(self) -> Array:
        """P(signal) of the held-out rows, from the library's cache."""

    def score_train(self) -> Array:
        """P(signal) of the training rows, from the library's cache."""

    def model(self, n_trees: int) -> StagedModel:
        """Return the first trees as a model."""

    def dump(self) -> bytes:
        """Return the trees in the library's own format."""

    def restore(self, dumped: bytes, seed: int) -> None:
        """Go on from dumped trees with a new seed; what follows depends on nothing else."""


@dataclass(frozen=True)
class Binding:
    """Events of one split.

    Attributes
    ----------
    X : table
        Array, sparse matrix or frame of all events.
    target : int array
        1 for signal, 0 for background, of all events.
    train, held_out : int arrays
        Rows to train on and rows to judge on.
    seed : int
        Seed of the learner.
    n_threads : int
        Threads that the learner may use.
    """

    X: Any
    target: IntArray
    train: IntArray
    held_out: IntArray
    seed: int
    n_threads: int

    def rows(self, which: IntArray) -> Any:
        """Rows of X, of the same type as X."""
        return _safe_indexing(self.X, which)


def library_names(X: Any) -> list[str] | None:
    """Column names of a frame as boosting libraries take them: without brackets and the like, and distinct."""
    if not hasattr(X, "columns"):
        return None
    names = [_FORBIDDEN.sub("_", str(c)) for c in X.columns]
    return names if len(set(names)) == len(names) else [f"{name}_{k}" for k, name in enumerate(names)]


def is_categorical(X: Any) -> bool:
    """Whether a frame has categorical columns."""
    return any(str(t).partition("(")[0] in ("category", "Categorical", "Enum") for t in getattr(X, "dtypes", ()))


def default_learner() -> Any:
    """Return the best learner that is installed: XGBoost, LightGBM, else scikit-learn's histogram boosting."""
    if installed("xgboost"):
        return need("xgboost").XGBClassifier(n_estimators=200, learning_rate=0.1, max_depth=6)
    if installed("lightgbm"):
        return need("lightgbm").LGBMClassifier(n_estimators=200, learning_rate=0.1, verbosity=-1)
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(max_iter=200, early_stopping=False)


def weight_parameter(estimator: Any) -> str:
    """Name under which `estimator.fit` takes learner weights."""
    steps = getattr(estimator, "steps", None)  # a Pipeline hands them to its last step
    if steps:
        name, last = steps[-1]
        return f"{name}__{weight_parameter(last)}"
    if not has_fit_parameter(estimator, "sample_weight"):
        raise InputError(
            f"{type(estimator).__name__}.fit does not take sample_weight; a cascade needs a learner that does"
        )
    return "sample_weight"


def check_learner(estimator: Any, *, weighted: bool = True) -> None:
    """Refuse a learner that gives no score, weights the classes itself or, if it is to be weighted, cannot be."""
    if not hasattr(estimator, "fit") or not hasattr(estimator, "get_params"):
        raise InputError(f"estimator must be a scikit-learn classifier, got {estimator!r}")
    if not hasattr(estimator, "predict_proba") and not hasattr(estimator, "decision_function"):
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
