"""Distributions of the score: by process with their yields, and of the training events beside those of the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import kstwobign

from fivesigma._types import AnyArray, Array, BoolArray
from fivesigma.datasets.events import Events
from fivesigma.scored.scored_events import ScoredEvents, signal_probability
from fivesigma.yields import (
    Processes,
    ProcessYields,
    effective_count,
    process_yields,
    rescale,
    signal_and_background,
    significance_or_nan,
)

N_BINS = 50
OVERLAY_BINS = 20
MOST_PROCESSES = 6  # of each class that have a colour of their own


@dataclass(frozen=True, eq=False)
class ProcessHistogram:
    """Expected events of one process in each bin."""

    name: str
    signal: bool
    values: Array


@dataclass(frozen=True, eq=False)
class ScoreHistogram:
    """Expected events by score and process."""

    edges: Array  # (n_bins + 1,)
    # in the order in which they are stacked: backgrounds from the smallest yield to the largest, then signal
    processes: list[ProcessHistogram]
    error: Array  # (n_bins,): standard error of all together, from the number of simulated events


@dataclass(frozen=True)
class ProcessRow:
    """One line of the table of yields: before the cut and after it."""

    name: str
    signal: bool
    events: int
    expected: float
    selected_events: int
    selected: float
    effective: float
    efficiency: float


def score_histogram(score: Array, weight: Array, processes: Processes) -> ScoreHistogram:
    """Fill the score into even bins, process by process."""
    low, high = float(score.min()), float(score.max())
    edges = np.linspace(low, high if high > low else low + 1.0, N_BINS + 1)
    at = np.clip(((score - low) / (edges[1] - edges[0])).astype(np.intp), 0, N_BINS - 1)
    filled = _signal_first(process_yields(at, N_BINS, weight, processes))
    stacked = [one for is_signal in (False, True) for one in largest_processes(filled, signal=is_signal)]
    return ScoreHistogram(edges, stacked, np.sqrt(sum(rows.sum_of_squares for rows in filled.values())))


def largest_processes(filled: Mapping[str, ProcessYields], *, signal: bool) -> list[ProcessHistogram]:
    """Processes of one class by ascending yield, the smallest of many taken together."""
    members = [(name, rows.sum_of_weights) for name, rows in filled.items() if rows.signal == signal]
    ranked = sorted(members, key=lambda member: member[1].sum())
    rest, large = ranked[:-MOST_PROCESSES], ranked[-MOST_PROCESSES:]
    if rest:
        large.insert(0, (f"{len(rest)} smaller processes", np.sum([values for _, values in rest], axis=0)))
    return [ProcessHistogram(name, signal, values) for name, values in large]


def process_rows(weight: Array, selected: BoolArray, processes: Processes) -> list[ProcessRow]:
    """Yields of each process, before and after the selection; signal first."""
    rows = []
    for name, one in _signal_first(process_yields(selected.astype(np.intp), 2, weight, processes)).items():
        expected, kept = float(one.sum_of_weights.sum()), float(one.sum_of_weights[1])
        squares = float(one.sum_of_squares[1])
        effective = kept**2 / squares if squares else 0.0
        efficiency = kept / expected if expected else float("nan")
        counts = (int(one.events.sum()), expected, int(one.events[1]), kept)
        rows.append(ProcessRow(name, one.signal, *counts, effective, efficiency))
    return rows


def _signal_first(filled: Mapping[str, ProcessYields]) -> dict[str, ProcessYields]:
    return dict(sorted(filled.items(), key=lambda item: (not item[1].signal, item[0])))


@dataclass(frozen=True, eq=False)
class ClassOverlay:
    """One class: densities of the score, which integrate to one, and how far the two samples are apart."""

    name: str  # {"signal", "background"}
    training: Array  # (n_bins,)
    training_error: Array  # (n_bins,): standard errors, from the number of events
    here: Array
    here_error: Array
    distance: float  # largest difference of the two cumulative distributions (Kolmogorov and Smirnov)
    probability: float  # of a larger distance, if both samples had one distribution; from effective numbers of events


@dataclass(frozen=True, eq=False)
class Overtraining:
    """Training events beside those of the report."""

    edges: Array  # (n_bins + 1,)
    classes: list[ClassOverlay]
    # significance at the model's cut, of training events that are scaled to the yields of the report, and of its
    # events. NaN where the cut keeps no background
    training: float
    here: float
    by: str  # column by whose folds training events were scored by fits that had not seen them; empty if all fits had


def overtraining_of(model: Any, final: Any, scored: ScoredEvents, trained_on: Events) -> Overtraining:
    """Compare the scores of training events with those of other events."""
    score, signal, weight = scored.arrays()
    seen, is_signal = signal_probability(model, trained_on), trained_on.is_signal
    seen_weight = rescale(trained_on.weight, is_signal, signal_and_background(weight, signal))
    edges = np.linspace(min(score.min(), seen.min()), max(score.max(), seen.max()) + 1e-9, OVERLAY_BINS + 1)
    classes = []
    for name, ours, theirs in (("signal", is_signal, signal), ("background", ~is_signal, ~signal)):
        first, second = (seen[ours], seen_weight[ours]), (score[theirs], weight[theirs])
        distance = _distance(*first, *second)
        n, m = effective_count(first[1]), effective_count(second[1])
        probability = float(kstwobign.sf(distance * np.sqrt(n * m / (n + m))))
        densities = (*_density(*first, edges), *_density(*second, edges))
        classes.append(ClassOverlay(name, *densities, distance, probability))
    z = [
        float(significance_or_nan(final.utility_, *np.atleast_2d(signal_and_background(w, c, p >= final.cut_)).T)[0])
        for p, w, c in ((seen, seen_weight, is_signal), (score, weight, signal))
    ]
    return Overtraining(edges, classes, z[0], z[1], by=str(getattr(final, "by", None) or ""))


def _density(score: AnyArray, weight: Array, edges: Array) -> tuple[Array, Array]:
    scale = weight.sum() * (edges[1] - edges[0])
    filled = np.histogram(score, edges, weights=weight)[0]
    error = np.sqrt(np.histogram(score, edges, weights=np.square(weight))[0])
    return filled / scale, error / scale


def _distance(score: AnyArray, weight: Array, other: AnyArray, other_weight: Array) -> float:
    """Largest difference of two weighted cumulative distributions."""
    both = np.concatenate([score, other])
    order = np.argsort(both, kind="stable")
    steps = np.concatenate([weight / weight.sum(), -other_weight / other_weight.sum()])[order]
    last = np.append(np.diff(both[order]) > 0, True)  # equal scores are one step
    return float(np.abs(np.cumsum(steps)[last]).max())
