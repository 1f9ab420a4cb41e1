"""The analysis file: a cabinetry configuration with one block of ours."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fivesigma._tools.extras import need
from fivesigma._tools.files import read_text
from fivesigma.analysis.settings import Settings, numbers_in
from fivesigma.errors import InputError, did_you_mean, shortened

__all__ = ["DIRECTIONS", "Analysis", "read_analysis"]

BLOCK = "Fivesigma"
DIRECTIONS = ("Up", "Down")
_MOST_ITEMS = 1_000_000  # of a configuration, aliases unfolded
# Keys of cabinetry whose values are numbers, which YAML may take for text.
_NUMBERS = ("Binning", "Bounds", "Nominal", "Normalization", "Value")


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
        return named(self.regions, self.settings.region)

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
        factor = named(self.config["NormFactors"], self.config["General"]["POI"])
        return tuple(sample["Name"] for sample in self.simulated if acts(factor, self.chosen, sample))


def named(items: Iterable[dict[str, Any]], name: str) -> dict[str, Any]:
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


def listed(value: Any) -> list[Any]:
    """A setting that is one value or a list of them."""
    return value if isinstance(value, list) else [value]


def read_analysis(config: str | os.PathLike[str] | Mapping[str, Any]) -> Analysis:
    """Read and check an analysis file, or the same as a mapping.

    Raises
    ------
    InputError
        Also for what cabinetry would refuse.
    """
    where, content = "the configuration", config
    if not isinstance(config, Mapping):
        where, content = str(config), _parsed(Path(config))
    if not isinstance(content, Mapping):
        raise InputError(f"{where} must be a mapping of keys to values, as cabinetry reads it")
    rest = _with_numbers(copy.deepcopy(dict(content)))
    block = rest.pop(BLOCK, None)
    if block is None:
        hint = did_you_mean(BLOCK, map(str, rest))
        raise InputError(f"{where} has no block {BLOCK!r}{hint}")
    _validate(rest, where)
    analysis = Analysis(rest, Settings.of(block, [s["Name"] for s in rest["Samples"] if not s.get("Data", False)]))
    _check_regions(analysis)
    _check_samples(analysis)
    _check_systematics(analysis)
    return analysis


def _parsed(path: Path) -> Any:
    yaml = need("yaml")
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as err:
        raise InputError(f"{path} cannot be read: {getattr(err, 'strerror', None) or err}") from err
    try:
        content = yaml.safe_load(text)
        _demand_small(content)
    except yaml.YAMLError as err:
        raise InputError(f"{path} is not YAML: {shortened(' '.join(str(err).split()), 300)}") from err
    except RecursionError as err:
        raise InputError(f"{path} is not a configuration: it is nested too deeply") from err
    except ValueError as err:  # of aliases, or of a date such as 2024-99-99
        raise InputError(f"{path} is not a configuration: {err}") from err
    return content


def _demand_small(content: Any) -> None:
    """Refuse aliases that would unfold to more than any analysis has, or without end."""
    waiting, n_items = [content], 0
    while waiting:
        item = waiting.pop()
        inside = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        n_items += len(inside)
        if n_items > _MOST_ITEMS:
            raise ValueError(f"with its aliases it has more than {_MOST_ITEMS:,} items")
        waiting.extend(inside)


def _with_numbers(value: Any) -> Any:
    """Text as numbers where cabinetry wants numbers."""
    if isinstance(value, list):
        return [_with_numbers(item) for item in value]
    if isinstance(value, dict):
        return {k: numbers_in(item) if k in _NUMBERS else _with_numbers(item) for k, item in value.items()}
    return value


def _validate(rest: dict[str, Any], where: str) -> None:
    """Let cabinetry say whether it takes its part."""
    configuration = need("cabinetry").configuration
    samples = rest.get("Samples")
    given = dict(rest)
    if isinstance(samples, list) and not any(isinstance(s, dict) and s.get("Data", False) for s in samples):
        given["Samples"] = [*samples, {"Name": _name_of_data(samples), "Tree": "t", "Data": True}]
    try:
        configuration.validate(given)
    except Exception as err:  # jsonschema's, or cabinetry's own
        at = ".".join(map(str, getattr(err, "absolute_path", ())))
        said = " ".join(str(getattr(err, "message", err)).split())
        raise InputError(f"cabinetry refuses {where}{f' at {at}' if at else ''}: {shortened(said, 300)}") from err


def _name_of_data(samples: list[Any]) -> str:
    """A name for the sample of data that cabinetry wants where there is none."""
    taken = [sample.get("Name") for sample in samples if isinstance(sample, dict)]
    return next(name for name in ("Data", "Expected", *(f"Data{k}" for k in range(len(taken)))) if name not in taken)


def _check_regions(analysis: Analysis) -> None:
    names = [region["Name"] for region in analysis.regions]
    chosen = analysis.settings.region
    if chosen not in names:
        hint = did_you_mean(chosen, names) or f"; there are {', '.join(map(repr, names))}"
        raise InputError(f"the Region of the block {BLOCK} is {chosen!r}, which is no region{hint}")
    filters: dict[str | None, str] = {}
    for region in analysis.regions:
        other = filters.setdefault(region.get("Filter"), region["Name"])
        if other != region["Name"]:
            raise InputError(
                f"regions {other!r} and {region['Name']!r} have the same Filter; a fit would count events twice"
            )
        for key in ("Variable", "Binning"):
            if region["Name"] == chosen and key in region:
                raise InputError(f"region {chosen!r} gets its categories from the score: leave its {key} out")
            if region["Name"] != chosen and key not in region:
                raise InputError(f"region {region['Name']!r} needs a {key}; only {chosen!r} gets its own")
        if any(
            low >= high for low, high in zip(region.get("Binning", []), region.get("Binning", [])[1:], strict=False)
        ):
            raise InputError(f"the Binning of region {region['Name']!r} must ascend, got {region['Binning']}")
        if "RegionPath" in region:
            raise InputError(
                f"region {region['Name']!r} has a RegionPath; all regions are read from the same files, so use a Filter"
            )


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


def _check_systematics(analysis: Analysis) -> None:
    moved: set[tuple[str, str]] = set()
    for systematic in analysis.systematics:
        name, modifier = systematic["Name"], systematic.get("ModifierName", systematic["Name"])
        for sample in analysis.simulated:
            key = (modifier, sample["Name"])
            if acts(systematic, analysis.chosen, sample):
                if key in moved:
                    raise InputError(f"two systematics move sample {key[1]!r} by one modifier {modifier!r}; join them")
                moved.add(key)
        for direction in DIRECTIONS:
            template = systematic[direction]
            if systematic["Type"] == "Normalization" and "Normalization" not in template:
                raise InputError(f"systematic {name!r} has the type Normalization and no Normalization in {direction}")
            if template.get("Symmetrize") and direction == "Up":
                raise InputError(f"systematic {name!r} has Symmetrize in Up; cabinetry mirrors Up into Down only")
            if "RegionPath" in template:
                raise InputError(f"systematic {name!r} has a RegionPath, which is not supported; give its SamplePath")
