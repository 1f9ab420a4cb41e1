"""Which features a model uses, if it says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fivesigma._types import Array
from fivesigma.datasets.columns import Columns

MOST_FEATURES = 25


@dataclass(frozen=True)
class Importance:
    """Share of each feature, the largest first.

    Attributes
    ----------
    names : list of str
    share : list of float
    rest : float
        Share of all features that are not listed.
    n_rest : int
        How many these are.
    """

    names: list[str]
    share: list[float]
    rest: float
    n_rest: int


def importance_of(model: Any, names: tuple[str, ...]) -> Importance | None:
    """Importance of features, or None if the model has none; members of a pool count alike."""
    trained = Columns.of_model(model).feature_names or names
    share = _shares(model, len(trained))
    if share is None:
        return None
    order = np.argsort(-share, kind="stable")
    shown, rest = order[:MOST_FEATURES], order[MOST_FEATURES:]
    return Importance([str(trained[j]) for j in shown], share[shown].tolist(), float(share[rest].sum()), rest.size)


def _shares(model: Any, n_features: int) -> Array | None:
    """Shares that sum to one."""
    parts = [m for _, m in getattr(model, "members_", [])]
    if not hasattr(model, "feature_importances_"):
        parts = parts or [getattr(m, "estimator", m) for m in getattr(model, "models_", [])]
        found = [s for s in (_shares(part, n_features) for part in parts) if s is not None]
        return np.asarray(np.mean(found, axis=0)) if found else None
    share = np.asarray(model.feature_importances_, dtype=np.float64)
    if share.shape != (n_features,) or not share.sum() > 0:
        return None
    return np.asarray(share / share.sum())
