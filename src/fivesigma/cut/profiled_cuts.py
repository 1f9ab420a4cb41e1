"""The significance of cuts whose background may move along systematics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.cut.moving_average import MovingAverage
from fivesigma.cut.ranking import Cuts, Ranking
from fivesigma.cut.rules import Seen, grid_ranks
from fivesigma.cut.yield_model import RankedYields, smooth_shares
from fivesigma.errors import InputError
from fivesigma.likelihood.profile import Counts, profile_each
from fivesigma.likelihood.shifts import Systematics, YieldShifts, yield_shifts
from fivesigma.likelihood.terms import OwnUncertainty
from fivesigma.scored.scored_events import ScoredEvents
from fivesigma.significance import Utility
from fivesigma.yields import valid_yields

MOST_CUTS = 4096  # that are profiled
_MOST = 0.95  # share of the background by which a smooth variation can lower it


@dataclass(frozen=True, eq=False)
class ProfiledCuts:
    """How far systematics move the background of each cut, as shares of it.

    A variation carries few events from one side of a cut to the other, so that its shifts are a comb, whose best tooth
    a search would take. So for the rule "model" the ratio of the varied to the nominal background is averaged along the
    score.
    """

    up: Array  # (n_cuts, n_systematics): shifts at one standard deviation
    down: Array
    # (n_cuts,): relative variance of the background from the statistics of the simulation, if that is profiled too. The
    # noise that is left in smooth variations is a part of it: a shift is known no better than that
    relative: Array | None
    own: OwnUncertainty  # of the utility

    @classmethod
    def of(
        cls, cuts: Cuts, shifts: YieldShifts, utility: Utility, *, smooth: bool, mc_statistics: bool
    ) -> ProfiledCuts:
        """Sum up, and average if they are to be smooth, variations of which `shifts` has the cells between the cuts."""
        positive = np.where(cuts.b > 0, cuts.b, np.inf)  # a cut without background is not valid
        up, down = (np.stack([np.cumsum(pair[k][::-1]) for pair in shifts.background_shifts()], axis=1) for k in (0, 1))
        noise = np.zeros(cuts.last.size)
        if smooth:
            (up, of_up), (down, of_down) = _smooth(cuts, up), _smooth(cuts, down)
            noise = (of_up + of_down).sum(axis=1) / 2
        else:
            up, down = up / positive[:, None], down / positive[:, None]
        relative = cuts.variances(np.arange(cuts.last.size))[1] / positive**2 + noise if mc_statistics else None
        return cls(up, down, relative, OwnUncertainty.of(utility))

    def value(self, at: IntArray, s: Array, b: Array) -> Array:
        """Significance of yields of some of the cuts, or of replicas of them along the first axis."""
        shape = s.shape
        rows = np.broadcast_to(at, shape).ravel()
        s, b = s.ravel(), b.ravel()
        total = b + self.own.offset
        up, down = ((side[rows] * b[:, None])[..., None] for side in (self.up, self.down))
        if self.own.uncertain:
            size = (self.own.fraction * b + self.own.constant)[:, None, None]
            up, down = np.concatenate([up, size], axis=1), np.concatenate([down, -size], axis=1)
        relative = None if self.relative is None else (self.relative[rows] * (b / total) ** 2)[:, None]
        found = profile_each(Counts((s + total)[:, None], total[:, None], up, down, relative))
        z: Array = np.sqrt(2 * np.maximum(found, 0.0)).reshape(shape)
        return z

    def value_or_nan(self, at: IntArray, s: Array, b: Array) -> Array:
        """The same, NaN where yields are not valid."""
        valid = valid_yields(s, b)
        z = np.full(s.shape, np.nan)
        z[valid] = self.value(np.broadcast_to(at, s.shape)[valid], s[valid], b[valid])
        return z

    def seen(self, cuts: Cuts, z: Array) -> Seen:
        """What a rule sees of these cuts."""

        def error_at(cut: int) -> float:
            return float(self.errors(cuts, np.array([cut]))[0])

        return Seen(z, cuts.last, error_at, cuts.s, cuts.b, cuts.variances, self.value)

    def errors(self, cuts: Cuts, at: IntArray) -> Array:
        """How far Z moves if s and b each move up by their own simulation error, in quadrature."""
        s, b = cuts.s[at], cuts.b[at]
        s2, b2 = cuts.variances(at)
        z = self.value(at, s, b)
        return np.hypot(self.value(at, s + np.sqrt(s2), b) - z, self.value(at, s, b + np.sqrt(b2)) - z)


def _smooth(cuts: Cuts, shifts: Array) -> tuple[Array, Array]:
    """Running shifts, of shape (n_cuts, n_systematics), as smooth shares of the background, and their variances.

    Few events cannot be modelled, and are left as they are. Where the model of the background is wrong, as for scores
    with few values, the shares are averaged along the score instead.
    """
    at = np.unique(np.append(np.searchsorted(cuts.last, grid_ranks(cuts.n_events)), cuts.last.size - 1))
    fraction = cuts.fraction
    measured = RankedYields(fraction[at], cuts.s[at], cuts.b[at], *cuts.variances(at))
    raw = shifts / np.where(cuts.b > 0, cuts.b, np.inf)[:, None]
    if not measured.can_be_modelled:
        return raw, np.zeros(raw.shape)
    if measured.contradict(*measured.by_fraction()):
        s, b = np.append(0.0, cuts.s), np.append(0.0, cuts.b)
        average = MovingAverage.of(s, b)
        if average is not None:
            moved = [average.shift(b, np.append(0.0, shift), noise=0.0)[1:] for shift in shifts.T]
            raw = np.stack(moved, axis=1) / np.where(cuts.b > 0, cuts.b, np.inf)[:, None]
        return raw, np.zeros(raw.shape)
    position = np.log(fraction)
    shares, variances = (
        np.stack([np.interp(position, position[at], column) for column in found.T], axis=1)
        for found in smooth_shares(measured, shifts[at])
    )
    return np.maximum(shares, -_MOST), variances


def few_cuts(ranking: Ranking) -> Ranking:
    """At most 4,096 cuts: half of them even in rank, and half even in its logarithm."""
    first = int(ranking.thresholds([0])[0] == np.inf and ranking.last.size > 1)  # no category is [inf, inf)
    if ranking.last.size <= MOST_CUTS:
        return ranking.at(np.arange(first, ranking.last.size)) if first else ranking
    half = MOST_CUTS // 2
    ranks = np.concatenate([np.linspace(0, ranking.last[-1], half), np.geomspace(1, ranking.n_events, half) - 1])
    at = np.searchsorted(ranking.last, np.floor(ranks).astype(np.intp))
    return ranking.at(np.unique(np.maximum(at, first)))


def shifts_of(cuts: Ranking, scored: ScoredEvents, systematics: Systematics, free: Iterable[str]) -> YieldShifts:
    """Fill the cells between the cuts with the nominal and the varied events."""
    edges = np.append(cuts.thresholds()[::-1], np.inf)
    found = yield_shifts(edges, scored, systematics=systematics, free=free)
    if found.free:
        raise InputError(
            f"a cut cannot measure what systematic {next(iter(found.free))!r} leaves free, and finds no signal beside "
            "it; use categorise, or give it a constraint"
        )
    return found
