"""The rules by which one of many cuts is chosen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.cut.cut_model import Variances, model_curve
from fivesigma.significance import Utility

RULES = ("model", "plateau", "peak", "smooth")
DEFAULT_RULE = "model"
PLATEAU = 0.5  # depth of the plateau in standard errors of the peak
PLAUSIBLE = 2.0  # standard errors below the peak beyond which the rule "model" takes no cut, whatever it models
SMOOTHING = 0.02  # width of the moving average, as a share of all events


def choose(rule: str, z: Array, last: IntArray, error_at: Callable[[int], float]) -> int:
    """Index of the cut that the rule takes.

    Parameters
    ----------
    rule : str
        One of `RULES` but "model".
    z : array
        Significance of each cut; NaN is excluded, at least one is not NaN.
    last : int array
        Rank of the last event that each cut keeps.
    error_at : callable
        Standard error of the significance at a cut.
    """
    peak = np.fmax.reduce(z)
    top = int(np.argmax(z == peak))
    if rule == "peak":
        return top
    if rule == "smooth":
        return _smooth_peak(z, last)
    high = np.flatnonzero(z >= peak - PLATEAU * error_at(top))  # NaN compares as False
    breaks = np.flatnonzero(np.diff(high) > 1)
    first, end = high[np.append(0, breaks + 1)], high[np.append(breaks, high.size - 1)]
    widest = int(np.argmax(last[end] - last[first]))
    middle = (last[first[widest]] + last[end[widest]]) / 2
    inside = np.arange(first[widest], end[widest] + 1)
    return int(inside[np.argmin(np.abs(last[inside] - middle))])


def choose_by_model(  # noqa: PLR0917 - one row of replicas, or the sample itself
    utility: Utility,
    s: Array,
    b: Array,
    variances: Variances,
    z: Array,
    last: IntArray,
    error_at: Callable[[int], float],
) -> int | None:
    """Index of the cut that the rule "model" takes; None where the yields cannot be modelled."""
    top = int(np.nanargmax(z))
    plausible = z >= z[top] - PLAUSIBLE * error_at(top)  # NaN compares as False
    modelled = model_curve(s, b, last, variances, plausible, utility)
    return None if modelled is None else modelled.best


def _smooth_peak(z: Array, last: IntArray) -> int:
    """Peak of the moving average over the valid cuts."""
    valid = np.flatnonzero(np.isfinite(z))
    rank = last[valid]
    half = SMOOTHING / 2 * (last[-1] + 1)
    total = np.append(0.0, np.cumsum(z[valid]))
    low = np.searchsorted(rank, rank - half, side="left")
    high = np.searchsorted(rank, rank + half, side="right")
    return int(valid[np.argmax((total[high] - total[low]) / (high - low))])
