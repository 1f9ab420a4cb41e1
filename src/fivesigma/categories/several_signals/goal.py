"""What is maximised: a goal G of the significances of the signals, and how it changes with the yields.

The objective of a signal is the sum of F(s, b) over the categories, as for one score. G combines the Z = sqrt(2 F) of
all signals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fivesigma._types import Array
from fivesigma.categories.class_sample import Roles
from fivesigma.categories.floors import Floors
from fivesigma.errors import InputError, did_you_mean
from fivesigma.significance import AMS2, Utility

GOALS = ("geometric", "sum", "minimum")
OTHERS = ("background", "ignore")
_DIFFERENCE = 1e-5  # relative step of the numerical slope of a user's goal


@dataclass(frozen=True)
class Goal:
    """The goal of several signals."""

    # ``"geometric"`` mean, root of the ``"sum"`` of squares, ``"minimum"``, or a function of the array of Z (last axis:
    # signals) that increases with each of them
    kind: str | Callable[[Array], float] = "geometric"
    others: str = "background"  # {"background", "ignore"}: whether the other signals are background of a signal
    utility: Utility = field(default_factory=AMS2)  # its F is summed over the categories; Z = sqrt(2 F)

    def __post_init__(self) -> None:
        if not callable(self.kind) and self.kind not in GOALS:
            raise InputError(
                f"goal must be one of {', '.join(map(repr, GOALS))} or a function of the Z, got {self.kind!r}"
                f"{did_you_mean(str(self.kind), GOALS)}"
            )
        if self.others not in OTHERS:
            raise InputError(f"others must be one of {', '.join(map(repr, OTHERS))}, got {self.others!r}")
        if not self.utility.guaranteed or getattr(self.utility, "h", None) is not None:
            raise InputError(f"{self.utility!r} cannot be used here: a convex F with Z = sqrt(2 F) is needed")

    def check(self, n_signals: int) -> None:
        """Refuse a function that does not make a number of the Z of so many signals, or does not rise with them."""
        if callable(self.kind):
            one, two = (self.kind(np.full(n_signals, z)) for z in (1.0, 2.0))
            for name, found in (("one", one), ("two", two)):
                if not (np.ndim(found) == 0 and np.asarray(found).dtype.kind in "iuf" and np.isfinite(found)):
                    raise InputError(f"goal must give a finite number for an array of Z, got {found!r} for Z of {name}")
            if not two > one:
                raise InputError(
                    f"goal must increase with the Z; it gives {one:g} for Z of one and {two:g} for Z of two"
                )

    @property
    def name(self) -> str:
        """Name of the goal, for sentences and files."""
        return str(getattr(self.kind, "__name__", "function")) if callable(self.kind) else self.kind

    def split(self, yields: Array) -> tuple[Array, Array]:
        """Signal and background of each signal, from yields whose last axis is (signals..., background)."""
        s, b = yields[..., :-1], yields[..., -1:]
        if self.others == "background":
            return s, b + s.sum(axis=-1, keepdims=True) - s
        return s, np.broadcast_to(b, s.shape)

    def objectives(self, yields: Array) -> Array:
        """F of each signal in each category; minus infinity where s < 0 or b <= 0."""
        s, b = self.split(yields)
        bad = (s < 0) | (b <= 0)
        if not bad.any():
            return np.asarray(self.utility.objective(s, b))
        F = np.asarray(self.utility.objective(np.where(bad, 0.0, s), np.where(bad, 1.0, b)))
        return np.where(bad, -np.inf, F)

    def value(self, F: Array) -> Array:
        """G of the summed objectives of the signals (last axis); minus infinity where one of them is."""
        bad = np.asarray(~np.isfinite(F).all(axis=-1))
        squares = 2.0 * np.where(bad[..., None], 0.0, np.maximum(F, 0.0))
        if self.kind == "geometric":
            G = np.prod(squares ** (0.5 / F.shape[-1]), axis=-1)
        elif self.kind == "sum":
            G = np.sqrt(squares.sum(axis=-1))
        elif self.kind == "minimum":
            G = np.sqrt(squares.min(axis=-1))
        else:
            assert callable(self.kind)
            G = np.apply_along_axis(self.kind, -1, np.sqrt(squares)).astype(np.float64)
        return np.where(bad, -np.inf, G)

    def total(self, yields: Array) -> float:
        """G of the yields of all categories, of shape (n_categories, n_signals + 1)."""
        return float(self.value(self.objectives(yields).sum(axis=0)))

    def slopes(self, F: Array) -> Array:
        """dG/dF of each signal, up to a common factor."""
        F = np.maximum(F, 1e-300)
        if self.kind == "sum":
            return np.ones_like(F)
        if self.kind == "geometric":
            return np.asarray(F.mean() / F)
        if self.kind == "minimum":  # a steep mean, as the minimum itself has no slope where signals are level
            steep: Array = (F.min() / F) ** 8
            return np.asarray(steep / steep.sum())
        up, down = (
            np.array([float(self.value(np.where(np.arange(F.size) == m, F * (1 + step), F))) for m in range(F.size)])
            for step in (_DIFFERENCE, -_DIFFERENCE)
        )
        slope = np.maximum(up - down, 0.0) / F
        return slope / slope.max() if slope.max() > 0 else np.ones_like(F)

    def rows(self, yields: Array, F: Array | None = None) -> Array:
        """Value of an event of each class in each category: the linear functions that minorise G at these yields.

        The paper's step: own signal counts with dF/ds, whatever is background with dF/db (which is negative).
        """
        s, b = self.split(yields)
        g = self.slopes(self.objectives(yields).sum(axis=0) if F is None else F)
        u, v = (g * np.asarray(w) for w in self.utility.class_weights(s, b))
        background = v.sum(axis=1, keepdims=True)
        own = u - background + v if self.others == "background" else u
        return np.concatenate([own, -background], axis=1)


@dataclass(frozen=True)
class Settings:
    """What a search is asked for; `prior` are class shares that were checked."""

    roles: Roles
    goal: Goal
    floors: Floors
    n_categories: int
    discard: bool
    prior: Array | None
    calibrate: bool

    @property
    def argmax_prior(self) -> Array:
        """Shares by which the simple way divides; as they are if no prior was given."""
        n = len(self.roles.columns)
        return np.ones(n) if self.prior is None else self.prior
