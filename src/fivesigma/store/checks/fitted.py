"""What `fit` leaves behind, looked at for its meaning: with values of the right type a model could still not score."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fivesigma.blend import BLENDS, KNOTS, Blend
from fivesigma.cascade.rounds import Round
from fivesigma.learners.decomposition import MeanWeight, RatioModel
from fivesigma.learners.lightgbm import LightGBMModel
from fivesigma.learners.sklearn import SklearnModel
from fivesigma.learners.xgboost import XGBoostModel

MODELS = (XGBoostModel, LightGBMModel, SklearnModel, RatioModel)


def wrong_attribute(values: Mapping[str, Any]) -> str | None:
    """Name of a fitted attribute with which a model could not score or be reported on, or None.

    Parameters
    ----------
    values : mapping of str to object
        Fitted attributes, of the types that `fit` gives them.
    """
    for name, is_right in _RIGHT.items():
        try:
            if name in values and not is_right(values[name], values):
                return name
        except Exception:  # whatever a comparison with a stranger's value raises
            return name
    return None


def are_labels(classes: Any) -> bool:
    """Whether an array is two different labels."""
    if not isinstance(classes, np.ndarray) or classes.shape != (2,) or classes.dtype.kind not in "biufUO":
        return False
    if classes.dtype.kind == "O" and not all(isinstance(c, str) for c in classes):
        return False
    return bool(classes[0] != classes[1]) and not (classes.dtype.kind == "f" and not np.isfinite(classes).all())


def are_names(names: Any, n: int) -> bool:
    """Whether an array is the names of so many features."""
    fits = isinstance(names, np.ndarray) and names.shape == (n,) and names.dtype.kind in "UO"
    return fits and all(isinstance(k, str) for k in names) and len(set(names.tolist())) == n


def _takes(model: Any, n_features: int) -> bool:
    """Whether a trained model takes tables of so many columns."""
    if isinstance(model, XGBoostModel):
        return bool(model.booster.num_features() == n_features)
    if isinstance(model, LightGBMModel):
        return all(booster.num_feature() == n_features for booster in model.boosters)
    if isinstance(model, RatioModel):
        parts = (model.classifier, model.signal, model.background)
        return all(_takes(part, n_features) for part in parts)
    if isinstance(model, MeanWeight):
        return model.regressor is None or _seen(model.regressor) in (None, n_features)
    return _seen(model.estimator) in (None, n_features)


def _seen(estimator: Any) -> Any:
    return getattr(estimator, "n_features_in_", None)


def _are_models(models: Any, values: Mapping[str, Any]) -> bool:
    n_features = values["n_features_in_"]
    return len(models) > 0 and all(isinstance(m, MODELS) and _takes(m, n_features) for m in models)


def _are_members(members: Any, values: Mapping[str, Any]) -> bool:
    for pair in members:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):
            return False
        member = pair[1]
        if not (hasattr(member, "score_checked") and hasattr(member, "classes_") and hasattr(member, "history_")):
            return False
        if member.n_features_in_ != values["n_features_in_"]:
            return False
    return bool(len({name for name, _ in members}) == values["blend_"].weights.size > 0)


def _is_blend(blend: Blend, _values: Mapping[str, Any]) -> bool:
    weights = blend.weights
    if blend.kind not in BLENDS or weights.dtype != np.float64 or weights.ndim != 1:
        return False
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
        return False
    same = len(blend.knots) == weights.size
    return same and all(
        k.dtype == np.float64 and k.shape == (KNOTS,) and bool((np.diff(k) >= 0).all()) for k in blend.knots
    )


def _are_columns(columns: Any, values: Mapping[str, Any]) -> bool:
    """Whether a dictionary says which column of a file plays which part."""
    if not isinstance(columns, dict) or not all(isinstance(key, str) for key in columns):
        return False
    for key, value in columns.items():
        if key in ("features", "keep"):
            listed = isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)
            fits = value is None or (listed and (key == "keep" or len(value) == values["n_features_in_"]))
        elif key == "missing":
            fits = value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        else:
            fits = value is None or isinstance(value, str)
        if not fits:
            return False
    return True


def _numbers(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.dtype == np.float64 and values.ndim == 1


# In this order: later ones rely on those before.
_RIGHT: dict[str, Callable[[Any, Mapping[str, Any]], bool]] = {
    "classes_": lambda value, _: are_labels(value),
    "cut_": lambda value, _: bool(np.isfinite(value)),
    "selected_fraction_": lambda value, _: bool(0 <= value <= 1),
    "n_features_in_": lambda value, _: 1 <= value < 1 << 31,
    "feature_names_in_": lambda value, values: are_names(value, values["n_features_in_"]),
    "n_trees_": lambda value, values: 0 <= value <= len(values.get("history_", range(1 << 20))),
    "kept_": lambda value, _: all(isinstance(r, Round) for r in value),
    "models_": _are_models,
    "blend_": _is_blend,
    "members_": _are_members,
    "member_significance_": lambda value, _: (
        all(isinstance(k, str) for k in value) and all(isinstance(z, int | float) for z in value.values())
    ),
    "held_out_score_": lambda value, _: _numbers(value),
    "held_out_scores_": lambda value, _: isinstance(value, dict) and all(_numbers(v) for v in value.values()),
    "columns_": _are_columns,
    "data_hash_": lambda value, _: isinstance(value, str),
    "training_rows_": lambda value, _: isinstance(value, np.ndarray) and value.dtype == np.uint64,
}
