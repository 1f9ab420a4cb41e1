"""Runs that survive: killed at any moment, the same call ends with the same model."""

from __future__ import annotations

import copy
import gc
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.naive_bayes import GaussianNB
from xgboost import XGBClassifier

from fivesigma import CascadeClassifier, CascadePool, FDivergence, GrownCascadeClassifier
from fivesigma.errors import InputError
from fivesigma.estimators import fits
from fivesigma.store.checkpoint import Checkpoint, fingerprint, write_atomically
from tests.estimators.blobs import make_blobs

X, Y, W = make_blobs()

SCRIPT = """
import sys
import numpy as np
from fivesigma import GrownCascadeClassifier
from tests.estimators.blobs import make_blobs
from tests.estimators.test_checkpoint import SignalAt
library, folder, out, interrupt_at = sys.argv[1:]
model = GrownCascadeClassifier(
    library, n_trees=60, checkpoint=folder, checkpoint_every=8, random_state=3, n_jobs=1, cv=2,
    params={"max_depth": 3, "subsample": 0.5},
)
if int(interrupt_at):
    model.set_callbacks(SignalAt("round", int(interrupt_at)))
print("ready", flush=True)
model.fit(*make_blobs())
np.save(out, model.predict_proba(make_blobs()[0]))
"""


def start(library: str, folder: Path, out: Path, interrupt_at: int = 0) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    command = [sys.executable, "-c", SCRIPT, library, str(folder), str(out), str(interrupt_at)]
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
    moments, manifest = random.Random(library), tmp_path / "killed" / "checkpoint.json"
    hits = 0
    for _ in range(3):
        seen = manifest.stat().st_mtime_ns if manifest.exists() else 0
        run = start(library, tmp_path / "killed", tmp_path / "killed.npy")
        assert run.stdout is not None
        run.stdout.readline()
        while run.poll() is None and not (manifest.exists() and manifest.stat().st_mtime_ns > seen):
            time.sleep(0.002)
        time.sleep(moments.uniform(0, 0.1) * seconds)
        run.kill()
        run.communicate()
        hits += run.returncode == -signal.SIGKILL and manifest.exists() and not (tmp_path / "killed.npy").exists()
    assert hits, "no kill hit a fit that had written something"
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
    assert len(state["rounds"]["index"]) == 8
    resumed = grown(tmp_path / "b").fit(X, Y, W)
    assert np.array_equal(whole.predict_proba(X), resumed.predict_proba(X))
    assert [r.u for r in whole.history_] == [r.u for r in resumed.history_]
    assert [r.index for r in resumed.history_] == list(range(20))


@pytest.mark.parametrize(("library", "share"), [("xgboost", "colsample_bytree"), ("lightgbm", "feature_fraction")])
def test_trees_after_a_checkpoint_draw_other_columns(library: str, share: str, tmp_path: Path) -> None:
    table = np.random.default_rng(0).normal(size=(Y.size, 4)) + Y[:, None]
    options: dict[str, Any] = {"library": library, "checkpoint_every": 1, "params": {share: 0.25, "max_depth": 1}}
    model = grown(tmp_path, **options).fit(table, Y, W)
    assert (model.feature_importances_ > 0).all(), "a tree of one column each, and the same one after every write"


def test_interrupt_says_what_is_left(tmp_path: Path) -> None:
    run = start("xgboost", tmp_path / "run", tmp_path / "out.npy", interrupt_at=20)
    _, err = run.communicate(timeout=120)
    assert run.returncode != 0
    assert "the same call goes on from tree 16, kept in" in err
    assert not (tmp_path / "out.npy").exists()
    assert not (tmp_path / "run" / "checkpoint.lock").exists()


class StopAt:
    """Interrupts a fit at the end of a task."""

    def __init__(self, name: str, number: int) -> None:
        self._name, self._number = name, number

    def setup(self, estimator: Any, context: Any) -> None: ...
    def teardown(self, estimator: Any, context: Any) -> None: ...
    def on_fit_task_begin(self, estimator: Any, context: Any) -> None: ...
    def on_fit_task_end(self, estimator: Any, context: Any) -> None:
        if context.task_name == self._name and context.task_id == self._number:
            self.act()

    def act(self) -> None:
        raise KeyboardInterrupt


class SignalAt(StopAt):
    """Does what Ctrl-C does, at the end of a task."""

    def act(self) -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # to this thread, not to the main one: the worst case


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


def small_pool(folder: Path, **options: Any) -> CascadePool:
    members = [
        ("grown", GrownCascadeClassifier(n_trees=12, checkpoint_every=4)),
        ("retrained", CascadeClassifier(LogisticRegression(), max_rounds=2)),
    ]
    given: dict[str, Any] = {"estimators": members, "random_state": 0, "n_jobs": 1}
    return CascadePool(checkpoint=folder, **given | options)


class KilledError(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("window", ["before the manifest", "while the checkpoint of the fit is removed"])
def test_pool_killed_where_a_fit_ends_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: str) -> None:
    whole = small_pool(tmp_path / "whole").fit(X, Y, W)
    folder = tmp_path / "killed"
    write, rmtree = Checkpoint.write, shutil.rmtree

    def killed_before(self: Checkpoint, state: dict[str, Any], files: Any) -> None:
        if "fits" in state:
            raise KilledError
        write(self, state, files)

    def killed_inside(path: Path, **options: Any) -> None:
        if not path.name.endswith(".running"):
            rmtree(path, **options)
            return
        next(p for p in path.iterdir() if p.name.startswith("booster")).unlink()
        raise KilledError

    with monkeypatch.context() as patch:
        if window == "before the manifest":
            patch.setattr(Checkpoint, "write", killed_before)
        else:
            patch.setattr(shutil, "rmtree", killed_inside)
        with pytest.raises(KilledError):
            small_pool(folder).fit(X, Y, W)
    assert (folder / "grown-0").is_dir()
    assert (folder / "grown-0.running").is_dir()
    (folder / ".grown-0-abc").mkdir()  # left by a kill while a model was written
    resumed = small_pool(folder).fit(X, Y, W)
    assert np.array_equal(whole.predict_proba(X), resumed.predict_proba(X))
    assert sorted(p.name for p in folder.iterdir()) == ["checkpoint.json", "grown-0", "retrained-0"]


@pytest.mark.parametrize("kind", ["pool", "restarts"])
def test_interrupt_ends_all_threads(tmp_path: Path, kind: str) -> None:
    model: Any
    if kind == "pool":
        endless = GrownCascadeClassifier(n_trees=100_000, checkpoint_every=10)
        members = [("quick", GaussianNB()), ("a", endless), ("b", endless)]
        model = small_pool(tmp_path / "run", estimators=members, n_jobs=2).set_callbacks(SignalAt("fit", 0))
    else:
        options: dict[str, Any] = {"max_rounds": 100_000, "extra_rounds": 100_000, "n_restarts": 2}
        model = CascadeClassifier(
            LogisticRegression(), checkpoint=tmp_path / "run", random_state=0, n_jobs=2, **options
        ).set_callbacks(SignalAt("round", 3))
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, W)
    assert threading.active_count() == before
    assert (tmp_path / "run" / "checkpoint.json").exists()


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    lock = tmp_path / "checkpoint.lock"
    host = socket.gethostname()
    for owner in (f"{os.getppid()} {host} x", "1 elsewhere x"):
        lock.write_text(owner)
        with pytest.raises(InputError, match=r"uses the checkpoint in .*; wait for it, give another folder"):
            grown(tmp_path).fit(X, Y, W)
        assert lock.read_text() == owner
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for owner in (f"{gone.pid} {host} x", f"{os.getpid()} {host} x", ""):  # killed, given up, killed while it claimed
        lock.write_text(owner)
        grown(tmp_path).fit(X, Y, W)
        assert not lock.exists()


def test_a_run_that_wrote_nothing_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cv=1 folds are too few"):
        grown(tmp_path / "run", cv=1).fit(X, Y, W)
    gc.collect()
    assert not (tmp_path / "run").exists()


def test_half_written_files_of_killed_processes_are_removed(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.json.123.part").write_bytes(b"{")
    grown(tmp_path).fit(X, Y, W)
    assert not list(tmp_path.glob("*.part"))


def shifted(shift: float) -> Any:
    return lambda t: t**2 / 2 + shift * t


def divergence(shift: float) -> FDivergence:
    return FDivergence(shifted(shift), lambda t: t + shift)


def test_functions_are_compared_by_what_they_do(tmp_path: Path) -> None:
    first = grown(tmp_path, utility=divergence(0.0)).fit(X, Y, W)
    again = grown(tmp_path, utility=divergence(0.0)).fit(X, Y, W)
    assert np.array_equal(first.predict_proba(X), again.predict_proba(X))
    with pytest.raises(InputError, match="of another configuration"):
        grown(tmp_path, utility=divergence(0.1)).fit(X, Y, W)


def test_long_splits_are_compared_to_the_last_row(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).permutation(4000)
    grown(tmp_path, cv=[(rows[:2000], rows[2000:])]).fit(X, Y, W)
    other = rows.copy()
    other[[1000, 3000]] = rows[[3000, 1000]]  # far from the ends, which repr shows
    with pytest.raises(InputError, match="of another configuration"):
        grown(tmp_path, cv=[(other[:2000], other[2000:])]).fit(X, Y, W)


def described_pool() -> CascadePool:
    members = [
        ("xgb", CascadeClassifier(XGBClassifier(n_estimators=3))),
        ("forest", RandomForestClassifier(5)),
        ("grown", GrownCascadeClassifier(params={"a": {1, 2, 3}, "b": partial(shifted, 2)})),
    ]
    return CascadePool(members, utility=divergence(0.5), cv=KFold(3, shuffle=True, random_state=1), random_state=0)


def test_fingerprints_are_equal_in_all_processes() -> None:
    code = (
        "from tests.estimators.test_checkpoint import *\n"
        "print(json.dumps(fingerprint(described_pool(), X, Y == 1, W, None)))"
    )
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}", "PYTHONHASHSEED": "7"}
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    assert json.loads(out) == fingerprint(described_pool(), X, Y == 1, W, None)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (partial(shifted, 1), partial(shifted, 2)),
        (KFold(3), KFold(4)),
        (np.arange(5000), np.arange(5000)[::-1]),
        (np.array(["a", None]), np.array(["b", None])),
        (RandomForestClassifier(5), RandomForestClassifier(6)),
        (np.random.RandomState(0), np.random.RandomState(1)),
        ([1.0, "1"], ["1", 1.0]),
        (np.log1p, np.expm1),
        ("a".upper, "b".upper),
    ],
    ids=["partial", "splitter", "long", "objects", "estimator", "generator", "order", "ufunc", "method"],
)
def test_other_settings_have_another_fingerprint(a: Any, b: Any) -> None:
    def settings(value: Any) -> str:
        return fingerprint(GrownCascadeClassifier(params={"x": value}))["settings"]

    assert settings(a) == settings(copy.deepcopy(a))
    assert settings(a) != settings(b)


def test_settings_that_cannot_be_compared_are_refused() -> None:
    around: list[Any] = []
    around.append(around)
    for value, words in (((k for k in "ab"), "which a builtins.generator cannot be"), (around, "contain themselves")):
        with pytest.raises(InputError, match=words):
            fingerprint(GrownCascadeClassifier(params={"x": value}))


def test_other_versions_are_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grown(tmp_path).fit(X, Y, W)
    monkeypatch.setattr("fivesigma.store.checkpoint.__version__", "9.9")
    with pytest.raises(InputError, match=r"by other versions of the libraries .*now fivesigma 9\.9"):
        grown(tmp_path).fit(X, Y, W)


class Mine(GaussianNB):
    """A class that no file format knows."""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"estimators": [("mine", Mine())]}, "member 'mine'.* contains .*Mine"),
        ({"utility": divergence(0.0)}, "utility is a FDivergence"),
    ],
    ids=["class", "utility"],
)
def test_pool_that_a_checkpoint_cannot_hold_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Any, words: str
) -> None:
    monkeypatch.setattr(fits, "_fit", None)  # training would fail with another error
    with pytest.raises(InputError, match=words) as caught:
        small_pool(tmp_path / "run", **options).fit(X, Y, W)
    assert "\n" not in str(caught.value)
    assert "allow_pickle" not in str(caught.value)


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

    monkeypatch.setattr("fivesigma.store.checkpoint.write_atomically", fail)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.write({"rounds": [1, 2]}, {"part": b"new"})
    assert checkpoint.read() == ({"rounds": [1]}, {"part": b"old"})
