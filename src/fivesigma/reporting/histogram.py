"""Distribution of the score, and yields, by process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fivesigma._types import Array, BoolArray
from fivesigma.yields import Processes, ProcessYield

N_BINS = 50
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
        every, kept = ProcessYield.of(weight[members]), ProcessYield.of(weight[members & selected])
        rows.append(
            ProcessRow(
                name=processes.names[k],
                signal=bool(processes.signal[k]),
                events=every.events,
                expected=every.sum_of_weights,
                selected_events=kept.events,
                selected=kept.sum_of_weights,
                effective=kept.effective_count,
                efficiency=kept.sum_of_weights / every.sum_of_weights if every.sum_of_weights else float("nan"),
            )
        )
    return rows


def _by_name(processes: Processes) -> list[int]:
    """Numbers of the processes: signal first, each class by name."""
    return sorted(range(len(processes.names)), key=lambda k: (not processes.signal[k], processes.names[k]))
