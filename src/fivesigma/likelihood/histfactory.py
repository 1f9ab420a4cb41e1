"""A HistFactory workspace as arrays: yields of its bins at any parameters, profiled without signal, or to second order.

In bin b the yield at the parameters theta is the sum over samples of f_s(theta) [nominal + sum of shifts(theta)] gamma,
where normsys, lumi and normfactor make f, histosys the shifts, and staterror and shapesys one gamma for each bin. All
but gamma are linear in the templates: at fixed theta bins can be merged by adding them. The gammas belong to one bin
each, and so they are profiled bin by bin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fivesigma._types import Array, BoolArray, IntArray
from fivesigma.likelihood.profile import Expansion, Likelihood, Profile, add_to_diagonal, deviance, interpolate

_LOCAL_ROUNDS = 30  # over the gammas of a bin, if there are several
_SETTLED, _ROUGHLY = 1e-8, 1e-5  # change of a gamma, whose square is that of F
_LARGE = 10_000  # bins of which F is only a bound, which any gammas give
_MOST = 1 - 1e-6  # by which a factor falls
_REMEMBERED = 100  # weights
_RIDGE = 1e-9  # relative, on the diagonal of the Hessian
# Coefficients of the polynomial of HistFactory's "code 4", from the values and two derivatives at +1 and -1.
_CODE4 = np.array([
    [15 / 16, -15 / 16, -7 / 16, -7 / 16, 1 / 16, -1 / 16],
    [3 / 2, 3 / 2, -9 / 16, 9 / 16, 1 / 16, 1 / 16],
    [-5 / 8, 5 / 8, 5 / 8, 5 / 8, -1 / 8, 1 / 8],
    [-3 / 2, -3 / 2, 7 / 8, -7 / 8, -1 / 8, -1 / 8],
    [3 / 16, -3 / 16, -3 / 16, -3 / 16, 1 / 16, -1 / 16],
    [1 / 2, 1 / 2, -5 / 16, 5 / 16, 1 / 16, 1 / 16],
])  # fmt: skip


class Parameters(NamedTuple):
    """Parameters that all bins share, but the strength of the signal; theta is zero at the expected values."""

    names: list[str]
    init: Array
    scale: Array  # value = init + scale theta
    constraint: Array  # inverse variance of theta: one, or zero if free
    least: Array  # both limits are zero if it is fixed
    most: Array

    def penalty(self, theta: Array) -> float:
        """Price of the pulls."""
        return float(self.constraint @ (theta * theta) / 2)


class Gammas(NamedTuple):
    """One factor for each bin of some samples: a staterror, or a shapesys with its Poisson constraint."""

    name: str
    members: BoolArray  # (n_samples,)
    poisson: bool
    nominal: Array  # (n_bins,): their yield in the templates
    variance: Array
    squares: Array  # squared errors of the background among them, if they are a staterror

    def map(self, change: Callable[[Array], Array]) -> Gammas:
        """Apply a function to every array with an axis of bins."""
        return Gammas(*self[:3], *map(change, self[3:]))

    @property
    def relative(self) -> Array:
        """Relative variance of each factor; zero where pyhf has no such parameter, or a fixed one."""
        real = (self.nominal > 0) & (self.variance > 0)
        return np.divide(self.variance, self.nominal**2, out=np.zeros(self.nominal.shape), where=real)


class Code4(NamedTuple):
    """Factors of normsys: a polynomial within one standard deviation, exponential beyond."""

    log_down: Array
    log_up: Array
    coefficients: Array

    @classmethod
    def of(cls, down: Array, up: Array) -> Code4:
        """Match the polynomial to the factors one standard deviation away and to their two derivatives."""
        x, y = np.log(up), np.log(down)
        return cls(y, x, _CODE4 @ np.stack([up - 1, down - 1, x * up, -y * down, x * x * up, y * y * down]))

    def at(self, alpha: Array) -> tuple[Array, Array, Array]:
        """Factors and their two derivatives."""
        power = np.arange(1, 7)[:, None]
        terms = self.coefficients * alpha ** (power - 1)
        inside, slope = 1 + alpha * terms.sum(axis=0), (power * terms).sum(axis=0)
        curvature = (self.coefficients[1:] * (power * (power - 1))[1:] * alpha ** (power - 2)[1:]).sum(axis=0)
        rate = np.where(alpha > 0, self.log_up, -self.log_down)
        beyond, within = np.exp(rate * alpha), np.abs(alpha) < 1
        return (
            np.where(within, inside, beyond),
            np.where(within, slope, rate * beyond),
            np.where(within, curvature, rate * rate * beyond),
        )


class _Weights(NamedTuple):
    """Weight of every template of a channel, its slopes and second derivatives in each parameter."""

    value: Array
    slope: Array
    curvature: Array


@dataclass(frozen=True, eq=False)
class TemplateChannel:
    """Templates of a channel: nominal ones, and the shifts that histosys add to them."""

    name: str
    samples: list[str]
    signal: BoolArray  # (n_samples,): scaled by the strength
    templates: Array  # (n_templates, n_bins)
    sample: IntArray  # (n_templates,)
    parameter: IntArray  # (n_templates,): of a shift, -1 if nominal
    up: BoolArray  # (n_templates,)
    norm: tuple[IntArray, IntArray, Code4]  # normsys: sample, parameter, factor
    linear: tuple[IntArray, IntArray]  # normfactor and lumi: sample, parameter
    gammas: tuple[Gammas, ...]

    def map(self, change: Callable[[Array], Array]) -> TemplateChannel:
        """Apply a function to every array with an axis of bins."""
        return replace(self.map_gammas(change), templates=change(self.templates))

    def map_gammas(self, change: Callable[[Array], Array]) -> TemplateChannel:
        """Apply a function to those of the gammas alone."""
        return replace(self, gammas=tuple(g.map(change) for g in self.gammas))

    @cached_property
    def groups(self) -> list[tuple[BoolArray, tuple[int, ...]]]:
        """Samples that have the same gammas, as a mask, and the numbers of these."""
        own = [tuple(k for k, g in enumerate(self.gammas) if g.members[s]) for s in range(len(self.samples))]
        return [(np.array([o == each for o in own]), each) for each in dict.fromkeys(own)]

    def weights(self, parameters: Parameters, theta: Array, strength: float) -> _Weights:
        """Weights with which the templates add up at theta."""
        n_samples, n = len(self.samples), theta.size
        value = parameters.init + parameters.scale * theta
        factor = np.where(self.signal, strength, 1.0)
        relative, second = np.zeros((2, n_samples, n))  # derivatives of the factors over the factors
        sample, which, factors = self.norm
        at, at1, at2 = factors.at(value[which])
        np.multiply.at(factor, sample, at)
        relative[sample, which], second[sample, which] = at1 / at, at2 / at
        sample, which = self.linear
        at = np.where(np.abs(value[which]) < 1e-12, 1e-12, value[which])
        np.multiply.at(factor, sample, at)
        relative[sample, which] += parameters.scale[which] / at
        own, shifted = self.sample, self.parameter >= 0
        a, a1, a2 = np.ones_like(value, shape=own.size), np.zeros(own.size), np.zeros(own.size)
        side = self.up[shifted].astype(np.float64)
        a[shifted], a1[shifted], a2[shifted] = interpolate(value[self.parameter[shifted]], side, 1 - side)
        slope, curvature = relative[own] * a[:, None], second[own] * a[:, None]
        rows, columns = np.flatnonzero(shifted), self.parameter[shifted]
        curvature[rows, columns] += 2 * relative[own[rows], columns] * a1[rows] + a2[rows]
        slope[rows, columns] += a1[rows]
        f = factor[own]
        moves = parameters.least < parameters.most  # what is fixed has no slope, so that it stays at zero
        return _Weights(f * a, f[:, None] * slope * moves, f[:, None] * curvature * moves)


#: Channels with their expected counts and their background.
Counted = Sequence[tuple[TemplateChannel, Array, Array]]


@dataclass(frozen=True, eq=False)
class WorkspaceModel:
    """Parameters and channels of a workspace."""

    parameters: Parameters
    channels: list[TemplateChannel]
    _known: dict[tuple[str, float, bytes], _Weights] = field(default_factory=dict, init=False)

    @property
    def start(self) -> Array:
        """Parameters at their expected values."""
        return np.zeros(len(self.parameters.names))

    def yields(self, channel: TemplateChannel, theta: Array, strength: float) -> Array:
        """Yields of the bins of a channel, with all gammas at one."""
        return self._weights(channel, theta, strength).value @ channel.templates

    def _weights(self, channel: TemplateChannel, theta: Array, strength: float) -> _Weights:
        # They are the same for any merging of the bins, so that many partitions at one theta need them once.
        key = channel.name, strength, theta.tobytes()
        if key not in self._known:
            if len(self._known) > _REMEMBERED:
                self._known.clear()
            self._known[key] = channel.weights(self.parameters, theta, strength)
        return self._known[key]

    def counted(self, channels: Sequence[TemplateChannel]) -> Counted:
        """Channels with their expected counts and their background."""
        return [(c, self.yields(c, self.start, 1.0), self.yields(c, self.start, 0.0)) for c in channels]

    def parts(self, channel: TemplateChannel, theta: Array) -> list[Array]:
        """Background at theta of each group of samples that share their gammas."""
        weight = self._weights(channel, theta, 0.0).value
        return [(weight * own[channel.sample]) @ channel.templates for own, _ in channel.groups]

    def slopes(self, channel: TemplateChannel) -> tuple[Array, Array, list[Array]]:
        """Signal of each bin, derivatives of all yields along theta, and the yields that each gamma scales."""
        weight = self._weights(channel, self.start, 1.0)
        signal, *by_gamma = (
            (weight.value * mask[channel.sample]) @ channel.templates
            for mask in (channel.signal, *(g.members for g in channel.gammas))
        )
        return signal, weight.slope.T @ channel.templates, by_gamma

    def value(self, counts: Counted, theta: Array) -> float:
        """F at theta of channels with their expected counts, and of the constraints."""
        total = self.parameters.penalty(theta)
        for channel, n, b in counts:
            total += float(profile_gammas(n, self.parts(channel, theta), b, channel).value.sum())
        return total

    def expand(self, counts: Counted, theta: Array) -> Expansion:
        """The same to second order; without signal, with the gammas profiled."""
        p = self.parameters
        value, gradient, hessian = p.penalty(theta), p.constraint * theta, np.zeros((theta.size, theta.size))
        bent = np.zeros(theta.size)
        for channel, n, b in counts:
            weight = self._weights(channel, theta, 0.0)
            local = profile_gammas(n, self.parts(channel, theta), b, channel)
            slope = np.zeros((theta.size, n.size))
            for (samples, _), gamma in zip(channel.groups, local.factors, strict=True):
                own = samples[channel.sample]
                slope += gamma * (weight.slope[own].T @ channel.templates[own])
                bent += weight.curvature[own].T @ (channel.templates[own] @ (gamma * local.slope))
            value += float(local.value.sum())
            gradient += slope @ local.slope
            hessian += (slope * np.maximum(local.curvature, 0.0)) @ slope.T
        add_to_diagonal(hessian, np.maximum(p.constraint + bent, 0.1 * p.constraint), _RIDGE)
        return Expansion(np.array(value), gradient, hessian)


@dataclass(frozen=True, eq=False)
class WorkspaceLikelihood(Likelihood):
    """Merged channels of one partition of the bins, or of several; see `Likelihood`."""

    model: WorkspaceModel
    partitions: list[Counted]
    several: bool

    @property
    def shape(self) -> tuple[int, ...]:  # noqa: D102 - as in Likelihood
        n = len(self.model.parameters.names)
        return (len(self.partitions), n) if self.several else (n,)

    @property
    def limits(self) -> tuple[Array, Array]:  # noqa: D102
        return self.model.parameters.least, self.model.parameters.most

    def take(self, rows: BoolArray) -> WorkspaceLikelihood:  # noqa: D102
        return replace(self, partitions=[own for own, kept in zip(self.partitions, rows, strict=True) if kept])

    def repeat(self, times: int) -> WorkspaceLikelihood:  # noqa: D102
        return replace(self, partitions=self.partitions * times, several=True)

    def cost(self, theta: Array) -> Array:  # noqa: D102
        return np.array([self.model.value(own, at) for own, at in zip(self.partitions, theta, strict=True)])

    def expand(self, theta: Array) -> Expansion:  # noqa: D102
        every = [self.model.expand(own, at) for own, at in zip(self.partitions, theta, strict=True)]
        return Expansion(*(np.array(column) for column in zip(*every, strict=True)))

    def bend(self) -> Array:
        """How far the histosys of each parameter is from opposite up and down, in standard deviations of a count."""
        out = np.zeros(self.shape[-1])
        for channel, n, _ in self.partitions[0]:
            for k in np.unique(channel.parameter[channel.parameter >= 0]):
                both = channel.templates[(channel.parameter == k) & ~channel.signal[channel.sample]].sum(axis=0)
                out[k] = max(out[k], float(np.max(np.abs(both) / np.sqrt(n), initial=0.0)))
        return out

    def lowest(self, start: Array | None = None, *, far: bool = False) -> Profile:
        """Minimise from `start` or, as pyhf does, from the expected values; other minima are looked for if asked to."""
        return super().lowest(start, far=True) if far else self.profile(start)


class Local(NamedTuple):
    """Bins whose gammas are profiled: G, its slope and curvature in the yield, and the factor of each group."""

    value: Array
    slope: Array
    curvature: Array
    factors: list[Array]
    gammas: list[Array]


def profile_gammas(n: Array, yields: list[Array], b: Array, channel: TemplateChannel) -> Local:
    """Find the gammas of each bin that fit best, given the yields of each group of samples.

    All of them follow from one number of the bin, u = n/m: a gamma that scales q events and has the relative variance r
    is 1 + x for a Gaussian constraint and 1 / (1 - x) for a Poisson one, x = (u - 1) q r. Newton steps find the root of
    u m(u) = n from that of Gaussians, which is closed.
    """
    groups, local, zero, one = channel.groups, channel.gammas, np.zeros(n.shape), np.ones(n.shape)
    relative = [g.relative for g in local]
    gammas, factors = [one] * len(local), [one] * len(groups)

    def total(of: int | None = None) -> Array:
        """Yield of all samples, or of those that one gamma scales."""
        return sum((f * y for f, y, (_, own) in zip(factors, yields, groups, strict=True) if of in (None, *own)), zero)

    m, q = total(), [total(k) for k in range(len(local))]
    width = sum((r * x * x for r, x in zip(relative, q, strict=True)), zero)
    d = m - width
    h = np.sqrt(d * d + 4 * width * n)
    u = np.where(d > 0, 2 * n / np.where(d > 0, d + h, 1.0), (h - d) / (2 * np.where(width > 0, width, 1.0)))
    settled = _SETTLED if n.size < _LARGE else _ROUGHLY
    for _ in range(_LOCAL_ROUNDS if len(local) > 1 or any(g.poisson for g in local) else len(local)):
        change, width = 0.0, zero
        for k, (g, r) in enumerate(zip(local, relative, strict=True)):
            x = (u - 1) * np.maximum(q[k], 0.0) * r
            new = 1 / (1 - np.minimum(x, _MOST)) if g.poisson else np.maximum(1 + x, 1 - _MOST)
            change, gammas[k] = max(change, float(np.abs(new - gammas[k]).max(initial=0.0))), new
        factors = [math.prod((gammas[k] for k in own), start=one) for _, own in groups]
        m, q = total(), [total(k) / gamma for k, gamma in enumerate(gammas)]
        for g, r, gamma, scaled in zip(local, relative, gammas, q, strict=True):
            width = width + r * (scaled * gamma if g.poisson else scaled) ** 2
        if change < settled:
            break
        u = u - (u * m - n) / np.where(m > 0, m + u * width, 1.0)
    term = deviance(n, m, b)
    value = term.value
    for g, r, gamma in zip(local, relative, gammas, strict=True):
        price = gamma - 1 - np.log(gamma) if g.poisson else (gamma - 1) ** 2 / 2
        value = value + price / np.where(r > 0, r, 1.0)  # without a variance gamma is one
    return Local(value, term.slope, term.curvature / (1 + term.curvature * width), factors, gammas)
