"""The Asimov likelihood of categories, minimised over the pulls: for a discovery, and for a measured signal strength.

Symbols: n = s + b is the expected count of a category, b the nominal background, m = b + shift(theta) the background at
the pulls theta, v the sum of the squared weights of the simulated background. A discovery has the statistic

    F = min over theta of [sum over categories of G(n, m)] + |theta|^2 / 2,

and the significance is sqrt(2 F). For the uncertainty of a measured strength mu at mu = 1, Delta_j is the derivative of
n (of signal and background) along theta_j, and C the inverse variance of the constraints (zero where free). With the
statistics of the simulation, pyhf's ``staterror``, n is replaced by n + v. Then

    1 / sigma_mu^2 = min over a of [sum over categories of (s - a.Delta)^2 / n] + a'Ca,

and s - a.Delta over n is the efficient score. F is half of that, so that 1 / sigma_mu = sqrt(2 F), as Z is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from fivesigma._types import Array, BoolArray, IntArray
from fivesigma.errors import InputError
from fivesigma.significance import AMS2, GaussianBackground, RelativeBackground, Utility
from fivesigma.significance.numerics import poisson_f

BENT = 6  # systematics along which other minima are looked for
STRAIGHT = 0.1  # difference of up and -down, in standard deviations of a count, that bends nothing
LOWEST = 0.05  # share of b below which G continues as its tangent, so that it stays convex where m <= 0
_STEPS = 100
_HALVINGS = 30
_CONVERGED = 1e-11  # of F, before a last step that squares it
_RIDGE = 1e-9  # relative, on the diagonal of a Hessian with free pulls
_RIDGE_MEASURED = 1e-12  # the same, of pulls that no category of a measurement can tell apart


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


def staterror(n: Array, m: Array, relative: Array) -> Term:
    """Background gamma m with a Gaussian constraint of variance `relative` on gamma, as pyhf's ``staterror`` has it.

    nu = gamma m, the background that fits best, is a root of nu^2 - (m - v) nu - n v with v = relative m^2.
    """
    v = relative * m * m
    d = m - v
    h = np.sqrt(d * d + 4 * n * v)
    nu = np.where(d < 0, 2 * n * v / np.where(d < 0, h - d, 1.0), (d + h) / 2)
    excess = (n - nu) / nu
    gamma = nu / m
    # r^2 / (1 + n r^2 / gamma^2) is 1 / (n / gamma^2 + 1 / r^2), also where r = 0.
    curvature = n / (m * m) - relative / (1 + n * relative / (gamma * gamma))
    return Term(nu * poisson_f(excess) + v * excess * excess / 2, gamma - n / m, curvature)


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


def uncertainty_of(objective: float) -> float:
    """sigma_mu of F; infinity where nothing is measured."""
    return float(1 / np.sqrt(2 * objective)) if objective > 0 else float("inf")


class Likelihood(ABC):
    """F of one partition into categories, or of many, each a row, as a function of the pulls."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Numbers of partitions and of pulls; the latter alone for one partition."""

    @property
    @abstractmethod
    def limits(self) -> tuple[Array | float, Array | float]:
        """Smallest and largest pulls."""

    @abstractmethod
    def bend(self) -> Array:
        """How far each systematic is from opposite up and down, in standard deviations of a count."""

    @abstractmethod
    def cost(self, theta: Array) -> Array:
        """F at the pulls of each partition."""

    @abstractmethod
    def expand(self, theta: Array) -> Expansion:
        """F to second order; parts of the Hessian that are not positive are left out."""

    @abstractmethod
    def take(self, rows: BoolArray) -> Self:
        """Some of the partitions."""

    @abstractmethod
    def repeat(self, times: int) -> Self:
        """One partition as several equal ones."""

    @enough_digits()
    def profile(self, start: Array | None = None) -> Profile:
        """Minimise F over the pulls by damped Newton steps from `start`, of all partitions together."""
        if len(self.shape) == 1:
            found = self.repeat(1).profile(start)
            return Profile(found.objective[0], found.theta[0])
        least, most = self.limits
        theta = np.zeros(self.shape) if start is None else np.broadcast_to(start, self.shape)
        theta = np.clip(theta, least, most)
        objective, active, left = np.empty(len(theta)), np.arange(len(theta)), self
        for _ in range(_STEPS):
            now = left.expand(theta[active])
            objective[active] = now.value
            step = _newton_step(now, theta[active], least, most)
            decrease = (now.gradient * step).sum(axis=-1)
            moving = decrease > _CONVERGED * (1 + now.value)
            # The last step is too small for the rounding of F to see; its gain is known instead.
            done = active[~moving]
            theta[done] = np.clip(theta[done] - step[~moving], least, most)
            objective[done] -= decrease[~moving] / 2
            active, left = active[moving], left.take(moving)
            if not active.size:
                break
            theta[active], falls = left._descend(theta[active], step[moving], now.value[moving], decrease[moving])
            active, left = active[falls], left.take(falls)
            if not active.size:
                break
        return Profile(objective, theta)

    def _descend(self, theta: Array, step: Array, now: Array, decrease: Array) -> tuple[Array, BoolArray]:
        """Follow each step as far as F falls enough; the second array says where it does."""
        length, (least, most) = np.ones(now.size), self.limits
        for _ in range(_HALVINGS):
            trial = np.clip(theta - length[:, None] * step, least, most)
            high = ~(self.cost(trial) <= now - 0.1 * length * decrease)
            if not high.any():
                break
            length[high] /= 2
        return np.where(high[:, None], theta, trial), ~high

    @enough_digits()
    def lowest(self, start: Array | None = None, *, far: bool = True) -> Profile:
        """Minimise F of one partition from several pulls, and keep the lowest minimum.

        Shifts that are not opposite up and down bend F, which may then have several minima: along the systematics that
        bend most, pulls `far` on either side are tried, and the mirror images of the pulls that were found.
        """
        bend = self.bend() if far else np.zeros(self.shape[-1])
        bent = np.argsort(-bend, kind="stable")[: min(BENT, int(np.count_nonzero(bend > STRAIGHT)))]
        starts = [np.zeros(bend.size)] if start is None else [np.zeros(bend.size), start]
        found = self._lowest_of([*starts, *(side * np.eye(bend.size)[k] for k in bent for side in (1.5, -1.5))])
        mirrored = [np.where(np.arange(bend.size) == k, -1.0, 1.0) * found.theta for k in bent]
        if not mirrored:
            return found
        again = self._lowest_of(mirrored)
        return again if again.objective < found.objective else found

    def _lowest_of(self, starts: list[Array]) -> Profile:
        found = self.repeat(len(starts)).profile(np.stack(starts))
        best = int(found.objective.argmin())
        return Profile(found.objective[best], found.theta[best])


def _newton_step(now: Expansion, theta: Array, least: Array | float, most: Array | float) -> Array:
    """Step to be subtracted; a pull at the end of its range that would go further stays there."""
    step = np.linalg.solve(now.hessian, now.gradient[..., None])[..., 0].astype(np.float64, copy=False)
    at_least, at_most = theta <= least, theta >= most
    stays = np.zeros(theta.shape, dtype=np.bool_)
    while (outward := ~stays & ((at_least & (step > 0)) | (at_most & (step < 0)))).any():
        stays |= outward
        both = stays[..., :, None] | stays[..., None, :]
        reduced = np.where(both, np.eye(theta.shape[-1]), now.hessian)
        step = np.linalg.solve(reduced, np.where(stays, 0.0, now.gradient)[..., None])[..., 0]
    return step


class Freedom(NamedTuple):
    """Which pulls have no constraint; by default none."""

    constraint: Array | float = 1.0  # (n_systematics,): inverse variance of the constraint, one or zero
    # rows that are free normalisations: each also scales the shifts of its processes, and its yield is not negative
    scales: IntArray = np.empty(0, dtype=np.intp)

    @property
    def least(self) -> Array | float:
        """Smallest pull of each systematic."""
        if not self.scales.size:
            return -np.inf
        out = np.full(np.shape(self.constraint), -np.inf)
        out[self.scales] = -1.0
        return out

    def penalty(self, theta: Array) -> Array:
        """Price of the pulls."""
        return np.asarray((self.constraint * theta * theta).sum(axis=-1) / 2)


CONSTRAINED = Freedom()


@dataclass(frozen=True, eq=False)
class Counts(Likelihood):
    """Categories of a discovery, of one partition, or of many along the first axis."""

    n: Array  # (..., n_categories): expected counts s + b
    b: Array
    up: Array  # (..., n_systematics, n_categories): shifts of the background at plus one standard deviation
    down: Array
    relative: Array | None = None  # (..., n_categories): relative variance of b from the statistics of the simulation
    freedom: Freedom = CONSTRAINED
    scaled: Array | None = None  # (..., 2, n_scales, n_systematics, n_categories): up and down shifts of free yields

    @property
    def shape(self) -> tuple[int, ...]:  # noqa: D102 - as in Likelihood
        return self.up.shape[:-1]

    @property
    def limits(self) -> tuple[Array | float, float]:  # noqa: D102
        return self.freedom.least, np.inf

    def map(self, function: Callable[[Array], Array]) -> Counts:
        """Apply a function to every array that has an axis of partitions."""
        n, b, up, down = map(function, (self.n, self.b, self.up, self.down))
        relative, scaled = (None if v is None else function(v) for v in (self.relative, self.scaled))
        return Counts(n, b, up, down, relative, self.freedom, scaled)

    def take(self, rows: BoolArray) -> Counts:  # noqa: D102
        return self if rows.all() else self.map(lambda v: v[rows])

    def repeat(self, times: int) -> Counts:  # noqa: D102
        return self.map(lambda v: np.broadcast_to(v, (times, *v.shape)))

    def bend(self) -> Array:  # noqa: D102
        return np.asarray((np.abs(self.up + self.down) / np.sqrt(self.n)[..., None, :]).max(axis=-1, initial=0.0))

    def shifts(self, theta: Array) -> tuple[Array, Array, Array]:
        """Shift of the background of each category, and its first two derivatives in each pull."""
        shift, slope, curvature = interpolate(theta[..., None], self.up, self.down)
        total = shift.sum(axis=-2)
        if self.scaled is not None:
            rows = self.freedom.scales
            share = theta[..., rows, None, None]
            sides = self.scaled[..., 0, :, :, :], self.scaled[..., 1, :, :, :]
            own, own_slope, own_curvature = interpolate(theta[..., None, :, None], *sides)
            total = total + (share * own).sum(axis=(-2, -3))
            slope = slope + (share * own_slope).sum(axis=-3)
            slope[..., rows, :] += own.sum(axis=-2)
            curvature = curvature + (share * own_curvature).sum(axis=-3)
        return total, slope, curvature

    def cost(self, theta: Array) -> Array:  # noqa: D102
        m = self.b + self.shifts(theta)[0]
        return np.asarray(deviance(self.n, m, self.b, self.relative).value.sum(axis=-1) + self.freedom.penalty(theta))

    def expand(self, theta: Array) -> Expansion:  # noqa: D102
        shift, slope, curvature = self.shifts(theta)
        term = deviance(self.n, self.b + shift, self.b, self.relative)
        constraint = self.freedom.constraint
        gradient = (slope @ term.slope[..., None])[..., 0] + constraint * theta
        own = np.maximum(constraint + (curvature @ term.slope[..., None])[..., 0], 0.1 * constraint)
        hessian = (slope * np.maximum(term.curvature, 0.0)[..., None, :]) @ np.swapaxes(slope, -1, -2)
        add_to_diagonal(hessian, own, 0.0 if np.all(constraint) else _RIDGE)
        return Expansion(term.value.sum(axis=-1) + self.freedom.penalty(theta), gradient, hessian)

    def replicas(self, s: Array, b: Array) -> Counts:
        """Other yields of one partition, a row for each replica, whose backgrounds move as much in proportion."""
        share = (b / self.b)[:, None, :]
        relative = None if self.relative is None else np.broadcast_to(self.relative, b.shape)
        scaled = None if self.scaled is None else self.scaled * share[:, None, None]
        return Counts(s + b, b, self.up * share, self.down * share, relative, self.freedom, scaled)

    @property
    def significance(self) -> float:
        """Profiled significance of one partition."""
        return root_of(float(self.lowest().objective))


def add_to_diagonal(hessian: Array, own: Array, ridge: float) -> None:
    """Add to the diagonal; free pulls that nothing tells apart, or that move nothing, must not make it singular."""
    index = np.arange(hessian.shape[-1])
    hessian[..., index, index] += own
    if ridge:
        diagonal = hessian[..., index, index]
        hessian[..., index, index] += ridge * diagonal + (diagonal <= 0)


@enough_digits()
def profile_each(counts: Counts) -> Array:
    """F of each of many partitions; those that a systematic moves to the same side up and down start from afar too."""
    best = counts.profile().objective
    bend = np.abs(counts.up + counts.down)
    sided = np.where(bend > np.abs(counts.up - counts.down), bend / np.sqrt(counts.n)[:, None, :], 0.0).max(axis=-1)
    most = sided.max(axis=0, initial=0.0)
    for k in np.argsort(-most, kind="stable")[: min(BENT, int(np.count_nonzero(most > STRAIGHT)))]:
        rows = sided[:, k] > STRAIGHT
        for far in (1.5, -1.5):
            again = counts.take(rows).profile(far * np.eye(most.size)[k]).objective
            best[rows] = np.minimum(best[rows], again)
    return best


@dataclass(frozen=True, eq=False)
class Derivatives:
    """Categories of a measurement, of one partition, or of many along the first axis."""

    s: Array  # (..., n_categories)
    n: Array  # (..., n_categories): expected counts, with the variance of the simulated background if it is profiled
    delta: Array  # (..., n_systematics, n_categories): derivatives of the counts along each pull
    constraint: Array  # (n_systematics,): one, or zero for a free pull

    limits = (-np.inf, np.inf)

    def expand(self, a: Array) -> Expansion:
        """F at some a, its gradient and its Hessian."""
        rest = self.s - (a[..., None] * self.delta).sum(axis=-2)
        value = (rest * rest / self.n).sum(axis=-1) / 2 + (self.constraint * a * a).sum(axis=-1) / 2
        gradient = self.constraint * a - (self.delta @ (rest / self.n)[..., None])[..., 0]
        hessian = (self.delta / self.n[..., None, :]) @ np.swapaxes(self.delta, -1, -2)
        add_to_diagonal(hessian, self.constraint, _RIDGE_MEASURED)
        return Expansion(value, gradient, hessian)

    @enough_digits()
    def profile(self, start: Array | None = None) -> Profile:  # noqa: ARG002 - as in a discovery
        """Minimise F over a, which is quadratic: one linear system for each partition, whatever the start."""
        now = self.expand(np.zeros((*self.s.shape[:-1], self.constraint.size)))
        a = -np.linalg.solve(now.hessian, now.gradient[..., None])[..., 0].astype(np.float64, copy=False)
        return Profile(self.expand(a).value, a)

    def lowest(self, start: Array | None = None, *, far: bool = True) -> Profile:  # noqa: ARG002 - as in a discovery
        """Minimise F, which has one minimum."""
        return self.profile()

    def replicas(self, s: Array, share: Array) -> Derivatives:
        """The same with other signal, a row for each replica, and counts that are other by some share."""
        return Derivatives(s, self.n * share, self.delta * share[:, None, :], self.constraint)

    @property
    def uncertainty(self) -> float:
        """Expected uncertainty of the strength of one partition."""
        return uncertainty_of(float(self.profile().objective))
