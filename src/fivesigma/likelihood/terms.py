"""What one category adds to the likelihood ratio of a discovery, with its first two derivatives.

Symbols: n = s + b is the expected count, b the nominal background, m = b + shift(theta) the background at the pulls
theta, v the sum of the squared weights of the simulated background. The statistic is F = min over theta of
[sum over categories of G(n, m)] + |theta|^2 / 2, and the significance is sqrt(2 F).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fivesigma._types import Array
from fivesigma.errors import InputError
from fivesigma.significance import AMS2, GaussianBackground, RelativeBackground, Utility
from fivesigma.significance.numerics import poisson_f

BENT = 6  # systematics along which other minima are looked for
STRAIGHT = 0.1  # difference of up and -down, in standard deviations of a count, that bends nothing
LOWEST = 0.05  # share of b below which G continues as its tangent, so that it stays convex where m <= 0


class Term(NamedTuple):
    """G and its derivatives in m."""

    value: Array
    slope: Array
    curvature: Array


def interpolate(theta: Array, up: Array, down: Array) -> tuple[Array, Array, Array]:
    """HistFactory's additive interpolation ("code 4p") of a shift, its slope and its curvature in theta.

    Between -1 and 1 it is theta (up - down)/2 + theta^2 (up + down)/16 (15 - 10 theta^2 + 3 theta^4), and straight
    lines continue it beyond; it is linear in (up, down), so that sums may be interpolated.
    """
    half, bend = (up - down) / 2, (up + down) / 16
    square = theta * theta
    inside = theta * (half + theta * bend * (15 + square * (-10 + 3 * square)))
    slope = half + theta * bend * (30 + square * (-40 + 18 * square))
    curvature = bend * (30 + square * (-120 + 90 * square))
    beyond = np.where(theta > 0, up, -down)
    within = np.abs(theta) <= 1
    return (
        np.where(within, inside, theta * beyond),
        np.where(within, slope, beyond),
        np.where(within, curvature, 0.0),
    )


def known(n: Array, m: Array) -> Term:
    """G = n log(n/m) - n + m: the background is m."""
    excess = (n - m) / m
    return Term(m * poisson_f(excess), -excess, n / (m * m))


def gaussian(n: Array, m: Array, v: Array) -> Term:
    """Background m within a Gaussian of variance v, which is profiled in closed form."""
    nu, h = _fitted(n, m, v)
    excess = (n - nu) / nu
    return Term(nu * poisson_f(excess) + v * excess * excess / 2, -excess, n / (nu * h))


def staterror(n: Array, m: Array, relative: Array) -> Term:
    """Background gamma m with a Gaussian constraint of variance `relative` on gamma, as pyhf's ``staterror`` has it."""
    v = relative * m * m
    nu, _ = _fitted(n, m, v)
    excess = (n - nu) / nu
    gamma = nu / m
    # r^2 / (1 + n r^2 / gamma^2) is 1 / (n / gamma^2 + 1 / r^2), also where r = 0.
    curvature = n / (m * m) - relative / (1 + n * relative / (gamma * gamma))
    return Term(nu * poisson_f(excess) + v * excess * excess / 2, gamma - n / m, curvature)


def _fitted(n: Array, m: Array, v: Array) -> tuple[Array, Array]:
    """The background nu that fits best, a root of nu^2 - (m - v) nu - n v, and the root h of its discriminant."""
    d = m - v
    h = np.sqrt(d * d + 4 * n * v)
    nu = np.where(d < 0, 2 * n * v / np.where(d < 0, h - d, 1.0), (d + h) / 2)
    return nu, h


def deviance(n: Array, m: Array, b: Array, relative: Array | None = None) -> Term:
    """G of a category at any m, with the statistics of the simulation if their `relative` variance v / b^2 is given."""
    lowest = LOWEST * b
    inside = np.maximum(m, lowest)
    value, slope, curvature = known(n, inside) if relative is None else staterror(n, inside, relative)
    below = m < lowest
    if below.any():
        value, curvature = value + slope * (m - inside), np.where(below, 0.0, curvature)
    return Term(value, slope, curvature)


class OwnUncertainty(NamedTuple):
    """What a utility says of the background of every category: an offset, and one correlated uncertainty of it."""

    offset: float
    fraction: float = 0.0
    constant: float = 0.0

    @classmethod
    def of(cls, utility: Utility) -> OwnUncertainty:
        """Refuse utilities whose F is no likelihood ratio of counts."""
        if not isinstance(utility, AMS2 | GaussianBackground | RelativeBackground):
            raise InputError(
                f"systematics need utility AMS2, GaussianBackground or RelativeBackground, got {utility!r}; the "
                "significance is a profiled likelihood ratio"
            )
        return cls.beside(utility)

    @classmethod
    def beside(cls, utility: Utility) -> OwnUncertainty:
        """Read a measurement's: what is no likelihood ratio of counts is certain there."""
        if isinstance(utility, GaussianBackground):
            return cls(utility.b_reg, 0.0, utility.sigma)
        if isinstance(utility, RelativeBackground):
            return cls(utility.b_reg, utility.fraction, utility.fraction * utility.b_reg)
        return cls(utility.b_reg)

    @property
    def uncertain(self) -> bool:
        """Whether there is an uncertainty."""
        return self.fraction > 0 or self.constant > 0
