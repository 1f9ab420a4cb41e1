"""Events of several workers on which selections are measured together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fivesigma._types import AnyArray, Array, BoolArray
from fivesigma.cut.best_cut import CutScan, floor_for, scan_binned
from fivesigma.cut.binned import BinnedRanking, Levels
from fivesigma.cut.score_bins import SAMPLE, BinSums, Parts, in_parts, sample_scores
from fivesigma.dask.group import Group
from fivesigma.estimators.split_steps import TuningEvents
from fivesigma.significance import Utility


class GroupRanking(BinnedRanking):
    """A ranking of events that are spread over the workers of a group; each has the same sums in the end."""

    def __init__(self, parts: Parts, group: Group) -> None:
        self._group = group
        super().__init__(parts)

    def _sample(self) -> tuple[AnyArray, int]:
        scores, n = sample_scores(self.parts) if len(self.parts) else (np.empty(0, dtype=np.float32), 0)
        step = max(1, scores.size * self._group.size // SAMPLE)
        return np.concatenate(self._group.gather(scores[::step])), int(self._group.sum(float(n)))

    def _summed(self) -> BinSums:
        own = super()._summed()
        group = self._group
        events, positive, negative, squares = group.sum(
            np.stack([own.events.astype(np.float64), own.positive, own.negative, own.squares])
        )
        least, most = float(group.least(own.extremes[0])), float(group.most(own.extremes[1]))
        return BinSums(events.astype(np.intp), positive, negative, squares, group.least(own.lowest), (least, most))

    def _inside(self, wanted: BoolArray) -> list[Levels]:
        own = super()._inside(wanted)
        gathered = self._group.gather(Levels.joined(own) if own else None)
        return [levels for levels in gathered if levels is not None]


@dataclass(frozen=True)
class GroupTuningEvents(TuningEvents):
    """Events of this worker, measured together with those of all others.

    Attributes
    ----------
    group : Group
    available : float
        Effective background count of all workers.
    """

    group: Group
    available: float

    @classmethod
    def shared(cls, signal: BoolArray, weight: Array, utility: Utility, group: Group) -> GroupTuningEvents:
        """Gather events whose weights are scaled already."""
        available = _effective(*group.sum(*_sum_and_squares(weight[~signal])).tolist())
        return cls(signal, weight, utility, floor_for(available), 1.0, group, available)

    def warn_if_small(self) -> None:
        """Say so if the floor had to be lowered."""
        self._warn(self.available)

    def at(self, selected: BoolArray) -> tuple[float, float, float]:
        """Yields s and b of a selection, and its effective background count."""
        w_s, w_b = self.weight[selected & self.signal], self.weight[selected & ~self.signal]
        s, b, b2 = self.group.sum(w_s.sum(), *_sum_and_squares(w_b)).tolist()
        return s, b, _effective(b, b2)

    def scan(self, probability: Array, rule: str = "plateau") -> CutScan:
        """Scan all cuts on P(signal)."""
        ranking = GroupRanking(in_parts(probability, self.signal, self.weight), self.group)
        return scan_binned(ranking, self.utility, rule, min_effective=self.floor)


def _sum_and_squares(weight: Array) -> tuple[float, float]:
    return float(weight.sum()), float(np.square(weight).sum())


def _effective(total: float, squares: float) -> float:
    return total**2 / squares if squares > 0 else 0.0
