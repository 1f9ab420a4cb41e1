"""Events that are larger than memory: what training and scanning them takes, each in a process of its own.

The files are written once to the folder FIVESIGMA_SCALE, by default a temporary one that is removed afterwards; they
need 1.4 GB. FIVESIGMA_TREES sets the number of trees.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Figure, benchmark, peak_memory

N_FILES, PER_FILE, N_FEATURES = 10, 10**6, 30
N_SCORES = 10**8
TREES = int(os.environ.get("FIVESIGMA_TREES", "100"))


@contextmanager
def _folder(name: str, needed: float) -> Iterator[Path]:
    """A folder for files, which stays only if it was asked for."""
    given = os.environ.get("FIVESIGMA_SCALE")
    base = Path(given or tempfile.mkdtemp(prefix="fivesigma-scale-"))
    free = shutil.disk_usage(base).free
    if free < 2 * needed:
        raise RuntimeError(f"{base} has {free / 1e9:.1f} GB left; twice {needed / 1e9:.1f} GB are wanted")
    try:
        (base / name).mkdir(parents=True, exist_ok=True)
        yield base / name
    finally:
        if not given:
            shutil.rmtree(base)


def _write_events(folder: Path) -> None:
    """Signal and background that differ a little in each of the features."""
    import polars as pl

    for k in range(N_FILES):
        path = folder / f"part-{k}.parquet"
        if path.exists():
            continue
        rng = np.random.default_rng(k)
        y = rng.random(PER_FILE) < 0.3
        columns: dict[str, Any] = {
            f"x{j}": rng.normal(0.3 * y * (j % 3), size=PER_FILE).astype(np.float32) for j in range(N_FEATURES)
        }
        columns["Label"] = y.astype(np.int8)
        columns["Weight"] = rng.exponential(size=PER_FILE) * np.where(y, 1e-4, 5e-2)
        pl.DataFrame(columns).write_parquet(path)


def _run(function: str, *arguments: str) -> Any:
    code = f"from benchmarks.speed.scale import {function}; {function}(*{list(arguments)!r})"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def train_once(folder: str, memory: str, trees: str) -> None:
    """Train on the files of a folder; print peak memory in MB, CPU seconds in all and per tree, and the first model."""
    from fivesigma import GrownCascadeClassifier
    from fivesigma.datasets import EventStream, load_events

    class Timed(GrownCascadeClassifier):
        def _grow(self, *args: Any) -> Any:
            began = time.process_time()
            try:
                return super()._grow(*args)
            finally:
                self.seconds = time.process_time() - began

    began = time.process_time()
    model = Timed(n_trees=int(trees), b_reg=10.0, random_state=0, n_jobs=1, memory=memory)
    pattern = f"{folder}/part-*.parquet"
    model.fit(load_events(pattern) if memory == "all" else EventStream(pattern))
    total = time.process_time() - began
    print(json.dumps([peak_memory(), total, model.seconds / int(trees), model.history_[-1].significance]))


def _training(memory: str) -> list[float]:
    with _folder("events", N_FILES * PER_FILE * N_FEATURES * 4.5) as folder:
        _write_events(folder)
        return list(_run("train_once", str(folder), memory, str(TREES)))


@benchmark(slow=True)
def train_all() -> Iterable[Figure]:
    peak, total, tree, z = _training("all")
    what = f"10^7 x {N_FEATURES} events, memory='all'"
    yield Figure(f"peak memory, {what}", peak, None, " MB", f"{TREES} trees, significance {z:.4f}")
    yield Figure(f"CPU per tree, {what}", tree, None, " s", f"{total:.0f} s in all")


@benchmark(slow=True)
def train_bins() -> Iterable[Figure]:
    yield from _streamed("bins", 1700.0)


@benchmark(slow=True)
def train_disk() -> Iterable[Figure]:
    yield from _streamed("disk", 1000.0)


def _streamed(memory: str, limit: float) -> Iterable[Figure]:
    from benchmarks.harness import load

    peak, total, tree, z = _training(memory)
    what = f"10^7 x {N_FEATURES} events, memory={memory!r}"
    yield Figure(f"peak memory, {what}", peak, limit, " MB", f"{TREES} trees, significance {z:.4f}")
    yield Figure(f"CPU per tree, {what}", tree, None, " s", f"{total:.0f} s in all")
    known = load().get("scale.train_all")
    if known is not None:
        yield Figure(f"CPU per tree, memory={memory!r} / 'all'", tree / known["figures"][1]["value"], 1.25)


def _write_scores(folder: Path) -> None:
    import polars as pl

    for k in range(N_SCORES // 10**7):
        path = folder / f"scores-{k}.parquet"
        if path.exists():
            continue
        rng = np.random.default_rng(k)
        y = rng.random(10**7) < 0.3
        score = (1 / (1 + np.exp(-rng.normal(1.5 * y)))).astype(np.float32)
        weight = (rng.exponential(size=10**7) * np.where(y, 1e-5, 1e-2)).astype(np.float32)
        pl.DataFrame({"score": score, "label": y.astype(np.int8), "weight": weight}).write_parquet(path)


def scan_once(folder: str) -> None:
    """Scan the scores in the files of a folder; print peak memory in MB, CPU seconds and the significance."""
    from fivesigma import ScoredFiles, scan

    began = time.process_time()
    best = scan(ScoredFiles(f"{folder}/scores-*.parquet"))
    print(json.dumps([peak_memory(), time.process_time() - began, best.significance]))


@benchmark(slow=True)
def scan_files() -> Iterable[Figure]:
    with _folder("scores", N_SCORES * 9.0) as folder:
        _write_scores(folder)
        peak, seconds, z = _run("scan_once", str(folder))
    yield Figure("peak memory, scan of 10^8 events in Parquet", peak, 1000.0, " MB", f"{seconds:.1f} s, Z {z:.4f}")
