"""Several signals side by side with gato-hep, on its own three-class example.

gato-hep needs TensorFlow and is no dependency: give the Python of an environment that has it, and a folder for events
and results, which are kept there so that a run can be resumed::

    python -m venv gato && gato/bin/pip install gato-hep==0.2.1
    python -m benchmarks.peers.gato_several gato/bin/python FOLDER [n_samples]

Every sample has a seed of its own for the events and for gato-hep. All ways get the same 700,000 events and are judged
by the goal sqrt(Z1 Z2) on the same 4.9 million others. Our floor is the emptiest category that gato-hep's result has.
gato-hep keeps every event, so it is compared with ``discard=False``; ``discard=True`` is our default.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fivesigma._types import AnyArray, Array, IntArray
from fivesigma.categories.class_sample import check_sample
from fivesigma.categories.several_signals import categorise_scores
from fivesigma.categories.several_signals.region_result import goal_of
from fivesigma.categories.several_signals.regions import fit

CHILD = Path(__file__).with_name("gato_several_child.py")
COLUMNS = ("signal1", "signal2", "background")
SIGNALS = COLUMNS[:2]
EPOCHS = 100  # as in the README of gato-hep's wheel
RUNS = (("full", 3), ("compressed", 3), ("compressed", 5), ("compressed", 10))
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


class Toy(NamedTuple):
    """Events of gato-hep's generator."""

    scores: Array
    process: AnyArray
    weight: Array


def child(python: str, *arguments: str) -> None:
    """Run gato-hep's side."""
    environment = {**os.environ, **ONE_THREAD}
    subprocess.run([python, str(CHILD), *arguments], check=True, capture_output=True, env=environment)


def toy(python: str, path: Path, seed: int, times: int) -> Toy:
    """Events; some far tails of the generator do not sum to one, so that all are normalised."""
    if not path.exists():
        child(python, "toy", str(path), str(seed), str(times))
    with np.load(path) as found:
        scores = found["scores"]
        return Toy(scores / scores.sum(axis=1, keepdims=True), found["process"], found["weight"])


def goal(category: IntArray, events: Toy) -> tuple[float, float]:
    """Goal sqrt(Z1 Z2) and the smallest effective background count, without any of our own code for categories."""
    index, n = category + 1, int(category.max()) + 2
    first, second = (events.process == name for name in SIGNALS)
    rest = ~(first | second)
    s1, s2, b, b2 = (
        np.bincount(index, np.where(members, w, 0.0), minlength=n)[1:]
        for members, w in (
            (first, events.weight),
            (second, events.weight),
            (rest, events.weight),
            (rest, events.weight**2),
        )
    )
    used = b > 0
    z = []
    for s, noise in ((s1[used], (b + s2)[used]), (s2[used], (b + s1)[used])):
        z.append(np.sqrt(2 * np.sum((s + noise) * np.log1p(s / noise) - s)))
    return float(np.sqrt(z[0] * z[1])), float((b[used] ** 2 / b2[used]).min())


def compare(python: str, folder: Path, samples: int) -> None:
    """Print one line per run, then means with paired errors."""
    test = toy(python, folder / "test.npz", 900_001, 7)
    gains: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    for i in range(samples):
        tune_path = folder / f"tune{i}.npz"
        tune = toy(python, tune_path, 42 + 100 * i, 1)
        for form, k in RUNS:
            out = folder / f"out_{form[0]}_{k}_{i}.npz"
            if not out.exists():
                if "--no-search" in sys.argv:
                    continue
                files = (str(tune_path), str(folder / "test.npz"), str(out))
                child(python, "search", *files, str(i), str(k), form, str(EPOCHS))
            with np.load(out) as found:
                theirs = goal(found["test"].astype(np.intp), test)[0]
                inside, floor = goal(found["tune"].astype(np.intp), tune)
                cpu = float(found["processor"])
            words = [f"{form} K={k} sample {i}: gato-hep in {inside:.4f} out {theirs:.4f} eff {floor:.0f} {cpu:.1f} s"]
            gains[form, k, "gato-hep out"].append(theirs)
            gains[form, k, "gato-hep CPU s"].append(cpu)
            for discard in (False, True):
                started = time.process_time()
                ours = categorise_scores(
                    *tune, k, signals=SIGNALS, processes=COLUMNS, discard=discard, min_effective=floor
                )
                seconds = time.process_time() - started
                value, _ = goal(ours.assign(test.scores), test)
                label = "discarding" if discard else "keeping all"
                gains[form, k, f"{label}: ours - gato-hep"].append(value - theirs)
                gains[form, k, f"{label}: found / bound"].append(ours.value / ours.bound.value)
                gains[form, k, f"{label}: CPU s"].append(seconds)
                gains[form, k, f"{label}: faster"].append(cpu / seconds)
                sample = check_sample(*tune, ours.settings.roles)
                other = check_sample(*test, ours.settings.roles)
                both = fit(sample, ours.settings)
                for name, rule in (("search", both.search[-1]), ("argmax + 1-D", both.simple[-1])):
                    if rule is not None:
                        out_value = goal_of(other, rule.assign(other.scores), k, ours.settings.goal)
                        gains[form, k, f"{label}: {name} - gato-hep"].append(out_value - theirs)
                        gains[form, k, f"{label}: {name}"].append(out_value)
                        if name != "search":
                            gains[form, k, f"{label}: ours - {name}"].append(value - out_value)
                words.append(f"{label} ({ours.way}) {value:.4f} eff {ours.effective_b.min():.0f} {seconds:.1f} s")
            print("; ".join(words), flush=True)
    print("\n| form | K | | mean | error | n |\n|---|---|---|---|---|---|")
    for (form, k, what), values in gains.items():
        error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
        print(f"| {form} | {k} | {what} | {np.mean(values):.4f} | {error:.4f} | {len(values)} |")
    for form, k in RUNS:
        for label in ("keeping all", "discarding"):
            pair = [gains.get((form, k, f"{label}: {name}"), []) for name in ("search", "argmax + 1-D")]
            if pair[0] and len(pair[0]) == len(pair[1]) > 1:
                difference = np.array(pair[0]) - np.array(pair[1])
                error = difference.std(ddof=1) / np.sqrt(difference.size)
                print(f"| {form} | {k} | {label}: search - argmax | {difference.mean():.4f} | {error:.4f} |")


if __name__ == "__main__":
    compare(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 5)
