"""How much each feature matters to a trained model, by the model's own measure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fivesigma._types import Array
from fivesigma.learners.decomposition import RatioModel


def importance_of(model: Any, n_features: int) -> Array | None:
    """Importances of the features that sum to one, or None if the model knows none."""
    if isinstance(model, RatioModel):
        return importance_of(model.classifier, n_features)
    if hasattr(model, "gains"):
        found = model.gains(n_features)
    else:
        found = getattr(getattr(model, "estimator", model), "feature_importances_", None)
    if found is None or np.shape(found) != (n_features,):
        return None
    values = np.asarray(found, dtype=np.float64)
    return np.asarray(values / max(values.sum(), np.finfo(float).tiny))


def mean_importance(parts: Sequence[Array | None], owner: Any) -> Array:
    """Mean of those that are known; an AttributeError if none is, as for an attribute that is not there."""
    known = [part for part in parts if part is not None]
    if not known:
        raise AttributeError(f"the learners of this {type(owner).__name__} have no feature importances")
    return np.asarray(np.mean(known, axis=0))
