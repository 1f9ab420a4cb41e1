"""Floors: what every category must have of the background, and of which processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import Array, BoolArray, IntArray
from fivesigma.cut.ranking import Ranking
from fivesigma.errors import InputError, is_number
from fivesigma.yields import valid_yields

_SLACK = 1.0 - 1e-9  # sums of the same events in another order are as good


def check_number(n_categories: object, or_else: str = "") -> int:
    """Refuse what is no number of categories."""
    if isinstance(n_categories, bool) or not isinstance(n_categories, int | np.integer) or n_categories < 1:
        raise InputError(f"n_categories must be a whole number from 1{or_else}, got {n_categories!r}")
    return int(n_categories)


def effective_counts(total: Array, squares: Array) -> Array:
    """Effective counts of sums of weights and of squared weights."""
    return np.divide(total * total, squares, out=np.zeros_like(total), where=squares > 0)


@dataclass(frozen=True)
class Floors:
    """What every category must have: background, effective counts (sum of w)^2 / sum of w^2, of which processes."""

    min_background: float = 0.0
    min_effective: float = 0.0
    processes: tuple[str, ...] | None = None

    @classmethod
    def checked(
        cls,
        min_background: float,
        min_effective: float,
        max_relative_mc_error: float | None = None,
        processes: Sequence[str] | None = None,
    ) -> Floors:
        """Check what a user gave; a relative error r of the background is an effective count of 1 / r^2."""
        for name, value in (("min_background", min_background), ("min_effective", min_effective)):
            if not (is_number(value) and 0 <= value < np.inf):
                raise InputError(f"{name} must be finite and >= 0, got {value!r}")
        if max_relative_mc_error is not None:
            if not max_relative_mc_error >= 1e-50:
                raise InputError(
                    f"max_relative_mc_error must be > 0, and at least 1e-50, got {max_relative_mc_error!r}"
                )
            min_effective = max(min_effective, max_relative_mc_error**-2)
        return cls(float(min_background), float(min_effective), None if processes is None else tuple(processes))

    def __str__(self) -> str:
        words = [f"b >= {self.min_background:g}" if self.min_background > 0 else "b > 0"]
        if self.min_effective > 0:
            words.append(f"an effective background count of at least {self.min_effective:g}")
        return " and ".join(words)

    def hold(self, b: Array, b2: Array) -> BoolArray:
        """Categories that have enough, from the sums of weights and of squared weights of what counts."""
        held: BoolArray = b > 0
        if self.min_background > 0:
            held &= b >= self.min_background * _SLACK
        if self.min_effective > 0:
            held &= b * b >= self.min_effective * _SLACK * b2
        return held

    def allow(self, s: Array, b: Array, b2: Array) -> BoolArray:
        """Categories that have enough and are valid."""
        return valid_yields(s, b) & self.hold(b, b2)

    def times(self, factor: float) -> Floors:
        """Floors that ask for `factor` times as much."""
        return replace(self, min_background=self.min_background * factor, min_effective=self.min_effective * factor)

    def counted(self, ranking: Ranking, process: ArrayLike | None, cuts: IntArray) -> tuple[Array, Array] | None:
        """Background that counts and its squared weights above cuts, from zero on; None if all of it counts."""
        if self.processes is None:
            return None
        own = np.isin(np.asarray(process).astype(np.str_), list(self.processes))[ranking.order]
        weight = np.where(own & ~ranking.signal, ranking.weight, 0.0)
        b, b2 = (np.append(0.0, np.cumsum(w)[ranking.last[cuts]]) for w in (weight, np.square(weight)))
        return b, b2

    def check_processes(self, signal: BoolArray, process: ArrayLike | None) -> None:
        """Refuse processes that are signal, or of which there are no events."""
        if self.processes is None:
            return
        if process is None:
            raise InputError("floor_processes needs process, the name of the process of each event")
        names = np.asarray(process).astype(np.str_)
        for name in self.processes:
            own = names == name
            if not own.any():
                raise InputError(f"floor_processes has {name!r}, of which there are no events")
            if signal[own].any():
                raise InputError(f"floor_processes has the signal {name!r}; only background can count for a floor")
