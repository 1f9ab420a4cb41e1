"""Two workers of one thread on this machine, against one process of two threads and against plain XGBoost on Dask.

FIVESIGMA_EVENTS sets the number of events (10^6 by default), FIVESIGMA_TREES that of trees (100). The figures are
ratios of runs that follow each other, so other work on the machine disturbs them.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Figure, benchmark, peak_memory

N_EVENTS = int(os.environ.get("FIVESIGMA_EVENTS", str(10**6)))
TREES = int(os.environ.get("FIVESIGMA_TREES", "100"))
N_FILES, N_FEATURES = 10, 30
SIGNAL, MEAN = 0.3, (5e-2, 1e-4)  # share of signal events, and mean weight of background and signal
FIT: dict[str, Any] = {"n_trees": TREES, "random_state": 0}


def write_events(folder: Path) -> None:
    """Signal and background that differ a little in each of the features."""
    import polars as pl

    n = N_EVENTS // N_FILES
    for k in range(N_FILES):
        rng = np.random.default_rng(k)
        y = rng.random(n) < SIGNAL
        columns: dict[str, Any] = {
            f"x{j}": rng.normal(0.3 * y * (j % 3), size=n).astype(np.float32) for j in range(N_FEATURES)
        }
        columns["Label"] = y.astype(np.int8)
        columns["Weight"] = rng.exponential(size=n) * np.where(y, MEAN[1], MEAN[0])
        pl.DataFrame(columns).write_parquet(folder / f"part-{k}.parquet")


def one_process(folder: str) -> tuple[float, float, float]:
    """Wall and CPU seconds and peak memory in MB of one process with two threads."""
    from fivesigma import GrownCascadeClassifier
    from fivesigma.datasets import EventStream

    began, cpu = time.perf_counter(), time.process_time()
    stream = EventStream(f"{folder}/*.parquet", signal=1)
    GrownCascadeClassifier(memory="bins", n_jobs=2, **FIT).fit(stream)
    return time.perf_counter() - began, time.process_time() - cpu, peak_memory()


def _on_cluster(work: Any, folder: str) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds of the workers and of this process, and peak memory of a worker in MB."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", host="127.0.0.1") as cluster,
        Client(cluster) as client,
    ):
        _import()
        for address in client.run(os.getpid):
            client.submit(_import, workers=[address], pure=False).result()

        def cpu() -> float:
            return float(time.process_time() + sum(client.run(time.process_time).values()))

        before, began = cpu(), time.perf_counter()
        work(client, folder)
        wall, used = time.perf_counter() - began, cpu() - before
        return wall, used, max(client.run(peak_memory).values())


def _import() -> None:
    """Import what is needed, which a process does once in its life."""
    for module in ("dask.dataframe", "fivesigma.dask", "polars", "pyarrow.parquet", "xgboost.dask"):
        importlib.import_module(module)


def cascade(folder: str) -> tuple[float, float, float]:
    """The cascade on two workers."""

    def work(client: Any, folder: str) -> None:
        from fivesigma.dask import GrownCascadeClassifier

        GrownCascadeClassifier(client, **FIT).fit(f"{folder}/*.parquet", signal=1)

    return _on_cluster(work, folder)


def plain(folder: str) -> tuple[float, float, float]:
    """XGBoost's own training on Dask with the same trees and an evaluation set, from the same files."""

    def work(client: Any, folder: str) -> None:
        import dask.dataframe as dd
        import xgboost.dask as xgb

        from fivesigma.learners.xgboost import GROWER_DEFAULTS, GROWER_FIXED

        frame = dd.read_parquet(f"{folder}/*.parquet")
        # Balanced classes and a mean of one, as a cascade has them: raw yields would give other and smaller trees.
        y = frame["Label"]
        frame["Weight"] *= 0.5 / (SIGNAL * MEAN[1]) * y + 0.5 / ((1 - SIGNAL) * MEAN[0]) * (1 - y)
        train, held_out = frame.random_split([0.75, 0.25], random_state=0)
        names = [f"x{j}" for j in range(N_FEATURES)]
        matrix = xgb.DaskQuantileDMatrix(client, train[names], train["Label"], weight=train["Weight"])
        evaluation = xgb.DaskQuantileDMatrix(
            client, held_out[names], held_out["Label"], weight=held_out["Weight"], ref=matrix
        )
        params = {**GROWER_DEFAULTS, **GROWER_FIXED, "nthread": 1}
        xgb.train(client, params, matrix, TREES, evals=[(evaluation, "held_out")], verbose_eval=False)

    return _on_cluster(work, folder)


def _run(function: str, folder: Path) -> tuple[float, float, float]:
    code = (
        f"import json; from benchmarks.speed.cluster import {function}\n"
        f"if __name__ == '__main__': print(json.dumps({function}({str(folder)!r})))"
    )
    script = folder / f"{function}.py"
    script.write_text(code)
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"} | {"PYTHONPATH": path}
    done = subprocess.run([sys.executable, str(script)], check=True, stdout=subprocess.PIPE, text=True, env=environment)
    wall, cpu, peak = json.loads(done.stdout.splitlines()[-1])
    seen = f"{wall:.1f} s, CPU {cpu:.1f} s, peak {peak:.0f} MB, load {os.getloadavg()[0]:.1f}"
    print(f"{function}: {seen}", file=sys.stderr, flush=True)
    return wall, cpu, peak


@benchmark(slow=True)
def two_workers() -> Iterable[Figure]:
    """A cascade on two workers against one process, and against `xgboost.dask.train`."""
    with tempfile.TemporaryDirectory(prefix="fivesigma-cluster-") as name:
        folder = Path(name)
        write_events(folder)
        alone, spread, library = (_run(f, folder) for f in ("one_process", "cascade", "plain"))
    size = f"{N_EVENTS:,} x {N_FEATURES} events, {TREES} trees"
    yield Figure("two workers / one process of two threads, wall", spread[0] / alone[0], 1.5, note=size)
    yield Figure("two workers / one process of two threads, CPU", spread[1] / alone[1], 1.4, note=f"{spread[1]:.0f} s")
    yield Figure("two workers / xgboost.dask.train, CPU", spread[1] / library[1], 1.15, note=f"{library[1]:.0f} s")
    yield Figure("peak memory of a worker", spread[2], unit=" MB", note=f"one process {alone[2]:.0f} MB")
    yield Figure("two workers / xgboost.dask.train, wall", spread[0] / library[0], 1.15, note=f"{library[0]:.0f} s")
