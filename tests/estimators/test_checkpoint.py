"""Runs that survive: killed at any moment, the same call ends with the same model."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from xgboost import XGBClassifier

from fivesigma import CascadeClassifier, CascadePool, GrownCascadeClassifier
from fivesigma.errors import InputError
from fivesigma.estimators.checkpoint import Checkpoint, write_atomically
from tests.estimators.blobs import make_blobs

X, Y, W = make_blobs()

SCRIPT = """
import sys
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from xgboost import XGBClassifier

from fivesigma import CascadeClassifier, CascadePool, GrownCascadeClassifier
from tests.estimators.blobs import make_blobs
library, folder, out = sys.argv[1:]
model = GrownCascadeClassifier(
    library, n_trees=60, checkpoint=folder, checkpoint_every=8, random_state=3, n_jobs=1, cv=2,
    params={"max_depth": 3, "subsample": 0.5},
)
print("ready", flush=True)
model.fit(*make_blobs())
np.save(out, model.predict_proba(make_blobs()[0]))
"""


def start(library: str, folder: Path, out: Path) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    command = [sys.executable, "-c", SCRIPT, library, str(folder), str(out)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_killed_three_times_ends_with_the_same_model(library: str, tmp_path: Path) -> None:
    whole = start(library, tmp_path / "whole", tmp_path / "whole.npy")
    clock = time.monotonic()
    assert whole.stdout is not None
    whole.stdout.readline()
    training = time.monotonic()
    assert whole.wait(120) == 0, whole.stderr.read() if whole.stderr else ""
    seconds = time.monotonic() - training
    assert training > clock
    moments = random.Random(library)
    for _ in range(3):
        run = start(library, tmp_path / "killed", tmp_path / "killed.npy")
        assert run.stdout is not None
        run.stdout.readline()
        time.sleep(moments.uniform(0.1, 0.8) * seconds)
        run.kill()
        run.communicate()
    last = start(library, tmp_path / "killed", tmp_path / "killed.npy")
    assert last.wait(120) == 0, last.stderr.read() if last.stderr else ""
    last.communicate()
    whole.communicate()
    assert np.array_equal(np.load(tmp_path / "whole.npy"), np.load(tmp_path / "killed.npy"))


def grown(folder: Path, **options: Any) -> GrownCascadeClassifier:
    settings: dict[str, Any] = {"n_trees": 20, "checkpoint_every": 8, "random_state": 0, "n_jobs": 1}
    return GrownCascadeClassifier(checkpoint=folder, **settings | options)


def test_resumes_after_the_last_written_tree(tmp_path: Path) -> None:
    whole = grown(tmp_path / "a").fit(X, Y, W)

    with pytest.raises(KeyboardInterrupt):
        grown(tmp_path / "b").set_callbacks(StopAt("round", 12)).fit(X, Y, W)
    state = json.loads((tmp_path / "b" / "checkpoint.json").read_text())["state"]
    assert len(state["rounds"]) == 8
    resumed = grown(tmp_path / "b").fit(X, Y, W)
    assert np.array_equal(whole.predict_proba(X), resumed.predict_proba(X))
    assert [r.u for r in whole.history_] == [r.u for r in resumed.history_]
    assert [r.index for r in resumed.history_] == list(range(20))


def test_interrupt_says_what_is_left(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = start("xgboost", tmp_path / "run", tmp_path / "out.npy")
    assert run.stdout is not None
    run.stdout.readline()
    while not (tmp_path / "run" / "checkpoint.json").exists():
        time.sleep(0.01)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)
    if run.returncode != 0:  # it may have finished before the signal came
        assert "the same call goes on from tree" in err


class StopAt:
    """Interrupts a fit at the end of a task."""

    def __init__(self, name: str, number: int) -> None:
        self._name, self._number = name, number

    def setup(self, estimator: Any, context: Any) -> None: ...
    def teardown(self, estimator: Any, context: Any) -> None: ...
    def on_fit_task_begin(self, estimator: Any, context: Any) -> None: ...
    def on_fit_task_end(self, estimator: Any, context: Any) -> None:
        if context.task_name == self._name and context.task_id == self._number:
            raise KeyboardInterrupt


def test_retrained_cascade_resumes_after_its_last_round(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def model(name: str) -> CascadeClassifier:
        learner = XGBClassifier(n_estimators=10, subsample=0.5, n_jobs=1)
        options: dict[str, Any] = {"max_rounds": 5, "extra_rounds": 5, "n_restarts": 2, "keep": 3}
        return CascadeClassifier(learner, checkpoint=tmp_path / name, random_state=0, n_jobs=1, **options)

    whole = model("whole").fit(X, Y, W)
    with pytest.raises(KeyboardInterrupt):
        model("stopped").set_callbacks(StopAt("round", 7)).fit(X, Y, W)
    assert "the same call goes on from round 8" in capfd.readouterr().err
    resumed = model("stopped").fit(X, Y, W)
    assert np.array_equal(whole.predict_proba(X), resumed.predict_proba(X))
    assert [r.u for r in whole.history_] == [r.u for r in resumed.history_]
    finished = model("stopped").fit(X, Y, W)
    assert np.array_equal(whole.predict_proba(X), finished.predict_proba(X))


def test_pool_resumes_after_its_last_fit(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def pool(name: str) -> CascadePool:
        members = [
            ("grown", GrownCascadeClassifier(n_trees=12, checkpoint_every=4)),
            ("forest", RandomForestClassifier(5, min_samples_leaf=20)),
            ("retrained", CascadeClassifier(LogisticRegression(), max_rounds=2)),
        ]
        return CascadePool(members, cv=2, checkpoint=tmp_path / name, random_state=0, n_jobs=1)

    whole = pool("whole").fit(X, Y, W)
    with pytest.raises(KeyboardInterrupt):
        pool("stopped").set_callbacks(StopAt("fit", 2)).fit(X, Y, W)
    assert "the same call goes on from fit 3" in capfd.readouterr().err
    before = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "stopped").iterdir() if p.is_dir()}
    resumed = pool("stopped").fit(X, Y, W)
    assert np.array_equal(whole.predict_proba(X), resumed.predict_proba(X))
    assert whole.cut_ == resumed.cut_
    after = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "stopped").iterdir() if p.is_dir()}
    assert {name: after[name] for name in before} == before, "finished fits are not written again"
    assert sorted(after) == [f"{name}-{k}" for name in ("forest", "grown", "retrained") for k in range(2)]
    with pytest.raises(InputError, match="of another configuration"):
        pool("stopped").set_params(grown__n_trees=13).fit(X, Y, W)


@pytest.mark.parametrize(
    ("options", "data", "words"),
    [
        ({"n_trees": 21}, (X, Y, W), "of another configuration"),
        ({"params": {"max_depth": 3}}, (X, Y, W), "of another configuration"),
        ({}, (X + 1e-9, Y, W), "of other events"),
        ({}, (X, Y, 2 * W), "of other events"),
        ({"checkpoint_every": 4}, (X, Y, W), "of another interval"),
    ],
    ids=["trees", "parameters", "table", "weights", "interval"],
)
def test_checkpoint_of_another_run_is_refused(tmp_path: Path, options: Any, data: Any, words: str) -> None:
    grown(tmp_path).fit(X, Y, W)
    with pytest.raises(InputError, match=words):
        grown(tmp_path, **options).fit(*data)


def test_threads_and_verbosity_do_not_make_another_run(tmp_path: Path) -> None:
    first = grown(tmp_path).fit(X, Y, W)
    again = grown(tmp_path, verbose=1).fit(X, Y, W)
    assert np.array_equal(first.predict_proba(X), again.predict_proba(X))


@pytest.mark.parametrize("damage", ["garbage", "truncated", "booster", "missing", "newer"])
def test_damaged_checkpoint_is_refused_with_a_sentence(tmp_path: Path, damage: str) -> None:
    grown(tmp_path).fit(X, Y, W)
    manifest = tmp_path / "checkpoint.json"
    booster = next(p for p in tmp_path.iterdir() if p.name.startswith("booster-0"))
    if damage == "garbage":
        manifest.write_text("[]")
    elif damage == "truncated":
        manifest.write_text(manifest.read_text()[:100])
    elif damage == "booster":
        booster.write_bytes(booster.read_bytes()[:-1] + b"?")
    elif damage == "missing":
        booster.unlink()
    else:
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 99}))
    with pytest.raises(InputError, match="remove the folder"):
        grown(tmp_path).fit(X, Y, W)


def test_folder_holds_one_state_and_no_leftovers(tmp_path: Path) -> None:
    grown(tmp_path).fit(X, Y, W)
    names = sorted(p.name.partition(".")[0] for p in tmp_path.iterdir())
    assert names == ["booster-0", "checkpoint"]


def test_a_write_that_fails_leaves_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = Checkpoint(tmp_path, {"settings": "a", "events": "b"}, 5)
    checkpoint.write({"rounds": [1]}, {"part": b"old"})

    def fail(path: Path, content: bytes) -> None:
        if path.name == "checkpoint.json":
            raise OSError("disk full")
        write_atomically(path, content)

    monkeypatch.setattr("fivesigma.estimators.checkpoint.write_atomically", fail)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.write({"rounds": [1, 2]}, {"part": b"new"})
    assert checkpoint.read() == ({"rounds": [1]}, {"part": b"old"})
