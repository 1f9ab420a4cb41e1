"""How workers are looked after, and what is said when one of them fails."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar, cast

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


def gather(client: Any, futures: Sequence[Any], timeout: float, members: Sequence[Member] = ()) -> list[Any]:
    """Results of tasks, or one sentence about what went wrong."""
    wait_for(client, futures, timeout, members)
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


def _look(dask_scheduler: Any) -> dict[str, tuple[Any, ...]]:
    now = time.time()
    return {
        address: (
            state.name,
            state.nthreads,
            now - state.last_seen,
            float(state.metrics.get("memory", 0)),
            float(state.memory_limit or 0),
        )
        for address, state in dask_scheduler.workers.items()
    }


def seen_workers(client: Any, timeout: float) -> dict[str, SeenWorker]:
    """What the scheduler knows of each worker, by address."""
    return {address: SeenWorker(*found) for address, found in ask(timeout, client.run_on_scheduler, _look).items()}


class Watch:
    """Looks after the tasks of a group, and says why one failed."""

    def __init__(self, client: Any, members: list[Member], futures: list[Any], timeout: float) -> None:
        self._client, self._members, self._futures, self._timeout = client, members, futures, timeout
        self._looked = self._failed_at = -1.0
        self._seen: dict[str, SeenWorker] = {}
        self._lost: dict[int, str] = {}

    def all_done(self) -> bool:
        """Whether all tasks are done, or it is known why they never will be."""
        if all(future.done() for future in self._futures):
            return True
        now = time.monotonic()
        if now - self._looked > _LOOK:
            self._looked = now
            self._look()
        failed = [future for future in self._futures if future.status in ("error", "lost", "cancelled")]
        if failed and self._failed_at < 0:
            self._failed_at = now
        waited = failed and now - self._failed_at > min(_GRACE * self._timeout, 30.0)
        return bool(self._lost or waited or any(self._own_error(future) for future in failed))

    def _look(self) -> None:
        seen = seen_workers(self._client, self._timeout)
        for at, (member, future) in enumerate(zip(self._members, self._futures, strict=True)):
            if future.status == "finished":
                continue
            state = seen.get(member.address)
            if state is None:
                self._lost[at] = f"was lost: {self._why_gone(member)}"
            elif state.is_frozen(self._timeout):
                self._lost[at] = state.frozen
            else:
                self._seen[member.address] = state

    def _why_gone(self, member: Member) -> str:
        with suppress(Exception):  # a cluster without nannies has no such events
            for _, event in self._client.get_events("worker-restart-memory"):
                if event.get("worker") == member.address:
                    return (
                        f"it ran out of memory when it used {event['rss'] / 1e9:.2f} GB; give workers more, use more "
                        "workers, or memory='disk'"
                    )
        last = self._seen.get(member.address)
        if last is not None and last.limit and last.memory > _FULL * last.limit:
            return f"it used {last.memory / 1e9:.2f} GB of its limit of {last.limit / 1e9:.2f} GB of memory"
        return "its process ended, killed by somebody or by the system when memory ran out"

    @staticmethod
    def _own_error(future: Any) -> BaseException | None:
        """The error of a task if it is its own, and not the echo of another's."""
        if future.status != "error":
            return None
        err: BaseException = future.exception()
        echo = isinstance(err, PeerError) or type(err).__name__ in ("XGBoostError", "KilledWorker")
        return None if echo else err

    def raise_cause(self) -> None:
        """Raise what went wrong, if anything did."""
        errors = [self._own_error(future) for future in self._futures]
        if isinstance(errors[0], InputError) and len({str(err) for err in errors}) == 1:
            raise errors[0]  # of all events together
        for member, err in zip(self._members, errors, strict=True):
            if err is not None:
                raise ClusterError(f"{member}: {said_of(err)}") from err
        unfinished = [at for at, future in enumerate(self._futures) if future.status != "finished"]
        if unfinished and not self._lost:
            self._look()
        for at, why in self._lost.items():
            raise ClusterError(f"{self._members[at]} {why}")
        for at in sorted(unfinished, key=lambda at: self._futures[at].done()):
            if not self._futures[at].done():
                raise ClusterError(
                    f"{self._members[at]} has not answered the others for {self._timeout:g} s, the timeout"
                )
            err = self._futures[at].exception()
            raise ClusterError(f"{self._members[at]}: {said_of(err)}") from err
