"""Fine bins of the channels of a workspace: merged, and as cells for the search of `categories.one_score.dual`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from fivesigma._types import Array, BoolArray, IntArray
from fivesigma.categories.floors import Floors
from fivesigma.categories.one_score.profiled_cells import Cells, MeasurementCells, gamma_variance
from fivesigma.categories.workspace import BY_BIN, Workspace, pyhf_model
from fivesigma.cut.yield_model import MovingAverage
from fivesigma.errors import InputError
from fivesigma.likelihood.histfactory import (
    Code4,
    Counted,
    Gammas,
    Parameters,
    TemplateChannel,
    WorkspaceLikelihood,
    WorkspaceModel,
    profile_gammas,
)
from fivesigma.likelihood.profile import Derivatives


def merge_bins(workspace: Workspace, firsts: Mapping[str, IntArray]) -> Workspace:
    """Merge neighbouring bins of some channels; `firsts` are the first bins of each new one.

    Yields, variations and observations add up, staterror and shapesys in quadrature; everything else is as it was.
    """
    by_bin: dict[str, int] = {}
    channels = []
    for channel in workspace["channels"]:
        first, samples = firsts.get(channel["name"]), channel["samples"]
        if first is not None:
            samples = [_merge_sample(sample, first) for sample in samples]
            by_bin |= {m["name"]: first.size for s in samples for m in s["modifiers"] if m["type"] in BY_BIN}
        channels.append({**channel, "samples": samples})
    observations = [
        {**entry, "data": _add(entry["data"], firsts[entry["name"]])} if entry["name"] in firsts else entry
        for entry in workspace["observations"]
    ]
    measurements = [_merge_settings(entry, by_bin) for entry in workspace["measurements"]]
    return {**workspace, "channels": channels, "observations": observations, "measurements": measurements}


def _add(values: Any, first: IntArray) -> list[float]:
    return [float(v) for v in np.add.reduceat(np.asarray(values, dtype=np.float64), first)]


def _merge_sample(sample: Mapping[str, Any], first: IntArray) -> dict[str, Any]:
    modifiers = []
    for modifier in sample["modifiers"]:
        data = modifier["data"]
        if modifier["type"] == "histosys":
            data = {side: _add(data[side], first) for side in ("hi_data", "lo_data")}
        elif modifier["type"] in BY_BIN:
            data = np.sqrt(_add(np.square(np.asarray(data, dtype=np.float64)), first)).tolist()
        modifiers.append({**modifier, "data": data})
    return {**sample, "data": _add(sample["data"], first), "modifiers": modifiers}


def _merge_settings(measurement: Mapping[str, Any], by_bin: Mapping[str, int]) -> dict[str, Any]:
    """Settings of parameters of single bins, such as bounds, which must be alike for all bins of a channel."""
    parameters = []
    for entry in measurement["config"].get("parameters", ()):
        new = dict(entry)
        if entry["name"] in by_bin:
            for key, values in entry.items():
                if isinstance(values, list):
                    if any(value != values[0] for value in values):
                        raise InputError(
                            f"measurement {measurement['name']!r} gives {key} of {entry['name']!r} bin by bin; bins "
                            "that differ cannot be merged"
                        )
                    new[key] = values[:1] * by_bin[entry["name"]]
        parameters.append(new)
    return {**measurement, "config": {**measurement["config"], "parameters": parameters}}


def read_model(workspace: Workspace, measurement: str | None = None) -> WorkspaceModel:
    """Arrays of a workspace; what pyhf would take for its parameters is asked of pyhf itself, for one bin a channel."""
    one = merge_bins(workspace, {c["name"]: np.zeros(1, dtype=np.intp) for c in workspace["channels"]})
    config = pyhf_model(one, measurement).config
    poi = config.poi_name
    kinds = {(m["name"], m["type"]) for c in workspace["channels"] for s in c["samples"] for m in s["modifiers"]}
    if (poi, "normfactor") not in kinds:
        raise InputError(f"no channel has the parameter of interest {poi!r} as a normfactor, so there is no signal")
    local = {name for name, kind in kinds if kind in BY_BIN}
    names = [name for name in config.par_order if name != poi and name not in local]
    rows = []
    for name in names:
        settings = config.param_set(name)
        init, (low, high) = float(settings.suggested_init[0]), settings.suggested_bounds[0]
        scale = float(settings.width()[0]) if settings.constrained else 1.0
        fixed = settings.suggested_fixed[0]
        limits = (0.0, 0.0) if fixed else ((low - init) / scale, (high - init) / scale)
        rows.append((init, scale, float(settings.constrained), *limits))
    # pyhf fixes a gamma without an error by itself; only what a measurement fixes leaves the likelihood.
    fixed_by_hand = {
        entry["name"]
        for m in workspace["measurements"]
        for entry in m["config"].get("parameters", ())
        if entry.get("fixed", False)
    }
    held = {name for name in local & fixed_by_hand if all(config.param_set(name).suggested_fixed)}
    index = {name: k for k, name in enumerate(names)}
    parameters = Parameters(names, *np.array(rows, dtype=np.float64).reshape(-1, 5).T)
    return WorkspaceModel(parameters, [_channel(c, poi, index, held) for c in workspace["channels"]])


def _channel(channel: Mapping[str, Any], poi: str, index: Mapping[str, int], held: set[str]) -> TemplateChannel:
    samples = channel["samples"]
    templates = [np.asarray(sample["data"], dtype=np.float64) for sample in samples]
    rows = [(s, -1, 0) for s in range(len(samples))]  # sample, parameter and side of each template
    norm: list[tuple[int, int, float, float]] = []
    linear: list[tuple[int, int]] = []
    by_bin: dict[str, Gammas] = {}
    signal = [any(m["type"] == "normfactor" and m["name"] == poi for m in sample["modifiers"]) for sample in samples]
    for s, sample in enumerate(samples):
        for modifier in sample["modifiers"]:
            name, kind, data = modifier["name"], modifier["type"], modifier["data"]
            if kind == "histosys":
                for side, up in (("hi_data", 1), ("lo_data", 0)):
                    templates.append(np.asarray(data[side], dtype=np.float64) - templates[s])
                    rows.append((s, index[name], up))
            elif kind == "normsys":
                norm.append((s, index[name], float(data["lo"]), float(data["hi"])))
            elif kind in {"normfactor", "lumi"} and name != poi:
                linear.append((s, index[name]))
            elif kind in BY_BIN and name not in held:
                zero = 0 * templates[s]
                none = Gammas(name, np.zeros(len(samples), dtype=np.bool_), kind == "shapesys", zero, zero, zero)
                g, squares = by_bin.get(name, none), np.square(np.asarray(data, dtype=np.float64))
                g.members[s] = True
                counted = g.squares if g.poisson or signal[s] else g.squares + squares
                sums = (g.nominal + templates[s], g.variance + squares, counted)
                by_bin[name] = Gammas(name, g.members, g.poisson, *sums)
    factors = np.array(norm, dtype=np.float64).reshape(-1, 4).T
    scales = np.array(linear, dtype=np.intp).reshape(-1, 2).T
    owner, parameter, up = np.array(rows, dtype=np.intp).T
    return TemplateChannel(
        channel["name"],
        [sample["name"] for sample in samples],
        np.array(signal, dtype=np.bool_),
        np.array(templates),
        owner,
        parameter,
        up.astype(np.bool_),
        (factors[0].astype(np.intp), factors[1].astype(np.intp), Code4.of(*factors[2:])),
        (scales[0], scales[1]),
        tuple(by_bin.values()),
    )


@dataclass(frozen=True, eq=False)
class FineBins:
    """The channels to merge, as running sums of their templates, and the others, which stay as they are."""

    model: WorkspaceModel
    running: list[TemplateChannel]
    others: list[TemplateChannel]

    @classmethod
    def of(cls, model: WorkspaceModel, chosen: Sequence[str], *, smooth: bool = False) -> FineBins:
        """Add up the fine bins of the chosen channels, averaged along the bins if they are to be smooth."""
        fine = [channel for channel in model.channels if channel.name in chosen]
        running = [(_average(channel) if smooth else channel).map(_running) for channel in fine]
        return cls(model, running, [channel for channel in model.channels if channel.name not in chosen])

    @cached_property
    def counted(self) -> Counted:
        """Running sums with their expected counts and their background."""
        return self.model.counted(self.running)

    @cached_property
    def others_counted(self) -> Counted:
        """The same of the other channels."""
        return self.model.counted(self.others)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """First edge of each channel."""
        return tuple(np.cumsum([0, *(n.size for _, n, _ in self.counted)])[:-1].tolist())

    def allowed(self, floors: Floors) -> BoolArray:
        """Merged bins that have enough background; floors hold for the templates as they are."""
        blocks = []
        for channel, n, b in self.counted:
            squares = sum((g.squares for g in channel.gammas), start=np.zeros(n.size))
            s, background, squared = (v[:, None] - v[None, :] for v in (n - b, b, squares))
            s[np.abs(s) < 1e-9 * n[-1]] = 0.0  # none, up to rounding
            blocks.append(floors.allow(s, background, squared) & np.tri(n.size, k=-1, dtype=np.bool_))
        return np.asarray(block_diag(*blocks))

    @cached_property
    def fixed(self) -> Derivatives:
        """What a measurement needs of the channels that are not merged."""
        s, delta, gammas = self._slopes(self.others)
        n = np.concatenate([np.zeros(0), *(n for _, n, _ in self.others_counted)])
        return Derivatives(s, n + gamma_variance(*gammas).sum(axis=0), delta, self.model.parameters.constraint)

    def cells(self, allowed: BoolArray, goal: str, shares: Sequence[int] | None) -> Cells:
        """Cells for the search."""
        shared = (np.concatenate([n for _, n, _ in self.counted]), allowed, 0.0, self.model.start)
        options: Any = {"starts": self.starts, "whole": True, "shares": None if shares is None else tuple(shares)}
        if goal == "discovery":
            return TemplateCells(*shared, self, **options)
        s, delta, gammas = self._slopes(self.running)
        return MeasurementCells(*shared, s, delta, self.fixed.constraint, gammas, self.fixed, **options)

    def _slopes(self, channels: Sequence[TemplateChannel]) -> tuple[Array, Array, Array]:
        """Signal, derivatives along the parameters, and gammas as in `MeasurementCells`, of all channels in one row."""
        size, most = len(self.model.parameters.names), max((len(c.gammas) for c in channels), default=0)
        s, delta, gammas = [np.zeros(0)], [np.zeros((size, 0))], [np.zeros((3, most, 0))]
        for channel in channels:
            signal, slope, scaled = self.model.slopes(channel)
            own = np.zeros((3, most, signal.size))
            for k, (g, yields) in enumerate(zip(channel.gammas, scaled, strict=True)):
                own[:, k] = yields, g.nominal, g.variance
            s, delta, gammas = [*s, signal], [*delta, slope], [*gammas, own]
        return np.concatenate(s), np.concatenate(delta, axis=-1), np.concatenate(gammas, axis=-1)

    def finest(self) -> IntArray:
        """Edges of the fine bins; those without background, or with negative signal, are merged with what follows."""
        edges: list[int] = []
        for first, (_, n, b) in zip(self.starts, self.counted, strict=True):
            kept = [0]
            for k in range(1, n.size):
                if b[k] - b[kept[-1]] > 1e-9 * b[-1] and (n - b)[k] - (n - b)[kept[-1]] >= -1e-9 * n[-1]:
                    kept.append(k)
            kept[-1] = n.size - 1
            edges += [first + k for k in kept if k > 0]
        return np.array(edges)


@dataclass(frozen=True, eq=False)
class TemplateCells(Cells):
    """Cells for the largest profiled significance of a workspace."""

    fine: FineBins

    tried = 6  # a fit of a workspace is slow

    def merge(self, edges: IntArray) -> Counted:
        """Templates of one partition: the merged channels, then the others."""
        ats = [np.append(0, own) for own in self.split(edges)]
        parts = zip(self.fine.running, ats, strict=True)
        merged = [channel.map(lambda v, at=at: np.diff(v[..., at])) for channel, at in parts]  # type: ignore[misc]
        return self.fine.model.counted([*merged, *self.fine.others])

    def between(self, partitions: IntArray) -> WorkspaceLikelihood:  # noqa: D102 - as in Cells
        rows = np.atleast_2d(partitions)
        return WorkspaceLikelihood(self.fine.model, [self.merge(edges) for edges in rows], partitions.ndim > 1)

    def penalty(self, theta: Array) -> float:
        """Price of some pulls, and F of the channels that are not merged."""
        return self.fine.model.value(self.fine.others_counted, theta)

    def values(self, theta: Array, upper: IntArray, lower: IntArray) -> Array:  # noqa: D102
        out = np.empty(lower.shape)
        for first, stop, (channel, n, b) in zip(*self.ends, self.fine.counted, strict=True):
            own = (lower > first) & (lower < stop)
            low, up = lower[own] - first, upper[own] - first
            if low.size:
                parts = [part[low] - part[up] for part in self.fine.model.parts(channel, theta)]
                bins = channel.map_gammas(lambda v, low=low, up=up: v[low] - v[up])  # type: ignore[misc]
                out[own] = profile_gammas(n[low] - n[up], parts, b[low] - b[up], bins).value
        return out


def _running(values: Array) -> Array:
    return np.concatenate([np.zeros((*values.shape[:-1], 1)), np.cumsum(values, axis=-1)], axis=-1)


def _average(channel: TemplateChannel) -> TemplateChannel:
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
