"""Events of Gaussians with known densities, for the tests of several signals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fivesigma._types import AnyArray, Array

PROCESSES = ("ggF", "VBF", "Z")
SIGNALS = PROCESSES[:2]
YIELDS = (60.0, 25.0, 4000.0)


class Events(NamedTuple):
    scores: Array
    process: AnyArray
    weight: Array


def gaussians(n: int = 3000, seed: int = 0, separation: float = 1.5, scatter: float = 0.0) -> Events:
    """Two signals on two axes and a background at the origin; the scores are exact for equal class shares."""
    rng = np.random.default_rng(seed)
    means = separation * np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    x = np.concatenate([rng.normal(mean, size=(n, 2)) for mean in means])
    logs = x @ means.T - np.square(means).sum(axis=1) / 2
    p = np.exp(logs - logs.max(axis=1, keepdims=True))
    weight = np.repeat(np.array(YIELDS) / n, n)
    if scatter:
        weight *= rng.gamma(1 / scatter, scatter, size=weight.size)
    return Events(p / p.sum(axis=1, keepdims=True), np.repeat(PROCESSES, n), weight)


def objective(s: float, b: float) -> float:
    """F of AMS2, without any of the project's code."""
    return (s + b) * np.log1p(s / b) - s if b > 0 else 0.0


def significances(category: AnyArray, events: Events, k: int, others: str = "background") -> Array:
    """Z of each signal, without any of the project's code."""
    yields = np.array(
        [[events.weight[(category == i) & (events.process == p)].sum() for p in PROCESSES] for i in range(k)]
    )
    F = np.zeros(2)
    for row in yields:
        for m in range(2):
            F[m] += objective(row[m], row[2] + (row[1 - m] if others == "background" else 0.0))
    return np.sqrt(2 * F)
