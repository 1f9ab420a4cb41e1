"""The best cut on events that are not in memory all at once: files, partitions of a cluster, workers of a group.

The first pass sums the weights in bins of the score (`fivesigma.cut.score_bins`). A rule is then applied to some of the
cuts: all of those in bins that could matter to it, which a second pass resolves, and one of each other bin. It takes
the same cut from these as from all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.cut.ranking import Cuts, between_scores
from fivesigma.cut.rules import RULES, KnownBackground, choose, grid_ranks
from fivesigma.cut.score_bins import BinSums, Part, Parts, ScoreBins, sample_scores
from fivesigma.significance import Utility
from fivesigma.yields import significance_or_nan, standard_errors

RULES_OF_BINS = [name for name, rule in RULES.items() if rule.depth is not None]
_PUREST = 1 << 20  # events of the highest scores among which categories may begin anywhere
_MANY = 1 << 22  # distinct scores that are held before equal ones are put together
_SLACK = 1e-9  # relative: sums of the same weights in another order differ, and products of them
_GUESS = 0.2  # standard errors by which the first guess of the peak may be off


@dataclass(frozen=True, eq=False)
class SomeCuts(Cuts):
    """Some of the cuts, without the events."""

    s2: Array  # (n_cuts,): sums of the squared weights
    b2: Array
    # (n_cuts,): lowest score that the cut keeps, and the next one that it does not; NaN where that is not known
    score: AnyArray
    below: AnyArray
    place: IntArray  # (n_cuts,): bin of that score

    def thresholds(self, cuts: Any = slice(None)) -> Array:  # noqa: D102 - as in Cuts
        return between_scores(self.score[cuts], self.below[cuts])

    def variances(self, cuts: IntArray) -> tuple[Array, Array]:  # noqa: D102
        return self.s2[cuts], self.b2[cuts]

    def at(self, cuts: IntArray) -> Self:  # noqa: D102
        names = ("last", "s", "b", "s2", "b2", "score", "below", "place")
        return replace(self, **{name: getattr(self, name)[cuts] for name in names})

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


@dataclass(frozen=True, eq=False)
class Levels:
    """Distinct scores, from the highest to the lowest, with what the events of each have."""

    score: AnyArray  # (n_levels,): the score, its bin, and the number of events
    place: IntArray
    events: IntArray
    sums: Array  # (4, n_levels): background, signal, and the squared weights of both

    @classmethod
    def of(cls, part: Part, place: IntArray, rows: IntArray) -> Levels:
        """Sum up some rows of a part, the bins of which are known."""
        score, signal, weight = part[0][rows], part[1][rows], part[2][rows]
        squares = np.square(weight)
        sums = np.stack([np.where(kind, w, 0.0) for w in (weight, squares) for kind in (~signal, signal)])
        return cls(score, place[rows].astype(np.intp), np.ones(rows.size, dtype=np.intp), sums)._merged()

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


class BinnedRanking:
    """A sample whose yields are known at the ends of bins of its score, and wherever else they are asked for."""

    def __init__(self, parts: Parts, bins: ScoreBins | None = None) -> None:
        self.parts = parts
        self.bins = ScoreBins.of(*self._sample()) if bins is None else bins
        self.sums = self._summed()
        per_bin = self.sums.events.sum(axis=1)
        self.filled = np.flatnonzero(per_bin)  # other bins have no cut
        self._ends = np.cumsum(per_bin)
        self.n_events = int(self._ends[-1])
        self.resolved = np.zeros(len(self.bins), dtype=np.bool_)
        self._levels: list[Levels] = []

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
            sums += BinSums.of(self.bins(part[0]), part, len(self.bins))
        return sums

    def _inside(self, wanted: BoolArray) -> list[Levels]:
        """A later pass: the distinct scores inside some bins."""
        found: list[Levels] = []
        for at in range(len(self.parts)):
            part = self.parts[at]
            place = self.bins(part[0])
            rows = np.flatnonzero(wanted[place])
            if rows.size:
                found.append(Levels.of(part, place, rows))
            if sum(levels.score.size for levels in found) > _MANY:
                found = [Levels.joined(found)]
        return found

    def cuts(self) -> SomeCuts:
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
        last = np.cumsum(rows.events) - 1
        background, signal = self.sums.squares.sum(axis=0).tolist()
        return SomeCuts(last, s, b, *self.sums.extremes, (signal, background), s2, b2, rows.score, below, rows.place)

    def purest(self) -> SomeCuts:
        """All cuts among the purest events, and the ends of bins below: what categories need."""
        self.resolve(self.bins_of(np.arange(min(_PUREST, self.n_events))))
        return self.cuts()

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
        low_b = np.maximum(low_b, np.sqrt(floor * before2) * (1 - _SLACK))
        bound = np.where(possible, np.inf, -np.inf)
        sure = possible & (low_b > 0)
        corners = [utility.value(s[sure], b[sure]) for s in (high_s, np.maximum(low_s, 0.0)) for b in (low_b, high_b)]
        bound[sure] = np.max(corners, axis=0)
        return bound


def find_cut(ranking: BinnedRanking, utility: Utility, rule: str, floor: float) -> tuple[SomeCuts, Array, int, str]:
    """Choose a cut by one of `RULES_OF_BINS`."""
    bound = ranking.upper_bounds(utility, floor)
    guess = _GUESS
    while True:
        cuts = ranking.cuts()
        z = significance_or_nan(utility, cuts.s, cuts.b, cuts.valid(floor))
        if not np.isfinite(z).any():
            if not ranking.resolve(bound > -np.inf):
                ranking.resolve(np.ones(bound.size, dtype=np.bool_))
                ranking.cuts().refuse_all(floor)
            continue
        if ranking.resolve(_wanted(ranking, cuts, z, bound, utility, rule, guess)):
            guess = 0.0
            continue
        if guess:
            guess = 0.0
            continue
        used, chosen = choose(rule, KnownBackground(utility).seen(cuts, z))
        if used != rule:  # other bins matter to the rule that stands in for it
            rule = used
            continue
        if np.isnan(cuts.below[chosen]):
            ranking.resolve(ranking.bins_of(cuts.last[chosen : chosen + 1] + 1))
            continue
        kept = np.unique(np.append(np.flatnonzero(np.diff(cuts.place, append=-1)), chosen))
        return cuts.at(kept), z[kept], int(np.searchsorted(kept, chosen)), used


def _wanted(  # noqa: PLR0917 - what is known so far
    ranking: BinnedRanking, cuts: SomeCuts, z: Array, bound: Array, utility: Utility, rule: str, guess: float
) -> BoolArray:
    """Bins whose cuts the rule must see, given those that it has seen."""
    top = int(np.nanargmax(z))
    peak = float(z[top])
    error = float(standard_errors(utility, *(v[top : top + 1] for v in (cuts.s, cuts.b, cuts.s2, cuts.b2)))[0])
    slack = _SLACK * abs(peak)
    depth, only_ends = RULES[rule].depth or 0.0, RULES[rule].only_ends
    if not only_ends:
        return np.asarray(bound >= peak - (depth + guess if depth else 0.0) * error - slack)
    wanted = (bound >= peak - slack) | ranking.bins_of(grid_ranks(ranking.n_events))
    least = peak - depth * error
    plausible = np.flatnonzero(z >= min(least + guess * error, peak))
    first, end = cuts.place[plausible[0]], cuts.place[plausible[-1]]
    outside = np.arange(bound.size)
    unclear = (outside <= first) | (outside >= end)
    return np.asarray(wanted | unclear & (bound >= least - guess * error - slack))
