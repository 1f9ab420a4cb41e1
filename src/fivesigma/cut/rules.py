"""The rules by which one of many cuts is chosen.

`RULES` is their one registry: `scan`, the parameter `cut` of estimators, files, clusters and the command line read it.

The highest point of a measured curve follows its noise. The rule "model" looks at yields that are modelled by smooth
curves instead, in two views of the same ranked sample that fail in different ways: signal and background along the
selected fraction, which needs few background events, but a smooth curve over all events can be wrong at the cut; and
signal along the background's efficiency, with the background as it is. `fivesigma.cut.yield_model` has both. Its cut
keeps the geometric mean of the fractions that are best in the two views: the more effective background events it keeps,
the more the second view is trusted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fivesigma._types import Array, BoolArray, IntArray
from fivesigma.cut.ranking import Cuts
from fivesigma.cut.yield_model import RankedYields
from fivesigma.significance import Utility
from fivesigma.yields import significance_or_nan, valid_yields

DEFAULT_RULE = "model"
PLATEAU = 0.5  # depth of the plateau in standard errors of the peak
PLAUSIBLE = 2.0  # standard errors below the peak beyond which the rule "model" takes no cut, whatever it models
SMOOTHING = 0.02  # width of the moving average, as a share of all events
_CELLS = 256
_FIRST = 10  # events in the tightest cell
_TRUST = 50.0  # effective background events at the cut with which both views have the same weight


class Seen(NamedTuple):
    """What a rule sees of cuts, from the tightest to the one that keeps all events."""

    z: Array  # (n_cuts,): significance of each cut; NaN is excluded, at least one is not NaN
    last: IntArray  # (n_cuts,): rank of the last event that each cut keeps
    error_at: Callable[[int], float]  # standard error of the significance at a cut
    s: Array  # (n_cuts,): yields
    b: Array
    # sums of the squared weights of signal and of background that some of the cuts keep, by their ascending numbers
    variances: Callable[[IntArray], tuple[Array, Array]]
    value: Callable[[IntArray, Array, Array], Array]  # significance of other yields s and b at some of the cuts


class CutValue(ABC):
    """Significance of the yields of cuts."""

    @abstractmethod
    def value(self, at: IntArray, s: Array, b: Array) -> Array:
        """Significance of valid yields of some of the cuts, or of replicas of them along the first axis."""

    def value_or_nan(self, at: IntArray, s: Array, b: Array) -> Array:
        """The same, NaN where yields are not valid."""
        valid = valid_yields(s, b)
        z = np.full(s.shape, np.nan)
        z[valid] = self.value(np.broadcast_to(at, s.shape)[valid], s[valid], b[valid])
        return z

    def curve(self, cuts: Cuts, valid: BoolArray) -> Array:
        """Of all cuts, NaN where they are not valid."""
        z = np.full(valid.size, np.nan)
        z[valid] = self.value(np.flatnonzero(valid), cuts.s[valid], cuts.b[valid])
        return z

    def replica_values(self, cut: int, s: Array, b: Array, random_state: int) -> Array:  # noqa: ARG002 - others draw
        """Of replicas of the yields of one cut, NaN where they are not valid."""
        return self.value_or_nan(np.full(s.size, cut), s, b)

    def errors(self, cuts: Cuts, at: IntArray) -> Array:
        """How far Z moves if s and b each move up by their own simulation error, in quadrature."""
        s, b = cuts.s[at], cuts.b[at]
        s2, b2 = cuts.variances(at)
        z = self.value(at, s, b)
        return np.hypot(self.value(at, s + np.sqrt(s2), b) - z, self.value(at, s, b + np.sqrt(b2)) - z)

    def seen(self, cuts: Cuts, z: Array) -> Seen:
        """What a rule sees of these cuts."""

        def error_at(cut: int) -> float:
            return float(self.errors(cuts, np.array([cut]))[0])

        return Seen(z, cuts.last, error_at, cuts.s, cuts.b, cuts.variances, self.value)


class KnownBackground(CutValue):
    """A utility of the yields alone."""

    def __init__(self, utility: Utility) -> None:
        self.utility = utility

    def value(self, at: IntArray, s: Array, b: Array) -> Array:  # noqa: ARG002, D102 - as in CutValue
        return self.utility.value(s, b)

    def curve(self, cuts: Cuts, valid: BoolArray) -> Array:  # noqa: D102 - there may be millions of them
        return significance_or_nan(self.utility, cuts.s, cuts.b, valid)


def take_peak(seen: Seen) -> int:
    """Take the highest point, and the tightest of equals."""
    return int(np.argmax(seen.z == np.fmax.reduce(seen.z)))


def take_plateau(seen: Seen) -> int:
    """Take the middle of the widest stretch of cuts within half a standard error of the peak."""
    z, last, top = seen.z, seen.last, take_peak(seen)
    high = np.flatnonzero(z >= z[top] - PLATEAU * seen.error_at(top))  # NaN compares as False
    breaks = np.flatnonzero(np.diff(high) > 1)
    first, end = high[np.append(0, breaks + 1)], high[np.append(breaks, high.size - 1)]
    widest = int(np.argmax(last[end] - last[first]))
    middle = (last[first[widest]] + last[end[widest]]) / 2
    inside = np.arange(first[widest], end[widest] + 1)
    return int(inside[np.argmin(np.abs(last[inside] - middle))])


def take_smooth(seen: Seen) -> int:
    """Take the peak of the moving average over the valid cuts."""
    z, last = seen.z, seen.last
    valid = np.flatnonzero(np.isfinite(z))
    rank = last[valid]
    half = SMOOTHING / 2 * (last[-1] + 1)
    total = np.append(0.0, np.cumsum(z[valid]))
    low = np.searchsorted(rank, rank - half, side="left")
    high = np.searchsorted(rank, rank + half, side="right")
    return int(valid[np.argmax((total[high] - total[low]) / (high - low))])


def take_modelled(seen: Seen) -> int | None:
    """Take the best cut for modelled yields; None where they cannot be modelled."""
    top = int(np.nanargmax(seen.z))
    plausible = seen.z >= seen.z[top] - PLAUSIBLE * seen.error_at(top)  # NaN compares as False
    modelled = model_curve(seen, plausible)
    return None if modelled is None else modelled.best


class ModelledCurve(NamedTuple):
    """Modelled significance at some of the cuts, and the one that the rule takes."""

    cuts: IntArray  # indices of the cuts, ascending
    # significance in the two views; NaN where a cut is not valid. They are equal if there is only the first
    by_fraction: Array
    by_background: Array
    best: int  # index of the cut that the rule takes; it is valid


def model_curve(seen: Seen, valid: BoolArray) -> ModelledCurve | None:
    """Model the yields of a ranked sample, and find the best of its valid cuts, of which there is at least one."""
    last = seen.last
    cuts = _grid(last, valid)
    fraction = (last[cuts] + 1.0) / (last[-1] + 1.0)
    measured = RankedYields(fraction, seen.s[cuts], seen.b[cuts], *seen.variances(cuts))
    if not measured.can_be_modelled:
        return None
    allowed = np.flatnonzero(valid[cuts])

    def values(s: Array, b: Array) -> Array:
        z = np.full(cuts.size, np.nan)
        z[allowed] = seen.value(cuts[allowed], s[allowed], b[allowed])
        return z

    first = values(*measured.by_fraction())
    signal = measured.by_background()
    second = first if signal is None else values(signal, measured.b)
    found = [int(np.nanargmax(first)), int(np.nanargmax(second))]
    count = float(np.sqrt(np.prod(measured.b[found] / measured.background_weight[found])))
    trust = count / (count + _TRUST)
    wanted = np.log(fraction[found]) @ [1 - trust, trust]
    nearest = allowed[np.argmin(np.abs(np.log(fraction[allowed]) - wanted))]
    return ModelledCurve(cuts, first, second, int(cuts[nearest]))


def _grid(last: IntArray, valid: BoolArray) -> IntArray:
    """A few hundred cuts, even in the logarithm of the fraction, with the tightest and the loosest valid one."""
    cuts = np.searchsorted(last, grid_ranks(int(last[-1]) + 1)).clip(0, last.size - 1)
    first, end = int(np.argmax(valid)), valid.size - 1 - int(np.argmax(valid[::-1]))
    return np.unique(np.concatenate([cuts, [first, end, last.size - 1]]))


def grid_ranks(n_events: int) -> IntArray:
    """Ranks of the last events of the cells, even in the logarithm of the fraction."""
    ends = np.geomspace(min(_FIRST, n_events), n_events, _CELLS) - 1
    return np.floor(ends).astype(np.intp)


#: The rules by name: each gives the number of the cut that it takes; None if it can take none.
RULES: dict[str, Callable[[Seen], int | None]] = {
    "model": take_modelled,
    "plateau": take_plateau,
    "peak": take_peak,
    "smooth": take_smooth,
}


def choose(rule: str, seen: Seen) -> tuple[str, int]:
    """The rule that was used, which is the plateau where another can take no cut, and the number of its cut."""
    found = RULES[rule](seen)
    return ("plateau", take_plateau(seen)) if found is None else (rule, found)
