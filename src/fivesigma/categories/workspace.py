"""HistFactory workspaces: made of categories, read and checked, written, and what pyhf says of them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._tools.files import write_text
from fivesigma._tools.summary import Shown
from fivesigma._types import Array
from fivesigma.categories.review import prune as prune_effects
from fivesigma.errors import InputError
from fivesigma.likelihood.shifts import YieldShifts
from fivesigma.yields import ProcessYields, check_counts, class_sums

BY_BIN = ("staterror", "shapesys")
_KINDS = ("histosys", "normsys", "normfactor", "lumi", *BY_BIN)
POI = "mu"
_TOLERANCE = 1e-12
_MANY = 60  # parameters
_WIDEST = 10.0  # scale up to which pyhf looks for a free normalisation, in units of what the total would need


Workspace = dict[str, Any]


class FilledCategories(Shown):
    """Categories of one score or of several, and what they keep of a sample by process."""

    by_process: Mapping[str, ProcessYields]

    def __len__(self) -> int:
        return self.b.size

    @cached_property
    def b(self) -> Array:
        """Background of each category: all processes that are no signal, without b_reg."""
        return class_sums(self.by_process, signal=False)[0]

    def to_hist(self) -> Any:
        """Yields and their variances as one `hist.Hist` (UHI) with the axes process and category."""
        hist = need("hist")
        process = hist.axis.StrCategory(list(self.by_process), name="process")
        category = hist.axis.Integer(0, len(self), name="category", underflow=False, overflow=False)
        out = hist.Hist(process, category, storage=hist.storage.Weight(), label="expected events")
        for i, rows in enumerate(self.by_process.values()):
            out.view()[i] = np.stack([rows.sum_of_weights, rows.sum_of_squares], axis=-1)
        return out

    def to_pyhf(self, **options: Any) -> dict[str, Any]:
        """Describe the categories as a HistFactory workspace; see `fivesigma.to_pyhf`."""
        return to_pyhf(self, **options)


def to_pyhf(
    categories: FilledCategories,
    systematics: YieldShifts | None = None,
    *,
    staterror: bool = True,
    signal_staterror: bool = False,
    channel: str = "categories",
    data: Any = None,
    prune: float | None = None,
) -> dict[str, Any]:
    """Describe categories as a HistFactory workspace: one channel with one bin per category.

    Parameters
    ----------
    categories : Categories or ScoreCategories
        Filled with the events to quote, as `evaluate` does. Several signals have a strength each, ``mu_<signal>``, and
        one measurement each, ``discovery of <signal>``, in which the other strengths float; `ScoreCategories.z` has
        them fixed to one.
    systematics : YieldShifts, optional
        Of the same edges and processes; by default the `shifts` of the categories. Each name is one nuisance parameter,
        shared by all processes and categories: a ``histosys``, so that yields move as in the significance that is
        quoted, or a ``normfactor`` for a free normalisation. A free variation becomes a sample of its own with a
        ``normfactor``, which needs up and down to be opposite.
    staterror : bool, default=True
        Whether to add the statistical uncertainty of the simulated background.
    signal_staterror : bool, default=False
        Whether the signal has it too. pyhf gives all processes of a category one factor, so that in a pure category the
        many events of a signal hide the uncertainty of its background.
    channel : str, default="categories"
        Name of the channel.
    data : array-like of shape (n_categories,), optional
        Observed events; by default the expected s + b.
    prune : float, optional
        Drop a systematic from the processes of which it changes no category by this share; `fivesigma.prune` also has a
        table of what it drops.

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
    signals = getattr(categories, "signals", None)
    strengths = {
        name: POI if signals is None else f"{POI}_{name}" for name, rows in categories.by_process.items() if rows.signal
    }
    systematics = getattr(categories, "shifts", None) if systematics is None else systematics
    if not (categories.b > 0).all():
        worst = int(categories.b.argmin())
        raise InputError(f"category {worst} has b = {categories.b[worst]:g}; a fit needs background in every category")
    if systematics is not None and not (
        np.array_equal(systematics.edges, getattr(categories, "edges", np.empty(0)))
        and systematics.nominal.keys() == categories.by_process.keys()
    ):
        raise InputError("systematics have other edges or processes than the categories; fill both alike")
    expected = np.sum([rows.sum_of_weights for rows in categories.by_process.values()], axis=0)
    observed = expected if data is None else check_counts(data, len(categories))
    samples: list[dict[str, Any]] = []
    parameters = [
        {"name": strength, "inits": [1.0], "bounds": [[0.0, 10.0]]} for strength in dict.fromkeys(strengths.values())
    ]
    for name, rows in categories.by_process.items():
        modifiers: list[dict[str, Any]] = []
        if rows.signal:
            modifiers.append({"name": strengths[name], "type": "normfactor", "data": None})
        if staterror and (signal_staterror or not rows.signal):
            errors = np.sqrt(rows.sum_of_squares).tolist()
            modifiers.append({"name": f"staterror_{channel}", "type": "staterror", "data": errors})
        sample = {"name": name, "data": rows.sum_of_weights.tolist(), "modifiers": modifiers}
        samples.append(sample)
        if systematics is not None:
            samples += _add_systematics(sample, systematics)
    for name, processes in () if systematics is None else systematics.free.items():
        scaled = sum(categories.by_process[key].sum_of_weights.sum() for key in processes)
        widest = _WIDEST * max(1.0, float(observed.sum()) / scaled if scaled > 0 else 1.0)
        least = 0.0 if processes else -widest
        parameters.append({"name": name, "inits": [1.0], "bounds": [[least, widest]]})
    workspace = {
        "channels": [{"name": channel, "samples": samples}],
        "observations": [{"name": channel, "data": observed.tolist()}],
        "measurements": [
            {
                "name": "discovery" if signals is None else f"discovery of {name}",
                "config": {"poi": strengths[name], "parameters": parameters},
            }
            for name in (list(strengths)[:1] if signals is None else signals)
        ],
        "version": "1.0.0",
    }
    return workspace if prune is None else prune_effects(workspace, prune).workspace


def _add_systematics(sample: dict[str, Any], systematics: YieldShifts) -> list[dict[str, Any]]:
    """Add modifiers to a process; what a free variation moves is returned as samples of their own.

    Relative changes are carried over from the nominal yields of the variations, which may be of other events.
    """
    name, template = sample["name"], np.array(sample["data"])
    nominal = systematics.nominal[name].sum_of_weights
    moved: dict[str, tuple[Array, Array]] = {}
    apart: dict[str, Array] = {}
    for systematic in systematics.up:
        processes = systematics.free.get(systematic)
        up, down = (
            side if np.array_equal(template, nominal)
            else template * np.divide(side, nominal, out=np.ones_like(nominal), where=nominal != 0)
            for side in (systematics.up[systematic][name], systematics.down[systematic][name])
        )  # fmt: skip
        if np.array_equal(up, template) and np.array_equal(down, template):
            continue
        if processes is None:
            moved[systematic] = up - template, down - template
        elif processes:
            sample["modifiers"].append({"name": systematic, "type": "normfactor", "data": None})
        elif np.allclose(up + down, 2 * template, rtol=1e-9, atol=0.0):
            # (template - shift) + scale * shift, so that the sum at a scale of one is the template.
            apart[systematic] = up - template
        else:
            raise InputError(
                f"systematic {systematic!r} is free and not opposite up and down for {name!r}; pyhf has no such "
                "modifier: give only the events up, or leave its constraint"
            )
    fixed = template - sum(apart.values(), start=np.zeros_like(template))
    sample["data"] = fixed.tolist()
    for systematic, (up, down) in moved.items():
        data = {"hi_data": (fixed + up).tolist(), "lo_data": (fixed + down).tolist()}
        sample["modifiers"].append({"name": systematic, "type": "histosys", "data": data})
    shared = [one for one in sample["modifiers"] if one["type"] == "normfactor"]
    # The error of the simulation stays with the template; all samples of a bin share its factor.
    shared += [one | {"data": [0.0] * template.size} for one in sample["modifiers"] if one["type"] == "staterror"]
    return [
        {
            "name": f"{name}_{free}",
            "data": shift.tolist(),
            "modifiers": [*shared, {"name": free, "type": "normfactor", "data": None}],
        }
        for free, shift in apart.items()
    ]


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
        known = [p["name"] for m in spec["measurements"] for p in m["config"]["parameters"] if "sigmas" in p]
        for modifier in (m for c in spec["channels"] for s in c["samples"] for m in s["modifiers"]):
            if measured and modifier["type"] == "lumi" and modifier["name"] not in known:
                raise InputError(
                    f"{modifier['name']!r} is of type lumi, and its measurement gives it no auxdata and sigmas"
                )
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
                    f"{what}: a shapefactor is free in each bin, so that merged bins would be another model, and a "
                    "datacard has none; replace it by a normfactor"
                )
            if kind not in _KINDS:
                raise InputError(f"{what} is no modifier of pyhf that can be used: {', '.join(_KINDS)}")
            if kind == "histosys":
                _numbers(data["hi_data"], size, what)
                _numbers(data["lo_data"], size, what)
            elif kind in BY_BIN:
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


def write_workspace(workspace: dict[str, Any], path: str | Path) -> Path:
    """Write a workspace as JSON; the file appears whole or not at all.

    Parameters
    ----------
    workspace : dict
        From `to_pyhf`.
    path : str or Path
        File to write.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from fivesigma import categorise, to_pyhf, write_workspace
    >>> y = np.arange(200) % 2
    >>> found = categorise(np.linspace(0, 1, 200), y, np.ones(200), 1, rule="peak")
    >>> with TemporaryDirectory() as folder:
    ...     write_workspace(to_pyhf(found), f"{folder}/workspace.json").name
    'workspace.json'
    """
    return write_text(Path(path), json.dumps(workspace, indent=2, allow_nan=False) + "\n")


def pyhf_model(workspace: Mapping[str, Any], measurement: str | None = None) -> Any:
    """Make the model of pyhf, or say why it does not."""
    pyhf = need("pyhf")
    try:
        with warnings.catch_warnings():  # its schema uses what jsonschema calls deprecated
            warnings.filterwarnings("ignore", message="jsonschema.RefResolver", category=DeprecationWarning)
            return pyhf.Workspace(workspace).model(measurement_name=measurement)
    except (pyhf.exceptions.InvalidSpecification, pyhf.exceptions.InvalidModifier, AssertionError, KeyError) as err:
        raise InputError(f"pyhf does not accept this workspace: {str(err).strip().splitlines()[0][:200]}") from err
    except pyhf.exceptions.InvalidMeasurement as err:
        there = ", ".join(repr(entry["name"]) for entry in workspace["measurements"])
        raise InputError(f"there is no measurement {measurement!r}; there are {there}") from err
    except pyhf.exceptions.InvalidModel as err:
        raise InputError(f"the parameter of interest is in no channel, so there is no signal: {err}") from err


def discovery_significance(
    workspace: dict[str, Any], pulls: Mapping[str, Any] | None = None, measurement: str | None = None
) -> float:
    """Let pyhf compute the expected discovery significance: the root of q0 on the expected data.

    Parameters
    ----------
    workspace : dict
        From `to_pyhf`, or any other.
    pulls : mapping of str to float or array, optional
        How far the nuisance parameters are from their expected values where a second fit starts, such as
        `Categories.pulls`. Shifts that are not opposite up and down may give the likelihood several minima, of which
        the lowest counts. With more than 60 parameters this is the only fit.
    measurement : str, optional
        Its name; the first by default.
    """
    pyhf = need("pyhf")
    model = pyhf_model(workspace, measurement)
    start = model.config.suggested_init()
    start[model.config.poi_index] = 1.0
    expected = model.expected_data(start)
    other = list(start)
    for name, pull in (pulls or {}).items():
        where = model.config.par_slice(name)
        other[where] = (np.asarray(other[where]) + pull).tolist()
    bounds, fixed = model.config.suggested_bounds(), model.config.suggested_fixed()
    # The expected data fit best where they come from, so that only the fit without signal is needed.
    fitted = []
    for init in [start] if not pulls else [start, other][len(start) > _MANY :]:
        fit = partial(pyhf.infer.mle.fixed_poi_fit, 0.0, expected, model, init, bounds, fixed, return_fitted_val=True)
        try:
            fitted.append(fit(tolerance=_TOLERANCE)[1])
        except pyhf.exceptions.FailedMinimization:  # of scipy, where Minuit may find a way
            tensors, optimizer = pyhf.get_backend()
            try:
                pyhf.set_backend(tensors, pyhf.optimize.minuit_optimizer())
                fitted.append(fit()[1])
            finally:
                pyhf.set_backend(tensors, optimizer)
    at_start = pyhf.infer.mle.twice_nll(np.asarray(start), expected, model)
    return float(np.sqrt(max(0.0, float(np.min(fitted)) - float(np.squeeze(at_start)))))
