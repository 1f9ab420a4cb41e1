"""The one score that a discovery or a measurement with systematics needs, from ratios of densities.

Symbols, all of x: r_s = s/b, and for each systematic r_j = Delta_j/b, its shift at one standard deviation. Without
signal the background at the pulls theta is m = b (1 + theta.r). For a discovery the score is the log of the likelihood
ratio t = ln (s + b)/m at the least favourable pulls, those of

    F = min over theta of  integral of [n ln(n/m) - n + m]  +  |theta|^2 / 2,          n = s + b,  Z = sqrt(2 F).

For the uncertainty of the strength mu at mu = 1 it is the efficient score e = (s - a.Delta)/n with the a of

    1/sigma^2 = min over a of  integral of (s - a.Delta)^2 / n  +  a'C a,

where Delta_j is the shift of all events and C has a one for each systematic with a constraint. For fixed theta or a
both integrands are convex and homogeneous, so that intervals of the score are the best categories.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fivesigma._types import Array
from fivesigma.likelihood.profile import Counts, Derivatives, Freedom, interpolate, root_of, uncertainty_of

LOWEST = 0.1  # share of b below which a background at any pulls is not taken to fall


class Solution(NamedTuple):
    """Pulls theta (or the coefficients a) of the score, and the significance (or uncertainty) without binning."""

    pulls: Array
    value: float


def least_favourable(weight: Array, r_s: Array, r: Array, constraint: Array, down: Array | None = None) -> Solution:
    """Find the pulls at which a background without signal resembles signal plus background most.

    Every event is a category of the one Newton that profiles categories: it stands for n = its weight. Shifts `r` up
    and `down` (by default the opposite) are over background, a row for each systematic; `constraint` is zero if free.
    """
    b = weight / (1 + r_s)
    up = r * b
    found = Counts(weight, b, up, -up if down is None else down * b, freedom=Freedom(constraint)).profile()
    return Solution(found.theta, root_of(float(found.objective)))


def likelihood_ratio(r_s: Array, r: Array, theta: Array, down: Array | None = None) -> Array:
    """Excess n/m - 1 of the likelihood ratio; its log1p is the score t. Shifts are as in `least_favourable`."""
    shift = theta @ r if down is None else interpolate(theta[:, None], r, down)[0].sum(axis=0)
    return np.asarray((1 + r_s) / np.maximum(1 + shift, LOWEST) - 1)


def efficient_direction(weight: Array, share: Array, rho: Array, constraint: Array) -> Solution:
    """Solve the linear system of the efficient score, from s/n and Delta/n of each event."""
    found = Derivatives(weight * share, weight, weight * rho, constraint).profile()
    return Solution(found.theta, uncertainty_of(float(found.objective)))


def efficient_score(share: Array, rho: Array, a: Array) -> Array:
    """Evaluate (s - a.Delta)/n of each event."""
    return np.asarray(share - a @ rho)
