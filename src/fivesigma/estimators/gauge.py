"""The events on which selections are measured while a model is made."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from fivesigma._types import Array, BoolArray, IntArray
from fivesigma.cut.best_cut import MIN_EFFECTIVE, CutScan, floor_for, scan
from fivesigma.errors import SmallSampleWarning
from fivesigma.estimators.sample import Sample
from fivesigma.significance import Utility
from fivesigma.yields import effective_count, yields_of


@dataclass(frozen=True)
class Gauge:
    """Events on which selections are measured: where u, the stop and the cut are decided. Usually they are held out.

    Attributes
    ----------
    signal, weight : arrays
        Of the rows of all splits, one after the other, each class scaled to its full yield.
    utility : Utility
    floor : float
        Effective background count that a selection must keep to count.
    copies : float
        How often an event stands here on average; repeated splits repeat events, which makes them no more precise.
    """

    signal: BoolArray
    weight: Array
    utility: Utility
    floor: float
    copies: float

    @classmethod
    def of(cls, sample: Sample, rows: IntArray, utility: Utility) -> Gauge:
        """Gather rows."""
        signal = sample.signal[rows]
        weight = sample.rescaled(rows)
        copies = rows.size / np.unique(rows).size
        return cls(signal, weight, utility, floor_for(effective_count(weight[~signal]) / copies), copies)

    def warn_if_small(self) -> None:
        """Say so if the floor had to be lowered."""
        self._warn(effective_count(self.weight[~self.signal]) / self.copies)

    def _warn(self, available: float) -> None:
        if self.floor < MIN_EFFECTIVE:
            warnings.warn(
                f"{available:.1f} effective background events decide; selections that keep as few as one of them count",
                SmallSampleWarning,
                stacklevel=4,
            )

    def at(self, selected: BoolArray) -> tuple[float, float, float]:
        """Yields s and b of a selection, and its effective background count."""
        kept = yields_of(selected, self.signal, self.weight)
        return kept.s, kept.b, kept.effective_b / self.copies

    def scan(self, probability: Array, rule: str = "plateau") -> CutScan:
        """Scan all cuts on P(signal)."""
        return scan(probability, self.signal, self.weight, self.utility, rule, min_effective=self.floor * self.copies)
