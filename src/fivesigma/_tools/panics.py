"""Panics of libraries in Rust, which print on the standard error before Python hears of them."""

from __future__ import annotations

import os
import re
import tempfile
import threading
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["panics_unseen"]

# "thread 'name' (7) panicked at place:", the message, whose further lines are indented, and perhaps a backtrace.
_PANIC = re.compile(
    rb"\n?^thread '[^\n]*' (?:\(\d+\) )?panicked at [^\n]*\n[^\n]*\n"
    rb"(?:[ \t][^\n]*\n|stack backtrace:\n|note: [^\n]*\n)*",
    re.MULTILINE,
)
_LOCK = threading.Lock()
_readers = 0
_kept: tuple[int, IO[bytes]] | None = None  # the real standard error, and what stands in for it


@contextmanager
def panics_unseen() -> Iterator[None]:
    """Hold back what is written to the standard error, and pass it on at the end without the panics.

    Threads may be within at the same time: what they write is passed on when the last of them has left.

    Yields
    ------
    None
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _readers, _kept  # noqa: PLW0603 - the standard error is one for all threads
    with _LOCK:
        _readers += 1
        if _readers == 1:
            with suppress(OSError):  # no standard error or no place for a file: nothing is held back
                file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - open until all readers have left
                _kept = os.dup(2), file
                os.dup2(file.fileno(), 2)


def _leave() -> None:
    global _readers, _kept  # noqa: PLW0603
    with _LOCK:
        _readers -= 1
        if _readers or _kept is None:
            return
        (real, file), _kept = _kept, None
        os.dup2(real, 2)
        os.close(real)
        with file:
            file.seek(0)
            rest = _PANIC.sub(b"", file.read())
        with suppress(OSError):  # nobody reads it
            while rest:
                rest = rest[os.write(2, rest) :]
