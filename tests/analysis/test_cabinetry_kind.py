"""Cabinetry's kind of ntuples: one file, several trees, Symmetrize, weights and filters as cabinetry reads them."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fivesigma
from fivesigma.analysis import Record, analyse, steps
from fivesigma.analysis.analysis_file import read_analysis
from fivesigma.analysis.scoring import ntuple_names
from fivesigma.analysis.templates import templates_of
from fivesigma.errors import InputError
from tests.analysis.conftest import Small
from tests.analysis.ntuples import branches, config, make, write
from tests.analysis.test_example import histogram, template_rows

uproot = pytest.importorskip("uproot")
yaml = pytest.importorskip("yaml")
cabinetry = pytest.importorskip("cabinetry")


def changed(given: dict[str, Any], **block: Any) -> dict[str, Any]:
    """The same configuration with other settings of our block."""
    out = copy.deepcopy(given)
    out["Fivesigma"] |= block
    return out


def run(given: dict[str, Any], out: Path, **options: Any) -> Record:
    return analyse(given, out, n_jobs=1, say=None, **options)


def own_templates(small: Small, folder: Path, binning: list[float]) -> Path:
    """Histograms that cabinetry makes of the ntuples as they were, with x in the region that got the score."""
    given = copy.deepcopy(small.config)
    del given["Fivesigma"]
    given["General"]["HistogramFolder"] = str(folder)
    given["Regions"][0] |= {"Variable": "x", "Binning": binning}
    cabinetry.configuration.validate(given)
    cabinetry.templates.build(given)
    return folder


def test_templates_are_those_of_the_original_ntuples(small: Small, tmp_path: Path) -> None:
    original = own_templates(small, tmp_path / "original", [-9, 9])
    ours = template_rows(small.out)
    for key, values in ours.items():
        if key[0] == "Control_region":
            np.testing.assert_allclose(values, histogram(original, *key), rtol=1e-9, err_msg=str(key))
            np.testing.assert_allclose(values, histogram(small.out / "histograms", *key), rtol=1e-9)
    # Down is mirrored by cabinetry, for which it wants no template.
    kinds = {key[1:] for key in ours if key[0] == "Control_region"}
    assert kinds == {
        *(("Data", "", ""), ("Signal", "", ""), ("Background", "", ""), ("Background", "Modeling", "Up")),
        *(("Background", "Weighting", "Up"), ("Background", "Weighting", "Down")),
    }


def test_the_score_is_histogrammed_as_by_hand(small: Small) -> None:
    regions = yaml.safe_load((small.out / "cabinetry.yml").read_text())["Regions"]
    with uproot.open(small.out / "ntuples" / "ntuples.root") as file:
        found = file["background"].arrays(library="np")
    rows = found["lep_charge"] > 0
    by_hand, _ = np.histogram(
        found["fivesigma_score"][rows], regions[0]["Binning"], weights=0.7 * found["weight"][rows]
    )
    np.testing.assert_allclose(
        template_rows(small.out)["Signal_region", "Background", "Weighting", "Down"], by_hand, rtol=1e-9
    )


def test_what_is_kept_and_what_is_rewritten(small: Small) -> None:
    found = yaml.safe_load((small.out / "cabinetry.yml").read_text())
    for key in ("Samples", "Systematics", "NormFactors"):
        assert found[key] == [
            {k: [v] if k in ("Samples", "Regions") and isinstance(v, str) else v for k, v in item.items()}
            for item in small.config[key]
        ]
    assert found["Regions"][1] == small.config["Regions"][1]
    assert found["Regions"][0]["Variable"] == "fivesigma_score"
    assert "Fivesigma" not in found


def test_nothing_changed_nothing_runs(small: Small) -> None:
    again = run(small.config, small.out)
    assert not any(step.ran for step in again.steps.values())
    assert "Background" in "".join(small.said)


def test_a_step_runs_again_only_if_its_inputs_changed(small: Small, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(small.out, out)
    other = changed(small.config, Categories={"Number": 1})
    done = run(other, out).steps
    assert [name for name, step in done.items() if step.ran] == ["categorise", "workspace", "report"]
    other["Regions"][1]["Binning"] = [30, 100, 600]
    done = run(other, out).steps
    assert [name for name, step in done.items() if step.ran] == ["read", "categorise", "workspace", "report"]
    assert len(template_rows(out)["Control_region", "Signal", "", ""]) == 2
    # Neither a norm factor nor another control region trains or scores again.
    other["NormFactors"].append({"Name": "norm", "Samples": "Background"})
    more = {"Name": "Other_region", "Variable": "x", "Binning": [-3, 0, 3], "Filter": "lep_charge < 0 && n_jets > 4"}
    other["Regions"][1]["Filter"] = "lep_charge < 0 && n_jets <= 4"
    other["Regions"].append(more)
    done = run(other, out).steps
    assert [name for name, step in done.items() if step.ran] == ["read", "categorise", "workspace", "report"]
    other = changed(other)
    del other["NormFactors"][1], other["Regions"][2]
    other["Regions"][1]["Filter"] = "lep_charge < 0"
    run(other, out)
    (out / "workspace.json").unlink()
    done = run(other, out).steps
    assert [name for name, step in done.items() if step.ran] == ["workspace"]
    done = run(other, out, only="workspace", force=True).steps
    assert [name for name, step in done.items() if step.ran] == ["workspace"]
    with pytest.raises(InputError, match="step 'read' comes before 'workspace'"):
        run(small.config, out, only="workspace")
    # Unblinded, real data are filled, and the expected ones are no longer there.
    done = run(other, out, unblind=True).steps
    assert [name for name, step in done.items() if step.ran] == ["read", "categorise", "workspace", "report"]
    observed = json.loads((out / "workspace.json").read_text())["observations"]
    data = branches("data", 600)
    assert sum(observed[1]["data"]) == (data["lep_charge"] < 0).sum()
    assert 0 < sum(observed[0]["data"]) <= (data["lep_charge"] > 0).sum()
    assert observed[0]["data"] == [round(n) for n in observed[0]["data"]]


def test_the_default_model_is_trained_again_only_if_its_events_changed(small: Small, tmp_path: Path) -> None:
    """Neither a norm factor nor a control region trains or scores again; it is said what the model does not know."""
    out, given = tmp_path / "out", copy.deepcopy(small.config)
    del given["Fivesigma"]["Model"]
    given["Fivesigma"]["ModelOptions"] = {"n_trees": 4}
    for sample in given["Samples"][1:]:
        sample["DisableStaterror"] = True  # fewer parameters to fit

    def again() -> tuple[list[str], list[str]]:
        record = run(given, out)
        notes = [note for note in record["categorise"]["notes"] if "trained" in note]
        return [name for name, step in record.steps.items() if step.ran], notes

    rest, done = ["read", "categorise", "workspace", "report"], again()
    assert done == (["read", "train", "score", *rest[1:]], [])
    given["NormFactors"].append({"Name": "norm", "Samples": "Background"})
    ran, notes = again()
    assert ran == rest
    assert len(notes) == 1
    assert notes[0].startswith("the model was trained with the NormFactors none, and their widths are now norm 0.")
    other = {"Name": "Other_region", "Variable": "x", "Binning": [-3, 0, 3], "Filter": "lep_charge < 0 && n_jets > 4"}
    given["Regions"][1] |= {"Filter": "lep_charge < 0 && n_jets <= 4", "Binning": [30, 60, 600]}
    given["Regions"].append(other)
    given["Systematics"].append(given["Systematics"][0] | {"Name": "of_other", "Regions": "Other_region"})
    assert again()[0] == rest
    run(given, out, only="train", force=True)
    ran, notes = again()
    assert "categorise" in ran
    assert not notes
    given["Systematics"][2]["Up"]["Weight"] = "1.3*weight"
    assert again()[0][:3] == ["read", "train", "score"]


def test_the_first_norm_factor_without_systematics_does_not_train_again(small: Small, tmp_path: Path) -> None:
    out, given = tmp_path / "out", changed(small.config, ModelOptions={"fast": True, "n_trees": 4, "net": False})
    del given["Fivesigma"]["Model"], given["Systematics"]
    run(given, out)
    given["NormFactors"].append({"Name": "norm", "Samples": "Background"})
    record = run(given, out)
    ran = [name for name, step in record.steps.items() if step.ran]
    assert ran == ["read", "categorise", "workspace", "report"]
    assert "the training knows nothing of the NormFactors norm: Model: profiled does" in record["read"]["notes"]


def test_friends_have_the_new_branches_alone(small: Small, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(small.out, out)
    done = run(small.config, out, friends=True).steps
    assert next(name for name, step in done.items() if step.ran) == "score"
    with uproot.open(out / "ntuples" / "ntuples.root") as file:
        assert sorted(file["background"].keys()) == ["fivesigma_fold", "fivesigma_score"]
    for key, values in template_rows(small.out).items():
        np.testing.assert_array_equal(template_rows(out)[key], values)


def test_friend_trees_are_read_with_their_trees(small: Small, tmp_path: Path) -> None:
    with uproot.open(small.file) as file:
        trees = {name: file[name].arrays(library="np") for name in ("signal", "background", "background_up")}
        trees["pseudodata"] = file["pseudodata"].arrays(library="np")
    for name in ("signal", "background"):
        trees[f"{name}_x"] = {"x": trees[name].pop("x")}
    path = write(tmp_path / "parts.root", trees, h_sumw=2000.0)
    given = changed(small.config)
    given["General"]["InputPath"] = str(path)
    for sample in given["Samples"]:
        sample["Tree"] += "" if "Data" in sample else f" + {sample['Tree']}_x"
    found = run(given, tmp_path / "out")
    assert found["categorise"] == small.record["categorise"]
    with uproot.open(tmp_path / "out" / "ntuples" / "parts.root") as file:
        assert "signal__signal_x" in {name.partition(";")[0] for name in file}


def test_an_event_number_decides_the_fold(small: Small, tmp_path: Path) -> None:
    """One number changed moves the event to another fold, and to the model that did not see that one."""
    trees = {"signal": branches("signal"), "background": branches("background")}
    trees["background_up"], trees["pseudodata"] = branches("background", 1300, 1.05), branches("data", 600)
    trees["signal"]["eventNumber"][7] += 1
    file = write(tmp_path / "ntuples.root", trees)
    run(config(file), tmp_path / "out")
    found = []
    for out in (small.out, tmp_path / "out"):
        with uproot.open(out / "ntuples" / "ntuples.root") as opened:
            found.append(opened["signal"].arrays(library="np"))
    before, after = found
    assert (before["fivesigma_fold"][7], after["fivesigma_fold"][7]) == (1, 0)
    others = np.arange(len(before["x"])) != 7
    np.testing.assert_array_equal(before["fivesigma_fold"][others], after["fivesigma_fold"][others])
    model = fivesigma.load(tmp_path / "out" / "model")
    member = model.members_[model.folds_.index(0)][1]
    row = np.array([[after["x"][7], after["jet_pt"][7]]], dtype=np.float32)
    assert after["fivesigma_score"][7] == member.__fivesigma_score__(row)[0]


def test_an_interruption_resumes(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:  # every fit is done, the model is not saved
        patch.setattr(steps, "save", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(small.config, out)
    assert len(list(out.glob(".train-*"))) == 1
    assert not (out / "model").exists()
    with monkeypatch.context() as patch:
        patch.setattr("fivesigma.analysis.steps.write_histograms", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(small.config, out)
    assert not (out / "workspace.json").exists()
    record = run(small.config, out)
    assert [name for name, step in record.steps.items() if step.ran] == ["categorise", "workspace", "report"]
    assert not list(out.glob(".*"))
    assert (out / "workspace.json").read_bytes() == (small.out / "workspace.json").read_bytes()


@pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning")
def test_without_data_a_cut_and_other_branches(small: Small, tmp_path: Path) -> None:
    """No sample of data, one cut, replaced branches, a sample's own filter, a weight that uproot does not know."""
    given = changed(small.config, Categories="Cut", Model="plain", Preselection="n_jets >= 1 && jet_pt < 1e3")
    given["Samples"] = [
        {"Name": "Signal", "Tree": "signal", "Weight": "weight * (n_jets > 2 || x > 0)"},
        {"Name": "Background", "Tree": "background", "Weight": "weight"},
    ]
    given["Regions"][1]["Variable"] = "jet_pt + 1"
    given["Systematics"] = [
        {
            "Name": "JES",
            "Type": "NormPlusShape",
            "Up": {"Variable": "jet_pt = jet_pt_up"},
            "Down": {"Symmetrize": True},
            "Samples": "Background",
        }
    ]
    run(given, tmp_path / "out")
    found = yaml.safe_load((tmp_path / "out" / "cabinetry.yml").read_text())
    with uproot.open(tmp_path / "out" / "ntuples" / "ntuples.root") as file:
        assert "background__jet_pt_jet_pt_up" in file
    assert found["Samples"][-1]["Data"] is True
    assert len(found["Regions"][0]["Binning"]) == 2
    events = branches("background")
    rows = (events["lep_charge"] < 0) & (events["jet_pt_up"] < 1e3)
    by_hand, _ = np.histogram(events["jet_pt_up"][rows] + 1, [30, 60, 100, 200, 600], weights=events["weight"][rows])
    ours = template_rows(tmp_path / "out")
    np.testing.assert_allclose(ours["Control_region", "Background", "JES", "Up"], by_hand, rtol=1e-9)
    for key, values in ours.items():
        np.testing.assert_allclose(histogram(tmp_path / "out" / "histograms", *key), values, rtol=1e-9)
    workspace = json.loads((tmp_path / "out" / "workspace.json").read_text())
    for channel, observed in zip(workspace["channels"], workspace["observations"], strict=True):
        expected = np.sum([sample["data"] for sample in channel["samples"]], axis=0)
        np.testing.assert_allclose(observed["data"], expected, rtol=1e-12)


def test_a_file_for_each_folder_of_one_name(small: Small, tmp_path: Path) -> None:
    """Files of one name in several folders do not overwrite each other."""
    for part in ("a", "b"):
        (tmp_path / part).mkdir()
        make(tmp_path / part / "ntuples.root")
    given = copy.deepcopy(small.config)
    given["General"]["InputPath"] = f"{tmp_path}/{{SamplePath}}/ntuples.root"
    for sample, part in zip(given["Samples"], ("a", "a", "b"), strict=True):
        sample["SamplePath"] = part
    names = ntuple_names(templates_of(read_analysis(given)))
    assert sorted(names.values()) == ["ntuples.root", "ntuples_2.root"]
