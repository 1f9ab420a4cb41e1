"""The worker function without Dask: a group of threads, each of which is a worker; run as a process of its own.

``python -m tests.dask.threads PATTERN FOLDER N...`` trains with each number of workers and writes what they return.
"""

from __future__ import annotations

import pickle
import sys
import threading
from pathlib import Path
from typing import Any

from xgboost import collective
from xgboost.tracker import RabitTracker

from fivesigma.dask.group import Group
from fivesigma.dask.worker import Job, Trained, train_share
from fivesigma.datasets import EventStream
from fivesigma.estimators.running import spread_seeds
from tests.dask.files import ALL_ROWS

FIT: dict[str, Any] = {"n_trees": 20, "params": ALL_ROWS, "random_state": 3}


def train(pattern: str, n_workers: int, most: int) -> Trained:
    """Train with some workers, of which the last has no files if there are too many."""
    stream = EventStream(pattern)
    tracker = RabitTracker(n_workers=n_workers, host_ip="127.0.0.1", sortby="task", timeout=60)
    tracker.start()
    split_seed, seed = spread_seeds(FIT["random_state"], 2)
    job = Job(FIT, split_seed, seed, most=most)
    found: list[Trained | None] = []

    def work(rank: int) -> None:
        with collective.CommunicatorContext(**tracker.worker_args(), dmlc_task_id=f"{rank:06d}", dmlc_timeout=60):
            own = range(rank, len(stream.files), n_workers)
            found.append(train_share(job, stream.only(own), Group(f"worker {rank}")))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(n_workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tracker.wait_for()
    (leader,) = (trained for trained in found if trained is not None)
    return leader


if __name__ == "__main__":
    for number in map(int, sys.argv[3:]):
        for most in (10**6, 300):
            result = train(sys.argv[1], number, most)
            Path(sys.argv[2], f"{number}-{most}.pickle").write_bytes(pickle.dumps(result.fitted))
