"""Which files are read, each once, and by what the weights of their processes are multiplied."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fivesigma import Events, InputError, load_events
from fivesigma.datasets import EventStream, make_htautau, write_events

uproot = pytest.importorskip("uproot")
hist = pytest.importorskip("hist")
LABELS = ("events", "sum of weights", "squares")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for k, name in enumerate(("VH_0", "VH_1", "tt_0")):
        with uproot.recreate(tmp_path / f"{name}.root") as file:
            x = np.arange(10.0) + 100 * k
            columns = {"x_NOSYS": x, "y_NOSYS": x + 1, "y_JET_up": x + 2, "w": np.full(10, 0.5)}
            file["Events"] = columns | {"number": np.arange(10)}
            file["Runs"] = {"genEventSumw": np.array([30.0, 20.0]), "run": np.array([1, 2])}
            book = hist.Hist(hist.axis.StrCategory(LABELS))
            book.view()[:] = [10, 50, 7]
            file[f"CutBookkeeper_{k}_NOSYS"] = book
            file[f"h_{k}"] = np.histogram([0.5], bins=1, weights=[50.0])
    return tmp_path


def loaded(folder: Path, **options: Any) -> Events:
    paths: dict[str, Any] = {"VH": str(folder / "VH_*.root"), "tt": folder / "tt_0.root"}
    asked: dict[str, Any] = {"signal": "VH", "tree": "Events", "features": "x_NOSYS", "weight": "w"}
    return load_events(paths, **asked | options)


@pytest.mark.parametrize(
    "name", ["Runs/genEventSumw", "CutBookkeeper_*_NOSYS[1]", "CutBookkeeper_*_NOSYS[sum of weights]", "h_*", 100.0]
)
def test_sums_of_weights_as_experiments_store_them(folder: Path, name: Any) -> None:
    events = loaded(folder, luminosity=2.0, cross_section={"VH": 3.0, "tt": None}, sum_of_weights={"VH": name})
    np.testing.assert_allclose(events.weight[events.is_signal], 0.5 * 1000 * 2.0 * 3.0 / 100.0)
    np.testing.assert_allclose(events.weight[~events.is_signal], 0.5)
    said = "" if name == 100.0 else f" ({name}, 2 files)"
    assert f"VH: weights x 60 = 1000 x 2/fb x 3 pb / 100{said}." in events.notes
    assert "tt: weights as they stand." in events.notes
    assert events.columns is not None
    assert events.columns.factors == {"VH": 60.0, "tt": 1.0}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("CutBookkeeper_0_NOSYS", r"has 3 bins; name one as in 'NAME\[1\]': 0 \(events\), 1 \(sum of weights\)"),
        ("CutBookkeeper_*_NOSYS[3]", r"has no bin '3'; it has 0 \(events\)"),
        ("*", r"'\*' matches 'CutBookkeeper_0_NOSYS', 'h_0' in VH_0.root \(process 'VH'\); name one of them"),
        ("Runs/genEventSum", r"'Runs/genEventSum' in VH_0.root \(process 'VH'\) is not there; did you mean 'genEv"),
        ("h_9", "no histogram 'h_9' in VH_0.root .*; did you mean 'h_0'"),
    ],
)
def test_sums_that_are_not_clear(folder: Path, name: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        loaded(folder, luminosity=2.0, cross_section={"VH": 3.0, "tt": None}, sum_of_weights={"VH": name})


@pytest.mark.parametrize("how", ["copy", "link", "hard link", "twice"])
def test_a_file_counts_once(folder: Path, how: str) -> None:
    original, other = folder / "VH_0.root", folder / "VH_2.root"
    if how == "copy":
        shutil.copy(original, other)
    elif how == "link":
        other.symlink_to(original)
    elif how == "hard link":
        other.hardlink_to(original)
    files = [original, original] if how == "twice" else folder / "VH_*.root"
    why = "is given twice" if how == "twice" else "is the same as .*VH_2.root"
    with pytest.raises(InputError, match=f"VH_0.root {why}, so that its events would count twice"):
        load_events({"VH": files, "tt": folder / "tt_0.root"}, signal="VH", tree="Events", weight="w")


def test_two_trees_of_a_file_are_two_things_and_two_processes_are_said(folder: Path) -> None:
    both = [f"{folder}/VH_0.root:Events", f"{folder}/VH_0.root:Events;1"]
    assert len(EventStream(both, label=None, weight=None, features="x_NOSYS").files) == 2
    shared = {"VH": folder / "VH_0.root", "tt": folder / "VH_0.root"}
    events = load_events(shared, signal="VH", tree="Events", weight="w", features="x_NOSYS")
    assert "VH_0.root is read for VH and again for tt: its events count for both." in events.notes


@pytest.mark.parametrize("kind", ["folder", "dangling link"])
def test_a_pattern_that_matches_what_cannot_be_read(tmp_path: Path, kind: str) -> None:
    write_events(make_htautau(100), tmp_path / "part-0.parquet")
    if kind == "folder":
        (tmp_path / "part-1.parquet").mkdir()
    else:
        (tmp_path / "part-1.parquet").symlink_to(tmp_path / "nothing")
    what = "a folder" if kind == "folder" else "a link to nothing"
    with pytest.raises(InputError, match=f"part-1.parquet is {what}, so that its events would be missing"):
        load_events(tmp_path / "part-*.parquet")
    with pytest.raises(InputError, match=f"part-1.parquet is {what}"):
        EventStream({"a": tmp_path / "part-*.parquet"}, signal="a")


def test_homes_and_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_events(make_htautau(100), tmp_path / "x.parquet")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NTUPLES", str(tmp_path))
    assert len(load_events("~/x.parquet")) == len(load_events("$NTUPLES/*.parquet")) == 100


def test_a_file_without_events_among_others(folder: Path) -> None:
    with uproot.recreate(folder / "VH_2.root") as file:
        file.mktree("Events", {"x_NOSYS": "f8", "w": "f8"})
    events = loaded(folder)
    assert len(events) == 30
    assert "1 of 4 files hold no events: 'VH_2.root'." in events.notes


def test_varied_columns(folder: Path) -> None:
    asked: dict[str, Any] = {"features": ["x_NOSYS", "y_NOSYS"], "keep": ["number", "big = y_NOSYS > 5", "u = 2 * w"]}
    nominal, up = loaded(folder, **asked), loaded(folder, **asked, varied={"*_NOSYS": "*_JET_up"})
    np.testing.assert_array_equal(up.column("x_NOSYS"), nominal.column("x_NOSYS"))  # it has no varied branch
    np.testing.assert_array_equal(up.column("y_NOSYS"), nominal.column("y_NOSYS") + 1)
    assert up.kept["big"].dtype == np.bool_
    np.testing.assert_array_equal(up.kept["big"], up.column("y_NOSYS") > 5)
    np.testing.assert_array_equal(up.kept["u"], 2 * up.weight)
    one = loaded(folder, features="x_NOSYS", varied={"x_NOSYS": "y_JET_up"})
    np.testing.assert_array_equal(one.X[:, 0], up.column("y_NOSYS"))
    with pytest.raises(InputError, match=r"no column of VH_0.root that matches .* has a counterpart"):
        loaded(folder, varied={"*_NOSYS": "*_MUON_up"})
    with pytest.raises(InputError, match=r"no column 'y_JET_upp' in VH_0.root; did you mean 'y_JET_up'"):
        loaded(folder, varied={"y_NOSYS": "y_JET_upp"})


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"weight": {"VH": "w"}}, "weight has no entry for process 'tt'; give one, or None for no weight"),
        ({"weight": {"VH": "w", "ttb": "w", "tt": "w"}}, "weight names the process 'ttb'.*; did you mean 'tt'"),
        ({"weight": {"VH": 2, "tt": "w"}}, "weight must be text or {process: text}, got int"),
        ({"cut": ["w"]}, "cut must be text or {process: text}, got list"),
        ({"tree": 3}, "tree must be text, got int"),
        ({"cut": {"VH": "zz > 1", "tt": None}}, "no column 'zz' in VH_0.root.*process 'VH'"),
        (
            {"features": ["a = x_NOSYS"], "keep": ["a = y_NOSYS"]},
            "is a feature and a kept column with other values",
        ),
    ],
)
def test_what_is_of_another_kind(folder: Path, asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        loaded(folder, **asked)


def test_a_weight_and_a_cut_for_each_process(folder: Path) -> None:
    events = loaded(folder, weight={"VH": "w", "tt": "2 * w"}, cut={"VH": "x_NOSYS > 4", "tt": None}, features=None)
    np.testing.assert_array_equal(events.weight, np.where(events.is_signal, 0.5, 1.0))
    assert events.is_signal.sum() == 15  # five of the first file, all of the second
    assert (~events.is_signal).sum() == 10
    assert events.feature_names == ("number", "y_NOSYS")  # none that a weight or a cut uses
    assert any("5 of 30 events fail the cut {'VH': 'x_NOSYS > 4', 'tt': None}" in note for note in events.notes)
    assert (loaded(folder, weight={"VH": None, "tt": "w"}).weight[:20] == 1).all()
    with pytest.raises(InputError, match=r"needs \{process: files\}; give one for all events"):
        load_events(folder / "VH_0.root", tree="Events", weight={"VH": "w"})


def test_constants(folder: Path) -> None:
    events = loaded(folder, weight="0.25", features=["one = 1"])
    assert (events.weight == 0.25).all()
    assert (events.X == 1).all()
