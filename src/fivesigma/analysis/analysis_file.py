"""The analysis file: a cabinetry configuration with one block of ours, read and checked."""

from __future__ import annotations

import copy
import fnmatch
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any

from fivesigma._tools.extras import need
from fivesigma.analysis.configuration import (
    BLOCK,
    DIRECTIONS,
    Analysis,
    AnalysisSettings,
    acts,
    holds,
    listed,
    modifier_of,
    name_of_data,
    numbers_in,
)
from fivesigma.analysis.templates import found_systematics
from fivesigma.analysis.yaml_file import check_plain, read_yaml
from fivesigma.errors import InputError, did_you_mean, shortened

__all__ = ["read_analysis"]

# Keys of cabinetry whose values are numbers, which YAML may take for text, as it does with 1.2e6.
_NUMBERS = ("Binning", "Bounds", "Nominal", "Normalization", "Value")


def read_analysis(config: str | os.PathLike[str] | Mapping[str, Any]) -> Analysis:
    """Read and check an analysis file, or the same as a mapping."""
    where, content = "the configuration", config
    if not isinstance(config, Mapping):
        where, content = str(config), read_yaml(Path(config))
    if not isinstance(content, Mapping):
        raise InputError(f"{where} must be a mapping of keys to values, as cabinetry reads it")
    rest = copy.deepcopy(dict(content))
    check_plain(rest)
    rest = _with_numbers(rest)
    block = rest.pop(BLOCK, None)
    if block is None:
        raise InputError(f"{where} has no block {BLOCK!r}{did_you_mean(BLOCK, map(str, rest))}")
    _let_cabinetry_check(rest, where)
    settings = AnalysisSettings.read(block)
    if settings.patterns:
        rest["Systematics"] = [*(rest.get("Systematics") or []), *found_systematics(Analysis(rest, settings))]
        _let_cabinetry_check(rest, where)
    names = [region["Name"] for region in rest["Regions"]]
    validation = dict.fromkeys(name for text in settings.validation for name in fnmatch.filter(names, text) or [text])
    analysis = Analysis(rest, replace(settings, validation=tuple(validation)))
    _check_names(analysis)
    _check_regions(analysis)
    _check_samples(analysis)
    if analysis.settings.model is None:
        uncertain = any(
            acts(s, region, x) for s in analysis.varied for region in analysis.chosen for x in rest["Samples"]
        )
        model = "profiled" if uncertain or any(map(analysis.free_factors, analysis.chosen)) else "auto"
        analysis = Analysis(rest, replace(analysis.settings, model=model))
    _check_cross_sections(analysis)
    _check_systematics(analysis)
    return analysis


def _with_numbers(value: Any) -> Any:
    """Text as numbers where cabinetry wants numbers."""
    if isinstance(value, list):
        return [_with_numbers(item) for item in value]
    if isinstance(value, dict):
        return {k: numbers_in(item) if k in _NUMBERS else _with_numbers(item) for k, item in value.items()}
    return value


def _let_cabinetry_check(rest: dict[str, Any], where: str) -> None:
    """Let cabinetry say whether it takes its part."""
    samples = rest.get("Samples")
    given = dict(rest)
    if isinstance(samples, list) and not any(isinstance(s, dict) and s.get("Data", False) for s in samples):
        taken = [sample.get("Name") for sample in samples if isinstance(sample, dict)]
        given["Samples"] = [*samples, {"Name": name_of_data(taken), "Tree": "t", "Data": True}]
    try:
        need("cabinetry").configuration.validate(given)
    except Exception as err:  # jsonschema's, or cabinetry's own
        at = ".".join(map(str, getattr(err, "absolute_path", ())))
        said = " ".join(str(getattr(err, "message", err)).split())
        raise InputError(f"cabinetry refuses {where}{f' at {at}' if at else ''}: {shortened(said, 300)}") from err


def _check_names(analysis: Analysis) -> None:
    """Refuse a name that is that of no region, sample or parameter: what it belongs to would act nowhere."""
    config = analysis.config
    known = {key: [item["Name"] for item in config[key]] for key in ("Regions", "Samples")}

    def check(item: Mapping[str, Any], what: str, keys: Iterable[str] = ("Regions", "Samples")) -> None:
        for key in keys:
            for name in listed(item.get(key) or []):
                if name not in known[key]:
                    kind = key[:-1].lower()
                    hint = did_you_mean(name, known[key]) or f"; there are {', '.join(map(repr, known[key]))}"
                    raise InputError(f"{what} names the {kind} {shortened(repr(name))}, which is not there{hint}")

    for key in ("Regions", "Samples", "Systematics") if analysis.settings.combine else ():
        plain: dict[str, str] = {}
        for name in [item["Name"] for item in config.get(key) or []]:
            other = plain.setdefault(re.sub(r"\W+", "_", name, flags=re.ASCII), name)
            if other != name or not name[0].isalpha():
                raise InputError(
                    f"the {key} cannot be named in a datacard of combine: names begin with a letter and differ in "
                    f"letters and digits, but there are {other!r} and {name!r}; rename them, or leave Combine out"
                )
    for sample in config["Samples"]:
        check(sample, f"sample {sample['Name']!r}", ["Regions"])
    for factor in config["NormFactors"]:
        check(factor, f"NormFactor {factor['Name']!r}")
    for systematic in analysis.systematics:
        what = f"systematic {systematic['Name']!r}"
        check(systematic, what)
        check(systematic.get("Smoothing", {}), f"the Smoothing of {what}")
    inside = [(r, s) for r in analysis.fitted for s in analysis.simulated if holds(r, s)]
    for kind, items in (("NormFactor", config["NormFactors"]), ("systematic", analysis.systematics)):
        for item in items:
            if not any(acts(item, region, sample) for region, sample in inside):
                raise InputError(
                    f"{kind} {item['Name']!r} changes no simulated sample in any region of the fit; check its Samples "
                    "and Regions"
                )
    parameters = {factor["Name"] for factor in config["NormFactors"]} | {s["Name"] for s in analysis.systematics}
    for name, value in analysis.fixed.items():
        if name not in parameters:
            hint = did_you_mean(name, parameters)
            raise InputError(f"the block General fixes the parameter {name!r}, which is not there{hint}")
        for systematic in [s for s in analysis.systematics if s["Name"] == name]:
            if modifier_of(systematic) != name:
                raise InputError(
                    f"the block General fixes {name!r}, but its parameter is called {modifier_of(systematic)!r}"
                )
            if value != 0.0:
                raise InputError(f"the block General fixes the systematic {name!r} at {value:g}; only 0 is supported")
    if config["General"].get("POI", "") in analysis.fixed:
        raise InputError(f"the block General fixes the POI {config['General']['POI']!r}; leave it free")


def _check_regions(analysis: Analysis) -> None:
    names, settings = [region["Name"] for region in analysis.regions], analysis.settings
    path = analysis.config["General"]["InputPath"]
    if ".root:" in path and settings.ntuples is None:
        raise InputError(
            f"the InputPath {path!r} leads to histograms, and categories are made of events: give an InputPath of "
            f"ntuples, and their Tree, in the block {BLOCK}"
        )
    for key, own in (("Region", settings.regions), ("Validation", settings.validation)):
        for name in own:
            if name not in names:
                hint = did_you_mean(name, names) or f"; there are {', '.join(map(repr, names))}"
                raise InputError(f"the {key} of the block {BLOCK} is {name!r}, which is no region{hint}")
            if key == "Validation" and name in settings.regions:
                raise InputError(f"region {name!r} is both Region and Validation; only what is not fitted validates")
    if len(analysis.models) < len(settings.regions) and settings.each:
        raise InputError(
            "the names of two regions differ in punctuation alone, so that their scores cannot be told apart"
        )
    filters: dict[tuple[str | None, str | None], str] = {}
    for region in analysis.fitted:
        # Written alike but for blanks; what overlaps otherwise is counted when events are read.
        text = re.sub(r"\s+", "", region["Filter"]) if "Filter" in region else None
        other = filters.setdefault((text, region.get("RegionPath")), region["Name"])
        if other != region["Name"]:
            raise InputError(
                f"regions {other!r} and {region['Name']!r} have the same Filter; a fit would count events twice"
            )
    for region in analysis.regions:
        for key in ("Variable", "Binning"):
            if region["Name"] not in settings.regions and key not in region and not analysis.is_filled(region):
                raise InputError(f"region {region['Name']!r} needs a {key}; only {settings.regions[0]!r} gets its own")
        if any(low >= high for low, high in pairwise(region.get("Binning", []))):
            raise InputError(f"the Binning of region {region['Name']!r} must ascend, got {region['Binning']}")


def _check_samples(analysis: Analysis) -> None:
    poi = analysis.config["General"].get("POI", "")
    factors = [factor["Name"] for factor in analysis.config["NormFactors"]]
    if poi not in factors:
        raise InputError(
            f"the block General needs a POI that is one of the NormFactors {', '.join(map(repr, factors))}, got {poi!r}"
        )
    for sample in analysis.config["Samples"]:
        if "Tree" not in sample and analysis.settings.tree is None:
            raise InputError(f"sample {sample['Name']!r} needs a Tree, or the block {BLOCK} one for all samples")
    for region in analysis.chosen:
        inside = [sample for sample in analysis.simulated if holds(region, sample)]
        signal = [sample["Name"] for sample in inside if acts(analysis.poi, region, sample)]
        if not signal or len(signal) == len(inside):
            what = "no sample" if not signal else "every sample"
            raise InputError(
                f"{poi!r} scales {what} in region {region['Name']!r}; name the signal in its Samples, and leave a "
                "background"
            )
        odd = [s["Name"] for s in inside if s["Name"] in analysis.signal and s["Name"] not in signal]
        if odd:
            raise InputError(
                f"{poi!r} scales sample {odd[0]!r} in some of the regions {list(analysis.settings.regions)} only"
            )


def _check_cross_sections(analysis: Analysis) -> None:
    given, names = analysis.settings.cross_sections, [sample["Name"] for sample in analysis.simulated]
    for name in given:
        if name not in names:
            hint = did_you_mean(name, names) or f"; known are {', '.join(names)}"
            raise InputError(f"CrossSections has the unknown key {name!r}{hint}")
    lacking = [name for name in names if name not in given]
    if given and lacking:
        raise InputError(
            f"sample {lacking[0]!r} has no cross section where others have one: give it, or write '{lacking[0]}: null' "
            "in CrossSections if its weights are right as they are"
        )
    if analysis.settings.luminosity is not None and not any(given.values()):
        raise InputError("the Luminosity changes nothing without CrossSections; give both or none")


def _check_systematics(analysis: Analysis) -> None:
    for region, sample in product(analysis.regions, analysis.simulated):
        own = [s for s in analysis.systematics if holds(region, sample) and acts(s, region, sample)]
        for first, second in combinations(own, 2):
            if modifier_of(first) == modifier_of(second):
                raise InputError(
                    f"two systematics move sample {sample['Name']!r} in region {region['Name']!r} by one modifier "
                    f"{modifier_of(first)!r}: {first['Name']!r} and {second['Name']!r}; join them"
                )
    for systematic in analysis.systematics:
        name = systematic["Name"]
        for direction in DIRECTIONS:
            template = systematic[direction]
            if systematic["Type"] == "Normalization":
                if "Normalization" not in template:
                    raise InputError(
                        f"systematic {name!r} has the type Normalization and no Normalization in {direction}"
                    )
                if not -1 < template["Normalization"] <= 10:
                    raise InputError(
                        f"the Normalization of systematic {name!r} {direction} must be above -1 and at most 10, got "
                        f"{template['Normalization']:g}"
                    )
            if template.get("Symmetrize") and direction == "Up":
                raise InputError(f"systematic {name!r} has Symmetrize in Up; cabinetry mirrors Up into Down only")
