"""How fast categories for several signals are found, and how that grows with events, classes and categories."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from benchmarks.harness import Figure, benchmark, best_times, peak_memory
from fivesigma._types import AnyArray, Array
from fivesigma.categories.several_signals import categorise_scores

N_EVENTS = 1_000_000


class Events(NamedTuple):
    """Class probabilities, processes and weights."""

    scores: Array
    process: AnyArray
    weight: Array


def events(n: int, n_classes: int, seed: int = 0) -> Events:
    """Signals on axes of their own 1.5 from a background at the origin, with weights that scatter."""
    rng = np.random.default_rng(seed)
    means = 1.5 * np.eye(n_classes, n_classes - 1)
    number = np.arange(n) % n_classes
    logs = rng.normal(means[number]) @ means.T - np.square(means).sum(axis=1) / 2
    p = np.exp(logs - logs.max(axis=1, keepdims=True))
    totals = np.array([60.0 / (m + 1) for m in range(n_classes - 1)] + [10_000.0])
    weight = totals[number] * n_classes / n * rng.gamma(4.0, 0.25, size=n)
    return Events(p / p.sum(axis=1, keepdims=True), names(n_classes)[number], weight)


def names(n_classes: int) -> AnyArray:
    """Signals and the background."""
    return np.array([f"signal{m}" for m in range(n_classes - 1)] + ["background"])


def find(sample: Events, n_categories: int) -> None:
    """Find categories for all signals."""
    columns = names(sample.scores.shape[1]).tolist()
    categorise_scores(*sample, n_categories, signals=columns[:-1], processes=columns)


@benchmark()
def speed() -> Iterable[Figure]:
    """Processor time of 10^6 events, 3 classes and 10 categories, against sorts of one column."""
    sample = events(N_EVENTS, 3)
    column = np.ascontiguousarray(sample.scores[:, 0])
    ours, sort = best_times(5, lambda: find(sample, 10), lambda: np.argsort(column), clock=time.process_time)
    yield Figure("10^6 events, 3 classes, 10 categories / argsort", ours / sort, 60.0, "", f"{ours:.2f} s")


@benchmark()
def memory() -> Iterable[Figure]:
    """Peak memory of a whole process, with the interpreter and the events."""
    command = [sys.executable, "-m", "benchmarks.speed.several_signals", str(N_EVENTS), "3", "10"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    yield Figure("10^6 events, 3 classes, 10 categories: peak memory", json.loads(out)["memory"], 400.0, " MB")


@benchmark(slow=True)
def growth() -> Iterable[Figure]:
    """Processor time against 10^5 events, 3 classes and 10 categories; each point is the better of two runs."""

    def seconds(n: int, n_classes: int, k: int) -> float:
        sample = events(n, n_classes)
        return best_times(2, lambda: find(sample, k), clock=time.process_time)[0]

    base = seconds(100_000, 3, 10)

    def figure(name: str, *problem: int) -> Figure:
        taken = seconds(*problem)
        return Figure(name, taken / base, note=f"{taken:.2f} s")

    yield Figure("100,000 events, 3 classes, 10 categories", 1.0, note=f"{base:.2f} s")
    for n in (300_000, 1_000_000, 3_000_000):
        yield figure(f"{n:,} / 100,000 events", n, 3, 10)
    for n_classes in (2, 4, 5, 6):
        yield figure(f"{n_classes} / 3 classes", 100_000, n_classes, 10)
    for k in (3, 5, 20, 30):
        yield figure(f"{k} / 10 categories", 100_000, 3, k)


if __name__ == "__main__":
    n, n_classes, k = map(int, sys.argv[1:])
    sample = events(n, n_classes)
    started = time.process_time()
    find(sample, k)
    print(json.dumps({"seconds": time.process_time() - started, "memory": peak_memory()}))
