"""The choice of how a learner is trained, and of a library that grows trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fivesigma._tools.extras import need
from fivesigma.errors import InputError, did_you_mean
from fivesigma.learners import lightgbm, xgboost
from fivesigma.learners.parameters import check_names
from fivesigma.learners.protocols import Binding, Grower, Trainer
from fivesigma.learners.sklearn import SklearnTrainer

LIBRARIES: dict[str, Callable[[dict[str, Any], Binding], Grower]] = {
    "xgboost": xgboost.XGBoostGrower,
    "lightgbm": lightgbm.LightGBMGrower,
}
_ALIASES = {"xgboost": xgboost.GROWER_ALIASES, "lightgbm": lightgbm.GROWER_ALIASES}

# Parameters that the cascade sets itself, with the names that both libraries know them by.
_TAKEN = {
    "objective": "the loss is logistic",
    "application": "the loss is logistic",
    "app": "the loss is logistic",
    "objective_type": "the loss is logistic",
    "loss": "the loss is logistic",
    "base_score": "the starting score is fixed",
    "boost_from_average": "the starting score is fixed",
    "scale_pos_weight": "the cascade weights the classes",
    "is_unbalance": "the cascade weights the classes",
    "unbalance": "the cascade weights the classes",
    "booster": "trees are grown one by one",
    "boosting": "trees are grown one by one",
    "boosting_type": "trees are grown one by one",
    "tree_method": "events are binned once",
    "num_boost_round": "use n_trees",
    "n_estimators": "use n_trees",
    "num_iterations": "use n_trees",
    "num_iteration": "use n_trees",
    "num_trees": "use n_trees",
    "num_tree": "use n_trees",
    "num_round": "use n_trees",
    "num_rounds": "use n_trees",
    "n_iter": "use n_trees",
    "max_iter": "use n_trees",
    "seed": "use random_state",
    "random_state": "use random_state",
    "random_seed": "use random_state",
    "nthread": "use n_jobs",
    "n_jobs": "use n_jobs",
    "num_threads": "use n_jobs",
    "num_thread": "use n_jobs",
    "early_stopping_rounds": "use early_stopping",
    "early_stopping_round": "use early_stopping",
    "metric": "significance is measured each round",
    "metrics": "significance is measured each round",
    "eval_metric": "significance is measured each round",
}


def check_library(library: str, params: dict[str, Any] | None) -> dict[str, Any]:
    """Refuse an unknown library, parameters that the cascade sets itself, and those that the library does not know."""
    if library not in LIBRARIES:
        raise InputError(f"library must be xgboost or lightgbm, got {library!r}{did_you_mean(str(library), LIBRARIES)}")
    need(library)
    if params is not None and not isinstance(params, dict):
        raise InputError(f"params must be a dictionary of the library's parameters, got {params!r}")
    given: dict[str, Any] = {}
    for name, value in (params or {}).items():
        if name in _TAKEN:
            raise InputError(f"params[{name!r}] is not yours to set: {_TAKEN[name]}")
        # Under another name than that of the default, both would reach the library, and the default would win.
        canonical = _ALIASES[library].get(name, name)
        if canonical in given:
            raise InputError(f"params[{name!r}] is another name of params[{canonical!r}]; give one of them")
        given[canonical] = value
    check_names(library, given)
    return given


def grower(library: str, params: dict[str, Any], binding: Binding) -> Grower:
    """Bind a booster to its events."""
    return LIBRARIES[library](params, binding)


def bind(estimator: Any, binding: Binding) -> Trainer:
    """Bind a learner to its events, binned once where its library allows that."""
    library = type(estimator).__module__.partition(".")[0]
    if library == "xgboost" and xgboost.can_bin_once(estimator):
        return xgboost.XGBoostTrainer(estimator, binding)
    if library == "lightgbm" and lightgbm.can_bin_once(estimator):
        return lightgbm.LightGBMTrainer(estimator, binding)
    return SklearnTrainer(estimator, binding)
