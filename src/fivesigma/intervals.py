"""Bootstrap intervals of fixed selections: of one, and of the difference of two on the same events."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fivesigma._types import Array, BoolArray
from fivesigma.errors import InputError
from fivesigma.poisson import interval_ends, poisson_sums
from fivesigma.significance import Utility

__all__ = ["Paired", "paired_difference", "selection_interval"]

Interval = tuple[float, float]


class Paired(NamedTuple):
    """Significances of two selections of the same events, and their difference, each with its interval."""

    first: float
    second: float
    difference: float  # second less first
    first_interval: Interval
    second_interval: Interval
    difference_interval: Interval


def selection_interval(
    selected: BoolArray,
    signal: BoolArray,
    weight: Array,
    utility: Utility,
    *,
    level: float = 0.68,
    n_boot: int = 1000,
    random_state: int = 0,
) -> Interval:
    """Interval of the significance of a selection, from the statistics of the simulated events only.

    Examples
    --------
    >>> import numpy as np
    >>> from fivesigma import AMS2
    >>> signal = np.arange(1000) % 2 == 0
    >>> low, high = selection_interval(np.ones(1000, bool), signal, np.where(signal, 0.1, 1.0), AMS2())
    >>> low < float(AMS2().value(50.0, 500.0)) < high
    True
    """
    return paired_difference(
        selected, selected, signal, weight, utility, level=level, n_boot=n_boot, random_state=random_state
    ).first_interval


def paired_difference(
    first: BoolArray,
    second: BoolArray,
    signal: BoolArray,
    weight: Array,
    utility: Utility,
    *,
    level: float = 0.68,
    n_boot: int = 1000,
    random_state: int = 0,
) -> Paired:
    """Compare two selections of the same events.

    Each replica gives every event a Poisson number of copies, the same for both selections, so what the two have in
    common does not widen the interval of their difference.

    Parameters
    ----------
    first, second, signal : bool arrays of shape (n_events,)
        Which events each selection keeps, and which are signal.
    weight : array of shape (n_events,)
        Physics weights, scaled so that the events stand for the whole experiment.
    utility : Utility
        The significance.
    level : float, default=0.68
        Central probability.
    n_boot : int, default=1000
        Replicas.
    random_state : int, default=0
        Seed.

    Returns
    -------
    Paired

    Examples
    --------
    >>> import numpy as np
    >>> from fivesigma import AMS2
    >>> signal = np.arange(1000) % 2 == 0
    >>> everything = np.ones(1000, bool)
    >>> paired_difference(everything, everything, signal, np.ones(1000), AMS2()).difference_interval
    (0.0, 0.0)
    """
    quantiles = interval_ends(level, n_boot)
    # In the order first only, both, second only, both selections are differences of cumulative sums.
    groups = [first & ~second, first & second, second & ~first]
    order = np.concatenate([np.flatnonzero(g) for g in groups])
    starts = np.cumsum([0, *(np.count_nonzero(g) for g in groups[:-1])])
    z = [_significance(utility, signal, weight, chosen) for chosen in (first, second)]
    s, b = poisson_sums(weight[order], signal[order], starts, n_boot, random_state)
    replicas = [_values(utility, s[:, 1], b[:, 1]), _values(utility, s[:, 2] - s[:, 0], b[:, 2] - b[:, 0])]
    if not np.isfinite(replicas[1] - replicas[0]).any():
        raise InputError("no replica keeps any background; there are too few events for an interval")
    low, high = (
        np.nanquantile([replicas[0], replicas[1], replicas[1] - replicas[0]], q, axis=1).tolist() for q in quantiles
    )
    return Paired(z[0], z[1], z[1] - z[0], *zip(low, high, strict=True))


def _significance(utility: Utility, signal: BoolArray, weight: Array, selected: BoolArray) -> float:
    s, b = float(weight[selected & signal].sum()), float(weight[selected & ~signal].sum())
    if s < 0 or b <= 0:
        raise InputError(f"the selection keeps s = {s:g} and b = {b:g}; significance needs s >= 0 and b > 0")
    return float(utility.value(s, b))


def _values(utility: Utility, s: Array, b: Array) -> Array:
    """Significance of replicas, NaN where no background is left."""
    z = np.full(s.shape, np.nan)
    counts = (s >= 0) & (b > 0)
    z[counts] = utility.value(s[counts], b[counts])
    return z
