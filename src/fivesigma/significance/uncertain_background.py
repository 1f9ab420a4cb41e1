"""Utilities that know the background only within an uncertainty."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from fivesigma._types import Array
from fivesigma.errors import InputError
from fivesigma.significance.numerics import expm1mx, log1pmx, poisson_f
from fivesigma.significance.utility import LARGEST_NUMBER, Utility, VariationalUtility


def _on_off(t: Array, epsilon: Array) -> tuple[Array, Array, Array, Array]:
    """Li-Ma on Asimov counts per unit of b, for a control region 1/epsilon times as large; and f'(t) and f*(u)."""
    # f(t) is the sum of two deviances, of the counts in the signal and in the control region, both against the
    # background that fits best without signal. Neither is negative, so nothing cancels.
    r = t * epsilon / (1.0 + epsilon)  # (fitted background - b) / b
    excess = t / (1.0 + epsilon * (1.0 + t))  # (observed - fitted) / fitted
    known = epsilon < np.finfo(np.float64).tiny
    per_control = np.divide(1.0, epsilon, out=np.zeros_like(epsilon), where=~known)
    region = (1.0 + r) * poisson_f(excess)
    control = -per_control * log1pmx(r)
    conjugate = -log1pmx(excess) + per_control * poisson_f(r) / (1.0 + r)
    return region, control, np.log1p(excess), conjugate


@dataclass(frozen=True)
class OnOff(VariationalUtility):
    """Background measured in a control region: the significance of Li & Ma (1983) on Asimov counts.

    f(t) = f2(t) - (1+tau) f2(t/(1+tau)) with f2 of AMS2, u < log(1+tau),
    f*(u) = -u - tau log(1 - (e^u - 1)/tau).

    Parameters
    ----------
    tau : float
        Expected background in the control region over that in the signal region.
    b_reg : float, default=0.0
        Constant added to b.

    Examples
    --------
    >>> from fivesigma import AMS2, OnOff
    >>> bool(OnOff(tau=1.0).value(10, 100) < AMS2().value(10, 100))
    True
    """

    label: ClassVar[str] = "on/off"
    _largest: ClassVar[dict[str, float]] = {"tau": np.finfo(np.float64).max}

    tau: float
    b_reg: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.tau == 0:
            raise InputError("OnOff: tau must be > 0; without a control region there is no significance")
        if self.tau < 1 / LARGEST_NUMBER:
            raise InputError(f"OnOff: tau must be at least {1 / LARGEST_NUMBER:g}, got {self.tau:g}")

    @classmethod
    def with_usual_numbers(cls, b: float, b_reg: float = 0.0) -> Self:  # noqa: ARG003
        """Make it with a control region as large as the signal region."""
        return cls(1.0, b_reg=b_reg)

    @property
    def u_domain(self) -> tuple[float, float]:
        """The domain ends at u = log(1 + tau)."""
        return 0.0, math.log1p(self.tau)

    def _objective(self, s: Array, b: Array) -> Array:
        region, control, _, _ = _on_off(s / b, np.full_like(b, 1.0 / self.tau))
        return b * (region + control)

    def _slopes(self, s: Array, b: Array) -> tuple[Array, Array]:
        _, _, u, conjugate = _on_off(s / b, np.full_like(b, 1.0 / self.tau))
        return u, conjugate

    def _conjugate(self, u: Array) -> Array:
        return expm1mx(u) - self.tau * log1pmx(-np.expm1(u) / self.tau)


@dataclass(frozen=True)
class GaussianBackground(VariationalUtility):
    """Background with a Gaussian constraint of constant width sigma, profiled on Asimov counts.

    F = min over theta of n log(n/m) - n + m + theta^2 / (2 sigma^2) with n = s + b and m = b + theta. It is not of the
    form b f(s/b), yet it has the same variational form, with AMS2's weights and a constant that no selection changes:
    F = sup over u of u s - (e^u - u - 1) b - sigma^2 (e^u - 1)^2 / 2.

    Parameters
    ----------
    sigma : float
        Uncertainty of b, in events.
    b_reg : float, default=0.0
        Constant added to b.

    Examples
    --------
    >>> from fivesigma import AMS2, GaussianBackground
    >>> bool(GaussianBackground(sigma=0.0).value(10, 100) == AMS2().value(10, 100))
    True
    """

    label: ClassVar[str] = "Gaussian background"

    sigma: float
    b_reg: float = 0.0

    @classmethod
    def with_usual_numbers(cls, b: float, b_reg: float = 0.0) -> Self:
        """Make it with a tenth of the background as its width, to two digits."""
        return cls(float(f"{0.1 * b:.2g}"), b_reg=b_reg)

    def _pull(self, s: Array, b: Array) -> Array:
        """e^u - 1 = theta / sigma^2 = (n - m) / m at the minimum."""
        total = b + self.sigma**2
        return 2.0 * s / (total + np.sqrt(total * total + 4.0 * s * self.sigma**2))

    def _objective(self, s: Array, b: Array) -> Array:
        pull = self._pull(s, b)
        variance = self.sigma**2
        return (b + variance * pull) * poisson_f(pull) + variance * pull * pull / 2.0

    def _slopes(self, s: Array, b: Array) -> tuple[Array, Array]:
        pull = self._pull(s, b)
        return np.log1p(pull), -log1pmx(pull)

    def _conjugate(self, u: Array) -> Array:
        return expm1mx(u)

    def _constant(self, u: Array) -> Array:
        return self.sigma**2 * np.expm1(u) ** 2 / 2.0


@dataclass(frozen=True)
class RelativeBackground(Utility):
    """Background known to a fraction of itself: the Asimov formula of Cowan (2012) with sigma_b = fraction * b.

    It is Li & Ma's with tau = 1 / (fraction^2 b). As tau moves with b, F is not convex: the ascent is not guaranteed,
    and a cascade keeps a round only if it improved.

    Parameters
    ----------
    fraction : float
        Relative uncertainty of the background.
    b_reg : float, default=0.0
        Constant added to b; the uncertainty is a fraction of b + b_reg.

    Examples
    --------
    >>> from fivesigma import RelativeBackground
    >>> RelativeBackground(fraction=0.1).guaranteed
    False
    """

    guaranteed: ClassVar[bool] = False
    label: ClassVar[str] = "relative background"
    _largest: ClassVar[dict[str, float]] = {"fraction": 1e25}  # its square times b is a float

    fraction: float
    b_reg: float = 0.0

    @classmethod
    def with_usual_numbers(cls, b: float, b_reg: float = 0.0) -> Self:  # noqa: ARG003
        """Make it with an uncertainty of 10 %."""
        return cls(0.1, b_reg=b_reg)

    def _objective(self, s: Array, b: Array) -> Array:
        region, control, _, _ = _on_off(s / b, self.fraction**2 * b)
        return b * (region + control)

    def _slopes(self, s: Array, b: Array) -> tuple[Array, Array]:
        # A larger b also shrinks tau; by the envelope theorem that costs the control region's deviance.
        _, control, u, conjugate = _on_off(s / b, self.fraction**2 * b)
        return u, conjugate + control
