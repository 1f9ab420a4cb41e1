"""Distribution of the score by process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fivesigma._types import Array, BoolArray
from fivesigma.report.scored import Group, Scored
from fivesigma.yields import effective_count

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
    """Expected events by score and process.

    Attributes
    ----------
    edges : array of shape (n_bins + 1,)
    processes : list of ProcessHistogram
        In the order in which they are stacked: backgrounds from the smallest yield to the largest, then signal.
    error : array of shape (n_bins,)
        Standard error of all together, from the number of simulated events.
    """

    edges: Array
    processes: list[ProcessHistogram]
    error: Array


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


def score_histogram(scored: Scored) -> ScoreHistogram:
    """Fill the score into even bins, process by process."""
    low, high = float(scored.probability.min()), float(scored.probability.max())
    edges = np.linspace(low, high if high > low else low + 1.0, N_BINS + 1)
    width = edges[1] - edges[0]
    at = np.clip(((scored.probability - low) / width).astype(np.intp), 0, N_BINS - 1)
    size = max(g.code for g in scored.groups) + 1
    cell = scored.code * N_BINS + at
    filled: Array = np.bincount(cell, scored.weight, size * N_BINS).astype(np.float64).reshape(size, N_BINS)
    error = np.sqrt(np.bincount(at, np.square(scored.weight), N_BINS))
    processes = []
    for is_signal in (False, True):
        groups = [g for g in scored.groups if g.signal == is_signal]
        processes += _largest(groups, filled, is_signal)
    return ScoreHistogram(edges, processes, error)


def _largest(groups: list[Group], filled: Array, is_signal: bool) -> list[ProcessHistogram]:
    """Processes by ascending yield, the smallest of many taken together."""
    ranked = sorted(groups, key=lambda g: filled[g.code].sum())
    out = [ProcessHistogram(g.name, is_signal, filled[g.code]) for g in ranked[-MOST_PROCESSES:]]
    rest = ranked[:-MOST_PROCESSES]
    if rest:
        together = np.sum([filled[g.code] for g in rest], axis=0)
        out.insert(0, ProcessHistogram(f"{len(rest)} smaller processes", is_signal, together))
    return out


def process_rows(scored: Scored, selected: BoolArray) -> list[ProcessRow]:
    """Yields of each process, before and after the selection."""
    rows = []
    for group in scored.groups:
        members = scored.code == group.code
        every, kept = scored.weight[members], scored.weight[members & selected]
        expected = float(every.sum())
        rows.append(
            ProcessRow(
                name=group.name,
                signal=group.signal,
                events=every.size,
                expected=expected,
                selected_events=kept.size,
                selected=float(kept.sum()),
                effective=effective_count(kept),
                efficiency=float(kept.sum()) / expected if expected else float("nan"),
            )
        )
    return rows
