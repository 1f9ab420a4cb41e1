"""The workspace: cabinetry builds it from the histograms that we filled, and fits it."""

from __future__ import annotations

import copy
import logging
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._types import Array
from fivesigma.analysis.configuration import DIRECTIONS, Analysis, acts, holds, listed, modifier_of, name_of_data
from fivesigma.analysis.histograms import Histograms
from fivesigma.categories.workspace import discovery_significance
from fivesigma.errors import InputError, shortened

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
        pairs = [*self.regions.items(), *self.samples.items(), *self.systematics.items()]
        others = [f"{old!r} is {new!r}" for old, new in pairs if old != new]
        return [f"in cabinetry.yml and workspace.json {', '.join(others)}"] if others else []

    def of_histograms(self, histograms: Histograms) -> Histograms:
        """Histograms by these names."""
        return {
            (self.regions[region], self.samples[sample], name and self.systematics[name], direction): filled
            for (region, sample, name, direction), filled in histograms.items()
        }


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
        config["Samples"].append({"Name": name_of_data(config["Samples"]), "Tree": "expected", "Data": True})
    names = SafeNames.of(config)
    for region in config["Regions"]:
        region["Binning"] = binning[region["Name"]].tolist()
        if region["Name"] in analysis.settings.region:
            region["Variable"] = analysis.score_of(region["Name"])
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


def without_regions(content: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """A configuration or a workspace without regions that only validate the fit."""
    return {
        key: [item for item in value if item.get("Name", item.get("name")) not in names]
        if key in ("Regions", "channels", "observations")
        else value
        for key, value in content.items()
    }


def names_for_combine(value: Any) -> Any:
    """A workspace with names that can stand in a datacard: underscores in place of hyphens."""
    if isinstance(value, list):
        return [names_for_combine(item) for item in value]
    if not isinstance(value, dict):
        return value
    named = {key: value[key].replace("-", "_") for key in ("name", "poi") if key in value}
    return {key: named.get(key, names_for_combine(item)) for key, item in value.items()}


def config_text(config: dict[str, Any]) -> str:
    """A configuration as YAML."""
    return str(need("yaml").safe_dump(config, sort_keys=False, allow_unicode=True, width=120))


def build_workspace(config: dict[str, Any], histograms: Histograms, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Let cabinetry write the histograms that we filled to its folder, and make the workspace of them; what it said."""
    cabinetry = need("cabinetry")
    here = copy.deepcopy(config)  # the folder of this process is not ours to change
    here["General"]["HistogramFolder"] = str(folder.resolve())
    router = cabinetry.route.Router()

    @router.register_template_builder()  # type: ignore[untyped-decorator]  # for all templates
    def filled(
        region: dict[str, Any], sample: dict[str, Any], systematic: dict[str, Any], direction: str | None
    ) -> Any:
        name = None if direction is None else systematic["Name"]
        found = histograms[region["Name"], sample["Name"], name, direction]
        return cabinetry.histo.Histogram.from_arrays(region["Binning"], found.yields, np.sqrt(found.squares))

    for old in folder.glob("*.npz"):
        old.unlink()
    with listening() as said:
        try:
            cabinetry.configuration.validate(here)
            cabinetry.templates.build(here, router=router)
            cabinetry.templates.postprocess(here)
            workspace = cabinetry.workspace.build(here)
        except Exception as err:  # of cabinetry, pyhf or jsonschema
            why = shortened(" ".join(str(err).split()), 300)
            raise InputError(f"cabinetry cannot build the workspace ({type(err).__name__}: {why})") from err
    check_workspace(workspace, config, histograms)
    others = [text for text in said if "empty bins" not in text and "stat. unc." not in text]  # of which we speak
    return workspace, [f"cabinetry: {text}" for text in dict.fromkeys(others)]


def check_workspace(workspace: dict[str, Any], config: Mapping[str, Any], histograms: Histograms) -> None:
    """Refuse a workspace that is not what we filled: every sample, variation, statistical error and observation.

    cabinetry goes by way of files, whose names may clash, so that nothing is quoted before all bins are compared.
    """
    ours, theirs = _expected_content(config, histograms), _content(workspace)
    for what in dict.fromkeys((*ours, *theirs)):
        one, other = ours.get(what), theirs.get(what)
        alike = one is None or other is None or np.allclose(other if one.size > 1 else other.sum(), one, 1e-9, 1e-12)
        if what in ours and what in theirs and alike:
            continue
        raise InputError(
            f"the workspace is not what was filled: {' '.join(what)} is {shortened(str(other))} where "
            f"{shortened(str(one))} was filled; please report this"
        )


Content = dict[tuple[str, ...], Array | None]  # by region, sample, kind and name; None where there are no numbers


def _content(workspace: Mapping[str, Any]) -> Content:
    """Numbers of a workspace; norm and shape of a systematic together, as the yields of its variation."""
    out: Content = {(item["name"], "data"): np.array(item["data"]) for item in workspace["observations"]}
    for channel in workspace["channels"]:
        for sample in channel["samples"]:
            place, nominal = (channel["name"], sample["name"]), np.array(sample["data"])
            out[place] = nominal
            modifiers = {(m["type"], m["name"]): m["data"] for m in sample["modifiers"]}
            for (kind, name), data in modifiers.items():
                if kind in ("normsys", "histosys"):
                    for direction, side in zip(DIRECTIONS, ("hi", "lo"), strict=True):
                        factor = modifiers.get(("normsys", name), {}).get(side, 1.0)
                        shape = modifiers.get(("histosys", name), {}).get(f"{side}_data", nominal)
                        out[*place, name, direction] = factor * np.array(shape)
                elif kind == "staterror":
                    out[*place, kind] = np.array(data)
                else:
                    out[*place, kind, name] = None
    return out


def _expected_content(config: Mapping[str, Any], histograms: Histograms) -> Content:
    """The same from our histograms; of smoothed variations the total alone, of mirrored ones nothing."""
    out: Content = {}
    data = name_of_data(config["Samples"])
    for region, sample in product(config["Regions"], config["Samples"]):
        place = region["Name"], sample["Name"]
        if sample["Name"] == data:
            out[region["Name"], "data"] = histograms[*place, None, None].yields
            continue
        if not holds(region, sample):
            continue
        nominal = histograms[*place, None, None]
        out[place] = nominal.yields
        if not sample.get("DisableStaterror", False):
            out[*place, "staterror"] = np.sqrt(nominal.squares)
        for factor in config["NormFactors"]:
            if acts(factor, region, sample):
                out[*place, "normfactor", factor["Name"]] = None
        for systematic in [s for s in config.get("Systematics") or [] if acts(s, region, sample)]:
            smoothing = systematic.get("Smoothing")
            for direction in DIRECTIONS:
                varied = histograms.get((*place, systematic["Name"], direction))
                values = None if varied is None else varied.yields  # cabinetry mirrors norm and shape by themselves
                if systematic["Type"] == "Normalization":
                    values = nominal.yields * (1 + systematic[direction]["Normalization"])
                elif values is not None and smoothing is not None and acts(smoothing, region, sample):
                    values = values.sum(keepdims=True)
                out[*place, modifier_of(systematic), direction] = values
    return out


def fit_workspace(workspace: dict[str, Any], goal: str) -> dict[str, float]:
    """Signal strength with its uncertainty, and the expected significance; for a measurement the expected uncertainty.

    Raises
    ------
    InputError
        If the fit fails, with its cause.
    """
    cabinetry = need("cabinetry")
    with listening() as said:
        try:
            out = {"significance": discovery_significance(workspace)}
            model, data = cabinetry.model_utils.model_and_data(workspace)
            found, at = cabinetry.fit.fit(model, data), model.config.poi_index
            out |= {"mu": float(found.bestfit[at]), "error": float(found.uncertainty[at])}
            if goal == "measurement":
                asimov = cabinetry.model_utils.model_and_data(workspace, asimov=True)
                out["uncertainty"] = float(cabinetry.fit.fit(*asimov).uncertainty[at])
        except Exception as err:  # of pyhf, iminuit or scipy
            heard = [text for text in said if "fit" in text or "minim" in text]
            why = shortened(" ".join([type(err).__name__, *str(err).split(), *heard[:1]]), 300)
            raise InputError(
                f"the fit of workspace.json failed ({why}); look for bins without background and for parameters "
                "that no region constrains"
            ) from err
    odd = [f"{name} = {value}" for name, value in out.items() if not np.isfinite(value)]
    if odd:
        raise InputError(f"the fit of workspace.json gave {', '.join(odd)}; look for empty bins")
    return out


@contextmanager
def listening() -> Iterator[list[str]]:
    """Collect warnings of cabinetry and pyhf in place of printing them, and give pyhf its optimizer back.

    cabinetry sets its own, which writes to the terminal by itself, and leaves it when a fit fails.
    """
    pyhf, said = need("pyhf"), list[str]()
    backend, minuit = pyhf.get_backend(), need("iminuit").Minuit
    level, minuit.print_level = minuit.print_level, property(lambda _: 0, lambda *_: None)
    loud = level.fget(None)  # the level of all fits, which cabinetry raises
    level.fset(None, 0)
    handler, loggers = logging.Handler(logging.WARNING), [logging.getLogger(name) for name in ("cabinetry", "pyhf")]
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield said
    finally:
        minuit.print_level = level
        level.fset(None, loud)
        pyhf.set_backend(*backend)
        for logger, propagate in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagate
