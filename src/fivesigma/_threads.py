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

CELLS_PER_THREAD = 1 << 19  # rows times columns that are worth one more thread


def available_cores() -> int:
    """Cores that this process may use: those of its CPU affinity and its control group."""
    return max(1, int(joblib.cpu_count()))


def wanted_cores(n_jobs: int | None) -> int:
    """Cores that a user asks for; None means as many as ``OMP_NUM_THREADS`` says or, without it, all."""
    cores = available_cores()
    if n_jobs is None:
        text = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
        return min(cores, int(text)) if text.isdigit() and int(text) > 0 else cores
    return min(cores, n_jobs) if n_jobs > 0 else max(1, cores + 1 + n_jobs)


def threads_for(n_jobs: int | None, n_cells: int) -> int:
    """Threads for one piece of work on a table of so many cells; a number that a user asks for is taken as it is."""
    cores = wanted_cores(n_jobs)
    return cores if n_jobs is not None else max(1, min(cores, n_cells // CELLS_PER_THREAD))


def spread_threads(n_jobs: int | None, n_tasks: int, n_cells: int) -> tuple[int, int]:
    """Workers for some tasks, and threads for the learner in each; together never more than the cores.

    Parameters
    ----------
    n_jobs : int, optional
        Cores; all by default.
    n_tasks : int
        Tasks that can run side by side.
    n_cells : int
        Rows times columns of the table that each task works on.
    """
    cores = wanted_cores(n_jobs)
    workers = max(1, min(cores, n_tasks))
    return workers, max(1, min(cores // workers, threads_for(n_jobs, n_cells)))


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def limited(n_threads: int) -> Iterator[None]:
    """Keep OpenMP of scikit-learn within some threads."""
    with _controller().limit(limits=n_threads, user_api="openmp"):
        yield
