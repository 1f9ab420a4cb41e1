"""The cut scan and its bootstrap, as ratios within one run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable
from functools import partial

import numpy as np

from benchmarks import harness
from benchmarks.harness import Figure, benchmark, peak_memory
from fivesigma import scan
from fivesigma._types import Array, BoolArray

best_times = partial(harness.best_times, clock=time.process_time)  # all of it runs on one thread


def _events(n: int) -> tuple[Array, BoolArray, Array]:
    """Scores like a classifier's and weights like a simulation's."""
    rng = np.random.default_rng(0)
    y = rng.random(n) < 0.3
    score = 1 / (1 + np.exp(-rng.normal(1.5 * y)))
    return score, y, rng.exponential(size=n) * np.where(y, 1e-3, 1.0)


@benchmark()
def scan_against_argsort() -> Iterable[Figure]:
    score, y, w = _events(10**6)
    ours, argsort = best_times(40, lambda: scan(score, y, w), lambda: np.argsort(score))
    yield Figure("scan of 10^6 events / argsort", ours / argsort, 1.8, note=f"{ours * 1e3:.0f} ms")


@benchmark()
def scan_of_many() -> Iterable[Figure]:
    score, y, w = _events(10**7)
    ours, argsort = best_times(3, lambda: scan(score, y, w), lambda: np.argsort(score))
    yield Figure("scan of 10^7 events / argsort", ours / argsort, 1.6, note=f"{ours:.2f} s")


@benchmark()
def scan_scaling() -> Iterable[Figure]:
    large, small = _events(10**7), _events(10**6)
    ten, *one = best_times(8, lambda: scan(*large), *[lambda: scan(*small)] * 5)
    yield Figure("scan of 10^7 / 10^6 events", ten / min(one), 13.0, note=f"{ten:.2f} s")


@benchmark()
def bootstrap() -> Iterable[Figure]:
    """In a process of its own, which holds nothing but the events, the scan and the replicas."""
    command = [sys.executable, "-c", "from benchmarks.speed.cut import _bootstrap; _bootstrap()"]
    one, replicas, peak = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    name = "1,000 replicas of 10^6 events / one scan with its curve"
    yield Figure(name, replicas / one, 60.0, note=f"{replicas:.1f} s")
    yield Figure("peak memory of 1,000 replicas of 10^6 events", peak, 1024.0, " MB")


def _bootstrap() -> None:
    events = _events(10**6)
    best = scan(*events)
    replicas, *one = best_times(4, lambda: best.interval(n_boot=1000), *[lambda: scan(*events).curve] * 5)
    print(json.dumps([min(one), replicas, peak_memory()]))
