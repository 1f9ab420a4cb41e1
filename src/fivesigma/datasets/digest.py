"""Digests of events, by which training events are known again."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from fivesigma._types import AnyArray
from fivesigma.datasets.events import Events

MOST_ROWS = 4096  # digests of training events that a model keeps
_AT_ONCE = 1 << 17  # rows, so that no copy of a large table is made


def events_digest(events: Events) -> str:
    """Digest of features, weights and labels, in their order; writing and reading a file changes nothing."""
    signal = events.is_signal if events.labelled else np.zeros(0, dtype=bool)
    return digest_of(canonical(events.X), events.weight, signal)


def digest_of(features: AnyArray, weight: AnyArray, signal: AnyArray) -> str:
    """64 hexadecimal digits."""
    found = hashlib.sha256(repr(features.shape).encode())
    for values in (features, weight, signal):
        found.update(np.ascontiguousarray(values).data)
    return found.hexdigest()


def canonical(X: AnyArray) -> AnyArray:
    """Features of which equal values have equal bits: one NaN, one zero."""
    return np.ascontiguousarray(np.where(np.isnan(X), np.float32(np.nan), X + np.float32(0)), dtype=np.float32)


def row_digests(X: Any) -> AnyArray:
    """Mix the bits of each row of features into 64; overflow is meant."""
    with np.errstate(over="ignore"):  # what float32 cannot hold is infinite for all of its rows
        bits = canonical(np.asarray(X, dtype=np.float32)).view(np.uint32)
    out = np.zeros(len(X), dtype=np.uint64)
    for column in bits.T:
        out = (out ^ column) * np.uint64(0x9E3779B97F4A7C15)
        out ^= out >> np.uint64(29)
    return out


def rows_to_know_again(X: Any, known: AnyArray | None = None) -> AnyArray:
    """Smallest digests of the rows of a table, ascending, by which other events are found among these.

    Every row whose digest is below the largest of these is here: what share of other events is among these can be told
    from those of them with as small digests. Of no more than 4,096 rows all are here.
    Of anything but numbers nothing is kept. `known` is what was kept of the rows before.
    """
    out = np.zeros(0, dtype=np.uint64) if known is None else known
    try:
        for begin in range(0, X.shape[0], _AT_ONCE):
            out = np.unique(np.concatenate([out, row_digests(X[begin : begin + _AT_ONCE])]))[:MOST_ROWS]
    except (TypeError, ValueError):
        return out
    return out
