"""The example: five processes, jagged jets, varied trees, a control region, data, TTree and RNTuple, to the fit."""

from __future__ import annotations

import csv
import json
from itertools import pairwise
from pathlib import Path

import awkward as ak
import numpy as np
import pytest

import fivesigma
from fivesigma.datasets import load_events
from tests.analysis.conftest import Done

uproot = pytest.importorskip("uproot")
yaml = pytest.importorskip("yaml")
cabinetry = pytest.importorskip("cabinetry")

FEATURES = ["mBB", "pTV", "j1 = jet_pt[0]", "HT = sum(jet_pt)", "dphi = abs(phi1 - phi2)"]


def template_rows(out: Path) -> dict[tuple[str, ...], list[float]]:
    """Bin contents of ours, by region, sample, systematic and direction."""
    found: dict[tuple[str, ...], list[float]] = {}
    with (out / "templates.csv").open() as file:
        for row in csv.DictReader(file):
            key = (row["region"], row["sample"], row["systematic"], row["direction"])
            found.setdefault(key, []).append(float(row["yield"]))
    return found


def histogram(folder: Path, *names: str) -> list[float]:
    """Bin contents in cabinetry's folder, by region, sample, systematic and direction."""
    return list(np.load(folder / f"{'_'.join(filter(None, names))}.npz")["yields"])


def test_what_is_there(example: Done) -> None:
    for name in ("model", "ntuples", "cabinetry.yml", "workspace.json", "report.html", "yields.csv", "analysis.json"):
        assert (example.out / name).exists()
    assert not list(example.out.glob(".*"))
    record = example.found["record"]
    assert list(record.steps) == ["read", "train", "score", "categorise", "workspace", "report"]
    assert all(step.ran for step in record.steps.values())


def test_yields_are_those_of_numpy(example: Done) -> None:
    rows = {(row["region"], row["sample"]): row for row in example.found["record"]["read"]["yields"]}
    factor_of = {"VH": (0.0022, ["vh_1", "vh_2"]), "Wjets": (0.03, ["wjets"])}  # a TTree in two files, an RNTuple
    for sample, (cross_section, files) in factor_of.items():
        weights, total = [], 0.0
        for name in files:
            with uproot.open(example.folder / "ntuples" / f"{name}.root") as file:
                events = file["Nominal"].arrays()
                total += float(file["h_sumw"].values().sum())
            passed = events.passSel & (events.jet_pt[:, 0] > 45) & (events.nJet >= 4)
            product = events.btagSF
            for factor in ("mcWeight", "puWeight"):
                product = product * ak.values_astype(events[factor], np.float64)
            weights.append(ak.to_numpy(product[passed]))
        w = 1000 * 140 * cross_section / total * np.concatenate(weights)
        assert rows["CR_top", sample]["entries"] == w.size
        assert rows["CR_top", sample]["yield"] == pytest.approx(w.sum(), rel=1e-12)
        assert rows["CR_top", sample]["effective"] == pytest.approx(w.sum() ** 2 / (w**2).sum(), rel=1e-9)


@pytest.mark.parametrize(
    ("name", "tree"), [("tt_b", "Nominal"), ("tt_b", "JES_down"), ("wjets", "JES_up"), ("data", "Nominal")]
)
def test_every_entry_is_scored_by_the_model_of_its_fold(example: Done, name: str, tree: str) -> None:
    source = example.folder / "ntuples" / f"{name}.root"
    model = fivesigma.load(example.out / "model")
    events = load_events(source, tree=tree, features=FEATURES, label=None, weight=None, ids=None, keep=["eventNumber"])
    with uproot.open(example.out / "ntuples" / f"{name}.root") as file:
        found = file[tree].arrays(library="np")
    np.testing.assert_array_equal(found["eventNumber"], events.kept["eventNumber"])
    np.testing.assert_array_equal(found["fivesigma_fold"], events.kept["eventNumber"] % 3)
    assert found["fivesigma_score"].dtype == np.float64
    np.testing.assert_array_equal(found["fivesigma_score"], model.predict_proba(events)[:, 1])
    for fold, (_, member) in zip(model.folds_, model.members_, strict=True):
        rows = found["fivesigma_fold"] == fold
        np.testing.assert_array_equal(found["fivesigma_score"][rows], member.__fivesigma_score__(events.X[rows]))


@pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning")
def test_cabinetry_makes_the_same_workspace_in_the_folder(example: Done, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(example.out)
    workspace = cabinetry.workspace.build(cabinetry.configuration.load("cabinetry.yml"))
    assert workspace == json.loads(Path("workspace.json").read_text())
    ours = template_rows(example.out)
    # Two regions of five samples with JES up and down, btag up and down for two of them, and data.
    assert len(ours) == 2 * (5 * 3 + 2 * 2 + 1)
    for key, values in ours.items():
        assert histogram(Path("histograms"), *key) == values


def test_the_workspace_has_one_btag(example: Done) -> None:
    workspace = json.loads((example.out / "workspace.json").read_text())
    moved = {
        sample["name"]
        for channel in workspace["channels"]
        for sample in channel["samples"]
        for modifier in sample["modifiers"]
        if modifier["name"] == "btag"
    }
    assert moved == {"ttbar", "Zjets"}


def test_edges_are_finite_and_above_every_score(example: Done) -> None:
    regions = {r["Name"]: r for r in yaml.safe_load((example.out / "cabinetry.yml").read_text())["Regions"]}
    edges = regions["SR"]["Binning"]
    assert len(edges) == 5
    assert np.isfinite(edges).all()
    assert edges[-1] > 1.0
    assert regions["CR_top"]["Binning"] == [0, 100, 200, 500]


def test_blinded_data(example: Done) -> None:
    observed = {o["name"]: o["data"] for o in json.loads((example.out / "workspace.json").read_text())["observations"]}
    ours = template_rows(example.out)
    expected = np.sum(
        [values for (region, sample, s, _), values in ours.items() if (region, s) == ("SR", "") and sample != "Data"],
        axis=0,
    )
    np.testing.assert_allclose(observed["SR"], expected, rtol=1e-12)
    assert np.array_equal(observed["CR_top"], np.round(observed["CR_top"]))
    assert not any(
        (row["region"], row["sample"]) == ("SR", "Data") for row in example.found["record"]["read"]["yields"]
    )


def test_pyhf_and_cabinetry_agree(example: Done) -> None:
    found, fit = example.found, example.found["record"]["workspace"]
    assert abs(found["mu"] - found["mu_pyhf"]) < 0.01 * found["error"]
    assert fit["mu"] == pytest.approx(found["mu"], abs=1e-3 * found["error"])
    assert abs(found["mu"] - 1.0) < 4 * found["error"]


def test_the_report_shows_both_numbers_and_the_waterfall(example: Done) -> None:
    html, found = (example.out / "report.html").read_text(), example.found["record"]["categorise"]
    assert f'<b id="expectation-value">{found["cross_fitted"]["significance"]:.3f}</b>' in html
    assert f"in sample {found['in_sample']['significance']:.3f}</span>" in html
    section = html[html.index('id="expectation-waterfall"') : html.index('id="verdict"')]
    for name, value in found["cross_fitted"]["waterfall"][1:-1]:
        assert f'<th scope="row">{name}</th>' in section
        assert f"<td>{value:.3f}</td>" in section
    assert f'<td id="expectation-waterfall-fitted">{found["cross_fitted"]["waterfall"][-1][1]:.3f}</td>' in section
    assert html.index('<a href="#expectation">') < html.index('<section id="expectation">') < html.index('id="verdict"')


def test_the_quoted_number(example: Done) -> None:
    found = example.found["record"]["categorise"]
    names = [name for name, _ in found["cross_fitted"]["waterfall"]]
    values = [value for _, value in found["cross_fitted"]["waterfall"]]
    assert names[0] == "known background"
    assert names[-1] == "simulation"
    assert set(names[1:-1]) == {"JES", "btag", "ttbar_norm", "Zjets_norm"}
    assert all(a >= b - 1e-9 for a, b in pairwise(values))
    assert found["cross_fitted"]["significance"] == values[-1] > 0
    ours = template_rows(example.out)
    np.testing.assert_allclose(found["s"]["SR"], ours["SR", "VH", "", ""], rtol=1e-9)
