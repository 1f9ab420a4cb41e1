"""The two roles of weights.

*Physics weights* are expected yields: they are summed to s and b, keep their sign, and are scaled back to the full
yield of each class wherever a subset stands for the whole. *Learner weights* are derived from them: times a class
weight, not negative, of mean one, because the regularisation of learners acts on absolute weights.
"""

from __future__ import annotations

import numpy as np

from fivesigma._types import Array, BoolArray
from fivesigma.errors import InputError
from fivesigma.yields.checks import LARGEST, name_rows
from fivesigma.yields.selection import signal_and_background

NEGATIVE_WEIGHTS = ("error", "zero", "abs")


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

    Examples
    --------
    >>> import numpy as np
    >>> from fivesigma.yields import rescale
    >>> rescale(np.ones(4), np.array([True, False, False, False]), (10.0, 300.0)).tolist()
    [10.0, 100.0, 100.0, 100.0]
    """
    out = weight.copy()
    for name, members, total in (("signal", signal, totals[0]), ("background", ~signal, totals[1])):
        out[members] *= scale_factor(f"{name} of a subset of {weight.size} events", float(weight[members].sum()), total)
    return out


def scale_factor(what: str, present: float, total: float) -> float:
    """Factor that scales a sum of weights to a full yield."""
    if not present > 0:
        raise InputError(f"the {what} has a sum of weights of {present:g}; it must be > 0")
    factor = total / present
    if not 0 <= factor <= LARGEST:
        raise InputError(f"the {what} has a sum of weights of {present:g}, and it cannot be scaled to {total:g}")
    return factor


def learner_weights(
    weight: Array, signal: BoolArray, class_weights: tuple[float, float] = (1.0, 1.0), negative: str = "error"
) -> Array:
    """Weights for a learner: physics weight times class weight, not negative, mean one: w_i c(y_i) / mean(w c).

    Parameters
    ----------
    weight, signal : arrays of shape (n_events,)
        Physics weights and which events are signal.
    class_weights : (float, float), default=(1.0, 1.0)
        Factors of signal and background.
    negative : {"error", "zero", "abs"}, default="error"
        What a learner sees of a negative weight.

    Examples
    --------
    >>> import numpy as np
    >>> from fivesigma.yields import learner_weights
    >>> learner_weights(np.array([0.1, 2.0, 1.0]), np.array([True, False, False]), (30.0, 1.0)).tolist()
    [1.5, 1.0, 0.5]
    """
    if negative not in NEGATIVE_WEIGHTS:
        raise InputError(f"negative_weights must be one of {', '.join(map(repr, NEGATIVE_WEIGHTS))}, got {negative!r}")
    below = weight < 0
    if below.any():
        if negative == "error":
            raise InputError(
                f"sample_weight is negative in {name_rows(below)}; learners cannot take that: set negative_weights or "
                "--negative-weights to 'zero' or 'abs' for them (s and b keep the sign)"
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
    """Class weights at which both classes have the same sum of learner weights.

    Examples
    --------
    >>> import numpy as np
    >>> from fivesigma.yields import balanced_class_weights
    >>> s, b = balanced_class_weights(np.array([0.1, 2.0, 1.0]), np.array([True, False, False]))
    >>> round(s / b, 6)
    30.0
    """
    positive = learner_weights(weight, signal, negative=negative)
    total_s, total_b = signal_and_background(positive, signal)
    if not (total_s > 0 and total_b > 0):
        raise InputError("one class has no positive sample_weight; signal and background both need some")
    return 1.0 / total_s, 1.0 / total_b
