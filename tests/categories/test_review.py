"""Pruning, odd templates, and what HEPData gets."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fivesigma
from fivesigma import InputError, prune, write_hepdata
from fivesigma.categories.review import template_notes
from tests.rebinning.random_workspaces import random_workspace

pytestmark = pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning")  # pyhf 0.7.6 uses it


def modifiers(workspace: dict[str, Any], kind: str) -> set[tuple[str, str, str]]:
    return {
        (channel["name"], sample["name"], modifier["name"])
        for channel in workspace["channels"]
        for sample in channel["samples"]
        for modifier in sample["modifiers"]
        if modifier["type"] == kind
    }


def test_only_small_effects_are_dropped() -> None:
    workspace = random_workspace(0, (4,))
    before = copy.deepcopy(workspace)
    top, wjets = workspace["channels"][0]["samples"][1:]
    shape = next(m for m in top["modifiers"] if m["name"] == "shape0")
    nominal = np.array(top["data"])
    shape["data"] = {"hi_data": (nominal * 1.004).tolist(), "lo_data": (nominal * [1, 1, 1, 0.996]).tolist()}
    next(m for m in wjets["modifiers"] if m["name"] == "w_norm")["data"] = {"hi": 1.001, "lo": 0.9995}
    workspace["measurements"][0]["config"]["parameters"].append({"name": "w_norm", "inits": [0.0]})
    found = prune(workspace, 0.005)
    assert {row[:3] for row in found.dropped} >= {("SR0", "top", "shape0"), ("SR0", "wjets", "w_norm")}
    assert all(row.largest < 0.005 for row in found.dropped)
    for kind in ("normfactor", "lumi", "staterror", "shapesys"):
        assert modifiers(found.workspace, kind) == modifiers(before, kind)
    names = {entry["name"] for entry in found.workspace["measurements"][0]["config"]["parameters"]}
    assert names == {"lumi", "mu", "k_top"}
    assert "w_norm" in repr(found)
    assert len(prune(before, 0.0).dropped) == 0
    pytest.importorskip("pyhf").Workspace(found.workspace).model()


def test_an_effect_on_an_empty_bin_is_kept() -> None:
    data = {"hi_data": [10.0, 0.1], "lo_data": [10.0, 0.0]}
    sample = {"name": "top", "data": [10.0, 0.0], "modifiers": [{"name": "a", "type": "histosys", "data": data}]}
    assert prune({"channels": [{"name": "SR", "samples": [sample]}]}).dropped == ()


def test_a_threshold_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match=r"^the threshold of pruning must be a number from 0 to 1, got 5$"):
        prune(random_workspace(0, (4,)), 5)


def test_odd_templates_are_named() -> None:
    workspace = random_workspace(0, (4,))
    sample = workspace["channels"][0]["samples"][1]
    nominal = np.array(sample["data"])
    by_name = {modifier["name"]: modifier for modifier in sample["modifiers"]}
    by_name["staterror_SR0"]["data"][2] = 2 * nominal[2]
    by_name["shape0"]["data"] = {"hi_data": (1.1 * nominal).tolist(), "lo_data": (1.05 * nominal).tolist()}
    by_name["shape1"]["data"] = {"hi_data": nominal.tolist(), "lo_data": [0.0, *nominal[1:].tolist()]}
    notes = [note for note in template_notes(workspace) if note.startswith("SR0/top")]
    assert len(notes) == 3
    text = "\n".join(notes)
    assert "errors above its content in 1 of 4 bins" in text
    assert "'shape0' moves 4 of 4 bins to the same side" in text
    assert "'shape1' up or down leaves 1 bins empty, bin 0 first" in text
    quiet = {"name": "top", "data": [5.0], "modifiers": [{"name": "e", "type": "staterror", "data": [1.0]}]}
    assert template_notes({"channels": [{"name": "SR", "samples": [quiet]}]}) == ()


def test_a_submission_is_valid_and_holds_the_yields(tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    workspace = random_workspace(1, (4, 3))
    target = write_hepdata(workspace, tmp_path / "hepdata", comment="Toy")
    documents = list(yaml.safe_load_all(target.read_text(encoding="utf-8")))
    assert [document.get("data_file") for document in documents[1:]] == ["yields_SR0.yaml", "yields_SR1.yaml"]
    table = yaml.safe_load((target.parent / "yields_SR0.yaml").read_text(encoding="utf-8"))
    top = table["dependent_variables"][1]
    sample = workspace["channels"][0]["samples"][1]
    assert [row["value"] for row in top["values"]] == sample["data"]
    errors = next(m["data"] for m in sample["modifiers"] if m["type"] == "staterror")
    assert [row["errors"][0]["symerror"] for row in top["values"]] == errors
    assert table["dependent_variables"][-1]["header"]["name"] == "observed"
    assert json.loads((target.parent / "workspace.json").read_text(encoding="utf-8")) == workspace
    with pytest.raises(InputError, match="holds a submission already"):
        write_hepdata(workspace, target.parent)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the validator leaves files open
def test_the_submission_passes_the_validator_of_hepdata(tmp_path: Path) -> None:
    validator = pytest.importorskip("hepdata_validator.full_submission_validator")
    target = write_hepdata(random_workspace(2, (4, 3)), tmp_path / "hepdata")
    check = validator.FullSubmissionValidator()
    assert check.validate(directory=str(target.parent)), check.get_messages()


def test_to_pyhf_prunes() -> None:
    y = np.arange(400) % 2
    weight = np.where(y == 1, 0.1, 1.0)
    systematics: Any = {
        "small": (fivesigma.Varied(weight=weight * np.where(y == 0, 1.001, 1.0)), None),
        "large": (fivesigma.Varied(weight=weight * np.where(y == 0, 1.1, 1.0)), None),
    }
    found = fivesigma.categorise(np.arange(400) + 200.0 * y, y, weight, 2, systematics=systematics)
    assert {name for *_, name in modifiers(found.to_pyhf(), "histosys")} == {"small", "large"}
    assert {name for *_, name in modifiers(found.to_pyhf(prune=0.005), "histosys")} == {"large"}


def test_yields_as_latex() -> None:
    y = np.arange(400) % 2
    found = fivesigma.categorise(np.arange(400) + 200.0 * y, y, np.where(y == 1, 0.1, 1.0), 2)
    lines = found.to_latex().splitlines()
    assert lines[0] == r"\begin{tabular}{lrrrrrr}"
    assert len(lines) == 4 + 2 + 2
    assert lines[4].endswith(r"\\")
    assert lines[4].count("&") == 6


def test_the_significance_of_each_category_is_drawn_below() -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    y = np.arange(400) % 2
    found = fivesigma.categorise(np.arange(400) + 200.0 * y, y, np.where(y == 1, 0.1, 1.0), 2)
    figure, ax = plt.subplots()
    found.plot(ax, significance=True)
    assert len(figure.axes) == 2
    assert figure.axes[1].get_ylabel() == "Z"
    np.testing.assert_allclose(figure.axes[1].patches[0].get_data().values, found.by_category)
    plt.close(figure)
