"""Threads follow the size of the work and what this process may use, never the size of a cluster."""

import os
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fivesigma import GrownCascadeClassifier
from fivesigma._tools import extras as _extras
from fivesigma._tools import threads as _threads
from fivesigma._tools.threads import CELLS_PER_THREAD, limit_threads, spread_threads, threads_for, wanted_cores
from fivesigma.errors import InputError


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_threads, "available_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(("n_jobs", "cores"), [(None, 1), (1, 1), (3, 3), (100, 8), (-1, 8), (-2, 7), (-100, 1)])
def test_what_a_user_asks_for(n_jobs: int | None, cores: int) -> None:
    assert wanted_cores(n_jobs) == cores


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(("text", "cores"), [("2", 2), ("4,1", 4), ("16", 8), ("0", 8), ("", 8), ("many", 8)])
def test_the_environment_says_what_all_cores_are(monkeypatch: pytest.MonkeyPatch, text: str, cores: int) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert wanted_cores(-1) == cores
    assert wanted_cores(5) == 5
    assert wanted_cores(None) == 1


@pytest.mark.usefixtures("eight")
def test_small_work_gets_one_thread() -> None:
    assert threads_for(-1, 3_000 * 30) == 1
    assert threads_for(-1, 3 * CELLS_PER_THREAD) == 3
    assert threads_for(-1, 10**9) == 8
    assert threads_for(None, 10**9) == 1
    assert threads_for(2, 3_000 * 30) == 2, "a number that is asked for is taken"


@pytest.mark.usefixtures("eight")
def test_tasks_share_the_cores() -> None:
    assert spread_threads(-1, 3, 10**9) == (3, 2)
    assert spread_threads(-1, 20, 10**9) == (8, 1)
    assert spread_threads(-1, 1, 1000) == (1, 1)
    assert spread_threads(6, 2, 1000) == (2, 3)


@given(st.none() | st.integers(-20, 20).filter(bool), st.integers(1, 50), st.integers(0, 10**10))
def test_never_more_than_this_process_may_use(n_jobs: int | None, n_tasks: int, n_cells: int) -> None:
    workers, threads = spread_threads(n_jobs, n_tasks, n_cells)
    assert 1 <= workers * threads <= max(1, int(joblib.cpu_count()))
    assert workers <= n_tasks


def test_a_cluster_behind_joblib_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joblib, "effective_n_jobs", lambda *_: 1000)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert wanted_cores(-1) == wanted_cores(None) == max(1, int(joblib.cpu_count()))


def test_limited_threads_are_put_back() -> None:
    from threadpoolctl import threadpool_info

    def openmp() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "openmp"}

    import sklearn.ensemble  # noqa: F401 - loads OpenMP

    before = openmp()
    with limit_threads(1):
        assert openmp() == {1}
    assert openmp() == before


def test_a_fork_after_several_threads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenMP's threads do not exist in a forked child: learners would wait for them for ever."""
    monkeypatch.setattr(_threads, "threads_of", used := set[str]())
    assert _threads.note_threads(1) == 1
    assert not used  # one thread before the fork, none is missing after it
    _threads.note_threads(2)
    monkeypatch.setattr(_extras, "threads_lost", used)
    with pytest.raises(InputError, match=r"forked from one that had used several cores.*spawn or joblib's loky"):
        _threads.threads_for(1, 10)
    rng = np.random.default_rng(0)
    y = np.repeat([1, 0], 500)
    X = rng.normal(size=(1000, 2)) + y[:, None]
    for library in ("xgboost", "lightgbm"):
        monkeypatch.setattr(_extras, "threads_lost", set())
        model = GrownCascadeClassifier(library, n_trees=2, random_state=0, n_jobs=1).fit(X, y)
        monkeypatch.setattr(_extras, "threads_lost", {_threads.SEVERAL})
        with pytest.raises(InputError, match="forked"):
            model.predict_proba(X)
        with pytest.raises(InputError, match="forked"):
            model.fit(X, y)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of os.fork beside threads
def test_a_real_fork_is_noticed() -> None:
    _threads.note_threads(2)
    child = os.fork()
    if child == 0:
        os._exit(7 if _threads.SEVERAL in _extras.threads_lost else 8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert not _extras.threads_lost


FORKED_READER = """
import os, sys, signal
from fivesigma.datasets import load_events
load_events(sys.argv[1])
child = os.fork()
if child == 0:
    signal.alarm(60)
    try:
        load_events(sys.argv[1])
    except ValueError as err:
        print(err, flush=True)
        os._exit(7)
    os._exit(8)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_reading_in_a_forked_child_is_refused_instead_of_waiting_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("x,Weight,Label\n1,1,s\n2,1,b\n")
    command = [sys.executable, "-W", "ignore", "-c", FORKED_READER, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (7, "")
    assert "forked from one that had used polars" in done.stdout
