"""Bad input: one sentence each, before anything is trained."""

from __future__ import annotations

import copy
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fivesigma.analysis import analyse
from fivesigma.analysis.analysis_file import read_yaml
from fivesigma.cli import main
from fivesigma.errors import InputError
from tests.analysis.ntuples import branches, config, make, write

yaml = pytest.importorskip("yaml")
pytest.importorskip("cabinetry")
pytest.importorskip("uproot")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    other = branches("background")
    del other["jet_pt"]
    infinite = branches("background")
    infinite["x"][3] = np.inf
    lost = branches("background")
    lost["weight"][5] = np.nan
    one = branches("signal")
    one["eventNumber"] *= 2
    real = branches("background")
    real["eventNumber"] = real["eventNumber"].astype(np.float64)
    make(folder / "ntuples.root")
    (folder / "notes.txt").write_text("notes")
    shutil.copy(folder / "ntuples.root", folder / "copy.root")
    (folder / "link.root").symlink_to(folder / "ntuples.root")
    (folder / "nothing.root").mkdir()
    write(
        folder / "odd.root",
        {
            "other": other,
            "infinite": infinite,
            "lost": lost,
            "even": one,
            "real": real,
            "none": branches("background", 0),
        },
    )
    return folder / "ntuples.root"


def given(file: Path) -> dict[str, Any]:
    """The configuration with a SamplePath for each sample."""
    out = config(file)
    out["General"]["InputPath"] = f"{file.parent}/{{SamplePath}}"
    for sample in out["Samples"]:
        sample["SamplePath"] = "ntuples.root"
    return out


def systematic(c: dict[str, Any], up: dict[str, Any]) -> None:
    c["Systematics"][1]["Up"] = up


def block(**settings: Any) -> Callable[[dict[str, Any]], None]:
    return lambda c: c["Fivesigma"].update(settings)


def sample(at: int, **settings: Any) -> Callable[[dict[str, Any]], None]:
    return lambda c: c["Samples"][at].update(settings)


def odd(tree: str) -> Callable[[dict[str, Any]], None]:
    """Take the background from a tree that something is wrong with."""

    def change(c: dict[str, Any]) -> None:
        c["Samples"][2] |= {"Tree": tree, "SamplePath": "odd.root"}
        systematic(c, {"Tree": "background_up", "SamplePath": "ntuples.root"})

    return change


def luminosity(total: Any, **more: Any) -> Callable[[dict[str, Any]], None]:
    return block(
        Luminosity=140,
        CrossSections={"Signal": None, "Background": {"CrossSection": 1, "SumOfWeights": total}} | more,
    )


def both(*changes: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], None]:
    def change(c: dict[str, Any]) -> None:
        for one in changes:
            one(c)

    return change


CASES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "file": (
        sample(1, SamplePath="ntuple.root"),
        r"no file .*ntuple\.root; did you mean 'ntuples.root'.* \(sample 'Signal'\)"),
    "a cross section by itself": (
        block(Luminosity=140, CrossSections={"Background": 5}),
        "Background of CrossSections must be a mapping of CrossSection and SumOfWeights, or null, got 5"),
    "pattern": (sample(1, SamplePath="sig*.root"), r"no file matches '.*sig\*\.root' \(sample 'Signal'\)"),
    "other format": (sample(1, SamplePath="notes.txt"), r"notes.txt ends in none of .* \(sample 'Signal'\)"),
    "tree": (sample(1, Tree="signals"), r"no tree 'signals' in ntuples\.root.*mean 'signal'\?.*sample 'Signal'"),
    "varied tree": (lambda c: systematic(c, {"Tree": "down"}), r"no tree 'down'.*systematic 'Modeling' Up"),
    "branch of a feature": (block(Features=["x", "jet_ptt"]), r"no column 'jet_ptt' in ntuples\.root; did you mean"),
    "branch of a weight": (sample(2, Weight="wait*2"), r"no column 'wait'.*tree 'background', sample 'Background'"),
    "branch of a filter": (lambda c: c["Regions"][1].update(Filter="lep < 0"), r"no column 'lep'"),
    "histogram": (luminosity("h_sum"), r"no histogram 'h_sum' in ntuples\.root \(process 'Background'\); did you mean"),
    "a varied tree with other branches": (
        lambda c: systematic(c, {"Tree": "other", "SamplePath": "odd.root"}),
        r"no column 'jet_pt' in odd\.root.*tree 'other', sample 'Background', systematic 'Modeling' Up",
    ),
    "folds without signal": (
        sample(1, Tree="even", SamplePath="odd.root"),
        r"fold 1 of 2 \(eventNumber modulo 2\) has no signal in region 'Signal_region'",
    ),
    "a region without events": (
        lambda c: c["Regions"][1].update(Filter="n_jets > 99"),
        r"no simulated event is in region 'Control_region': \(n_jets > 99\) && True",
    ),
    "the chosen region without events": (block(Preselection="n_jets > 99"), "no simulated event is in region"),
    "cabinetry's keys": (
        lambda c: c["General"].update(Measurment="x"), r"cabinetry refuses the configuration at General: .*Measurment"
    ),
    "cabinetry's samples": (lambda c: c["Samples"].append(c["Samples"][0] | {"Name": "D"}), "exactly one data sample"),
    "no block": (lambda c: c.pop("Fivesigma"), "has no block 'Fivesigma'"),
    "block key": (block(Feature=["x"]), r"Fivesigma has the unknown key 'Feature'; did you mean 'Features'"),
    "categories key": (block(Categories={"Numbr": 3}), r"Categories has the unknown key 'Numbr'; did you mean"),
    "categories": (block(Categories={"Number": 1.5}), "whole number from 1 to 1000, auto or Cut"),
    "model": (block(Model="grow"), r"the Model must be one of .*; did you mean 'grown'"),
    "model option": (block(ModelOptions={"n_tree": 3}), r"unknown key 'n_tree'; did you mean 'n_trees'"),
    "our own option": (block(ModelOptions={"cv": 3}), "ModelOptions has the unknown key 'cv'"),
    "missing key": (lambda c: c["Fivesigma"].pop("EventNumber"), "Fivesigma needs the key 'EventNumber'"),
    "folds": (block(Folds=1), "Folds must be a whole number from 2 to 1000, got 1"),
    "region": (block(Region="SR"), "the Region of the block Fivesigma is 'SR', which is no region"),
    "no variable": (lambda c: c["Regions"][1].pop("Variable"), "region 'Control_region' needs a Variable"),
    "binning": (lambda c: c["Regions"][1].update(Binning=[3, 2]), "must ascend"),
    "same filter": (lambda c: c["Regions"][1].update(Filter="lep_charge > 0"), "have the same Filter"),
    "poi": (lambda c: c["General"].update(POI="mu"), "the block General needs a POI that is one of the NormFactors"),
    "all signal": (lambda c: c["NormFactors"][0].pop("Samples"), "scales every sample in region 'Signal_region'"),
    "symmetrize": (lambda c: systematic(c, {"Symmetrize": True}), "Symmetrize in Up"),
    "one modifier": (
        lambda c: c["Systematics"][2].update(ModifierName="Modeling"),
        "two systematics move sample 'Background' in region 'Signal_region' by one modifier 'Modeling'",
    ),
    "a number of its own files": (
        both(luminosity(2e3), lambda c: systematic(c, {"Tree": "background", "SamplePath": "odd.root"})),
        r"systematic 'Modeling' Up has files of its own, whose sum of weights is not the number",
    ),
    "cross section of nothing": (luminosity(1, Back=None), "unknown key 'Back'; did you mean 'Background'"),
    "no luminosity": (both(luminosity(1), lambda c: c["Fivesigma"].pop("Luminosity")), "needs a luminosity"),
    "variable of a systematic": (lambda c: systematic(c, {"Variable": "jet_pt_up"}), "to replace branches"),
    "mixed replacements": (lambda c: systematic(c, {"Variable": "jet_pt = jet_pt_up; x"}), "mixes replacements"),
    "replaced by nothing": (lambda c: systematic(c, {"Variable": "jet_pt = jet_up"}), "no column 'jet_up'"),
    "a weight that is not finite": (
        odd("lost"),
        r"the weight 'weight' of sample 'Background' is nan for event 10000000000000005 of odd\.root",
    ),
    "negative weights": (
        sample(2, Weight="weight * (1 - 2 * (n_jets == 1))"),
        r"\d+ events of sample 'Background' in region 'Signal_region' have negative weights: say in ModelOptions",
    ),
    "event numbers": (odd("real"), "'eventNumber' must hold integers, got float64"),
    "no entries": (odd("none"), "sample 'Background' has no entries at all"),
    "a varied sample without events": (
        both(
            lambda c: c["Samples"].append(c["Samples"][2] | {"Name": "Other", "Filter": "x > 99"}),
            lambda c: c["Systematics"][1].update(Samples=["Background", "Other"]),
        ),
        r"sample 'Other' has a yield of 0 in region 'Signal_region', so that systematic 'Modeling' has no relative",
    ),
    "a filter of data": (sample(0, Filter="x > 0"), "no region can be blinded"),
    "an expression": (block(Preselection="import os"), "Preselection"),
    "a sample that is not there": (
        lambda c: c["Systematics"][2].update(Samples="Backgroud"),
        r"systematic 'Weighting' names the sample 'Backgroud', which is not there; did you mean 'Background'",
    ),
    "a region that is not there": (
        lambda c: c["Systematics"][2].update(Regions=["Signal_regionn"]),
        r"systematic 'Weighting' names the region 'Signal_regionn', which is not there; did you mean 'Signal_region'",
    ),
    "a sample of a norm factor": (
        lambda c: c["NormFactors"].append({"Name": "bkg", "Samples": "Backgrund"}),
        "NormFactor 'bkg' names the sample 'Backgrund'",
    ),
    "a region of a sample": (sample(2, Regions="Control"), "sample 'Background' names the region 'Control'"),
    "a systematic of data": (
        lambda c: c["Systematics"][0].update(Samples="Data"), "systematic 'Luminosity' changes no simulated sample"
    ),
    "a fixed parameter": (
        lambda c: c["General"].update(Fixed=[{"Name": "Lumi", "Value": 0}]),
        "General fixes 'Lumi', which is not there; did you mean 'Luminosity'",
    ),
    "a fixed systematic elsewhere": (
        lambda c: c["General"].update(Fixed=[{"Name": "Luminosity", "Value": 1}]), "only 0 is supported"
    ),
    "a variation path": (
        lambda c: systematic(c, {"VariationPath": "_x"}),
        r"systematic 'Modeling' Up has the VariationPath '_x' .*, but InputPath .* does not contain \{VariationPath\}",
    ),
    "a region path": (
        lambda c: c["General"].update(InputPath=c["General"]["InputPath"] + "{RegionPath}"),
        "sample 'Data' has no RegionPath, which InputPath .* needs",
    ),
    "one cross section of two": (
        block(Luminosity=140, CrossSections={"Background": {"CrossSection": 1, "SumOfWeights": 1}}),
        "sample 'Signal' has no cross section where others have one",
    ),
    "a luminosity alone": (block(Luminosity=140), "the Luminosity changes nothing without CrossSections"),
    "one modifier in a control region": (
        lambda c: [
            s.update(ModifierName="both", Regions="Control_region", Samples="Background") for s in c["Systematics"][1:]
        ],
        "two systematics move sample 'Background' in region 'Control_region' by one modifier 'both'",
    ),
    "a weight of a variation": (
        lambda c: c["Systematics"][2]["Up"].update(Weight="weight / (n_jets - 2)"),
        "the weight .* of sample 'Background', systematic 'Weighting' Up is inf",
    ),
    "a negative yield": (
        both(block(ModelOptions={"negative_weights": "zero"}), sample(2, Weight="-weight")),
        "sample 'Background' has a yield of -.* in region 'Signal_region'",
    ),
    "an infinite feature of a variation": (
        lambda c: systematic(c, {"Tree": "infinite", "SamplePath": "odd.root"}), "column 'x' is infinite"
    ),
    "a number of trees": (block(ModelOptions={"n_trees": -3}), "n_trees"),
    "far too many trees": (block(ModelOptions={"n_trees": 10**21}), "which is too large"),
    "a long parameter": (block(ModelOptions={"params": {"grow_policy": "[" * 100_000}}), "grow_policy"),
    "folds without end": (block(Folds=float("inf")), "the number inf is not finite"),
    "a normalisation that is none": (
        lambda c: c["Systematics"][0]["Up"].update(Normalization=float("nan")), "the number nan is not finite"
    ),
    "a norm that is none": (
        lambda c: c["NormFactors"][0].update(Nominal=float("nan")), "the number nan is not finite"
    ),
    "a floor that is none": (block(Categories={"MinEffective": float("nan")}), "the number nan is not finite"),
    "a huge number": (block(Folds=16**5000), "which is too large"),
    "a key that is no text": (block(ModelOptions={7: 1}), "the key 7 is not text"),
    "bytes": (block(ModelOptions={"n_trees": b"8"}), "is neither text nor a number"),
    "the same file twice": (sample(1, SamplePath=["ntuples.root", "./ntuples.root"]), "ntuples.root .*count twice"),
    "a link": (sample(1, SamplePath=["ntuples.root", "link.root"]), "count twice"),
    "a copy": (sample(1, SamplePath=["ntuples.root", "copy.root"]), "count twice"),
    "a folder among the files": (sample(1, SamplePath="nothing*"), "nothing.root is a folder"),
    "data of the blinded region": (
        lambda c: c["Regions"].append(
            {"Name": "SRcopy", "Filter": "lep_charge > 0.5", "Variable": "x", "Binning": [0, 1]}
        ),
        "data of the blinded region 'Signal_region' are in region 'SRcopy' too",
    ),
    "the same filter": (lambda c: c["Regions"][1].update(Filter="lep_charge>0"), "have the same Filter"),
    "a forgotten placeholder": (
        lambda c: c["General"].update(InputPath=c["General"]["InputPath"].replace("{SamplePath}", "ntuples.root")),
        r"sample 'Data' has the SamplePath .* but InputPath .* does not contain \{SamplePath\}",
    ),
    "a path of a region that changes nothing": (
        lambda c: c["Regions"][1].update(RegionPath="foo"), r"'foo' \(region 'Control_region'\), but .*\{RegionPath\}"
    ),
    "signal as background": (sample(2, Tree="signal"), "'Signal' and 'Background' .* are the same events of tree"),
    "a long condition": (
        lambda c: c["Regions"][1].update(Filter=" || ".join(["n_jets > 99"] * 600)), "no simulated event is in region"
    ),
    "a cut with a free norm": (
        both(
            block(Categories="Cut"),
            lambda c: c["NormFactors"].append({"Name": "bkg", "Samples": "Background", "Regions": "Signal_region"}),
        ),
        "one cut cannot measure the NormFactor 'bkg'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_sentence(file: Path, tmp_path: Path, name: str) -> None:
    change, sentence = CASES[name]
    bad = copy.deepcopy(given(file))
    change(bad)
    with pytest.raises(InputError, match=sentence) as caught:
        analyse(bad, tmp_path / "out", say=None, only="read")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1500
    assert not (tmp_path / "out" / "yields.csv").exists()


def test_two_backgrounds_of_the_same_events_are_said(file: Path, tmp_path: Path) -> None:
    twice = given(file)
    twice["Samples"].append(twice["Samples"][2] | {"Name": "Again"})
    notes = analyse(twice, tmp_path / "out", say=None, only="read")["read"]["notes"]
    same = "samples 'Background' and 'Again' of region {!r} are the same events of tree 'background'"
    assert {same.format(name) for name in ("Signal_region", "Control_region")} <= set(notes)


def test_an_infinite_feature_is_refused_only_where_it_is_used(file: Path, tmp_path: Path) -> None:
    bad = given(file)
    odd("infinite")(bad)
    bad["Regions"] = [{"Name": "Signal_region"}]
    sentence = r"column 'x' is infinite .* in row 4 of odd\.root: .* \(tree 'infinite', sample 'Background'\)"
    with pytest.raises(InputError, match=sentence):
        analyse(bad, tmp_path / "out", say=None, n_jobs=1)
    bad["Fivesigma"]["Preselection"] = "x < 100"
    record = analyse(bad, tmp_path / "out", say=None, n_jobs=1)
    assert "report" in record.steps


def test_a_folder_of_something_else(file: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="holds no analysis"):
        analyse(config(file), tmp_path, say=None)
    (tmp_path / "analysis.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read as a record"):
        analyse(config(file), tmp_path, say=None)


def test_numbers_with_an_exponent(tmp_path: Path) -> None:
    path = tmp_path / "a.yml"
    path.write_text('{a: 1.2e6, b: [1e3, h_sumw, 1e3x, -1E-3], c: 2.5, d: "1e3"}')
    assert yaml.safe_load(path.read_text())["a"] == "1.2e6"
    assert read_yaml(path) == {"a": 1.2e6, "b": [1000.0, "h_sumw", "1e3x", -1e-3], "c": 2.5, "d": "1e3"}


def test_a_pipe_is_no_configuration(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.yml")
    with pytest.raises(InputError, match="is no plain file"):
        analyse(tmp_path / "a.yml", tmp_path / "out", say=None)


def test_merged_keys_are_no_duplicates(tmp_path: Path) -> None:
    path = tmp_path / "a.yml"
    path.write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\n")
    assert read_yaml(path)["b"] == {"x": 3, "y": 2}


def test_by_command_line(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.yml"
    path.write_text(yaml.safe_dump(config(file)))
    words = ["analyse", str(path), "-o", str(tmp_path / "out"), "--only", "read", "--jobs", "1"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert re.search("Signal_region +Background ", done.output)
    assert "data in region 'Signal_region' are blinded" in done.output
    path.write_text("a: [")
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 1
    assert "is not YAML" in done.output
    assert done.output.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a0: &a0 [x]\n" + "".join(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]\n" for k in range(1, 20)),
            "100,000",
        ),
        ("&a [*a]\n", "must be a mapping"),
        ("&a {b: *a}\n", "100,000"),
        ("[" * 5_000, "nested too deeply"),
        ("a: 2024-99-99\n", "month must be in"),
        ("a: 2024-12-01\n", "put it in quotes"),
        ("[" * 400_000 + "]" * 400_000, "nested too deeply"),
        (
            "m0: &m0 {k: v}\n"
            + "".join(f"m{k}: &m{k} {{<<: [{', '.join([f'*m{k - 1}'] * 9)}]}}\n" for k in range(1, 25)),
            "more than 1,000 keys",
        ),
        ("&a {<<: *a}\n", "nested too deeply|has no block"),
        ("a: [" + "a, " * 400_000 + "]\n", "more than 1,000,000 bytes"),
        ("a: [" + "a, " * 100_001 + "]\n", "more than 100,000 items"),
        ("Systematics: []\nSamples: []\nSystematics: [1]\n", "'Systematics' stands twice, in lines 1 and 3"),
        ("a: {b: 1, b: 2}\n", "'b' stands twice"),
        ("a: !!set {x, y}\n", "is neither text nor a number"),
        ("a: !!binary aGk=\n", "is neither text nor a number"),
        ("? [a, b]\n: c\n", "unhashable key.* line 1"),
        ("a: " + "9" * 5_000 + "\n", "integer string conversion|too large"),
        ("a: 0x" + "f" * 5_000 + "\n", "too large"),
        ("!!python/object/apply:os.system [ls]\n", "constructor for the tag .*os.system"),
    ],
)
def test_configurations_that_unfold_without_end(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "analysis.yml"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        analyse(path, tmp_path / "out", say=None)
    assert "\n" not in str(caught.value)
