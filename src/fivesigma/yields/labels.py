"""Labels: which of two means signal."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import AnyArray, BoolArray
from fivesigma.errors import InputError
from fivesigma.yields.checks import name_rows

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
