"""What `fit` leaves behind, checked for its type and size: with other values a model could not score."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fivesigma.blend import BLENDS, KNOTS, Blend
from fivesigma.cascade.rounds import Round
from fivesigma.datasets.columns import can_be
from fivesigma.learners.decomposition import RatioModel
from fivesigma.learners.libraries import LIBRARIES
from fivesigma.learners.sklearn import SklearnModel

MODELS = (*(library.model for library in LIBRARIES.values()), SklearnModel, RatioModel)


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


def _are_members(members: Any, values: Mapping[str, Any]) -> bool:
    scores = all(isinstance(name, str) and hasattr(member, "__fivesigma_score__") for name, member in members)
    same_width = all(member.n_features_in_ == values["n_features_in_"] for _, member in members)
    return scores and same_width and len({name for name, _ in members}) == values["blend_"].weights.size > 0


def _is_blend(blend: Blend) -> bool:
    weights = blend.weights
    one_number_each = weights.dtype == np.float64 and weights.ndim == 1 and len(blend.knots) == weights.size
    return (
        blend.kind in BLENDS
        and one_number_each
        and bool(np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0)
        and all(k.dtype == np.float64 and k.shape == (KNOTS,) and (np.diff(k) >= 0).all() for k in blend.knots)
    )


def _are_columns(columns: dict[str, Any], values: Mapping[str, Any]) -> bool:
    """Whether a dictionary says which column of a file plays which part."""
    features = columns.get("features")
    fits = all(can_be(key, value) for key, value in columns.items())
    return fits and (features is None or len(features) == values["n_features_in_"])


# In this order: later ones rely on those before.
_RIGHT: dict[str, Callable[[Any, Mapping[str, Any]], bool]] = {
    "classes_": lambda value, _: are_labels(value),
    "cut_": lambda value, _: bool(np.isfinite(value)),
    "selected_fraction_": lambda value, _: bool(0 <= value <= 1),
    "n_features_in_": lambda value, _: 1 <= value < 1 << 31,
    "feature_names_in_": lambda value, values: are_names(value, values["n_features_in_"]),
    "kept_": lambda value, _: all(isinstance(r, Round) for r in value),
    "models_": lambda value, _: len(value) > 0 and all(isinstance(model, MODELS) for model in value),
    "blend_": lambda value, _: _is_blend(value),
    "members_": _are_members,
    "columns_": _are_columns,
    "data_hash_": lambda value, _: isinstance(value, str),
    "training_rows_": lambda value, _: isinstance(value, np.ndarray) and value.dtype == np.uint64,
}
