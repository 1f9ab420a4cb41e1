"""How fast exact categories are."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable

import numpy as np

from benchmarks.harness import Figure, benchmark, best_times
from fivesigma._types import Array, BoolArray
from fivesigma.categories import categorise

N_EVENTS = 1_000_000
N_CATEGORIES = 10


def events(n: int, seed: int = 0) -> tuple[Array, BoolArray, Array]:
    """Two Gaussians 1.5 apart with the yields of the 2014 challenge."""
    rng = np.random.default_rng(seed)
    signal = np.arange(n) % 2 == 1
    return rng.normal(1.5 * signal), signal, np.where(signal, 692.0, 411_000.0) * 2 / n


@benchmark()
def speed() -> Iterable[Figure]:
    """Seconds, against 1.5 times the sort of the scores plus half a second."""
    score, signal, weight = events(N_EVENTS)
    ours, sort = best_times(5, lambda: categorise(score, signal, weight, N_CATEGORIES), lambda: np.argsort(score))
    limit = 1.5 * sort + 0.5
    note = f"limit: 1.5 argsorts + 0.5 s = {limit:.2f} s"
    yield Figure("10^6 events, 10 categories: time", ours, limit, " s", note)


@benchmark()
def memory() -> Iterable[Figure]:
    """Peak of the memory that exact categories allocate, against 250 bytes per event."""
    score, signal, weight = events(N_EVENTS)
    tracemalloc.start()
    categorise(score, signal, weight, N_CATEGORIES)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    yield Figure("10^6 events, 10 categories: peak memory", peak / 1e6, 250e-6 * N_EVENTS, " MB")
