"""The analysis file: a cabinetry configuration with one block of ours, read and checked."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from fivesigma._tools.extras import need
from fivesigma.analysis.schema import check_schema
from fivesigma.analysis.yaml_file import check_plain, read_yaml
from fivesigma.datasets.expression import Expression
from fivesigma.errors import InputError, did_you_mean, shortened

__all__ = ["CUT", "DIRECTIONS", "Analysis", "Settings", "read_analysis"]

BLOCK = "Fivesigma"
CUT = "cut"
DIRECTIONS = ("Up", "Down")
# Keys of cabinetry whose values are numbers, which YAML may take for text, as it does with 1.2e6.
_NUMBERS = ("Binning", "Bounds", "Nominal", "Normalization", "Value")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What our block says.

    Attributes
    ----------
    region : str
        Region whose categories are made.
    features : tuple of str
        Names, patterns or definitions, as in `load_events`.
    event_number : str
        Branch of integers; an event's fold is this number modulo `folds`.
    preselection : str or None
        Condition for the events of all regions.
    luminosity : float or None
        In 1/fb.
    cross_sections : mapping of str to (float, float or str) or None
        Cross section in pb, and sum of weights or the name of its histogram, by sample; None for a sample whose weights
        are taken as they are.
    model, options
        What is trained, and parameters of it.
    categories : int or str
        Number of categories, ``"auto"``, or ``"cut"`` for one cut.
    min_effective, min_background : float or None
        Floors of every category.
    """

    region: str
    features: tuple[str, ...]
    event_number: str
    preselection: str | None = None
    folds: int = 5
    luminosity: float | None = None
    cross_sections: Mapping[str, tuple[float, float | str] | None] = field(default_factory=dict)
    model: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    categories: int | str = "auto"
    min_effective: float | None = None
    min_background: float | None = None

    @classmethod
    def read(cls, block: Any) -> Settings:
        """Read the block of a configuration."""
        block = numbers_in(block)
        if isinstance(block, dict):
            block = {key: value for key, value in block.items() if value is not None}
            if isinstance(block.get("Features"), str):
                block["Features"] = [block["Features"]]
            categories = block.get("Categories", {})
            if isinstance(categories, str):
                categories = {"Number": categories}
            if isinstance(categories, dict) and isinstance(categories.get("Number"), str):
                categories = categories | {"Number": categories["Number"].lower()}
            block["Categories"] = categories
        check_schema(block, "block", BLOCK)
        categories, number = block["Categories"], block["Categories"].get("Number", "auto")
        if "Preselection" in block:
            Expression(block["Preselection"], "Preselection")
        return cls(
            region=block["Region"],
            features=tuple(block["Features"]),
            event_number=block["EventNumber"],
            preselection=block.get("Preselection"),
            folds=int(block.get("Folds", 5)),
            luminosity=block.get("Luminosity"),
            cross_sections={
                name: None if given is None else (float(given["CrossSection"]), given["SumOfWeights"])
                for name, given in block.get("CrossSections", {}).items()
            },
            model=block.get("Model", "auto"),
            options=block.get("ModelOptions", {}),
            categories=number if isinstance(number, str) else int(number),
            min_effective=categories.get("MinEffective"),
            min_background=categories.get("MinBackground"),
        )


@dataclass(frozen=True)
class Analysis:
    """A checked analysis.

    Attributes
    ----------
    config : dict
        The part of cabinetry.
    settings : Settings
        Our block.
    """

    config: dict[str, Any]
    settings: Settings

    @property
    def regions(self) -> list[dict[str, Any]]:
        """Regions of the fit."""
        return list(self.config["Regions"])

    @property
    def chosen(self) -> dict[str, Any]:
        """The region whose categories are made."""
        return find_named(self.regions, self.settings.region)

    @property
    def simulated(self) -> list[dict[str, Any]]:
        """Samples that are not data."""
        return [sample for sample in self.config["Samples"] if not sample.get("Data", False)]

    @property
    def data(self) -> dict[str, Any] | None:
        """The sample of data, if there is one."""
        return next((sample for sample in self.config["Samples"] if sample.get("Data", False)), None)

    @property
    def systematics(self) -> list[dict[str, Any]]:
        """Systematic uncertainties."""
        return list(self.config.get("Systematics") or [])

    @property
    def signal(self) -> tuple[str, ...]:
        """Samples that the parameter of interest scales in the chosen region."""
        factor = find_named(self.config["NormFactors"], self.config["General"]["POI"])
        return tuple(sample["Name"] for sample in self.simulated if acts(factor, self.chosen, sample))

    @property
    def fixed(self) -> dict[str, float]:
        """Parameters that the fit holds constant, and where."""
        return {item["Name"]: float(item["Value"]) for item in self.config["General"].get("Fixed", [])}

    @property
    def varied(self) -> list[dict[str, Any]]:
        """Systematic uncertainties that the fit does not hold constant."""
        return [systematic for systematic in self.systematics if systematic["Name"] not in self.fixed]

    def norm_factor(self, region: Mapping[str, Any], sample: Mapping[str, Any]) -> float:
        """Product of the norm factors of a sample in a region at their nominal values, the POI being one."""
        product = 1.0
        for factor in self.config["NormFactors"]:
            if acts(factor, region, sample) and factor["Name"] != self.config["General"]["POI"]:
                product *= self.fixed.get(factor["Name"], float(factor.get("Nominal", 1.0)))
        return product

    def poi_factor(self, region: Mapping[str, Any], sample: Mapping[str, Any]) -> float:
        """Nominal value of the POI where it scales a sample, else one."""
        factor = find_named(self.config["NormFactors"], self.config["General"]["POI"])
        return float(factor.get("Nominal", 1.0)) if acts(factor, region, sample) else 1.0

    def free_factors(self, region: Mapping[str, Any]) -> dict[str, list[str]]:
        """Norm factors beside the POI that the fit leaves free in a region, with the samples that they scale."""
        found = {}
        for factor in self.config["NormFactors"]:
            inside = [s["Name"] for s in self.simulated if holds(region, s) and acts(factor, region, s)]
            if inside and factor["Name"] != self.config["General"]["POI"] and factor["Name"] not in self.fixed:
                found[factor["Name"]] = inside
        return found


def find_named(items: Iterable[dict[str, Any]], name: str) -> dict[str, Any]:
    """The one of these that has this name."""
    return next(item for item in items if item["Name"] == name)


def acts(modifier: Mapping[str, Any], region: Mapping[str, Any], sample: Mapping[str, Any]) -> bool:
    """Whether a modifier changes a sample in a region; without a list it changes all."""
    return all(
        not modifier.get(key) or item["Name"] in listed(modifier[key])
        for key, item in (("Regions", region), ("Samples", sample))
    )


def holds(region: Mapping[str, Any], sample: Mapping[str, Any]) -> bool:
    """Whether a region contains a sample."""
    return not sample.get("Regions") or region["Name"] in listed(sample["Regions"])


def modifier_of(systematic: Mapping[str, Any]) -> str:
    """Name of the parameter of a systematic."""
    return str(systematic.get("ModifierName", systematic["Name"]))


def listed(value: Any) -> list[Any]:
    """A setting that is one value or a list of them."""
    return value if isinstance(value, list) else [value]


def numbers_in(value: Any) -> Any:
    """The same with text that is a number as a number, also within lists and mappings.

    Examples
    --------
    >>> numbers_in(["1.2e6", "h_sumw", 3])
    [1200000.0, 'h_sumw', 3]
    """
    if isinstance(value, str) and len(value) < 50 and _NUMBER.fullmatch(value.strip()):
        return float(value)
    if isinstance(value, list):
        return [numbers_in(item) for item in value]
    if isinstance(value, dict):
        return {key: numbers_in(item) for key, item in value.items()}
    return value


def read_analysis(config: str | os.PathLike[str] | Mapping[str, Any]) -> Analysis:
    """Read and check an analysis file, or the same as a mapping.

    Raises
    ------
    InputError
        Also for what cabinetry would refuse.
    """
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
    analysis = Analysis(rest, Settings.read(block))
    _check_names(analysis)
    _check_regions(analysis)
    _check_samples(analysis)
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


def name_of_data(taken: Collection[Any]) -> str:
    """A name for the sample of data that cabinetry wants where there is none."""
    return next(name for name in ("Data", *(f"Data{k}" for k in range(2, len(taken) + 3))) if name not in taken)


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

    for sample in config["Samples"]:
        check(sample, f"sample {sample['Name']!r}", ["Regions"])
    for factor in config["NormFactors"]:
        check(factor, f"NormFactor {factor['Name']!r}")
    for systematic in analysis.systematics:
        what = f"systematic {systematic['Name']!r}"
        check(systematic, what)
        check(systematic.get("Smoothing", {}), f"the Smoothing of {what}")
    inside = [(r, s) for r in analysis.regions for s in analysis.simulated if holds(r, s)]
    for kind, items in (("NormFactor", config["NormFactors"]), ("systematic", analysis.systematics)):
        for item in items:
            if not any(acts(item, region, sample) for region, sample in inside):
                raise InputError(
                    f"{kind} {item['Name']!r} changes no simulated sample in any region; check its Samples and Regions"
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
    names = [region["Name"] for region in analysis.regions]
    chosen = analysis.settings.region
    if chosen not in names:
        hint = did_you_mean(chosen, names) or f"; there are {', '.join(map(repr, names))}"
        raise InputError(f"the Region of the block {BLOCK} is {chosen!r}, which is no region{hint}")
    filters: dict[tuple[str | None, str | None], str] = {}
    for region in analysis.regions:
        # Written alike but for blanks; what overlaps otherwise is counted when events are read.
        text = re.sub(r"\s+", "", region["Filter"]) if "Filter" in region else None
        other = filters.setdefault((text, region.get("RegionPath")), region["Name"])
        if other != region["Name"]:
            raise InputError(
                f"regions {other!r} and {region['Name']!r} have the same Filter; a fit would count events twice"
            )
        for key in ("Variable", "Binning"):
            if region["Name"] == chosen and key in region:
                raise InputError(f"region {chosen!r} gets its categories from the score: leave its {key} out")
            if region["Name"] != chosen and key not in region:
                raise InputError(f"region {region['Name']!r} needs a {key}; only {chosen!r} gets its own")
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
        if "Tree" not in sample:
            raise InputError(f"sample {sample['Name']!r} needs a Tree: histograms as inputs are not supported")
    inside = [sample["Name"] for sample in analysis.simulated if holds(analysis.chosen, sample)]
    signal = [name for name in inside if name in analysis.signal]
    if not signal or len(signal) == len(inside):
        what = "no sample" if not signal else "every sample"
        raise InputError(
            f"{poi!r} scales {what} in region {analysis.chosen['Name']!r}; name the signal in its Samples, and leave a "
            "background"
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
    for region, sample, (first, second) in _pairs(analysis):
        if modifier_of(first) == modifier_of(second):
            raise InputError(
                f"two systematics move sample {sample!r} in region {region!r} by one modifier {modifier_of(first)!r}: "
                f"{first['Name']!r} and {second['Name']!r}; join them"
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


def _pairs(analysis: Analysis) -> Iterator[tuple[str, str, tuple[dict[str, Any], dict[str, Any]]]]:
    """Systematics that change one sample in one region, two by two."""
    for region in analysis.regions:
        for sample in analysis.simulated:
            own = [s for s in analysis.systematics if holds(region, sample) and acts(s, region, sample)]
            for k, first in enumerate(own):
                for second in own[k + 1 :]:
                    yield region["Name"], sample["Name"], (first, second)
