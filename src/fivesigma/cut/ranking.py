"""Events ranked by their score, with the yields that every cut would keep: the work that scans and categories share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from fivesigma._tools.sort import CHUNK, sort_descending
from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.cut.bootstrap import poisson_sums
from fivesigma.errors import InputError
from fivesigma.yields import check_size, valid_yields


@dataclass(frozen=True, eq=False)
class Cuts(ABC):
    """Cuts ``score >= cut``, from the tightest to the one that keeps all events."""

    # (n_cuts,): rank of the last event that each cut keeps: cuts are possible only between distinct scores
    last: IntArray
    s: Array  # (n_cuts,): yields of each cut
    b: Array
    lightest: float  # extreme background weights
    heaviest: float
    squares: tuple[float, float]  # sums of the squared weights of all signal and of all background

    @abstractmethod
    def variances(self, cuts: IntArray) -> tuple[Array, Array]:
        """Sums of the squared weights of signal and of background that each of the ascending `cuts` keeps."""

    @abstractmethod
    def thresholds(self, cuts: Any = slice(None)) -> Array:
        """Scores that ``score >= threshold`` needs for each cut: midway to the next, or the last score itself."""

    @abstractmethod
    def replicas(self, cuts: IntArray, n_boot: int, random_state: int) -> tuple[Array, Array]:
        """Replicas of the yields of ascending cuts, of shape (n_boot, n_cuts); the same seed draws the same ones."""

    @property
    def n_events(self) -> int:
        """Number of events."""
        return int(self.last[-1]) + 1

    @property
    def fraction(self) -> Array:
        """Unweighted share of the events that each cut keeps."""
        return np.asarray((self.last + 1.0) / self.n_events)

    @property
    def effective_background(self) -> float:
        """Effective count of all background."""
        return effective_of(self.b[-1], self.squares[1])

    def cut_at(self, fraction: float) -> float:
        """Threshold of the tightest cut that keeps a fraction of the events."""
        n = max(1, round(fraction * self.n_events))
        return float(self.thresholds([int(np.searchsorted(self.last, n - 1))])[0])

    def effective(self, cut: int) -> tuple[float, float]:
        """Effective counts of signal and background that one cut keeps."""
        s2, b2 = self.variances(np.array([cut]))
        return effective_of(self.s[cut], s2[0]), effective_of(self.b[cut], b2[0])

    def valid(self, min_effective: float) -> BoolArray:
        """Cuts with s >= 0, b > 0 and an effective background count of at least `min_effective`; there must be one."""
        if not min_effective >= 0:
            raise InputError(f"min_effective must be >= 0, got {min_effective!r}")
        valid = valid_yields(self.s, self.b)
        # Without negative weights sum w^2 <= max w * sum w, so beyond some b every cut keeps enough.
        k = int(np.searchsorted(self.b, min_effective * self.heaviest)) if self.lightest >= 0 else self.b.size
        if k and min_effective > 0:
            b2 = self.variances(np.arange(k))[1]
            valid[:k] &= (np.square(self.b[:k]) >= min_effective * (1 - 1e-9) * b2) & (b2 > 0)  # too small to square
        if valid.any():
            return valid
        b2 = self.variances(np.arange(self.b.size))[1]
        most = float(np.max(np.divide(np.square(self.b), b2, out=np.zeros(b2.size), where=b2 > 0)))
        raise InputError(
            "no cut is valid: each needs s >= 0, b > 0 and an effective background count of at least "
            f"{min_effective:g}, but over all cuts s reaches {self.s.max():g}, b {self.b.max():g} and the effective "
            f"background count {most:.3g}"
        )

    def at(self, cuts: IntArray) -> Self:
        """Some of the cuts, by their ascending numbers; the one that keeps all events is the last of them."""
        return replace(self, last=self.last[cuts], s=self.s[cuts], b=self.b[cuts])


@dataclass(frozen=True, eq=False)
class Ranking(Cuts):
    """Events in memory from the highest score to the lowest."""

    score: AnyArray  # (n_events,): in the order of the input
    order: IntArray  # (n_events,): ranks to indices of the input
    weight: Array  # (n_events,): by rank
    signal: BoolArray

    def thresholds(self, cuts: Any = slice(None)) -> Array:  # noqa: D102 - as in Cuts
        last: IntArray = self.last[cuts]
        here = self.score[self.order[last]]
        after = self.score[self.order[np.minimum(last + 1, self.score.size - 1)]]
        with np.errstate(invalid="ignore"):  # between infinities there is no middle
            middle = here / 2 + after / 2  # in the score's own precision, in which it will be compared
        return np.where(middle > after, middle, here).astype(np.float64)  # nor between neighbouring floats

    def variances(self, cuts: IntArray) -> tuple[Array, Array]:  # noqa: D102
        ends = self.last[cuts] + 1
        starts = np.append(0, ends[:-1])
        squares, signal = np.square(self.weight[: ends[-1]]), self.signal[: ends[-1]]
        var_s = np.cumsum(np.add.reduceat(np.where(signal, squares, 0.0), starts))
        var_b = np.cumsum(np.add.reduceat(np.where(signal, 0.0, squares), starts))
        return var_s, var_b

    def replicas(self, cuts: IntArray, n_boot: int, random_state: int) -> tuple[Array, Array]:  # noqa: D102
        ends = self.last[cuts] + 1
        kept = slice(0, ends[-1])
        return poisson_sums(self.weight[kept], self.signal[kept], np.append(0, ends[:-1]), n_boot, random_state)


def effective_of(total: float, squares: float) -> float:
    """Effective count of a sum of weights and of that of their squares."""
    return float(total) ** 2 / float(squares) if squares > 0 else 0.0


def rank_events(score: AnyArray, signal: BoolArray, weight: Array) -> Ranking:
    """Rank checked events, as `ScoredEvents.arrays` gives them; nothing changes with these arrays later."""
    order, last, is_signal = sort_descending(score, signal)
    n = order.size
    w, s, b = np.empty((3, n))  # one block costs the system fewer pages than three
    carry_s = carry_b = lightest = heaviest = squares_s = squares_b = 0.0
    for start in range(0, n, CHUNK):
        part = slice(start, start + CHUNK)
        np.take(weight, order[part], out=w[part], mode="clip")  # no index is outside, so nothing is clipped or checked
        w_b = np.where(is_signal[part], 0.0, w[part])
        lightest, heaviest = min(lightest, w_b.min()), max(heaviest, w_b.max())
        w_s = w[part] - w_b
        squares_s += np.square(w_s).sum()
        squares_b += np.square(w_b).sum()
        w_s[0] += carry_s
        w_b[0] += carry_b
        carry_s = np.cumsum(w_s, out=s[part])[-1]
        carry_b = np.cumsum(w_b, out=b[part])[-1]
    if largest := float(max(-lightest, heaviest)):
        check_size(largest, "background weight")
    if last.size < n:
        s, b = s[last], b[last]
    squares = float(squares_s), float(squares_b)
    return Ranking(last, s, b, float(lightest), float(heaviest), squares, score.copy(), order, w, is_signal)
