"""What a panic of Rust prints is not seen; everything else is."""

import os
import threading

import pytest

from fivesigma._tools.panics import panics_unseen

PANIC = b"""
thread 'async-executor-0' (2649) panicked at crates/polars-parquet/src/mod.rs:239:5:
assertion `left == right` failed
  left: 1
 right: 2
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
"""
TRACED = b"""
thread '<unnamed>' panicked at a.rs:1:2:
called `Option::unwrap()` on a `None` value
stack backtrace:
   0: rust_begin_unwind
             at /rustc/library/std/src/panicking.rs:1:2
note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.
"""


@pytest.mark.parametrize("panic", [PANIC, TRACED, PANIC * 2 + TRACED])
def test_what_is_no_panic_is_passed_on(panic: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    with panics_unseen():
        os.write(2, b"before\n" + panic + b"after\n")
        os.write(2, b"thread 1 is ready, nobody panicked\n")
    os.write(2, b"later\n")
    assert capfd.readouterr().err == "before\nafter\nthread 1 is ready, nobody panicked\nlater\n"


def test_errors_leave_the_standard_error_as_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        os.write(2, b"kept\n" + PANIC)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), panics_unseen(), panics_unseen():
        interrupted()
    os.write(2, b"end\n")
    assert capfd.readouterr().err == "kept\nend\n"


def test_threads_share_the_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    gate = threading.Barrier(5)

    def read(k: int) -> None:
        for _ in range(20):
            with panics_unseen():
                os.write(2, b"line %d\n" % k + PANIC)
        gate.wait()

    threads = [threading.Thread(target=read, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    gate.wait()
    for thread in threads:
        thread.join()
    lines = capfd.readouterr().err.splitlines()
    assert sorted(lines) == sorted(f"line {k}" for k in range(4) for _ in range(20))
