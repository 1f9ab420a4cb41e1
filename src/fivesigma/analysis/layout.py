"""What the ntuples of an analysis look like: files, trees, branches, and where the data of each region come from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fivesigma._types import Array
from fivesigma.analysis.branches import Branches
from fivesigma.analysis.configuration import Analysis, holds
from fivesigma.analysis.templates import Template, Tree, condition_of
from fivesigma.errors import InputError

__all__ = ["ABOVE", "Layout", "layout_of"]

# Scores lie between 0 and 1, and cabinetry drops what lies at or above the last edge.
ABOVE = 1.01


@dataclass(frozen=True, eq=False)
class Layout:
    """Names of everything in the ntuples.

    Attributes
    ----------
    files : dict of Path to str
        Output by input.
    branches : Branches
    conditions : dict of str to str
        Condition of each region.
    binning : dict of str to array
        Edges of each region, all finite.
    expected : tuple of str
        Regions whose data are expected ones, not filled from real data.
    blind : str or None
        Region whose real data are hidden.
    data_name, data_tree, data_weight, data_file : str
        Sample of data, its tree, the branch of its weight where there are expected data, and the file of those.
    friends : bool
    """

    files: dict[Path, str]
    branches: Branches
    conditions: dict[str, str]
    binning: dict[str, Array]
    expected: tuple[str, ...]
    blind: str | None
    data_name: str
    data_tree: str
    data_weight: str
    data_file: str
    friends: bool

    def tree_name(self, template: Template) -> str:
        """Tree of a template in the ntuples; replaced branches make a tree of their own."""
        return "__".join([template.tree, *(f"{old}_{new}" for old, new in template.replaced)])


def layout_of(analysis: Analysis, templates: Sequence[Template], edges: Array, *, blind: bool, friends: bool) -> Layout:
    """Lay out the ntuples.

    Parameters
    ----------
    analysis, templates
        The analysis and all its templates.
    edges : array
        Edges of the chosen region, of which the first and the last may be infinite.
    blind : bool
        Whether real data in the chosen region are hidden.
    friends : bool
        Whether the ntuples hold new branches alone.
    """
    data, regions = analysis.data, analysis.regions
    conditions = {
        region["Name"]: condition_of(analysis.settings.preselection, region.get("Filter")) for region in regions
    }
    finite = np.array(edges, dtype=np.float64)
    finite[0], finite[-1] = max(finite[0], 0.0), min(finite[-1], ABOVE)
    binning = {
        region["Name"]: finite
        if region["Name"] == analysis.settings.region
        else np.array(region["Binning"], dtype=np.float64)
        for region in regions
    }
    filled = [region["Name"] for region in regions if data is not None and holds(region, data)]
    hidden = analysis.settings.region if blind and analysis.settings.region in filled else None
    if hidden is not None and data is not None:
        _check_blinding(data["Name"], "Filter" in data, templates)
    branches = Branches(templates, conditions, friends=friends)
    names = _names(templates)
    return Layout(
        files=names,
        branches=branches,
        conditions=conditions,
        binning=binning,
        expected=tuple(name for name in conditions if name not in filled or name == hidden),
        blind=hidden,
        data_name=_free("Data", [s["Name"] for s in analysis.simulated]) if data is None else data["Name"],
        data_tree="expected" if data is None else data["Tree"],
        data_weight=branches.reserve("fivesigma_weight_data"),
        data_file=_free("expected_data.root", names.values()),
        friends=friends,
    )


def by_tree(templates: Sequence[Template]) -> dict[Path, dict[Tree, list[Template]]]:
    """Templates by the files and trees that they read."""
    found: dict[Path, dict[Tree, list[Template]]] = {}
    for template in templates:
        for tree in template.trees:
            found.setdefault(tree.file, {}).setdefault(tree, []).append(template)
    return found


def _check_blinding(name: str, has_filter: bool, templates: Sequence[Template]) -> None:
    if has_filter:
        raise InputError(
            f"sample {name!r} has a Filter, which replaces that of every region, so that no region can be blinded: "
            "leave it out, or unblind"
        )
    own = {tree for template in templates if template.is_data for tree in template.trees}
    if any(tree in own for template in templates if not template.is_data for tree in template.trees):
        raise InputError(f"a simulated sample is read from the tree of {name!r}, so that no region can be blinded")


def _names(templates: Sequence[Template]) -> dict[Path, str]:
    """Names of the outputs: those of the inputs, with a number where folders hold files of one name."""
    found: dict[Path, str] = {}
    for template in templates:
        for file in template.files:
            if file not in found:
                found[file] = _free(file.name, found.values())
    return found


def _free(name: str, taken: Iterable[str]) -> str:
    known = set(taken)
    stem, dot, ending = name.partition(".")
    return next(
        free for free in (name, *(f"{stem}_{k}{dot}{ending}" for k in range(2, len(known) + 3))) if free not in known
    )
