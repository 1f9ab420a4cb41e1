"""What labels, physics weights and observed events must be, and which of two labels means signal."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import AnyArray, Array, BoolArray
from fivesigma.errors import InputError

LARGEST = 1e50  # sums of weights up to it are yields that every utility takes, and squares of them are floats

#: Label pairs, signal first and text in lower case, for which calling the first one signal is no guess.
KNOWN_PAIRS: tuple[tuple[Any, Any], ...] = (
    ("s", "b"),
    ("sig", "bkg"),
    ("sg", "bg"),
    ("signal", "background"),
    ("true", "false"),
    (1, 0),
    (1, -1),
)


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


def split_labels(y: ArrayLike, pos_label: Any = None) -> tuple[BoolArray, AnyArray]:
    """Which events are signal, and (background, signal): by `pos_label`, the larger number, or a known pair."""
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise InputError(f"y must be 1-dimensional, got shape {labels.shape}")
    if labels.size == 0:
        raise InputError("y is empty: there are no events")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InputError(f"y is NaN or infinite in {name_rows(~np.isfinite(labels))}")
    if labels.dtype.kind == "O":
        _refuse_mixed(labels)
    # np.unique would sort; two comparisons find the two labels.
    is_first = np.asarray(labels == labels[0])
    n_first = np.count_nonzero(is_first)
    if n_first == labels.size:
        raise InputError(f"y has one class only ({labels.tolist()[0]!r}); signal and background are both needed")
    other = labels[is_first.argmin()]
    if n_first + np.count_nonzero(labels == other) < labels.size:
        seen = np.unique(labels)
        more = f"{', '.join(map(repr, seen[:5].tolist()))}{', ...' if seen.size > 5 else ''}"
        raise InputError(f"Only binary classification is supported. y has {seen.size} labels: {more}")
    classes = np.sort(np.array([labels[0], other], dtype=labels.dtype))
    if pos_label is not None:
        matches = np.flatnonzero(classes == pos_label)
        if matches.size != 1:
            raise InputError(f"pos_label={pos_label!r} is not among the labels {classes.tolist()}")
        signal_at = int(matches[0])
    else:
        signal_at = _guess_signal(classes)
    classes = classes[[1 - signal_at, signal_at]]
    return (is_first if labels[0] == classes[1] else ~is_first), classes


def _refuse_mixed(labels: AnyArray) -> None:
    """Raise unless objects are all text or all numbers, none of them missing."""
    text = np.array([isinstance(v, str | bytes) for v in labels])
    number = np.array([isinstance(v, Real | np.bool_) and bool(v == v) for v in labels])  # noqa: PLR0124 - not NaN
    if not (text | number).all():
        raise InputError(f"y is neither text nor a number in {name_rows(~(text | number))}")
    if text.any() and number.any():
        raise InputError(f"y mixes text and numbers: {labels[text.argmax()]!r} and {labels[number.argmax()]!r}")


def _guess_signal(classes: AnyArray) -> int:
    """Index of the signal among two sorted labels."""
    if isinstance(classes[0], str | bytes):
        lowered = [str(c).lower() for c in classes]
        for signal, background in KNOWN_PAIRS:
            if {background, signal} == set(lowered):
                return lowered.index(signal)
        first, second = (repr(label) for label in classes.tolist())
        raise InputError(f"y has the labels {first} and {second}, and nothing says which is the signal: set pos_label")
    return 1
