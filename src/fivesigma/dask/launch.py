"""How Dask starts the worker function on every worker, and what it says when one of them fails."""

from __future__ import annotations

import pickle
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, redirect_stdout, suppress
from functools import partial
from logging import CRITICAL
from pathlib import Path
from typing import Any

from fivesigma._tools.extras import need
from fivesigma._tools.threads import available_cores
from fivesigma.cascade.rounds import Round
from fivesigma.dask.group import Group, said_of
from fivesigma.dask.share import EventParts, LocalEvents
from fivesigma.dask.watch import Member, ask, watch
from fivesigma.dask.worker import GIVE_UP, KEEP_ON, SILENT, STOP, Channel, Job, Trained, train_share
from fivesigma.errors import InputError

_POLL = 0.2  # seconds between two looks at the messages of the workers
_EVERY = 0.5  # seconds between two messages of a worker about its rounds
_GOODBYE = 5.0  # seconds that the client waits when it ends
_PATIENCE = 30  # seconds that a worker waits for an answer of the scheduler


@contextmanager
def connect(client: Any) -> Iterator[Any]:
    """Give a client: the one given, one of an address, or the one that is open already."""
    distributed = need("distributed")
    if isinstance(client, str):
        try:
            opened = distributed.Client(client, set_as_default=False)
        except (OSError, ValueError) as err:
            raise InputError(f"there is no Dask scheduler at {client!r} ({said_of(err)})") from err
        with closing(opened):
            yield opened
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
    settings: dict[str, Any] = {"dashboard_address": "127.0.0.1:0", "host": "127.0.0.1", "silence_logs": CRITICAL}
    threads = max(1, available_cores() // n_workers)
    with (
        distributed.LocalCluster(n_workers=n_workers, threads_per_worker=threads, **settings) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


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


def _run(  # noqa: PLR0917 - arguments of a task
    job: Job, events: LocalEvents | tuple[Any, ...], member: Member, at: int, tracker: dict[str, Any], run: str
) -> Trained | None:
    distributed = need("distributed")
    if isinstance(events, tuple):
        events = EventParts(*events)
    group_of_all = need("xgboost.collective").CommunicatorContext(**tracker, dmlc_task_id=f"{at:06d}")
    with ExitStack() as stack:
        with redirect_stdout(None):  # XGBoost prints the rank
            stack.enter_context(group_of_all)
        group = Group(f"worker {member.name} at {member.address}")
        channel = _speak(run) if group.leads else SILENT
        scratch = Path(distributed.get_worker().local_directory)
        return train_share(job, events, group, channel=channel, scratch=scratch)


def _talk(run: str, **of: Any) -> tuple[Any, Any]:
    """Queue of what the first worker of a run says, and variable of what the client wishes."""
    distributed = need("distributed")
    return distributed.Queue(f"fivesigma-said-{run}", **of), distributed.Variable(f"fivesigma-wish-{run}", **of)


def _speak(run: str) -> Channel:
    """What the first worker says to the client; rounds go in batches."""
    queue, wish = _talk(run)
    rounds, sent = list[Round](), time.monotonic()

    def hear(r: Round) -> None:
        nonlocal rounds, sent
        rounds.append(r)
        if time.monotonic() - sent > _EVERY:
            queue.put(pickle.dumps(("rounds", rounds)))
            rounds, sent = [], time.monotonic()

    def keep(state: dict[str, Any], files: dict[str, bytes]) -> None:
        queue.put(pickle.dumps(("checkpoint", (state, files))))

    def ask_wish() -> int:
        try:
            return int(wish.get(timeout=_PATIENCE))
        except TimeoutError:  # whoever asked is gone
            return GIVE_UP

    return Channel(hear, keep, ask_wish)


def run_group(
    client: Any,
    job: Job,
    shares: Sequence[tuple[Member, Any]],
    *,
    timeout: float,
    heard: Callable[[Round], bool],
    kept: Callable[[dict[str, Any], dict[str, bytes]], None],
) -> Trained:
    """Run the worker function on some workers with the events, or the futures of `EventParts`, of each.

    The client calls `heard` with each round, which returns True to stop, and `kept` with each checkpoint.
    """
    run = uuid.uuid4().hex
    queue, wish = _talk(run, client=client)
    ask(timeout, wish.set, KEEP_ON)
    tracker = ask(timeout, client.run_on_scheduler, _start_tracker, len(shares), int(timeout))
    tracker["dmlc_timeout"] = int(timeout)
    members = [member for member, _ in shares]
    futures = [
        client.submit(
            *(_run, job, events, member, at, tracker, run),
            workers=[member.address],
            pure=False,
            key=f"fivesigma-{at:06d}-{run}",
        )
        for at, (member, events) in enumerate(shares)
    ]
    n_heard = job.n_done

    def listen() -> None:
        nonlocal n_heard
        for message in ask(timeout, partial(queue.get, batch=True)):  # what is there, without waiting for more
            kind, content = pickle.loads(message)
            if kind == "checkpoint":
                kept(*content)
                continue
            for r in content:
                n_heard += 1
                if heard(r):
                    ask(timeout, wish.set, STOP)

    try:
        for _ in watch(client, members, futures, timeout):
            listen()
            time.sleep(_POLL)
        listen()
        trained: Trained = ask(timeout, futures[0].result)
        for r in trained.fitted["history_"][n_heard:]:
            heard(r)
    except BaseException:
        with suppress(Exception):
            listen()  # a checkpoint may have come before the end
        raise
    else:
        return trained
    finally:
        with suppress(Exception):  # the scheduler may be gone
            ask(_GOODBYE, wish.set, GIVE_UP)  # for those that are still at work
            ask(_GOODBYE, partial(client.cancel, futures, force=True))
            queue.close()
