"""What an analysis is made of: the part of cabinetry, our block, and which modifier changes which sample where."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

from fivesigma.analysis.settings import AnalysisSettings

__all__ = ["DIRECTIONS", "FOLD", "PLAIN", "SCORE", "Analysis", "Key", "Side", "acts", "find_named", "holds", "listed"]

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

    def samples_in(self, region: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Samples that a region has, without data."""
        return [sample for sample in self.simulated if holds(region, sample)]

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
