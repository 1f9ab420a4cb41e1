"""The block ``Fivesigma`` of an analysis file: what is ours, and not cabinetry's."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from fivesigma.datasets.expression import Expression
from fivesigma.errors import InputError, did_you_mean, is_number

__all__ = ["MODELS", "Settings", "number_of", "numbers_in"]

MODELS = ("auto", "grown", "plain", "retrained", "decomposed")
CUT = "cut"

_KEYS = (
    *("Region", "Features", "Preselection", "EventNumber", "Folds", "Luminosity", "CrossSections"),
    *("Model", "ModelOptions", "Categories"),
)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the block says, checked.

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
    cross_sections : mapping of str to (float, float or str)
        Cross section in pb, and sum of weights or the name of its histogram, by sample.
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
    cross_sections: Mapping[str, tuple[float, float | str]] = field(default_factory=dict)
    model: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)
    categories: int | str = "auto"
    min_effective: float | None = None
    min_background: float | None = None

    @classmethod
    def of(cls, block: Any, samples: Collection[str]) -> Settings:
        """Read the block of a configuration whose samples have these names."""
        block = _mapping(block, "Fivesigma", _KEYS)
        for name in ("Region", "Features", "EventNumber"):
            if name not in block:
                raise InputError(f"the block Fivesigma needs the key {name!r}")
        features = block["Features"]
        if isinstance(features, str):
            features = [features]
        if not isinstance(features, list) or not features or not all(isinstance(name, str) for name in features):
            raise InputError(f"the Features must be a list of names or definitions, got {features!r}")
        preselection = block.get("Preselection")
        if preselection is not None:
            Expression(preselection, "Preselection")
        folds = number_of(block.get("Folds", 5), "Folds")
        if folds != int(folds) or folds < 2:
            raise InputError(f"the number of Folds must be a whole number of at least 2, got {folds:g}")
        luminosity = block.get("Luminosity")
        categories, min_effective, min_background = _categories(block.get("Categories", {}))
        return cls(
            region=_text(block["Region"], "Region"),
            features=tuple(features),
            event_number=_text(block["EventNumber"], "EventNumber"),
            preselection=preselection,
            folds=int(folds),
            luminosity=None if luminosity is None else number_of(luminosity, "Luminosity"),
            cross_sections=_cross_sections(block.get("CrossSections", {}), samples),
            model=_one_of(block.get("Model", "auto"), "Model", MODELS),
            options={
                str(key): numbers_in(value)
                for key, value in _mapping(block.get("ModelOptions"), "ModelOptions").items()
            },
            categories=categories,
            min_effective=min_effective,
            min_background=min_background,
        )


def number_of(value: Any, what: str) -> float:
    """A number, also one that YAML took for text, as it does with 1.2e6."""
    value = numbers_in(value)
    if not is_number(value):
        raise InputError(f"{what} must be a number, got {value!r}")
    return float(value)


def numbers_in(value: Any) -> Any:
    """The same with text that is a number as a number, also within lists and mappings.

    Examples
    --------
    >>> numbers_in(["1.2e6", "h_sumw", 3])
    [1200000.0, 'h_sumw', 3]
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        return float(value)
    if isinstance(value, list):
        return [numbers_in(item) for item in value]
    if isinstance(value, dict):
        return {key: numbers_in(item) for key, item in value.items()}
    return value


def _mapping(value: Any, what: str, keys: Collection[str] | None = None) -> Mapping[str, Any]:
    """A mapping whose keys are known; an unknown one is answered with the nearest."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(f"{what} must be a mapping of keys to values, got {value!r}")
    for key in value:
        if keys is not None and key not in keys:
            hint = did_you_mean(str(key), keys) or f"; known are {', '.join(keys)}"
            raise InputError(f"{what} has the unknown key {key!r}{hint}")
    return value


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(f"{what} must be a name, got {value!r}")
    return value


def _one_of(value: Any, what: str, known: Collection[str]) -> str:
    if value not in known:
        hint = did_you_mean(str(value), known)
        raise InputError(f"{what} must be one of {', '.join(known)}, got {value!r}{hint}")
    return str(value)


def _categories(given: Any) -> tuple[int | str, float | None, float | None]:
    """Number of categories, and their floors."""
    if isinstance(given, str) and given.lower() == CUT:
        return CUT, None, None
    block = _mapping(given, "Categories", ("Number", "MinEffective", "MinBackground"))
    floors = [
        None if block.get(key) is None else number_of(block[key], key) for key in ("MinEffective", "MinBackground")
    ]
    number = numbers_in(block.get("Number", "auto"))
    if isinstance(number, str) and number.lower() in ("auto", CUT):
        return number.lower(), floors[0], floors[1]
    if not is_number(number) or number != int(number) or number < 1:
        raise InputError(f"the Number of Categories must be a whole number of at least 1, auto or Cut, got {number!r}")
    return int(number), floors[0], floors[1]


def _cross_sections(given: Any, samples: Collection[str]) -> dict[str, tuple[float, float | str]]:
    found: dict[str, tuple[float, float | str]] = {}
    for name, value in _mapping(given, "CrossSections", samples).items():
        what = f"CrossSections of {name!r}"
        block = _mapping(value, what, ("CrossSection", "SumOfWeights"))
        for key in ("CrossSection", "SumOfWeights"):
            if key not in block:
                raise InputError(f"{what} needs the key {key!r}")
        total = numbers_in(block["SumOfWeights"])
        if not isinstance(total, str):
            total = number_of(total, f"SumOfWeights of {name!r}")
        found[name] = (number_of(block["CrossSection"], f"CrossSection of {name!r}"), total)
    return found
