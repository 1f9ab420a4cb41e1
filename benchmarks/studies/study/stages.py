"""The stages of the study in order, and the file with their results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.harness import environment
from benchmarks.studies.study import confirm, peers, scaling, screening
from benchmarks.studies.study.runs import Cache, complete
from fivesigma._tools.files import written_whole

RESULTS = Path(__file__).parent / "results.json"
STAGES = {"screening": screening, "peers": peers, "confirm": confirm, "scaling": scaling}


def run(stage: str, folder: str, cache: Path, jobs: int) -> None:
    """Complete a stage and write its results."""
    module, kept = STAGES[stage], Cache(cache)
    runs = module.runs(folder)
    if stage == "peers":
        complete([r for r in runs if r.seed == 0], kept, jobs, fresh=True)
    complete(runs, kept, jobs)
    minutes = sum(kept.facts[r.key]["seconds"] for r in runs) / 60
    results = load()
    results[stage] = {
        "environment": environment(),
        "minutes of training": round(minutes, 1),
        "found": module.results(folder, kept),
    }
    with written_whole(RESULTS) as beside:
        beside.write_text(json.dumps(results, indent=1) + "\n")


def load() -> dict[str, Any]:
    """Results of the stages that have been run."""
    return dict(json.loads(RESULTS.read_text())) if RESULTS.exists() else {}
