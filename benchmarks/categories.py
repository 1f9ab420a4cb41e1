"""How fast exact categories are. Every figure is a value that must not exceed its limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fivesigma._types import Array, BoolArray
from fivesigma.categories import categorise


def events(n: int, seed: int = 0) -> tuple[Array, BoolArray, Array]:
    """Two Gaussians 1.5 apart with the yields of the 2014 challenge."""
    rng = np.random.default_rng(seed)
    signal = np.arange(n) % 2 == 1
    return rng.normal(1.5 * signal), signal, np.where(signal, 692.0, 411_000.0) * 2 / n


def fastest(job: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        job()
        times.append(time.perf_counter() - start)
    return min(times)


def speed(n_events: int = 1_000_000, n_categories: int = 10, repeats: int = 5) -> list[dict[str, Any]]:
    """Seconds for exact categories, against 1.5 times the sort of the scores plus half a second."""
    score, signal, weight = events(n_events)
    sort = fastest(lambda: np.argsort(score), repeats)
    seconds = fastest(lambda: categorise(score, signal, weight, n_categories), repeats)
    name = f"categorise, {n_events:,} events, {n_categories} categories"
    return [{"name": name, "value": seconds, "limit": 1.5 * sort + 0.5, "unit": "s"}]


def memory(n_events: int = 1_000_000, n_categories: int = 10) -> list[dict[str, Any]]:
    """Peak of the memory that exact categories allocate, against 250 bytes an event."""
    import tracemalloc

    score, signal, weight = events(n_events)
    tracemalloc.start()
    categorise(score, signal, weight, n_categories)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    name = f"categorise, {n_events:,} events, {n_categories} categories: peak memory"
    return [{"name": name, "value": peak / 1e6, "limit": 250e-6 * n_events, "unit": "MB"}]


if __name__ == "__main__":
    for figure in speed() + memory():
        print(figure)
