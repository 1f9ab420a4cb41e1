"""The two roles of weights.

*Physics weights* are expected yields: they are summed to s and b, keep their sign, and are scaled back to the full
yield of each class wherever a subset stands for the whole. *Learner weights* are derived from them: times a class
weight, not negative, of mean one, because the regularisation of learners acts on absolute weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import AnyArray, Array, BoolArray
from fivesigma.errors import InputError

__all__ = [
    "ProcessYield",
    "Yields",
    "balanced_class_weights",
    "check_weights",
    "effective_count",
    "learner_weights",
    "rescale",
    "signal_and_background",
    "split_labels",
    "yields",
]

NEGATIVE_WEIGHTS = ("error", "zero", "abs")
_KNOWN_PAIRS = (("b", "s"), ("background", "signal"), ("bkg", "sig"), ("bg", "sg"))


class ProcessYield(NamedTuple):
    """Yield of one process in a selection."""

    sum_of_weights: float
    effective_count: float
    events: int


@dataclass(frozen=True)
class Yields:
    """Expected signal and background events of a selection.

    Attributes
    ----------
    s, b : float
        Sums of the physics weights; b holds no b_reg.
    effective_s, effective_b : float
        Effective counts (sum of w)^2 / sum of w^2: how many unweighted events would be as precise.
    by_process : mapping of str to ProcessYield
        Empty if no processes were given.
    """

    s: float
    b: float
    effective_s: float
    effective_b: float
    by_process: Mapping[str, ProcessYield] = field(default_factory=dict)


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


def split_labels(y: ArrayLike, pos_label: Any = None) -> tuple[BoolArray, AnyArray]:
    """Find out which events are signal.

    Parameters
    ----------
    y : array-like of shape (n_events,)
        Two labels.
    pos_label : label, optional
        The signal. If not given: the larger number, or the signal of a known pair such as s/b or signal/background;
        for any other pair the last in sorted order, with a warning.

    Returns
    -------
    signal : bool array of shape (n_events,)
    classes : array of shape (2,)
        (background, signal).

    Examples
    --------
    >>> from fivesigma.yields import split_labels
    >>> signal, classes = split_labels(["Signal", "background", "Signal"])
    >>> signal.tolist(), classes.tolist()
    ([True, False, True], ['background', 'Signal'])
    """
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
        for background, signal in _KNOWN_PAIRS:
            if {background, signal} == set(lowered):
                return lowered.index(signal)
        warnings.warn(
            f"taking {classes.tolist()[1]!r} of {classes.tolist()} as the signal; set pos_label to say which it is",
            stacklevel=3,
        )
    return 1


def effective_count(weight: Array) -> float:
    """(Sum of w)^2 / sum of w^2, zero if there are no events."""
    heaviest = float(np.abs(weight).max(initial=0.0))
    if heaviest == 0:
        return 0.0
    shares = weight / heaviest  # so that the squares of tiny weights do not vanish, nor those of huge ones overflow
    return float(shares.sum()) ** 2 / float(np.square(shares).sum())


def signal_and_background(weight: Array, signal: BoolArray) -> tuple[float, float]:
    """Sums of the weights of signal and of background."""
    return float(weight[signal].sum()), float(weight[~signal].sum())


def yields(
    selected: ArrayLike, y: ArrayLike, sample_weight: ArrayLike, process: ArrayLike | None = None, pos_label: Any = None
) -> Yields:
    """Yields of a selection.

    Parameters
    ----------
    selected : array-like of bool, shape (n_events,)
        True for events that are kept.
    y, sample_weight : array-like of shape (n_events,)
        Labels and physics weights, negative ones included with their sign.
    process : array-like of shape (n_events,), optional
        Name of the process of each event.
    pos_label : label, optional
        The signal, as in `split_labels`.

    Examples
    --------
    >>> from fivesigma.yields import yields
    >>> kept = yields([True, True, False], y=[1, 0, 1], sample_weight=[0.5, 2.0, 0.5])
    >>> kept.s, kept.b
    (0.5, 2.0)
    """
    signal, _ = split_labels(y, pos_label)
    weight = check_weights(sample_weight, signal.size)
    chosen = np.asarray(selected)
    if chosen.dtype != np.bool_ or chosen.shape != signal.shape:
        raise InputError(f"selected must be {signal.size} booleans, got {chosen.dtype} of shape {chosen.shape}")
    w_s, w_b = weight[chosen & signal], weight[chosen & ~signal]
    by_process: dict[str, ProcessYield] = {}
    if process is not None:
        names = np.asarray(process).astype(np.str_)
        if names.shape != signal.shape:
            raise InputError(f"process has {names.size} entries for {signal.size} events")
        for name in np.unique(names).tolist():
            w = weight[chosen & (names == name)]
            by_process[name] = ProcessYield(float(w.sum()), effective_count(w), w.size)
    return Yields(float(w_s.sum()), float(w_b.sum()), effective_count(w_s), effective_count(w_b), by_process)


def rescale(weight: Array, signal: BoolArray, totals: tuple[float, float]) -> Array:
    """Scale each class of a subset to its full yield.

    Parameters
    ----------
    weight, signal : arrays of shape (n_subset,)
        Physics weights of the subset and which of its events are signal.
    totals : (float, float)
        Full yields of signal and background.

    Returns
    -------
    array
        New weights; the input is not changed.
    """
    out = weight.copy()
    for name, members, total in (("signal", signal, totals[0]), ("background", ~signal, totals[1])):
        part = float(weight[members].sum())
        if not part > 0:
            raise InputError(
                f"the {name} of a subset of {weight.size} events has a sum of weights of {part:g}; it must be > 0"
            )
        out[members] *= total / part
    return out


def learner_weights(
    weight: Array, signal: BoolArray, class_weights: tuple[float, float] = (1.0, 1.0), negative: str = "error"
) -> Array:
    """Weights for a learner: physics weight times class weight, not negative, mean one.

    Parameters
    ----------
    weight, signal : arrays of shape (n_events,)
        Physics weights and which events are signal.
    class_weights : (float, float), default=(1.0, 1.0)
        Factors of signal and background.
    negative : {"error", "zero", "abs"}, default="error"
        What a learner sees of a negative weight.
    """
    if negative not in NEGATIVE_WEIGHTS:
        raise InputError(f"negative_weights must be one of {', '.join(map(repr, NEGATIVE_WEIGHTS))}, got {negative!r}")
    below = weight < 0
    if below.any():
        if negative == "error":
            raise InputError(
                f"sample_weight is negative in {name_rows(below)}; learners cannot take that: set negative_weights to "
                "'zero' or 'abs' for them (s and b keep the sign)"
            )
        weight = np.abs(weight) if negative == "abs" else np.maximum(weight, 0.0)
    if not min(class_weights) >= 0:
        raise InputError(f"class weights must be >= 0, got {class_weights}")
    out = np.where(signal, class_weights[0], class_weights[1]) * weight
    mean = float(out.mean())
    if not 0 < mean < np.inf:
        raise InputError(
            f"learner weights at class weights {class_weights} have mean {mean:g}; no learner can use them"
        )
    out /= mean
    return out


def balanced_class_weights(weight: Array, signal: BoolArray, negative: str = "error") -> tuple[float, float]:
    """Class weights at which both classes have the same sum of learner weights."""
    positive = learner_weights(weight, signal, negative=negative)
    total_s, total_b = signal_and_background(positive, signal)
    if not (total_s > 0 and total_b > 0):
        raise InputError("one class has no positive sample_weight; signal and background both need some")
    return 1.0 / total_s, 1.0 / total_b
