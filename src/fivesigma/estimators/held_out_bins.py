"""What a score is worth with systematics: its bins, filled with held-out events, nominal and varied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fivesigma._types import Array, BoolArray
from fivesigma.estimators.moved_events import FoldedEvents, TrainingSystematic
from fivesigma.likelihood.least_favourable import Solution
from fivesigma.likelihood.profile import root_of, uncertainty_of
from fivesigma.likelihood.shifts import Normalisation, Varied, YieldShifts, counts_of, derivatives_of, yield_shifts
from fivesigma.significance import AMS2
from fivesigma.yields import class_sums

N_BINS = 30
MIN_EFFECTIVE = 25.0  # background events of a bin: the noise of fewer events' shifts would look like a constraint
BENT = 0.5  # mean of a shift up and down, over half of their difference, that needs a classifier for each side
WIDE = 5  # bins that are one where that is decided
NOMINAL = "nominal"


@dataclass(frozen=True)
class HeldOutBins:
    """Held-out events, nominal and varied."""

    nominal: FoldedEvents
    systematics: Sequence[TrainingSystematic]
    free: Sequence[str]
    goal: str

    def samples(self) -> dict[str, FoldedEvents]:
        """Every sample that needs scores of its own, by a name."""
        out = {NOMINAL: self.nominal}
        for one in self.systematics:
            for side, events in (("up", one.up), ("down", one.down)):
                if events is not None and events.is_elsewhere:
                    out[f"{one.name} {side}"] = events
        return out

    def fill(self, scores: Mapping[str, Array]) -> YieldShifts:
        """Fill bins of a score."""
        held, weight = self.nominal.home >= 0, self.nominal.representative
        score, signal, weight = scores[NOMINAL][held], self.nominal.signal[held], weight[held]
        process = None if self.nominal.process is None else self.nominal.process[held]
        edges = bin_edges(score, signal, weight)
        variations = {one.name: self._variation(one, scores, held) for one in self.systematics}
        return yield_shifts(edges, score, signal, weight, variations, process=process, free=self.free)

    def _variation(
        self, one: TrainingSystematic, scores: Mapping[str, Array], held: BoolArray
    ) -> tuple[Varied, Varied | None] | Normalisation:
        if one.normalisation is not None:
            return one.normalisation

        def side(name: str, events: FoldedEvents) -> Varied:
            if not events.is_elsewhere:
                return Varied(weight=events.representative[held])
            there = events.home >= 0
            process = None if events.process is None else events.process[there]
            return Varied(scores[name][there], events.representative[there], events.signal[there], process)

        assert one.up is not None  # where there is no normalisation
        up = side(f"{one.name} up", one.up)
        return up, None if one.down is None else side(f"{one.name} down", one.down)

    def judge(self, shifts: YieldShifts, names: Sequence[str] | None = None) -> Solution:
        """Pulls and significance, or coefficients and uncertainty, of filled bins."""
        used = shifts if names is None else shifts.restrict(names)
        s, b = shifts.yields(signal=True), shifts.yields(signal=False)
        if self.goal == "discovery":
            found = counts_of(AMS2(), s, b, used).lowest()
            return Solution(found.theta, root_of(float(found.objective)))
        found = derivatives_of(AMS2(), s, b, used).profile()
        return Solution(found.theta, uncertainty_of(float(found.objective)))

    def bent(self, shifts: YieldShifts) -> set[str]:
        """Systematics that do not move the background of filled bins as much down as up, by more than noise."""
        wide = np.arange(0, shifts.edges.size - 1, WIDE)  # events that cross an edge of a narrow bin are noise

        def add(values: Array) -> Array:
            return np.asarray(np.add.reduceat(values, wide))

        b, variance = (add(values) for values in class_sums(shifts.nominal, signal=False)[:2])
        out = set()
        for name, (up, down) in zip(shifts.up, shifts.background_shifts(), strict=True):
            even, odd = np.square(add(up + down)), np.square(add(up - down))
            # Samples of their own have the variance of up and of down, and four times that of the nominal background.
            if (even / b).sum() > BENT**2 * (odd / b).sum() and (even / (6 * variance)).sum() > 2 * b.size:
                out.add(name)
        return out


def bin_edges(score: Array, signal: BoolArray, weight: Array) -> Array:
    """Edges between which signal and background, each as one, are spread evenly; bins with little background merge."""
    order = np.argsort(score, kind="stable")
    ranked, positive = score[order], np.maximum(weight, 0.0)[order]
    mixture = np.zeros(score.size)
    for members in (signal[order], ~signal[order]):
        mixture[members] = positive[members] / positive[members].sum()
    at = np.searchsorted(np.cumsum(mixture), np.linspace(0, 2, N_BINS + 1)[1:-1])
    edges = np.unique(ranked[np.minimum(at, score.size - 1)])
    edges = edges[edges > ranked[0]]  # no bin is empty
    cell = np.searchsorted(edges, score[~signal], side="right")
    first, second = (np.bincount(cell, weight[~signal] ** p, minlength=edges.size + 1) for p in (1, 2))
    kept: list[float] = []
    sums = np.zeros(2)
    for k in range(edges.size, -1, -1):  # from the highest scores down, where background is rare
        sums += first[k], second[k]
        if k and sums[0] > 0 and sums[0] ** 2 >= MIN_EFFECTIVE * sums[1]:
            kept.append(float(edges[k - 1]))
            sums[:] = 0
    return np.array([-np.inf, *kept[::-1], np.inf])
