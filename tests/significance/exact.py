"""The published formulas in many digits, written independently of the library, and the utilities that are tested."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np

from fivesigma import (
    AMS2,
    AMS3,
    FDivergence,
    GaussianBackground,
    OnOff,
    RelativeBackground,
    SOverRootSB,
    Utility,
)
from fivesigma._types import Array
from fivesigma.significance import VariationalUtility

mp.mp.dps = 60


def cubic(t: Array) -> Array:
    """A convex f of a user's, in polynomials so that it loses no digits."""
    return t**2 / 2 + t**3 / 6


def cubic_slope(t: Array) -> Array:
    return t + t**2 / 2


VARIATIONAL: list[VariationalUtility] = [
    AMS2(),
    AMS2(b_reg=10.0),
    AMS3(),
    AMS3(b_reg=2.5),
    SOverRootSB(),
    SOverRootSB(b_reg=3.0),
    OnOff(tau=0.3),
    OnOff(tau=5.0, b_reg=4.0),
    GaussianBackground(sigma=0.0),
    GaussianBackground(sigma=2.0),
    GaussianBackground(sigma=30.0, b_reg=5.0),
    FDivergence(cubic, cubic_slope, b_reg=1.5),
]
UTILITIES: list[Utility] = [*VARIATIONAL, RelativeBackground(0.1), RelativeBackground(0.5, b_reg=2.0)]


def name_of(utility: Utility) -> str:
    return repr(utility).replace(repr(cubic), "cubic").replace(repr(cubic_slope), "cubic'")


def f2(t: Any) -> Any:
    return (1 + t) * mp.log(1 + t) - t


def li_ma(n_on: Any, n_off: Any, alpha: Any) -> Any:
    """Half the square of Li & Ma (1983), equation 17."""
    total = n_on + n_off
    return n_on * mp.log((1 + alpha) / alpha * n_on / total) + n_off * mp.log((1 + alpha) * n_off / total)


def cowan_2012(s: Any, b: Any, sigma: Any) -> Any:
    """Half the square of the Asimov significance with an uncertain background (Cowan, 2012)."""
    v = sigma**2
    first = (s + b) * mp.log((s + b) * (b + v) / (b**2 + (s + b) * v))
    return first - b**2 / v * mp.log(1 + v * s / (b * (b + v)))


def gaussian(s: Any, b: Any, sigma: Any) -> Any:
    """Poisson deviance plus the pull, at the theta that solves d/dtheta = 0."""
    if sigma == 0:
        return b * f2(s / b)
    v = sigma**2
    theta = (-(b + v) + mp.sqrt((b + v) ** 2 + 4 * s * v)) / 2
    n, m = s + b, b + theta
    return n * mp.log(n / m) - n + m + theta**2 / (2 * v)


def objective(utility: Utility, s: Any, b: Any) -> Any:
    """F(s, b) of a utility; b without b_reg."""
    b = b + mp.mpf(utility.b_reg)
    t = s / b
    match utility:
        case AMS2():
            return b * f2(t)
        case AMS3():
            return s**2 / b / 2
        case SOverRootSB():
            return s**2 / (s + b) / 2
        case OnOff(tau=tau):
            return li_ma(s + b, tau * b, 1 / mp.mpf(tau))
        case GaussianBackground(sigma=sigma):
            return gaussian(s, b, mp.mpf(sigma))
        case RelativeBackground(fraction=fraction):
            return cowan_2012(s, b, mp.mpf(fraction) * b)
    return b * (t**2 / 2 + t**3 / 6)


def slopes(utility: Utility, s: Any, b: Any) -> tuple[Any, Any]:
    """(dF/ds, -dF/db) by numerical differentiation in many digits."""
    return (
        mp.diff(lambda x: objective(utility, x, b), s, relative=True),
        -mp.diff(lambda x: objective(utility, s, x), b, relative=True),
    )


def conjugate(utility: Utility, u: Any) -> Any:
    """f*(u) as tabulated."""
    match utility:
        case AMS2() | GaussianBackground():
            return mp.exp(u) - u - 1
        case AMS3():
            return u**2 / 2
        case SOverRootSB():
            return 1 - u - mp.sqrt(1 - 2 * u)
        case OnOff(tau=tau):
            return -u - tau * mp.log(1 - (mp.exp(u) - 1) / tau)
    t = mp.sqrt(1 + 2 * u) - 1
    return t * u - t**2 / 2 - t**3 / 6


def mpf(x: float | np.floating[Any]) -> Any:
    return mp.mpf(float(x))
