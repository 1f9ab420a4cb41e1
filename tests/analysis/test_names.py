"""Names of regions, samples and systematics: whatever they are, the workspace is what was filled."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fivesigma.analysis import Record, analyse
from fivesigma.analysis.analysis_file import read_analysis
from fivesigma.analysis.cabinetry_workspace import SafeNames, check_workspace
from fivesigma.analysis.histograms import Histograms, read_histograms
from fivesigma.errors import InputError
from tests.analysis.conftest import Small

pytest.importorskip("cabinetry")


def rename(old: str, new: str) -> Callable[[Any], Any]:
    """Rename one thing wherever it is named."""

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: renamed(item) for key, item in value.items()}
        if isinstance(value, list):
            return [renamed(item) for item in value]
        return new if value == old else value

    return renamed


def run(given: dict[str, Any], out: Path, **options: Any) -> Record:
    return analyse(given, out, n_jobs=1, say=None, **options)


@pytest.mark.parametrize(
    "names",
    [
        {"Control_region": "CR.1"},
        {"Signal": "Sherpa2.1", "Background": "Sherpa2.2"},
        {"Background": "bkg.v1"},
        {"Weighting": "Weighting.1"},
        {"Signal": "V H", "Background": "V-H"},
        {"Background": "Signal_modified"},
        {"Control_region": "/x/abs", "Signal_region": "../../../escape"},
        {"Background": "a/b\0c" + "d" * 300, "Modeling": "é<b>\n"},
    ],
    ids=["dot", "two dots", "dot of a sample", "dot of a systematic", "blank", "ending", "paths", "odd"],
)
def test_the_workspace_has_the_same_numbers_by_any_name(small: Small, tmp_path: Path, names: dict[str, str]) -> None:
    given = copy.deepcopy(small.config)
    for old, new in names.items():
        given = rename(old, new)(given)
    record = run(given, tmp_path / "out")
    assert record["workspace"]["significance"] == pytest.approx(small.record["workspace"]["significance"], abs=1e-6)
    numbers = [
        sorted(json.dumps(sample["data"]) for channel in workspace["channels"] for sample in channel["samples"])
        for workspace in (json.loads((out / "workspace.json").read_text()) for out in (small.out, tmp_path / "out"))
    ]
    assert numbers[0] == numbers[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    assert all(path.is_file() for path in (tmp_path / "out" / "histograms").iterdir())
    assert any("in cabinetry.yml and workspace.json" in note for note in record["workspace"]["notes"])


def test_names_that_cabinetry_would_join_alike() -> None:
    names = SafeNames(["SR", "SR_x"], ["x_y", "y"], ["s", "s_Up"])
    files = [f"{r}_{s}" for r in names.regions.values() for s in names.samples.values()]
    assert len(set(files)) == 4
    assert SafeNames(["SR"], ["A"], ["syst_1"]).systematics == {"syst_1": "syst_1"}
    assert SafeNames(["SR"], ["a", "A"], []).samples == {"a": "a", "A": "A-2"}  # for file systems without case


def spoiled(workspace: dict[str, Any], kind: str) -> dict[str, Any]:
    """One number of a workspace changed, or one modifier gone."""
    out = copy.deepcopy(workspace)
    sample = next(s for s in out["channels"][1]["samples"] if s["name"] == "Background")
    modifiers = {(m["type"], m["name"]): m for m in sample["modifiers"]}
    if kind == "yield":
        sample["data"][2] *= 1.001
    elif kind == "error":
        next(m for (t, _), m in modifiers.items() if t == "staterror")["data"][0] *= 2
    elif kind == "norm":
        modifiers["normsys", "Weighting"]["data"]["hi"] = 1.0
    elif kind == "shape":
        modifiers["histosys", "Modeling"]["data"]["hi_data"][0] *= 1.1
    elif kind == "lost":
        sample["modifiers"] = [m for m in sample["modifiers"] if m["name"] != "Weighting"]
    elif kind == "free":
        sample["modifiers"].append({"name": "new", "type": "normfactor", "data": None})
    elif kind == "data":
        out["observations"][1]["data"][0] += 1
    else:
        out["channels"][1]["samples"].pop()
    return out


@pytest.mark.parametrize("kind", ["yield", "error", "norm", "shape", "lost", "free", "data", "sample"])
def test_a_workspace_with_one_other_number_is_refused(small: Small, kind: str) -> None:
    histograms: Histograms = read_histograms(small.out / "control.npz") | read_histograms(small.out / "chosen.npz")
    workspace = json.loads((small.out / "workspace.json").read_text())
    filled = histograms["Signal_region", "Signal", None, None]
    expected = filled.yields + histograms["Signal_region", "Background", None, None].yields
    histograms["Signal_region", "Data", None, None] = filled._replace(yields=expected)
    config = read_analysis(small.config).config
    check_workspace(workspace, config, histograms)
    with pytest.raises(InputError, match="workspace"):
        check_workspace(spoiled(workspace, kind), config, histograms)


def test_smoothed_variations_keep_their_totals(small: Small, tmp_path: Path) -> None:
    given = copy.deepcopy(small.config)
    given["Systematics"][2]["Smoothing"] = {"Algorithm": "353QH, twice", "Regions": "Control_region"}
    record = run(given, tmp_path / "out")
    assert np.isfinite(record["workspace"]["significance"])
