"""The profiled significance of very many single categories at once, such as all cuts on a score.

Systematics whose shifts are opposite add up to one Gaussian variance of the background, which is profiled in closed
form. The others are profiled by Newton steps on all cuts together; for one category the Hessian is a diagonal and one
outer product, so that a step costs no more than a few products. Neighbouring cuts have nearly the same pulls: few cuts
are profiled from several starting points, and the others start between the pulls of their neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.likelihood.profile import enough_digits
from fivesigma.likelihood.terms import BENT, LOWEST, STRAIGHT, Term, gaussian, interpolate

_CHUNK = 1 << 15  # cuts times systematics at a time: what stays in the processor's cache
_STEPS = 60
_HALVINGS = 30
_OPPOSITE = 1e-9  # relative difference of up and -down
_CONVERGED = 1e-11
_DENSE = 64  # tightest cuts, which differ most from each other: all are profiled from several starting points
_SPACING = 32  # beyond them, one of so many more events as this part of those above the cut
_OTHER_MINIMUM = 0.3  # difference of pulls of neighbours that may be another minimum


@enough_digits()
def profile_cuts(n: Array, b: Array, shifts: Iterable[tuple[Array, Array]]) -> Array:
    """F of each cut.

    Parameters
    ----------
    n, b : arrays of shape (n_cuts,)
        Expected counts s + b, and the background.
    shifts : iterable of (array, array)
        Of each systematic, how far one standard deviation up and down moves the background of each cut.

    Examples
    --------
    >>> import numpy as np
    >>> from fivesigma import GaussianBackground
    >>> b = np.array([100.0, 400.0])
    >>> F = profile_cuts(b + 10, b, [(np.array([10.0, 10.0]), np.array([-10.0, -10.0]))])
    >>> np.allclose(F, GaussianBackground(10.0).objective(10.0, b))
    True
    """
    variance = np.zeros(b.size)
    others = []
    for up, down in shifts:
        if (np.abs(up + down) <= _OPPOSITE * np.abs(up)).all():
            variance += up * up
        else:
            others.append((up, down))
    if not others:
        return gaussian(n, b, variance).value
    knots = _knots(b.size)
    out, pulls = np.empty(b.size), np.empty((len(others), knots.size))
    size = max(_CHUNK // len(others), 1)
    for start in range(0, knots.size, size):
        part = slice(start, start + size)
        at = knots[part]
        found = _profile(n[at], b[at], variance[at], *_stacked(others, at))
        out[at], pulls[:, part] = found.objective, found.theta
    between = np.setdiff1d(np.arange(b.size), knots, assume_unique=True)
    other = np.abs(np.diff(pulls, axis=1)).max(axis=0) > _OTHER_MINIMUM
    for start in range(0, between.size, size):
        at = between[start : start + size]
        right = np.searchsorted(knots, at)
        share = (at - knots[right - 1]) / (knots[right] - knots[right - 1])
        up, down = _stacked(others, at)
        theta = pulls[:, right - 1] * (1 - share) + pulls[:, right] * share
        out[at] = _newton(n[at], b[at], variance[at], up, down, theta).objective
        where = np.flatnonzero(other[right - 1])
        for side in (right - 1, right) if where.size else ():
            rows = at[where]
            again = _newton(n[rows], b[rows], variance[rows], up[:, where], down[:, where], pulls[:, side[where]])
            out[rows] = np.minimum(out[rows], again.objective)
    return out


def _knots(n_cuts: int) -> IntArray:
    """Numbers of the cuts that are profiled from several starting points; the first and the last are among them."""
    last = n_cuts - 1
    n_wide = int(_SPACING * np.log(max(n_cuts / _DENSE, 1.0))) + 2
    wide = np.round(np.geomspace(_DENSE, max(last, _DENSE), n_wide)).astype(np.intp)
    return np.unique(np.minimum(np.concatenate([np.arange(_DENSE), wide]), last))


def _stacked(shifts: list[tuple[Array, Array]], at: IntArray) -> tuple[Array, Array]:
    return np.stack([up[at] for up, _ in shifts]), np.stack([down[at] for _, down in shifts])


class _Minimum(NamedTuple):
    """F of each cut, and the pulls of each systematic and cut where it is reached."""

    objective: Array
    theta: Array


def _profile(n: Array, b: Array, v: Array, up: Array, down: Array) -> _Minimum:
    """Profile each cut; those that a systematic moves to the same side up and down are started from afar too."""
    best = _newton(n, b, v, up, down, np.zeros(up.shape))
    bend = np.abs(up + down)
    sided = np.where(bend > np.abs(up - down), bend / np.sqrt(n), 0.0)
    most = sided.max(axis=1)
    for k in np.argsort(-most, kind="stable")[: min(BENT, int(np.count_nonzero(most > STRAIGHT)))]:
        same = np.flatnonzero(sided[k] > STRAIGHT)
        for far in (1.5, -1.5):
            theta = np.zeros((len(up), same.size))
            theta[k] = far
            again = _newton(n[same], b[same], v[same], up[:, same], down[:, same], theta)
            lower = again.objective < best.objective[same]
            best.objective[same[lower]] = again.objective[lower]
            best.theta[:, same[lower]] = again.theta[:, lower]
    return best


def _term(n: Array, b: Array, v: Array, m: Array) -> Term:
    """G of a background m within a variance v, continued as its tangent where m is far below b."""
    inside = np.maximum(m, LOWEST * b)
    value, slope, curvature = gaussian(n, inside, v)
    return Term(value + slope * (m - inside), slope, np.where(m < inside, 0.0, curvature))


def _newton(  # noqa: PLR0917 - symbols of the likelihood
    n: Array, b: Array, v: Array, up: Array, down: Array, theta: Array
) -> _Minimum:
    objective, reached = np.empty(n.size), theta.copy()
    active = np.arange(n.size)
    for _ in range(_STEPS):
        shift, slope, curvature = interpolate(theta, up, down)
        term = _term(n, b, v, b + shift.sum(axis=0))
        now = term.value + (theta * theta).sum(axis=0) / 2
        gradient = slope * term.slope + theta
        diagonal = np.maximum(1.0 + curvature * term.slope, 0.1)
        along, other = slope / diagonal, gradient / diagonal
        scale = term.curvature / (1 + term.curvature * (slope * along).sum(axis=0))
        step = other - along * scale * (slope * other).sum(axis=0)  # the inverse by Sherman and Morrison
        decrease = (gradient * step).sum(axis=0)
        objective[active], reached[:, active] = now - decrease / 2, theta
        moving = decrease > _CONVERGED * (1 + now)
        n, b, v, active, now, decrease = (x[moving] for x in (n, b, v, active, now, decrease))
        up, down, theta, step = (x[:, moving] for x in (up, down, theta, step))
        if not active.size:
            break
        length = np.ones(active.size)
        for _ in range(_HALVINGS):
            trial = theta - length * step
            value = _term(n, b, v, b + interpolate(trial, up, down)[0].sum(axis=0)).value
            high = ~(value + (trial * trial).sum(axis=0) / 2 <= now - 0.1 * length * decrease)
            if not high.any():
                break
            length[high] /= 2
        objective[active[high]] = now[high]  # no shorter step falls: rounding
        theta = np.where(high, theta, trial)
        if high.all():
            break
    return _Minimum(objective, reached)


@enough_digits()
def equivalent_variance(n: Array, b: Array, objective: Array) -> Array:
    """Variance of one Gaussian uncertainty of the background that gives each cut the F which it has."""
    v, positive = np.zeros(n.size), objective > 0
    for _ in range(50):
        value, slope, _ = gaussian(n, b, v)
        # 1 / F is nearly linear in v.
        ratio = np.divide(value, objective, out=np.ones(n.size), where=positive)
        moved = 2 * value * (ratio - 1) / np.maximum(slope * slope, np.finfo(np.float64).tiny)
        v = np.maximum(v + moved, 0.0)
        if (np.abs(moved) <= 1e-10 * (v + b)).all():
            break
    return v
