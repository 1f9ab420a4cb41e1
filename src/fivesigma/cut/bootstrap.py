"""The Poisson bootstrap: replicas of weighted sums in which each event stands a Poisson number of times.

From them come the intervals of a fixed selection, of the difference of two selections of the same events, and of what
a rule chooses anew on each replica. They cover the statistics of the simulated events only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import pdtr

from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.errors import InputError
from fivesigma.significance import Utility
from fivesigma.yields import signal_and_background, significance_of, significance_or_nan

Interval = tuple[float, float]

_CHUNK = 1 << 17  # events drawn at once, so that a replica stays in the cache

# A uniform 16-bit integer d gives as many copies as there are thresholds <= d: P(copies > k) to 1 part in 65,536.
_THRESHOLDS = np.round(65536 * pdtr(np.arange(8), 1.0)).astype(np.uint16)


class PoissonCounts:
    """A source of Poisson counts of mean one, reproducible, that fills the same memory again and again."""

    def __init__(self, random_state: int, largest: int) -> None:
        self._bits = np.random.SFC64(random_state)
        self._counts = np.empty(largest, dtype=np.uint8)
        self._more = np.empty(largest, dtype=np.bool_)

    def draw(self, n: int) -> AnyArray:
        """Return `n` counts; the next draw overwrites them."""
        draws = self._bits.random_raw(-(-n // 4)).view(np.uint16)[:n]
        counts, more = self._counts[:n], self._more[:n]
        np.greater_equal(draws, _THRESHOLDS[0], out=counts.view(np.bool_))
        for threshold in _THRESHOLDS[1:]:
            np.greater_equal(draws, threshold, out=more)
            counts += more.view(np.uint8)
        return counts


def interval_ends(level: float, n_boot: int) -> tuple[float, float]:
    """Check what a user asks of a bootstrap, and return the quantiles of the replicas that bound its interval."""
    if not 0 < level < 1:
        raise InputError(f"level must be between 0 and 1, got {level!r}")
    if n_boot < 1:
        raise InputError(f"n_boot must be at least 1, got {n_boot!r}")
    return 0.5 - level / 2, 0.5 + level / 2


def poisson_sums(
    weight: Array, signal: BoolArray, starts: IntArray, n_boot: int, random_state: int
) -> tuple[Array, Array]:
    """Replicas of the cumulative signal and background yields."""
    largest = min(_CHUNK, weight.size)
    source, buffer = PoissonCounts(random_state, largest), np.empty(largest)
    out = []
    for members in (signal, ~signal):
        w = weight[members]
        block_of = np.searchsorted(starts, np.flatnonzero(members), side="right") - 1
        sums = np.zeros((n_boot, starts.size))
        for begin in range(0, w.size, _CHUNK):
            part, blocks = w[begin : begin + _CHUNK], block_of[begin : begin + _CHUNK]
            first = np.append(0, np.flatnonzero(np.diff(blocks)) + 1)
            columns, copies = blocks[first], buffer[: part.size]
            for replica in range(n_boot):
                copies[:] = source.draw(part.size)  # a cast and a product are faster apart
                copies *= part
                sums[replica, columns] += np.add.reduceat(copies, first)
        out.append(np.cumsum(sums, axis=1, out=sums))
    return out[0], out[1]


class Paired(NamedTuple):
    """Significances of two selections of the same events, and their difference, each with its interval."""

    first: float
    second: float
    difference: float  # second less first
    first_interval: Interval
    second_interval: Interval
    difference_interval: Interval
    difference_error: float  # standard deviation over the replicas

    def ahead(self, first: str, second: str) -> str:
        """Say which of the two is ahead, by their names, where the difference is larger than two standard errors."""
        if abs(self.difference) <= 2 * self.difference_error:
            return "these events do not tell the two apart by two standard errors"
        return f"{second if self.difference > 0 else first} is ahead on these events, by more than two standard errors"


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
    common does not widen the interval of their difference. The interval of one selection is `Paired.first_interval`.

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
    z = [significance_of(utility, *signal_and_background(weight, signal, chosen)) for chosen in (first, second)]
    s, b = poisson_sums(weight[order], signal[order], starts, n_boot, random_state)
    replicas = [
        significance_or_nan(utility, s[:, 1], b[:, 1]),
        significance_or_nan(utility, s[:, 2] - s[:, 0], b[:, 2] - b[:, 0]),
    ]
    difference = replicas[1] - replicas[0]
    if not np.isfinite(difference).any():
        raise InputError("no replica keeps any background; there are too few events for an interval")
    low, high = (np.nanquantile([*replicas, difference], q, axis=1).tolist() for q in quantiles)
    one, two, between = zip(low, high, strict=True)
    return Paired(z[0], z[1], z[1] - z[0], one, two, between, float(np.nanstd(difference)))
