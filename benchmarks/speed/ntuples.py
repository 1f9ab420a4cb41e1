"""Time and memory to read five million events from ROOT files, against uproot for the same branches."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Figure, benchmark, peak_memory
from fivesigma._tools.extras import need
from fivesigma.datasets import Events, load_events

N_EVENTS, N_FEATURES = 5_000_000, 15
FEATURES = [f"x{i}" for i in range(N_FEATURES)]
WEIGHTS = ["mcWeight", "puWeight", "sf"]
BRANCHES = [*FEATURES, *WEIGHTS, "passSel", "eventNumber"]
JAGGED = ["jet_pt"]
PROCESSES = {"VH": 0.2, "ttbar": 0.8}  # shares of the events
REPEATS = 3
_STEP = 250_000


def write(folder: Path) -> None:
    """One file per process, 20 branches with one number per event, and one jagged branch."""
    uproot, awkward = need("uproot"), need("awkward")
    rng = np.random.default_rng(0)
    for process, share in PROCESSES.items():
        with uproot.recreate(folder / f"{process}.root") as file:
            kinds: dict[str, Any] = dict.fromkeys(FEATURES, "f4") | dict.fromkeys(WEIGHTS, "f8")
            file.mktree("Nominal", kinds | {"passSel": "bool", "eventNumber": "i8", "jet_pt": "var * float32"})
            for start in range(0, int(share * N_EVENTS), _STEP):
                n_jets = rng.integers(0, 6, _STEP)
                columns: dict[str, Any] = {name: rng.normal(100, 20, _STEP).astype("f4") for name in FEATURES}
                columns |= {name: rng.uniform(0.8, 1.2, _STEP) for name in WEIGHTS}
                columns |= {"passSel": rng.random(_STEP) < 0.95, "eventNumber": np.arange(start, start + _STEP)}
                jets = rng.exponential(40, int(n_jets.sum())).astype("f4")
                file["Nominal"].extend(columns | {"jet_pt": awkward.unflatten(jets, n_jets)})


def ours(folder: Path, *, jagged: bool) -> Events:
    """Events with a weight that is a product, and a cut."""
    more = ["j1 = jet_pt[0]", "HT = sum(jet_pt)"] if jagged else []
    return load_events(
        {process: folder / f"{process}.root" for process in PROCESSES},
        signal=["VH"],
        weight=" * ".join(WEIGHTS),
        cut="passSel",
        features=[*FEATURES, *more],
        keep=["eventNumber"],
    )


def theirs(folder: Path, *, jagged: bool) -> list[Any]:
    """The same branches as uproot reads them: NumPy arrays, or awkward ones where one is jagged."""
    uproot, names = need("uproot"), [*BRANCHES, *(JAGGED if jagged else [])]
    found = []
    for process in PROCESSES:
        with uproot.open(folder / f"{process}.root") as file:
            found.append(file["Nominal"].arrays(names, library="ak" if jagged else "np"))
    return found


def child(folder: Path, who: str, jagged: bool) -> None:
    """Read once in a process of its own, and print seconds, MB of the peak above the start, and MB of the result."""
    for package in ("uproot", "awkward"):
        need(package)
    before = peak_memory()
    started = time.perf_counter()
    found: Any = (ours if who == "ours" else theirs)(folder, jagged=jagged)
    seconds = time.perf_counter() - started
    size = 0
    if isinstance(found, Events):
        arrays = [found.X, found.y, found.weight, found.process, *found.kept.values()]
        size = sum(a.nbytes for a in arrays if a is not None)
    print(json.dumps([seconds, peak_memory() - before, size / 1024**2]))


@benchmark(slow=True)
def reading() -> Iterable[Figure]:
    """Seconds over those of uproot, the two taking turns; memory above that of the result."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        for jagged in (False, True):
            runs: dict[str, list[list[float]]] = {"ours": [], "theirs": []}
            for _ in range(REPEATS):
                for who, found in runs.items():
                    command = [
                        sys.executable,
                        "-m",
                        "benchmarks.speed.ntuples",
                        folder,
                        who,
                        "jagged" if jagged else "flat",
                    ]
                    found.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
            mine, own = (min(seconds for seconds, *_ in found) for found in runs.values())
            over = max(peak - size for _, peak, size in runs["ours"])
            what = "5 million events x 20 branches" + " and a jagged one" * jagged
            note = f"{mine:.1f} s against {own:.1f} s"
            yield Figure(f"{what}: load_events / uproot", mine / own, 3.0, note=note)
            most = max(peak for _, peak, _ in runs["theirs"])
            note = f"the result has {runs['ours'][0][2]:.0f} MB; uproot takes {most:.0f} MB"
            yield Figure(f"{what}: peak memory beyond the result", over, 500.0, " MB", note)


if __name__ == "__main__":
    child(Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "jagged")
