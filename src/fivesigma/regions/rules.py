"""Rules that give an event of any sample its category, from its scores alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.ratios.calibration import Ratios
from fivesigma.ratios.cells import CHUNK, densities
from fivesigma.regions.ascent import assign


@dataclass(frozen=True)
class LinearRule:
    """The category where an event is worth most, by calibrated densities.

    Attributes
    ----------
    ratios : Ratios
        The calibration.
    rows : array of shape (n_categories, n_signals + 1)
        Value of an event of each class in each category.
    discard : bool
        Whether an event that is worth less than nothing everywhere is discarded.
    """

    ratios: Ratios
    rows: Array
    discard: bool

    name = "search"

    def __len__(self) -> int:
        return len(self.rows)

    def assign(self, scores: Array) -> IntArray:
        """Category of each event, -1 if it is discarded."""
        return np.concatenate(
            [self.assign_density(densities(self.ratios.of(scores[part]))) for part in _chunks(len(scores))]
        )

    def assign_density(self, density: Array) -> IntArray:
        """The same, from relative densities."""
        return np.concatenate(
            [assign(density[part], self.rows, discard=self.discard) for part in _chunks(len(density))]
        )


def balanced(scores: Array, prior: Array) -> Array:
    """Probabilities of classes with equal shares."""
    relative = scores / prior
    relative /= relative.sum(axis=1, keepdims=True)
    return relative


@dataclass(frozen=True)
class ArgmaxRule:
    """The simple way: the class with the largest probability, and intervals of that probability in each signal.

    Attributes
    ----------
    signals : int array of shape (n_signals,)
        Columns of the signals.
    prior : array of shape (n_columns,)
        Shares of the classes in the training, by which probabilities are divided.
    edges : tuple of arrays
        Ascending lower edges of the intervals of each signal's probability, none where a signal has no category.
    rest : bool
        Whether all that is in no interval is the last category, or is discarded.
    """

    signals: IntArray
    prior: Array
    edges: tuple[Array, ...]
    rest: bool

    name = "argmax"

    def __len__(self) -> int:
        return sum(edges.size for edges in self.edges) + self.rest

    def assign(self, scores: Array) -> IntArray:
        """Category of each event, -1 if it is discarded."""
        out = np.empty(scores.shape[0], dtype=np.intp)
        for part in _chunks(out.size):
            out[part] = self._assign(scores[part])
        return out

    def _assign(self, scores: Array) -> IntArray:
        scores = balanced(scores, self.prior)
        largest = scores.argmax(axis=1)
        category = np.full(largest.size, len(self) - 1 if self.rest else -1, dtype=np.intp)
        first = 0
        for column, edges in zip(self.signals, self.edges, strict=True):
            members = np.flatnonzero(largest == column)
            found = np.searchsorted(edges, scores[members, column], side="right") - 1
            category[members[found >= 0]] = found[found >= 0] + first
            first += edges.size
        return category


Rule = LinearRule | ArgmaxRule


def assigned(rule: Rule, scores: Array, density: Array) -> IntArray:
    """Category of each event, from densities where the rule needs them: several rules share one calibration."""
    return rule.assign_density(density) if isinstance(rule, LinearRule) else rule.assign(scores)


def _chunks(n: int) -> Iterator[slice]:
    return (slice(start, start + CHUNK) for start in range(0, n, CHUNK))
