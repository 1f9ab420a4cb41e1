"""A HistFactory workspace as arrays: yields of its bins at any parameters, profiled without signal, or to second order.

In bin b the yield at the parameters theta is the sum over samples of f_s(theta) [nominal + sum of shifts(theta)] gamma,
where normsys, lumi and normfactor make f, histosys the shifts, and staterror and shapesys one gamma for each bin. All
but gamma are linear in the templates: at fixed theta bins can be merged by adding them. The gammas belong to one bin
each, and so they are profiled bin by bin, in closed form one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fivesigma._types import Array, BoolArray, IntArray
from fivesigma.likelihood.profile import Expansion, Profile
from fivesigma.likelihood.terms import BENT, STRAIGHT, deviance, interpolate

_LOCAL_ROUNDS = 30  # over the gammas of a bin, if there are several
_SETTLED, _ROUGHLY = 1e-9, 1e-5  # change of a gamma, whose square is that of F
_LARGE = 10_000  # bins of which F is only a bound, which any gammas give
_STEPS, _HALVINGS = 100, 30
_REMEMBERED = 100  # weights
_CONVERGED = 1e-12  # of F
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
    least: Array
    most: Array
    active: BoolArray  # not fixed

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
    def precision(self) -> Array:
        """Inverse relative variance of each factor; infinite where pyhf has no such parameter, or a fixed one."""
        real = (self.nominal > 0) & (self.variance > 0)
        out = np.full(self.nominal.shape, np.inf)
        np.divide(self.nominal**2, self.variance, out=out, where=real)
        return out


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


#: Samples that have the same gammas, as a mask, and the numbers of these gammas.
Groups = list[tuple[BoolArray, tuple[int, ...]]]


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
        return replace(self, templates=change(self.templates), gammas=tuple(g.map(change) for g in self.gammas))

    @cached_property
    def groups(self) -> Groups:
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
        return _Weights(f * a, f[:, None] * slope, f[:, None] * curvature)


#: Channels with their expected counts and their background.
Counted = Sequence[tuple[TemplateChannel, Array, Array]]


@dataclass(frozen=True, eq=False)
class WorkspaceModel:
    """Parameters and channels of a workspace."""

    parameters: Parameters
    channels: list[TemplateChannel]
    _known: dict[tuple[str, float, bytes], _Weights] = field(default_factory=dict, init=False)

    def yields(self, channel: TemplateChannel, theta: Array, strength: float) -> Array:
        """Yields of the bins of a channel, with all gammas at one."""
        return self._weights(channel, theta, strength).value @ channel.templates

    def _weights(self, channel: TemplateChannel, theta: Array, strength: float) -> _Weights:
        # They are the same for any merging of the bins, so that many partitions at one theta need them once.
        key, active = (channel.name, strength, theta.tobytes()), self.parameters.active
        if key not in self._known:
            full = np.zeros(active.size)
            full[active] = theta
            value, slope, curvature = channel.weights(self.parameters, full, strength)
            if len(self._known) > _REMEMBERED:
                self._known.clear()
            self._known[key] = _Weights(value, slope[:, active], curvature[:, active])
        return self._known[key]

    def counted(self, channels: Sequence[TemplateChannel]) -> Counted:
        """Channels with their expected counts and their background."""
        zero = np.zeros(self.free.init.size)
        return [(c, self.yields(c, zero, 1.0), self.yields(c, zero, 0.0)) for c in channels]

    @cached_property
    def free(self) -> Parameters:
        """The parameters that are not fixed."""
        p, active = self.parameters, self.parameters.active
        names = [name for name, own in zip(p.names, active, strict=True) if own]
        init, scale, constraint, least, most = (v[active] for v in p[1:-1])
        return Parameters(names, init, scale, constraint, least, most, active[active])

    def parts(self, channel: TemplateChannel, theta: Array, strength: float = 0.0) -> list[Array]:
        """Yields at theta of each group of samples that share their gammas."""
        weight = self._weights(channel, theta, strength).value
        return [(weight * own[channel.sample]) @ channel.templates for own, _ in channel.groups]

    def slopes(self, channel: TemplateChannel) -> tuple[Array, Array, list[Array]]:
        """Signal of each bin, derivatives of all yields along theta, and the yields that each gamma scales."""
        weight = self._weights(channel, np.zeros(self.free.init.size), 1.0)
        signal, by_gamma = (
            [(weight.value * mask[channel.sample]) @ channel.templates for mask in masks]
            for masks in ([channel.signal], [g.members for g in channel.gammas])
        )
        return signal[0], weight.slope.T @ channel.templates, by_gamma

    def _expand(self, channel: TemplateChannel, n: Array, b: Array, theta: Array) -> tuple[Expansion, Array]:
        """F of a channel without signal, with the gammas profiled, and what bent yields add to the diagonal."""
        weight = self._weights(channel, theta, 0.0)
        masks = [own[channel.sample] for own, _ in channel.groups]
        yields = [(weight.value * own) @ channel.templates for own in masks]
        local = profile_gammas(n, yields, b, channel.groups, channel.gammas)
        slope = np.zeros((theta.size, n.size))
        curvature = np.zeros(theta.size)
        for own, gamma in zip(masks, local.factors, strict=True):
            slope += gamma * (weight.slope[own].T @ channel.templates[own])
            curvature += weight.curvature[own].T @ (channel.templates[own] @ (gamma * local.slope))
        hessian = (slope * np.maximum(local.curvature, 0.0)) @ slope.T
        return Expansion(local.value.sum(), slope @ local.slope, hessian), curvature

    def expand_all(self, counts: Counted, theta: Array) -> Expansion:
        """F of channels with their expected counts, and of the constraints."""
        p, index = self.free, np.arange(theta.size)
        value, gradient, hessian = np.array(p.penalty(theta)), p.constraint * theta, np.zeros((theta.size, theta.size))
        bent = np.zeros(theta.size)
        for channel, n, b in counts:
            part, curvature = self._expand(channel, n, b, theta)
            value, gradient, hessian = value + part.value, gradient + part.gradient, hessian + part.hessian
            bent += curvature
        hessian[index, index] += np.maximum(p.constraint + bent, 0.1 * p.constraint)  # it must stay positive
        diagonal = hessian[index, index]
        hessian[index, index] += 1e-9 * diagonal + (diagonal <= 0)
        return Expansion(value, gradient, hessian)

    def value(self, counts: Counted, theta: Array) -> float:
        """F at theta of channels with their expected counts."""
        total = self.free.penalty(theta)
        for channel, n, b in counts:
            total += float(profile_gammas(n, self.parts(channel, theta), b, channel.groups, channel.gammas).value.sum())
        return total

    def profile(self, counts: Counted, start: Array) -> Profile:
        """Minimise F over theta by damped Newton steps."""
        p = self.free
        theta, value = np.clip(start, p.least, p.most), np.array(np.inf)
        for _ in range(_STEPS):
            value, gradient, hessian = self.expand_all(counts, theta)
            # A parameter at the end of its range that would go further stays there.
            stays = ((theta <= p.least) & (gradient > 0)) | ((theta >= p.most) & (gradient < 0))
            moves = ~stays
            if not moves.any():
                break
            step = np.zeros(theta.size)
            step[moves] = np.linalg.solve(hessian[np.ix_(moves, moves)], gradient[moves])
            decrease, length = float(gradient @ step), 1.0
            if decrease < _CONVERGED * (1 + value):
                value = value - decrease / 2  # too small a step for the rounding of F to see
                break
            for _ in range(_HALVINGS):
                trial = np.clip(theta - length * step, p.least, p.most)
                if self.value(counts, trial) <= value - 0.1 * length * decrease:
                    break
                length /= 2
            else:
                break
            theta = trial
        return Profile(value, theta)

    def lowest(self, counts: Counted) -> Profile:
        """Minimise F from several starts: bent shifts may give it several minima."""
        p = self.free
        bend = np.zeros(self.parameters.active.size)
        for channel, n, _ in counts:
            for k in np.unique(channel.parameter[channel.parameter >= 0]):
                both = channel.templates[(channel.parameter == k) & ~channel.signal[channel.sample]].sum(axis=0)
                bend[k] = max(bend[k], float(np.max(np.abs(both) / np.sqrt(n), initial=0.0)))
        bend = bend[self.parameters.active]
        bent = np.argsort(-bend, kind="stable")[: min(BENT, int(np.count_nonzero(bend > STRAIGHT)))]
        found = self.profile(counts, np.zeros(p.init.size))
        for k in bent:
            for far in (1.5, -1.5):
                again = self.profile(counts, far * np.eye(p.init.size)[k])
                found = again if again.objective < found.objective else found
        return found


class Local(NamedTuple):
    """Bins whose gammas are profiled: G, its slope and curvature in the yield, and the factor of each group."""

    value: Array
    slope: Array
    curvature: Array
    factors: list[Array]
    gammas: list[Array]


def profile_gammas(n: Array, yields: list[Array], b: Array, groups: Groups, local: Sequence[Gammas]) -> Local:
    """Find the gammas of each bin that fit best, given the yields of each group of samples."""
    total = np.zeros(n.shape)
    precision = [g.precision for g in local]
    gammas = [np.ones(n.shape) for _ in precision]

    def factors(without: int | None = None) -> list[Array]:
        out = []
        for _, own in groups:
            product = np.ones(n.shape)
            for k in own:
                if k != without:
                    product = product * gammas[k]
            out.append(product)
        return out

    def scaled_by(k: int, factor: list[Array]) -> Array:
        own = [f * y for f, y, (_, own) in zip(factor, yields, groups, strict=True) if k in own]
        return sum(own, start=total)

    def all_of(factor: list[Array]) -> Array:
        return sum((f * y for f, y in zip(factor, yields, strict=True)), start=total)

    settled = _SETTLED if n.size < _LARGE else _ROUGHLY
    for _ in range(_LOCAL_ROUNDS if len(gammas) > 1 else len(gammas)):
        before = list(gammas)
        for k, g in enumerate(local):
            others = factors(without=k)
            q = scaled_by(k, others)
            gammas[k] = _best_gamma(n, all_of(others) - q, q, precision[k], poisson=g.poisson)
        if max(float(np.abs(new - old).max(initial=0.0)) for new, old in zip(gammas, before, strict=True)) < settled:
            break
    by_group = factors()
    term = deviance(n, all_of(by_group), b)
    value, width = term.value, total
    for k, g in enumerate(local):
        q, gamma, tau = scaled_by(k, by_group), gammas[k], precision[k]
        known = np.isfinite(tau)
        price = tau * (gamma - 1 - np.log(gamma)) if g.poisson else tau * (gamma - 1) ** 2 / 2
        value = value + np.where(known, price, 0.0)
        # dm/dgamma squared over the curvature of the constraint, which is tau, or tau/gamma^2 for a Poisson one.
        width = width + np.where(known, (q if g.poisson else q / gamma) ** 2 / np.where(known, tau, 1.0), 0.0)
    curvature = term.curvature / (1 + term.curvature * width)
    return Local(value, term.slope, curvature, by_group, gammas)


def _best_gamma(n: Array, c: Array, q: Array, tau: Array, *, poisson: bool) -> Array:
    """Root of the derivative of n ln(n/(c + gamma q)) + gamma q and of the constraint; one where it is infinite."""
    known = np.isfinite(tau) & (q > 0)
    t, q, c = (np.where(known, v, 1.0) for v in (tau, q, np.maximum(c, 0.0)))
    if poisson:  # (q + t) q gamma^2 + (q c - n q + t c - t q) gamma - t c = 0
        first, middle, last = (q + t) * q, q * c - n * q + t * c - t * q, -t * c
    else:  # t q gamma^2 + (q q + t c - t q) gamma + q c - n q - t c = 0
        first, middle, last = t * q, q * q + t * c - t * q, q * c - n * q - t * c
    root = np.sqrt(np.maximum(middle * middle - 4 * first * last, 0.0))
    gamma = np.where(middle > 0, -2 * last / np.where(middle > 0, middle + root, 1.0), (root - middle) / (2 * first))
    return np.where(known, np.maximum(gamma, 1e-10), 1.0)
