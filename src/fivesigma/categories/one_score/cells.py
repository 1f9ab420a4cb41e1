"""Running yields at candidate edges with their shifts: what every interval between two edges counts, at any pulls."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fivesigma._types import Array, BoolArray, IntArray
from fivesigma.likelihood.profile import Counts, Freedom, Profile, lowest, profile
from fivesigma.likelihood.terms import deviance


@dataclass(frozen=True, eq=False)
class Cells:
    """Running sums from the edge that keeps nothing to the one that keeps all, and the intervals that are allowed.

    Attributes
    ----------
    n, b : arrays of shape (n_edges,)
        Expected counts s + b and background above each edge, zero at index 0.
    up, down : arrays of shape (n_systematics, n_edges)
        Shifts of the background above each edge.
    allowed : bool array of shape (n_edges, n_edges)
        Whether the interval from the upper edge (column) to the lower edge (row) may be a category.
    offset : float
        Background that every category has besides: b_reg.
    constant : array of shape (n_systematics,)
        Shift that every category has besides, as large up as down.
    freedom : Freedom, optional
        Pulls without a constraint.
    scaled : (array, array), optional
        Running shifts that free normalisations scale, of shape (n_scales, n_systematics, n_edges).
    """

    n: Array
    b: Array
    up: Array
    down: Array
    allowed: BoolArray
    offset: float
    constant: Array
    freedom: Freedom | None = None
    scaled: tuple[Array, Array] | None = None

    @cached_property
    def _pairs(self) -> tuple[IntArray, IntArray]:
        lower, upper = np.nonzero(self.allowed)
        return upper, lower

    def between(self, upper: IntArray, lower: IntArray) -> Counts:
        """Counts of the categories between edges, of shape (..., n_categories)."""
        n, b = (v[lower] - v[upper] + self.offset for v in (self.n, self.b))
        up, down = (
            np.moveaxis(v[:, lower] - v[:, upper], 0, -2) + sign * self.constant[:, None]
            for v, sign in ((self.up, 1.0), (self.down, -1.0))
        )
        scaled = None
        if self.scaled is not None:
            first, second = (np.moveaxis(v[..., lower] - v[..., upper], (0, 1), (-3, -2)) for v in self.scaled)
            scaled = first, second
        return Counts(n, b, up, down, None, self.freedom, scaled)

    @property
    def least(self) -> Array | float:
        """Smallest pull of each systematic."""
        return -np.inf if self.freedom is None else self.freedom.least

    def penalty(self, theta: Array) -> float:
        """Price of some pulls."""
        return float(theta @ theta / 2 if self.freedom is None else self.freedom.penalty(theta))

    def shift(self, theta: Array) -> Array:
        """Running shift of the background at some pulls."""
        counts = Counts(self.n, self.b, self.up, self.down, None, self.freedom, self.scaled)
        return counts.shifts(theta)[0]

    def values(self, theta: Array, upper: IntArray, lower: IntArray) -> Array:
        """G of the categories between edges, at some pulls."""
        moved = self.b + self.shift(theta)
        n, m, b = (v[lower] - v[upper] + self.offset for v in (self.n, moved, self.b))
        return deviance(n, m + self.constant @ theta, b).value

    def matrix(self, theta: Array) -> Array:
        """G of all categories: rows are lower edges, columns upper ones, minus infinity where not allowed."""
        upper, lower = self._pairs
        out = np.full(self.allowed.shape, -np.inf)
        out[lower, upper] = self.values(theta, upper, lower)
        return out

    def at(self, theta: Array, partitions: IntArray) -> Array:
        """F of partitions at some pulls; each is given by its edges without the first, which is zero."""
        out: Array = self.values(theta, uppers(partitions), partitions).sum(axis=-1) + self.penalty(theta)
        return out

    def profile(self, partitions: IntArray, start: Array) -> Profile:
        """Profile several partitions from the same pulls."""
        return profile(self.between(uppers(partitions), partitions), start)

    def lowest(self, edges: IntArray, start: Array | None = None) -> Profile:
        """Profile one partition from several pulls."""
        return lowest(self.between(uppers(edges), edges), start)


def uppers(partitions: IntArray) -> IntArray:
    """Upper edge of every category."""
    return np.concatenate([np.zeros((*partitions.shape[:-1], 1), dtype=np.intp), partitions[..., :-1]], axis=-1)
