"""The significance of cuts whose background may move along systematics."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.cut.ranking import Cuts, Ranking
from fivesigma.cut.rules import CutValue, grid_ranks
from fivesigma.cut.yield_model import MovingAverage, RankedYields, smooth_shares
from fivesigma.likelihood.profile import Counts, OwnUncertainty, profile_each
from fivesigma.likelihood.shifts import Normalisation, Systematics, YieldShifts
from fivesigma.significance import Utility

MOST_CUTS = 4096  # that are profiled
_MOST = 0.95  # share of the background by which a smooth variation can lower it


@dataclass(frozen=True, eq=False)
class ProfiledCuts(CutValue):
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
    # (n_cuts, n_systematics), up and down: standard errors of the shares of variations that are samples of their own;
    # zero for other weights or scores of the same events, which scatter with them
    scatter: tuple[Array, Array]
    fixed: Array | None  # (n_cuts,): as `relative`, without the noise of such samples

    @classmethod
    def of(
        cls, cuts: Cuts, shifts: YieldShifts, utility: Utility, systematics: Systematics, *, smooth: bool, mc: bool
    ) -> ProfiledCuts:
        """Sum up, and average if they are to be smooth, variations of which `shifts` has the cells between the cuts."""
        positive = np.where(cuts.b > 0, cuts.b, np.inf)  # a cut without background is not valid
        simulation = cuts.variances(np.arange(cuts.last.size))[1] / positive**2
        independent = np.array([has_own_samples(systematics[name]) for name in shifts.up])
        sides, scatter, left = [], [], np.zeros((cuts.last.size, independent.size))
        for k in (0, 1):
            running = np.stack([np.cumsum(pair[k][::-1]) for pair in shifts.background_shifts()], axis=1)
            shares, noise = _smooth(cuts, running) if smooth else (running / positive[:, None], None)
            sides.append(shares)
            if noise is None:  # as if a varied sample had as many events as the nominal one
                noise = np.tile(2 * simulation, (independent.size, 1)).T
            else:
                left += noise / 2
            scatter.append(np.sqrt(noise) * independent)
        relative = simulation + left.sum(axis=1) if mc else None
        fixed = simulation + left[:, ~independent].sum(axis=1) if mc else None
        return cls(sides[0], sides[1], relative, OwnUncertainty.of(utility), (scatter[0], scatter[1]), fixed)

    def replica_values(self, cut: int, s: Array, b: Array, random_state: int) -> Array:
        """Of replicas of one cut, in which the variations with samples of their own scatter by their own noise."""
        if not any(spread[cut].any() for spread in self.scatter):
            return super().replica_values(cut, s, b, random_state)
        rng = np.random.default_rng([random_state, 1])  # other numbers than those of the replicas
        up, down = (
            np.maximum(side[cut] + spread[cut] * rng.normal(size=(s.size, spread.shape[1])), -_MOST)
            for side, spread in zip((self.up, self.down), self.scatter, strict=True)
        )
        fixed = None if self.fixed is None else np.full(s.size, self.fixed[cut])
        return replace(self, up=up, down=down, relative=fixed).value_or_nan(np.arange(s.size), s, b)

    def value(self, at: IntArray, s: Array, b: Array) -> Array:
        """Significance of valid yields, profiled."""
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
        return np.asarray(np.sqrt(2 * np.maximum(found, 0.0)).reshape(shape))


def has_own_samples(variation: Any) -> bool:
    """Whether a systematic is given by other events than the nominal ones."""
    return not isinstance(variation, Normalisation) and any(
        side is not None and side.y is not None for side in variation
    )


def _smooth(cuts: Cuts, shifts: Array) -> tuple[Array, Array | None]:
    """Running shifts, of shape (n_cuts, n_systematics), as smooth shares of the background, and their variances.

    Few events cannot be modelled, and are left as they are, with variances that are not known. Where the model of the
    background is wrong, as for scores with few values, the shares are averaged along the score instead.
    """
    at = np.unique(np.append(np.searchsorted(cuts.last, grid_ranks(cuts.n_events)), cuts.last.size - 1))
    fraction = cuts.fraction
    measured = RankedYields(fraction[at], cuts.s[at], cuts.b[at], *cuts.variances(at))
    raw = shifts / np.where(cuts.b > 0, cuts.b, np.inf)[:, None]
    if not measured.can_be_modelled:
        return raw, None
    if measured.contradict(*measured.by_fraction()):
        s, b = np.append(0.0, cuts.s), np.append(0.0, cuts.b)
        average = MovingAverage.of(s, b)
        if average is not None:
            moved = [average.shift(b, np.append(0.0, shift), noise=0.0)[1:] for shift in shifts.T]
            raw = np.stack(moved, axis=1) / np.where(cuts.b > 0, cuts.b, np.inf)[:, None]
        return raw, None
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
