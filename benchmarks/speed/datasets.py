"""How long events take to simulate and to read."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.harness import Figure, benchmark, best_times
from fivesigma._tools.extras import need
from fivesigma.datasets import load_events, make_htautau

REAL = "atlas-higgs-challenge-2014-v2.first22889.csv.gz"


@benchmark()
def simulation() -> Iterable[Figure]:
    """Seconds; about one is what a demonstration can afford."""
    (seconds,) = best_times(3, lambda: make_htautau(100_000))
    yield Figure("make_htautau(100_000)", seconds, unit=" s")


@benchmark()
def wide() -> Iterable[Figure]:
    """Columns are as many as one likes: four times as many take about four times as long."""
    polars, rng, sizes = need("polars"), np.random.default_rng(0), (2_500, 10_000)
    with tempfile.TemporaryDirectory() as folder:
        for n in sizes:
            columns = {f"feature_{i}": rng.normal(size=100).astype("f4") for i in range(n)}
            frame = polars.DataFrame(columns | {"Weight": np.ones(100), "Label": np.array(["s", "b"] * 50)})
            frame.write_parquet(Path(folder) / f"{n}.parquet")
            frame.write_csv(Path(folder) / f"{n}.csv")
        for ending in (".parquet", ".csv"):
            reads = (partial(load_events, Path(folder) / f"{n}{ending}") for n in sizes)
            few, many = best_times(7, *reads, clock=time.process_time)
            note = f"{many * 1e3:.0f} ms of the processor"
            yield Figure(f"load_events, 10,000 / 2,500 columns, {ending}", many / few, 5.0, note=note)


@benchmark()
def reading() -> Iterable[Figure]:
    """The real events, if they are beside the repository, against polars' own reader."""
    shared = Path(__file__).resolve().parents[3] / "shared" / "data"
    path = Path(os.environ.get("FIVESIGMA_DATA", shared)) / REAL
    if path.exists():
        polars = need("polars")
        ours, theirs = best_times(12, lambda: load_events(path), lambda: polars.read_csv(path))
        yield Figure("load_events / polars.read_csv, .csv.gz", ours / theirs, 1.5, note=f"{ours * 1e3:.0f} ms")
