"""Cuts on events that are not in memory all at once: files, partitions of a cluster, workers of a group.

One pass over parts of the events adds up the weights in bins of the score, which sorts nothing; a second one reads the
million events of the highest scores. Among these every cut is known, as in memory; below, there is a cut at the end of
each bin, and one more event in a bin changes little there. Sums in bins add up over parts, files and workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.cut.ranking import Cuts, rank_events
from fivesigma.cut.rules import RULES
from fivesigma.scored.scored_files import Part, ScoredFiles
from fivesigma.yields import check_size

RULES_OF_BINS = [name for name in RULES if name != "smooth"]  # whose mean needs all cuts, or counts some too often
SAMPLE = 1 << 16  # scores that decide where the bins are
MAX_BINS = 65_535
PUREST = 1 << 20  # events of the highest scores, each with a cut of its own
_PIECE = 1 << 15  # events handled at once, so that what belongs together stays in the cache
_PER_BIN = 32  # fewer events per bin are not worth it
_CELLS = 4096
_TAIL = 1e-3  # share of the scores beyond the first and the last cell, on each side


#: Events in parts that can be read again and again, in any order.
Parts = Sequence[Part] | ScoredFiles


def in_parts(score: AnyArray, signal: BoolArray, weight: Array, rows: int = 1 << 18) -> list[Part]:
    """Arrays in memory as parts, which are views of them."""
    starts = range(0, score.size, rows)
    return [(score[k : k + rows], signal[k : k + rows], weight[k : k + rows]) for k in starts]


def sample_scores(parts: Parts, most: int = 32) -> tuple[AnyArray, int]:
    """Scores of some parts, evenly spread, and an estimate of the number of all events."""
    chosen = np.unique(np.linspace(0, len(parts) - 1, min(most, len(parts))).astype(np.intp)).tolist()
    found = [parts[at][0] for at in chosen]
    n = sum(score.size for score in found)
    step = max(1, n // SAMPLE)
    sample = np.concatenate([score[step // 2 :: step] if score.size > step else score for score in found])
    return sample, n * len(parts) // len(chosen)


@dataclass(frozen=True, eq=False)
class ScoreBins:
    """Bins of the score, the first one for the highest scores: where there are many events they are narrow.

    Cells of equal width between two quantiles of a sample are split evenly, each into as many bins as it has events.
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
        for start in range(0, score.size, _PIECE):
            position = self._position(score[start : start + _PIECE])
            cell = position.astype(np.intp)
            position -= cell
            position *= self.number.take(cell)
            out[start : start + _PIECE] = position
            out[start : start + _PIECE] += self.first.take(cell)
        return out


@dataclass(frozen=True, eq=False)
class BinSums:
    """What the bins of a score hold."""

    sums: Array  # (3, n_bins, 2): numbers of events, sums of weights and of their squares; of background and of signal
    lowest: Array  # (n_bins,): lowest score of each bin, infinity where it is empty
    extremes: tuple[float, float]  # least and largest background weight, with zero between them

    @classmethod
    def empty(cls, n_bins: int) -> BinSums:
        """No events."""
        return cls(np.zeros((3, n_bins, 2)), np.full(n_bins, np.inf), (0.0, 0.0))

    @classmethod
    def of(cls, part: Part, bins: ScoreBins) -> BinSums:
        """Sums of one part."""
        score, signal, weight = part
        at = bins(score)
        out = cls.empty(len(bins))
        np.minimum.at(out.lowest, at, score.astype(np.float64, copy=False))
        background = np.where(signal, 0.0, weight)
        at *= 2
        at += signal
        for k, values in enumerate((None, weight, np.square(weight))):
            out.sums[k] = np.bincount(at, values, minlength=2 * len(bins)).reshape(-1, 2)
        return replace(out, extremes=(float(background.min(initial=0.0)), float(background.max(initial=0.0))))

    def __add__(self, other: BinSums) -> BinSums:
        """Sums of both: of other parts, files or workers."""
        low, high = zip(self.extremes, other.extremes, strict=True)
        return BinSums(self.sums + other.sums, np.minimum(self.lowest, other.lowest), (min(low), max(high)))


@dataclass(frozen=True, eq=False)
class BinnedCuts(Cuts):
    """Cuts of which the yields are known, without the events."""

    s2: Array  # (n_cuts,): sums of the squared weights
    b2: Array
    threshold: Array  # (n_cuts,)

    def thresholds(self, cuts: Any = slice(None)) -> Array:  # noqa: D102 - as in Cuts
        return np.asarray(self.threshold[cuts])

    def variances(self, cuts: IntArray) -> tuple[Array, Array]:  # noqa: D102
        return self.s2[cuts], self.b2[cuts]

    def at(self, cuts: IntArray) -> Self:  # noqa: D102
        return replace(super().at(cuts), s2=self.s2[cuts], b2=self.b2[cuts], threshold=self.threshold[cuts])

    def replicas(self, cuts: IntArray, n_boot: int, random_state: int) -> tuple[Array, Array]:
        """Replicas of the yields of ascending cuts.

        Each replica of a sum of weights scatters as with Poisson copies of the events, but is drawn as a Gaussian: the
        events are not here to be copied, and there are many in a bin.
        """
        rng = np.random.default_rng(random_state)
        out = []
        for sums, variance in ((self.s, self.s2), (self.b, self.b2)):
            step, spread = np.diff(sums[cuts], prepend=0.0), np.sqrt(np.diff(variance[cuts], prepend=0.0).clip(0.0))
            out.append(np.cumsum(step + spread * rng.normal(size=(n_boot, cuts.size)), axis=1))
        return out[0], out[1]


class BinnedRanking:
    """A sample whose yields are known at every cut among its highest scores, and at the ends of bins below."""

    def __init__(self, parts: Parts, bins: ScoreBins | None = None) -> None:
        self.parts = parts
        self.bins = ScoreBins.of(*self._sample()) if bins is None else bins

    def cuts(self) -> BinnedCuts:
        """All cuts in the first bins, which hold no more than the purest events, and the ends of all others."""
        found = self._sum_bins()
        if largest := max(-found.extremes[0], found.extremes[1]):
            check_size(largest, "background weight")
        events, weights, squares = found.sums
        ends = np.cumsum(events.sum(axis=1)).astype(np.intp)
        n_first = int(np.searchsorted(ends, PUREST, side="right"))
        filled = n_first + np.flatnonzero(events[n_first:].any(axis=1))  # other bins have no cut
        b, s, b2, s2 = np.cumsum(np.concatenate([weights, squares], axis=1), axis=0)[filled].T
        columns = [ends[filled] - 1, s, b, s2, b2, found.lowest[filled]]
        if n_first and ends[n_first - 1]:
            score, signal, weight = (np.concatenate(one) for one in zip(*self._read_first(n_first), strict=True))
            exact = rank_events(score, signal, weight)
            all_cuts = np.arange(exact.last.size)
            first = (exact.last, exact.s, exact.b, *exact.variances(all_cuts), exact.thresholds())
            columns = [np.concatenate(pair) for pair in zip(first, columns, strict=True)]
        background, signal_squares = squares.sum(axis=0).tolist()
        last, s, b, s2, b2, threshold = columns
        return BinnedCuts(last, s, b, *found.extremes, (signal_squares, background), s2, b2, threshold)

    def _sample(self) -> tuple[AnyArray, int]:
        """Scores of some events, and an estimate of the number of all."""
        return sample_scores(self.parts)

    def _sum_bins(self) -> BinSums:
        """The first pass: what the bins hold."""
        parts = (BinSums.of(self.parts[at], self.bins) for at in range(len(self.parts)))
        return sum(parts, BinSums.empty(len(self.bins)))

    def _read_first(self, n_bins: int) -> list[Part]:
        """The second pass: the events in the first bins."""
        return [read_first(self.parts[at], self.bins, n_bins) for at in range(len(self.parts))]


def read_first(part: Part, bins: ScoreBins, n_bins: int) -> Part:
    """Events of a part that are in the first bins."""
    rows = np.flatnonzero(bins(part[0]) < n_bins)
    return part[0][rows], part[1][rows], part[2][rows]
