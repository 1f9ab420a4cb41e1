"""HistFactory workspaces: what can be wrong with them, their bins merged, their arrays, and what pyhf says of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._types import Array, IntArray
from fivesigma.categories.workspace import pyhf_model
from fivesigma.errors import InputError
from fivesigma.likelihood.histfactory import Code4, Gammas, Parameters, TemplateChannel, WorkspaceModel

_BY_BIN = ("staterror", "shapesys")
_KINDS = ("histosys", "normsys", "normfactor", "lumi", *_BY_BIN)
_STEP = 1e-4  # of derivatives, in standard deviations

Workspace = dict[str, Any]


def read_workspace(source: Mapping[str, Any] | str | Path) -> Workspace:
    """Read a workspace, and refuse what is none."""
    spec: Any = source
    if not isinstance(source, Mapping):
        try:
            spec = json.loads(Path(source).read_text(encoding="utf-8"))
        except OSError as err:
            raise InputError(f"{source} cannot be read: {err.strerror or err}") from err
        except ValueError as err:
            raise InputError(f"{source} is no JSON: {err}") from err
    try:
        for channel in spec["channels"]:
            _check_channel(channel)
        names = [channel["name"] for channel in spec["channels"]]
        sizes = {channel["name"]: len(channel["samples"][0]["data"]) for channel in spec["channels"]}
        for entry in spec["observations"]:
            _numbers(entry["data"], sizes[entry["name"]], f"the observation of {entry['name']!r}")
        measured = [entry["config"]["poi"] for entry in spec["measurements"]]
    except (KeyError, TypeError, IndexError, AttributeError) as err:
        raise InputError(f"this is no HistFactory workspace of pyhf: {type(err).__name__} at {err}") from err
    if not measured or len(set(names)) < len(names):
        raise InputError("this is no HistFactory workspace of pyhf: it has no measurement, or two channels of one name")
    return dict(spec)


def _check_channel(channel: Mapping[str, Any]) -> None:
    size = len(channel["samples"][0]["data"])
    for sample in channel["samples"]:
        place = f"{channel['name']}/{sample['name']}"
        _numbers(sample["data"], size, place)
        for modifier in sample["modifiers"]:
            kind, data, what = modifier["type"], modifier["data"], f"{place}, {modifier['type']} {modifier['name']!r}"
            if kind == "shapefactor":
                raise InputError(
                    f"{what}: a shapefactor is free in each bin, so that merged bins would be another model; leave the "
                    "bins as they are, or replace it by a normfactor"
                )
            if kind not in _KINDS:
                raise InputError(f"{what} is no modifier of pyhf that can be merged: {', '.join(_KINDS)}")
            if kind == "histosys":
                _numbers(data["hi_data"], size, what)
                _numbers(data["lo_data"], size, what)
            elif kind in _BY_BIN:
                _numbers(data, size, what)
            elif kind == "normsys" and _numbers([data["hi"], data["lo"]], 2, what).min() <= 0:
                raise InputError(f"{what} has a factor that is not positive, of which there is no logarithm")


def _numbers(values: Any, size: int, what: str) -> Array:
    try:
        out = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        out = np.full(1, np.nan)
    if out.shape != (size,):
        raise InputError(f"{what} has {np.size(values)} numbers where its channel has {size} bins")
    if not np.isfinite(out).all():
        raise InputError(f"{what} holds NaN or infinity, or no number; every bin needs a finite one")
    return out


def merge_bins(workspace: Workspace, firsts: Mapping[str, IntArray]) -> Workspace:
    """Merge neighbouring bins of some channels; `firsts` are the first bins of each new one.

    Yields, variations and observations add up, staterror and shapesys in quadrature; everything else is as it was.
    """
    out = dict(workspace)
    out["channels"] = [_merged_channel(c, firsts[c["name"]]) if c["name"] in firsts else c for c in out["channels"]]
    out["observations"] = [
        entry | {"data": _add(entry["data"], firsts[entry["name"]])} if entry["name"] in firsts else entry
        for entry in out["observations"]
    ]
    by_bin = {
        modifier["name"]: firsts[channel["name"]].size
        for channel in workspace["channels"]
        for sample in channel["samples"]
        for modifier in sample["modifiers"]
        if channel["name"] in firsts and modifier["type"] in _BY_BIN
    }
    out["measurements"] = [_merged_settings(entry, by_bin) for entry in out["measurements"]]
    return out


def _add(values: Any, first: IntArray) -> list[float]:
    return [float(v) for v in np.add.reduceat(np.asarray(values, dtype=np.float64), first)]


def _merged_channel(channel: Mapping[str, Any], first: IntArray) -> dict[str, Any]:
    samples = []
    for sample in channel["samples"]:
        modifiers = []
        for modifier in sample["modifiers"]:
            data = modifier["data"]
            if modifier["type"] == "histosys":
                data = {side: _add(data[side], first) for side in ("hi_data", "lo_data")}
            elif modifier["type"] in _BY_BIN:
                data = np.sqrt(_add(np.square(np.asarray(data, dtype=np.float64)), first)).tolist()
            modifiers.append(modifier | {"data": data})
        samples.append(sample | {"data": _add(sample["data"], first), "modifiers": modifiers})
    return {**channel, "samples": samples}


def _merged_settings(measurement: Mapping[str, Any], by_bin: Mapping[str, int]) -> dict[str, Any]:
    """Settings of parameters of single bins, such as bounds, which must be alike for all bins of a channel."""
    parameters = []
    for entry in measurement["config"].get("parameters", ()):
        n = by_bin.get(entry["name"])
        new = dict(entry)
        for key, values in entry.items() if n is not None else ():
            if isinstance(values, list):
                if any(value != values[0] for value in values):
                    raise InputError(
                        f"measurement {measurement['name']!r} gives {key} of {entry['name']!r} bin by bin; bins that "
                        "differ cannot be merged"
                    )
                new[key] = values[:1] * int(n or 0)
        parameters.append(new)
    return {**measurement, "config": {**measurement["config"], "parameters": parameters}}


def read_model(workspace: Workspace, measurement: str | None = None) -> WorkspaceModel:
    """Arrays of a workspace; what pyhf would take for its parameters is asked of pyhf itself, for one bin a channel."""
    one = merge_bins(workspace, {c["name"]: np.zeros(1, dtype=np.intp) for c in workspace["channels"]})
    config = _pyhf_model(one, measurement).config
    poi = config.poi_name
    kinds = {(m["name"], m["type"]) for c in workspace["channels"] for s in c["samples"] for m in s["modifiers"]}
    if (poi, "normfactor") not in kinds:
        raise InputError(f"no channel has the parameter of interest {poi!r} as a normfactor, so there is no signal")
    local = {name for name, kind in kinds if kind in _BY_BIN}
    names = [name for name in config.par_order if name != poi and name not in local]
    rows = []
    for name in names:
        settings = config.param_set(name)
        init, (low, high) = float(settings.suggested_init[0]), settings.suggested_bounds[0]
        scale = float(settings.width()[0]) if settings.constrained else 1.0
        rows.append((init, scale, float(settings.constrained), (low - init) / scale, (high - init) / scale))
    fixed = np.array([bool(config.param_set(name).suggested_fixed[0]) for name in names], dtype=np.bool_)
    columns = np.array(rows, dtype=np.float64).reshape(-1, 5).T
    parameters = Parameters(names, columns[0], columns[1], columns[2], columns[3], columns[4], ~fixed)
    held = {name for name in local if all(config.param_set(name).suggested_fixed) and _is_fixed(workspace, name)}
    index = {name: k for k, name in enumerate(names)}
    return WorkspaceModel(parameters, [_channel(c, poi, index, held) for c in workspace["channels"]])


def _is_fixed(workspace: Workspace, name: str) -> bool:
    entries = [e for m in workspace["measurements"] for e in m["config"].get("parameters", ()) if e["name"] == name]
    return any(entry.get("fixed", False) for entry in entries)


def _pyhf_model(workspace: Workspace, measurement: str | None = None) -> Any:
    pyhf = need("pyhf")
    try:
        return pyhf_model(workspace, measurement)
    except (pyhf.exceptions.InvalidSpecification, pyhf.exceptions.InvalidModifier, AssertionError, KeyError) as err:
        raise InputError(f"pyhf does not accept this workspace: {str(err).strip().splitlines()[0][:200]}") from err
    except pyhf.exceptions.InvalidMeasurement as err:
        there = ", ".join(repr(entry["name"]) for entry in workspace["measurements"])
        raise InputError(f"there is no measurement {measurement!r}; there are {there}") from err
    except pyhf.exceptions.InvalidModel as err:
        raise InputError(f"the parameter of interest is in no channel, so there is no signal: {err}") from err


def _channel(channel: Mapping[str, Any], poi: str, index: Mapping[str, int], held: set[str]) -> TemplateChannel:
    samples = channel["samples"]
    templates = [np.asarray(sample["data"], dtype=np.float64) for sample in samples]
    owner, parameter, up = list(range(len(samples))), [-1] * len(samples), [False] * len(samples)
    norm: list[tuple[int, int, float, float]] = []
    linear: list[tuple[int, int]] = []
    by_bin: dict[str, Gammas] = {}
    signal = [any(m["type"] == "normfactor" and m["name"] == poi for m in sample["modifiers"]) for sample in samples]
    for s, sample in enumerate(samples):
        for modifier in sample["modifiers"]:
            name, kind, data = modifier["name"], modifier["type"], modifier["data"]
            if kind == "histosys":
                for side, is_up in (("hi_data", True), ("lo_data", False)):
                    templates.append(np.asarray(data[side], dtype=np.float64) - templates[s])
                    owner.append(s)
                    parameter.append(index[name])
                    up.append(is_up)
            elif kind == "normsys":
                norm.append((s, index[name], float(data["lo"]), float(data["hi"])))
            elif kind in {"normfactor", "lumi"} and name != poi:
                linear.append((s, index[name]))
            elif kind in _BY_BIN and name not in held:
                zero = 0 * templates[s]
                none = Gammas(name, np.zeros(len(samples), dtype=np.bool_), kind == "shapesys", zero, zero, zero)
                g, squares = by_bin.get(name, none), np.square(np.asarray(data, dtype=np.float64))
                g.members[s] = True
                counted = g.squares if g.poisson or signal[s] else g.squares + squares
                sums = (g.nominal + templates[s], g.variance + squares, counted)
                by_bin[name] = Gammas(name, g.members, g.poisson, *sums)
    factors = np.array(norm, dtype=np.float64).reshape(-1, 4).T
    scales = np.array(linear, dtype=np.intp).reshape(-1, 2).T
    return TemplateChannel(
        channel["name"],
        [sample["name"] for sample in samples],
        np.array(signal, dtype=np.bool_),
        np.array(templates),
        np.array(owner, dtype=np.intp),
        np.array(parameter, dtype=np.intp),
        np.array(up, dtype=np.bool_),
        (factors[0].astype(np.intp), factors[1].astype(np.intp), Code4.of(*factors[2:])),
        (scales[0], scales[1]),
        tuple(by_bin.values()),
    )


def pyhf_uncertainty(workspace: Workspace, measurement: str | None) -> float:
    """Uncertainty of the strength at one, from the information in pyhf's expected data, auxiliary ones included."""
    model = _pyhf_model(workspace, measurement)
    config = model.config
    start = np.array(config.suggested_init(), dtype=np.float64)
    start[config.poi_index] = 1.0
    expected = np.asarray(model.expected_data(start), dtype=np.float64)
    variance = expected.copy()
    auxiliary = config.nmaindata
    for name in config.auxdata_order:
        settings = config.param_set(name)
        if settings.pdf_type == "normal":
            variance[auxiliary : auxiliary + settings.n_parameters] = np.square(settings.width())
        auxiliary += settings.n_parameters
    moving = [k for k, fixed in enumerate(config.suggested_fixed()) if not fixed or k == config.poi_index]
    rows = []
    for k in moving:
        step = _STEP * max(abs(start[k]), 1.0) * np.eye(start.size)[k]
        high, low = (np.asarray(model.expected_data(start + side), dtype=np.float64) for side in (step, -step))
        rows.append((high - low) / (2 * step[k]))
    slopes = np.array(rows)
    seen = variance > 0
    information = (slopes[:, seen] / variance[seen]) @ slopes[:, seen].T
    return float(np.sqrt(np.linalg.pinv(information)[moving.index(config.poi_index), moving.index(config.poi_index)]))
