"""Distributions of the score: by process with their yields, and of the training events beside those of the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import kstwobign

from fivesigma._types import AnyArray, Array, BoolArray
from fivesigma.datasets.events import Events
from fivesigma.scored.scored_events import ScoredEvents, signal_probability
from fivesigma.significance import Utility
from fivesigma.yields import (
    Processes,
    effective_count,
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
    width = edges[1] - edges[0]
    at = np.clip(((score - low) / width).astype(np.intp), 0, N_BINS - 1)
    size = len(processes.names)
    cell = processes.codes * N_BINS + at
    filled: Array = np.bincount(cell, weight, size * N_BINS).astype(np.float64).reshape(size, N_BINS)
    error = np.sqrt(np.bincount(at, np.square(weight), N_BINS))
    stacked = [histogram for is_signal in (False, True) for histogram in _largest(processes, filled, is_signal)]
    return ScoreHistogram(edges, stacked, error)


def _largest(processes: Processes, filled: Array, is_signal: bool) -> list[ProcessHistogram]:
    """Processes of one class by ascending yield, the smallest of many taken together."""
    members = [k for k in _by_name(processes) if processes.signal[k] == is_signal]
    ranked = sorted(members, key=lambda k: filled[k].sum())
    out = [ProcessHistogram(processes.names[k], is_signal, filled[k]) for k in ranked[-MOST_PROCESSES:]]
    rest = ranked[:-MOST_PROCESSES]
    if rest:
        together = np.sum(filled[rest], axis=0)
        out.insert(0, ProcessHistogram(f"{len(rest)} smaller processes", is_signal, together))
    return out


def process_rows(weight: Array, selected: BoolArray, processes: Processes) -> list[ProcessRow]:
    """Yields of each process, before and after the selection; signal first."""
    rows = []
    for k in _by_name(processes):
        members = processes.codes == k
        every, kept = weight[members], weight[members & selected]
        expected, left = float(every.sum()), float(kept.sum())
        rows.append(
            ProcessRow(
                name=processes.names[k],
                signal=bool(processes.signal[k]),
                events=every.size,
                expected=expected,
                selected_events=kept.size,
                selected=left,
                effective=effective_count(kept),
                efficiency=left / expected if expected else float("nan"),
            )
        )
    return rows


def _by_name(processes: Processes) -> list[int]:
    """Numbers of the processes: signal first, each class by name."""
    return sorted(range(len(processes.names)), key=lambda k: (not processes.signal[k], processes.names[k]))


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


def overtraining_of(
    model: Any, final: Any, scored: ScoredEvents, trained_on: Events | None, utility: Utility
) -> Overtraining | None:
    """Compare the scores of training events with those of other events; None if they are not known."""
    if trained_on is None:
        return None
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
        float(significance_or_nan(utility, *np.atleast_2d(signal_and_background(w, c, p >= final.cut_)).T)[0])
        for p, w, c in ((seen, seen_weight, is_signal), (score, weight, signal))
    ]
    return Overtraining(edges, classes, z[0], z[1], by=str(getattr(final, "by", None) or ""))


def _density(score: AnyArray, weight: Array, edges: Array) -> tuple[Array, Array]:
    """Density in each bin, and its standard error."""
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
