"""How far the quoted expectation of an analysis is from what its edges have on other events.

``python -m benchmarks.studies.cross_fitted 16000`` with the number of simulated events of each class: two Gaussians
1.5 apart,
100 signal and 10,000 background events, a shift of 0.05 and a normalisation of 10 % of half the background, four
categories. Profiled significance without the statistics of the simulation: in sample, cross-fitted, on a large sample.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np

from fivesigma.analysis.edge_choice import (
    RegionEvents,
    change,
    choose_categories,
    edges_by_fold,
    edges_of,
    number_by_fold,
    systematics_of,
)
from fivesigma.analysis.settings import AnalysisSettings
from fivesigma.likelihood.shifts import YieldShifts, yield_shifts
from fivesigma.scored.scored_events import ScoredEvents

SETTINGS = AnalysisSettings(region=("SR",), features=("x",), event_number="n", folds=5, number=4, min_effective=25.0)
LARGE, SAMPLES = 300_000, 5


def sample(n: int, seed: int) -> RegionEvents:
    """Events, and the same moved by each systematic."""
    rng = np.random.default_rng(seed)
    signal = np.repeat([True, False], n)
    margin = rng.normal(1.5 * signal)
    weight = np.where(signal, 100 / n, 10_000 / n) * rng.uniform(0.5, 1.5, 2 * n)
    process = np.where(signal, "S", np.where(rng.random(2 * n) < 0.5, "A", "B"))
    fold = rng.integers(0, SETTINGS.folds, 2 * n)

    def events(shift: float = 0.0, factor: float = 1.0) -> ScoredEvents:
        heavier = np.where(process == "A", factor, 1.0)
        score = 1 / (1 + np.exp(-(margin + shift)))
        return ScoredEvents(score, signal, weight * heavier, None, process, ids=fold)

    moved = {"shift": (events(0.05), events(-0.05)), "normalisation": (events(factor=1.1), events(factor=0.9))}
    return RegionEvents(events(), moved)


def shifts_in(edges: Any, events: RegionEvents) -> YieldShifts:
    """Yields of categories, nominal and varied."""
    return yield_shifts(edges, events.nominal, systematics=systematics_of(events.variations))


def compare(n: int, seed: int, large: RegionEvents) -> tuple[float, ...]:
    """Significance in sample, cross-fitted, and of the same edges on the large sample."""
    own = sample(n, seed)
    edges = edges_of(choose_categories(own, SETTINGS))
    n_bins = edges.size - 1
    by_fold = edges_by_fold({"SR": own}, SETTINGS, {"SR": n_bins}, advance=lambda *_: None)["SR"]

    def numbered(events: ScoredEvents) -> ScoredEvents:
        return replace(events, score=number_by_fold(events, by_fold, n_bins))

    held_out = RegionEvents(numbered(own.nominal), change(own.variations, numbered))
    quoted = shifts_in(np.arange(n_bins + 1.0), held_out)
    seen, true = shifts_in(edges, own), shifts_in(edges, large)
    return seen.significance, quoted.significance, true.significance


def main(n: int) -> None:
    """Print means and the errors of the paired differences."""
    large = sample(LARGE, 999)
    z = np.array([compare(n, seed, large) for seed in range(SAMPLES)])
    difference = z - z[:, [2]]
    error = difference.std(axis=0, ddof=1) / np.sqrt(len(z))
    print(f"{n} events of each class, {len(z)} samples, on other events {z[:, 2].mean():.3f}")
    for k, name in enumerate(("in sample", "cross-fitted")):
        print(
            f"{name:<12} {z[:, k].mean():.3f}, above the other events {difference[:, k].mean():+.3f} ± {error[k]:.3f}"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]))
