"""Fits on a real cluster of two processes give what one process gives."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.base import clone

import fivesigma
from fivesigma import GrownCascadeClassifier as Ordinary
from fivesigma.cli import main
from fivesigma.dask import ClusterError, GrownCascadeClassifier, scan
from fivesigma.datasets import EventStream, load_events
from fivesigma.datasets.write import write_events, write_trees
from fivesigma.errors import InputError
from tests.dask.files import ALL_ROWS, Where, assert_same, trees

FIT: dict[str, Any] = {"n_trees": 8, "params": ALL_ROWS, "random_state": 3}


def ordinary(files: Any, **options: Any) -> Any:
    """The same fit in this process."""
    stream = EventStream(files, signal=options.pop("signal", None))
    return Ordinary(memory="bins", n_jobs=1, **(FIT | options)).fit(stream)


@pytest.mark.parametrize(
    "options",
    [{}, {"update_cut": "plateau", "monitor_every": 3, "early_stopping": 2}, {"cascade": False, "memory": "disk"}],
)
def test_equals_a_single_process(client: Any, pattern: str, options: dict[str, Any]) -> None:
    model = GrownCascadeClassifier(client, timeout=60, **(FIT | options)).fit(pattern)
    assert_same(model, ordinary(pattern, **{k: v for k, v in options.items() if k != "memory"}))


def test_worker_without_events_and_without_signal(client: Any, pattern: str, folder: Path) -> None:
    one = str(folder / "part-0.parquet")  # the second worker gets no file
    assert_same(GrownCascadeClassifier(client, timeout=60, **FIT).fit(one), ordinary(one))
    events = load_events(pattern)
    files = {}
    for name, rows in (("h", events.is_signal), ("z", ~events.is_signal)):
        files[name] = folder / f"process-{name}.parquet"
        write_events(events[rows], files[name])
    model = GrownCascadeClassifier(client, timeout=60, **FIT).fit(files, signal=["h"])
    assert_same(model, ordinary(files, signal=["h"]))


def test_root_files(client: Any, pattern: str, tmp_path: Path) -> None:
    pytest.importorskip("uproot")
    events = load_events(pattern)
    for k in range(2):
        part = events[k::2]
        columns = {name: part.X[:, j] for j, name in enumerate(part.feature_names)}
        write_trees(
            tmp_path / f"part-{k}.root",
            [("tree", {**columns, "Label": part.is_signal.astype(np.int32), "Weight": part.weight})],
        )
    files = str(tmp_path / "part-*.root")
    model = GrownCascadeClassifier(client, timeout=60, **FIT).fit(files, signal=1)
    assert_same(model, ordinary(files, signal=1))


def test_sampling_repeats_and_few_bins_come_from_a_sample(client: Any, pattern: str) -> None:
    fits = [
        GrownCascadeClassifier(client, timeout=60, bin_sample=500, n_trees=6, random_state=1).fit(pattern)
        for _ in range(2)
    ]
    assert trees(fits[0]) == trees(fits[1])
    assert trees(fits[0]) != trees(clone(fits[0]).set_params(bin_sample=100).fit(pattern))


def test_is_an_ordinary_model(client: Any, pattern: str, tmp_path: Path) -> None:
    model = GrownCascadeClassifier(client, timeout=60, **FIT).fit(pattern)
    events = load_events(pattern)
    fivesigma.save(model, tmp_path / "model")
    loaded = fivesigma.load(tmp_path / "model")
    assert type(loaded) is Ordinary
    np.testing.assert_array_equal(loaded.predict_proba(events), model.predict_proba(events))
    assert loaded.cut_ == model.cut_
    assert list(loaded.feature_names_in_) == list(events.feature_names)


def test_collections(client: Any, pattern: str) -> None:
    dask_array, dask_frame = pytest.importorskip("dask.array"), pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    events = load_events(pattern)
    X, y, w = events.X, np.asarray(events.y), events.weight
    arrays = [dask_array.from_array(values, chunks=(900, *values.shape[1:])) for values in (X, y, w)]
    model = GrownCascadeClassifier(client, timeout=60, **FIT).fit(*arrays)
    frame = dask_frame.from_pandas(pandas.DataFrame(X, columns=events.feature_names).assign(y=y, w=w), chunksize=900)
    same = GrownCascadeClassifier(client, timeout=60, **FIT).fit(
        frame[list(events.feature_names)], frame["y"], frame["w"]
    )
    assert trees(model) == trees(same)
    assert list(same.feature_names_in_) == list(events.feature_names)
    scores = model.predict_proba(arrays[0])
    np.testing.assert_array_equal(client.compute(scores).result(), model.predict_proba(X))
    of_frame = same.predict_proba(frame[list(events.feature_names)])
    np.testing.assert_array_equal(client.compute(of_frame).result(), model.predict_proba(X))
    for rule in ("model", "plateau", "peak"):
        found = scan(scores[:, 1], arrays[1], arrays[2], rule=rule, client=client)
        whole = fivesigma.scan(model.predict_proba(X)[:, 1], y, w, rule=rule)
        assert found.cut == whole.cut
        assert found.significance == pytest.approx(whole.significance, rel=1e-12)
    with pytest.raises(InputError, match=r"'smooth'"):
        scan(scores[:, 1], arrays[1], arrays[2], rule="smooth", client=client)
    with pytest.raises(InputError, match=r"partition"):
        GrownCascadeClassifier(client, **FIT).fit(arrays[0], arrays[1].rechunk(100), arrays[2])


def test_command_line(client: Any, pattern: str, tmp_path: Path) -> None:
    command = ["train", pattern, "--trees", "6", "--seed", "3", "--model", "grown", "-o"]
    address = client.scheduler.address
    result = CliRunner().invoke(main, [*command, str(tmp_path / "model"), "--dask", address])
    assert result.exit_code == 0, result.stderr
    assert "6 rounds" in result.output
    assert len(fivesigma.load(tmp_path / "model").history_) == 6
    for options, reason in ((["--folds", "5"], "--folds needs all events"), (["--cache", "x"], "--cache is a folder")):
        refused = CliRunner().invoke(main, [*command, str(tmp_path / "other"), "--dask", address, *options])
        assert refused.exit_code == 1
        assert reason in refused.stderr


def test_pools_by_joblib(client: Any) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([1, 0], 1000)
    X, w = rng.normal(size=(2000, 2)) + 1.5 * y[:, None], np.where(y == 1, 0.15, 1.5)
    grown = Ordinary(n_trees=4, random_state=0)
    pool = fivesigma.CascadePool([("grown", grown), ("plain", Where())], cv=2, random_state=0)
    here = clone(pool).fit(X, y, sample_weight=w)
    with client.as_current(), joblib.parallel_config("dask"):
        there = clone(pool).fit(X, y, sample_weight=w)
    np.testing.assert_array_equal(here.predict_proba(X), there.predict_proba(X))
    models = [inner for _, m in there.members_ for inner in m.models_]
    pids = {inner.estimator.pid_ for inner in models if hasattr(inner, "estimator")}
    assert pids <= set(client.run(os.getpid).values())
    assert pids


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"library": "lightgbm"}, "has no public operation that sums yields over workers"),
        ({"update": "cross-fit"}, "needs a booster per fold"),
        ({"cv": 5}, "needs a fraction"),
        ({"refit": True}, "refit"),
        ({"cut": "smooth"}, "in one place"),
        ({"timeout": 0}, "seconds"),
        ({"client": 3}, "distributed.Client or an address"),
    ],
)
def test_refusals(client: Any, pattern: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        GrownCascadeClassifier(**({"client": client} | FIT | options)).fit(pattern)


def test_file_that_one_worker_cannot_read(client: Any, folder: Path, tmp_path: Path) -> None:
    for k in range(2):
        (tmp_path / f"part-{k}.parquet").write_bytes((folder / f"part-{k}.parquet").read_bytes())
    stream = EventStream(str(tmp_path / "part-*.parquet"))
    (tmp_path / "part-1.parquet").unlink()
    with pytest.raises(ClusterError, match=r"^worker \d at tcp://.*: .*part-1\.parquet cannot be read: No such file"):
        GrownCascadeClassifier(client, timeout=10, **FIT).fit(stream)


@pytest.mark.parametrize("where", ["fivesigma.dask.share._rows", "fivesigma.learners.xgboost.XGBoostGrower.grow"])
def test_error_on_one_worker(client: Any, pattern: str, where: str) -> None:
    workers = sorted(client.run(os.getpid))
    client.run(_break, where, workers=workers[1:])
    try:
        with pytest.raises(
            ClusterError, match=r"^worker \d at tcp://.*: RuntimeError: the detector is on fire$"
        ) as caught:
            GrownCascadeClassifier(client, timeout=10, **FIT).fit(pattern)
        assert workers[1] in str(caught.value)
    finally:
        client.run(_mend, where, workers=workers[1:])
    assert len(GrownCascadeClassifier(client, timeout=60, **FIT).fit(pattern).history_) == 8


def _break(where: str) -> None:
    import pydoc

    owner, _, name = where.rpartition(".")
    found: Any = pydoc.locate(owner)
    found._whole = getattr(found, name)

    def fail(*_: Any) -> None:
        raise RuntimeError("the detector is on fire")

    setattr(found, name, fail)


def _mend(where: str) -> None:
    import pydoc

    owner, _, name = where.rpartition(".")
    found: Any = pydoc.locate(owner)
    setattr(found, name, found._whole)
