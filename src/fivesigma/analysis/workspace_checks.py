"""Whether a workspace is what was filled, and what is odd in its bins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fivesigma._types import Array
from fivesigma.analysis.cabinetry_workspace import SafeNames
from fivesigma.analysis.configuration import DIRECTIONS, Analysis, acts, holds
from fivesigma.analysis.histograms import Histograms
from fivesigma.analysis.templates import Template
from fivesigma.errors import InputError, shortened

__all__ = ["check_relative", "check_workspace", "notes_on_bins", "notes_on_variations"]


def check_workspace(workspace: dict[str, Any], analysis: Analysis, names: SafeNames, histograms: Histograms) -> None:
    """Refuse a workspace whose numbers are not those that we filled: every sample, variation, error and observation."""
    channels = {channel["name"]: channel["samples"] for channel in workspace["channels"]}
    observed = {item["name"]: item["data"] for item in workspace["observations"]}
    data = next(name for name in names.samples if name not in {sample["Name"] for sample in analysis.simulated})
    for region in analysis.regions:
        name = names.regions[region["Name"]]
        _same(observed[name], histograms[region["Name"], data, None, None].yields, f"the data of region {name!r}")
        samples = {sample["name"]: sample for sample in channels[name]}
        inside = [sample for sample in analysis.simulated if holds(region, sample)]
        if samples.keys() != {names.samples[sample["Name"]] for sample in inside}:
            raise InputError(f"region {name!r} of the workspace has other samples than the configuration")
        for sample in inside:
            found = samples[names.samples[sample["Name"]]]
            _check_sample(found, analysis, region, sample, names=names, histograms=histograms)


def _check_sample(
    found: dict[str, Any],
    analysis: Analysis,
    region: dict[str, Any],
    sample: dict[str, Any],
    *,
    names: SafeNames,
    histograms: Histograms,
) -> None:
    where = f"sample {sample['Name']!r} in region {region['Name']!r}"
    nominal = histograms[region["Name"], sample["Name"], None, None]
    modifiers = {(m["type"], m["name"]): m["data"] for m in found["modifiers"]}
    _same(found["data"], nominal.yields, where)
    expected = set()
    for (kind, name), values in modifiers.items():
        if kind == "staterror":
            _same(values, np.sqrt(nominal.squares), f"the error of {where}")
            expected.add((kind, name))
    if len(expected) == bool(sample.get("DisableStaterror", False)):
        raise InputError(f"the workspace has other statistical errors of {where} than the configuration")
    expected |= {("normfactor", f["Name"]) for f in analysis.config["NormFactors"] if acts(f, region, sample)}
    for systematic in analysis.systematics:
        if not acts(systematic, region, sample):
            continue
        name = systematic.get("ModifierName", names.systematics[systematic["Name"]])
        what = f"systematic {systematic['Name']!r} of {where}"
        expected.add(("normsys", name))
        if ("normsys", name) not in modifiers:
            raise InputError(f"the workspace lacks {what}")
        total = modifiers["normsys", name]
        if systematic["Type"] == "Normalization":
            given = [1 + systematic[direction]["Normalization"] for direction in DIRECTIONS]
            _same([total["hi"], total["lo"]], given, what)
            continue
        if len(nominal.yields) > 1:
            expected.add(("histosys", name))
        shapes = modifiers.get(("histosys", name), {"hi_data": found["data"], "lo_data": found["data"]})
        smoothed = _is_smoothed(systematic, region, sample)
        for direction, factor, side in zip(DIRECTIONS, ("hi", "lo"), ("hi_data", "lo_data"), strict=True):
            key = (region["Name"], sample["Name"], systematic["Name"], direction)
            if key not in histograms:  # mirrored: cabinetry mirrors norm and shape each by itself
                continue
            ours = histograms[key].yields
            _same([total[factor] * sum(nominal.yields)], [sum(ours)], f"the total of {what} {direction}")
            if not smoothed:
                _same(total[factor] * np.array(shapes[side]), ours, f"{what} {direction}")
    if expected != modifiers.keys():
        odd = sorted(name for _, name in expected.symmetric_difference(modifiers))
        raise InputError(f"the workspace has other parameters of {where} than the configuration: {', '.join(odd)}")


def _is_smoothed(systematic: Mapping[str, Any], region: Mapping[str, Any], sample: Mapping[str, Any]) -> bool:
    smoothing = systematic.get("Smoothing")
    return smoothing is not None and acts(smoothing, region, sample)


def _same(found: Any, ours: Any, what: str) -> None:
    if not np.allclose(found, ours, rtol=1e-9, atol=1e-12):
        raise InputError(
            f"the workspace is not what was filled: {what} is {shortened(str(list(found)))} where "
            f"{shortened(str(list(ours)))} was filled; please report this"
        )


def check_relative(templates: Sequence[Template], histograms: Histograms) -> None:
    """Refuse what cabinetry would divide by: a varied sample without a yield in the bins."""
    for template in templates:
        if template.systematic is None or template.key not in histograms:
            continue
        for key in ((*template.key[:2], None, None), template.key):
            total = histograms[key].yields.sum()
            if not total > 0:
                what = template.owner if key == template.key else f"sample {template.sample!r}"
                raise InputError(
                    f"{what} has a yield of {total:g} in the categories of region {template.region!r}, so that "
                    f"systematic {template.systematic!r} has no relative size there: leave it out with Samples or "
                    "Regions"
                )


def notes_on_bins(histograms: Histograms, said: Sequence[str]) -> list[str]:
    """Bins without events and with negative yields, one line for each region and sample; and what else was said."""
    notes = []
    for what, wrong in (("no yield", np.equal), ("a negative yield", np.less)):
        found: dict[tuple[str, str], set[int]] = {}
        n_templates: dict[tuple[str, str], int] = {}
        for (region, sample, _, _), filled in histograms.items():
            bins = np.flatnonzero(wrong(filled.yields, 0.0)).tolist()
            if bins:
                found.setdefault((region, sample), set()).update(bins)
                n_templates[region, sample] = n_templates.get((region, sample), 0) + 1
        for (region, sample), places in found.items():
            n, bins_text = n_templates[region, sample], ", ".join(map(str, sorted(places)))
            notes.append(
                f"{sample!r} has {what} in bin{'s' * (len(places) > 1)} {bins_text} of region {region!r}"
                f"{f' ({n} templates)' * (n > 1)}"
            )
    others = [text for text in said if "empty bins" not in text and "stat. unc." not in text]
    return [*notes, *(f"cabinetry: {text}" for text in dict.fromkeys(others))]


def notes_on_variations(histograms: Histograms) -> list[str]:
    """Systematics whose histograms are the nominal ones, or the same up and down."""
    by_name: dict[str, dict[str, list[bool]]] = {}
    for (region, sample, systematic, direction), filled in histograms.items():
        if systematic is None:
            continue
        found = by_name.setdefault(systematic, {"nominal": [], "alike": []})
        found["nominal"].append(_equal(filled.yields, histograms[region, sample, None, None].yields))
        down = histograms.get((region, sample, systematic, "Down"))
        if direction == "Up" and down is not None:
            found["alike"].append(_equal(filled.yields, down.yields))
    notes = []
    for name, found in by_name.items():
        if all(found["nominal"]):
            notes.append(f"systematic {name!r} is the nominal sample in every bin: it changes nothing")
        elif found["alike"] and all(found["alike"]):
            notes.append(f"systematic {name!r} is the same up and down in every bin")
    return notes


def _equal(first: Array, second: Array) -> bool:
    return bool(np.allclose(first, second, rtol=1e-12, atol=0.0))
