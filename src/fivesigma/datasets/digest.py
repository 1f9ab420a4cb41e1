"""Digests of events, by which training events are known again."""

from __future__ import annotations

import hashlib

import numpy as np

from fivesigma._types import AnyArray
from fivesigma.datasets.events import Events

__all__ = ["events_digest", "row_digests"]


def events_digest(events: Events) -> str:
    """Digest of features, weights and labels, in their order; writing and reading a file changes nothing.

    Examples
    --------
    >>> from fivesigma.datasets import make_htautau
    >>> events_digest(make_htautau(200)) == events_digest(make_htautau(200))
    True
    """
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


def row_digests(X: AnyArray) -> AnyArray:
    """Mix the bits of each row of features into 64; overflow is meant."""
    bits = canonical(X).view(np.uint32)
    out = np.zeros(len(X), dtype=np.uint64)
    for column in bits.T:
        out = (out ^ column) * np.uint64(0x9E3779B97F4A7C15)
        out ^= out >> np.uint64(29)
    return out
