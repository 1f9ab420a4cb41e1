"""The Poisson bootstrap: replicas of weighted sums in which each event counts a Poisson number of times."""

from __future__ import annotations

import numpy as np
from scipy.special import pdtr

from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.errors import InputError

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
    """Replicas of the cumulative signal and background yields.

    Parameters
    ----------
    weight, signal : arrays of shape (n_events,)
        In the order in which the sums grow.
    starts : int array of shape (n_blocks,)
        First event of each block, ascending from 0.
    n_boot : int
        Replicas.
    random_state : int
        Seed.

    Returns
    -------
    s, b : arrays of shape (n_boot, n_blocks)
        Sums from the first event to the end of each block.
    """
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
