"""Runs of arms on splits: one line of JSON and one file of scores each, so that a run resumes where it was stopped."""

from __future__ import annotations

import importlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import peak_memory
from benchmarks.studies.protocol import ranks
from benchmarks.studies.study.data import Source
from fivesigma._tools.files import written_whole
from fivesigma._types import AnyArray, Array, BoolArray


class Fitted(NamedTuple):
    """What an arm returns: how it scores events, its own cut on that score, and what else is worth keeping."""

    score: Callable[[AnyArray], Array]
    cut: float
    facts: dict[str, Any] = {}  # noqa: RUF012


class Run(NamedTuple):
    """An arm, by the module and name under which it is found, on the splits of one seed."""

    source: Source
    module: str
    arm: str
    seed: int

    @property
    def key(self) -> str:
        """Name of the run, also of its file."""
        return f"{self.source.kind}/{self.arm}/{self.seed}"


@dataclass
class Cache:
    """A folder with the scores of finished runs; a run is finished when its line is in ``runs.jsonl``."""

    folder: Path
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lines = self.folder / "runs.jsonl"
        if self._lines.exists():
            text = self._lines.read_text()
            whole = text[: text.rfind("\n") + 1]  # a killed run may leave half a line
            if whole != text:
                self._lines.write_text(whole)
            for line in whole.splitlines():
                record = json.loads(line)
                self.facts[record.pop("key")] = record

    def add(self, key: str, scores: dict[str, AnyArray], facts: dict[str, Any]) -> None:
        """Keep a finished run."""
        path = self._scores(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as beside, beside.open("wb") as file:
            np.savez(file, **scores)  # type: ignore[arg-type]
        with self._lines.open("a") as file:
            file.write(json.dumps({"key": key, **facts}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.facts[key] = facts

    def scores(self, run: Run) -> tuple[Array, BoolArray]:
        """Ranks of the events within their fold, and which of them the run's own cut selects."""
        with np.load(self._scores(run.key)) as stored:
            return stored["rank"].astype(np.float64), stored["selected"]

    def _scores(self, key: str) -> Path:
        return self.folder / f"{key}.npz"


def perform(run: Run) -> tuple[dict[str, AnyArray], dict[str, Any]]:
    """Train and score all splits of a run."""
    arm = importlib.import_module(run.module).ARMS[run.arm]
    test = run.source.test()
    rank, selected = np.empty(len(test), dtype=np.float32), np.empty(len(test), dtype=np.bool_)
    seconds, memory, cuts, facts = 0.0, 0.0, list[float](), list[dict[str, Any]]()
    for train, rows in run.source.splits(run.seed):
        before = _forget_peak()
        started = time.process_time()
        fitted = arm(train, run.seed)
        seconds += time.process_time() - started
        memory = max(memory, peak_memory() - before)
        score = fitted.score(test.X[rows])
        rank[rows], selected[rows] = ranks(score), score >= fitted.cut
        cuts.append(float(np.mean(selected[rows])))
        facts.append(fitted.facts)
    mean = {name: float(np.mean([f[name] for f in facts])) for name in facts[0]}
    more = {"seconds": round(seconds, 6), "memory": round(memory, 1), "fraction": cuts, **mean}
    return {"rank": rank, "selected": selected}, more


def _forget_peak() -> float:
    """Memory now, in MB; where Linux allows it, the peak starts again from here."""
    reset = Path("/proc/self/clear_refs")
    if reset.exists():
        reset.write_text("5")
    return peak_memory()


def complete(runs: Sequence[Run], cache: Cache, jobs: int = 1, *, fresh: bool = False) -> None:
    """Perform the runs that the cache lacks, with a bar; each in a process of its own if `fresh`, to see its memory."""
    missing = [run for run in runs if run.key not in cache.facts]
    if not missing:
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description}")
    with Progress(text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()) as progress:
        task = progress.add_task("", total=len(runs), completed=len(runs) - len(missing))
        for run, (scores, facts) in _performed(missing, jobs, fresh):
            cache.add(run.key, scores, facts)
            progress.update(task, advance=1, description=run.key)


def _performed(runs: Iterable[Run], jobs: int, fresh: bool) -> Iterator[tuple[Run, Any]]:
    """Results as they come; no more runs are handed out than there are processes, so that a stop loses little."""
    if jobs == 1 and not fresh:
        yield from ((run, perform(run)) for run in runs)
        return
    tasks = 1 if fresh else None
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), max_tasks_per_child=tasks) as pool:
        waiting, left = dict[Future[Any], Run](), iter(runs)
        while True:
            for run in left:
                waiting[pool.submit(perform, run)] = run
                if len(waiting) == jobs:
                    break
            if not waiting:
                return
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield waiting.pop(future), future.result()
