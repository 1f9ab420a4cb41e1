"""The Poisson bootstrap: replicas of weighted sums in which each event counts a Poisson number of times."""

from __future__ import annotations

import numpy as np
from scipy.special import pdtr

from fivesigma._types import Array, BoolArray, IntArray

_CHUNK = 1 << 16  # events drawn at once, so that a replica stays in the cache

# A uniform 16-bit integer d gives as many copies as there are thresholds <= d: P(copies > k) to 1 part in 65,536.
_THRESHOLDS = np.round(65536 * pdtr(np.arange(8), 1.0)).astype(np.uint16)


def poisson_counts(n: int, rng: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Draw `n` Poisson counts of mean one."""
    draws = rng.integers(0, 1 << 64, size=-(-n // 4), dtype=np.uint64).view(np.uint16)[:n]
    counts = np.zeros(n, dtype=np.uint8)
    for threshold in _THRESHOLDS:
        counts += (draws >= threshold).view(np.uint8)
    return counts


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
    rng = np.random.default_rng(random_state)
    out = []
    for members in (signal, ~signal):
        w = np.ascontiguousarray(weight[members])
        block_of = np.searchsorted(starts, np.flatnonzero(members), side="right") - 1
        sums = np.zeros((n_boot, starts.size))
        for begin in range(0, w.size, _CHUNK):
            part, blocks = w[begin : begin + _CHUNK], block_of[begin : begin + _CHUNK]
            first = np.append(0, np.flatnonzero(np.diff(blocks)) + 1)
            columns = blocks[first]
            for replica in range(n_boot):
                sums[replica, columns] += np.add.reduceat(part * poisson_counts(part.size, rng), first)
        out.append(np.cumsum(sums, axis=1, out=sums))
    return out[0], out[1]
