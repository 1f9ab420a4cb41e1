"""The analysis file: a cabinetry configuration with one block of ours, read and checked.

YAML is data here: nothing of it runs, no key stands twice, and a small file stays small when its aliases are unfolded.
"""

from __future__ import annotations

import copy
import fnmatch
import math
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import Any

from fivesigma._tools.extras import need
from fivesigma._tools.files import read_text
from fivesigma.analysis.configuration import DIRECTIONS, SCORE, Analysis, acts, listed, modifier_of, name_of_data
from fivesigma.analysis.settings import BLOCK, AnalysisSettings
from fivesigma.analysis.templates import found_systematics
from fivesigma.errors import InputError, did_you_mean, require_known, shortened

_MOST_BYTES = 1_000_000
_MOST_ITEMS = 100_000  # aliases unfolded
_MOST_MERGED = 1_000  # keys of one mapping after `<<`
# YAML 1.1 takes 1e6 for text, because it has no dot.
_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")


def read_analysis(config: str | os.PathLike[str] | Mapping[str, Any]) -> Analysis:
    """Read and check an analysis file, or the same as a mapping."""
    where, content = "the configuration", config
    if not isinstance(config, Mapping):
        where, content = str(config), read_yaml(Path(config))
    if not isinstance(content, Mapping):
        raise InputError(f"{where} must be a mapping of keys to values, as cabinetry reads it")
    _check_plain(content, where)
    rest = copy.deepcopy(dict(content))
    block = rest.pop(BLOCK, None)
    if block is None:
        raise InputError(f"{where} has no block {BLOCK!r}{did_you_mean(BLOCK, map(str, rest))}")
    _let_cabinetry_check(rest, where)
    settings = AnalysisSettings.read(block)
    if settings.systematics:
        rest["Systematics"] = [*(rest.get("Systematics") or []), *found_systematics(Analysis(rest, settings))]
        _let_cabinetry_check(rest, where)
    names = [region["Name"] for region in rest["Regions"]]
    validation = dict.fromkeys(name for text in settings.validation for name in fnmatch.filter(names, text) or [text])
    by_region = settings.saved is not None and any(Path(settings.saved).glob(f"{SCORE}_*"))  # models of `Train: each`
    train = "each" if by_region else settings.train
    analysis = Analysis(rest, replace(settings, validation=tuple(validation), train=train))
    _check_names(analysis)
    _check_regions(analysis)
    _check_samples(analysis)
    if analysis.settings.model is None:
        places = [(r["Name"], s["Name"]) for r in analysis.chosen for s in analysis.samples_in(r)]
        # NormFactors do not decide, so that a new one does not train again.
        model = "profiled" if analysis.variations(analysis.chosen, places) else "auto"
        analysis = Analysis(rest, replace(analysis.settings, model=model))
    _check_cross_sections(analysis)
    _check_systematics(analysis)
    return analysis


def read_yaml(path: Path) -> Any:
    """Read a YAML file of mappings, lists, text, numbers and truths."""
    yaml = need("yaml")
    try:
        return yaml.load(read_text(path, _MOST_BYTES), Loader=_loader())
    except (OSError, UnicodeDecodeError) as err:
        raise InputError(f"{path} cannot be read: {getattr(err, 'strerror', None) or err}") from err
    except yaml.YAMLError as err:
        raise InputError(f"{path} is not YAML: {shortened(' '.join(str(err).split()), 300)}") from err
    except (InputError, ValueError, RecursionError) as err:  # a key twice, a date that is none, too many brackets
        why = "it is nested too deeply" if isinstance(err, RecursionError) else shortened(str(err), 200)
        raise InputError(f"{path} is not a configuration: {why}") from err


@cache
def _loader() -> Any:
    """PyYAML's safe loader, with 1e6 as a number, that refuses keys which stand twice.

    It is the one in Python: that in C ends the process where text is nested deeply.
    """

    class Loader(need("yaml").SafeLoader):  # type: ignore[misc]  # a base that is known at run time
        def flatten_mapping(self, node: Any) -> None:
            """Merge what ``<<`` names; a mapping that others merge comes here again, with keys that it overrides."""
            lines: dict[str, int] = {}
            for key, _ in () if hasattr(node, "flat") else node.value:
                name, line = str(key.value), key.start_mark.line + 1
                if name in lines:
                    twice = f"the key {shortened(repr(name))} stands twice"
                    raise InputError(f"{twice}, in lines {lines[name]} and {line}; join them")
                lines[name] = line
            node.flat = True
            super().flatten_mapping(node)
            if len(node.value) > _MOST_MERGED:
                raise InputError(f"a mapping has more than {_MOST_MERGED:,} keys")

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("+-.0123456789"))
    return Loader


def _check_plain(content: Any, where: str) -> None:
    """Refuse what is neither a mapping, a list, text, a finite number nor a truth, and more than any analysis has."""
    waiting, n_items, odd = [content], 0, ""
    while waiting and not odd:
        item = waiting.pop()
        inside: Collection[Any] = ()
        if isinstance(item, Mapping):
            inside = item.values()
            others = [key for key in item if not isinstance(key, str)]
            odd = f"the key {shortened(repr(others[0]))} is not text; put it in quotes" if others else ""
        elif isinstance(item, list):
            inside = item
        elif not isinstance(item, bool | str | int | float | None):
            odd = f"{shortened(repr(item))} is neither text nor a number; put it in quotes"
        elif isinstance(item, int) and item.bit_length() > 64:
            odd = "a whole number has more than 64 bits, which is too large"
        elif isinstance(item, float) and not math.isfinite(item):
            odd = f"the number {item} is not finite"
        n_items += len(inside)
        if n_items > _MOST_ITEMS:
            odd = f"with its aliases it has more than {_MOST_ITEMS:,} items"
        waiting.extend(inside)
    if odd:
        raise InputError(f"{where} cannot be used: {odd}")


def _let_cabinetry_check(rest: dict[str, Any], where: str) -> None:
    given, samples = dict(rest), rest.get("Samples")
    named = isinstance(samples, list) and all(isinstance(s, dict) and "Name" in s for s in samples)
    if samples is not None and named and not any(sample.get("Data", False) for sample in samples):
        given["Samples"] = [*samples, {"Name": name_of_data(samples), "Tree": "t", "Data": True}]
    try:
        need("cabinetry").configuration.validate(given)
    except Exception as err:  # jsonschema's, or cabinetry's own
        at = ".".join(map(str, getattr(err, "absolute_path", ())))
        said = " ".join(str(getattr(err, "message", err)).split())
        raise InputError(f"cabinetry refuses {where}{f' at {at}' if at else ''}: {shortened(said, 300)}") from err


def _check_names(analysis: Analysis) -> None:
    """Refuse a name that is that of no region, sample or parameter: what it belongs to would act nowhere."""
    config, systematics, factors = analysis.config, analysis.systematics, analysis.config["NormFactors"]
    known = {key: [item["Name"] for item in config[key]] for key in ("Regions", "Samples")}
    named = [(f"sample {sample['Name']!r}", {"Regions": sample.get("Regions")}) for sample in config["Samples"]]
    named += [(f"NormFactor {factor['Name']!r}", factor) for factor in factors]
    named += [(f"systematic {systematic['Name']!r}", systematic) for systematic in systematics]
    named += [(f"the Smoothing of systematic {s['Name']!r}", s["Smoothing"]) for s in systematics if "Smoothing" in s]
    for (what, item), key in product(named, known):
        for name in listed(item.get(key) or []):
            kind = key[:-1].lower()
            require_known(name, known[key], f"{what} names the {kind} {shortened(repr(name))}, which is not there")
    for key in (*known, "Systematics") if analysis.settings.combine else ():
        plain: dict[str, str] = {}
        for name in [item["Name"] for item in config.get(key) or []]:
            other = plain.setdefault(re.sub(r"\W+", "_", name, flags=re.ASCII), name)
            if other != name or not name[0].isalpha():
                raise InputError(
                    f"the {key} cannot be named in a datacard of combine: names begin with a letter and differ in "
                    f"letters and digits, but there are {other!r} and {name!r}; rename them, or leave Combine out"
                )
    inside = [(region, sample) for region in analysis.fitted for sample in analysis.samples_in(region)]
    for what, item in named[len(config["Samples"]) :]:
        if not any(acts(item, region, sample) for region, sample in inside):
            raise InputError(f"{what} changes no simulated sample in any region of the fit; check Samples and Regions")
    modifiers = {s["Name"]: modifier_of(s) for s in systematics}
    for name, value in analysis.fixed.items():
        require_known(
            name, [f["Name"] for f in factors] + [*modifiers], f"the block General fixes {name!r}, which is not there"
        )
        if modifiers.get(name, name) != name:
            raise InputError(f"the block General fixes {name!r}, but its parameter is called {modifiers[name]!r}")
        if name in modifiers and value != 0.0:
            raise InputError(f"the block General fixes the systematic {name!r} at {value:g}; only 0 is supported")
    if config["General"].get("POI", "") in analysis.fixed:
        raise InputError(f"the block General fixes the POI {config['General']['POI']!r}; leave it free")


def _check_regions(analysis: Analysis) -> None:
    names, settings = [region["Name"] for region in analysis.regions], analysis.settings
    path = analysis.config["General"]["InputPath"]
    if ".root:" in path and settings.input_path is None:
        raise InputError(
            f"the InputPath {path!r} leads to histograms, and categories are made of events: give an InputPath of "
            f"ntuples, and their Tree, in the block {BLOCK}"
        )
    for key, own in (("Region", settings.region), ("Validation", settings.validation)):
        for name in own:
            require_known(name, names, f"the {key} of the block {BLOCK} is {name!r}, which is no region")
    both = set(settings.region) & set(settings.validation)
    if both:
        raise InputError(f"region {both.pop()!r} is both Region and Validation; only what is not fitted validates")
    if len(analysis.models) < len(settings.region) and settings.each:
        raise InputError("the names of two regions differ in punctuation alone, so that their scores have one name")
    filters: dict[tuple[str | None, str | None], str] = {}
    for region in analysis.fitted:
        # Written alike but for blanks; what overlaps otherwise is counted when events are read.
        text = re.sub(r"\s+", "", region["Filter"]) if "Filter" in region else None
        other = filters.setdefault((text, region.get("RegionPath")), region["Name"])
        if other != region["Name"]:
            both_names = f"{other!r} and {region['Name']!r}"
            raise InputError(f"regions {both_names} have the same Filter; a fit would count events twice")
    for region in analysis.regions:
        for key in ("Variable", "Binning"):
            if region["Name"] not in settings.region and key not in region and not analysis.is_filled(region):
                raise InputError(f"region {region['Name']!r} needs a {key}; only {settings.region[0]!r} gets its own")
        if any(low >= high for low, high in pairwise(region.get("Binning", []))):
            raise InputError(f"the Binning of region {region['Name']!r} must ascend, got {region['Binning']}")


def _check_samples(analysis: Analysis) -> None:
    poi = analysis.config["General"].get("POI", "")
    factors = [factor["Name"] for factor in analysis.config["NormFactors"]]
    require_known(poi, factors, f"the block General needs a POI that is one of the NormFactors, got {poi!r}")
    for sample in analysis.config["Samples"]:
        if "Tree" not in sample and analysis.settings.tree is None:
            raise InputError(f"sample {sample['Name']!r} needs a Tree, or the block {BLOCK} one for all samples")
    for region in analysis.chosen:
        inside = analysis.samples_in(region)
        signal = [sample["Name"] for sample in inside if acts(analysis.poi, region, sample)]
        if not signal or len(signal) == len(inside):
            what = f"{poi!r} scales {'every' if signal else 'no'} sample in region {region['Name']!r}"
            raise InputError(f"{what}; name the signal in its Samples, and leave a background")
        odd = [s["Name"] for s in inside if s["Name"] in analysis.signal and s["Name"] not in signal]
        if odd:
            raise InputError(f"{poi!r} scales sample {odd[0]!r} in some of the chosen regions only")


def _check_cross_sections(analysis: Analysis) -> None:
    given, names = analysis.settings.cross_sections, [sample["Name"] for sample in analysis.simulated]
    for name in given:
        require_known(name, names, f"CrossSections has the unknown key {name!r}")
    lacking = [name for name in names if name not in given]
    if given and lacking:
        raise InputError(
            f"sample {lacking[0]!r} has no cross section where others have one: give it, or write '{lacking[0]}: null' "
            "in CrossSections if its weights are right as they are"
        )
    if analysis.settings.luminosity is not None and not any(given.values()):
        raise InputError("the Luminosity changes nothing without CrossSections; give both or none")


def _check_systematics(analysis: Analysis) -> None:
    for region, sample in ((r, s) for r in analysis.regions for s in analysis.samples_in(r)):
        own = [systematic for systematic in analysis.systematics if acts(systematic, region, sample)]
        for first, second in combinations(own, 2):
            if modifier_of(first) == modifier_of(second):
                raise InputError(
                    f"two systematics move sample {sample['Name']!r} in region {region['Name']!r} by one modifier "
                    f"{modifier_of(first)!r}: {first['Name']!r} and {second['Name']!r}; join them"
                )
    for systematic, direction in product(analysis.systematics, DIRECTIONS):
        what, template = f"systematic {systematic['Name']!r}", systematic[direction]
        if systematic["Type"] == "Normalization" and not -1 < template.get("Normalization", -1) <= 10:
            got = template.get("Normalization")
            raise InputError(f"the Normalization of {what} {direction} must be above -1 and at most 10, got {got}")
        if template.get("Symmetrize") and direction == "Up":
            raise InputError(f"{what} has Symmetrize in Up; cabinetry mirrors Up into Down only")
