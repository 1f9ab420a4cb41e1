"""What benchmarks are made of, and where their figures go."""

from __future__ import annotations

import datetime as dt
import gc
import importlib
import json
import os
import pkgutil
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"


@dataclass(frozen=True)
class Figure:
    """One measured number; it holds if it is not above its limit."""

    name: str
    value: float
    limit: float | None = None
    unit: str = ""
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether the limit is kept; without a limit, always."""
        return self.limit is None or self.value <= self.limit

    def row(self) -> list[str]:
        """Cells of a table."""
        limit = "" if self.limit is None else f"{self.limit:g}{self.unit}"
        verdict = "" if self.limit is None else "yes" if self.holds else "NO"
        return [self.name, f"{self.value:.3g}{self.unit}", limit, verdict, self.note]


COLUMNS = ["figure", "measured", "limit", "kept", "note"]


@dataclass(frozen=True)
class Benchmark:
    """A function that returns figures, named after its module and itself."""

    name: str
    run: Callable[[], Iterable[Figure]]
    slow: bool


_REGISTERED: dict[str, Benchmark] = {}


def benchmark(*, slow: bool = False) -> Callable[[Callable[[], Iterable[Figure]]], Callable[[], Iterable[Figure]]]:
    """Register a function; a slow one runs only if its name is given."""

    def register(function: Callable[[], Iterable[Figure]]) -> Callable[[], Iterable[Figure]]:
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        _REGISTERED[name] = Benchmark(name, function, slow)
        return function

    return register


def registered(pattern: str = "") -> list[Benchmark]:
    """Benchmarks whose name contains `pattern`; slow ones only if it is their whole name."""
    for module in pkgutil.walk_packages([str(HERE)], "benchmarks."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return [b for b in _REGISTERED.values() if pattern == b.name or (pattern in b.name and not b.slow)]


def best_times(
    repeats: int, *functions: Callable[[], object], clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Least seconds of each function; they take turns, so that a busy machine disturbs all alike.

    Code of one thread can be measured by ``clock=time.process_time``, which does not count waiting for a processor.
    """
    best = [float("inf")] * len(functions)
    gc.collect()
    gc.freeze()  # what other benchmarks imported is not looked through again and again by the collector
    for _ in range(repeats):
        for i, function in enumerate(functions):
            started = clock()
            function()
            best[i] = min(best[i], clock() - started)
    gc.unfreeze()
    return best


def peak_memory() -> float:
    """Most memory that this process has held, in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux getrusage also counts what the parent held before exec
        line = next(text for text in status.read_text().splitlines() if text.startswith("VmHWM"))
        return float(line.split()[1]) / 1024
    per_mb = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / per_mb


def environment() -> dict[str, str]:
    """What the figures depend on."""
    import numpy as np

    return {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


def save(name: str, figures: list[Figure]) -> None:
    """Replace the results of one benchmark."""
    results = load()
    results[name] = {"environment": environment(), "figures": [asdict(f) for f in figures]}
    RESULTS.write_text(json.dumps(dict(sorted(results.items())), indent=2) + "\n")


def load() -> dict[str, Any]:
    """Results of all benchmarks that have been run."""
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return results


def as_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def tables() -> dict[str, str]:
    """Results of each module of benchmarks, with what they depend on."""
    results = load()
    out = {}
    for module in sorted({name.partition(".")[0] for name in results}):
        found = [r for name, r in results.items() if name.startswith(f"{module}.")]
        worlds = sorted({"; ".join(f"{k} {v}" for k, v in r["environment"].items()) for r in found})
        rows = [Figure(**f).row() for r in found for f in r["figures"]]
        out[module] = "\n\n".join([as_table(COLUMNS, rows), *worlds])
    return out
