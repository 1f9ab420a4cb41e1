"""What exists already: a score in the ntuples, a saved model, edges of an earlier round, backgrounds from data."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fivesigma
from fivesigma.analysis import Record, analyse
from fivesigma.datasets.write import write_trees
from fivesigma.errors import InputError
from tests.analysis.conftest import Small
from tests.analysis.ntuples import branches
from tests.analysis.test_example import template_rows

uproot = pytest.importorskip("uproot")
yaml = pytest.importorskip("yaml")
cabinetry = pytest.importorskip("cabinetry")


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

    # The number that makes its folds is known from the model.
    del given["Fivesigma"]["EventNumber"]
    assert run(given, tmp_path / "again")["categorise"]["edges"] == record["categorise"]["edges"]
    given["Fivesigma"]["EventNumber"] = "entry"
    with pytest.raises(InputError, match=r"the Model has folds by 'eventNumber': leave out EventNumber, which is 'en"):
        run(given, tmp_path / "entry", only="read")


def test_a_saved_model_without_folds_that_has_seen_these_events(small: Small, tmp_path: Path) -> None:
    """It needs no event numbers, and what it gives is not to be quoted."""
    files = {name: f"{small.file}:{name.lower()}" for name in ("Signal", "Background")}
    events = fivesigma.load_events(files, signal=["Signal"], weight="weight", features=["x", "pt = jet_pt"])
    model = fivesigma.GrownCascadeClassifier(n_trees=8, random_state=0, n_jobs=1).fit(events)
    fivesigma.save(model, tmp_path / "model")
    given = with_score(small, Model=str(tmp_path / "model"), Folds=2)
    del given["Fivesigma"]["Score"]
    said: list[str] = []
    analyse(given, tmp_path / "out", n_jobs=1, say=said.append)
    assert any(line.startswith("note: the model was trained on") and "too high" in line for line in said)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "quote this one" not in page
    assert "the model was trained on" in page


def test_negative_weights_matter_only_where_something_is_trained(small: Small, tmp_path: Path) -> None:
    given = with_score(small, Folds=2)
    given["Samples"][2]["Weight"] = "weight * (1 - 2 * (n_jets == 1 && jet_pt > 80))"
    del given["Systematics"][2]
    assert run(given, tmp_path / "out")["workspace"]["significance"] > 0
    given["Fivesigma"] = small.config["Fivesigma"]
    with pytest.raises(InputError, match="have negative weights: say in ModelOptions"):
        run(given, tmp_path / "trained", only="read")


def test_edges_of_an_earlier_round(small: Small, tmp_path: Path) -> None:
    given = copy.deepcopy(small.config)
    given["Fivesigma"]["Categories"] = {"Edges": [0.1, 0.4, 0.8]}
    said: list[str] = []
    found = analyse(given, tmp_path / "out", n_jobs=1, say=said.append)["categorise"]
    assert found["edges"] == {"Signal_region": [0.1, 0.4, 0.8]}
    assert any(" in the given edges: " in line for line in said)
    assert not [line for line in said if "cross-fitted" in line]
    assert "in sample" not in (tmp_path / "out" / "report.html").read_text()
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


@pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning")
def test_a_background_by_abcd_as_the_guide_shows_it(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "analysis-file.md").read_text()
    given = yaml.safe_load(guide.partition("by ABCD")[2].partition("```yaml")[2].partition("```")[0])
    rng, n = np.random.default_rng(3), 6000
    data = {"iso": rng.normal(-0.5, 1.0, n), "met": rng.exponential(50.0, n), "nn": rng.normal(0.0, 1.0, n)}
    signal = {"iso": np.ones(n), "met": np.full(n, 80.0), "nn": rng.normal(2.0, 1.0, n), "weight": np.full(n, 0.02)}
    write_trees(tmp_path / "n.root", [("data", data), ("signal", signal)])
    general = {"Measurement": "abcd", "POI": "mu", "InputPath": str(tmp_path / "n.root"), "HistogramFolder": "h/"}
    block = {"Region": "A", "Score": "nn", "Categories": {"Number": 3}, "Figures": False}
    record = run(given | {"General": general, "Fivesigma": block}, tmp_path / "out")
    isolated, far = data["iso"] > 0, data["met"] > 50
    b, c, d = (int(rows.sum()) for rows in (isolated & ~far, ~isolated & far, ~isolated & ~far))
    # The control regions know the product as well as their counts do, and the fit finds B C / D.
    model, observed = cabinetry.model_utils.model_and_data(
        json.loads((tmp_path / "out" / "workspace.json").read_text()), include_auxdata=True
    )
    fitted = dict(zip(model.config.par_names, cabinetry.fit.fit(model, observed).bestfit, strict=True))
    product = (c + d) * fitted["multijet"] * fitted["pass_iso"] * fitted["pass_met"]
    assert product == pytest.approx(b * c / d, rel=0.02)
    assert set(record["read"]["norms"]) == {"multijet", "pass_iso", "pass_met"}
    assert all(width is not None and width < 0.1 for width in record["read"]["norms"].values())
    assert record["categorise"]["cross_fitted"]["significance"] > 1


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
