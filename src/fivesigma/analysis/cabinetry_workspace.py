"""The workspace: cabinetry builds it from the histograms that we filled, and each number is compared with them."""

from __future__ import annotations

import copy
import json
import logging
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._tools.files import written_whole
from fivesigma._types import Array
from fivesigma.analysis.analysis_file import DIRECTIONS, Analysis, acts, holds, listed, name_of_data
from fivesigma.analysis.histograms import Histograms
from fivesigma.analysis.templates import SCORE, Template
from fivesigma.categories.workspace import discovery_significance
from fivesigma.errors import InputError, shortened

__all__ = ["SafeNames", "build_workspace", "cabinetry_config", "check_workspace", "fit_workspace", "write_config"]

HISTOGRAMS = "histograms"
_LONGEST = 60  # characters of a name within the name of a file


class SafeNames:
    """Names of regions, samples and systematics as cabinetry can use them in the names of files.

    cabinetry joins them by ``_``, turns blanks to ``-`` and drops what follows the last dot, so that files may
    overwrite each other. Here they hold letters, digits, ``_`` and ``-`` alone, and no two histograms share a file.

    Examples
    --------
    >>> names = SafeNames(["SR", "CR.1"], ["V H", "V-H"], [])
    >>> names.regions["CR.1"], names.samples
    ('CR-1', {'V H': 'V-H', 'V-H': 'V-H-2'})
    """

    def __init__(self, regions: Sequence[str], samples: Sequence[str], systematics: Sequence[str]) -> None:
        for allowed in ("A-Za-z0-9_-", "A-Za-z0-9-"):  # without _ the joined names can always be told apart
            self.regions, self.samples, self.systematics = (
                _safe(names, allowed) for names in (regions, samples, systematics)
            )
            if self._differ():
                return

    def _differ(self) -> bool:
        nominal = ["_".join(pair) for pair in product(self.regions.values(), self.samples.values())]
        varied = ["_".join(parts) for parts in product(nominal, self.systematics.values(), DIRECTIONS)]
        files = [f"{name}{ending}".casefold() for name in (*nominal, *varied) for ending in ("", "_modified")]
        return len(set(files)) == len(files)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> SafeNames:
        """Names for a configuration."""
        return cls(*([item["Name"] for item in config.get(key) or []] for key in ("Regions", "Samples", "Systematics")))

    def changed(self) -> list[str]:
        """A sentence for all names that differ."""
        pairs = [
            f"{old!r} is {new!r}"
            for names in (self.regions, self.samples, self.systematics)
            for old, new in names.items()
            if old != new
        ]
        return [f"in cabinetry.yml and workspace.json {', '.join(pairs)}"] if pairs else []


def _safe(names: Iterable[str], allowed: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(f"[^{allowed}]+", "-", name)[:_LONGEST].strip("-") or "x"
        taken = {other.casefold() for other in found.values()}
        numbered = (f"{plain}-{k}" for k in range(2, len(taken) + 3))
        found[name] = next(free for free in (plain, *numbered) if free.casefold() not in taken)
    return found


def cabinetry_config(analysis: Analysis, binning: Mapping[str, Array]) -> tuple[dict[str, Any], SafeNames]:
    """Return a configuration with which cabinetry makes the workspace in the folder of the analysis.

    It says as before where events are from; the histograms are those that we filled.
    """
    config = copy.deepcopy(analysis.config)
    config["General"]["HistogramFolder"] = f"{HISTOGRAMS}/"
    if analysis.data is None:
        taken = [sample["Name"] for sample in config["Samples"]]
        config["Samples"].append({"Name": name_of_data(taken), "Tree": "expected", "Data": True})
    names = SafeNames.of(config)
    for region in config["Regions"]:
        region["Binning"] = binning[region["Name"]].tolist()
        region.setdefault("Variable", SCORE)
        region["Name"] = names.regions[region["Name"]]
    for sample in config["Samples"]:
        sample["Name"] = names.samples[sample["Name"]]
        if sample.get("Data", False):
            sample.pop("Regions", None)  # the regions that it left out hold expected data
    for systematic in config.get("Systematics") or []:
        systematic["Name"] = names.systematics[systematic["Name"]]
    for fixed in config["General"].get("Fixed", []):
        fixed["Name"] = names.systematics.get(fixed["Name"], fixed["Name"])
    parts = [*config["Samples"], *config["NormFactors"], *(config.get("Systematics") or [])]
    parts += [part["Smoothing"] for part in parts if "Smoothing" in part]
    for part in parts:
        for key, known in (("Regions", names.regions), ("Samples", names.samples)):
            if part.get(key):
                part[key] = [known[name] for name in listed(part[key])]
    return config, names


def write_config(config: dict[str, Any], path: Path) -> Path:
    """Write a configuration as YAML; the file appears whole or not at all."""
    with written_whole(path) as beside:
        text = need("yaml").safe_dump(config, sort_keys=False, allow_unicode=True, width=120)
        beside.write_text(text, encoding="utf-8")
    return path


def build_workspace(
    config: dict[str, Any], names: SafeNames, histograms: Histograms, folder: Path
) -> tuple[dict[str, Any], list[str]]:
    """Let cabinetry write the histograms that we filled to its folder, and make the workspace of them.

    Returns
    -------
    workspace : dict
    said : list of str
        What cabinetry warned of.
    """
    cabinetry = need("cabinetry")
    here = copy.deepcopy(config)  # the folder of this process is not ours to change
    here["General"]["HistogramFolder"] = str(folder.resolve())
    regions, samples, systematics = (
        {new: old for old, new in known.items()} for known in (names.regions, names.samples, names.systematics)
    )
    router = cabinetry.route.Router()

    @router.register_template_builder()  # type: ignore[untyped-decorator]  # for all templates
    def filled(
        region: dict[str, Any], sample: dict[str, Any], systematic: dict[str, Any], direction: str | None
    ) -> Any:
        name = None if direction is None else systematics[systematic["Name"]]
        found = histograms[regions[region["Name"]], samples[sample["Name"]], name, direction]
        return cabinetry.histo.Histogram.from_arrays(region["Binning"], found.yields, np.sqrt(found.squares))

    for old in folder.glob("*.npz"):
        old.unlink()
    with _listening() as said:
        try:
            cabinetry.configuration.validate(here)
            cabinetry.templates.build(here, router=router)
            cabinetry.templates.postprocess(here)
            workspace = cabinetry.workspace.build(here)
        except Exception as err:  # of cabinetry, pyhf or jsonschema
            why = shortened(" ".join(str(err).split()), 300)
            raise InputError(f"cabinetry cannot build the workspace ({type(err).__name__}: {why})") from err
    return workspace, said


def check_workspace(workspace: dict[str, Any], analysis: Analysis, names: SafeNames, histograms: Histograms) -> None:
    """Refuse a workspace whose numbers are not those that we filled: every sample, variation, error and observation."""
    channels = {channel["name"]: channel["samples"] for channel in workspace["channels"]}
    observed = {item["name"]: item["data"] for item in workspace["observations"]}
    data = next(name for name in names.samples if name not in {sample["Name"] for sample in analysis.simulated})
    for region in analysis.regions:
        name = names.regions[region["Name"]]
        _same(observed[name], histograms[region["Name"], data, None, None].yields, f"the data of region {name!r}")
        samples = {sample["name"]: sample for sample in channels[name]}
        inside = [sample for sample in analysis.simulated if holds(region, sample)]
        if samples.keys() != {names.samples[sample["Name"]] for sample in inside}:
            raise InputError(f"region {name!r} of the workspace has other samples than the configuration")
        for sample in inside:
            found = samples[names.samples[sample["Name"]]]
            _check_sample(found, analysis, region, sample, names=names, histograms=histograms)


def _check_sample(
    found: dict[str, Any],
    analysis: Analysis,
    region: dict[str, Any],
    sample: dict[str, Any],
    *,
    names: SafeNames,
    histograms: Histograms,
) -> None:
    where = f"sample {sample['Name']!r} in region {region['Name']!r}"
    nominal = histograms[region["Name"], sample["Name"], None, None]
    modifiers = {(m["type"], m["name"]): m["data"] for m in found["modifiers"]}
    _same(found["data"], nominal.yields, where)
    expected = set()
    for (kind, name), values in modifiers.items():
        if kind == "staterror":
            _same(values, np.sqrt(nominal.squares), f"the error of {where}")
            expected.add((kind, name))
    if len(expected) == bool(sample.get("DisableStaterror", False)):
        raise InputError(f"the workspace has other statistical errors of {where} than the configuration")
    expected |= {("normfactor", f["Name"]) for f in analysis.config["NormFactors"] if acts(f, region, sample)}
    for systematic in analysis.systematics:
        if not acts(systematic, region, sample):
            continue
        name = systematic.get("ModifierName", names.systematics[systematic["Name"]])
        what = f"systematic {systematic['Name']!r} of {where}"
        expected.add(("normsys", name))
        if ("normsys", name) not in modifiers:
            raise InputError(f"the workspace lacks {what}")
        total = modifiers["normsys", name]
        if systematic["Type"] == "Normalization":
            given = [1 + systematic[direction]["Normalization"] for direction in DIRECTIONS]
            _same([total["hi"], total["lo"]], given, what)
            continue
        if len(nominal.yields) > 1:
            expected.add(("histosys", name))
        shapes = modifiers.get(("histosys", name), {"hi_data": found["data"], "lo_data": found["data"]})
        smoothed = _is_smoothed(systematic, region, sample)
        for direction, factor, side in zip(DIRECTIONS, ("hi", "lo"), ("hi_data", "lo_data"), strict=True):
            key = (region["Name"], sample["Name"], systematic["Name"], direction)
            if key not in histograms:  # mirrored: cabinetry mirrors norm and shape each by itself
                continue
            ours = histograms[key].yields
            _same([total[factor] * sum(nominal.yields)], [sum(ours)], f"the total of {what} {direction}")
            if not smoothed:
                _same(total[factor] * np.array(shapes[side]), ours, f"{what} {direction}")
    if expected != modifiers.keys():
        odd = sorted(name for _, name in expected.symmetric_difference(modifiers))
        raise InputError(f"the workspace has other parameters of {where} than the configuration: {', '.join(odd)}")


def _is_smoothed(systematic: Mapping[str, Any], region: Mapping[str, Any], sample: Mapping[str, Any]) -> bool:
    smoothing = systematic.get("Smoothing")
    return smoothing is not None and acts(smoothing, region, sample)


def _same(found: Any, ours: Any, what: str) -> None:
    if not np.allclose(found, ours, rtol=1e-9, atol=1e-12):
        raise InputError(
            f"the workspace is not what was filled: {what} is {shortened(str(list(found)))} where "
            f"{shortened(str(list(ours)))} was filled; please report this"
        )


def fit_workspace(workspace: dict[str, Any]) -> dict[str, float]:
    """Expected discovery significance of a workspace, and the signal strength with its uncertainty.

    Returns
    -------
    dict
        ``significance``, ``mu`` and ``error``.

    Raises
    ------
    InputError
        If the fit fails, with its cause.
    """
    cabinetry = need("cabinetry")
    with _listening() as said:
        try:
            significance = discovery_significance(workspace)
            model, data = cabinetry.model_utils.model_and_data(workspace)
            found = cabinetry.fit.fit(model, data)
        except Exception as err:  # of pyhf, iminuit or scipy
            heard = [text for text in said if "fit" in text or "minim" in text]
            why = shortened(" ".join([type(err).__name__, *str(err).split(), *heard[:1]]), 300)
            raise InputError(
                f"the fit of workspace.json failed ({why}); look for empty bins and for parameters that no region "
                "constrains"
            ) from err
    at = model.config.poi_index
    out = {"significance": significance, "mu": float(found.bestfit[at]), "error": float(found.uncertainty[at])}
    odd = [f"{name} = {value}" for name, value in out.items() if not np.isfinite(value)]
    if odd:
        raise InputError(f"the fit of workspace.json gave {', '.join(odd)}; look for empty bins")
    return out


class _Listener(logging.Handler):
    """Collects warnings."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self.said.append(record.getMessage())


@contextmanager
def _listening() -> Iterator[list[str]]:
    """Collect cabinetry's and pyhf's warnings in place of printing them."""
    handler, loggers = _Listener(), [logging.getLogger(name) for name in ("cabinetry", "pyhf")]
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield handler.said
    finally:
        for logger, propagate in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagate


def check_relative(templates: Sequence[Template], histograms: Histograms) -> None:
    """Refuse what cabinetry would divide by: a varied sample without a yield in the bins."""
    for template in templates:
        if template.systematic is None or template.key not in histograms:
            continue
        for key in ((*template.key[:2], None, None), template.key):
            total = histograms[key].yields.sum()
            if not total > 0:
                what = template.owner if key == template.key else f"sample {template.sample!r}"
                raise InputError(
                    f"{what} has a yield of {total:g} in the categories of region {template.region!r}, so that "
                    f"systematic {template.systematic!r} has no relative size there: leave it out with Samples or "
                    "Regions"
                )


def notes_on_bins(histograms: Histograms, said: Sequence[str]) -> list[str]:
    """Bins without events and with negative yields, one line for each region and sample; and what else was said."""
    notes = []
    for what, wrong in (("no yield", np.equal), ("a negative yield", np.less)):
        found: dict[tuple[str, str], set[int]] = {}
        n_templates: dict[tuple[str, str], int] = {}
        for (region, sample, _, _), filled in histograms.items():
            bins = np.flatnonzero(wrong(filled.yields, 0.0)).tolist()
            if bins:
                found.setdefault((region, sample), set()).update(bins)
                n_templates[region, sample] = n_templates.get((region, sample), 0) + 1
        for (region, sample), places in found.items():
            n, bins_text = n_templates[region, sample], ", ".join(map(str, sorted(places)))
            notes.append(
                f"{sample!r} has {what} in bin{'s' * (len(places) > 1)} {bins_text} of region {region!r}"
                f"{f' ({n} templates)' * (n > 1)}"
            )
    others = [text for text in said if "empty bins" not in text and "stat. unc." not in text]
    return [*notes, *(f"cabinetry: {text}" for text in dict.fromkeys(others))]


def write_workspace_file(workspace: dict[str, Any], path: Path) -> Path:
    """Write a workspace as cabinetry does; the file appears whole or not at all."""
    with written_whole(path) as beside:
        beside.write_text(json.dumps(workspace, sort_keys=True, indent=4), encoding="utf-8")
    return path
