"""Threads follow the size of the work and what this process may use, never the size of a cluster."""

import joblib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fivesigma import _threads
from fivesigma._threads import CELLS_PER_THREAD, limited, spread_threads, threads_for, wanted_cores


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_threads, "available_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(("n_jobs", "cores"), [(None, 8), (1, 1), (3, 3), (100, 8), (-1, 8), (-2, 7), (-100, 1)])
def test_what_a_user_asks_for(n_jobs: int | None, cores: int) -> None:
    assert wanted_cores(n_jobs) == cores


@pytest.mark.usefixtures("eight")
@pytest.mark.parametrize(("text", "cores"), [("2", 2), ("4,1", 4), ("16", 8), ("0", 8), ("", 8), ("many", 8)])
def test_the_environment_decides_unless_a_number_is_given(
    monkeypatch: pytest.MonkeyPatch, text: str, cores: int
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert wanted_cores(None) == cores
    assert wanted_cores(5) == 5


@pytest.mark.usefixtures("eight")
def test_small_work_gets_one_thread() -> None:
    assert threads_for(None, 3_000 * 30) == 1
    assert threads_for(None, 3 * CELLS_PER_THREAD) == 3
    assert threads_for(None, 10**9) == 8
    assert threads_for(2, 3_000 * 30) == 2, "a number that is asked for is taken"


@pytest.mark.usefixtures("eight")
def test_tasks_share_the_cores() -> None:
    assert spread_threads(None, 3, 10**9) == (3, 2)
    assert spread_threads(None, 20, 10**9) == (8, 1)
    assert spread_threads(None, 1, 1000) == (1, 1)
    assert spread_threads(6, 2, 1000) == (2, 3)


@given(st.none() | st.integers(-20, 20).filter(bool), st.integers(1, 50), st.integers(0, 10**10))
def test_never_more_than_this_process_may_use(n_jobs: int | None, n_tasks: int, n_cells: int) -> None:
    workers, threads = spread_threads(n_jobs, n_tasks, n_cells)
    assert 1 <= workers * threads <= max(1, int(joblib.cpu_count()))
    assert workers <= n_tasks


def test_a_cluster_behind_joblib_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joblib, "effective_n_jobs", lambda *_: 1000)
    assert wanted_cores(-1) == max(1, int(joblib.cpu_count()))


def test_limited_threads_are_put_back() -> None:
    from threadpoolctl import threadpool_info

    def openmp() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "openmp"}

    import sklearn.ensemble  # noqa: F401 - loads OpenMP

    before = openmp()
    with limited(1):
        assert openmp() == {1}
    assert openmp() == before
