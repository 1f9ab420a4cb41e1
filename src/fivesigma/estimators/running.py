"""How fits run: in parallel, each with a seed of its own, and with a bar on stderr or scikit-learn's callbacks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, TypeVar

import joblib
import numpy as np
from sklearn.utils import check_random_state

from fivesigma._tools.extras import need
from fivesigma._tools.progress import GivenUpError, end_if_given_up, given_up_by, listen, listener, steps
from fivesigma._tools.threads import available_cores, note_threads, wanted_cores
from fivesigma.cascade.rounds import Round
from fivesigma.store.checkpoint import Checkpoint

T = TypeVar("T")
_GLANCE = 0.2  # seconds between two looks for Ctrl-C


def run_parallel(work: Callable[..., T], tasks: Iterable[tuple[Any, ...]], workers: int) -> list[T]:
    """Run tasks in threads: learners leave Python's lock while they train, and the events are shared.

    After an error or Ctrl-C no other task begins, those that run end at their next round, and only then it is raised:
    no thread runs on unseen. So even a single worker has a thread of its own: Ctrl-C reaches the main
    thread, and inside a library that calls Python it would leave that library in disorder.
    """
    if workers == 1 and threading.current_thread() is not threading.main_thread():
        return [work(*task) for task in tasks]
    given_up = threading.Event()

    def watched(*task: Any) -> T:
        given_up_by.set((*given_up_by.get(), given_up))
        end_if_given_up()
        try:
            return work(*task)
        except BaseException:
            given_up.set()  # here and not where it is raised again: by then this thread may have begun another task
            raise

    with ThreadPoolExecutor(workers) as executor:
        try:
            futures = [executor.submit(copy_context().run, watched, *task) for task in tasks]
            pending: set[Future[T]] = set(futures)
            while pending:  # in short waits: a signal that reaches another thread does not end a long one
                done, pending = wait(pending, _GLANCE, FIRST_EXCEPTION)
                for future in done:
                    if not isinstance(future.exception(), GivenUpError):
                        future.result()  # raises what went wrong
            return [future.result() for future in futures]
        except BaseException:
            given_up.set()
            executor.shutdown(wait=False, cancel_futures=True)
            raise


def on_cluster() -> bool:
    """Whether the user has chosen joblib's Dask backend, by ``with joblib.parallel_config("dask")``."""
    return type(joblib.parallel.get_active_backend()[0]).__module__ == "joblib._dask"


def run_on_cluster(work: Callable[..., T], tasks: Iterable[tuple[Any, ...]]) -> Iterator[T]:
    """Run tasks of a module's own function on the workers of joblib's Dask backend; yield results in order.

    What several tasks share is sent to the workers once if it is a large object of its own among the arguments.
    """
    run = joblib.Parallel(return_as="generator", batch_size=1)
    yield from run(joblib.delayed(_locally)(work, *task) for task in tasks)


def _locally(work: Callable[..., T], *given: Any) -> T:
    """Run one task; what is parallel inside it stays on its worker."""
    with joblib.parallel_config(backend="threading"):
        return work(*given)


def threads_of_worker(n_jobs: int | None) -> int:
    """Threads for a task on a cluster: as many as asked for or as Dask gave the worker, and no more than its cores."""
    given = need("distributed").get_worker().state.nthreads if n_jobs is None else wanted_cores(n_jobs)
    return note_threads(max(1, min(int(given), available_cores())))


def spread_seeds(random_state: Any, n: int) -> list[int]:
    """Return `n` seeds; the first ones do not depend on n."""
    root = check_random_state(random_state).randint(np.iinfo(np.int32).max)
    return [int(child.generate_state(1)[0] >> 1) for child in np.random.SeedSequence(root).spawn(n)]


try:  # experimental, since scikit-learn 1.9
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]  # for older versions
        """Stands in for scikit-learn's mixin before 1.9."""

    def with_callbacks(method: Any) -> Any:
        """Stand in for scikit-learn's decorator before 1.9."""
        return method


__all__ = ["CallbackSupportMixin", "PoolProgress", "Report", "reporting", "with_callbacks"]

Report = Callable[[Round], bool]
"""Called at the end of each round; the answer True asks to stop."""


@contextmanager
def reporting(
    estimator: Any,
    total: int,
    what: str,
    done: int = 0,
    *,
    checkpoint: Checkpoint | None = None,
    unit: str = "round",
    every: int = 1,
) -> Iterator[Report]:
    """Report rounds for the time of a fit; after Ctrl-C say where a checkpoint that is written `every` few resumes."""
    lock, reached = threading.Lock(), done
    hear = listener.get()
    visible = bool(estimator.verbose) and hear is None
    with _callbacks(estimator, total) as call_back, steps(total, visible, what, done) as advance:

        def report(r: Round) -> bool:
            nonlocal reached
            with lock:
                reached += 1
            end_if_given_up()
            with lock:  # restarts run in threads
                if hear:
                    hear(r)
                advance(1, _state(r))  # shows nothing where somebody hears
                return call_back("round")

        try:
            yield report
        except KeyboardInterrupt:
            if checkpoint:
                checkpoint.say_interrupted(reached, reached - reached % every, unit)
            raise


class PoolProgress:
    """Progress of many fits at once."""

    def __init__(self, estimator: Any, rounds: dict[str, int]) -> None:
        self._estimator, self._rounds = estimator, rounds
        self._lock = threading.Lock()
        self.finished = 0
        self.stopped = False  # whether a callback asked for no more fits

    @contextmanager
    def showing(self, checkpoint: Checkpoint | None) -> Iterator[None]:
        """Show the bar, and say after Ctrl-C how many fits a checkpoint keeps."""
        total, visible = sum(self._rounds.values()), bool(self._estimator.verbose)
        with _callbacks(self._estimator, len(self._rounds)) as self._call_back, steps(total, visible) as self._advance:
            try:
                yield
            except KeyboardInterrupt:
                if checkpoint:
                    checkpoint.say_interrupted(self.finished, len(checkpoint.finished()), "fit")
                raise

    @contextmanager
    def fit(self, key: str) -> Iterator[None]:
        """Listen to one fit."""
        reported = 0

        def hear(r: Round) -> None:
            nonlocal reported
            with self._lock:
                reported += 1
                self._advance(1, f"{key}  {_state(r)}")

        with listen(hear):
            yield
        with self._lock:
            self.finished += 1
            self._advance(self._rounds[key] - reported, f"{key}  done, {self.finished} of {len(self._rounds)} fits")
            self.stopped |= self._call_back("fit")


@contextmanager
def _callbacks(estimator: Any, total: int) -> Iterator[Callable[[str], bool]]:
    """Call scikit-learn's callbacks at the end of each task."""
    if not getattr(estimator, "_skl_callbacks", None):  # a context for each round takes time, though nobody looks at it
        yield lambda _: False
        return
    context = estimator._init_callback_context(max_subtasks=total)
    context.call_on_fit_task_begin(estimator=estimator)

    def call_back(name: str) -> bool:
        task = context.subcontext(task_name=name)
        task.call_on_fit_task_begin(estimator=estimator)
        return bool(task.call_on_fit_task_end(estimator=estimator))

    yield call_back
    context.call_on_fit_task_end(estimator=estimator)


def _state(r: Round) -> str:
    u = "" if r.u is None else f"u {r.u:.4f}  "
    return f"round {r.index}  {u}significance {r.significance:.3f}"
