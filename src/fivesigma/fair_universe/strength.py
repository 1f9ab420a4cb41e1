"""A binned fit of the signal strength mu and the pulls, for many pseudo-experiments at once."""

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

__all__ = ["Interval", "Templates"]

_MU_MAX = 20.0
_LEAST_BACKGROUND = 0.05  # share of the background that a negative mu leaves in every category
_EMPTY = 1e-9  # a count in place of zero, whose logarithm does not matter
_GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0
_SEARCH_STEPS = 40  # the bracket of the minimum shrinks by 4e9
_ROOT_STEPS = 50


class Interval(NamedTuple):
    """Best mu of each experiment, and where F is half a unit higher: 68 % of a Gaussian."""

    mu: Array
    low: Array
    high: Array


@dataclass(frozen=True, eq=False)
class Templates:
    """Expected counts of categories, and how one standard deviation of each nuisance moves them.

    Parameters
    ----------
    s, b : arrays of shape (n_categories,)
        Signal at mu = 1, and background.
    up_s, down_s, up_b, down_b : arrays of shape (n_nuisances, n_categories)
        Shifts of both.
    variance : array of shape (n_categories,), optional
        Sum of the squared weights of the background, for the statistics of the simulation.

    Examples
    --------
    >>> import numpy as np
    >>> from fivesigma.fair_universe import Templates
    >>> none = np.zeros((0, 1))
    >>> counting = Templates(np.array([50.0]), np.array([100.0]), none, none, none, none)
    >>> found = counting.fit([[150.0]])
    >>> bool(abs(found.mu[0] - 1) < 1e-6), bool(abs(found.high[0] - found.mu[0] - 150**0.5 / 50) < 0.01)
    (True, True)
    """

    s: Array
    b: Array
    up_s: Array
    down_s: Array
    up_b: Array
    down_b: Array
    variance: Array | None = None

    def __post_init__(self) -> None:
        shape = (len(self.up_s), self.s.size)
        for name in ("up_s", "down_s", "up_b", "down_b"):
            if getattr(self, name).shape != shape:
                raise InputError(f"{name} must have the shape {shape}, got {getattr(self, name).shape}")
        if not (self.b > 0).all():
            raise InputError(f"every category needs background, got {self.b.min():g} in one; ask for fewer categories")

    @classmethod
    def of(cls, shifts: YieldShifts) -> Self:
        """Templates of filled categories."""
        b, variance = class_sums(shifts.nominal, signal=False)
        up_s, down_s, up_b, down_b = (
            np.array([pair[side] for pair in shifts.shifts_of(signal=signal)]).reshape(-1, b.size)
            for signal in (True, False)
            for side in (0, 1)
        )
        return cls(shifts.yields(signal=True), b, up_s, down_s, up_b, down_b, variance)

    def without_nuisances(self) -> Templates:
        """The same counts as if nothing moved them."""
        none = np.zeros((0, self.s.size))
        return replace(self, up_s=none, down_s=none, up_b=none, down_b=none)

    def objective(self, counts: Array, mu: Array) -> Array:
        """F of each experiment, a row of counts, at its mu, profiled over the pulls."""
        at = mu[:, None]
        m = at * self.s + self.b
        up, down = (at[:, None] * s + b for s, b in ((self.up_s, self.up_b), (self.down_s, self.down_b)))
        relative = None if self.variance is None else self.variance / (m * m)
        return Counts(counts, m, up, down, relative).profile().objective

    def fit(self, counts: ArrayLike | Sequence[ArrayLike]) -> Interval:
        """Fit mu to the counts of each experiment; it may be negative, as a deficit of events is.

        Parameters
        ----------
        counts : array-like of shape (n_experiments, n_categories)

        Returns
        -------
        Interval
        """
        n = np.maximum(np.asarray(counts, dtype=np.float64), _EMPTY)
        if n.ndim != 2 or n.shape[1] != self.s.size:
            raise InputError(f"counts must have the shape (n_experiments, {self.s.size}), got {n.shape}")
        pure = float(np.max(self.s / self.b))
        ends = -min(_MU_MAX, (1 - _LEAST_BACKGROUND) / pure) if pure > 0 else -_MU_MAX, _MU_MAX
        mu = self._minimum(n, *ends)
        lowest = self.objective(n, mu)
        low, high = (self._crossing(n, lowest, mu, np.full(len(n), end)) for end in ends)
        return Interval(mu, low, high)

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
        middle: Array = (low + high) / 2
        return middle

    def _crossing(self, n: Array, lowest: Array, inside: Array, outside: Array) -> Array:
        """Where F is half a unit above its minimum, or the end of the range."""
        for _ in range(_ROOT_STEPS):
            middle = (inside + outside) / 2
            below = self.objective(n, middle) < lowest + 0.5
            inside, outside = np.where(below, middle, inside), np.where(below, outside, middle)
            if np.abs(outside - inside).max() < 1e-6:
                break
        return (inside + outside) / 2
