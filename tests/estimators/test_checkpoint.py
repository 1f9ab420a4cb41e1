"""Runs that survive: killed at any moment, the same call ends with the same model."""

from __future__ import annotations

import copy
import errno
import gc
import hashlib
import itertools
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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.naive_bayes import GaussianNB
from xgboost import XGBClassifier

from fivesigma import (
    AutoClassifier,
    CascadeClassifier,
    CascadePool,
    DecomposedClassifier,
    FDivergence,
    GrownCascadeClassifier,
)
from fivesigma.datasets import Events
from fivesigma.errors import InputError
from fivesigma.estimators import member_fits
from fivesigma.store.checkpoint import Checkpoint, _rendered, fingerprint
from tests.estimators.blobs import make_blobs, needs_callbacks

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


@needs_callbacks
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


@needs_callbacks
def test_interrupt_says_what_is_left(tmp_path: Path) -> None:
    run = start("xgboost", tmp_path / "run", tmp_path / "out.npy", interrupt_at=20)
    _, err = run.communicate(timeout=120)
    assert run.returncode != 0
    assert "the same call resumes from tree 16, kept in" in err
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


@needs_callbacks
def test_retrained_cascade_resumes_after_its_last_round(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def model(name: str) -> CascadeClassifier:
        learner = XGBClassifier(n_estimators=10, subsample=0.5, n_jobs=1)
        options: dict[str, Any] = {"max_rounds": 5, "extra_rounds": 5, "n_restarts": 2, "keep": 3}
        return CascadeClassifier(learner, checkpoint=tmp_path / name, random_state=0, n_jobs=1, **options)

    whole = model("whole").fit(X, Y, W)
    with pytest.raises(KeyboardInterrupt):
        model("stopped").set_callbacks(StopAt("round", 7)).fit(X, Y, W)
    assert "the same call resumes from round 8" in capfd.readouterr().err
    resumed = model("stopped").fit(X, Y, W)
    assert np.array_equal(whole.predict_proba(X), resumed.predict_proba(X))
    assert [r.u for r in whole.history_] == [r.u for r in resumed.history_]
    finished = model("stopped").fit(X, Y, W)
    assert np.array_equal(whole.predict_proba(X), finished.predict_proba(X))


@needs_callbacks
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
    assert "the same call resumes from fit 3" in capfd.readouterr().err
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


@needs_callbacks
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
    (tmp_path / ".123-checkpoint.json").write_bytes(b"{")
    grown(tmp_path).fit(X, Y, W)
    assert not list(tmp_path.glob(".*"))


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
    with pytest.raises(InputError, match=r"which a builtins\.generator cannot be"):
        fingerprint(GrownCascadeClassifier(params={"x": (k for k in "ab")}))


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
    monkeypatch.setattr(member_fits, "fit_task", None)  # training would fail with another error
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


def forged(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a checkpoint and give it a right digest, so that the checks behind the digest are reached."""
    path = folder / "checkpoint.json"
    body = {k: v for k, v in json.loads(path.read_text()).items() if k != "digest"}
    change(body)
    path.write_bytes(_rendered(body))


@pytest.mark.parametrize("change", [("7", "8"), ('"rounds"', '"round5"'), (": ", ":  ")])
def test_a_touched_checkpoint_is_refused(tmp_path: Path, change: tuple[str, str]) -> None:
    grown(tmp_path).fit(X, Y, W)
    path = tmp_path / "checkpoint.json"
    before, found, after = path.read_text().rpartition(change[0])
    assert found
    path.write_text(before + change[1] + after)
    with pytest.raises(InputError, match=r"does not match its own digest: .*; remove the folder") as caught:
        grown(tmp_path).fit(X, Y, W)
    assert "\n" not in str(caught.value)


def shorten(body: dict[str, Any]) -> None:
    for values in body["state"]["rounds"].values():
        del values[-1]


FORGERIES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "fewer rounds than trees": (shorten, "trees after"),
    "no run": (lambda body: body.update(run=None), "holds no state"),
    "no state": (lambda body: body.update(state=None), "holds no state"),
    "no rounds": (lambda body: body["state"].pop("rounds"), "cannot be resumed"),
    "rounds of a wrong type": (lambda body: body["state"].update(rounds=3), "cannot be resumed"),
    "a round of a wrong type": (lambda body: body["state"]["rounds"]["s"].__setitem__(0, "x"), "cannot be resumed"),
    "judged of a wrong type": (lambda body: body["state"].update(judged=[None]), "cannot be resumed"),
    "files of a wrong type": (lambda body: body.update(files=[]), "holds no state"),
    "a file outside": (
        lambda body: body["files"].update({"../keep/booster-0": body["files"].pop("booster-0")}),
        "not the name of a file of a checkpoint",
    ),
    "an entry of a wrong type": (lambda body: body["files"].update({"booster-0": None}), "cannot be resumed"),
    "a size of a wrong type": (lambda body: body["files"]["booster-0"].update(bytes="x"), "cannot be resumed"),
    "another size": (lambda body: body["files"]["booster-0"].update(bytes=1 << 40), "checksum"),
    "no booster": (lambda body: body.update(files={}), "cannot be resumed"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_checkpoint_is_refused_with_a_sentence(tmp_path: Path, name: str) -> None:
    change, words = FORGERIES[name]
    grown(tmp_path).fit(X, Y, W)
    forged(tmp_path, change)
    with pytest.raises(InputError, match=words) as caught:
        grown(tmp_path).fit(X, Y, W)
    assert str(caught.value).endswith("remove the folder to start anew")
    assert "\n" not in str(caught.value)


def test_a_forged_checkpoint_of_the_other_estimators(tmp_path: Path) -> None:
    common: dict[str, Any] = {"random_state": 0, "n_jobs": 1}
    learner = XGBClassifier(n_estimators=2, n_jobs=1)
    models = (
        (CascadeClassifier(learner, max_rounds=2, **common), lambda body: body["state"].update({"0": [1]})),
        (DecomposedClassifier(learner, cv=2, **common), lambda body: body["state"].update(fits=7)),
        (CascadePool([("a", GaussianNB())], cv=2, **common), lambda body: body["state"].update(fits=7)),
    )
    for k, (model, change) in enumerate(models):
        folder = tmp_path / str(k)
        model.set_params(checkpoint=folder).fit(X, Y, W)
        forged(folder, change)
        with pytest.raises(InputError, match=r"cannot be resumed .*; remove the folder to start anew"):
            model.fit(X, Y, W)


def test_a_stored_fit_that_was_touched_is_refused(tmp_path: Path) -> None:
    pool = CascadePool([("a", GaussianNB())], cv=2, checkpoint=tmp_path, random_state=0, n_jobs=1).fit(X, Y, W)
    part = next(tmp_path.glob("*/*.skops"))
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    with pytest.raises(InputError, match=r"its hash does not match.*; remove the folder to start anew"):
        pool.fit(X, Y, W)


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_plain_files_are_followed(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "run"
    grown(folder).fit(X, Y, W)
    for name in ("checkpoint.json", next(p.name for p in folder.iterdir() if p.name.startswith("booster"))):
        path, kept = folder / name, tmp_path / name
        path.replace(kept)
        if kind == "link":
            path.symlink_to(kept)
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.mkdir()
        with pytest.raises(InputError, match=r"is no plain file .*; remove the folder to start anew"):
            grown(folder).fit(X, Y, W)
        path.rmdir() if kind == "folder" else path.unlink()
        kept.replace(path)
    grown(folder).fit(X, Y, W)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"9" * 20, b"12345678901234567890 host id", b"x y", "²".encode()])
def test_a_lock_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    grown(tmp_path).fit(X, Y, W)
    (tmp_path / "checkpoint.lock").write_bytes(content)
    with pytest.raises(InputError, match="is not the lock of a run; remove it if no run uses the folder"):
        grown(tmp_path).fit(X, Y, W)


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(InputError, match="cannot be written: File exists"):
        grown(tmp_path / "run").fit(X, Y, W)


@pytest.mark.parametrize("moment", ["write", "flush", "rename"])
@pytest.mark.parametrize("which", range(3))
def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, which: int) -> None:
    """At each write and each rename of the second state the disk is full once."""
    checkpoint = Checkpoint(tmp_path, {"settings": "a", "events": "b"}, 5)
    old: tuple[dict[str, Any], dict[str, bytes]] = {"rounds": [1]}, {"a": b"old a", "b": b"old b"}
    checkpoint.write(*old)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    calls = itertools.count()

    def once(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if next(calls) == which:
                raise full
            return real(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        if moment == "flush":
            patch.setattr(os, "fsync", once(os.fsync))
        elif moment == "rename":
            patch.setattr(Path, "replace", once(Path.replace))
        else:
            patch.setattr(Path, "open", once(Path.open))
        with pytest.raises(InputError, match=r"cannot be written: No space left on device; .* is kept"):
            checkpoint.write({"rounds": [1, 2]}, {"a": b"new a", "b": b"new b"})
    assert checkpoint.read() == old
    assert not list(tmp_path.glob("*.part"))
    checkpoint.write({"rounds": [1, 2]}, {"a": b"new a", "b": b"new b"})
    assert checkpoint.read() == ({"rounds": [1, 2]}, {"a": b"new a", "b": b"new b"})
    assert len(list(tmp_path.iterdir())) == 3


def test_a_full_disk_in_the_middle_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = grown(tmp_path / "whole").fit(X, Y, W)
    calls = itertools.count()

    def full(descriptor: int) -> None:
        if next(calls) >= 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match="No space left on device"):
            grown(tmp_path / "run").fit(X, Y, W)
    again = grown(tmp_path / "run").fit(X, Y, W)
    assert np.array_equal(again.predict_proba(X), whole.predict_proba(X))


@pytest.mark.parametrize("as_events", [False, True])
def test_training_hashes_the_table_once(as_events: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool hands one sample to all of its fits, and each of them has a checkpoint of its own."""
    hashed: list[int] = []

    def count(data: Any, *args: Any, **kwargs: Any) -> str:
        parts = data if isinstance(data, tuple) else ()
        hashed.extend(len(part) for part in parts if isinstance(part, np.ndarray) and part.ndim == 2)
        return str(original(data, *args, **kwargs))

    def digest(features: Any, weight: Any, signal: Any) -> str:
        hashed.append(len(features))
        return hashlib.sha256(features.tobytes() + weight.tobytes() + signal.tobytes()).hexdigest()

    original = joblib.hash
    monkeypatch.setattr(joblib, "hash", count)
    monkeypatch.setattr("fivesigma.datasets.digest.digest_of", digest)
    names = tuple("abc"[: X.shape[1]])
    events = Events(X=X.astype(np.float32), y=Y, weight=W, signal=1, feature_names=names)
    model = AutoClassifier(n_trees=3, cv=2, net=False, checkpoint=tmp_path / "run", random_state=0, n_jobs=1)
    model.fit(*((events,) if as_events else (X, Y, W)))
    assert len(model.comparisons_) > 1
    assert hashed == [len(X)]
