"""Workers that die, freeze or run out of memory: the cause is named in time, and the same call resumes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fivesigma import GrownCascadeClassifier as Ordinary
from fivesigma.dask import ClusterError, GrownCascadeClassifier
from fivesigma.datasets import EventStream
from tests.dask.conftest import local_cluster
from tests.dask.files import ALL_ROWS, assert_same

FIT: dict[str, Any] = {"n_trees": 40, "params": ALL_ROWS, "random_state": 3, "checkpoint_every": 5}


@pytest.fixture(scope="module")
def whole(pattern: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The same run in one process, which nothing interrupts; a checkpoint is part of it."""
    folder = tmp_path_factory.mktemp("whole") / "checkpoint"
    return Ordinary(memory="bins", n_jobs=1, checkpoint=folder, **FIT).fit(EventStream(pattern))


@pytest.fixture(scope="module")
def frail() -> Iterator[Any]:
    """A cluster of its own; a worker that is gone is started anew."""
    with local_cluster(memory_limit="600MB") as client:
        yield client


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("kill", "was lost: its process ended"),
        ("fill", "was lost: it ran out of memory when it used 0"),
        ("freeze", "is frozen or cannot be reached: it has given no sign of life for"),  # the last, for it stays
    ],
)
def test_worker_that_fails(  # noqa: PLR0917 - fixtures
    frail: Any, how: str, cause: str, pattern: str, whole: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    frail.wait_for_workers(2, timeout=60)
    address, pid = sorted(frail.run(os.getpid).items())[1]
    slow = tmp_path / "slow"
    slow.touch()
    on_each(frail, slow_down, slow)  # so that the run is not over before a worker is
    threading.Thread(target=hurt, args=(how, folder / "checkpoint.json", pid, address, frail), daemon=True).start()
    model = GrownCascadeClassifier(frail, timeout=10, checkpoint=folder, **FIT)
    with pytest.raises(ClusterError, match=rf"^worker \d at {address} {cause}"):
        model.fit(pattern)
    slow.unlink()
    rounds = len(json.loads((folder / "checkpoint.json").read_text())["state"]["rounds"]["index"])
    assert 5 <= rounds < FIT["n_trees"]
    try:
        assert_same(model.fit(pattern), whole)
    finally:
        if how == "freeze":
            os.kill(pid, signal.SIGCONT)


def test_interrupted_by_the_user(
    client: Any, pattern: str, whole: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "checkpoint"
    model = GrownCascadeClassifier(client, timeout=10, checkpoint=folder, **FIT)
    slow = tmp_path / "slow"
    slow.touch()
    on_each(client, slow_down, slow)
    threading.Thread(
        target=hurt, args=("interrupt", folder / "checkpoint.json", os.getpid(), "", client), daemon=True
    ).start()
    with pytest.raises(KeyboardInterrupt):
        model.fit(pattern)
    assert "the same call resumes from tree" in capsys.readouterr().err
    slow.unlink()
    assert_same(model.fit(pattern), whole)  # as soon as the workers have noticed


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("freeze", r"the Dask scheduler has not answered for 5 s, the timeout: it is frozen"),
        ("kill", r"the Dask scheduler (does not answer|has not answered for 5 s)"),
    ],
)
def test_scheduler_that_fails(how: str, says: str, pattern: str, whole: Any, tmp_path: Path) -> None:
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    folder = tmp_path / "checkpoint"
    slow = tmp_path / "slow"
    slow.touch()
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "3s"}),
        processes(tmp_path) as (address, scheduler),
        distributed.Client(address, set_as_default=False, timeout=60) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        on_each(client, slow_down, slow)
        given = (how, folder / "checkpoint.json", scheduler, "", client)
        threading.Thread(target=hurt, args=given, daemon=True).start()
        model = GrownCascadeClassifier(client, timeout=5, checkpoint=folder, **FIT)
        start = time.monotonic()
        try:
            with pytest.raises(ClusterError, match=says):
                model.fit(pattern)
            assert time.monotonic() - start < 60
        finally:
            slow.unlink()
            if how == "freeze":
                os.kill(scheduler, signal.SIGCONT)
        if how == "freeze":
            assert_same(model.fit(pattern), whole)


@contextmanager
def processes(folder: Path) -> Iterator[tuple[str, int]]:
    """A scheduler and two workers, each a process that `dask` starts; address and number of the scheduler's."""
    where = folder / "scheduler.json"
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    quiet["env"] = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(Path.cwd()), *sys.path]))}
    dask, given = [sys.executable, "-m", "distributed.cli.dask_"], ["--scheduler-file", str(where)]

    def start(kind: str, *options: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*dask[:-1], f"{dask[-1]}{kind}", *given, *options], **quiet)

    running = [start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")]
    try:
        while not where.exists() or not where.read_text().strip():
            time.sleep(0.1)
        running += [start("worker", "--nthreads", "1", "--no-nanny", "--no-dashboard") for _ in range(2)]
        yield json.loads(where.read_text())["address"], running[0].pid
    finally:
        for each in running:
            each.kill()
            each.wait()


def on_each(client: Any, work: Any, *given: Any) -> None:
    """Run something in a task of each worker; imports in `Client.run` would keep it from answering."""
    tasks = [client.submit(work, *given, workers=[a], pure=False) for a in client.run(os.getpid)]
    client.gather(tasks)


def slow_down(flag: Path) -> None:
    """Make this worker wait before every tree, as long as a file is there."""
    from fivesigma.learners.xgboost import XGBoostGrower

    kind: Any = XGBoostGrower
    grow = kind.grow

    def waiting(self: Any) -> None:
        if flag.exists():
            time.sleep(0.3)
        grow(self)

    kind.grow = waiting


def hurt(how: str, checkpoint: Path, pid: int, address: str, client: Any) -> None:
    """Do something to a worker as soon as the client has a checkpoint."""
    while not checkpoint.exists():
        time.sleep(0.05)
    if how == "fill":
        client.run(fill_memory, workers=[address])
    else:
        os.kill(pid, {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP, "interrupt": signal.SIGINT}[how])


def fill_memory() -> None:
    """Use more memory than a worker may, little by little."""

    def fill() -> None:
        held = []
        while True:
            held.append(np.ones(2_000_000))
            time.sleep(0.02)

    threading.Thread(target=fill, daemon=True).start()
