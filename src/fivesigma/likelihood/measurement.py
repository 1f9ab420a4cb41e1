"""The uncertainty of a measured signal strength mu at mu = 1, from the Hessian of the Asimov likelihood.

Symbols: n = s + b is the expected count of a category, Delta_j its derivative along the pull theta_j (of signal and
background), C the inverse variance of the constraints (zero where free). With the statistics of the simulation, pyhf's
``staterror``, n is replaced by n + v, v the sum of the squared background weights. Then

    1 / sigma_mu^2 = min over a of [sum over categories of (s - a.Delta)^2 / n] + a'Ca,

and s - a.Delta over n is the efficient score. F below is half of that, so that 1 / sigma_mu = sqrt(2 F), as Z is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fivesigma._types import Array
from fivesigma.likelihood.profile import Expansion, Profile, enough_digits

_RIDGE = 1e-12  # relative, on the diagonal of the Hessian: pulls that no category can tell apart


class Derivatives(NamedTuple):
    """Categories of one partition, or of many along the first axis.

    Signal, expected counts (with the variance of the simulated background where that is profiled), derivatives of the
    counts along each pull, and one for each pull, or zero if it is free.
    """

    s: Array
    n: Array
    delta: Array
    constraint: Array


def expand_measurement(at: Derivatives, a: Array) -> Expansion:
    """F at some a, its gradient and its Hessian."""
    rest = at.s - (a[..., None] * at.delta).sum(axis=-2)
    value = (rest * rest / at.n).sum(axis=-1) / 2 + (at.constraint * a * a).sum(axis=-1) / 2
    gradient = at.constraint * a - (at.delta @ (rest / at.n)[..., None])[..., 0]
    hessian = (at.delta / at.n[..., None, :]) @ np.swapaxes(at.delta, -1, -2)
    index = np.arange(at.constraint.size)
    hessian[..., index, index] += at.constraint
    diagonal = hessian[..., index, index]
    hessian[..., index, index] += _RIDGE * diagonal + (diagonal <= 0)
    return Expansion(value, gradient, hessian)


@enough_digits()
def profile_measurement(at: Derivatives) -> Profile:
    """Minimise F over a, which is quadratic: one linear system for each partition.

    Examples
    --------
    Without systematics the uncertainty is sqrt(s + b) / s:

    >>> import numpy as np
    >>> one = Derivatives(np.array([10.0]), np.array([100.0]), np.zeros((0, 1)), np.zeros(0))
    >>> round(uncertainty_of(float(profile_measurement(one).objective)), 12)
    1.0
    """
    start = np.zeros((*at.s.shape[:-1], at.constraint.size))
    now = expand_measurement(at, start)
    a = -np.linalg.solve(now.hessian, now.gradient[..., None])[..., 0].astype(np.float64, copy=False)
    return Profile(expand_measurement(at, a).value, a)


def uncertainty_of(objective: float) -> float:
    """sigma_mu of F; infinity where nothing is measured."""
    return float(1 / np.sqrt(2 * objective)) if objective > 0 else float("inf")
