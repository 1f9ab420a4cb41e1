"""Categories as a HistFactory workspace, so that pyhf and cabinetry can take over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._tools.files import written_whole
from fivesigma._types import Array
from fivesigma.categories import Categories
from fivesigma.errors import InputError
from fivesigma.likelihood.shifts import YieldShifts
from fivesigma.yields import check_counts

__all__ = ["discovery_significance", "split_difference", "to_pyhf", "write_workspace"]

POI = "mu"
SHAPES = ("split", "histosys")
_TOLERANCE = 1e-12
_SAME_SHAPE = 1e-9  # relative difference below which a variation is a normalisation


def to_pyhf(
    categories: Categories,
    systematics: YieldShifts | None = None,
    *,
    shapes: str = "split",
    staterror: bool = True,
    signal_staterror: bool = False,
    channel: str = "categories",
    data: Any = None,
) -> dict[str, Any]:
    """Describe categories as a HistFactory workspace: one channel with one bin per category.

    Parameters
    ----------
    categories : Categories
        Filled with the events to quote, as `Categories.evaluate` does.
    systematics : YieldShifts, optional
        Of the same edges and processes; by default the `shifts` of the categories. Each name is one nuisance parameter,
        shared by all processes and categories.
    shapes : {"split", "histosys"}, default="split"
        ``"split"``: ``normsys`` for the change of a process's total and, where categories change differently,
        ``histosys`` for the rest. ``"histosys"``: all of it as ``histosys``, which is the significance that
        `Categories` quote. `split_difference` says how far apart the two are.
    staterror : bool, default=True
        Whether to add the statistical uncertainty of the simulated background.
    signal_staterror : bool, default=False
        Whether the signal has it too. pyhf gives all processes of a category one factor, so that in a pure category the
        many events of a signal hide the uncertainty of its background.
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
    >>> from fivesigma.categories.workspace import to_pyhf
    >>> y = np.arange(400) % 2
    >>> two = categorise(np.arange(400) + 200.0 * y, y, np.where(y == 1, 0.1, 1.0), 2)
    >>> workspace = to_pyhf(two, staterror=False)
    >>> [sample["name"] for sample in workspace["channels"][0]["samples"]]
    ['signal', 'background']
    """
    if shapes not in SHAPES:
        raise InputError(f"shapes must be one of {', '.join(map(repr, SHAPES))}, got {shapes!r}")
    systematics = categories.shifts if systematics is None else systematics
    if not (categories.b > 0).all():
        worst = int(categories.b.argmin())
        raise InputError(f"category {worst} has b = {categories.b[worst]:g}; a fit needs background in every category")
    if systematics is not None and not (
        np.array_equal(systematics.edges, categories.edges)
        and systematics.nominal.keys() == categories.by_process.keys()
    ):
        raise InputError("systematics have other edges or processes than the categories; fill both alike")
    observed = categories.s + categories.b if data is None else check_counts(data, len(categories))
    samples = []
    for name, rows in categories.by_process.items():
        modifiers: list[dict[str, Any]] = []
        if rows.signal:
            modifiers.append({"name": POI, "type": "normfactor", "data": None})
        if staterror and (signal_staterror or not rows.signal):
            errors = np.sqrt(rows.sum_of_squares).tolist()
            modifiers.append({"name": f"staterror_{channel}", "type": "staterror", "data": errors})
        if systematics is not None:
            nominal = systematics.nominal[name].sum_of_weights
            for systematic in systematics.up:
                up, down = systematics.up[systematic][name], systematics.down[systematic][name]
                make = _modifiers if shapes == "split" else _histosys
                modifiers += make(systematic, rows.sum_of_weights, nominal, up, down)
        samples.append({"name": name, "data": rows.sum_of_weights.tolist(), "modifiers": modifiers})
    config = {"poi": POI, "parameters": [{"name": POI, "inits": [1.0], "bounds": [[0.0, 10.0]]}]}
    return {
        "channels": [{"name": channel, "samples": samples}],
        "observations": [{"name": channel, "data": observed.tolist()}],
        "measurements": [{"name": "discovery", "config": config}],
        "version": "1.0.0",
    }


def split_difference(
    categories: Categories, systematics: YieldShifts | None = None, *, staterror: bool = True
) -> float:
    """How far pyhf's significance of the split form is above that of ``shapes="histosys"``.

    Splitting a variation in two changes how it is interpolated: totals exponentially, shapes linearly.

    Parameters
    ----------
    categories, systematics, staterror
        As in `to_pyhf`.
    """
    split, whole = (
        discovery_significance(to_pyhf(categories, systematics, shapes=shapes, staterror=staterror))
        for shapes in SHAPES
    )
    return split - whole


def _histosys(name: str, template: Array, nominal: Array, up: Array, down: Array) -> list[dict[str, Any]]:
    """One variation of one process as a whole, carried over in proportion as `_modifiers` does."""
    ratios = [np.divide(side, nominal, out=np.ones_like(nominal), where=nominal != 0) for side in (up, down)]
    high, low = (
        side if np.array_equal(template, nominal) else ratio * template
        for side, ratio in zip((up, down), ratios, strict=True)
    )
    if np.array_equal(high, template) and np.array_equal(low, template):
        return []
    return [{"name": name, "type": "histosys", "data": {"hi_data": high.tolist(), "lo_data": low.tolist()}}]


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


def discovery_significance(workspace: dict[str, Any], pulls: Mapping[str, float] | None = None) -> float:
    """Let pyhf compute the expected discovery significance: the root of q0 on the expected data.

    Parameters
    ----------
    workspace : dict
        From `to_pyhf`, or any other with one measurement.
    pulls : mapping of str to float, optional
        Nuisance parameters from which a second fit starts, such as `Categories.pulls`. Shifts that are not opposite up
        and down may give the likelihood several minima, of which the lowest counts.
    """
    pyhf = need("pyhf")
    model = pyhf.Workspace(workspace).model()
    start = model.config.suggested_init()
    start[model.config.poi_index] = 1.0
    expected = model.expected_data(start)
    other = list(start)
    for name, pull in (pulls or {}).items():
        other[model.config.par_slice(name).start] = pull
    bounds, fixed = model.config.suggested_bounds(), model.config.suggested_fixed()
    # The expected data fit best where they come from, so that only the fit without signal is needed.
    fitted = [
        pyhf.infer.mle.fixed_poi_fit(
            0.0, expected, model, init, bounds, fixed, return_fitted_val=True, tolerance=_TOLERANCE
        )[1]
        for init in ([start, other] if pulls else [start])
    ]
    at_start = pyhf.infer.mle.twice_nll(np.asarray(start), expected, model)
    return float(np.sqrt(max(0.0, float(np.min(fitted)) - float(np.squeeze(at_start)))))
