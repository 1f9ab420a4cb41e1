"""What an analysis is made of: the part of cabinetry, our block, and which modifier changes which sample where."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from fivesigma.analysis.settings import AnalysisSettings

SCORE, FOLD, PLAIN = "fivesigma_score", "fivesigma_fold", "fivesigma_plain"  # branches; the last before a region
DIRECTIONS = ("Up", "Down")

Place = tuple[str, str]  # region and sample
Key = tuple[str, str, str | None, str | None]  # of a histogram: region, sample, systematic and direction
Side = list[tuple[float, Key]]  # of a systematic: templates, and the factors with which they are added


class MovedSamples(NamedTuple):
    """Templates of which the samples consist that a systematic changes; whether down mirrors up in all of them."""

    up: Side
    down: Side
    mirrored: bool


@dataclass(eq=False)
class Analysis:
    """An analysis; what follows from the configuration is formed once, and refused later if it names what is not there.

    Attributes
    ----------
    config : dict
        The part of cabinetry.
    settings : AnalysisSettings
        Our block.
    """

    config: dict[str, Any]
    settings: AnalysisSettings

    def __post_init__(self) -> None:
        config, settings = self.config, self.settings
        self.regions: list[dict[str, Any]] = list(config["Regions"])
        self.fitted = [region for region in self.regions if region["Name"] not in settings.validation]
        # Regions whose categories are made, together, and by the branches of the scores of their models.
        self.chosen = [region for name in settings.region for region in self.regions if region["Name"] == name]
        self.models: dict[str, list[dict[str, Any]]] = {}
        for region in self.chosen:
            self.models.setdefault(self.score_of(region["Name"]), []).append(region)
        self.profiled = settings.score is None and settings.model == "profiled"  # the training knows the systematics
        self.simulated: list[dict[str, Any]] = [s for s in config["Samples"] if not s.get("Data", False)]
        self.data = next((sample for sample in config["Samples"] if sample.get("Data", False)), None)
        factors, poi = config["NormFactors"], config["General"].get("POI")
        self.poi: dict[str, Any] = next((factor for factor in factors if factor["Name"] == poi), {})
        self._other_factors = [factor for factor in factors if factor["Name"] != poi]
        # Samples that the parameter of interest scales in the chosen regions.
        inside = [s for s in self.simulated if any(acts(self.poi, region, s) for region in self.chosen)]
        self.signal = tuple(sample["Name"] for sample in inside)
        self.systematics: list[dict[str, Any]] = list(config.get("Systematics") or [])
        # Parameters that the fit holds constant, and where; and systematics that it does not.
        self.fixed = {item["Name"]: float(item["Value"]) for item in config["General"].get("Fixed", [])}
        self.varied = [one for one in self.systematics if one["Name"] not in self.fixed]

    def samples_in(self, region: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Samples that a region has, without data."""
        return [sample for sample in self.simulated if holds(region, sample)]

    def is_filled(self, region: Mapping[str, Any]) -> bool:
        """Whether the histograms of a region exist already, and are read as they are."""
        return self.settings.input_path is not None and region["Name"] not in self.settings.region

    def score_of(self, region: str) -> str:
        """Branch of the score of a chosen region."""
        if not self.settings.each:
            return SCORE
        return f"{SCORE}_{re.sub('[^A-Za-z0-9_]', '_', region)}"

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

    def free_factors(self, region: Mapping[str, Any]) -> dict[str, list[str]]:
        """Norm factors beside the POI that the fit leaves free in a region, with the samples that they scale."""
        found = {}
        for factor in self._other_factors:
            inside = [sample["Name"] for sample in self.samples_in(region) if acts(factor, region, sample)]
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
