"""How long it takes until something happens: the import, and the shortest command."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterable

from benchmarks.harness import Figure, benchmark

REPEATS = 5


@benchmark()
def start() -> Iterable[Figure]:
    """Processor time of new interpreters."""
    commands = (["-c", "import fivesigma"], ["-c", "import sklearn"], ["-m", "fivesigma", "--version"], ["-c", "pass"])
    ours, theirs, version, nothing = (min(_seconds(c) for _ in range(REPEATS)) for c in commands)
    yield Figure("import fivesigma / import sklearn", ours / theirs, 1.5, note=f"{ours:.2f} s, {theirs:.2f} s")
    yield Figure("fivesigma --version / python alone", version / nothing, 15, note=f"{version:.2f} s, {nothing:.2f} s")


def _seconds(command: list[str]) -> float:
    def used() -> float:
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return spent.ru_utime + spent.ru_stime

    begin = used()
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    return used() - begin
