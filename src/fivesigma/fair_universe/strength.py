"""A binned fit of the signal strength mu and the pulls, for many pseudo-experiments at once, and what it is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import Array
from fivesigma.errors import InputError
from fivesigma.likelihood.profile import Counts
from fivesigma.likelihood.shifts import YieldShifts
from fivesigma.yields import class_sums

LEVEL = 0.6827
_MU_MAX = 20.0
_LEAST_BACKGROUND = 0.05  # share of the background that a negative mu leaves in every category
_EMPTY = 1e-9  # a count in place of zero, whose logarithm does not matter
_GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0
_SEARCH_STEPS = 40  # the bracket of the minimum shrinks by 4e9
_ROOT_STEPS = 50
_OFFSET = 0.001  # of the width, in the challenge's score


class FittedStrengths(NamedTuple):
    """Best mu of each experiment, and where F is half a unit higher: 68 % of a Gaussian."""

    mu: Array
    low: Array
    high: Array


@dataclass(frozen=True, eq=False)
class Templates:
    """Expected counts of categories, and how far one standard deviation of each nuisance moves them, up and down.

    Shifts have the shape (2, n_nuisances, n_categories). ``variance`` is the sum of the squared weights of the
    background, for the statistics of the simulation.
    """

    s: Array
    b: Array
    shifts_s: Array | None = None
    shifts_b: Array | None = None
    variance: Array | None = None

    def __post_init__(self) -> None:
        if not (self.b > 0).all():
            raise InputError(f"every category needs background, got {self.b.min():g} in one; ask for fewer categories")

    @classmethod
    def of(cls, shifts: YieldShifts) -> Self:
        """Templates of filled categories."""
        b, variance = class_sums(shifts.nominal, signal=False)
        shifts_s, shifts_b = (shifts.shifts_of(signal=signal).swapaxes(0, 1) for signal in (True, False))
        return cls(shifts.yields(signal=True), b, shifts_s, shifts_b, variance)

    def without_nuisances(self) -> Templates:
        """The same counts as if nothing moved them."""
        return replace(self, shifts_s=None, shifts_b=None)

    def objective(self, counts: Array, mu: Array) -> Array:
        """F of each experiment, a row of counts, at its mu, profiled over the pulls."""
        m = mu[:, None] * self.s + self.b
        none = np.zeros((2, 0, self.s.size))
        of_s, of_b = (none if shifts is None else shifts for shifts in (self.shifts_s, self.shifts_b))
        up, down = (mu[:, None, None] * s + b for s, b in zip(of_s, of_b, strict=True))
        relative = None if self.variance is None else self.variance / (m * m)
        return Counts(counts, m, up, down, relative).profile().objective

    def fit(self, counts: ArrayLike | Sequence[ArrayLike]) -> FittedStrengths:
        """Fit mu to each experiment, a row of counts; it may be negative, as a deficit of events is."""
        n = np.maximum(np.asarray(counts, dtype=np.float64), _EMPTY)
        if n.ndim != 2 or n.shape[1] != self.s.size:
            raise InputError(f"counts must have the shape (n_experiments, {self.s.size}), got {n.shape}")
        pure = float(np.max(self.s / self.b))
        ends = -min(_MU_MAX, (1 - _LEAST_BACKGROUND) / pure) if pure > 0 else -_MU_MAX, _MU_MAX
        mu = self._minimum(n, *ends)
        lowest = self.objective(n, mu)
        low, high = (self._crossing(n, lowest, mu, np.full(len(n), end)) for end in ends)
        return FittedStrengths(mu, low, high)

    def _minimum(self, n: Array, first: float, last: float) -> Array:
        """Golden section: F profiled over the pulls has one minimum in mu."""
        low, high = np.full(len(n), first), np.full(len(n), last)
        one, two = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        at_one, at_two = self.objective(n, one), self.objective(n, two)
        for _ in range(_SEARCH_STEPS):
            left = at_one < at_two
            low, high = np.where(left, low, one), np.where(left, two, high)
            new = np.where(left, high - _GOLDEN * (high - low), low + _GOLDEN * (high - low))
            at_new = self.objective(n, new)
            one, two = np.where(left, new, two), np.where(left, one, new)
            at_one, at_two = np.where(left, at_new, at_two), np.where(left, at_one, at_new)
        return np.asarray((low + high) / 2)

    def _crossing(self, n: Array, lowest: Array, inside: Array, outside: Array) -> Array:
        """Where F is half a unit above its minimum, or the end of the range."""
        for _ in range(_ROOT_STEPS):
            middle = (inside + outside) / 2
            below = self.objective(n, middle) < lowest + 0.5
            inside, outside = np.where(below, middle, inside), np.where(below, outside, middle)
            if np.abs(outside - inside).max() < 1e-6:
                break
        return (inside + outside) / 2


class Score(NamedTuple):
    """Mean width of the intervals, their coverage, and the challenge's score (larger is better)."""

    width: float
    coverage: float
    score: float
    n: int


def score_intervals(mu: ArrayLike, low: ArrayLike, high: ArrayLike) -> Score:
    """Judge 68 % intervals of a true mu as the challenge does.

    The score is -log((width + 0.001) f(coverage)). The penalty f is one within two standard errors of 68.27 %; beyond
    it grows with the fourth power of the distance below, and with the third above.
    """
    truth, left, right = (np.asarray(values, dtype=np.float64) for values in (mu, low, high))
    if not truth.shape == left.shape == right.shape or truth.size == 0:
        raise InputError(f"mu, low and high must be alike, got shapes {truth.shape}, {left.shape}, {right.shape}")
    width = float(np.mean(right - left))
    coverage = float(np.mean((left <= truth) & (truth <= right)))
    error = float(np.sqrt(LEVEL * (1 - LEVEL) / truth.size))
    beyond = max(abs(coverage - LEVEL) / error - 2, 0.0)  # in standard errors
    penalty = 1 + beyond ** (4 if coverage < LEVEL else 3)
    return Score(width, coverage, -float(np.log((width + _OFFSET) * penalty)), truth.size)
