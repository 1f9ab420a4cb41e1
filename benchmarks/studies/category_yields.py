"""Categories chosen for modelled yields and for averaged ones, on other events (docs/validation/categories.md).

``python -m benchmarks.studies.category_yields FOLDER [SOURCE ...]`` takes the scores of ``python -m
benchmarks.studies.cut_scores DATA
FOLDER``, chooses edges on samples of them (1,024 candidates, ten effective background events in each category), and
adds to benchmarks/studies/category_yields.json after each setting: it can be killed, and the same call resumes.
``python -m
benchmarks.studies.category_yields tables`` prints the table.

Modelled yields are those of the rule "model"; averaged ones are what it falls back to with few events. Truth is exact
for Gaussians and for the heavy weights of `benchmarks.studies.cut_rules`; otherwise it is 1,400,000 other events of
the toy, or the rest of set t.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr

from benchmarks.peers.gato_comparison import expected_significance, gaussians
from benchmarks.studies.cut_rules import HEAVY, RATIO_TOTALS, TOTALS, TOY_TRUTH, negative, ratios, scaled, take
from benchmarks.studies.cut_scores import KINDS, Scored, read_scored
from fivesigma import AMS2
from fivesigma._tools.files import written_whole
from fivesigma._types import Array
from fivesigma.categories.floors import Floors
from fivesigma.categories.one_score.exact import (
    average_yields,
    best_edges,
    best_totals,
    candidate_cuts,
    edges_at,
    grid_of,
    model_yields,
)
from fivesigma.cut.ranking import rank_events
from fivesigma.errors import SmallSampleWarning
from fivesigma.scored.scored_events import as_scored

RESULTS = Path(__file__).with_suffix(".json")
N_CATEGORIES = (2, 5, 10, 20)
SAMPLES = 20
EDGES = 1024
APART = ("apart-2", "apart-3")  # Gaussians so far apart, half of the events signal
SOURCES = ("gauss", *APART, *HEAVY, *(f"{where}-{kind}" for where in ("toy", "t") for kind in KINDS))

Truth = Callable[[Array], float]
Draw = Callable[[int, np.random.Generator], tuple[Scored, Truth]]


class Measured:
    """Significance of categories on other events."""

    def __init__(self, events: Scored) -> None:
        order = np.argsort(events.score)
        self._score = events.score[order]
        self._sums = [
            np.append(0.0, np.cumsum(np.where(members[order], events.weight[order], 0.0)))
            for members in (events.signal, ~events.signal)
        ]

    def __call__(self, edges: Array) -> float:
        """Significance between edges; a category without background adds nothing."""
        at = np.searchsorted(self._score, edges)
        s, b = (np.diff(sums[at]) for sums in self._sums)
        return float(np.sqrt(2 * AMS2().objective(s[b > 0], b[b > 0]).sum()))


def _between(edges: Array, totals: tuple[float, float], means: tuple[float, float], width: float = 1.0) -> float:
    """Significance of categories of two Gaussians of the same width."""
    s, b = (-total * np.diff(ndtr((mean - edges) / width)) for total, mean in zip(totals, means, strict=True))
    return float(np.sqrt(2 * AMS2().objective(s, b).sum()))


def _ratio_truth(edges: Array) -> float:
    """As in `Truth.ratios` of `benchmarks.studies.cut_rules`."""
    return _between(edges, RATIO_TOTALS, (1.5**2 + 1.3 * 0.5, -1.3 * 0.8), np.hypot(1.5, 1.3))


def _negative_truth(edges: Array) -> float:
    return _between(edges, TOTALS, (1.5, 0.0))


def _apart(distance: float, n: int, rng: np.random.Generator) -> Scored:
    signal = rng.random(n) < 0.5
    return scaled(Scored(rng.normal(distance * signal), signal, rng.gamma(4.0, 0.25, size=n)))


def source(name: str, folder: str) -> Draw:
    """How samples of one source are drawn, each with its truth."""
    if name == "gauss":
        return lambda n, rng: (Scored(*gaussians(int(rng.integers(2**32)), n)), expected_significance)
    if name in APART:
        distance = float(name.partition("-")[2])
        return lambda n, rng: (_apart(distance, n, rng), lambda edges: _between(edges, TOTALS, (distance, 0.0)))
    if name in HEAVY:
        made, truth = (ratios, _ratio_truth) if name == "heavy-ratio" else (negative, _negative_truth)
        return lambda n, rng: (made(n, rng), truth)
    events = read_scored(folder, name)
    if name.startswith("toy"):
        tuning = events.score.size - TOY_TRUTH
        fixed = Measured(take(events, np.arange(tuning, events.score.size)))
        return lambda n, rng: (take(events, rng.choice(tuning, n, replace=False)), fixed)

    def split(n: int, rng: np.random.Generator) -> tuple[Scored, Truth]:
        rows = rng.permutation(events.score.size)
        return take(events, rows[:n]), Measured(take(events, rows[n:]))

    return split


def compare(results: dict[str, Any], folder: str, *names: str) -> Iterator[None]:
    """Significance on other events for the yields as they are, averaged and modelled."""
    for name in names or SOURCES:
        for n in (5_000, 20_000) if name.startswith("t-") else (5_000, 20_000, 100_000):
            if f"{name}, {n:,}" in results:
                continue
            draw, rng = source(name, folder), np.random.default_rng([9, n])
            rows = np.array([_outside(*draw(n, rng)) for _ in range(SAMPLES)])
            results[f"{name}, {n:,}"] = {f"K = {k}": _figures(rows[:, i]) for i, k in enumerate(N_CATEGORIES)}
            print(name, n, flush=True)
            yield


def _outside(sample: Scored, truth: Truth) -> list[list[float]]:
    """Significance on other events, a row for each number of categories; NaN where so many do not fit."""
    utility, limits = AMS2(), Floors(0.0, 10.0)
    ranking = rank_events(*as_scored(*sample).arrays())
    cuts = candidate_cuts(ranking, EDGES)
    grid = grid_of(ranking, cuts)
    columns = []
    for chosen in (grid, average_yields(grid), model_yields(grid, ranking.last[cuts])):
        best = best_totals(chosen, utility, limits, max(N_CATEGORIES))
        columns.append([
            truth(edges_at(ranking, cuts[best_edges(chosen, utility, limits, best, k) - 1]))
            if best[k - 1].max() > -np.inf else np.nan
            for k in N_CATEGORIES
        ])  # fmt: skip
    rows: list[list[float]] = np.transpose(columns).tolist()
    return rows


def _figures(values: Array) -> dict[str, float]:
    """Means over the samples in which so many categories fit, and the paired gain of the last column."""
    peak, average, model = values[np.isfinite(values).all(axis=1)].T
    gain = model - average
    return {
        "peak": float(peak.mean()),
        "averaged": float(average.mean()),
        "modelled": float(model.mean()),
        "gain": float(gain.mean()),
        "error": float(gain.std(ddof=1) / np.sqrt(gain.size)),
        "samples": gain.size,
    }


def tables() -> dict[str, str]:
    """What modelled yields gain: means over each kind of events, and over all settings."""
    results = json.loads(RESULTS.read_text())
    groups: dict[str, list[dict[str, Any]]] = {}
    for name, row in results.items():
        groups.setdefault(f"{name.partition('-')[0].partition(',')[0]}, {name.partition(', ')[2]}", []).append(row)
    head = ["events that choose", *(f"K = {k}" for k in N_CATEGORIES)]
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    for name, group in groups.items():
        lines.append(
            f"| {name} | " + " | ".join(_cell([row[f"K = {k}"] for row in group]) for k in N_CATEGORIES) + " |"
        )
    every = [v for row in results.values() for v in row.values()]
    gain, error = (np.array([v[key] for v in every]) for key in ("gain", "error"))
    said = (
        f"{gain.size} settings: mean gain {gain.mean():+.4f} ± {np.sqrt((error**2).sum()) / gain.size:.4f}, below zero "
        f"in {(gain < 0).sum()}, by more than two errors in {(gain < -2 * error).sum()}."
    )
    return {"gains": "\n".join([*lines, "", said])}


def _cell(figures: list[dict[str, float]]) -> str:
    before, gain = (np.mean([f[key] for f in figures]) for key in ("averaged", "gain"))
    error = np.sqrt(sum(f["error"] ** 2 for f in figures)) / len(figures)
    return f"{before:.3f}, {gain:+.3f} ± {error:.3f}"


def main(*arguments: str) -> None:
    """Measure what is missing."""
    warnings.simplefilter("ignore", SmallSampleWarning)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for _ in compare(results, *arguments):
        with written_whole(RESULTS) as path:
            path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
