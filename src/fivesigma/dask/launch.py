"""How Dask starts the worker function on every worker, and what it says when one of them fails."""

from __future__ import annotations

import pickle
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from logging import CRITICAL
from pathlib import Path
from typing import Any, NamedTuple

from fivesigma._extras import need
from fivesigma._threads import available_cores
from fivesigma.cascade import Round
from fivesigma.dask.group import Group, PeerError, said_of
from fivesigma.dask.parts import EventParts
from fivesigma.dask.share import LocalEvents
from fivesigma.dask.worker import GIVE_UP, KEEP_ON, SILENT, STOP, Channel, Job, Trained, train_share
from fivesigma.errors import InputError

_POLL = 0.2  # seconds between two looks at the messages of the workers
_EVERY = 0.5  # seconds between two messages of a worker about its rounds
_PATIENCE = 30  # seconds that a worker waits for an answer of the scheduler
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


@contextmanager
def connected(client: Any) -> Iterator[Any]:
    """Give a client: the one given, one of an address, or the one that is open already."""
    distributed = need("distributed")
    if isinstance(client, str):
        try:
            opened = distributed.Client(client, set_as_default=False)
        except (OSError, ValueError) as err:
            raise InputError(f"there is no Dask scheduler at {client!r} ({said_of(err)})") from err
        try:
            yield opened
        finally:
            opened.close()
        return
    if client is None:
        try:
            client = distributed.default_client()
        except ValueError as err:
            raise InputError("there is no Dask client; make one with distributed.Client, or give client=") from err
    if not isinstance(client, distributed.Client):
        raise InputError(f"client must be a distributed.Client or an address, got {client!r}")
    if client.asynchronous:
        raise InputError("client is asynchronous; a fit needs one that waits: distributed.Client(asynchronous=False)")
    yield client


@contextmanager
def local_cluster(n_workers: int) -> Iterator[Any]:
    """A cluster of processes on this machine, which share its cores."""
    if n_workers < 1:
        raise InputError(f"a cluster needs at least one worker, got {n_workers}")
    distributed = need("distributed")
    settings: dict[str, Any] = {"dashboard_address": None, "host": "127.0.0.1", "silence_logs": CRITICAL}
    threads = max(1, available_cores() // n_workers)
    with (
        distributed.LocalCluster(n_workers=n_workers, threads_per_worker=threads, **settings) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def living(client: Any, timeout: float) -> list[Member]:
    """Workers that give a sign of life, in the order of their names; those that are late are waited for."""
    seen = _seen(client)
    while any(_LATE * timeout < s.silent < _SILENT * timeout for s in seen.values()):
        time.sleep(_POLL)
        seen = _seen(client)
    found = [Member(a, str(s.name), s.threads) for a, s in seen.items() if s.silent < _SILENT * timeout]
    if not found:
        raise ClusterError(f"the Dask cluster has no worker that answers ({len(seen)} are known); start some")
    return sorted(found, key=lambda member: (len(member.name), member.name, member.address))


class _Seen(NamedTuple):
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


def _seen(client: Any) -> dict[str, _Seen]:
    try:
        return {address: _Seen(*found) for address, found in client.run_on_scheduler(_look).items()}
    except (OSError, need("distributed.comm").CommClosedError) as err:
        raise ClusterError(f"the Dask scheduler does not answer ({said_of(err)})") from err


def _start_tracker(n_workers: int, timeout: int, dask_scheduler: Any) -> dict[str, Any]:
    """Start the tracker, through which workers find each other, beside the scheduler."""
    host = need("distributed.comm").get_address_host(dask_scheduler.address)
    tracker = need("xgboost.tracker").RabitTracker(n_workers=n_workers, host_ip=host, sortby="task", timeout=timeout)
    tracker.start()

    def wait() -> None:
        for end in (tracker.wait_for, tracker.free):
            with suppress(Exception):  # of workers that never came, or are gone: the client says so
                end()

    threading.Thread(target=wait, daemon=True).start()
    return dict(tracker.worker_args())


class _Talk(NamedTuple):
    """Names of the queue and of the variable by which the first worker and the client speak."""

    said: str
    wish: str


def _run(  # noqa: PLR0917 - arguments of a task
    job: Job, events: LocalEvents | tuple[Any, ...], member: Member, at: int, tracker: dict[str, Any], talk: _Talk
) -> Trained | None:
    """The task of one worker."""
    distributed = need("distributed")
    if isinstance(events, tuple):
        events = EventParts(*events)
    group_of_all = need("xgboost.collective").CommunicatorContext(**tracker, dmlc_task_id=f"{at:06d}")
    with ExitStack() as stack:
        with redirect_stdout(None):  # XGBoost prints the rank
            stack.enter_context(group_of_all)
        group = Group(f"worker {member.name} at {member.address}")
        channel = _Sender(talk).channel() if group.leads else SILENT
        scratch = Path(distributed.get_worker().local_directory)
        return train_share(job, events, group, channel=channel, scratch=scratch)


class _Sender:
    """What the first worker says to the client; rounds go in batches."""

    def __init__(self, talk: _Talk) -> None:
        distributed = need("distributed")
        self._queue, self._wish = distributed.Queue(talk.said), distributed.Variable(talk.wish)
        self._rounds: list[Round] = []
        self._sent = time.monotonic()

    def channel(self) -> Channel:
        """The same as functions."""
        return Channel(self._heard, self._kept, self._wanted)

    def _heard(self, r: Round) -> None:
        self._rounds.append(r)
        if time.monotonic() - self._sent > _EVERY:
            self._send("rounds", self._rounds)
            self._rounds, self._sent = [], time.monotonic()

    def _kept(self, state: dict[str, Any], files: dict[str, bytes]) -> None:
        self._send("checkpoint", (state, files))

    def _wanted(self) -> int:
        try:
            return int(self._wish.get(timeout=_PATIENCE))
        except TimeoutError:  # whoever asked is gone
            return GIVE_UP

    def _send(self, kind: str, content: Any) -> None:
        self._queue.put(pickle.dumps((kind, content)))


@dataclass
class Listener:
    """What the client does with what it hears.

    Attributes
    ----------
    heard : callable
        Called with each `Round`; the answer True asks to stop.
    kept : callable
        Called with state and files of a checkpoint.
    """

    heard: Callable[[Round], bool]
    kept: Callable[[dict[str, Any], dict[str, bytes]], None]


def run_group(
    client: Any, job: Job, shares: Sequence[tuple[Member, Any]], *, timeout: float, listener: Listener
) -> Trained:
    """Run the worker function on some workers, and return what they have trained.

    Parameters
    ----------
    client : distributed.Client
    job : Job
    shares : sequence of (Member, events)
        Workers with the events of each: a `LocalEvents`, or what `EventParts` is made of, with futures.
    timeout : float
        Seconds that a worker waits for another, and after which one without a sign of life is taken for lost.
    listener : Listener
    """
    distributed = need("distributed")
    talk = _Talk(f"fivesigma-said-{uuid.uuid4().hex}", f"fivesigma-wish-{uuid.uuid4().hex}")
    queue, wish = distributed.Queue(talk.said, client=client), distributed.Variable(talk.wish, client=client)
    wish.set(KEEP_ON)
    tracker = client.run_on_scheduler(_start_tracker, len(shares), int(timeout))
    tracker["dmlc_timeout"] = int(timeout)
    members = [member for member, _ in shares]
    futures = [
        client.submit(
            _run,
            job,
            events,
            member,
            at,
            tracker,
            talk,
            workers=[member.address],
            allow_other_workers=False,
            pure=False,
            retries=0,
            key=f"fivesigma-{at:06d}-{uuid.uuid4().hex}",
        )
        for at, (member, events) in enumerate(shares)
    ]
    watch = _Watch(client, members, futures, timeout)
    n_heard = job.n_done

    def listen() -> None:
        nonlocal n_heard
        for message in queue.get(batch=True):  # what is there, without waiting
            kind, content = pickle.loads(message)
            if kind == "checkpoint":
                listener.kept(*content)
                continue
            for r in content:
                n_heard += 1
                if listener.heard(r):
                    wish.set(STOP)

    try:
        while not watch.all_done():
            listen()
            time.sleep(_POLL)
        listen()
        watch.raise_cause()
        trained: Trained = futures[0].result()
        for r in trained.fitted["history_"][n_heard:]:
            listener.heard(r)
    except BaseException:
        with suppress(Exception):
            listen()  # a checkpoint may have come before the end
        raise
    else:
        return trained
    finally:
        with suppress(Exception):  # the scheduler may be gone
            wish.set(GIVE_UP)  # for those that are still at work
            client.cancel(futures, force=True)
            queue.close()


class _Watch:
    """Looks after the tasks of a group, and says why one failed."""

    def __init__(self, client: Any, members: list[Member], futures: list[Any], timeout: float) -> None:
        self._client, self._members, self._futures, self._timeout = client, members, futures, timeout
        self._looked = self._failed_at = -1.0
        self._seen: dict[str, _Seen] = {}
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
        seen = _seen(self._client)
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
            for at in (at for at in failed if self._members[at].address not in _seen(self._client)):
                raise ClusterError(f"{self._members[at]} was lost: {self._why_gone(self._members[at])}")
            err = self._futures[failed[0]].exception()
            raise ClusterError(f"{self._members[failed[0]]}: {said_of(err)}") from err
