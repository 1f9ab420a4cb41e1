"""Fine bins of the channels of a workspace as cells, for the search of `fivesigma.categories.one_score.dual`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fivesigma._types import Array, BoolArray, IntArray
from fivesigma.categories.floors import Floors
from fivesigma.categories.one_score.profiled_cells import Cells, QuadraticCells
from fivesigma.cut.yield_model import MovingAverage
from fivesigma.likelihood.histfactory import Counted, Gammas, TemplateChannel, WorkspaceModel, profile_gammas
from fivesigma.likelihood.measurement import Derivatives, expand_measurement
from fivesigma.likelihood.profile import Expansion, Profile

_TRIED = 6  # places of an edge that are profiled: those with the highest bounds


@dataclass(frozen=True, eq=False)
class TemplateCells(Cells):
    """Running sums of templates; channels that were not chosen stay as they are."""

    model: WorkspaceModel
    running: tuple[TemplateChannel, ...]  # the chosen channels
    counts: tuple[Array, ...]  # expected counts of these
    others: tuple[TemplateChannel, ...]

    def _own(self, lower: IntArray) -> list[tuple[int, BoolArray]]:
        """Start of each channel, and the intervals that are its own."""
        return [(i, (lower > i) & (lower < j)) for i, j in zip(*self.ends, strict=True)]

    def channels(self, edges: IntArray) -> list[TemplateChannel]:
        """Templates of one partition: the merged channels, then the others."""
        ats = [np.append(0, own) for own in self.split(edges)]
        merged = [c.map(lambda v, at=at: np.diff(v[..., at])) for c, at in zip(self.running, ats, strict=True)]  # type: ignore[misc]
        return [*merged, *self.others]

    @abstractmethod
    def surely(self, edges: IntArray) -> Profile:
        """Profile one partition, and look for other minima."""

    @property
    def least(self) -> Array:
        """Smallest value of each parameter."""
        return self.model.free.least


class TemplateDiscovery(TemplateCells):
    """Cells for the largest profiled significance."""

    @cached_property
    def _backgrounds(self) -> list[Array]:
        zero = np.zeros(self.constant.size)
        return [self.model.yields(channel, zero, 0.0) for channel in self.running]

    @cached_property
    def _fixed(self) -> Counted:
        return self.model.counted(self.others)

    def penalty(self, theta: Array) -> float:
        """Price of some pulls, and F of the channels that are not merged."""
        return self.model.value(self._fixed, theta)

    def values(self, theta: Array, upper: IntArray, lower: IntArray) -> Array:
        """G of merged bins at some pulls."""
        out = np.empty(lower.shape)
        each = zip(self._own(lower), self.running, self.counts, self._backgrounds, strict=True)
        for (first, own), channel, n, b in each:
            low, up = lower[own] - first, upper[own] - first
            if low.size:
                parts = [part[low] - part[up] for part in self.model.parts(channel, theta)]
                local = _between(channel.gammas, up, low)
                out[own] = profile_gammas(n[low] - n[up], parts, b[low] - b[up], channel.groups, local).value
        return out

    def profile(self, partitions: IntArray, start: Array) -> Profile:
        """Profile the few partitions that are best at the start; the others have no F."""
        objective, theta = np.full(len(partitions), -np.inf), np.tile(start, (len(partitions), 1))
        for k in np.argsort(-self.at(start, partitions))[:_TRIED]:
            objective[k], theta[k] = self.model.profile(self.model.counted(self.channels(partitions[k])), start)
        return Profile(objective, theta)

    def lowest(self, edges: IntArray, start: Array | None = None) -> Profile:
        """Profile one partition from some pulls, by default from zero, as pyhf does; see `surely`."""
        counted = self.model.counted(self.channels(edges))
        return self.model.profile(counted, np.zeros(self.constant.size) if start is None else start)

    def surely(self, edges: IntArray) -> Profile:
        """Profile one partition from several pulls."""
        return self.model.lowest(self.model.counted(self.channels(edges)))

    def expand(self, partitions: IntArray, theta: Array) -> Expansion:
        """F of several partitions to second order at the same pulls."""
        every = [self.model.expand_all(self.model.counted(self.channels(edges)), theta) for edges in partitions]
        return Expansion(*(np.array(column) for column in zip(*every, strict=True)))


@dataclass(frozen=True, eq=False)
class TemplateMeasurement(TemplateCells, QuadraticCells):
    """Cells for the smallest uncertainty of the strength."""

    slopes: tuple[tuple[Array, Array, list[Array]], ...]  # from `WorkspaceModel.slopes`
    fixed: Derivatives  # of the channels that are not merged

    def _merged(self, upper: IntArray, lower: IntArray, theta: Array | None) -> tuple[Array, Array, Array]:
        """Signal, counts with the variance of the gammas, and Delta (or a.Delta) of merged bins."""
        s, n = np.empty((2, *lower.shape))
        delta = np.empty((*lower.shape, self.constant.size) if theta is None else lower.shape)
        each = zip(self._own(lower), self.running, self.counts, self.slopes, strict=True)
        for (first, own), channel, count, (signal, slope, scaled) in each:
            low, up = lower[own] - first, upper[own] - first
            s[own] = signal[low] - signal[up]
            moved = slope if theta is None else theta @ slope
            delta[own] = (moved[..., low] - moved[..., up]).T
            yields = [v[low] - v[up] for v in scaled]
            n[own] = count[low] - count[up] + _variance(_between(channel.gammas, up, low), yields)
        return s, n, delta

    def between(self, partitions: IntArray) -> Derivatives:
        """What the uncertainty needs of the bins of partitions, and of the channels that are not merged."""
        s, n, delta = self._merged(self.uppers(partitions), partitions, None)
        joined = [
            np.concatenate([own, np.broadcast_to(other, (*partitions.shape[:-1], *other.shape))], axis=-1)
            for own, other in ((s, self.fixed.s), (n, self.fixed.n), (np.swapaxes(delta, -1, -2), self.fixed.delta))
        ]
        return Derivatives(joined[0], joined[1], joined[2], self.fixed.constraint)

    def penalty(self, theta: Array) -> float:
        """Price of some a, and F of the channels that are not merged."""
        return float(expand_measurement(self.fixed, theta).value)

    def values(self, theta: Array, upper: IntArray, lower: IntArray) -> Array:
        """(s - a.Delta)^2 / (2 n) of merged bins."""
        s, n, delta = self._merged(upper, lower, theta)
        out: Array = (s - delta) ** 2 / (2 * n)
        return out

    def surely(self, edges: IntArray) -> Profile:
        """Minimise over a; there is one minimum."""
        return self.lowest(edges)


def template_cells(
    model: WorkspaceModel,
    chosen: Sequence[str],
    floors: Floors,
    goal: str,
    shares: Sequence[int] | None = None,
    *,
    smooth: bool = False,
) -> TemplateCells:
    """Cells of the chosen channels of a model, which are merged whole; floors hold for the templates as they are."""
    fine = [channel for channel in model.channels if channel.name in chosen]
    others = tuple(channel for channel in model.channels if channel.name not in chosen)
    zero = np.zeros(model.free.init.size)
    running = tuple(channel.map(_running) for channel in fine)
    counts, backgrounds = ([model.yields(channel, zero, strength) for channel in running] for strength in (1.0, 0.0))
    starts = np.cumsum([0, *(n.size for n in counts)])
    allowed = np.zeros((starts[-1], starts[-1]), dtype=np.bool_)
    for first, channel, n, b in zip(starts, running, counts, backgrounds, strict=False):
        squares = sum((g.squares for g in channel.gammas), start=np.zeros(n.size))
        s, background, squared = (v[:, None] - v[None, :] for v in (n - b, b, squares))
        s[np.abs(s) < 1e-9 * n[-1]] = 0.0  # none, up to rounding
        inside = slice(first, first + n.size)
        allowed[inside, inside] = floors.allow(s, background, squared) & np.tri(n.size, k=-1, dtype=np.bool_)
    if smooth:
        running = tuple(_averaged(channel).map(_running) for channel in fine)
        counts = [model.yields(channel, zero, 1.0) for channel in running]
    shared: Any = (np.concatenate(counts), allowed, 0.0, zero, model, running, tuple(counts), others)
    options: Any = {"starts": tuple(starts[:-1].tolist()), "whole": True}
    options["shares"] = None if shares is None else tuple(shares)
    if goal == "discovery":
        return TemplateDiscovery(*shared, **options)
    parts = [model.slopes(channel) for channel in others]
    signal, moved = ([part[k] for part in parts] for k in (0, 1))
    n_fixed = [
        model.yields(channel, zero, 1.0) + _variance(channel.gammas, part[2])
        for channel, part in zip(others, parts, strict=True)
    ]
    fixed = Derivatives(
        np.concatenate([np.zeros(0), *signal]),
        np.concatenate([np.zeros(0), *n_fixed]),
        np.concatenate([np.zeros((zero.size, 0)), *moved], axis=1),
        model.free.constraint,
    )
    shared = (*shared, tuple(model.slopes(channel) for channel in running), fixed)
    return TemplateMeasurement(*shared, **options)


def _running(values: Array) -> Array:
    return np.concatenate([np.zeros((*values.shape[:-1], 1)), np.cumsum(values, axis=-1)], axis=-1)


def _averaged(channel: TemplateChannel) -> TemplateChannel:
    """Average every sample and its shifts along the bins, from the purer end."""
    nominal = channel.templates[: len(channel.samples)]
    total, s, half = nominal.sum(axis=0), nominal[channel.signal].sum(axis=0), nominal.shape[1] // 2
    pure_above = s[half:].sum() * total[:half].sum() > s[:half].sum() * total[half:].sum()
    order = slice(None, None, -1 if pure_above else None)
    running, along = _running(channel.templates[:, order]), _running(total[order])
    out = running.copy()
    for row, own in enumerate(channel.sample):
        average = MovingAverage.of(running[own], along)
        if average is None:
            continue
        if channel.parameter[row] < 0:
            out[row] = average(running[row])
        elif not channel.up[row] and np.abs(running[row] + running[row - 1]).max() <= 1e-9 * running[own, -1]:
            out[row] = -out[row - 1]  # what is opposite stays so
        else:
            out[row] = average.shift(running[own], running[row])
    return replace(channel, templates=np.diff(out)[:, order])


def _between(gammas: Sequence[Gammas], upper: IntArray, lower: IntArray) -> list[Gammas]:
    return [g.map(lambda v: v[lower] - v[upper]) for g in gammas]


def _variance(gammas: Sequence[Gammas], yields: Sequence[Array]) -> Array | float:
    """Variance that gammas add to the counts of bins, given the yields that each of them scales."""
    return sum((y * y / g.precision for g, y in zip(gammas, yields, strict=True)), start=0.0)
