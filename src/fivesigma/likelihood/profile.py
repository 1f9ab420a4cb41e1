"""The pulls that fit best without signal, for one set of categories or for many sets at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fivesigma._types import Array, BoolArray
from fivesigma.likelihood.digits import enough_digits
from fivesigma.likelihood.terms import BENT, STRAIGHT, deviance, interpolate

_STEPS = 100
_HALVINGS = 30
_CONVERGED = 1e-11  # of F, before a last step that squares it


class Counts(NamedTuple):
    """Categories of one partition, or of many along the first axis.

    Attributes
    ----------
    n, b : arrays of shape (..., n_categories)
        Expected counts s + b, and the background.
    up, down : arrays of shape (..., n_systematics, n_categories)
        Shifts of the background at plus and minus one standard deviation.
    relative : array of shape (..., n_categories), optional
        Relative variance of the background from the statistics of the simulation.
    """

    n: Array
    b: Array
    up: Array
    down: Array
    relative: Array | None = None

    def map(self, function: Callable[[Array], Array]) -> Counts:
        """Apply a function to every array."""
        relative = None if self.relative is None else function(self.relative)
        return Counts(function(self.n), function(self.b), function(self.up), function(self.down), relative)


class Profile(NamedTuple):
    """F at the minimum, and the pulls there."""

    objective: Array
    theta: Array


class Expansion(NamedTuple):
    """F at some pulls, its gradient, and a positive approximation of its Hessian."""

    value: Array
    gradient: Array
    hessian: Array


def cost(counts: Counts, theta: Array) -> Array:
    """F at some pulls."""
    m = counts.b + interpolate(theta[..., None], counts.up, counts.down)[0].sum(axis=-2)
    value = deviance(counts.n, m, counts.b, counts.relative).value.sum(axis=-1)
    out: Array = value + (theta * theta).sum(axis=-1) / 2
    return out


def expand(counts: Counts, theta: Array) -> Expansion:
    """F to second order at some pulls; parts of the Hessian that are not positive are left out."""
    shift, slope, curvature = interpolate(theta[..., None], counts.up, counts.down)
    term = deviance(counts.n, counts.b + shift.sum(axis=-2), counts.b, counts.relative)
    gradient = (slope @ term.slope[..., None])[..., 0] + theta
    own = np.maximum(1.0 + (curvature @ term.slope[..., None])[..., 0], 0.1)
    hessian = (slope * np.maximum(term.curvature, 0.0)[..., None, :]) @ np.swapaxes(slope, -1, -2)
    index = np.arange(theta.shape[-1])
    hessian[..., index, index] += own
    value = term.value.sum(axis=-1) + (theta * theta).sum(axis=-1) / 2
    return Expansion(value, gradient, hessian)


@enough_digits()
def profile(counts: Counts, start: Array | None = None) -> Profile:
    """Minimise F over the pulls by Newton steps, of all partitions together.

    Parameters
    ----------
    counts : Counts
        With one leading axis of partitions, or none.
    start : array of shape (..., n_systematics), optional
        Pulls to start from; zero if not given.
    """
    if counts.n.ndim == 1:
        found = profile(counts.map(lambda v: v[None]), None if start is None else start[None])
        return Profile(found.objective[0], found.theta[0])
    shape = counts.up.shape[:2]
    theta = np.zeros(shape) if start is None else np.broadcast_to(start, shape).copy()
    objective = np.empty(shape[0])
    active = np.arange(shape[0])
    for _ in range(_STEPS):
        now = expand(counts, theta[active])
        objective[active] = now.value
        step = np.linalg.solve(now.hessian, now.gradient[..., None])[..., 0]
        decrease = (now.gradient * step).sum(axis=-1)
        moving = decrease > _CONVERGED * (1 + now.value)
        # The last step is too small for the rounding of F to see; its gain is known instead.
        done = active[~moving]
        theta[done] -= step[~moving]
        objective[done] -= decrease[~moving] / 2
        active, counts = active[moving], _take(counts, moving)
        if not active.size:
            break
        theta[active], falls = _descend(counts, theta[active], step[moving], now.value[moving], decrease[moving])
        active, counts = active[falls], _take(counts, falls)
        if not active.size:
            break
    return Profile(objective, theta)


@enough_digits()
def lowest(counts: Counts, start: Array | None = None) -> Profile:
    """Minimise F of one partition from several pulls, and keep the lowest minimum.

    Shifts that are not opposite up and down bend F, which may then have several minima: along the systematics that bend
    most, pulls far on either side are tried, and the mirror images of the pulls that were found.
    """
    bend = (np.abs(counts.up + counts.down) / np.sqrt(counts.n)).max(axis=1, initial=0.0)
    bent = np.argsort(-bend, kind="stable")[: min(BENT, int(np.count_nonzero(bend > STRAIGHT)))]
    starts = [np.zeros(bend.size)] if start is None else [np.zeros(bend.size), start]
    found = _lowest_of(counts, [*starts, *(far * np.eye(bend.size)[k] for k in bent for far in (1.5, -1.5))])
    mirrored = [np.where(np.arange(bend.size) == k, -1.0, 1.0) * found.theta for k in bent]
    if not mirrored:
        return found
    again = _lowest_of(counts, mirrored)
    return again if again.objective < found.objective else found


def _lowest_of(counts: Counts, starts: list[Array]) -> Profile:
    copies = counts.map(lambda v: np.broadcast_to(v, (len(starts), *v.shape)))
    found = profile(copies, np.stack(starts))
    best = int(found.objective.argmin())
    return Profile(found.objective[best], found.theta[best])


def _descend(counts: Counts, theta: Array, step: Array, now: Array, decrease: Array) -> tuple[Array, BoolArray]:
    """Follow each step as far as F falls enough; the second array says where it does."""
    length = np.ones(now.size)
    for _ in range(_HALVINGS):
        trial = theta - length[:, None] * step
        high = ~(cost(counts, trial) <= now - 0.1 * length * decrease)
        if not high.any():
            break
        length[high] /= 2
    return np.where(high[:, None], theta, trial), ~high


def _take(counts: Counts, rows: BoolArray) -> Counts:
    return counts if rows.all() else counts.map(lambda v: v[rows])


@enough_digits()
def profile_each(counts: Counts) -> Array:
    """F of each of many partitions; those that a systematic moves to the same side up and down start from afar too."""
    best = profile(counts).objective
    bend = np.abs(counts.up + counts.down)
    sided = np.where(bend > np.abs(counts.up - counts.down), bend / np.sqrt(counts.n)[:, None, :], 0.0).max(axis=-1)
    most = sided.max(axis=0, initial=0.0)
    for k in np.argsort(-most, kind="stable")[: min(BENT, int(np.count_nonzero(most > STRAIGHT)))]:
        rows = sided[:, k] > STRAIGHT
        for far in (1.5, -1.5):
            again = profile(_take(counts, rows), far * np.eye(most.size)[k]).objective
            best[rows] = np.minimum(best[rows], again)
    return best
