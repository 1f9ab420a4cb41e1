"""Which learners a cascade takes, and the one that it takes by default."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import has_fit_parameter

from fivesigma._tools.extras import installed, need
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
