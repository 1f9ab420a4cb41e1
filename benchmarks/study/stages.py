"""The stages of the study, and the file with their results."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import environment
from benchmarks.study import screening
from benchmarks.study.data import Source
from benchmarks.study.runs import Cache, complete
from benchmarks.study.summary import compared
from fivesigma._files import written_whole

RESULTS = Path(__file__).parent / "results.json"


def _screening(folder: str, cache: Cache, jobs: int) -> list[dict[str, Any]]:
    complete(screening.runs(folder), cache, jobs)
    source = Source("halves", folder)
    return [compared(c, source, cache, (3, 5, 10)) for c in screening.comparisons()]


STAGES: dict[str, Callable[[str, Cache, int], Any]] = {"screening": _screening}


def run(stage: str, folder: str, cache: Path, jobs: int) -> None:
    """Complete a stage and write its results."""
    started = time.time()
    found = STAGES[stage](folder, Cache(cache), jobs)
    results = load()
    results[stage] = {"environment": environment(), "minutes": round((time.time() - started) / 60, 1), "found": found}
    with written_whole(RESULTS) as beside:
        beside.write_text(json.dumps(results, indent=1) + "\n")


def load() -> dict[str, Any]:
    """Results of the stages that have been run."""
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}
