"""How a command ends: with one line in the words of the command line, and with nothing left behind."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fivesigma.errors import FivesigmaError, shortened

TERMINATED = 128 + signal.SIGTERM  # the exit code that shells expect

_MOST = 1000  # characters of a message

# What the library calls its parameters, and what they are called here.
_OWN_WORDS = (
    (r"\bpass force=True\b", "add --force"),
    (r"\bpass ids=None if this column\b", "rename this column if it"),
    (r"\bset negative_weights to\b", "set --negative-weights to"),
    (r"\bnegative_weights\b", "--negative-weights"),
    (r"\b(features|tree|signal|missing)=(?![\w'\"])", r"--\1"),
    (r"\blabel= or --label\b", "--label"),
    (r"\blabel=None reads\b", "predict --label none reads"),
    (r"\bb_reg=", "--b-reg "),
    (r"\bsample_weight\b", "the weight"),
)


def in_own_words(message: str) -> str:
    """One line that names options instead of parameters of Python."""
    line = " ".join(message.split())
    for pattern, word in _OWN_WORDS:
        line = re.sub(pattern, word, line)
    return shortened(line, _MOST)


def sentence(err: BaseException) -> str:
    """What to say of an error, also of one that nobody thought of."""
    if isinstance(err, FivesigmaError):
        return in_own_words(str(err))
    if isinstance(err, MemoryError):
        return "there is not enough memory; read fewer events, or fewer columns"
    if isinstance(err, OSError):
        where = f"{err.filename}: " if err.filename else ""
        return f"{where}{err.strerror or err}"
    said = " ".join(str(err).split())
    return (
        f"an unexpected {type(err).__name__}{': ' * bool(said)}{shortened(said, 300)}; this is a fault of fivesigma: "
        "please report it, with the traceback that FIVESIGMA_DEBUG=1 shows"
    )


@contextmanager
def orderly_end() -> Iterator[None]:
    """Let SIGTERM end the command as an exception does, so that no temporary file stays; a second one kills."""

    def end(number: int, _: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise SystemExit(TERMINATED)

    if threading.current_thread() is not threading.main_thread():  # only there may handlers be set
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
