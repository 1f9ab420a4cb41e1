"""Yields in bins of the score: the first pass of a scan of files or of a cluster, which sorts nothing.

A scan needs few of its cuts exactly. So one pass over parts of the events adds up the weights in bins of the score, and
a second one looks at the events of the bins that matter alone (`fivesigma.cut.binned`). Sums in bins add up over parts,
files and workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fivesigma._types import AnyArray, Array, BoolArray, IntArray

MAX_BINS = 65_535  # their ends and the chosen cut are at most 65,536 points of a curve
SAMPLE = 1 << 16  # scores that decide where the bins are
PIECE = 1 << 15  # events handled at once, so that what belongs together stays in the cache
_PER_BIN = 32  # fewer events per bin are not worth it
_CELLS = 4096
_TAIL = 1e-3  # share of the scores beyond the first and the last cell, on each side


#: Some of the events: scores without NaN, which of them are signal, and their physics weights.
Part = tuple[AnyArray, BoolArray, Array]


class Parts(Protocol):
    """Events in parts that can be read again and again, in any order; a list of parts in memory is one."""

    def __len__(self) -> int:
        """Number of parts."""

    def __getitem__(self, at: int, /) -> Part:
        """Read a part."""


def in_parts(score: AnyArray, signal: BoolArray, weight: Array, rows: int = 1 << 18) -> list[Part]:
    """Arrays in memory as parts, which are views of them."""
    starts = range(0, score.size, rows)
    return [(score[k : k + rows], signal[k : k + rows], weight[k : k + rows]) for k in starts]


@dataclass(frozen=True, eq=False)
class ScoreBins:
    """Bins of the score, the first one for the highest scores: where there are many events they are narrow.

    Cells of equal width between two quantiles of a sample are split evenly, each into as many bins as it has events.
    Any such bins give the same scan; good ones make it fast.
    """

    top: float  # a score is in the cell number (top - score / 2) * scale
    scale: float
    first: IntArray  # (n_cells,): first bin of each cell, and how many it has
    number: Array

    @classmethod
    def of(cls, sample: AnyArray, n_events: int) -> ScoreBins:
        """Place bins for so many events, of which the sample has some."""
        n_bins = min(MAX_BINS, max(1, n_events // _PER_BIN))
        n_cells = min(_CELLS, -(-n_bins // 16))
        finite = np.sort(sample[np.isfinite(sample)].astype(np.float64))
        if not finite.size:
            finite = np.zeros(1)
        tail = int(_TAIL * finite.size)
        low, high = float(finite[tail]) / 2, float(finite[-1 - tail]) / 2  # halves: their difference is finite
        scale = min(n_cells / (high - low), 1e300) if high > low else 1.0
        cells = cls(high, scale, np.zeros(n_cells, dtype=np.intp), np.ones(n_cells))._position(finite)
        counts = np.bincount(cells.astype(np.intp), minlength=n_cells)
        number = 1 + (n_bins - n_cells) * counts // counts.sum()
        return cls(high, scale, np.cumsum(number) - number, number.astype(np.float64))

    def __len__(self) -> int:
        return int(self.first[-1] + self.number[-1])

    def _position(self, score: AnyArray) -> Array:
        # Each step is monotone in the rounding too: a higher score is never in a later bin.
        position = score * np.float64(0.5)
        np.subtract(self.top, position, out=position)
        position *= self.scale
        return np.clip(position, 0.0, np.nextafter(self.first.size, 0.0), out=position)

    def __call__(self, score: AnyArray) -> IntArray:
        """Bin of each score."""
        out = np.empty(score.size, dtype=np.intp)
        for start in range(0, score.size, PIECE):
            position = self._position(score[start : start + PIECE])
            cell = position.astype(np.intp)
            position -= cell
            position *= self.number.take(cell)
            out[start : start + PIECE] = position
            out[start : start + PIECE] += self.first.take(cell)
        return out


@dataclass(frozen=True, eq=False)
class BinSums:
    """What the bins of a score hold."""

    events: IntArray  # (n_bins, 2): numbers of background and signal events
    positive: Array  # (n_bins, 2): sums of the positive weights, of the negative ones, and of the squares of all
    negative: Array
    squares: Array
    lowest: Array  # (n_bins,): lowest score of each bin, infinity where it is empty
    extremes: tuple[float, float]  # least and largest background weight, with zero between them

    @classmethod
    def empty(cls, n_bins: int) -> BinSums:
        """No events."""
        positive, negative, squares = np.zeros((3, n_bins, 2))
        events, lowest = np.zeros((n_bins, 2), dtype=np.intp), np.full(n_bins, np.inf)
        return cls(events, positive, negative, squares, lowest, (0.0, 0.0))

    @classmethod
    def of(cls, at: IntArray, part: Part, n_bins: int) -> BinSums:
        """Sums of one part whose events are in the bins `at`."""
        score, signal, weight = part
        place = 2 * at
        place += signal

        def summed(weight: Array) -> Array:
            sums: Array = np.bincount(place, weights=weight, minlength=2 * n_bins).astype(np.float64, copy=False)
            return sums.reshape(n_bins, 2)

        lowest = np.full(n_bins, np.inf)
        np.minimum.at(lowest, at, score.astype(np.float64, copy=False))
        background = np.where(signal, 0.0, weight)
        extremes = float(background.min(initial=0.0)), float(background.max(initial=0.0))
        if weight.min(initial=0.0) < 0:
            positive, negative = summed(np.maximum(weight, 0.0)), summed(np.minimum(weight, 0.0))
        else:
            positive, negative = summed(weight), np.zeros((n_bins, 2))
        events = np.bincount(place, minlength=2 * n_bins).reshape(n_bins, 2)
        return cls(events, positive, negative, summed(np.square(weight)), lowest, extremes)

    def __add__(self, other: BinSums) -> BinSums:
        """Sums of both: of other parts, files or workers."""
        low, high = zip(self.extremes, other.extremes, strict=True)
        return BinSums(
            self.events + other.events,
            self.positive + other.positive,
            self.negative + other.negative,
            self.squares + other.squares,
            np.minimum(self.lowest, other.lowest),
            (min(low), max(high)),
        )


def sample_scores(parts: Parts, most: int = 32) -> tuple[AnyArray, int]:
    """Scores of some parts, evenly spread, and an estimate of the number of all events."""
    chosen = np.unique(np.linspace(0, len(parts) - 1, min(most, len(parts))).astype(np.intp)).tolist()
    found = [parts[at][0] for at in chosen]
    n = sum(score.size for score in found)
    step = max(1, n // SAMPLE)
    sample = np.concatenate([score[step // 2 :: step] if score.size > step else score for score in found])
    return sample, n * len(parts) // len(chosen)
