"""A scheduler that is frozen or gone, and workers that fail while partitions are computed: one sentence, in time."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("distributed")

from fivesigma.dask.share import EventParts, Partition
from fivesigma.dask.watch import ClusterError, Member, ask, gather, wait_for
from fivesigma.errors import InputError

MEMBERS = [Member("tcp://one", "0", 1), Member("tcp://two", "1", 1)]


class Scheduler:
    """A client whose scheduler knows some workers, by their seconds since the last sign of life."""

    def __init__(self, silent: dict[str, float]) -> None:
        self._silent = silent

    def run_on_scheduler(self, look: Any) -> Any:
        now = time.time()
        workers = {
            address: SimpleNamespace(name=address, nthreads=1, last_seen=now - silent, metrics={}, memory_limit=None)
            for address, silent in self._silent.items()
        }
        return look(SimpleNamespace(workers=workers))

    def gather(self, futures: list[Any]) -> list[Any]:
        return [future.result() for future in futures]


def never_done() -> Any:
    return SimpleNamespace(done=lambda: False)


def failed(error: Exception) -> Any:
    def result() -> None:
        raise error

    return SimpleNamespace(done=lambda: True, result=result)


def test_a_scheduler_that_is_frozen_ends_in_a_sentence() -> None:
    with pytest.raises(
        ClusterError, match=r"the Dask scheduler has not answered for 0\.2 s, the timeout: it is frozen"
    ):
        ask(0.2, threading.Event().wait)


@pytest.mark.parametrize("error", [OSError("Timed out trying to connect"), TimeoutError("x")])
def test_a_scheduler_that_is_gone_ends_in_a_sentence(error: Exception) -> None:
    with pytest.raises(ClusterError, match="the Dask scheduler does not answer: "):
        ask(5.0, failed(error).result)


def test_answers_and_other_errors_come_through() -> None:
    assert ask(5.0, divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        ask(5.0, divmod, 7, 0)


@pytest.mark.parametrize(
    ("silent", "says"),
    [
        ({"tcp://one": 0.0}, "worker 1 at tcp://two was lost while partitions were computed"),
        ({"tcp://one": 0.0, "tcp://two": 90.0}, "worker 1 at tcp://two is frozen .* no sign of life for 90 s while"),
        ({}, "the Dask cluster has lost all of its workers"),
    ],
)
def test_workers_that_fail_while_partitions_are_computed_are_named(silent: dict[str, float], says: str) -> None:
    with pytest.raises(ClusterError, match=says):
        wait_for(Scheduler(silent), [never_done()], 20.0, MEMBERS)


def test_errors_of_partitions_are_one_line() -> None:
    client = Scheduler({"tcp://one": 0.0})
    with pytest.raises(InputError, match=r"the partitions cannot be computed: KeyError: 'column'$"):
        gather(client, [failed(KeyError("column"))], 5.0)
    with pytest.raises(InputError, match=r"cannot be computed: ValueError: first$"):
        gather(client, [failed(ValueError("first\nsecond"))], 5.0)
    with pytest.raises(InputError, match=r"^of ours$"):
        gather(client, [failed(InputError("of ours"))], 5.0)


def test_labels_that_are_nan_are_refused() -> None:
    parts = EventParts([Partition(0, np.zeros((2, 1)), np.array([np.nan, 1.0]), np.ones(2))], ("x",))
    assert len(list(parts.described())) == 1
    with pytest.raises(InputError, match=r"y is NaN"):
        _ = parts.classes
