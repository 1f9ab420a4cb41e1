"""What an analysis is made of: the part of cabinetry, our block, and which modifier changes which sample where."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from fivesigma.analysis.schema import check_schema
from fivesigma.datasets.expression import Expression
from fivesigma.errors import InputError, did_you_mean, shortened
from fivesigma.estimators.make import MODELS

__all__ = ["BLOCK", "CUT", "DIRECTIONS", "Analysis", "AnalysisSettings"]

BLOCK = "Fivesigma"
CUT = "cut"
DIRECTIONS = ("Up", "Down")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True, kw_only=True)
class AnalysisSettings:
    """What our block says.

    Attributes
    ----------
    region : str
        Region whose categories are made.
    features : tuple of str
        Names, patterns or definitions, as in `load_events`.
    event_number : str or None
        Branch of integers; an event's fold is this number modulo `folds`. Without it, which is for scores that exist
        already, it is the number of the entry.
    preselection : str or None
        Condition for the events of all regions.
    luminosity : float or None
        In 1/fb.
    cross_sections : mapping of str to (float, float or str) or None
        Cross section in pb, and sum of weights or the name of its histogram, by sample; None for a sample whose weights
        are taken as they are.
    model, options
        What is trained, and parameters of it; or the folder of a saved model.
    score : str or None
        Branch or expression that is the score, in place of a model.
    edges : tuple of float or None
        Edges of the categories, if they are given.
    categories : int or str
        Number of categories, ``"auto"``, or ``"cut"`` for one cut.
    min_effective, min_background : float or None
        Floors of every category.
    """

    region: str
    features: tuple[str, ...]
    event_number: str | None
    preselection: str | None = None
    folds: int = 5
    luminosity: float | None = None
    cross_sections: Mapping[str, tuple[float, float | str] | None] = field(default_factory=dict)
    model: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    score: str | None = None
    edges: tuple[float, ...] | None = None
    categories: int | str = "auto"
    min_effective: float | None = None
    min_background: float | None = None

    @classmethod
    def read(cls, block: Any) -> AnalysisSettings:
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
        _check_what_is_trained(block)
        categories, number = block["Categories"], block["Categories"].get("Number", "auto")
        if "Preselection" in block:
            Expression(block["Preselection"], "Preselection")
        return cls(
            region=block["Region"],
            features=tuple(block.get("Features", ())),
            event_number=block.get("EventNumber"),
            preselection=block.get("Preselection"),
            folds=int(block.get("Folds", 5)),
            luminosity=block.get("Luminosity"),
            cross_sections={
                name: None if given is None else (float(given["CrossSection"]), given["SumOfWeights"])
                for name, given in block.get("CrossSections", {}).items()
            },
            model=block.get("Model", "auto"),
            options=block.get("ModelOptions", {}),
            score=block.get("Score"),
            edges=tuple(map(float, categories["Edges"])) if "Edges" in categories else None,
            categories=number if isinstance(number, str) else int(number),
            min_effective=categories.get("MinEffective"),
            min_background=categories.get("MinBackground"),
        )


def _check_what_is_trained(block: Mapping[str, Any]) -> None:
    """Refuse a block that says too little for what is to be trained, or too much where nothing is."""
    score, model, categories = block.get("Score"), block.get("Model", "auto"), block["Categories"]
    for key in ("Model", "ModelOptions", "Features"):
        if score is not None and key in block:
            raise InputError(f"{BLOCK} has both Score and {key}; a score that exists already needs no model")
    if score is not None:
        Expression(score, "Score")
    elif model not in MODELS and not Path(model).is_dir():
        given = f"{shortened(repr(model))}{did_you_mean(str(model), MODELS)}"
        raise InputError(f"the Model must be one of {', '.join(MODELS)}, or a folder, got {given}")
    elif model not in MODELS and "ModelOptions" in block:
        raise InputError(f"{BLOCK} has ModelOptions for {model!r}, which is trained already; leave them out")
    for key in ("Features", "EventNumber"):
        if key not in block and score is None and (model in MODELS or key == "EventNumber"):
            raise InputError(f"{BLOCK} needs the key {key!r}")
    edges = categories.get("Edges")
    if edges is not None and "Number" in categories:
        raise InputError("the Categories have both Edges and a Number; give one of them")
    if edges is not None and any(low >= high for low, high in pairwise(edges)):
        raise InputError(f"the Edges of Categories must ascend, got {edges}")


@dataclass(frozen=True)
class Analysis:
    """A checked analysis.

    Attributes
    ----------
    config : dict
        The part of cabinetry.
    settings : AnalysisSettings
        Our block.
    """

    config: dict[str, Any]
    settings: AnalysisSettings

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


def name_of_data(taken: Collection[Any]) -> str:
    """A name for the sample of data that cabinetry wants where there is none."""
    return next(name for name in ("Data", *(f"Data{k}" for k in range(2, len(taken) + 3))) if name not in taken)
