"""Rules that give an event of any sample its category, from its scores alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fivesigma._types import Array, IntArray
from fivesigma.categories.ratios.calibration import Ratios
from fivesigma.categories.ratios.cells import CHUNK, densities
from fivesigma.categories.several_signals.ascent import assign

Category = NDArray[np.int16]  # two bytes, as several numbers of categories are kept beside each other


class SeenEvents(NamedTuple):
    """What rules need to know of events; computed once, where several rules are applied to the same events."""

    density: Array  # (n_events, n_signals + 1): relative densities, from the calibration
    column: IntArray  # (n_events,): the most probable class, of classes with equal shares
    probability: Array  # (n_events,): its probability


@dataclass(frozen=True)
class LinearRule:
    """The category where an event is worth most, by calibrated densities."""

    ratios: Ratios  # the calibration
    rows: Array  # (n_categories, n_signals + 1): value of an event of each class in each category
    discard: bool  # whether an event that is worth less than nothing everywhere is discarded

    name = "search"

    def __len__(self) -> int:
        return len(self.rows)

    def assign(self, scores: Array) -> IntArray:
        """Category of each event, -1 if it is discarded."""
        return np.concatenate([self._assign(densities(self.ratios.of(scores[part]))) for part in _chunks(len(scores))])

    def assign_seen(self, events: SeenEvents) -> Category:
        """The same, of events whose densities are known."""
        out = np.empty(len(events.density), dtype=np.int16)
        for part in _chunks(out.size):
            out[part] = self._assign(events.density[part])
        return out

    def _assign(self, density: Array) -> IntArray:
        return assign(density, self.rows, discard=self.discard)


def most_probable(scores: Array, prior: Array) -> tuple[IntArray, Array]:
    """Column of the most probable class, if the classes had equal shares, and its probability."""
    column, probability = np.empty(len(scores), dtype=np.intp), np.empty(len(scores))
    for part in _chunks(len(scores)):
        relative = scores[part].T / prior[:, None]  # column by column, as reductions over a short axis are slow
        column[part] = relative.argmax(axis=0)
        np.divide(relative.max(axis=0), relative.sum(axis=0), out=probability[part])
    return column, probability


@dataclass(frozen=True)
class ArgmaxRule:
    """The simple way: the class with the largest probability, and intervals of that probability in each signal."""

    signals: IntArray  # (n_signals,): columns of the signals
    prior: Array  # (n_columns,): shares of the classes in the training, by which probabilities are divided
    # ascending lower edges of the intervals of each signal's probability, none where a signal has no category
    edges: tuple[Array, ...]
    rest: bool  # whether all that is in no interval is the last category, or is discarded

    name = "argmax"

    def __len__(self) -> int:
        return sum(edges.size for edges in self.edges) + self.rest

    def assign(self, scores: Array) -> IntArray:
        """Category of each event, -1 if it is discarded."""
        return self._assign(*most_probable(scores, self.prior))

    def assign_seen(self, events: SeenEvents) -> Category:
        """The same, of events whose most probable class is known."""
        return self._assign(events.column, events.probability).astype(np.int16)

    def _assign(self, largest: IntArray, probability: Array) -> IntArray:
        category = np.full(largest.size, len(self) - 1 if self.rest else -1, dtype=np.intp)
        first = 0
        for column, edges in zip(self.signals, self.edges, strict=True):
            members = np.flatnonzero(largest == column)
            found = np.searchsorted(edges, probability[members], side="right") - 1
            category[members[found >= 0]] = found[found >= 0] + first
            first += edges.size
        return category


Rule = LinearRule | ArgmaxRule


def _chunks(n: int) -> Iterator[slice]:
    return (slice(start, start + CHUNK) for start in range(0, n, CHUNK))
