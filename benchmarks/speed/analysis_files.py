"""Time and memory of an analysis with 20 files and 30 systematics, against uproot reading the same trees once."""

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

SAMPLES = ("VH", "ttbar", "Zjets", "Wjets")
N_FILES, N_EVENTS = 5, 20_000  # of each sample, and of each file
N_WEIGHTS, N_TREES = 24, 6  # systematics by weight, up and down, and by tree, mirrored
FEATURES = [f"x{k}" for k in range(10)]


def write(folder: Path) -> None:
    """Twenty files with a nominal tree, which has all weights, and six varied ones."""
    uproot = need("uproot")
    for s, sample in enumerate(SAMPLES):
        for part in range(N_FILES):
            rng = np.random.default_rng([s, part])
            flat: dict[str, Any] = {name: rng.normal(float(s == 0), 1.0, N_EVENTS).astype("f4") for name in FEATURES}
            flat |= {"weight": rng.uniform(0.5, 1.5, N_EVENTS) * (0.002 if s == 0 else 0.1)}
            flat |= {"nJet": rng.integers(1, 6, N_EVENTS), "eventNumber": np.arange(N_EVENTS) + part * N_EVENTS}
            with uproot.recreate(folder / f"{sample}_{part}.root") as file:
                for k in range(N_TREES + 1):
                    moved = flat | {"x0": (flat["x0"] * (1 + 0.02 * k)).astype("f4")}
                    if k == 0:
                        moved |= {
                            f"w{j}": flat["weight"] * (1 + 0.01 * (j + 1) * flat["x1"] / 5) for j in range(N_WEIGHTS)
                        }
                    file.mktree(f"tree{k}", {name: values.dtype for name, values in moved.items()})
                    file[f"tree{k}"].extend(moved)


def configuration(folder: Path) -> dict[str, Any]:
    """Two chosen regions and a control region."""
    by_weight = [
        {"Name": f"W{j}", "Type": "NormPlusShape", "Up": {"Weight": f"w{j}"}, "Down": {"Weight": f"2*weight - w{j}"}}
        for j in range(N_WEIGHTS)
    ]
    by_tree = [
        {"Name": f"T{k}", "Type": "NormPlusShape", "Up": {"Tree": f"tree{k}"}, "Down": {"Symmetrize": True}}
        for k in range(1, N_TREES + 1)
    ]
    return {
        "General": {"Measurement": "m", "POI": "mu", "InputPath": f"{folder}/{{SamplePath}}", "HistogramFolder": "h/"},
        "Regions": [
            {"Name": "SR2", "Filter": "nJet == 2"},
            {"Name": "SR3", "Filter": "nJet == 3"},
            {"Name": "CR", "Filter": "nJet > 3", "Variable": "x0", "Binning": [-2, -1, 0, 1, 2]},
        ],
        "Samples": [
            {"Name": name, "Tree": "tree0", "SamplePath": f"{name}_*.root", "Weight": "weight"} for name in SAMPLES
        ],
        "Systematics": [*by_weight, *by_tree],
        "NormFactors": [{"Name": "mu", "Samples": "VH", "Nominal": 1, "Bounds": [0, 10]}],
        "Fivesigma": {
            "Region": ["SR2", "SR3"],
            "Features": FEATURES,
            "EventNumber": "eventNumber",
            "Folds": 3,
            "Model": "plain",
            "ModelOptions": {"n_trees": 50},
            "Categories": {"Number": 6, "MinEffective": 25},
            "Figures": False,
        },
    }


def child(folder: Path, who: str) -> None:
    """Run in a process of its own, and print seconds by step and MB of the peak above the start."""
    import fivesigma

    uproot = need("uproot")
    before, seconds, last = peak_memory(), {}, time.perf_counter()
    if who == "theirs":
        for file in sorted(folder.glob("*.root")):
            with uproot.open(file) as opened:
                for name in opened.keys(cycle=False):
                    opened[name].arrays(library="np")
        seconds["all"] = time.perf_counter() - last
    else:
        for step in ("read", "train", "score", "categorise", "workspace", "report"):
            fivesigma.analyse(configuration(folder), folder / "out", only=step, n_jobs=1, say=None)
            now = time.perf_counter()
            seconds[step], last = now - last, now
    print(json.dumps([seconds, peak_memory() - before]))


@benchmark(slow=True)
def analysis_of_many_files() -> Iterable[Figure]:
    """Reading and scoring over the time of uproot for all branches of all trees, and the peak of memory."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        found = {}
        for who in ("theirs", "ours"):
            command = [sys.executable, "-m", "benchmarks.speed.analysis_files", folder, who]
            ran = subprocess.run(command, check=True, capture_output=True)
            found[who] = json.loads(ran.stdout.splitlines()[-1])
        (mine, peak), (own, _) = found["ours"], found["theirs"]
        note = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in mine.items()) + f"; uproot {own['all']:.1f} s"
        yield Figure("20 files x 30 systematics: read / uproot once", mine["read"] / own["all"], 6.0, note=note)
        yield Figure("20 files x 30 systematics: score / uproot once", mine["score"] / own["all"], 12.0)
        yield Figure("20 files x 30 systematics: peak memory", peak, 2000.0, " MB")


if __name__ == "__main__":
    child(Path(sys.argv[1]), sys.argv[2])
