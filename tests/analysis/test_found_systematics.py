"""Systematics of a whole ntuple from one line of an analysis file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fivesigma.analysis.analysis_file import read_analysis
from fivesigma.analysis.templates import templates_of
from fivesigma.datasets.write import write_trees
from fivesigma.errors import InputError

pytest.importorskip("cabinetry")
pytest.importorskip("uproot")


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    rng, n = np.random.default_rng(0), 40
    jet = rng.exponential(50.0, n)
    nominal = {"jet_pt_NOSYS": jet, "el_pt_NOSYS": jet, "w": np.ones(n), "w_pu": np.ones(n), "number": np.arange(n)}
    varied = {
        "jet_pt_JES__1up": 1.1 * jet,
        "jet_pt_JES__1down": 0.9 * jet,
        "jet_pt_JER__1up": jet,
        "el_pt_EG__1up": jet,
    }
    weights = {"w_pu_up": 1.1 * np.ones(n), "w_pu_down": 0.9 * np.ones(n)}
    trees = [("sig", nominal | varied | weights), ("bkg", nominal | varied), ("data", nominal)]
    write_trees(tmp_path / "n.root", trees)
    return {
        "General": {
            "Measurement": "m",
            "POI": "mu",
            "InputPath": str(tmp_path / "n.root"),
            "HistogramFolder": "histograms/",
        },
        "Regions": [{"Name": "SR"}],
        "Samples": [
            {"Name": "Data", "Tree": "data", "Data": True},
            {"Name": "S", "Tree": "sig", "Weight": "w * w_pu"},
            {"Name": "B", "Tree": "bkg", "Weight": "w * w_pu"},
        ],
        "NormFactors": [{"Name": "mu", "Samples": "S", "Nominal": 1, "Bounds": [0, 10]}],
        "Fivesigma": {
            "Region": "SR",
            "Features": ["jet_pt_NOSYS"],
            "EventNumber": "number",
            "Systematics": ["*_NOSYS", "w_*_up"],
        },
    }


def test_patterns_become_systematics_of_cabinetry(given: dict[str, Any]) -> None:
    given["Systematics"] = [
        {"Name": "lumi", "Type": "Normalization", "Up": {"Normalization": 0.02}, "Down": {"Normalization": -0.02}}
    ]
    analysis = read_analysis(given)
    shape = {"Type": "NormPlusShape"}
    assert analysis.systematics[1:] == [
        shape
        | {
            "Name": "JES",
            "Up": {"Variable": "jet_pt_NOSYS = jet_pt_JES__1up"},
            "Down": {"Variable": "jet_pt_NOSYS = jet_pt_JES__1down"},
            "Samples": ["S", "B"],
        },
        shape
        | {
            "Name": "JER",
            "Up": {"Variable": "jet_pt_NOSYS = jet_pt_JER__1up"},
            "Down": {"Symmetrize": True},
            "Samples": ["S", "B"],
        },
        shape
        | {
            "Name": "pu",
            "Up": {"Weight": "w * w_pu_up"},
            "Down": {"Weight": "w * w_pu_down"},
            "Samples": ["S"],
        },
    ]  # EG moves electrons, which are not used
    found = {(t.sample, t.systematic, t.direction): t for t in templates_of(analysis)}
    assert found["S", "pu", "Up"].weight == "w * w_pu_up"
    assert ("B", "pu", "Up") not in found
    assert found["B", "JES", "Down"].replaced == (("jet_pt_NOSYS", "jet_pt_JES__1down"),)


def test_samples_with_other_weights_share_a_modifier(given: dict[str, Any]) -> None:
    given["Samples"][2] |= {"Tree": "sig", "Weight": "2 * w_pu"}
    pu = [s for s in read_analysis(given).systematics if s.get("ModifierName") == "pu"]
    assert [(s["Name"], s["Samples"], s["Up"]["Weight"]) for s in pu] == [
        ("pu_1", ["S"], "w * w_pu_up"),
        ("pu_2", ["B"], "2 * w_pu_up"),
    ]


def test_a_pattern_that_finds_nothing(given: dict[str, Any]) -> None:
    given["Fivesigma"]["Systematics"] = "v_*_up"
    with pytest.raises(InputError, match=r"no branch holds a systematic that 'v_\*_up' finds"):
        read_analysis(given)
