"""Work in parallel without more threads than cores, and seeds for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.utils import check_random_state

T = TypeVar("T")


def spread_threads(n_jobs: int | None, n_tasks: int) -> tuple[int, int]:
    """Workers for some tasks, and threads for the learner in each; together never more than the cores.

    `n_jobs` None or -1 means all cores, all of them for the learner if there is one task.
    """
    cores = effective_n_jobs(-1 if n_jobs is None else n_jobs)
    workers = max(1, min(cores, n_tasks))
    return workers, max(1, cores // workers)


def run_parallel(work: Callable[..., T], tasks: Iterable[tuple[Any, ...]], workers: int) -> list[T]:
    """Run tasks in threads: learners leave Python's lock while they train, and the events are shared."""
    return list(Parallel(n_jobs=workers, backend="threading")(delayed(work)(*task) for task in tasks))


def spread_seeds(random_state: Any, n: int) -> list[int]:
    """Return `n` seeds; the first ones do not depend on n."""
    root = check_random_state(random_state).randint(np.iinfo(np.int32).max)
    return [int(child.generate_state(1)[0] >> 1) for child in np.random.SeedSequence(root).spawn(n)]
