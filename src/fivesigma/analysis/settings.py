"""Our block of an analysis file: what it may say, and what it means where it says nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

from fivesigma._tools.extras import need
from fivesigma.datasets.expression import Expression
from fivesigma.errors import InputError, did_you_mean, shortened
from fivesigma.estimators.make import MODELS

BLOCK = "Fivesigma"
CUT = "cut"
ENTRY = "entry"
_LISTS = ("Region", "Validation", "Features", "Systematics")


@dataclass(frozen=True, kw_only=True)
class AnalysisSettings:
    """What our block says, by its keys in lower case; those of Categories and Figures are beside the others."""

    region: tuple[str, ...]  # whose categories are made
    features: tuple[str, ...] = ()  # names, patterns or definitions, as in `load_events`
    event_number: str = ""  # branch, or the number of the entry; a fold is this number modulo `folds`
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
        return self.train == "each" and (len(self.region) > 1 or self.saved is not None)

    @property
    def saved(self) -> str | None:
        """Folder of a model that exists already."""
        return None if self.score is not None or self.model in (None, *MODELS) else self.model

    @property
    def trains(self) -> bool:
        """Whether a model is trained."""
        return self.score is None and self.saved is None

    @property
    def quantity(self) -> str:
        """What is quoted for the goal."""
        return "significance" if self.goal == "discovery" else "uncertainty"

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
        snake = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).lower(): value for key, value in given.items()}
        named: Any = {key: tuple(value) if isinstance(value, list) else value for key, value in snake.items()}
        return cls(**named)


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
    if "EventNumber" not in block and exists is None:
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
    return (
        f"{where} must be {meant}, got {given}" if meant else f"{where} is not valid: {shortened(error.message, 200)}"
    )
