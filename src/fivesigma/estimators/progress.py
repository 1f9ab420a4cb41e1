"""Progress of a fit: a bar on stderr if asked for, and scikit-learn's callbacks where they exist."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fivesigma.cascade import Round

try:  # experimental, since scikit-learn 1.9
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands in for scikit-learn's mixin before 1.9."""

    def with_callbacks(method: Any) -> Any:
        """Stand in for scikit-learn's decorator before 1.9."""
        return method


__all__ = ["CallbackSupportMixin", "Report", "reporting", "with_callbacks"]

Report = Callable[[Round], bool]
"""Called at the end of each round; the answer True asks to stop."""


@contextmanager
def reporting(estimator: Any, total: int, what: str, done: int = 0) -> Iterator[Report]:
    """Report rounds for the time of a fit.

    Parameters
    ----------
    estimator : estimator
        Its ``verbose`` asks for a bar; its callbacks are called.
    total : int
        Rounds at most.
    what : str
        Name of the work.
    done : int, default=0
        Rounds that an earlier run did.
    """
    lock = threading.Lock()
    context = estimator._init_callback_context(max_subtasks=total) if hasattr(estimator, "set_callbacks") else None
    if context is not None:
        context.call_on_fit_task_begin(estimator=estimator)
    with _bar(total, done, what, visible=bool(estimator.verbose)) as show:

        def report(r: Round) -> bool:
            with lock:  # restarts run in threads
                show(r)
                if context is None:
                    return False
                task = context.subcontext(task_name="round")
                task.call_on_fit_task_begin(estimator=estimator)
                return bool(task.call_on_fit_task_end(estimator=estimator))

        yield report
    if context is not None:
        context.call_on_fit_task_end(estimator=estimator)


@contextmanager
def _bar(total: int, done: int, what: str, *, visible: bool) -> Iterator[Callable[[Round], None]]:
    if not visible:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=total, completed=done, state="")

        def show(r: Round) -> None:
            u = "" if r.u is None else f"u {r.u:.4f}  "
            progress.update(task, advance=1, state=f"round {r.index}  {u}significance {r.significance:.3f}")

        yield show
        progress.update(task, total=progress.tasks[task].completed)  # a run may stop before its last round
