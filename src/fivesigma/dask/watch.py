"""How workers are looked after, and what is said when one of them fails."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from fivesigma._tools.extras import need
from fivesigma.dask.group import PeerError, said_of
from fivesigma.errors import InputError

Answer = TypeVar("Answer")

_POLL = 0.2  # seconds between two looks for workers that are late
_GRACE = 0.3  # share of the timeout during which the true cause of a failure may still turn up
_LOOK = 1.0  # seconds between two looks at the workers
_SILENT = 0.6  # share of the timeout after which a worker without any sign of life is taken for frozen,
_LONGEST = 60.0  # but at most so many seconds: it gives one about every second, also while it trains
_LATE = 0.2  # share of the timeout after which a sign of life is waited for before work begins
_FULL = 0.8  # share of its memory limit above which a worker that is gone was out of memory


class ClusterError(InputError):
    """A worker of a cluster failed; the message says which, and why."""


class Member(NamedTuple):
    """A worker of the cluster."""

    address: str
    name: str
    threads: int

    def __str__(self) -> str:
        return f"worker {self.name} at {self.address}"


def ask(timeout: float, question: Callable[..., Answer], *given: Any) -> Answer:
    """Ask the scheduler something; one sentence if it is gone, or if no answer comes in time.

    Calls of a Dask client wait without an end for a scheduler that is frozen. So the question is asked in a thread of
    its own, which is left behind if it waits for ever.
    """
    answers: queue.SimpleQueue[tuple[Answer | None, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            answers.put((question(*given), None))
        except BaseException as err:  # it is raised below
            answers.put((None, err))

    threading.Thread(target=work, daemon=True).start()
    try:
        answer, error = answers.get(timeout=timeout)
    except queue.Empty:
        raise ClusterError(
            f"the Dask scheduler has not answered for {timeout:g} s, the timeout: it is frozen or cannot be reached"
        ) from None
    if isinstance(error, OSError | TimeoutError | need("distributed.comm").CommClosedError):
        raise ClusterError(f"the Dask scheduler does not answer: {said_of(error)}") from error
    if error is not None:
        raise error
    return cast("Answer", answer)


def wait_for(client: Any, futures: Sequence[Any], timeout: float, members: Sequence[Member] = ()) -> None:
    """Wait for tasks while the scheduler answers and, if they can run nowhere else, while these workers live."""
    while not all(future.done() for future in futures):
        seen = seen_workers(client, timeout)
        if not seen:
            raise ClusterError("the Dask cluster has lost all of its workers")
        for member in members:
            if member.address not in seen:
                raise ClusterError(f"{member} was lost while partitions were computed")
            if seen[member.address].is_frozen(timeout):
                raise ClusterError(f"{member} {seen[member.address].frozen} while partitions were computed")
        time.sleep(_POLL)


def gather(client: Any, futures: Sequence[Any], timeout: float) -> list[Any]:
    """Results of tasks, or one sentence about what went wrong."""
    wait_for(client, futures, timeout)
    try:
        return list(ask(timeout, client.gather, futures))
    except InputError:
        raise
    except Exception as err:
        raise InputError(f"the partitions cannot be computed: {said_of(err)}") from err


def find_workers(client: Any, timeout: float) -> list[Member]:
    """Workers that give a sign of life, in the order of their names; those that are late are waited for."""
    seen = seen_workers(client, timeout)
    while any(s.silent > _LATE * timeout and not s.is_frozen(timeout) for s in seen.values()):
        time.sleep(_POLL)
        seen = seen_workers(client, timeout)
    found = [Member(a, str(s.name), s.threads) for a, s in seen.items() if not s.is_frozen(timeout)]
    if not found:
        raise ClusterError(f"the Dask cluster has no worker that answers ({len(seen)} are known); start some")
    return sorted(found, key=lambda member: (len(member.name), member.name, member.address))


class SeenWorker(NamedTuple):
    """What the scheduler knows of a worker: seconds since its last sign of life, bytes of memory, and so on."""

    name: Any
    threads: int
    silent: float
    memory: float
    limit: float

    def is_frozen(self, timeout: float) -> bool:
        """Whether its last sign of life was too long ago."""
        return self.silent > min(_SILENT * timeout, _LONGEST)

    @property
    def frozen(self) -> str:
        """What to say of a worker that is."""
        return f"is frozen or cannot be reached: it has given no sign of life for {self.silent:.0f} s"


def _look(dask_scheduler: Any) -> dict[str, SeenWorker]:
    now = time.time()  # of the scheduler's clock, as `last_seen`
    return {
        address: SeenWorker(s.name, s.nthreads, now - s.last_seen, s.metrics.get("memory", 0), s.memory_limit or 0)
        for address, s in dask_scheduler.workers.items()
    }


def seen_workers(client: Any, timeout: float) -> dict[str, SeenWorker]:
    """What the scheduler knows of each worker, by address."""
    return ask(timeout, client.run_on_scheduler, _look)


def watch(client: Any, members: Sequence[Member], futures: Sequence[Any], timeout: float) -> Iterator[None]:
    """Look after the tasks of a group, one of each member, until all have succeeded; say why if they cannot.

    XGBoost's own error on a worker tells only that another one is gone, so for some time its cause is looked for.
    """
    last: dict[str, SeenWorker] = {}
    looked = failed_at = -np.inf
    while unfinished := [at for at, future in enumerate(futures) if future.status != "finished"]:
        errors = [_own_error(future) for future in futures]
        if isinstance(errors[0], InputError) and len({str(err) for err in errors}) == 1:
            raise errors[0]  # of all events together
        for member, err in zip(members, errors, strict=True):
            if err is not None:
                raise ClusterError(f"{member}: {said_of(err)}") from err
        now = time.monotonic()
        pending = [at for at in unfinished if futures[at].status == "pending"]
        if now - looked > _LOOK or not pending:
            looked, seen = now, seen_workers(client, timeout)
            if gone := [members[at] for at in unfinished if members[at].address not in seen]:
                raise ClusterError(f"{gone[0]} was lost: {_why_gone(client, gone[0], last)}")
            for member in (members[at] for at in pending):
                if seen[member.address].is_frozen(timeout):
                    raise ClusterError(f"{member} {seen[member.address].frozen}")
            last |= seen
        if not pending:
            first = unfinished[0]
            err = futures[first].exception() if futures[first].status == "error" else None
            raise ClusterError(f"{members[first]}: {said_of(err) if err else 'its task was lost'}") from err
        if len(pending) < len(unfinished):
            failed_at = now if failed_at < 0 else failed_at
            if now - failed_at > min(_GRACE * timeout, 30.0):
                raise ClusterError(f"{members[pending[0]]} has not answered the others for {timeout:g} s, the timeout")
        yield


def _own_error(future: Any) -> BaseException | None:
    """The error of a task if it is its own, and not the echo of another's."""
    if future.status != "error":
        return None
    err: BaseException = future.exception()
    echo = isinstance(err, PeerError) or type(err).__name__ in ("XGBoostError", "KilledWorker")
    return None if echo else err


def _why_gone(client: Any, member: Member, last: dict[str, SeenWorker]) -> str:
    with suppress(Exception):  # a cluster without nannies has no such events
        for _, event in client.get_events("worker-restart-memory"):
            if event.get("worker") == member.address:
                return (
                    f"it ran out of memory when it used {event['rss'] / 1e9:.2f} GB; give workers more, use more "
                    "workers, or memory='disk'"
                )
    before = last.get(member.address)
    if before is not None and before.limit and before.memory > _FULL * before.limit:
        return f"it used {before.memory / 1e9:.2f} GB of its limit of {before.limit / 1e9:.2f} GB of memory"
    return "its process ended, killed by somebody or by the system when memory ran out"
