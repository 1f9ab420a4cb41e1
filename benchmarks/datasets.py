"""How long events take to simulate and to read."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from benchmarks.harness import Figure, benchmark, best_times
from fivesigma._extras import need
from fivesigma.datasets import load_events, make_htautau

REAL = "atlas-higgs-challenge-2014-v2.first22889.csv.gz"


@benchmark()
def simulation() -> Iterable[Figure]:
    """Seconds; about one is what a demonstration can afford."""
    (seconds,) = best_times(3, lambda: make_htautau(100_000))
    yield Figure("make_htautau(100_000)", seconds, unit=" s")


@benchmark()
def reading() -> Iterable[Figure]:
    """The real events, if they are beside the repository, against polars' own reader."""
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    path = Path(os.environ.get("FIVESIGMA_DATA", shared)) / REAL
    if path.exists():
        polars = need("polars")
        ours, theirs = best_times(12, lambda: load_events(path), lambda: polars.read_csv(path))
        yield Figure("load_events / polars.read_csv, .csv.gz", ours / theirs, 1.5, note=f"{ours * 1e3:.0f} ms")
