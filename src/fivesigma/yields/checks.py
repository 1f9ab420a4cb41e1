"""What physics weights and observed events must be."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import Array, BoolArray
from fivesigma.errors import InputError

LARGEST = 1e50  # sums of weights up to it are yields that every utility takes, and squares of them are floats


def name_rows(bad: BoolArray) -> str:
    """Say how many rows are bad and name the first few."""
    where = np.flatnonzero(bad)
    some = ", ".join(map(str, where[:3])) + (", ..." if where.size > 3 else "")
    return f"{where.size} of {bad.size} rows (at {some})"


def check_weights(sample_weight: ArrayLike, n_events: int) -> Array:
    """Return physics weights as float64, or say what is wrong with them; negative ones pass."""
    if sample_weight is None:
        raise InputError("sample_weight is None; physics weights are needed here")
    try:
        given = np.asarray(sample_weight)
        weight = None if given.dtype.kind == "c" else given.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError):
        raise InputError("sample_weight must be numbers") from None
    if weight is None:
        raise InputError("sample_weight must be real numbers, got complex ones")
    if weight.ndim != 1:
        raise InputError(f"sample_weight must be 1-dimensional, got shape {weight.shape}")
    if weight.size != n_events:
        raise InputError(f"sample_weight has {weight.size} entries for {n_events} events")
    if weight.size == 0:
        raise InputError("sample_weight is empty: there are no events")
    largest = max(-float(weight.min()), float(weight.max()))  # NaN if any is
    if not largest < np.inf:
        raise InputError(f"sample_weight is NaN or infinite in {name_rows(~np.isfinite(weight))}")
    if largest == 0:
        raise InputError("every sample_weight is zero")
    check_size(largest, "sample_weight")
    return weight


def check_size(largest: float, what: str) -> None:
    """Refuse weights, of which this is the largest but for its sign, if sums of squares could not be formed."""
    if not 1 / LARGEST <= largest <= LARGEST:
        raise InputError(
            f"the largest {what} is {largest:g} in size, and it must be between {1 / LARGEST:g} and {LARGEST:g}: give "
            "the weights in other units"
        )


def check_counts(data: ArrayLike, n_categories: int) -> Array:
    """Return the observed events of categories, or say what is wrong with them."""
    try:
        counts = np.asarray(data, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"data must be numbers of events, got {data!r}") from None
    if counts.shape != (n_categories,):
        raise InputError(f"data has shape {counts.shape} for {n_categories} categories")
    if not (np.isfinite(counts).all() and (counts >= 0).all()):
        raise InputError(f"data must be finite and >= 0, got {counts.tolist()}")
    return counts
