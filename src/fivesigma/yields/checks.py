"""What physics weights must be."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import Array, BoolArray
from fivesigma.errors import InputError


def name_rows(bad: BoolArray) -> str:
    """Say how many rows are bad and name the first few."""
    where = np.flatnonzero(bad)
    some = ", ".join(map(str, where[:3])) + (", ..." if where.size > 3 else "")
    return f"{where.size} of {bad.size} rows (at {some})"


def check_weights(sample_weight: ArrayLike, n_events: int) -> Array:
    """Return physics weights as float64, or say what is wrong with them.

    Parameters
    ----------
    sample_weight : array-like of shape (n_events,)
        Negative weights pass; NaN, infinite and all-zero weights do not.
    n_events : int
        Number of events they must match.
    """
    if sample_weight is None:
        raise InputError("sample_weight is None; physics weights are needed here")
    try:
        weight = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("sample_weight must be numbers") from None
    if weight.ndim != 1:
        raise InputError(f"sample_weight must be 1-dimensional, got shape {weight.shape}")
    if weight.size != n_events:
        raise InputError(f"sample_weight has {weight.size} entries for {n_events} events")
    finite = np.isfinite(weight)
    if not finite.all():
        raise InputError(f"sample_weight is NaN or infinite in {name_rows(~finite)}")
    if not weight.any():
        raise InputError("every sample_weight is zero")
    return weight
