"""Small fits beside busy processes: what the default number of threads costs where others want the same cores."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks.harness import Figure, benchmark
from fivesigma.datasets import make_htautau, write_events

N_EVENTS, N_TREES, SPINNERS, REPEATS = 3000, 500, 3, 3


@benchmark(slow=True)
def train() -> Iterable[Figure]:
    """`fivesigma train` on 3,000 events beside three spinning processes, with and without --jobs 1."""
    with tempfile.TemporaryDirectory() as folder:
        file = write_events(make_htautau(N_EVENTS, random_state=0), Path(folder) / "events.csv")
        spin = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(SPINNERS)]
        try:
            times = [[_seconds(file, options) for options in ([], ["--jobs", "1"])] for _ in range(REPEATS)]
        finally:
            for process in spin:
                process.kill()
    default, one = (min(column) for column in zip(*times, strict=True))
    yield Figure(
        "train 3,000 events, 500 trees, busy cores: default / --jobs 1", default / one, 1.5, note=f"{default:.1f} s"
    )


def _seconds(file: Path, options: list[str]) -> float:
    begin = time.perf_counter()
    output = file.with_name("model")
    command = [
        sys.executable,
        "-m",
        "fivesigma",
        "train",
        str(file),
        "-o",
        str(output),
        "--trees",
        str(N_TREES),
        "--force",
    ]
    subprocess.run([*command, *options], check=True, capture_output=True)
    return time.perf_counter() - begin
