"""The choice of a library that grows trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fivesigma._extras import need
from fivesigma.errors import InputError, did_you_mean
from fivesigma.learners.base import Binding, Grower
from fivesigma.learners.lightgbm import LightGBMGrower
from fivesigma.learners.xgboost import XGBoostGrower

LIBRARIES: dict[str, Callable[[dict[str, Any], Binding], Grower]] = {
    "xgboost": XGBoostGrower,
    "lightgbm": LightGBMGrower,
}

# Parameters that the cascade sets itself, with the names that both libraries know them by.
_TAKEN = {
    "objective": "the loss is logistic",
    "application": "the loss is logistic",
    "app": "the loss is logistic",
    "loss": "the loss is logistic",
    "base_score": "the starting score is fixed",
    "boost_from_average": "the starting score is fixed",
    "scale_pos_weight": "the cascade weights the classes",
    "is_unbalance": "the cascade weights the classes",
    "unbalance": "the cascade weights the classes",
    "num_boost_round": "use n_trees",
    "n_estimators": "use n_trees",
    "num_iterations": "use n_trees",
    "seed": "use random_state",
    "random_state": "use random_state",
    "nthread": "use n_jobs",
    "n_jobs": "use n_jobs",
    "num_threads": "use n_jobs",
    "early_stopping_rounds": "use early_stopping",
    "early_stopping_round": "use early_stopping",
    "metric": "significance is measured each round",
    "eval_metric": "significance is measured each round",
}


def check_library(library: str, params: dict[str, Any] | None) -> dict[str, Any]:
    """Refuse an unknown library and parameters that the cascade sets itself."""
    if library not in LIBRARIES:
        raise InputError(
            f"library must be xgboost or lightgbm, got {library!r}.{did_you_mean(str(library), LIBRARIES)}"
        )
    need(library)
    given = dict(params or {})
    for name in given:
        if name in _TAKEN:
            raise InputError(f"params[{name!r}] is not yours to set: {_TAKEN[name]}")
    return given


def grower(library: str, params: dict[str, Any], binding: Binding) -> Grower:
    """Bind a booster to its events."""
    return LIBRARIES[library](params, binding)
