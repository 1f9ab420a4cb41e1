"""Categories as a HistFactory workspace, so that pyhf and cabinetry can take over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._extras import need
from fivesigma._files import written_whole
from fivesigma._types import Array
from fivesigma.categories import Categories
from fivesigma.errors import InputError
from fivesigma.systematics import YieldShifts

__all__ = ["discovery_significance", "to_pyhf", "write_workspace"]

POI = "mu"
_SAME_SHAPE = 1e-9  # relative difference below which a variation is a normalisation


def to_pyhf(
    categories: Categories,
    systematics: YieldShifts | None = None,
    *,
    staterror: bool = True,
    channel: str = "categories",
    data: Any = None,
) -> dict[str, Any]:
    """Describe categories as a HistFactory workspace: one channel with one bin per category.

    Parameters
    ----------
    categories : Categories
        Filled with the events to quote, as `Categories.evaluate` does.
    systematics : YieldShifts, optional
        Of the same edges and processes. Each name is one nuisance parameter, shared by all processes and categories:
        ``normsys`` for the change of a process's total and, where categories change differently, ``histosys`` for the
        rest.
    staterror : bool, default=True
        Whether to add the statistical uncertainty of the simulation.
    channel : str, default="categories"
        Name of the channel.
    data : array-like of shape (n_categories,), optional
        Observed events; by default the expected s + b.

    Returns
    -------
    dict
        Valid against pyhf's schema ``workspace.json``, version 1.0.0. b_reg is no part of it.

    Examples
    --------
    >>> import numpy as np
    >>> from fivesigma.categories import categorise
    >>> from fivesigma.workspace import to_pyhf
    >>> y = np.arange(400) % 2
    >>> two = categorise(np.arange(400) + 200.0 * y, y, np.where(y == 1, 0.1, 1.0), 2)
    >>> workspace = to_pyhf(two, staterror=False)
    >>> [sample["name"] for sample in workspace["channels"][0]["samples"]]
    ['signal', 'background']
    """
    if not (categories.b > 0).all():
        worst = int(categories.b.argmin())
        raise InputError(f"category {worst} has b = {categories.b[worst]:g}; a fit needs background in every category")
    if systematics is not None and not (
        np.array_equal(systematics.edges, categories.edges)
        and systematics.nominal.keys() == categories.by_process.keys()
    ):
        raise InputError("systematics have other edges or processes than the categories; fill both alike")
    observed = categories.s + categories.b if data is None else np.asarray(data, dtype=np.float64)
    if observed.shape != categories.s.shape:
        raise InputError(f"data has shape {observed.shape} for {len(categories)} categories")
    samples = []
    for name, rows in categories.by_process.items():
        modifiers: list[dict[str, Any]] = []
        if rows.signal:
            modifiers.append({"name": POI, "type": "normfactor", "data": None})
        if staterror:
            errors = np.sqrt(rows.sum_of_squares).tolist()
            modifiers.append({"name": f"staterror_{channel}", "type": "staterror", "data": errors})
        if systematics is not None:
            nominal = systematics.nominal[name].sum_of_weights
            for systematic in systematics.up:
                up, down = systematics.up[systematic][name], systematics.down[systematic][name]
                modifiers += _modifiers(systematic, rows.sum_of_weights, nominal, up, down)
        samples.append({"name": name, "data": rows.sum_of_weights.tolist(), "modifiers": modifiers})
    config = {"poi": POI, "parameters": [{"name": POI, "inits": [1.0], "bounds": [[0.0, 10.0]]}]}
    return {
        "channels": [{"name": channel, "samples": samples}],
        "observations": [{"name": channel, "data": observed.tolist()}],
        "measurements": [{"name": "discovery", "config": config}],
        "version": "1.0.0",
    }


def _modifiers(name: str, template: Array, nominal: Array, up: Array, down: Array) -> list[dict[str, Any]]:
    """One variation of one process: a change of the total, and a change of the shape if there is one.

    The relative change is carried over from `nominal` to `template`, which may come from other events.
    """
    ratios = [np.divide(side, nominal, out=np.ones_like(nominal), where=nominal != 0) for side in (up, down)]
    high, low = (float((ratio * template).sum() / template.sum()) if template.sum() > 0 else 1.0 for ratio in ratios)
    if not (high > 0 and low > 0):  # HistFactory interpolates totals exponentially
        high = low = 1.0
    shape_up, shape_down = (ratio * template / total for ratio, total in zip(ratios, (high, low), strict=True))
    out: list[dict[str, Any]] = []
    if (high, low) != (1.0, 1.0):
        out.append({"name": name, "type": "normsys", "data": {"hi": high, "lo": low}})
    if not all(np.allclose(shape, template, rtol=_SAME_SHAPE, atol=0.0) for shape in (shape_up, shape_down)):
        shapes = {"hi_data": shape_up.tolist(), "lo_data": shape_down.tolist()}
        out.append({"name": name, "type": "histosys", "data": shapes})
    return out


def write_workspace(workspace: dict[str, Any], path: str | Path) -> Path:
    """Write a workspace as JSON; the file appears whole or not at all.

    Parameters
    ----------
    workspace : dict
        From `to_pyhf`.
    path : str or Path
        File to write.
    """
    path = Path(path)
    with written_whole(path) as beside:
        beside.write_text(json.dumps(workspace, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return path


def discovery_significance(workspace: dict[str, Any]) -> float:
    """Let pyhf compute the expected discovery significance: the root of q0 on the expected data.

    Parameters
    ----------
    workspace : dict
        From `to_pyhf`, or any other with one measurement.
    """
    pyhf = need("pyhf")
    model = pyhf.Workspace(workspace).model()
    start = model.config.suggested_init()
    start[model.config.poi_index] = 1.0
    expected = model.expected_data(start)
    settings = (start, model.config.suggested_bounds(), model.config.suggested_fixed())
    q0 = pyhf.infer.test_statistics.q0(0.0, expected, model, *settings)
    return float(np.sqrt(max(0.0, float(q0))))
