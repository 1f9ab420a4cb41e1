"""The configuration for cabinetry: paths, filters and weights rewritten, the rest as it was."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from fivesigma.analysis.configuration import DIRECTIONS, Analysis
from fivesigma.analysis.layout import Layout
from fivesigma.analysis.templates import SCORE, Template

__all__ = ["NTUPLES", "cabinetry_config", "histogram_folder"]

NTUPLES = "ntuples"
_HISTOGRAMS = "histograms/"


def cabinetry_config(analysis: Analysis, templates: Sequence[Template], layout: Layout) -> dict[str, Any]:
    """Return a configuration that cabinetry takes in the folder of the analysis."""
    config = copy.deepcopy(analysis.config)
    config["General"]["InputPath"] = f"{NTUPLES}/{{SamplePath}}"
    config["General"]["HistogramFolder"] = histogram_folder(analysis)
    for region in config["Regions"]:
        name = region["Name"]
        chosen = name == analysis.settings.region
        region["Filter"] = layout.branches.conditions[layout.conditions[name]]
        region["Variable"] = SCORE if chosen else layout.branches.variables[region["Variable"]]
        region["Binning"] = layout.binning[name].tolist()
    nominal = {template.sample: template for template in templates if template.systematic is None}
    config["Samples"] = [_sample(sample, nominal.get(sample["Name"]), layout) for sample in config["Samples"]]
    if analysis.data is None:
        config["Samples"].append({"Name": layout.data_name, "Tree": layout.data_tree, "Data": True})
    if layout.expected:
        data = next(sample for sample in config["Samples"] if sample.get("Data", False))
        files = data.get("SamplePath", [])
        data["SamplePath"] = [*([files] if isinstance(files, str) else files), layout.data_file]
        data["Weight"] = layout.data_weight
        data.pop("Regions", None)  # the regions that it left out hold expected data
    if analysis.systematics:
        config["Systematics"] = [
            part for systematic in config["Systematics"] for part in _systematic(systematic, templates, nominal, layout)
        ]
    return config


def histogram_folder(analysis: Analysis) -> str:
    """Folder of cabinetry's histograms, within that of the analysis."""
    given = str(analysis.config["General"]["HistogramFolder"])
    outside = PurePath(given).is_absolute() or ".." in PurePath(given).parts or given.strip("./") == ""
    return _HISTOGRAMS if outside else given


def weight_of(template: Template, layout: Layout) -> str | None:
    """Weight of a template with the factor of the luminosity as a number."""
    if template.weight is None:
        return None if template.factor == 1.0 else repr(float(template.factor))
    text = layout.branches.weights[template.weight]
    if template.factor == 1.0:
        return text
    try:
        return repr(float(template.factor) * float(text))
    except ValueError:
        return f"{float(template.factor)!r}*({text})"


def _paths(template: Template, layout: Layout) -> str | list[str]:
    names = [layout.files[file] for file in template.files]
    return names[0] if len(names) == 1 else names


def _sample(sample: dict[str, Any], template: Template | None, layout: Layout) -> dict[str, Any]:
    if template is None:  # in no region
        return sample
    sample["SamplePath"] = _paths(template, layout)
    if "Filter" in sample:
        sample["Filter"] = layout.branches.conditions[template.condition]
    weight = weight_of(template, layout)
    if weight is not None:
        sample["Weight"] = weight
    return sample


def _systematic(
    systematic: dict[str, Any], templates: Sequence[Template], nominal: Mapping[str, Template], layout: Layout
) -> list[dict[str, Any]]:
    """One systematic, or several with one modifier if its samples need different weights or trees."""
    groups: list[tuple[dict[str, Any], list[str]]] = []
    own = [template for template in templates if template.systematic == systematic["Name"]]
    for sample in dict.fromkeys(template.sample for template in own):
        sides = {
            direction: _template(
                systematic[direction],
                next((t for t in own if (t.sample, t.direction) == (sample, direction)), None),
                nominal[sample],
                layout,
            )
            for direction in DIRECTIONS
        }
        same = next((samples for other, samples in groups if other == sides), None)
        if same is None:
            groups.append((sides, [sample]))
        else:
            same.append(sample)
    if not groups:  # a normalisation, or one that acts nowhere
        return [systematic]
    if len(groups) == 1:
        return [systematic | groups[0][0]]
    modifier = systematic.get("ModifierName", systematic["Name"])
    return [
        # The first keeps the name, by which General may fix the parameter.
        systematic
        | sides
        | {
            "Name": systematic["Name"] if k == 0 else f"{systematic['Name']}_{samples[0]}",
            "ModifierName": modifier,
            "Samples": samples,
        }
        for k, (sides, samples) in enumerate(groups)
    ]


def _template(given: dict[str, Any], template: Template | None, nominal: Template, layout: Layout) -> dict[str, Any]:
    """The variation of one sample up or down."""
    if template is None:  # mirrored by cabinetry
        return given
    out = dict(given)
    if "SamplePath" in out:
        out["SamplePath"] = _paths(template, layout)
    if "Filter" in out:
        out["Filter"] = layout.branches.conditions[template.condition]
    weight = weight_of(template, layout)
    if weight is not None and ("Weight" in out or weight != weight_of(nominal, layout)):
        out["Weight"] = weight
    if template.replaced:
        del out["Variable"]
        out["Tree"] = layout.tree_name(template)
    elif "Variable" in out:
        out["Variable"] = layout.branches.variables[out["Variable"]]
    return out
