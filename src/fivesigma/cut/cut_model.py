"""The best cut on modelled yields: the rule "model".

The highest point of a measured curve follows its noise. Here the yields are modelled by smooth curves instead, in two
views of the same ranked sample that fail in different ways: signal and background along the selected fraction, which
needs few background events, but a smooth curve over all events can be wrong at the cut; and signal along the
background's efficiency, with the background as it is. `fivesigma.cut.yield_model` has both.

The cut keeps the geometric mean of the fractions that are best in the two views: the more effective background events
it keeps, the more the second view is trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fivesigma._types import Array, BoolArray, IntArray
from fivesigma.cut.yield_model import RankedYields
from fivesigma.significance import Utility

_CELLS = 256
_FIRST = 10  # events in the tightest cell
_TRUST = 50.0  # effective background events at the cut with which both views have the same weight


Variances = Callable[[IntArray], tuple[Array, Array]]


class ModelledCurve(NamedTuple):
    """Modelled significance at some of the cuts, and the one that the rule takes.

    Attributes
    ----------
    cuts : int array
        Indices of the cuts, ascending.
    by_fraction, by_background : arrays
        Significance in the two views; NaN where a cut is not valid. They are equal if there is only the first.
    best : int
        Index of the cut that the rule takes; it is valid.
    """

    cuts: IntArray
    by_fraction: Array
    by_background: Array
    best: int


def model_curve(  # noqa: PLR0917 - the ranked sample, in the order of its columns
    s: Array, b: Array, last: IntArray, variances: Variances, valid: BoolArray, utility: Utility
) -> ModelledCurve | None:
    """Model the yields of a ranked sample, and find the best of its valid cuts.

    Parameters
    ----------
    s, b : arrays of shape (n_cuts,)
        Yields that each cut keeps, from the tightest cut to none.
    last : int array of shape (n_cuts,)
        Rank of the last event that each cut keeps.
    variances : callable
        Sums of the squared weights of signal and of background that some of the cuts keep, by their ascending indices.
    valid : bool array of shape (n_cuts,)
        Cuts that may be chosen; at least one.
    utility : Utility
        The significance.

    Returns
    -------
    ModelledCurve or None
        None if there are too few events or too few distinct scores to model.
    """
    cuts = _grid(last, valid)
    fraction = (last[cuts] + 1.0) / (last[-1] + 1.0)
    measured = RankedYields(fraction, s[cuts], b[cuts], *variances(cuts))
    if not measured.can_be_modelled:
        return None
    allowed = valid[cuts]
    first = _values(utility, *measured.by_fraction(), allowed)
    signal = measured.by_background()
    second = first if signal is None else _values(utility, signal, measured.b, allowed)
    found = [int(np.nanargmax(first)), int(np.nanargmax(second))]
    count = float(np.sqrt(np.prod(measured.b[found] / measured.background_weight[found])))
    trust = count / (count + _TRUST)
    wanted = np.log(fraction[found]) @ [1 - trust, trust]
    distance = np.where(allowed, np.abs(np.log(fraction) - wanted), np.inf)
    return ModelledCurve(cuts, first, second, int(cuts[np.argmin(distance)]))


def _grid(last: IntArray, valid: BoolArray) -> IntArray:
    """A few hundred cuts, even in the logarithm of the fraction, with the tightest and the loosest valid one."""
    cuts = np.searchsorted(last, grid_ranks(int(last[-1]) + 1)).clip(0, last.size - 1)
    first, end = int(np.argmax(valid)), valid.size - 1 - int(np.argmax(valid[::-1]))
    return np.unique(np.concatenate([cuts, [first, end, last.size - 1]]))


def grid_ranks(n_events: int) -> IntArray:
    """Ranks of the last events of the cells, even in the logarithm of the fraction."""
    ends = np.geomspace(min(_FIRST, n_events), n_events, _CELLS) - 1
    return np.floor(ends).astype(np.intp)


def _values(utility: Utility, s: Array, b: Array, allowed: BoolArray) -> Array:
    z = np.full(s.size, np.nan)
    z[allowed] = utility.value(s[allowed], b[allowed])
    return z
