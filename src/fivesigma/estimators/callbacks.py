"""Progress of a fit: a bar on stderr if asked for, and scikit-learn's callbacks where they exist."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fivesigma._tools.progress import end_if_given_up, listen, listener, steps
from fivesigma.cascade.rounds import Round

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
def reporting(estimator: Any, total: int, what: str, done: int = 0) -> Iterator[Report]:
    """Report rounds for the time of a fit."""
    lock = threading.Lock()
    hear = listener.get()
    with _callbacks(estimator, total) as call_back, _bar(total, done, what, visible=bool(estimator.verbose)) as show:

        def report(r: Round) -> bool:
            end_if_given_up()
            with lock:  # restarts run in threads
                (hear or show)(r)
                return call_back("round")

        yield report


class PoolProgress:
    """Progress of many fits at once."""

    def __init__(self, estimator: Any, rounds: dict[str, int]) -> None:
        self._estimator, self._rounds = estimator, rounds
        self._lock = threading.Lock()
        self.finished = 0
        self.stopped = False  # whether a callback asked for no more fits

    @contextmanager
    def showing(self) -> Iterator[PoolProgress]:
        """Show the bar."""
        total, visible = sum(self._rounds.values()), bool(self._estimator.verbose)
        with _callbacks(self._estimator, len(self._rounds)) as self._call_back, steps(total, visible) as self._advance:
            yield self

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


@contextmanager
def _bar(total: int, done: int, what: str, *, visible: bool) -> Iterator[Callable[[Round], None]]:
    with steps(total, visible and listener.get() is None, what, done) as advance:
        yield lambda r: advance(1, _state(r))
