"""Random HistFactory workspaces with modifiers of all kinds."""

from __future__ import annotations

from typing import Any

import numpy as np

from fivesigma._types import Array


def random_workspace(
    seed: int, sizes: tuple[int, ...] = (8, 5), *, local: bool = True, n_shapes: int = 2, scale: float = 1.0
) -> dict[str, Any]:
    """A signal and two backgrounds in some channels; histosys, normsys, normfactor, lumi and, if asked, errors."""
    rng = np.random.default_rng(seed)
    channels, observations = [], []
    for c, size in enumerate(sizes):
        x = np.linspace(-1, 1, size)
        shapes = {"signal": 12 * np.exp(2 * x), "top": 400 * np.exp(-x), "wjets": 200 * (1.2 + 0.5 * x)}
        samples = []
        for name, shape in shapes.items():
            data = scale * shape * rng.gamma(30, size=size) / 10 / size
            modifiers = _modifiers(rng, name, data, c, n_shapes) + (_errors(rng, name, data, c) if local else [])
            samples.append({"name": name, "data": data.tolist(), "modifiers": modifiers})
        channels.append({"name": f"SR{c}", "samples": samples})
        observations.append({"name": f"SR{c}", "data": rng.poisson(100, size).tolist()})
    parameters = [
        {"name": "lumi", "auxdata": [1.0], "sigmas": [0.03], "bounds": [[0.5, 1.5]], "inits": [1.0]},
        {"name": "mu", "inits": [1.0], "bounds": [[0.0, 10.0]]},
        {"name": "k_top", "inits": [1.0], "bounds": [[0.0, 5.0]]},
    ]
    return {
        "channels": channels,
        "observations": observations,
        "measurements": [{"name": "m", "config": {"poi": "mu", "parameters": parameters}}],
        "version": "1.0.0",
    }


def _modifiers(rng: np.random.Generator, name: str, data: Array, c: int, n_shapes: int) -> list[dict[str, Any]]:
    x = np.linspace(-1, 1, data.size)
    out: list[dict[str, Any]] = [{"name": "lumi", "type": "lumi", "data": None}]
    if name == "signal":
        out.append({"name": "mu", "type": "normfactor", "data": None})
        out.append({"name": "theory", "type": "normsys", "data": {"hi": 1.1, "lo": 0.93}})
    if name == "top":
        out.append({"name": "k_top", "type": "normfactor", "data": None})
    if name == "wjets":
        out.append({"name": "w_norm", "type": "normsys", "data": {"hi": 1.15, "lo": 0.9}})
    for k in range(n_shapes):
        shape = np.stack([x, x * x, np.ones_like(x)])[(k + c) % 3] * rng.normal(0, 0.08)
        high, low = data * (1 + shape), data * (1 - shape * rng.uniform(0.7, 1.2))
        if name != "signal" or k == 0:
            sides = {"hi_data": high.tolist(), "lo_data": low.tolist()}
            out.append({"name": f"shape{k}", "type": "histosys", "data": sides})
    return out


def _errors(rng: np.random.Generator, name: str, data: Array, c: int) -> list[dict[str, Any]]:
    """Errors of the simulation of the backgrounds, and a bin-by-bin uncertainty of one."""
    staterror, shapesys = (data * rng.uniform(0.02, most, data.size) for most in (0.15, 0.1))
    out = [{"name": f"staterror_SR{c}", "type": "staterror", "data": staterror.tolist()}]
    out += [{"name": f"fakes_SR{c}", "type": "shapesys", "data": shapesys.tolist()}] if name == "wjets" else []
    return out if name != "signal" else []
