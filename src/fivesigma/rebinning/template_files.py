"""Templates that are no workspace yet: histograms by name, in memory or in a ROOT file."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._types import Array
from fivesigma.categories.workspace import Workspace, read_workspace
from fivesigma.errors import InputError, require_known

VARIATION = "{process}_{systematic}Up"
DATA = "data_obs"
_OTHER_SIDE = {"Up": "Down", "up": "down", "UP": "DOWN"}
_SIDE = re.compile(r"(up|down|dn)[a-z]?$", re.IGNORECASE)  # how names of variations end, slips of the pen included

#: A workspace, a file of one, a ROOT file of templates, or histograms by name, which may be nested by channel.
Source = Mapping[str, Any] | str | Path


def workspace_of(
    source: Source, signal: str | Sequence[str] | None, variation: str
) -> tuple[Workspace, dict[str, Array]]:
    """Make a checked workspace of what a user has, and the edges of the axis of each channel that has one."""
    if not isinstance(source, (Mapping, str, Path)):
        raise InputError(
            f"rebin takes a workspace, histograms by name, or a path of either, got {type(source).__name__}"
        )
    if "channels" in source if isinstance(source, Mapping) else Path(source).suffix != ".root":
        return read_workspace(source), {}
    by_channel = _nested(source if isinstance(source, Mapping) else _read_root(source))
    if signal is None:
        raise InputError(
            "without 'channels' this is no workspace, and templates do not say which process is the signal; give "
            "signal=, or --signal"
        )
    signals = [signal] if isinstance(signal, str) else list(signal)
    channels: list[dict[str, Any]] = []
    axes: dict[str, Array] = {}
    for name, histograms in by_channel.items():
        channels.append({"name": name, "samples": _samples(name, histograms, signals, variation)})
        first = histograms[channels[-1]["samples"][0]["name"]]
        edges = first.axes[0].edges
        axes[name] = np.asarray(edges() if callable(edges) else edges, dtype=np.float64)
    found = {sample["name"] for channel in channels for sample in channel["samples"]}
    for process in signals:
        require_known(process, sorted(found), f"there is no template of the signal {process!r}")
    observations = []
    for channel in channels:
        name, expected = channel["name"], np.sum([sample["data"] for sample in channel["samples"]], axis=0)
        data = _values(by_channel[name][DATA]) if DATA in by_channel[name] else expected
        observations.append({"name": name, "data": data.tolist()})
    workspace = {
        "channels": channels,
        "observations": observations,
        "measurements": [{"name": "measurement", "config": {"poi": "mu", "parameters": []}}],
        "version": "1.0.0",
    }
    return read_workspace(workspace), axes


def _read_root(path: str | Path) -> dict[str, Any]:
    """All one-dimensional histograms of a file, by their names with folders."""
    if not Path(path).exists():
        raise InputError(f"{path} cannot be read: there is no such file")
    try:
        with need("uproot").open(path) as file:
            out = {name: file[name] for name in file.keys(cycle=False, filter_classname="TH1*")}
    except (OSError, ValueError) as err:
        raise InputError(f"{path} is no ROOT file that can be read: {err}") from err
    if not out:
        raise InputError(f"{path} holds no one-dimensional histogram")
    return out


def _nested(histograms: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Histograms by channel: of nested mappings, of folders in names, or of one channel."""
    out: dict[str, dict[str, Any]] = {}
    for name, value in histograms.items():
        if isinstance(value, Mapping):
            out.setdefault(str(name), {}).update(value)
        else:
            channel, _, process = str(name).rpartition("/")
            out.setdefault(channel or "channel", {})[process] = value
    return out


def _samples(channel: str, histograms: Mapping[str, Any], signals: list[str], variation: str) -> list[dict[str, Any]]:
    side = next((word for word in _OTHER_SIDE if word in variation), None)
    if side is None or "{process}" not in variation or "{systematic}" not in variation:
        raise InputError(
            f"variation must hold {{process}}, {{systematic}} and Up, as in {VARIATION!r}, got {variation!r}"
        )
    words = {True: variation, False: variation.replace(side, _OTHER_SIDE[side])}
    names = [name for name in histograms if name != DATA]
    varied = {name for name in names if any(_pattern(word, ".+").fullmatch(name) for word in words.values())}
    processes = [name for name in names if name not in varied]
    for process, name in itertools.permutations(processes, 2):
        if name.startswith(process) and _SIDE.search(name.removeprefix(process)):
            raise InputError(
                f"{channel}/{name} would be a process, but its name says that it is a variation of {process!r}; "
                f"give its pattern as variation= (--variation), which is {variation!r}, or rename it"
            )
    sizes = {_values(histograms[name]).size for name in names}
    if len(sizes) > 1:
        raise InputError(
            f"the histograms of channel {channel!r} have {min(sizes)} to {max(sizes)} bins, not one number"
        )
    # The longest process that fits comes first: ttbar_bb_JESUp is JES of ttbar_bb, not bb_JES of ttbar.
    known = "|".join(map(re.escape, sorted(processes, key=len, reverse=True)))
    shifts: dict[str, dict[str, dict[bool, str]]] = {process: {} for process in processes}
    for name in varied:
        found = {up: match for up, word in words.items() if (match := _pattern(word, known).fullmatch(name))}
        if not found:
            raise InputError(f"{channel}/{name} looks like a variation, but its process has no nominal template")
        up, match = next(iter(found.items()))
        shifts[match["process"]].setdefault(match["systematic"], {})[up] = name
    out = []
    for process in processes:
        nominal, variances = _values(histograms[process]), histograms[process].variances()
        modifiers: list[dict[str, Any]] = []
        if process in signals:
            modifiers.append({"name": "mu", "type": "normfactor", "data": None})
        if variances is not None and process not in signals:
            modifiers.append({"name": f"staterror_{channel}", "type": "staterror", "data": np.sqrt(variances).tolist()})
        for systematic, sides in shifts[process].items():
            if len(sides) < 2:
                raise InputError(f"{channel}/{next(iter(sides.values()))} has no template of the other side")
            data = {key: _values(histograms[sides[up]]).tolist() for key, up in (("hi_data", True), ("lo_data", False))}
            modifiers.append({"name": systematic, "type": "histosys", "data": data})
        out.append({"name": process, "data": nominal.tolist(), "modifiers": modifiers})
    if not out:
        raise InputError(f"channel {channel!r} holds no nominal template")
    return out


def _pattern(variation: str, processes: str) -> re.Pattern[str]:
    """Names of one side of the variations of some processes, which are a pattern themselves."""
    text = re.escape(variation).replace(r"\{systematic\}", "(?P<systematic>.+)")
    return re.compile(text.replace(r"\{process\}", f"(?P<process>{processes})"))


def _values(histogram: Any) -> Array:
    try:
        values = np.asarray(histogram.values(), dtype=np.float64)
    except (AttributeError, TypeError, ValueError) as err:
        raise InputError(
            f"templates must be histograms with values(), variances() and axes (UHI), got {type(histogram).__name__}"
        ) from err
    if values.ndim != 1:
        raise InputError(f"templates must have one axis, got a histogram with {values.ndim}")
    return values
