"""The paper's family, F = b f(s/b): its two measures, a third of that form, and any f that a user writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import Array
from fivesigma.errors import InputError
from fivesigma.significance.numerics import expm1mx, log1pmx, poisson_f
from fivesigma.significance.utility import VariationalUtility, refuse_outside

_LARGEST_T = 1e12  # s/b beyond which the slope of a user's f is not searched


@dataclass(frozen=True)
class AMS2(VariationalUtility):
    """Median discovery significance of a counting experiment with known background (Asimov Z, "AMS2").

    f(t) = (1+t) log(1+t) - t, u = log(1+t), f*(u) = e^u - u - 1.

    Parameters
    ----------
    b_reg : float, default=0.0
        Constant added to b; the 2014 challenge used 10.

    Examples
    --------
    >>> from fivesigma import AMS2
    >>> float(AMS2().u(s=1.0, b=1.0).round(4))
    0.6931
    """

    b_reg: float = 0.0

    def _objective(self, s: Array, b: Array) -> Array:
        return b * poisson_f(s / b)

    def _slopes(self, s: Array, b: Array) -> tuple[Array, Array]:
        t = s / b
        return np.log1p(t), -log1pmx(t)

    def _conjugate(self, u: Array) -> Array:
        return expm1mx(u)


@dataclass(frozen=True)
class AMS3(VariationalUtility):
    """s / sqrt(b): the limit of AMS2 for s much smaller than b.

    f(t) = t^2/2, u = t, f*(u) = u^2/2.

    Parameters
    ----------
    b_reg : float, default=0.0
        Constant added to b.

    Examples
    --------
    >>> from fivesigma import AMS3
    >>> float(AMS3().value(s=50.0, b=100.0))
    5.0
    """

    b_reg: float = 0.0

    def _objective(self, s: Array, b: Array) -> Array:
        return s * s / (2.0 * b)

    def _slopes(self, s: Array, b: Array) -> tuple[Array, Array]:
        t = s / b
        return t, t * t / 2.0

    def _conjugate(self, u: Array) -> Array:
        return u * u / 2.0


@dataclass(frozen=True)
class SOverRootSB(VariationalUtility):
    """s / sqrt(s + b), the precision of a measured signal yield.

    f(t) = t^2 / (2(1+t)), u = (t^2+2t) / (2(1+t)^2) < 1/2, f*(u) = 1 - u - sqrt(1 - 2u).

    Parameters
    ----------
    b_reg : float, default=0.0
        Constant added to b.

    Examples
    --------
    >>> from fivesigma import SOverRootSB
    >>> float(SOverRootSB().value(s=36.0, b=64.0))
    3.6
    """

    label: ClassVar[str] = "s/√(s+b)"

    b_reg: float = 0.0

    @property
    def u_domain(self) -> tuple[float, float]:
        """The domain ends at u = 1/2."""
        return 0.0, 0.5

    def _objective(self, s: Array, b: Array) -> Array:
        return s * s / (2.0 * (s + b))

    def _slopes(self, s: Array, b: Array) -> tuple[Array, Array]:
        purity = s / (s + b)
        return purity * (2.0 - purity) / 2.0, purity * purity / 2.0

    def _conjugate(self, u: Array) -> Array:
        q = 1.0 + np.sqrt(1.0 - 2.0 * u)
        return 2.0 * (u / q) ** 2


@dataclass(frozen=True)
class FDivergence(VariationalUtility):
    """The paper's general form h(b f(s/b)) for a convex, differentiable f of your own.

    Parameters
    ----------
    f, f_prime : callable
        f and its derivative, of NumPy arrays of t = s/b >= 0. Checked on construction: f must be convex with f(0) = 0,
        and f_prime must be its slope, which must grow.
    h : callable, optional
        Increasing function that turns F into Z, of NumPy arrays; sqrt(2 F) if not given.
    b_reg : float, default=0.0
        Constant added to b.

    Examples
    --------
    AMS3 written out:

    >>> from fivesigma import AMS3, FDivergence
    >>> mine = FDivergence(lambda t: t**2 / 2, lambda t: t)
    >>> bool(mine.value(50.0, 100.0) == AMS3().value(50.0, 100.0))
    True
    """

    _functions: ClassVar[tuple[str, ...]] = ("f", "f_prime", "h")

    f: Callable[[Array], Array]
    f_prime: Callable[[Array], Array]
    h: Callable[[Array], Array] | None = None
    b_reg: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        # A convex function lies above its tangents; neighbouring points show a wrong slope or a hollow.
        t = np.geomspace(1e-4, 1e6, 2001)
        f, slope, step = self._tried("f", t), self._tried("f_prime", t), np.diff(t)
        rise, slack = np.diff(f), 1e-9 * (np.abs(f[1:]) + np.abs(f[:-1]) + np.abs(slope[1:] * step))
        bad = ~((rise >= slope[:-1] * step - slack) & (rise <= slope[1:] * step + slack))
        if bad.any():
            at = float(t[:-1][bad][0])
            raise InputError(f"FDivergence: f must be convex with slope f_prime, which fails near s/b = {at:.3g}")
        at_zero = self._tried("f", np.zeros(1))[0]
        if not abs(at_zero) <= 1e-12:
            raise InputError(f"FDivergence: f(0) must be 0, for no signal has no significance; got {at_zero:g}")
        if not slope[-1] > self._tried("f_prime", np.zeros(1))[0]:
            raise InputError("FDivergence: f_prime must be a number at s/b = 0 and grow from there; a line has no u")
        if self.h is not None:
            z = self._tried("h", np.maximum.accumulate(f))
            if not (np.diff(z) >= 0).all() or not z[-1] > z[0]:
                raise InputError("FDivergence: h must increase with F, and be a number wherever F is")

    def _tried(self, name: str, t: Array) -> Array:
        """Values of one of the functions; an error that says what it does to arrays."""
        function = getattr(self, name)
        if not callable(function):
            raise InputError(f"FDivergence: {name} must be a function, got {function!r}")
        try:
            with np.errstate(all="ignore"):
                values = np.asarray(function(t), dtype=np.float64)
        except (TypeError, ValueError) as err:
            raise InputError(
                f"FDivergence: {name} must take an array of numbers and give one for each ({err}); np.vectorize makes "
                "such a function of one that takes a number"
            ) from err
        if values.shape != t.shape:
            raise InputError(f"FDivergence: {name} must give one value for each number, got {values.size} for {t.size}")
        return values

    @property
    def u_domain(self) -> tuple[float, float]:
        """Range of f_prime over the s/b that can be represented."""
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            low, high = self.f_prime(np.array([0.0, _LARGEST_T]))
        return float(low), float(high)

    def from_objective(self, objective: ArrayLike) -> Array:
        """Z = h(F)."""
        F = np.asarray(objective, dtype=np.float64)
        if self.h is not None:
            return np.asarray(self.h(F))[()]
        refuse_outside("F = b f(s/b)", F, ">= 0 unless h is given", 0.0, np.inf)
        return super().from_objective(F)

    def _objective(self, s: Array, b: Array) -> Array:
        return b * self.f(s / b)

    def _slopes(self, s: Array, b: Array) -> tuple[Array, Array]:
        t = s / b
        u = self.f_prime(t)
        return u, t * u - self.f(t)

    def _conjugate(self, u: Array) -> Array:
        t = self._inverse_slope(u)
        return t * u - self.f(t)

    def _inverse_slope(self, u: Array) -> Array:
        """Find the t with f'(t) = u by a bracketed search."""
        from scipy.optimize.elementwise import find_root

        ladder = np.concatenate([[0.0], np.geomspace(1e-12, _LARGEST_T, 97)])
        above = np.searchsorted(self.f_prime(ladder), u, side="left").clip(1, ladder.size - 1)
        root = find_root(lambda t, u: self.f_prime(t) - u, (ladder[above - 1], ladder[above]), args=(u,))
        return np.asarray(root.x, dtype=np.float64)
