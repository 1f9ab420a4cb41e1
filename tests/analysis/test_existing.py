"""What exists already: a score in the ntuples, a saved model, edges of an earlier round, backgrounds from data."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fivesigma
from fivesigma.analysis import Record, analyse
from fivesigma.errors import InputError
from tests.analysis.conftest import Small
from tests.analysis.ntuples import branches
from tests.analysis.test_example import template_rows

uproot = pytest.importorskip("uproot")
pytest.importorskip("cabinetry")


def run(given: dict[str, Any], out: Path, **options: Any) -> Record:
    return analyse(given, out, n_jobs=1, say=None, **options)


def with_score(small: Small, **more: Any) -> dict[str, Any]:
    given = copy.deepcopy(small.config)
    given["Fivesigma"] = {"Region": "Signal_region", "Score": "2 * x - 1", "Categories": {"Number": 2}} | more
    return given


def test_a_score_that_exists_already(small: Small, tmp_path: Path) -> None:
    given = with_score(small, EventNumber="eventNumber", Folds=2)
    record = run(given, tmp_path / "out")
    assert record["train"]["model"] == ["the score is '2 * x - 1': nothing is trained"]
    assert not (tmp_path / "out" / "model").exists()
    with uproot.open(tmp_path / "out" / "ntuples" / "ntuples.root") as file:
        found = file["signal"]["fivesigma_score"].array(library="np")
    np.testing.assert_allclose(found, 2 * branches("signal")["x"] - 1)
    events = branches("signal")
    rows = events["lep_charge"] > 0
    edges = [float(edge) for edge in record["categorise"]["edges"]["Signal_region"]]
    by_hand, _ = np.histogram((2 * events["x"] - 1)[rows], edges, weights=events["weight"][rows])
    np.testing.assert_allclose(template_rows(tmp_path / "out")["Signal_region", "Signal", "", ""], by_hand, rtol=1e-9)
    assert (tmp_path / "out" / "report.html").exists()
    # Without event numbers the number of the entry makes the folds.
    again = run(with_score(small), tmp_path / "again")
    assert again["categorise"]["edges"] == record["categorise"]["edges"]


def test_a_varied_score(small: Small, tmp_path: Path) -> None:
    given = with_score(small, Score="jet_pt")
    given["Systematics"][1]["Up"] = {"Variable": "jet_pt = jet_pt_up"}
    run(given, tmp_path / "out")
    with uproot.open(tmp_path / "out" / "ntuples" / "ntuples.root") as file:
        found = file["background__jet_pt_jet_pt_up"]["fivesigma_score"].array(library="np")
    np.testing.assert_allclose(found, branches("background")["jet_pt_up"])


def test_a_saved_model(small: Small, tmp_path: Path) -> None:
    given = copy.deepcopy(small.config)
    given["Fivesigma"] |= {"Model": str(small.out / "model")}
    for key in ("Features", "ModelOptions"):
        del given["Fivesigma"][key]
    record = run(given, tmp_path / "out")
    assert "from" in record["train"]["model"][0]
    for key in ("edges", "cross_fitted"):
        assert record["categorise"][key] == small.record["categorise"][key]


def test_edges_of_an_earlier_round(small: Small, tmp_path: Path) -> None:
    given = copy.deepcopy(small.config)
    given["Fivesigma"]["Categories"] = {"Edges": [0.1, 0.4, 0.8]}
    found = run(given, tmp_path / "out")["categorise"]
    assert found["edges"] == {"Signal_region": [0.1, 0.4, 0.8]}
    assert found["cross_fitted"] == found["in_sample"]
    assert len(found["s"]["Signal_region"]) == 2
    assert any("at or above the last edge" in note for note in found["notes"])


def test_a_training_that_knows_the_systematics(small: Small, tmp_path: Path) -> None:
    given = copy.deepcopy(small.config)
    given["NormFactors"].append({"Name": "bkg", "Samples": "Background", "Regions": "Signal_region"})
    given["Fivesigma"] |= {"Model": "profiled", "ModelOptions": {"n_trees": 8}}
    record = run(given, tmp_path / "out")
    model = fivesigma.load(tmp_path / "out" / "model")
    assert set(model.pulls_) >= {"Luminosity", "Modeling", "Weighting", "bkg"}
    assert np.isfinite(record["categorise"]["cross_fitted"]["significance"])
    given["Systematics"][2]["Up"]["Weight"] = "1.3*weight"
    done = run(given, tmp_path / "out").steps
    assert done["train"].ran


def test_a_background_from_data(small: Small, tmp_path: Path) -> None:
    """Data of another selection, with a weight: blinding holds for the events of the chosen region alone."""
    given = copy.deepcopy(small.config)
    fakes = {"Name": "Fakes", "Tree": "pseudodata", "Filter": "lep_charge < 0 && n_jets > 3", "Weight": "0.3"}
    given["Samples"].append(fakes | {"Regions": "Signal_region"})
    record = run(given, tmp_path / "out")
    data = branches("data", 600)
    rows = {(row["region"], row["sample"]): row for row in record["read"]["yields"]}
    n = int(((data["lep_charge"] < 0) & (data["n_jets"] > 3)).sum())
    assert rows["Signal_region", "Fakes"]["entries"] == n
    assert rows["Signal_region", "Fakes"]["yield"] == pytest.approx(0.3 * n)
    assert ("Signal_region", "Data") not in rows
    given["Samples"][-1]["Filter"] = "n_jets > 3"
    with pytest.raises(InputError, match=r"data of the blinded region 'Signal_region' are in region .*'Fakes'"):
        run(given, tmp_path / "blind", only="read")
    del given["Samples"][-1]["Filter"]
    with pytest.raises(InputError, match="data of the blinded region"):
        run(given, tmp_path / "blind", only="read")


@pytest.mark.parametrize(
    ("block", "sentence"),
    [
        ({"Score": "x", "Model": "grown"}, "has both Score and Model"),
        ({"Score": "x", "Features": ["x"]}, "has both Score and Features"),
        ({"Model": "grwn", "Features": ["x"], "EventNumber": "eventNumber"}, "or a folder, got 'grwn'; did you mean"),
        ({"Features": ["x"]}, "needs the key 'EventNumber'"),
        ({"EventNumber": "eventNumber"}, "needs the key 'Features'"),
        ({"Score": "x", "Categories": {"Edges": [0, 1], "Number": 2}}, "both Edges and a Number"),
        ({"Score": "x", "Categories": {"Edges": [1, 0]}}, "must ascend"),
        ({"Score": "1 / (x - x)"}, "is not finite"),
        ({"Score": "nn"}, "no column 'nn'"),
    ],
    ids=["model", "features", "name", "number", "nothing", "edges", "order", "infinite", "branch"],
)
def test_too_much_or_too_little(small: Small, tmp_path: Path, block: dict[str, Any], sentence: str) -> None:
    given = copy.deepcopy(small.config)
    given["Fivesigma"] = {"Region": "Signal_region"} | block
    with pytest.raises(InputError, match=sentence):
        run(given, tmp_path / "out", only="read")
