"""Categories side by side with gato-hep, which searches for the edges by gradient descent.

gato-hep needs TensorFlow and is no dependency: give the Python of an environment that has it::

    python -m venv gato && gato/bin/pip install gato-hep
    python -m benchmarks.peers.gato_comparison gato/bin/python [seed]

Both get the same scores and weights, 100,000 signal and 300,000 background events as in gato-hep's example, and choose
edges on them; "out" is the expected significance of those edges, exact for the Gaussians and on ten times as many
events for the toy. gato-hep has no hard limits. Only with no more floor than its result has can we choose that result:
"same floor" is the fair comparison: the rule "peak" must not be below in sample, nor "model" out of sample. gato-hep's
lowest category takes all that is left, ours discards it, so one line has our optimum among categories that leave
nothing out.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from fivesigma import AMS2
from fivesigma._types import Array, BoolArray
from fivesigma.categories import categorise
from fivesigma.categories.floors import Floors
from fivesigma.categories.one_score.exact import best_edges, best_totals, candidate_cuts, grid_of
from fivesigma.cut.ranking import rank_events
from fivesigma.errors import SmallSampleWarning

N_CATEGORIES = (2, 5, 10)
EPOCHS = 250
REPEATS = 15
CHILD = Path(__file__).with_name("gato_child.py")
FASTER = {2: 50, 5: 50, 10: 100}


class Sample(NamedTuple):
    """Scores, which events are signal, and physics weights."""

    score: Array
    signal: BoolArray
    weight: Array


class Line(NamedTuple):
    """One way to choose edges."""

    who: str
    n_categories: int
    inside: float
    outside: float
    effective: float
    seconds: float
    processor: float


def gaussians(seed: int, n: int = 400_000) -> Sample:
    """The probability of two Gaussians 1.5 apart, with scattering weights and the yields of the 2014 challenge."""
    rng = np.random.default_rng(seed)
    signal = np.arange(n) % 4 == 0
    score = 1 / (1 + np.exp(1.125 - 1.5 * rng.normal(1.5 * signal)))
    yields = np.where(signal, 692.0 / signal.sum(), 411_000.0 / (~signal).sum())
    return Sample(score, signal, yields * rng.gamma(4.0, size=n) / 4)


def expected_significance(edges: Array) -> float:
    """Significance of categories of `gaussians`, from the distributions themselves."""
    probability = edges.clip(0.0, 1.0)
    with np.errstate(divide="ignore"):
        x = (np.log(probability / (1 - probability)) + 1.125) / 1.5
    s, b = (-total * np.diff(ndtr(mean - x)) for mean, total in ((1.5, 692.0), (0.0, 411_000.0)))
    return float(np.sqrt(2 * AMS2().objective(s, b).sum()))


def gato_toy(python: str, seed: int, times: int) -> Sample:
    """The toy events of gato-hep's example, or `times` as many."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "toy.npz"
        subprocess.run([python, str(CHILD), "toy", str(path), str(seed), str(times)], check=True, capture_output=True)
        with np.load(path) as events:
            return Sample(events["score"], events["signal"], events["weight"])


def evaluate(edges: Array, sample: Sample) -> tuple[float, float]:
    """Significance, and the smallest effective background count, without any of our own code for categories."""
    weight, background = sample.weight, ~sample.signal
    s, b, b2 = (
        np.histogram(sample.score[members], edges, weights=w[members])[0]
        for w, members in ((weight, sample.signal), (weight, background), (weight**2, background))
    )
    counts = b > 0
    z = np.sqrt(2 * AMS2().objective(s[counts], b[counts]).sum())
    return float(z), float((b[counts] ** 2 / b2[counts]).min()) if counts.all() else 0.0


def exhaustive(sample: Sample, n_categories: int, min_effective: float) -> Array:
    """Edges of the best categories that leave nothing out."""
    ranking = rank_events(sample.score, sample.signal, sample.weight)
    cuts, limits = candidate_cuts(ranking), Floors.checked(0.0, min_effective, None)
    grid = grid_of(ranking, cuts)
    best = best_totals(grid, AMS2(), limits, n_categories)
    best[-1, :-1] = -np.inf
    chosen = best_edges(grid, AMS2(), limits, best, n_categories)
    return np.concatenate([[-np.inf], ranking.thresholds(cuts[chosen[:-1] - 1])[::-1], [np.inf]])


def compare(
    python: str, tune: Sample, outside: Callable[[Array], float], penalty: float, min_effective: float
) -> list[Line]:
    """All lines for one sample and one setting."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.npz"
        np.savez(path, **tune._asdict())
        command = [python, str(CHILD), "search", str(path), str(EPOCHS), str(penalty), *map(str, N_CATEGORIES)]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = []
    for k, (boundaries, *seconds) in zip(N_CATEGORIES, json.loads(out.splitlines()[-1]), strict=True):
        theirs = np.concatenate([[-np.inf], np.unique(boundaries), [np.inf]])
        inside, effective = evaluate(theirs, tune)
        lines.append(Line("gato-hep", k, inside, outside(theirs), effective, *seconds))
        same_floor = min(effective, min_effective)
        for who, rule, floor in (
            ("model", "model", min_effective),
            ("model, same floor", "model", same_floor),
            ("peak, same floor", "peak", same_floor),
        ):
            times, processor = [], []
            for _ in range(REPEATS):
                start, start_cpu = time.perf_counter(), time.process_time()
                ours = categorise(tune.score, tune.signal, tune.weight, k, min_effective=floor, rule=rule).edges
                times.append(time.perf_counter() - start)
                processor.append(time.process_time() - start_cpu)
            inside, smallest = evaluate(ours, tune)
            lines.append(Line(who, k, inside, outside(ours), smallest, min(times), min(processor)))
        full = exhaustive(tune, k, same_floor)
        inside, smallest = evaluate(full, tune)
        lines.append(Line("peak, same floor, nothing left out", k, inside, outside(full), smallest, np.nan, np.nan))
    return lines


def figures(title: str, lines: list[Line]) -> list[dict[str, Any]]:
    """What is claimed: values that must not exceed their limits."""
    out: list[dict[str, Any]] = []
    for k in N_CATEGORIES:
        at = {line.who: line for line in lines if line.n_categories == k}
        gato, peak, ours = (at[who] for who in ("gato-hep", "peak, same floor", "smooth, same floor"))
        for name, value, limit, unit in (
            ("gato-hep's significance above our peak in sample", gato.inside - peak.inside, 0.0, "Z"),
            ("gato-hep's significance above ours out of sample", gato.outside - ours.outside, 0.0, "Z"),
            ("our time over gato-hep's", ours.seconds / gato.seconds, 1 / FASTER[k], ""),
            ("our processor time over gato-hep's", ours.processor / gato.processor, 1 / FASTER[k], ""),
        ):
            out.append({"name": f"{title}, {k} categories: {name}", "value": value, "limit": limit, "unit": unit})
    return out


def table(lines: list[Line]) -> str:
    """The lines as Markdown."""
    rows = ["| K | | Z in | Z out | smallest effective b | seconds | processor |", "|---|---|---|---|---|---|---|"]
    for line in lines:
        seconds = " | " if np.isnan(line.seconds) else f"{line.seconds:.3g} | {line.processor:.3g}"
        rows.append(
            f"| {line.n_categories} | {line.who} | {line.inside:.4f} | {line.outside:.4f} "
            f"| {line.effective:.3g} | {seconds} |"
        )
    return "\n".join(rows)


def summary(title: str, lines: list[Line]) -> str:
    """One row of the documentation's table for each number of categories."""
    rows = []
    for k in N_CATEGORIES:
        at = {line.who: line for line in lines if line.n_categories == k}
        gato, same, own = at["gato-hep"], at["model, same floor"], at["model"]
        rows.append(
            f"| {title} | {k} | {gato.inside:.3f} | {gato.outside:.3f} | {gato.effective:.0f} "
            f"| {same.inside:.3f} | {same.outside:.3f} | {same.effective:.0f} "
            f"| {own.inside:.3f} | {own.outside:.3f} | {own.effective:.0f} "
            f"| {gato.seconds:.1f} | {same.seconds:.2f} | {gato.seconds / same.seconds:.0f} "
            f"| {gato.processor:.1f} | {same.processor:.2f} | {gato.processor / same.processor:.0f} |"
        )
    return "\n".join(rows)


def main(python: str, seed: int) -> None:
    warnings.simplefilter("ignore", SmallSampleWarning)
    test = gato_toy(python, 1042 + seed, 10)
    samples: dict[str, tuple[Sample, Callable[[Array], float]]] = {
        "Two Gaussians": (gaussians(seed), expected_significance),
        "gato-hep's toy": (gato_toy(python, 42 + seed, 1), lambda edges: evaluate(edges, test)[0]),
    }
    for name, (tune, outside) in samples.items():
        for setting, penalty, floor in (("no penalty", 0.0, 10.0), ("b known to 20 %", 10.0, 25.0)):
            lines = compare(python, tune, outside, penalty, floor)
            print(f"\n{name}, {setting}\n\n{table(lines)}\n\n{summary(f'{name}, {setting}', lines)}\n", flush=True)
            for figure in figures(f"{name}, {setting}", lines):
                print("ok  " if figure["value"] <= figure["limit"] else "FAIL", figure, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
