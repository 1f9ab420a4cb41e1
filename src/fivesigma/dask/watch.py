"""How workers are looked after, and what is said when one of them fails."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, NamedTuple

from fivesigma._tools.extras import need
from fivesigma.dask.group import PeerError, said_of
from fivesigma.errors import InputError

_POLL = 0.2  # seconds between two looks for workers that are late
_GRACE = 0.3  # share of the timeout during which the true cause of a failure may still turn up
_LOOK = 1.0  # seconds between two looks at the workers
_SILENT = 0.6  # share of the timeout after which a worker without any sign of life is taken for frozen
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


def living(client: Any, timeout: float) -> list[Member]:
    """Workers that give a sign of life, in the order of their names; those that are late are waited for."""
    seen = seen_workers(client)
    while any(_LATE * timeout < s.silent < _SILENT * timeout for s in seen.values()):
        time.sleep(_POLL)
        seen = seen_workers(client)
    found = [Member(a, str(s.name), s.threads) for a, s in seen.items() if s.silent < _SILENT * timeout]
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


def seen_workers(client: Any) -> dict[str, SeenWorker]:
    """What the scheduler knows of each worker, by address."""
    try:
        return {address: SeenWorker(*found) for address, found in client.run_on_scheduler(_look).items()}
    except (OSError, need("distributed.comm").CommClosedError) as err:
        raise ClusterError(f"the Dask scheduler does not answer ({said_of(err)})") from err


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
        seen = seen_workers(self._client)
        for at, (member, future) in enumerate(zip(self._members, self._futures, strict=True)):
            if future.done():
                continue
            state = seen.get(member.address)
            if state is None:
                self._lost[at] = f"was lost: {self._why_gone(member)}"
            elif state.silent > _SILENT * self._timeout:
                self._lost[at] = (
                    f"has given no sign of life for {state.silent:.0f} s: it is frozen or cannot be reached"
                )
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
        pending = [at for at, future in enumerate(self._futures) if not future.done()]
        if pending and not self._lost:
            self._look()
        for at, why in self._lost.items():
            raise ClusterError(f"{self._members[at]} {why}")
        failed = [at for at, future in enumerate(self._futures) if future.status != "finished"]
        if pending:
            raise ClusterError(
                f"{self._members[pending[0]]} has not answered the others for {self._timeout:g} s, the timeout"
            )
        if failed:
            self._look()
            for at in (at for at in failed if self._members[at].address not in seen_workers(self._client)):
                raise ClusterError(f"{self._members[at]} was lost: {self._why_gone(self._members[at])}")
            err = self._futures[failed[0]].exception()
            raise ClusterError(f"{self._members[failed[0]]}: {said_of(err)}") from err
