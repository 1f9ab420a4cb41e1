"""Several regions with categories of their own, regions of validation, both goals, and what is trained by default."""

from __future__ import annotations

import copy
import csv
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fivesigma
from fivesigma.analysis import Record, analyse, steps
from fivesigma.analysis.analysis_file import read_analysis
from fivesigma.errors import InputError
from tests.analysis.conftest import Small
from tests.analysis.ntuples import branches

cabinetry = pytest.importorskip("cabinetry")
uproot = pytest.importorskip("uproot")
pytestmark = pytest.mark.filterwarnings(
    "ignore:jsonschema.RefResolver:DeprecationWarning", "ignore::fivesigma.errors.SmallSampleWarning"
)
FEW, MANY = "SR few", "SR-many"


def two(small: Small, **block: Any) -> dict[str, Any]:
    """The small analysis with its region in two, by default with a score that exists already."""
    given = copy.deepcopy(small.config)
    given["Regions"][:1] = [
        {"Name": FEW, "Filter": "lep_charge > 0 && n_jets <= 3"},
        {"Name": MANY, "Filter": "lep_charge > 0 && n_jets > 3"},
    ]
    score = {} if "Model" in block or "Train" in block else {"Score": "x"}
    for key in ("Features", "Model", "ModelOptions") if score else ():
        del given["Fivesigma"][key]
    given["Fivesigma"] |= {"Region": [FEW, MANY], "Categories": {"Number": 4, "MinEffective": 10}, **score, **block}
    return given


def run(given: dict[str, Any], out: Path, **more: Any) -> Record:
    return analyse(given, out, n_jobs=1, say=None, **more)


@pytest.fixture(scope="module")
def both(small: Small, tmp_path_factory: pytest.TempPathFactory) -> Record:
    return run(two(small), tmp_path_factory.mktemp("both") / "out")


def test_the_categories_are_shared(both: Record) -> None:
    found = both["categorise"]
    assert set(found["edges"]) == {FEW, MANY}
    assert sum(map(len, found["s"].values())) == 4
    assert all(len(edges) >= 2 for edges in found["edges"].values())
    assert found["cross_fitted"]["waterfall"][-1][1] == found["cross_fitted"]["significance"]


def test_two_regions_gain_over_each_alone(both: Record, small: Small, tmp_path: Path) -> None:
    together = both["categorise"]["in_sample"]["significance"]
    for name in (FEW, MANY):
        given = two(small, Region=name)
        given["Regions"] = [region for region in given["Regions"] if region["Name"] not in {FEW, MANY} - {name}]
        alone = run(given, tmp_path / name, only="read")
        assert alone["read"]["yields"]
        assert run(given, tmp_path / name)["categorise"]["in_sample"]["significance"] < together


def test_the_fit_expects_what_we_expect(both: Record) -> None:
    """With the statistical errors of pyhf; the rest is how cabinetry splits variations."""
    ours = both["categorise"]["all_regions"]
    assert both["workspace"]["significance"] == pytest.approx(ours["as_pyhf"], rel=0.01)
    assert ours["in_sample"] < ours["as_pyhf"]
    workspace = json.loads((both.folder / "workspace.json").read_text())
    assert [channel["name"] for channel in workspace["channels"]] == ["SR-few", "SR-many", "Control_region"]
    assert (both.folder / "report_SR-few.html").exists()


def test_a_model_for_each_region(small: Small, tmp_path: Path) -> None:
    record = run(two(small, Train="each"), tmp_path / "out")
    assert [line.split(":")[0] for line in record["train"]["model"]] == [f"region {FEW!r}", f"region {MANY!r}"]
    with uproot.open(tmp_path / "out" / "ntuples" / "ntuples.root") as file:
        scores = file["signal"].arrays(["fivesigma_score_SR_few", "fivesigma_score_SR_many"], library="np")
    few, many = scores.values()
    assert not np.allclose(few, many)
    events = branches("signal")
    rows = (events["lep_charge"] > 0) & (events["n_jets"] > 3)
    edges = record["categorise"]["edges"][MANY]
    by_hand, _ = np.histogram(many[rows], edges, weights=events["weight"][rows])
    np.testing.assert_allclose(record["categorise"]["s"][MANY], by_hand, rtol=1e-9)
    assert sorted(path.name for path in (tmp_path / "out" / "model").iterdir()) == sorted(scores)
    given = two(small, Model=str(tmp_path / "out" / "model"))
    for key in ("Features", "ModelOptions"):
        del given["Fivesigma"][key]
    saved = run(given, tmp_path / "saved")
    assert saved["categorise"]["edges"] == record["categorise"]["edges"]
    given["Fivesigma"] |= {"Region": MANY, "Categories": {"Number": 1}}
    del given["Regions"][0]
    assert "SR-many" in run(given, tmp_path / "one")["train"]["model"][0]
    together = run(two(small, Train="together"), tmp_path / "out")
    assert len(together["train"]["model"]) == 1
    assert not (tmp_path / "out" / "model" / "fivesigma_score_SR_few" / "model.json").exists()


def test_a_region_of_validation_is_not_fitted(
    both: Record, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = two(small, Validation="VR", Combine=True)
    given["Regions"].append({"Name": "VR", "Filter": "lep_charge < 0", "Variable": "x", "Binning": [-3, 0, 3]})

    def to_combine(*args: Any, **options: Any) -> Path:
        warnings.warn("2 bins got 1e-06", stacklevel=2)
        return fivesigma.to_combine(*args, **options)

    monkeypatch.setattr(steps, "to_combine", to_combine)
    record = run(given, tmp_path / "out")
    assert "2 bins got 1e-06" in record["workspace"]["notes"]
    assert record["workspace"]["mu"] == both["workspace"]["mu"]
    assert "VR" in {row["region"] for row in record["read"]["yields"]}
    fitted, shown = (
        json.loads((tmp_path / "out" / f"{name}.json").read_text()) for name in ("workspace", "validation")
    )
    assert {channel["name"] for channel in shown["channels"]} - {c["name"] for c in fitted["channels"]} == {"VR"}
    card = (tmp_path / "out" / "combine" / "datacard.txt").read_text()
    assert "imax 3" in card  # bins of the card are channels
    assert "VR" not in card
    monkeypatch.chdir(tmp_path / "out")
    config = cabinetry.configuration.load("cabinetry.yml")
    assert cabinetry.workspace.build(config) == fitted
    events = branches("data", 600)
    rows = events["lep_charge"] < 0
    observed = next(item["data"] for item in shown["observations"] if item["name"] == "VR")
    np.testing.assert_array_equal(observed, np.histogram(events["x"][rows], [-3, 0, 3])[0])
    given["Regions"][-1]["Filter"] = "n_jets > 4"
    with pytest.raises(InputError, match=r"data of the blinded regions 'SR few', 'SR-many' are in region 'VR' too"):
        run(given, tmp_path / "blind", only="read")


def test_small_effects_are_dropped_and_a_submission_is_written(both: Record, small: Small, tmp_path: Path) -> None:
    given = two(small, Prune=0.06, HEPData=True, Figures=False)
    record = run(given, tmp_path / "out")
    workspace = json.loads((tmp_path / "out" / "workspace.json").read_text())
    left = {m["name"] for c in workspace["channels"] for s in c["samples"] for m in s["modifiers"]}
    assert "Luminosity" not in left  # 5 %
    assert "Weighting" in left
    with (tmp_path / "out" / "pruned.csv").open() as file:
        dropped = list(csv.DictReader(file))
    assert {row["systematic"] for row in dropped} >= {"Luminosity"}
    assert all(float(row["largest"]) < 0.06 for row in dropped)
    assert any("effects below 0.06 of every bin were dropped" in note for note in record["workspace"]["notes"])
    assert record["workspace"]["significance"] >= both["workspace"]["significance"]
    names = {path.name for path in (tmp_path / "out" / "hepdata").iterdir()}
    assert names >= {"submission.yaml", "workspace.json", "yields_SR-few.yaml"}
    del given["Fivesigma"]["Prune"], given["Fivesigma"]["HEPData"]
    again = run(given, tmp_path / "out")
    assert [name for name, step in again.steps.items() if step.ran] == ["workspace", "report"]
    assert not (tmp_path / "out" / "pruned.csv").exists()
    assert again["workspace"]["significance"] == both["workspace"]["significance"]


def test_a_measurement(small: Small, tmp_path: Path) -> None:
    record = run(two(small, Goal="measurement"), tmp_path / "out")
    found = record["categorise"]
    values = [value for _, value in found["in_sample"]["waterfall"]]
    assert values == sorted(values)  # every source adds to it
    assert found["in_sample"]["uncertainty"] == values[-1]
    assert record["workspace"]["uncertainty"] == pytest.approx(found["all_regions"]["as_pyhf"], rel=0.03)
    assert "expected uncertainty of the signal strength" in (tmp_path / "out" / "report_SR-few.html").read_text()


def test_the_model_knows_the_systematics_by_default(small: Small, tmp_path: Path) -> None:
    given = copy.deepcopy(small.config)
    del given["Fivesigma"]["Model"]
    given["Fivesigma"]["ModelOptions"] = {"n_trees": 20}
    said: list[str] = []
    record = analyse(given, tmp_path / "out", n_jobs=1, say=said.append)
    assert record["train"]["model"][0].startswith("ProfiledClassifier of profiled")
    plain = record["categorise"]["plain"]["significance"]
    assert f"with the plain score {plain:.3f} by cross-fitted edges of its own" in said
    with uproot.open(tmp_path / "out" / "ntuples" / "ntuples.root") as file:
        assert {"fivesigma_score", "fivesigma_plain"} <= set(file["background"].keys())
    given["Fivesigma"]["Categories"] = {"Number": 3, "MinEffective": 10}
    again = run(given, tmp_path / "out")  # scores are found in the ntuples
    assert not again.steps["score"].ran
    assert again["categorise"]["plain"]["significance"] > 0
    given["Systematics"] = []
    assert read_analysis(given).settings.model == "auto"
    given["NormFactors"].append({"Name": "norm", "Samples": "Background"})
    assert read_analysis(given).settings.model == "auto"  # what has no systematics is not trained again for it


@pytest.mark.parametrize(
    ("block", "sentence"),
    [
        ({"Region": [FEW, "SR_manny"]}, r"the Region of the block Fivesigma is 'SR_manny', .* did you mean 'SR-many'"),
        ({"Validation": FEW}, "is both Region and Validation"),
        ({"Validation": "VR"}, "the Validation of the block Fivesigma is 'VR', which is no region"),
        ({"Categories": {"Number": 1}}, "Number of Categories is 1 for 2 regions"),
        ({"Score": "x", "Train": "each"}, "has both Score and Train"),
        ({"Categories": {"Edges": {FEW: [0, 1]}}}, "a mapping of SR few, SR-many to lists"),
        ({"Goal": "limit"}, "Goal must be one of discovery, measurement, got 'limit'"),
        ({"Region": []}, "Region must be a name or a list of names"),
    ],
    ids=["region", "both", "validation", "number", "train", "edges", "goal", "none"],
)
def test_what_cannot_be(small: Small, tmp_path: Path, block: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        run(two(small, **block), tmp_path / "out", only="read")


def test_regions_of_one_name_but_for_punctuation(small: Small) -> None:
    given = two(small, Train="each")
    given["Regions"][1]["Name"] = "SR_few"
    given["Fivesigma"]["Region"] = [FEW, "SR_few"]
    with pytest.raises(InputError, match="differ in punctuation alone"):
        read_analysis(given)


def test_names_that_no_datacard_can_have(small: Small) -> None:
    given = two(small, Combine=True)
    assert read_analysis(given).settings.combine
    given["Regions"][1]["Name"] = "SR-few"
    given["Fivesigma"]["Region"] = [FEW, "SR-few"]
    with pytest.raises(InputError, match="the Regions cannot be named in a datacard of combine"):
        read_analysis(given)
    given["Regions"][1]["Name"] = given["Fivesigma"]["Region"][1] = "3 jets"
    with pytest.raises(InputError, match="begin with a letter"):
        read_analysis(given)


def test_edges_for_each_region(small: Small, tmp_path: Path) -> None:
    given = two(small, Categories={"Edges": {FEW: [-5, 1, 9], MANY: [0, 9]}})
    found = run(given, tmp_path / "out")["categorise"]
    assert found["edges"] == {FEW: [-5.0, 1.0, 9.0], MANY: [0.0, 9.0]}
    assert found["cross_fitted"] == found["in_sample"]
