"""What an analysis is made of: the part of cabinetry, our block, and which modifier changes which sample where."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from fivesigma.analysis.schema import check_schema
from fivesigma.datasets.expression import Expression
from fivesigma.errors import InputError, did_you_mean, shortened
from fivesigma.estimators.make import MODELS

__all__ = ["BLOCK", "CUT", "DIRECTIONS", "FOLD", "PLAIN", "QUANTITY", "SCORE", "Analysis", "AnalysisSettings"]

BLOCK = "Fivesigma"
CUT = "cut"
ENTRY = "entry"
QUANTITY = {"discovery": "significance", "measurement": "uncertainty"}  # that is quoted for each goal
SCORE, FOLD, PLAIN = "fivesigma_score", "fivesigma_fold", "fivesigma_plain"  # branches; the last before a region
_LISTS = ("Region", "Validation", "Features", "Systematics")
DIRECTIONS = ("Up", "Down")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True, kw_only=True)
class AnalysisSettings:
    """What our block says."""

    regions: tuple[str, ...]  # whose categories are made
    features: tuple[str, ...]  # names, patterns or definitions, as in `load_events`
    event_number: str  # branch, or "entry" for the number of the entry; a fold is this number modulo `folds`
    validation: tuple[str, ...] = ()  # regions that are shown and not fitted
    patterns: tuple[str, ...] = ()  # of branches that hold systematics, as in `load_variations`
    preselection: str | None = None
    folds: int = 5
    luminosity: float | None = None  # in 1/fb
    # In pb, with the sum of weights or the name of its histogram, by sample; None where weights are right as they are.
    cross_sections: Mapping[str, tuple[float, float | str] | None] = field(default_factory=dict)
    goal: str = "discovery"
    model: str | None = None  # or the folder of a saved one; None before it is known whether there are systematics
    options: Mapping[str, Any] = field(default_factory=dict)
    each: bool = False  # a model for each region
    score: str | None = None  # expression in place of a model
    edges: Mapping[str, tuple[float, ...]] | None = None  # by region, if they are given
    categories: int | str = "auto"  # in all regions, or "cut"
    min_effective: float | None = None
    min_background: float | None = None
    ntuples: str | None = None  # InputPath of events where that of General leads to histograms
    tree: str | None = None  # of samples that name none
    combine: bool = False  # write a datacard too
    figures: bool = True
    label: str = ""  # of the experiment, on figures
    blind_above: float | None = None  # score below which figures show data of a blinded region

    @classmethod
    def read(cls, block: Any) -> AnalysisSettings:
        """Read the block of a configuration."""
        block = numbers_in(block)
        if isinstance(block, dict):
            block = {key: value for key, value in block.items() if value is not None}
            block |= {key: [block[key]] for key in _LISTS if isinstance(block.get(key), str)}
            categories = block.get("Categories", {})
            if isinstance(categories, str):
                categories = {"Number": categories}
            if isinstance(categories, dict) and isinstance(categories.get("Number"), str):
                categories = categories | {"Number": categories["Number"].lower()}
            block["Categories"] = categories
        check_schema(block, "block", BLOCK)
        _check_what_is_trained(block)
        categories, number = block["Categories"], block["Categories"].get("Number", "auto")
        figures = block.get("Figures", {})
        figures = {} if figures is True else figures
        if "Preselection" in block:
            Expression(block["Preselection"], "Preselection")
        return cls(
            regions=tuple(block["Region"]),
            features=tuple(block.get("Features", ())),
            event_number=block.get("EventNumber", ENTRY),
            validation=tuple(block.get("Validation", ())),
            patterns=tuple(block.get("Systematics", ())),
            preselection=block.get("Preselection"),
            folds=int(block.get("Folds", 5)),
            luminosity=block.get("Luminosity"),
            cross_sections={
                name: None if given is None else (float(given["CrossSection"]), given["SumOfWeights"])
                for name, given in block.get("CrossSections", {}).items()
            },
            goal=block.get("Goal", "discovery"),
            model=block.get("Model"),
            options=block.get("ModelOptions", {}),
            each=block.get("Train") == "each" and len(block["Region"]) > 1,
            score=block.get("Score"),
            edges=_edges_by_region(block["Region"], categories["Edges"]) if "Edges" in categories else None,
            categories=number if isinstance(number, str) else int(number),
            min_effective=categories.get("MinEffective"),
            min_background=categories.get("MinBackground"),
            ntuples=block.get("InputPath"),
            tree=block.get("Tree"),
            combine=block.get("Combine", False),
            figures=figures is not False,
            label=figures.get("Label", "") if figures else "",
            blind_above=figures.get("BlindAbove") if figures else None,
        )


def _check_what_is_trained(block: Mapping[str, Any]) -> None:
    """Refuse a block that says too little for what is to be trained, or too much where nothing is."""
    score, model, categories = block.get("Score"), block.get("Model", "auto"), block["Categories"]
    if score is not None:
        Expression(score, "Score")
    elif model not in MODELS and not Path(model).is_dir():
        given = f"{shortened(repr(model))}{did_you_mean(str(model), MODELS)}"
        raise InputError(f"the Model must be one of {', '.join(MODELS)}, or a folder, got {given}")
    exists = "Score" if score is not None else None if model in MODELS else f"Model {model!r}"
    for key in ("Train", "ModelOptions", *(("Model", "Features") if score is not None else ())):
        if exists is not None and key in block:
            raise InputError(f"{BLOCK} has both {exists} and {key}; nothing is trained, so leave {key} out")
    if "Features" not in block and exists is None:
        raise InputError(f"{BLOCK} needs the key 'Features'")
    if "EventNumber" not in block and score is None:
        raise InputError(
            f"{BLOCK} needs the key 'EventNumber': a branch of integers, or '{ENTRY}' where the trees have none (the "
            "number of the entry)"
        )
    if "Edges" in categories and "Number" in categories:
        raise InputError("the Categories have both Edges and a Number; give one of them")
    number, n_regions = categories.get("Number"), len(block["Region"])
    if isinstance(number, int | float) and number < n_regions:
        raise InputError(f"the Number of Categories is {number:g} for {n_regions} regions, each of which needs one")


def _edges_by_region(regions: Sequence[str], given: Any) -> dict[str, tuple[float, ...]]:
    """Edges of each region; a list is for all of them."""
    by_region = given if isinstance(given, dict) else dict.fromkeys(regions, given)
    if by_region.keys() != set(regions):
        raise InputError(f"the Edges of Categories must be a list, or a mapping of {', '.join(regions)} to lists")
    for edges in by_region.values():
        if any(low >= high for low, high in pairwise(edges)):
            raise InputError(f"the Edges of Categories must ascend, got {edges}")
    return {name: tuple(map(float, by_region[name])) for name in regions}


@dataclass(frozen=True)
class Analysis:
    """A checked analysis."""

    config: dict[str, Any]
    settings: AnalysisSettings

    @property
    def regions(self) -> list[dict[str, Any]]:
        """All regions."""
        return list(self.config["Regions"])

    @property
    def fitted(self) -> list[dict[str, Any]]:
        """Regions of the fit: all but those of validation."""
        return [region for region in self.regions if region["Name"] not in self.settings.validation]

    @property
    def chosen(self) -> list[dict[str, Any]]:
        """Regions whose categories are made."""
        return [find_named(self.regions, name) for name in self.settings.regions]

    def is_filled(self, region: Mapping[str, Any]) -> bool:
        """Whether the histograms of a region exist already, and are read as they are."""
        return self.settings.ntuples is not None and region["Name"] not in self.settings.regions

    def score_of(self, region: str) -> str:
        """Branch of the score of a chosen region."""
        if not self.settings.each:
            return SCORE
        return f"{SCORE}_{re.sub('[^A-Za-z0-9_]', '_', region)}"

    @cached_property
    def models(self) -> dict[str, list[dict[str, Any]]]:
        """Regions of each model, by the branch of its score."""
        found: dict[str, list[dict[str, Any]]] = {}
        for region in self.chosen:
            found.setdefault(self.score_of(region["Name"]), []).append(region)
        return found

    @property
    def profiled(self) -> bool:
        """Whether the training knows the systematics."""
        return self.settings.score is None and self.settings.model == "profiled"

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
        """Samples that the parameter of interest scales in the chosen regions."""
        inside = [s for s in self.simulated if any(acts(self.poi, region, s) for region in self.chosen)]
        return tuple(sample["Name"] for sample in inside)

    @property
    def poi(self) -> dict[str, Any]:
        """The norm factor that is the parameter of interest."""
        return find_named(self.config["NormFactors"], self.config["General"]["POI"])

    @property
    def fixed(self) -> dict[str, float]:
        """Parameters that the fit holds constant, and where."""
        return {item["Name"]: float(item["Value"]) for item in self.config["General"].get("Fixed", [])}

    @property
    def varied(self) -> list[dict[str, Any]]:
        """Systematic uncertainties that the fit does not hold constant."""
        return [systematic for systematic in self.systematics if systematic["Name"] not in self.fixed]

    def moved(self, region: Mapping[str, Any]) -> list[tuple[dict[str, Any], str]]:
        """Systematics of a region, each with a sample that it changes there."""
        inside = [sample for sample in self.simulated if holds(region, sample)]
        return [(s, sample["Name"]) for s in self.varied for sample in inside if acts(s, region, sample)]

    def norm_factor(self, region: Mapping[str, Any], sample: Mapping[str, Any]) -> float:
        """Product of the norm factors of a sample in a region at their nominal values, the POI being one."""
        product = 1.0
        for factor in self.config["NormFactors"]:
            if acts(factor, region, sample) and factor["Name"] != self.config["General"]["POI"]:
                product *= self.fixed.get(factor["Name"], float(factor.get("Nominal", 1.0)))
        return product

    def poi_factor(self, region: Mapping[str, Any], sample: Mapping[str, Any]) -> float:
        """Nominal value of the POI where it scales a sample, else one."""
        return float(self.poi.get("Nominal", 1.0)) if acts(self.poi, region, sample) else 1.0

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


def name_of_data(taken: Collection[Any]) -> str:
    """A name for the sample of data that cabinetry wants where there is none."""
    return next(name for name in ("Data", *(f"Data{k}" for k in range(2, len(taken) + 3))) if name not in taken)
