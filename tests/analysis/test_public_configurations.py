"""Configurations in the structure of public ones, with only our block added: cabinetry's example, and three of the
Analysis Grand Challenge, whose inputs are histograms. Each runs to the fit."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fivesigma._types import AnyArray
from fivesigma.analysis import Record, analyse
from fivesigma.errors import InputError
from tests.analysis.ntuples import write

cabinetry = pytest.importorskip("cabinetry")
uproot = pytest.importorskip("uproot")
pytestmark = pytest.mark.filterwarnings(
    "ignore:jsonschema.RefResolver:DeprecationWarning", "ignore::fivesigma.errors.SmallSampleWarning"
)
BLOCK: dict[str, Any] = {
    "EventNumber": "entry",
    "Folds": 2,
    "ModelOptions": {"n_trees": 10},
    "Categories": {"Number": 2, "MinEffective": 10},
    "Figures": False,
}
EDGES = np.linspace(0.0, 400.0, 5)


def variation(name: str, up: str, down: str | None = None, **more: Any) -> dict[str, Any]:
    """A systematic by paths, mirrored without a path down."""
    mirrored = {"Symmetrize": True} if down is None else {"VariationPath": down}
    return {"Name": name, "Type": "NormPlusShape", "Up": {"VariationPath": up}, "Down": mirrored} | more


def norm(name: str, size: float, **more: Any) -> dict[str, Any]:
    return {
        "Name": name,
        "Type": "Normalization",
        "Up": {"Normalization": size},
        "Down": {"Normalization": -size},
    } | more


def configuration(poi: str, path: str, samples: list[str], regions: list[str], **more: Any) -> dict[str, Any]:
    """Histograms as inputs, in cabinetry's manner; the first sample is data, the second the signal."""
    general = {"Measurement": "public", "POI": poi, "HistogramFolder": "histograms/", "InputPath": path}
    return {
        "General": general | {"VariationPath": ""},
        "Regions": [{"Name": f"{name} region", "RegionPath": name, "Variable": "$H_T$ [GeV]"} for name in regions],
        "Samples": [
            {"Name": f"{name}, made up", "SamplePath": name} | ({"Data": True} if k == 0 else {})
            for k, name in enumerate(samples)
        ],
        "NormFactors": [{"Name": poi, "Samples": f"{samples[1]}, made up", "Nominal": 1.0, "Bounds": [0, 10]}],
        **more,
    }


def events(sample: int, region: int, scale: float, n: int = 600) -> dict[str, AnyArray]:
    """Flat branches of a sample in a region; the second sample is the signal."""
    rng = np.random.default_rng([sample, region])
    x = rng.normal(1.5 * (sample == 1), 1.0, n)
    return {"x": x * scale, "HT": scale * (50 + rng.exponential(80.0, n)), "weight": rng.uniform(0.05, 0.15, n)}


def make_inputs(given: dict[str, Any], folder: Path, regions: list[str], samples: list[str]) -> None:
    """Ntuples and histograms for every path of the configuration."""
    (folder / "ntuples").mkdir(parents=True)
    with uproot.recreate(folder / "histograms.root") as file:
        for i, sample in enumerate(samples):
            own = [
                s for s in given["Systematics"] if f"{sample}, made up" in (s.get("Samples") or f"{sample}, made up")
            ]
            paths = {s[side].get("VariationPath", ""): 1 + 0.05 * (k + 1) * (1 if side == "Up" else -1)
                     for k, s in enumerate(own) for side in ("Up", "Down")}  # fmt: skip
            for j, region in enumerate(regions):
                for path, scale in ({"": 1.0} if i == 0 else {**paths, "": 1.0}).items():
                    flat = events(i, j, scale)
                    stem = f"{region}_{sample}{path}" if region else f"{sample}{path}"
                    write(folder / "ntuples" / f"{stem}.root", {"events": flat})
                    weight = np.ones(600) if i == 0 else flat["weight"]
                    hist = cabinetry.histo.Histogram.from_arrays(
                        EDGES.tolist(),
                        np.histogram(flat["HT"], EDGES, weights=weight)[0],
                        np.sqrt(np.histogram(flat["HT"], EDGES, weights=weight**2)[0]),
                    )
                    file[stem] = hist


def run(given: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Record:
    monkeypatch.chdir(folder)
    return analyse(given, "out", n_jobs=1, say=None)


SAMPLES = ["pseudodata", "ttbar", "wjets", "single_top"]
SYSTEMATICS = [
    variation("ME variation", "_ME_var", Samples="ttbar, made up"),
    variation("Jet energy scale", "_pt_scale_up"),
    variation("b-tag NP 1", "_btag_up", "_btag_down"),
    norm("Luminosity", 0.03),
]


def ttbar(folder: Path, regions: list[str]) -> dict[str, Any]:
    given = configuration(
        "ttbar_norm",
        "histograms.root:{RegionPath}_{SamplePath}{VariationPath}",
        SAMPLES,
        regions,
        Systematics=SYSTEMATICS,
    )
    given = copy.deepcopy(given)
    make_inputs(given, folder, regions, SAMPLES)
    for sample in given["Samples"][1:]:
        sample["Weight"] = "weight"
    block = {
        "Features": ["x", "HT"],
        "InputPath": "ntuples/{RegionPath}_{SamplePath}{VariationPath}.root",
        "Tree": "events",
    }
    return given | {"Fivesigma": {"Region": f"{regions[-1]} region", **BLOCK, **block}}


def test_a_control_region_of_histograms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ttbar(tmp_path, ["4j1b", "4j2b"])
    record = run(given, tmp_path, monkeypatch)
    assert record["train"]["model"][0].startswith("ProfiledClassifier")
    ours = json.loads(Path("out/workspace.json").read_text())
    # The same region by cabinetry alone, from the same histograms.
    plain = {key: value for key, value in given.items() if key != "Fivesigma"} | {"Regions": given["Regions"][:1]}
    plain["General"] = plain["General"] | {"HistogramFolder": "alone/"}
    for names in (plain["Samples"], plain["Regions"]):
        for item in names:
            item["Name"] = item["Name"].replace(", ", "-").replace(" ", "-")
    for item in (*plain["Systematics"], *plain["NormFactors"]):
        if "Samples" in item:
            item["Samples"] = item["Samples"].replace(", ", "-").replace(" ", "-")
    cabinetry.templates.collect(plain)
    cabinetry.templates.postprocess(plain)
    theirs = cabinetry.workspace.build(plain)
    channel = next(channel for channel in ours["channels"] if channel["name"] == "4j1b-region")
    for mine, other in zip(channel["samples"], theirs["channels"][0]["samples"], strict=True):
        np.testing.assert_allclose(mine["data"], other["data"], rtol=1e-6)
        mine_data, other_data = ([modifier["data"] for modifier in one["modifiers"]] for one in (mine, other))
        assert len(mine_data) == len(other_data) > 4
        for first, second in zip(mine_data, other_data, strict=True):
            if isinstance(first, dict):
                for key in first:
                    np.testing.assert_allclose(first[key], second[key], rtol=1e-6)
    rows = {(row["region"], row["sample"]): row["yield"] for row in record["read"]["yields"]}
    assert rows["4j1b region", "pseudodata, made up"] == pytest.approx(np.sum(theirs["observations"][0]["data"]))
    assert ("4j2b region", "pseudodata, made up") not in rows  # blinded


def test_many_features_as_regions_of_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ttbar(tmp_path, ["f1", "f2", "f0"])
    given["Fivesigma"] |= {"Validation": "f[1-9]*", "Figures": True}
    run(given, tmp_path, monkeypatch)
    shown = json.loads(Path("out/validation.json").read_text())
    assert [channel["name"] for channel in shown["channels"]] == ["f1-region", "f2-region", "f0-region"]
    fitted = json.loads(Path("out/workspace.json").read_text())
    assert [channel["name"] for channel in fitted["channels"]] == ["f0-region"]
    names = {path.stem for path in Path("out/figures").iterdir()}
    assert {"f1-region_postfit", "f2-region_prefit", "ranking", "pulls"} <= names
    impacts = Path("out/impacts.csv").read_text().splitlines()
    assert impacts[0] == "parameter,prefit_up,prefit_down,postfit_up,postfit_down"
    assert len(Path("out/impacts.tex").read_text().splitlines()) == len(impacts) + 5
    assert "Luminosity" in Path("out/impacts.tex").read_text()


def test_one_region_without_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither Variable nor Binning nor RegionPath; a sample with an asterisk in its name."""
    samples, given = ["data", "signal", "ZZ"], {}
    systematics = [
        variation("Scalefactor_variation", "_SF_up", "_SF_down"),
        norm("ZZ_norm", 0.1, Samples="ZZ, made up"),
    ]
    path = "histograms.root:{SamplePath}{VariationPath}"
    given = configuration("Signal_norm", path, samples, ["SR"], Systematics=systematics)
    make_inputs(given, tmp_path, [""], samples)
    given["Regions"] = [{"Name": "Signal_region"}]
    given["Samples"][2]["Name"] = "Background ZZ*"
    systematics[1]["Samples"] = "Background ZZ*"
    block = {"Features": ["x"], "InputPath": "ntuples/{SamplePath}{VariationPath}.root", "Tree": "events"}
    given["Fivesigma"] = {"Region": "Signal_region", **BLOCK, **block}
    record = run(given, tmp_path, monkeypatch)
    assert record["workspace"]["significance"] > 1


def test_ntuples_without_event_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A region with a Variable and a Binning, as it is fitted without us."""
    signal, background = events(1, 0, 1.0), events(2, 0, 1.0)
    background["weight_up"] = 1.1 * background["weight"]
    (tmp_path / "inputs").mkdir()
    trees = {"signal": signal, "background": background, "background_varied": events(2, 0, 1.1)}
    write(tmp_path / "inputs" / "prediction.root", trees)
    write(tmp_path / "inputs" / "data.root", {"pseudodata": {"x": signal["x"], "HT": signal["HT"]}})
    sample = {"SamplePath": "prediction.root", "Weight": "weight"}
    given = {
        "General": {
            "Measurement": "m", "POI": "mu", "HistogramFolder": "histograms/", "InputPath": "inputs/{SamplePath}"
        },
        "Regions": [{"Name": "SR", "Variable": "HT", "Filter": "HT > 60", "Binning": [60, 100, 200, 400]}],
        "Samples": [
            {"Name": "Data", "Tree": "pseudodata", "SamplePath": "data.root", "Data": True},
            {"Name": "Signal", "Tree": "signal"} | sample,
            {"Name": "Background", "Tree": "background"} | sample,
        ],
        "Systematics": [
            norm("Luminosity", 0.05),
            {
                "Name": "Modeling",
                "Type": "NormPlusShape",
                "Up": {"SamplePath": "prediction.root", "Tree": "background_varied"},
                "Down": {"Symmetrize": True},
                "Samples": "Background",
            },
            {
                "Name": "WeightBasedModeling",
                "Type": "NormPlusShape",
                "Up": {"Weight": "weight_up"},
                "Down": {"Weight": "0.7*weight"},
                "Samples": "Background",
            },
        ],
        "NormFactors": [{"Name": "mu", "Samples": "Signal", "Nominal": 1, "Bounds": [0, 10]}],
        "Fivesigma": {"Region": "SR", "Features": ["x", "HT"], **BLOCK},
    }  # fmt: skip
    record = run(given, tmp_path, monkeypatch)
    assert record["read"]["notes"][0] == "the categories of region 'SR' are those of the score, not of 'HT'"
    assert record["workspace"]["significance"] > 1


def test_histograms_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ttbar(tmp_path, ["4j1b", "4j2b"])
    monkeypatch.chdir(tmp_path)

    def refused(change: Any) -> str:
        changed = copy.deepcopy(given)
        change(changed)
        with pytest.raises(InputError) as caught:
            analyse(changed, "out", n_jobs=1, say=None, only="read")
        return str(caught.value)

    assert "leads to histograms, and categories are made of events" in refused(
        lambda c: [c["Fivesigma"].pop(key) for key in ("InputPath", "Tree")]
    )
    assert "needs a Tree, or the block Fivesigma one" in refused(lambda c: c["Fivesigma"].pop("Tree"))
    assert "there is no histogram '4j3b_pseudodata' in histograms.root" in refused(
        lambda c: c["Regions"][0].update(RegionPath="4j3b")
    )
    assert "'Jet energy scale' Up has no VariationPath" in refused(
        lambda c: c["Systematics"][1].update(Up={"Weight": "2*weight"})
    )
    with uproot.update("histograms.root") as file:
        file["4j1b_wjets_pt_scale_up"] = np.histogram([1.0], [0, 1, 2])
    assert "has other bins than the nominal histograms of region '4j1b region'" in refused(lambda _: None)
