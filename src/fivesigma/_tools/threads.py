"""How many threads some work gets: never more than this process may use, and one where there is little to do.

Threads of OpenMP wait for each other after every small step. Where other processes want the same cores, a fit of a few
thousand events takes many times longer with two threads than with one, and hardly less where the cores are free.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import joblib

from fivesigma._tools.extras import refuse_after_fork, threads_of

CELLS_PER_THREAD = 1 << 19  # rows times columns that are worth one more thread
SEVERAL = "several cores"


def note_threads(n_threads: int) -> int:
    """Remember that so many threads are used, where zero or less means all cores; refuse what would never end."""
    refuse_after_fork(SEVERAL, "use n_jobs=1")
    if (n_threads if n_threads > 0 else wanted_cores(-1)) > 1:
        threads_of.add(SEVERAL)
    return n_threads


def available_cores() -> int:
    """Cores that this process may use: those of its CPU affinity and its control group."""
    return max(1, int(joblib.cpu_count()))


def wanted_cores(n_jobs: int | None) -> int:
    """Cores that a user asks for, as in scikit-learn: None means one, or as many as ``joblib.parallel_config`` says.

    A negative number counts from all cores, or from as many as ``OMP_NUM_THREADS`` says: -1 means all of them.
    """
    cores = available_cores()
    if n_jobs is None:
        return max(1, min(cores, int(joblib.effective_n_jobs(None))))
    if n_jobs > 0:
        return min(cores, n_jobs)
    text = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    all_cores = min(cores, int(text)) if text.isdigit() and int(text) > 0 else cores
    return max(1, all_cores + 1 + n_jobs)


def threads_for(n_jobs: int | None, n_cells: int) -> int:
    """Threads for one piece of work on a table of so many cells; a number that a user asks for is taken as it is."""
    cores = wanted_cores(n_jobs)
    asked = n_jobs is not None and n_jobs > 0
    return note_threads(cores if asked else max(1, min(cores, n_cells // CELLS_PER_THREAD)))


def spread_threads(n_jobs: int | None, n_tasks: int, n_cells: int) -> tuple[int, int]:
    """Workers for some tasks, and threads for the learner in each; together never more than the cores."""
    cores = wanted_cores(n_jobs)
    workers = max(1, min(cores, n_tasks))
    return workers, max(1, min(cores // workers, threads_for(n_jobs, n_cells)))


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def limit_threads(n_threads: int) -> Iterator[None]:
    """Keep OpenMP of scikit-learn within some threads."""
    with _controller().limit(limits=n_threads, user_api="openmp"):
        yield
