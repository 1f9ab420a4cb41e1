"""Grown cascades whose features are never in memory: the same models, and nothing left behind."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fivesigma import GrownCascadeClassifier, load, save
from fivesigma.datasets import Events, EventStream, load_events, make_htautau, write_events
from fivesigma.errors import InputError
from fivesigma.estimators.running import spread_seeds
from fivesigma.estimators.training_sample import read_stream

xgboost = pytest.importorskip("xgboost")
pytest.importorskip("polars")
pytest.importorskip("skops")

SETTINGS: dict[str, Any] = {"n_trees": 8, "b_reg": 10.0, "random_state": 3, "n_jobs": 1}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Events in three files, with values so few that any sketch of them has the same bins."""
    folder = tmp_path_factory.mktemp("events")
    for k in range(3):
        events = make_htautau(2_000, random_state=k)
        X = (np.round(events.X / 20.0) * 20.0).astype(np.float32)
        write_events(Events(X=X, y=events.y, weight=events.weight, signal="s", feature_names=events.feature_names),
                     folder / f"part-{k}.parquet")  # fmt: skip
    return str(folder / "part-*.parquet")


def _trees(model: GrownCascadeClassifier) -> list[bytes]:
    return [bytes(m.booster.save_raw("ubj")) for m in model.models_]


def _same(one: GrownCascadeClassifier, other: GrownCascadeClassifier) -> None:
    assert _trees(one) == _trees(other)
    assert (one.cut_, one.selected_fraction_) == (other.cut_, other.selected_fraction_)
    rounds = [{k: v for k, v in m.history_.to_columns().items() if k != "seconds"} for m in (one, other)]
    assert rounds[0] == rounds[1]
    assert one.classes_.tolist() == other.classes_.tolist()


@pytest.mark.parametrize("memory", ["bins", "disk"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"cascade": False},
        {"update": "train", "monitor_every": 3},
        {"update_cut": "plateau", "params": {"max_bin": 64, "max_depth": 3}},
        {"early_stopping": 1, "n_trees": 30, "params": {"learning_rate": 1.0}},
    ],
    ids=["default", "plain", "train", "plateau", "early"],
)
def test_the_model_is_that_of_all_in_memory(files: str, memory: str, more: dict[str, Any]) -> None:
    settings = {**SETTINGS, **more}
    streamed = GrownCascadeClassifier(memory=memory, **settings).fit(EventStream(files, rows=700))
    seed = spread_seeds(settings["random_state"], 2)[0]
    _, splits = read_stream(EventStream(files), 0.25, seed, pos_label=None, negative="error")
    events = load_events(files)
    whole = GrownCascadeClassifier(cv=splits, **settings).fit(events)
    _same(streamed, whole)
    assert streamed.data_hash_ == whole.data_hash_
    assert streamed.columns_ == whole.columns_
    np.testing.assert_array_equal(streamed.predict_proba(events), whole.predict_proba(events))
    if "early_stopping" in more:
        assert streamed.n_trees_ < len(streamed.history_)


@pytest.mark.parametrize("memory", ["bins", "disk"])
@pytest.mark.parametrize("cv", [0.25, 3])
def test_arrays_go_batch_by_batch_too(files: str, memory: str, cv: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fivesigma.learners.protocols.BATCH", 900)
    events = load_events(files)
    whole = GrownCascadeClassifier(cv=cv, **SETTINGS).fit(events)
    batched = GrownCascadeClassifier(cv=cv, memory=memory, refit=False, **SETTINGS).fit(events)
    _same(batched, whole)


def test_a_run_that_was_killed_resumes(files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**SETTINGS, "memory": "disk", "checkpoint_every": 3}
    whole = GrownCascadeClassifier(**settings, checkpoint=tmp_path / "whole").fit(EventStream(files))
    grow = xgboost.Booster.update
    calls = []

    def dies(self: Any, *args: Any, **kwargs: Any) -> None:
        calls.append(1)
        if len(calls) == 6:
            raise RuntimeError("killed")
        grow(self, *args, **kwargs)

    part = GrownCascadeClassifier(**settings, checkpoint=tmp_path / "part", cache=tmp_path / "cache")
    with monkeypatch.context() as patch:
        patch.setattr(xgboost.Booster, "update", dies)
        with pytest.raises(RuntimeError, match="killed"):
            part.fit(EventStream(files))
    assert not (tmp_path / "cache").exists()
    _same(part.fit(EventStream(files)), whole)


def test_a_model_is_saved_and_loaded(files: str, tmp_path: Path) -> None:
    model = GrownCascadeClassifier(memory="disk", cache=str(tmp_path / "cache"), **SETTINGS).fit(EventStream(files))
    again = load(save(model, tmp_path / "model"))
    assert (again.memory, again.cache) == ("disk", str(tmp_path / "cache"))
    events = load_events(files)
    np.testing.assert_array_equal(again.predict(events), model.predict(events))


def _left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def test_the_cache_is_there_while_trees_grow_and_then_gone(
    files: str, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    grow = xgboost.Booster.update

    def watched(self: Any, *args: Any, **kwargs: Any) -> None:
        seen.append([str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()])
        grow(self, *args, **kwargs)

    monkeypatch.setattr(xgboost.Booster, "update", watched)
    GrownCascadeClassifier(memory="disk", cache=tmp_path / "cache", **SETTINGS).fit(EventStream(files))
    assert any(name.startswith("cache/split-0/train") for name in seen[0])
    GrownCascadeClassifier(memory="disk", **SETTINGS).fit(EventStream(files))
    assert any(name.startswith("temporary/fivesigma-") for name in seen[-1])
    assert _left(tmp_path) == ["temporary"]
    assert _left(temporary) == []


def test_a_cache_folder_that_exists(files: str, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "precious").touch()
    with pytest.raises(
        InputError, match=r"the cache folder .*cache exists already, and another run may use it; choose"
    ):
        GrownCascadeClassifier(memory="disk", cache=tmp_path / "cache", **SETTINGS).fit(EventStream(files))
    assert _left(tmp_path / "cache") == ["precious"]
    with pytest.raises(InputError, match=r"the cache folder .* cannot be made: No such file or directory"):
        GrownCascadeClassifier(memory="disk", cache=tmp_path / "no" / "cache", **SETTINGS).fit(EventStream(files))


def test_no_room_for_the_cache(files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000))
    model = GrownCascadeClassifier(memory="disk", cache=tmp_path / "cache", **SETTINGS)
    with pytest.raises(InputError, match=r"the cache of 6,000 events needs 1 MB, and .* has 0 MB left; choose"):
        model.fit(EventStream(files))
    assert _left(tmp_path) == []


@pytest.mark.parametrize("memory", ["bins", "disk"])
def test_a_file_that_changes_while_it_is_binned(tmp_path: Path, temporary: Path, memory: str) -> None:
    path = write_events(make_htautau(3_000), tmp_path / "events.parquet")
    stream = EventStream(path, rows=500)
    tables, passes = stream.tables, []

    def touched() -> Any:
        passes.append(1)
        if len(passes) == 2:
            os.utime(path, ns=(1, 1))
        return tables()

    stream.tables = touched  # type: ignore[method-assign]
    with pytest.raises(InputError, match=r"events\.parquet has changed since the first pass over it"):
        GrownCascadeClassifier(memory=memory, **SETTINGS).fit(stream)
    assert _left(temporary) == []


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"memory": "all"}, "an EventStream needs memory='bins' or memory='disk'; load_events reads all of it"),
        ({"memory": "bins", "cv": 3}, "an EventStream needs a fraction as cv, the share of events held out, got 3"),
        ({"memory": "bins", "refit": True}, "refit needs all events in memory; leave it out for an EventStream"),
        ({"memory": "bins", "update": "cross-fit"}, "update='cross-fit' needs all events in memory"),
        ({"memory": "bins", "library": "lightgbm"}, "memory='bins' is available with library='xgboost', not with"),
        (
            {"memory": "bins", "cache": "x"},
            "cache is a folder for memory='disk', and memory is 'bins'; leave cache out",
        ),
        ({"memory": "some"}, "memory must be one of all, bins, disk, got 'some'"),
        ({"memory": "bins", "pos_label": "x"}, "pos_label='x' is not among the labels"),
    ],
)
def test_what_does_not_go_together(files: str, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        GrownCascadeClassifier(**{**SETTINGS, **settings}).fit(EventStream(files))


def test_labels_beside_a_stream(files: str) -> None:
    with pytest.raises(InputError, match="y is given with an EventStream, which reads it from its files"):
        GrownCascadeClassifier(memory="bins").fit(EventStream(files), [1, 0])


def test_an_old_xgboost_says_so(files: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xgboost, "__version__", "3.0.5")
    with pytest.raises(InputError, match=r"xgboost 3\.1\.3 or newer is needed here, and 3\.0\.5 is installed"):
        GrownCascadeClassifier(memory="disk", **SETTINGS).fit(EventStream(files))


def test_the_other_label_as_signal(files: str) -> None:
    model = GrownCascadeClassifier(memory="bins", pos_label="b", **SETTINGS).fit(EventStream(files))
    assert model.classes_.tolist() == ["s", "b"]


@pytest.mark.parametrize("memory", ["bins", "disk"])
def test_processes_in_root_files_and_chunks_of_one_class(tmp_path: Path, memory: str) -> None:
    pytest.importorskip("uproot")
    events = make_htautau(3_000, random_state=0)
    for name, members in (("H", events.is_signal), ("Z", ~events.is_signal)):
        write_events(events[members], tmp_path / f"{name}.root")
    paths = {name: tmp_path / f"{name}.root" for name in ("H", "Z")}
    options: dict[str, Any] = {"signal": ["H"], "features": ["PRI_*", "r = DER_pt_h / (1 + DER_mass_vis)"]}
    stream = EventStream(paths, rows=200, cut="PRI_jet_num >= 1", **options)
    streamed = GrownCascadeClassifier(memory=memory, **SETTINGS).fit(stream)
    seed = spread_seeds(SETTINGS["random_state"], 2)[0]
    _, splits = read_stream(stream, 0.25, seed, pos_label=None, negative="error")
    whole = GrownCascadeClassifier(cv=splits, **SETTINGS).fit(load_events(paths, cut="PRI_jet_num >= 1", **options))
    _same(streamed, whole)


def test_a_sample_without_signal_is_one_sentence(tmp_path: Path, temporary: Path) -> None:
    events = make_htautau(500, random_state=0)
    path = write_events(events[~events.is_signal], tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"column 'Label' of b\.parquet must hold two labels; it holds 'b'"):
        GrownCascadeClassifier(memory="disk", **SETTINGS).fit(EventStream(path))
    assert _left(temporary) == []
