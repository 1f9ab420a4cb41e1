"""What long work has in common: a bar on stderr, and an end when nobody waits for it any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

# Somebody who listens to the rounds of a fit, as a pool does to its members; they then draw no bar of their own.
listener: ContextVar[Callable[[Any], None] | None] = ContextVar("listener", default=None)


@contextmanager
def listen(hear: Callable[[Any], None]) -> Iterator[None]:
    """Call a function with each round of what is fitted inside."""
    token = listener.set(hear)
    try:
        yield
    finally:
        listener.reset(token)


# Set when the work that this thread is part of was given up; work within work has several.
given_up_by: ContextVar[tuple[threading.Event, ...]] = ContextVar("given_up_by", default=())

# What a signal raised; Python drops an exception that falls into the clean-up of an object, so it is raised again.
signalled: list[BaseException] = []


class GivenUpError(Exception):
    """Ends a thread whose result nobody waits for any more; never seen by users."""


def end_if_given_up() -> None:
    """End this thread's work if it was given up, or a signal came; called between rounds and steps."""
    if any(event.is_set() for event in given_up_by.get()):
        raise GivenUpError
    if signalled and threading.current_thread() is threading.main_thread():
        raise signalled[0]


@contextmanager
def step_bar(total: int, what: str, *, visible: bool) -> Iterator[Callable[[str], None]]:
    """Show the steps of a learner, called with its state after each; a pool listens to rounds only, and shows them."""
    with steps(total, visible and listener.get() is None, what) as advance:

        def step(state: str) -> None:
            end_if_given_up()
            advance(1, state)

        yield step


@contextmanager
def steps(total: int, visible: bool, what: str = "pool", done: int = 0) -> Iterator[Callable[[int, str], None]]:
    """Show a bar with a state beside it, and the time that is left."""
    if not visible:
        yield lambda _, __: None
        return
    from rich import progress as bars
    from rich.console import Console

    columns = ("{task.description}", bars.BarColumn(), bars.MofNCompleteColumn(), "{task.fields[state]}")
    times = bars.TimeElapsedColumn(), bars.TimeRemainingColumn()
    with bars.Progress(*columns, *times, console=Console(stderr=True)) as progress:
        task = progress.add_task(what, total=total, completed=done, state="")
        yield lambda steps, state: progress.update(task, advance=steps, state=state)
        progress.update(task, total=progress.tasks[task].completed)  # a run may stop before its last round
