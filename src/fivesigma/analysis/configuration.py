"""What an analysis is made of: the part of cabinetry, our block, and which modifier changes which sample where."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

from fivesigma._tools.extras import need
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

Place = tuple[str, str]  # region and sample
Key = tuple[str, str, str | None, str | None]  # of a histogram: region, sample, systematic and direction
Side = list[tuple[float, Key]]  # of a systematic: templates, and the factors with which they are added


class MovedSamples(NamedTuple):
    """Templates of which the samples consist that a systematic changes; whether down mirrors up in all of them."""

    up: Side
    down: Side
    mirrored: bool


@dataclass(frozen=True, kw_only=True)
class AnalysisSettings:
    """What our block says, by its keys in lower case; those of Categories and Figures are beside the others."""

    region: tuple[str, ...]  # whose categories are made
    features: tuple[str, ...] = ()  # names, patterns or definitions, as in `load_events`
    event_number: str = ENTRY  # branch, or the number of the entry; a fold is this number modulo `folds`
    validation: tuple[str, ...] = ()  # regions that are shown and not fitted
    systematics: tuple[str, ...] = ()  # patterns of branches that hold some, as in `load_variations`
    preselection: str | None = None
    folds: int = 5
    luminosity: float | None = None  # in 1/fb
    # In pb, with the sum of weights or the name of its histogram, by sample; None where weights are right as they are.
    cross_sections: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    goal: str = "discovery"
    model: str | None = None  # or the folder of a saved one; None before it is known whether there are systematics
    model_options: Mapping[str, Any] = field(default_factory=dict)
    train: str = "together"
    score: str | None = None  # expression in place of a model
    edges: Mapping[str, Sequence[float]] | None = None  # by region, if they are given
    number: int | str = "auto"  # of categories in all regions, or "cut"
    min_effective: float | None = None
    min_background: float | None = None
    input_path: str | None = None  # of events where that of General leads to histograms
    tree: str | None = None  # of samples that name none
    combine: bool = False  # write a datacard too
    hepdata: bool = False  # and a submission
    prune: float | None = None  # relative effect below which a systematic is dropped from a sample of a region
    figures: bool = True
    label: str = ""  # of the experiment, on figures
    blind_above: float | None = None  # score below which figures show data of a blinded region

    @property
    def each(self) -> bool:
        """Whether there is a model for each region."""
        return self.train == "each" and len(self.region) > 1

    @classmethod
    def read(cls, block: Any) -> AnalysisSettings:
        """Read the block of a configuration."""
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
        if "Preselection" in block:
            Expression(block["Preselection"], "Preselection")
        if "Edges" in block["Categories"]:
            block["Categories"] |= {"Edges": _edges_by_region(block["Region"], block["Categories"]["Edges"])}
        figures = block.get("Figures", True)
        given: dict[str, Any] = block | block.pop("Categories") | (figures if isinstance(figures, dict) else {})
        given |= {"Figures": figures is not False}
        given |= {key: int(given[key]) for key in ("Folds", "Number") if isinstance(given.get(key), float)}  # as 5.0
        named: Any = {_snake(key): tuple(v) if isinstance(v, list) else v for key, v in given.items()}
        return cls(**named)


def _snake(key: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).lower()


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


def check_schema(value: Any, part: str, what: str) -> None:
    """Refuse a value that is not as ``schema.json`` says, in one sentence."""
    errors = sorted(_validator(part).iter_errors(value), key=lambda error: (len(error.absolute_path), error.message))
    if errors:
        raise InputError(_sentence(errors[0], what))


@cache
def _validator(part: str) -> Any:
    schema = json.loads((files("fivesigma.analysis") / "schema.json").read_text(encoding="utf-8"))
    return need("jsonschema").Draft7Validator(schema | {"$ref": f"#/definitions/{part}"})


def _sentence(error: Any, what: str) -> str:
    """What is wrong, by the keys that lead there."""
    path = [str(key) for key in error.absolute_path]
    where = path[-1] if path else what
    if len(path) > 1 and not path[-2].isdigit():
        where = f"{path[-1]} of {path[-2]}"
    given = shortened(repr(error.instance), 100)
    if error.validator == "additionalProperties" and error.validator_value is False:
        known = error.schema["properties"]
        unknown = next(key for key in error.instance if key not in known)
        hint = did_you_mean(str(unknown), known) or f"; known are {', '.join(known)}"
        return f"{where} has the unknown key {shortened(repr(unknown))}{hint}"
    if error.validator == "required":
        missing = next(key for key in error.validator_value if key not in error.instance)
        return f"{where} needs the key {missing!r}"
    if error.validator == "enum":
        known = error.validator_value
        hint = did_you_mean(str(error.instance), known)
        return f"{where} must be one of {', '.join(known)}, got {given}{hint}"
    meant = error.schema.get("description") or (error.parent and error.parent.schema.get("description"))
    meant = meant or {"object": "a mapping of keys to values"}.get(error.schema.get("type"))
    return (
        f"{where} must be {meant}, got {given}" if meant else f"{where} is not valid: {shortened(error.message, 200)}"
    )


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
        return [find_named(self.regions, name) for name in self.settings.region]

    def is_filled(self, region: Mapping[str, Any]) -> bool:
        """Whether the histograms of a region exist already, and are read as they are."""
        return self.settings.input_path is not None and region["Name"] not in self.settings.region

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

    def variations(self, regions: Iterable[Mapping[str, Any]], places: Collection[Place]) -> dict[str, MovedSamples]:
        """What each systematic makes of the samples that it changes; systematics with one modifier move together.

        A sample that they change in one of the regions is nominal in the others.
        """
        acting: dict[str, dict[Place, Mapping[str, Any]]] = {}
        for region, systematic, sample in product(regions, self.varied, self.simulated):
            place = region["Name"], sample["Name"]
            if place in places and acts(systematic, region, sample):
                acting.setdefault(modifier_of(systematic), {})[place] = systematic
        found = {}
        for name, moved in acting.items():
            samples = {sample for _, sample in moved}
            inside = [place for place in places if place[1] in samples]
            up, down = (
                [part for place in inside for part in _sources(moved.get(place), place, side)] for side in DIRECTIONS
            )
            found[name] = MovedSamples(up, down, all(s["Down"].get("Symmetrize", False) for s in moved.values()))
        return found

    def norm_factor(self, region: Mapping[str, Any], sample: Mapping[str, Any]) -> float:
        """Product of the norm factors of a sample in a region at their nominal values, the POI being one."""
        own = [factor for factor in self._other_factors if acts(factor, region, sample)]
        return math.prod((self.fixed.get(f["Name"], float(f.get("Nominal", 1.0))) for f in own), start=1.0)

    @property
    def _other_factors(self) -> list[dict[str, Any]]:
        return [factor for factor in self.config["NormFactors"] if factor["Name"] != self.config["General"]["POI"]]

    def free_factors(self, region: Mapping[str, Any]) -> dict[str, list[str]]:
        """Norm factors beside the POI that the fit leaves free in a region, with the samples that they scale."""
        found = {}
        for factor in self._other_factors:
            inside = [s["Name"] for s in self.simulated if holds(region, s) and acts(factor, region, s)]
            if inside and factor["Name"] not in self.fixed:
                found[factor["Name"]] = inside
        return found


def _sources(systematic: Mapping[str, Any] | None, place: Place, direction: str) -> Side:
    """Templates that make up a sample under a systematic."""
    nominal = (*place, None, None)
    if systematic is None:
        return [(1.0, nominal)]
    if systematic["Type"] == "Normalization":
        return [(1.0 + systematic[direction]["Normalization"], nominal)]
    if systematic[direction].get("Symmetrize", False):
        return [(2.0, nominal), (-1.0, (*place, systematic["Name"], "Up"))]
    return [(1.0, (*place, systematic["Name"], direction))]


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


def name_of_data(samples: Iterable[Mapping[str, Any]]) -> str:
    """Name of the sample of data, or one that is not taken, for that which cabinetry wants where there is none."""
    names = {sample["Name"]: sample.get("Data", False) for sample in samples}
    free = (f"Data{k}" for k in range(2, len(names) + 3))
    return next((name for name, is_data in names.items() if is_data), None) or next(
        name for name in ("Data", *free) if name not in names
    )
