"""The pulls that fit best without signal, for one set of categories or for many sets at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from fivesigma._types import Array, BoolArray, IntArray
from fivesigma.errors import InputError
from fivesigma.likelihood.terms import BENT, STRAIGHT, deviance, interpolate

_STEPS = 100
_HALVINGS = 30
_CONVERGED = 1e-11  # of F, before a last step that squares it
_RIDGE = 1e-9  # relative, on the diagonal of a Hessian with free pulls


@contextmanager
def enough_digits() -> Iterator[None]:
    """Refuse yields so far apart that no digits are left; a decorator of the functions that profile."""
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            yield
    except (FloatingPointError, np.linalg.LinAlgError) as err:
        raise InputError(
            "the uncertainties of the background cannot be profiled with these weights: yields that differ by many "
            "orders of magnitude leave no digits; check the units of the weights"
        ) from err


class Freedom(NamedTuple):
    """Which pulls have no constraint."""

    constraint: Array  # (n_systematics,): inverse variance of the constraint, one or zero
    least: Array  # (n_systematics,): smallest pull; minus one for a free yield, which cannot be negative
    scales: IntArray  # rows that are free normalisations: each also scales the shifts of its processes

    def penalty(self, theta: Array) -> Array:
        """Price of the pulls."""
        out: Array = (self.constraint * theta * theta).sum(axis=-1) / 2
        return out


class Counts(NamedTuple):
    """Categories of one partition, or of many along the first axis."""

    n: Array  # (..., n_categories): expected counts s + b
    b: Array
    up: Array  # (..., n_systematics, n_categories): shifts of the background at plus one standard deviation
    down: Array
    relative: Array | None = None  # (..., n_categories): relative variance of b from the statistics of the simulation
    freedom: Freedom | None = None
    scaled: tuple[Array, Array] | None = None  # (..., n_scales, n_systematics, n_categories): shifts of free yields

    def map(self, function: Callable[[Array], Array]) -> Counts:
        """Apply a function to every array that has an axis of partitions."""
        n, b, up, down = map(function, self[:4])
        relative = None if self.relative is None else function(self.relative)
        scaled = None if self.scaled is None else (function(self.scaled[0]), function(self.scaled[1]))
        return Counts(n, b, up, down, relative, self.freedom, scaled)

    def shifts(self, theta: Array) -> tuple[Array, Array, Array]:
        """Shift of the background of each category, and its first two derivatives in each pull."""
        shift, slope, curvature = interpolate(theta[..., None], self.up, self.down)
        total = shift.sum(axis=-2)
        if self.scaled is not None and self.freedom is not None:
            rows = self.freedom.scales
            share = theta[..., rows, None, None]
            own, own_slope, own_curvature = interpolate(theta[..., None, :, None], *self.scaled)
            total = total + (share * own).sum(axis=(-2, -3))
            slope = slope + (share * own_slope).sum(axis=-3)
            slope[..., rows, :] += own.sum(axis=-2)
            curvature = curvature + (share * own_curvature).sum(axis=-3)
        return total, slope, curvature

    def penalty(self, theta: Array) -> Array:
        """Price of the pulls."""
        if self.freedom is not None:
            return self.freedom.penalty(theta)
        out: Array = (theta * theta).sum(axis=-1) / 2
        return out


class Profile(NamedTuple):
    """F at the minimum, and the pulls there."""

    objective: Array
    theta: Array


class Expansion(NamedTuple):
    """F at some pulls, its gradient, and a positive approximation of its Hessian."""

    value: Array
    gradient: Array
    hessian: Array


def root_of(objective: float) -> float:
    """Z of F; zero where rounding leaves less than nothing."""
    return float(np.sqrt(2 * max(objective, 0.0)))


def cost(counts: Counts, theta: Array) -> Array:
    """F at some pulls."""
    m = counts.b + counts.shifts(theta)[0]
    out: Array = deviance(counts.n, m, counts.b, counts.relative).value.sum(axis=-1) + counts.penalty(theta)
    return out


def expand(counts: Counts, theta: Array) -> Expansion:
    """F to second order at some pulls; parts of the Hessian that are not positive are left out."""
    shift, slope, curvature = counts.shifts(theta)
    term = deviance(counts.n, counts.b + shift, counts.b, counts.relative)
    constraint = 1.0 if counts.freedom is None else counts.freedom.constraint
    gradient = (slope @ term.slope[..., None])[..., 0] + constraint * theta
    own = np.maximum(constraint + (curvature @ term.slope[..., None])[..., 0], 0.1 * constraint)
    hessian = (slope * np.maximum(term.curvature, 0.0)[..., None, :]) @ np.swapaxes(slope, -1, -2)
    index = np.arange(theta.shape[-1])
    hessian[..., index, index] += own
    if counts.freedom is not None:
        # Free pulls that the categories cannot tell apart, or that move none, must not make it singular.
        diagonal = hessian[..., index, index]
        hessian[..., index, index] += _RIDGE * diagonal + (diagonal <= 0)
    return Expansion(term.value.sum(axis=-1) + counts.penalty(theta), gradient, hessian)


@enough_digits()
def profile(counts: Counts, start: Array | None = None) -> Profile:
    """Minimise F over the pulls by Newton steps from `start`, of all partitions together."""
    if counts.n.ndim == 1:
        found = profile(counts.map(lambda v: v[None]), None if start is None else start[None])
        return Profile(found.objective[0], found.theta[0])
    shape = counts.up.shape[:2]
    theta = np.zeros(shape) if start is None else np.broadcast_to(start, shape).copy()
    least = -np.inf if counts.freedom is None else counts.freedom.least
    theta = np.maximum(theta, least)
    objective = np.empty(shape[0])
    active = np.arange(shape[0])
    for _ in range(_STEPS):
        now = expand(counts, theta[active])
        objective[active] = now.value
        step = _newton_step(now, theta[active], least)
        decrease = (now.gradient * step).sum(axis=-1)
        moving = decrease > _CONVERGED * (1 + now.value)
        # The last step is too small for the rounding of F to see; its gain is known instead.
        done = active[~moving]
        theta[done] = np.maximum(theta[done] - step[~moving], least)
        objective[done] -= decrease[~moving] / 2
        active, counts = active[moving], _take(counts, moving)
        if not active.size:
            break
        theta[active], falls = _descend(counts, theta[active], step[moving], now.value[moving], decrease[moving], least)
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


def _newton_step(now: Expansion, theta: Array, least: Array | float) -> Array:
    """Step to be subtracted; a pull at its smallest value that would fall further stays there."""
    step = np.linalg.solve(now.hessian, now.gradient[..., None])[..., 0].astype(np.float64, copy=False)
    at_least = theta <= least
    stays = np.zeros(theta.shape, dtype=np.bool_)
    while (outward := at_least & ~stays & (step > 0)).any():
        stays |= outward
        both = stays[..., :, None] | stays[..., None, :]
        reduced = np.where(both, np.eye(theta.shape[-1]), now.hessian)
        step = np.linalg.solve(reduced, np.where(stays, 0.0, now.gradient)[..., None])[..., 0]
    return step


def _descend(  # noqa: PLR0917 - where each partition is, and where it goes
    counts: Counts, theta: Array, step: Array, now: Array, decrease: Array, least: Array | float
) -> tuple[Array, BoolArray]:
    """Follow each step as far as F falls enough; the second array says where it does."""
    length = np.ones(now.size)
    for _ in range(_HALVINGS):
        trial = np.maximum(theta - length[:, None] * step, least)
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
