"""A model's events are read again as they were in training, and it says so."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fivesigma import GrownCascadeClassifier, InputError, load, load_events, save
from fivesigma.datasets import EventStream, make_htautau, write_events

SETTINGS: dict[str, Any] = {
    "features": ["PRI_tau_pt", "ratio = DER_pt_h / (1 + DER_mass_vis)"],
    "weight": "Weight * 2",
    "cut": "PRI_jet_num >= 1",
    "luminosity": 2.0,
    "cross_section": {"H": None, "Z": 3.0},
    "sum_of_weights": {"Z": 100.0},
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    events = make_htautau(3_000, random_state=0)
    parts = {"H": events[events.is_signal], "Z": events[~events.is_signal]}
    return {name: write_events(part, folder / f"{name}.parquet") for name, part in parts.items()}


@pytest.fixture(scope="module")
def model(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Any:
    fitted = GrownCascadeClassifier(n_trees=3, random_state=0, n_jobs=1).fit(load_events(files, signal="H", **SETTINGS))
    folder = tmp_path_factory.mktemp("model") / "model"
    save(fitted, folder)
    return load(folder)


def test_everything_is_as_in_training(files: dict[str, Path], model: Any) -> None:
    wanted = load_events(files, signal="H", **SETTINGS)
    found = EventStream.like(model, files, rows=None).load()
    for name in ("X", "y", "weight", "process"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
    assert found.notes[0] == (
        "As in training: signal H; luminosity 2/fb, cross sections and sums of weights; cut 'PRI_jet_num >= 1'; "
        "weight 'Weight * 2'; definitions of ratio."
    )
    assert "Z: weights x 60 = 1000 x 2/fb x 3 pb / 100." in found.notes
    assert model.columns_["factors"] == {"H": 1.0, "Z": 60.0}


def test_what_is_asked_otherwise_wins(files: dict[str, Path], model: Any) -> None:
    every = EventStream.like(model, files, rows=None, cut=None, luminosity=None, weight="Weight").load()
    assert len(every) == 3_000
    np.testing.assert_array_equal(every.weight, load_events(files, signal="H", features="PRI_*").weight)
    assert not any("cut" in note or "luminosity" in note for note in every.notes)
    half = EventStream.like(model, files, rows=None, luminosity=1.0).load()
    whole = EventStream.like(model, files, rows=None).load()
    is_z = whole.process == "Z"
    np.testing.assert_allclose(half.weight[is_z], whole.weight[is_z] / 2)
    assert (EventStream.like(model, files, signal=["Z"]).load().is_signal == is_z).all()


def test_other_processes_and_plain_files(files: dict[str, Path], model: Any) -> None:
    more = EventStream.like(model, {"H": files["H"], "W": files["Z"]}, cross_section={"W": None})
    assert "Not in training, and taken as background: W." in more.notes
    plain = EventStream.like(model, [files["H"], files["Z"]], rows=None).load()
    assert "In training processes were normalised; without processes weights are as they stand." in plain.notes


def test_a_weight_and_a_cut_of_each_process(files: dict[str, Path]) -> None:
    asked: dict[str, Any] = SETTINGS | {"weight": {"H": "Weight", "Z": "3 * Weight"}}
    asked["cut"] = {"H": "PRI_jet_num >= 1", "Z": None}
    wanted = load_events(files, signal="H", **asked)
    model = GrownCascadeClassifier(n_trees=3, random_state=0, n_jobs=1).fit(wanted)
    found = EventStream.like(model, files, rows=None).load()
    np.testing.assert_array_equal(found.weight, wanted.weight)
    assert "cut {'H': 'PRI_jet_num >= 1', 'Z': None}" in found.notes[0]
    assert len(EventStream.like(model, {"Z": files["Z"]}, rows=None).load()) == np.sum(wanted.process == "Z")
    with pytest.raises(InputError, match="cut has no entry for process 'W'"):
        EventStream.like(model, {"H": files["H"], "W": files["Z"]}, cross_section={"W": None}, weight="Weight")
    with pytest.raises(InputError, match="the training had a cut for each process"):
        EventStream.like(model, files["H"])
    assert len(EventStream.like(model, list(files.values()), cut=None, rows=None).load()) == 3_000


def test_a_file_that_lacks_a_column_of_the_cut(tmp_path: Path, model: Any) -> None:
    pl = pytest.importorskip("polars")
    path = write_events(make_htautau(100), tmp_path / "x.parquet")
    pl.read_parquet(path).drop("PRI_jet_num").write_parquet(tmp_path / "y.parquet")
    with pytest.raises(InputError, match=r"the training took the events that pass .* --where none to take all events"):
        EventStream.like(model, tmp_path / "y.parquet")
    assert len(EventStream.like(model, tmp_path / "y.parquet", cut=None).load()) == 100
    with pytest.raises(TypeError, match="unexpected keyword argument 'kut'"):
        EventStream.like(model, tmp_path / "x.parquet", kut=None)
