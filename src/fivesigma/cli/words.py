"""How a command ends: with one line, and with nothing left behind."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fivesigma._tools.progress import end_if_given_up, signalled
from fivesigma.errors import FivesigmaError, shortened

TERMINATED = 128 + signal.SIGTERM  # the exit code that shells expect

_MOST = 1000  # characters of a message


def one_line(message: str) -> str:
    """A message as one line of a modest length."""
    return shortened(" ".join(message.split()), _MOST)


def sentence(err: BaseException) -> str:
    """What to say of an error, also of one that nobody thought of."""
    if isinstance(err, FivesigmaError):
        return one_line(str(err))
    if isinstance(err, MemoryError):
        return "there is not enough memory; read fewer events, or fewer columns"
    if isinstance(err, OSError):
        where = f"{err.filename}: " if err.filename else ""
        return f"{where}{err.strerror or err}"
    said = shortened(" ".join(str(err).split()), 300)
    return (
        f"an unexpected {type(err).__name__}{': ' * bool(said)}{said}; this is a fault of fivesigma: "
        "please report it, with the traceback that FIVESIGMA_DEBUG=1 shows"
    )


@contextmanager
def orderly_end() -> Iterator[None]:
    """Let signals end the command as exceptions do, so that no temporary file stays; a second SIGTERM kills."""

    def end(number: int, _: Any) -> None:
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)
        signalled.append(SystemExit(TERMINATED) if number == signal.SIGTERM else KeyboardInterrupt())
        raise signalled[0]

    if threading.current_thread() is not threading.main_thread():  # only there may handlers be set
        yield
        return
    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
        end_if_given_up()
    finally:
        signalled.clear()
        for number, handler in before.items():
            signal.signal(number, handler)
