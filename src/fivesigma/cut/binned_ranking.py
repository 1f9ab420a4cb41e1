"""Some of the cuts of a ranked sample, exactly, without sorting all of it: the second pass of a scan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.cut.ranking import between_scores
from fivesigma.scored.score_bins import BinSums, Partition, Partitions, ScoreBins, sample_scores
from fivesigma.significance import Utility
from fivesigma.yields import valid_yields

_PUREST = 1 << 20  # events of the highest scores among which categories may begin anywhere
_MANY = 1 << 22  # distinct scores that are held before equal ones are put together
SLACK = 1e-9  # relative: sums of the same weights in another order differ, and products of them


@dataclass(frozen=True, eq=False)
class Cuts:
    """Some of the cuts ``score >= cut``, from the tightest to the one that keeps all events.

    Attributes
    ----------
    last : int array of shape (n_cuts,)
        Rank of the last event that each cut keeps.
    s, b : arrays of shape (n_cuts,)
        Yields.
    s2, b2 : arrays of shape (n_cuts,)
        Sums of the squared weights.
    score, below : arrays of shape (n_cuts,)
        Lowest score that the cut keeps, and the next one that it does not; NaN where that is not known.
    place : int array of shape (n_cuts,)
        Bin of that score.
    """

    last: IntArray
    s: Array
    b: Array
    s2: Array
    b2: Array
    score: AnyArray
    below: AnyArray
    place: IntArray

    def valid(self, floor: float) -> BoolArray:
        """Cuts with s >= 0, b > 0 and an effective background count of at least `floor`."""
        enough = np.square(self.b) >= floor * (1 - 1e-9) * self.b2
        if floor > 0:
            enough &= self.b2 > 0  # too small to square
        return valid_yields(self.s, self.b) & enough

    def effective(self, at: int) -> float:
        """Effective background count that one cut keeps."""
        return float(self.b[at]) ** 2 / float(self.b2[at]) if self.b2[at] > 0 else 0.0

    def threshold(self, at: int) -> float:
        """Midway to the next score, or the last score itself."""
        return float(between_scores(self.score[at : at + 1], self.below[at : at + 1])[0])


class BinnedRanking:
    """A sample whose yields are known at the ends of bins of its score, and wherever else they are asked for.

    Parameters
    ----------
    parts : Partitions
        They are read once now, and once more whenever cuts inside bins are asked for.
    bins : ScoreBins, optional
        By default bins that suit the scores.
    keep : bool, default=False
        Whether to remember the bin of each event, two bytes per event, which saves a computation later.

    Attributes
    ----------
    sums : BinSums
    n_events : int
    totals, squares : (float, float)
        Yields of signal and background, and the sums of their squared weights.
    """

    def __init__(self, parts: Partitions, bins: ScoreBins | None = None, *, keep: bool = False) -> None:
        self.parts = parts
        self._keep, self._places = keep, list[AnyArray]()
        self.bins = ScoreBins.of(*self._sample()) if bins is None else bins
        self.sums = self._summed()
        per_bin = self.sums.events.sum(axis=1)
        self.filled = np.flatnonzero(per_bin)  # other bins have no cut
        self._ends = np.cumsum(per_bin)
        self.n_events = int(self._ends[-1])
        (b, s), (b2, s2) = (
            v.sum(axis=0).tolist() for v in (self.sums.positive + self.sums.negative, self.sums.squares)
        )
        self.totals, self.squares = (s, b), (s2, b2)
        self.resolved = np.zeros(len(self.bins), dtype=np.bool_)
        self._levels: list[Levels] = []

    @property
    def effective_background(self) -> float:
        """Effective count of all background."""
        return self.totals[1] ** 2 / self.squares[1] if self.squares[1] > 0 else 0.0

    def resolve(self, wanted: BoolArray) -> bool:
        """Find all cuts inside these bins, in one pass over the parts; return whether there was something to find."""
        new = wanted & ~self.resolved & (self.sums.events.sum(axis=1) > 0)
        if not new.any():
            return False
        # The next score below a cut may be in the next bin that has events.
        after = np.searchsorted(self.filled, np.flatnonzero(new)) + 1
        new[self.filled[after[after < self.filled.size]]] = True
        new &= ~self.resolved
        self._levels = [Levels.joined([*self._levels, *self._inside(new)])]
        self.resolved |= new
        return True

    def _sample(self) -> tuple[AnyArray, int]:
        """Scores of some events, and an estimate of the number of all."""
        return sample_scores(self.parts)

    def _summed(self) -> BinSums:
        """The first pass: what the bins hold."""
        sums = BinSums.empty(len(self.bins))
        for at in range(len(self.parts)):
            part = self.parts[at]
            place = self.bins(part.score)
            sums += BinSums.of(place, part, len(self.bins))
            if self._keep:
                self._places.append(place.astype(np.uint16))
        return sums

    def _inside(self, wanted: BoolArray) -> list[Levels]:
        """A later pass: the distinct scores inside some bins."""
        found: list[Levels] = []
        for at in range(len(self.parts)):
            part = self.parts[at]
            place = self._places[at] if self._places else self.bins(part.score)
            rows = np.flatnonzero(wanted[place])
            if rows.size:
                found.append(Levels.of(part.rows(rows), place[rows]))
            if sum(levels.score.size for levels in found) > _MANY:
                found = [Levels.joined(found)]
        return found

    def cuts(self) -> Cuts:
        """All cuts of the resolved bins, and the ends of all others."""
        ends = self.filled[~self.resolved[self.filled]]
        sums = np.concatenate([self.sums.positive + self.sums.negative, self.sums.squares], axis=1)[ends].T
        rest = Levels(self.sums.lowest[ends], ends, self.sums.events[ends].sum(axis=1), sums)
        rows = rest
        if self._levels:
            rows = Levels.stacked([*self._levels, replace(rest, score=rest.score.astype(self._levels[0].score.dtype))])
            order = np.argsort(rows.place, kind="stable")  # within a bin the scores descend already
            rows = Levels(rows.score[order], rows.place[order], rows.events[order], rows.sums[:, order])
        b, s, b2, s2 = np.cumsum(rows.sums, axis=1)
        below = np.append(rows.score[1:], rows.score[-1:])
        unknown = ~self.resolved[np.append(rows.place[1:], rows.place[-1])]  # the highest score of such a bin
        unknown[-1] = False
        below[unknown] = np.nan
        return Cuts(np.cumsum(rows.events) - 1, s, b, s2, b2, rows.score, below, rows.place)

    def bins_of(self, ranks: IntArray) -> BoolArray:
        """Bins that hold the events of some ranks."""
        wanted = np.zeros(len(self.bins), dtype=np.bool_)
        wanted[np.searchsorted(self._ends, ranks, side="right").clip(0, len(self.bins) - 1)] = True
        return wanted

    def upper_bounds(self, utility: Utility, floor: float) -> Array:
        """Significance that no valid cut in each bin exceeds; minus infinity where none can be valid.

        The yields of a cut lie in a box: those above the bin, plus between all negative and all positive weights in it.
        A convex F, and one that rises with s and falls with b, is largest in a corner of it.
        """
        positive, negative, squares = self.sums.positive, self.sums.negative, self.sums.squares
        floor *= 1 - 1e-9
        running = np.cumsum(positive + negative, axis=0)
        before = np.concatenate([np.zeros((1, 2)), running[:-1]])
        before2 = np.append(0.0, np.cumsum(squares[:, 0])[:-1])
        rounding = 1e-12 * np.cumsum(positive - negative, axis=0)  # of sums in another order
        (low_b, low_s), (high_b, high_s) = (before + negative - rounding).T, (before + positive + rounding).T
        n_background = np.cumsum(self.sums.events[:, 0])
        # An effective count is at most the number of events, and squared weights only add up.
        possible = (high_s >= 0) & (high_b > 0) & (n_background >= floor) & (np.square(high_b) >= floor * before2)
        possible &= self.sums.events.any(axis=1)
        low_b = np.maximum(low_b, np.sqrt(floor * before2) * (1 - SLACK))
        bound = np.where(possible, np.inf, -np.inf)
        sure = possible & (low_b > 0)
        corners = [utility.value(s[sure], b[sure]) for s in (high_s, np.maximum(low_s, 0.0)) for b in (low_b, high_b)]
        bound[sure] = np.max(corners, axis=0)
        return bound


class BinEnds:
    """All cuts among the purest events, and ends of bins below: what categories need of a ranking, without its events.

    Its attributes are those of `fivesigma.cut.ranking.Ranking`; `s2` and `b2` are the sums of squared weights.
    """

    def __init__(self, ranking: BinnedRanking) -> None:
        ranking.resolve(ranking.bins_of(np.arange(min(_PUREST, ranking.n_events))))
        cuts = ranking.cuts()
        self.last, self.s, self.b, self.s2, self.b2 = cuts.last, cuts.s, cuts.b, cuts.s2, cuts.b2
        self._thresholds = between_scores(cuts.score, cuts.below)  # the lowest score where the next is not known
        self.lightest, self.heaviest = ranking.sums.extremes
        self.effective_background = ranking.effective_background

    def thresholds(self, cuts: Any = slice(None)) -> Array:
        """Scores that ``score >= threshold`` needs for each cut."""
        return np.asarray(self._thresholds[cuts])

    def variances(self, cuts: IntArray) -> tuple[Array, Array]:
        """Sums of the squared weights of signal and of background that each cut keeps."""
        return self.s2[cuts], self.b2[cuts]

    def replicas(self, cuts: IntArray, n_boot: int, random_state: int) -> tuple[Array, Array]:
        """Replicas of the yields of ascending cuts.

        Each replica of a sum of weights scatters as with Poisson copies of the events, but is drawn as a Gaussian: the
        events are not here to be copied, and there are many in a bin.
        """
        rng = np.random.default_rng(random_state)
        out = []
        for sums, squares in ((self.s, self.s2), (self.b, self.b2)):
            step, spread = np.diff(sums[cuts], prepend=0.0), np.sqrt(np.diff(squares[cuts], prepend=0.0).clip(0.0))
            out.append(np.cumsum(step + spread * rng.normal(size=(n_boot, cuts.size)), axis=1))
        return out[0], out[1]


@dataclass(frozen=True, eq=False)
class Levels:
    """Distinct scores, from the highest to the lowest, with what the events of each have.

    Attributes
    ----------
    score, place, events : arrays of shape (n_levels,)
        The score, its bin, and the number of events.
    sums : array of shape (4, n_levels)
        Background, signal, and the squared weights of both.
    """

    score: AnyArray
    place: IntArray
    events: IntArray
    sums: Array

    @classmethod
    def of(cls, part: Partition, place: IntArray) -> Levels:
        """Sum up some events, whose bins are known."""
        squares, no = np.square(part.weight), 0.0
        sums = [np.where(part.signal, no, w) for w in (part.weight, squares)]
        sums += [np.where(part.signal, w, no) for w in (part.weight, squares)]
        stacked = np.stack([sums[0], sums[2], sums[1], sums[3]])
        return cls(part.score, place.astype(np.intp), np.ones(place.size, dtype=np.intp), stacked)._merged()

    @classmethod
    def stacked(cls, several: Sequence[Levels]) -> Levels:
        """One after the other."""
        return cls(
            np.concatenate([levels.score for levels in several]),
            np.concatenate([levels.place for levels in several]),
            np.concatenate([levels.events for levels in several]),
            np.concatenate([levels.sums for levels in several], axis=1),
        )

    @classmethod
    def joined(cls, several: Sequence[Levels]) -> Levels:
        """All in one order, equal scores together."""
        return several[0] if len(several) == 1 else cls.stacked(several)._merged()

    def _merged(self) -> Levels:
        order = np.argsort(self.score)[::-1]
        score = self.score[order]
        starts = np.append(0, np.flatnonzero(score[1:] != score[:-1]) + 1)
        events = np.add.reduceat(self.events[order], starts)
        return Levels(score[starts], self.place[order[starts]], events, np.add.reduceat(self.sums[:, order], starts, 1))
