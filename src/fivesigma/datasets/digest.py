"""Digests of events, by which training events are known again."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from fivesigma._types import AnyArray
from fivesigma.datasets.events import Events

MOST_ROWS = 4096  # digests of training events that a model keeps
_AT_ONCE = 1 << 17  # rows, so that no copy of a large table is made
_BLOCK = 1 << 12  # rows that are hashed at a time, so that they stay in the processor's cache
_DISTINCT = 0.9  # share of different rows from which on equal features mean equal events


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
    out = np.zeros(len(X), dtype=np.uint64)
    for begin in range(0, len(X), _BLOCK):
        with np.errstate(over="ignore"):  # what float32 cannot hold is infinite for all of its rows
            columns = canonical(np.asarray(X[begin : begin + _BLOCK], dtype=np.float32).T)
        digests = out[begin : begin + _BLOCK]
        for bits in columns.view(np.uint32):
            digests ^= bits
            digests *= np.uint64(0x9E3779B97F4A7C15)
            digests ^= digests >> np.uint64(29)
    return out


def rows_to_know_again(X: Any, known: AnyArray | None = None) -> AnyArray:
    """Smallest digests of the rows of a table, ascending, by which other events are found among these.

    Every row whose digest is below the largest of these is here: what share of other events is among these can be told
    from those of them with as small digests. Of no more than 4,096 rows all are here.
    Of anything but numbers nothing is kept. `known` is what was kept of the rows before.
    """
    out = np.zeros(0, dtype=np.uint64) if known is None else known
    with suppress(TypeError, ValueError):
        for begin in range(0, X.shape[0], _AT_ONCE):
            out = np.unique(np.concatenate([out, row_digests(X[begin : begin + _AT_ONCE])]))[:MOST_ROWS]
    return out


class Recognised(NamedTuple):
    """Rows that have the features of training events."""

    seen: int
    told: int  # rows of which it can be told whether they do
    rows: int
    distinct: bool  # whether rows differ, so that equal features mean equal events

    @property
    def share(self) -> float:
        """Share of the rows."""
        return self.seen / max(self.told, 1)

    def __str__(self) -> str:
        if self.told == self.rows:
            return f"{self.seen:,} of {self.rows:,} events"
        return f"about {100 * self.share:.3g} % of the events"


def recognise(X: Any, known: AnyArray) -> Recognised:
    """Find training events among the rows of a table, by what `rows_to_know_again` kept of them."""
    if not known.size:
        return Recognised(0, 0, len(X), distinct=False)
    here = row_digests(X)
    # Only the smallest digests of many training events are known, so that only rows with as small ones can be told.
    told = here[here <= known[-1]] if known.size == MOST_ROWS else here
    at = np.minimum(np.searchsorted(known, told), known.size - 1)
    seen = int(np.count_nonzero(known[at] == told))
    return Recognised(seen, told.size, here.size, seen > 0 and np.unique(told).size > _DISTINCT * told.size)
