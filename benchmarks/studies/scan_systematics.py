"""What `scan` loses with systematics, how far its value is off, and how often its interval covers.

``python -m benchmarks.studies.scan_systematics [SAMPLES] [FILE]`` prints a table, and writes the numbers to FILE;
``python -m benchmarks.studies.scan_systematics categories [SAMPLES]`` does so for four categories, on the events that
chose their edges and on others.

Scores are Gaussians, so that the truth is exact: signal at 1.5 with one tenth of the events, two backgrounds at 0 and
0.5 with unit width. An energy scale moves and widens every score up or down and smears it, which carries events across
a cut in both directions; the second background has a normalisation of 6 %. *same events*: a variation is other scores
of the same events. *own samples*: it has events of its own, as many as the nominal sample. *known*: no systematics.
The regret is the true significance of the best cut less that of the chosen one; the bias is the quoted significance
less the true one at the chosen cut, and coverage is how often the 68 % interval holds the latter. With systematics
truth means the exact yields and shifts, and the statistics of a simulation of this size.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from fivesigma import AMS2, Varied, categorise, scan
from fivesigma._types import AnyArray, Array
from fivesigma.cut import cut_scan
from fivesigma.errors import SmallSampleWarning
from fivesigma.likelihood.shifts import profiled_significance

YIELDS = {"signal": 300.0, "ttbar": 1_500.0, "fakes": 6_000.0}
SHARES = {"signal": 0.3, "ttbar": 0.2, "fakes": 0.5}  # of the events
SPREAD = 1.25  # mean of the squared weights over the square of their mean
MEANS = {"signal": 1.5, "ttbar": 0.5, "fakes": 0.0}
SCALE, STRETCH, SMEAR = 0.04, 0.01, 0.15  # shift at one standard deviation, its growth with the score, and the smearing
NORMALISATION = 0.06
KINDS = ("known", "same events", "own samples")
SIZES = (2_000, 10_000)
REPLICAS = 200


class Sample(NamedTuple):
    """Nominal events, and the scores that they have up and down."""

    process: AnyArray
    weight: Array
    score: Array
    up: Array
    down: Array


def simulate(n: int, rng: np.random.Generator) -> Sample:
    """Events with weights that scatter; each process has a fixed yield on average."""
    names = list(YIELDS)
    index = rng.choice(3, size=n, p=list(SHARES.values()))
    process = np.array(names)[index]
    weight = np.array([YIELDS[name] / (n * SHARES[name]) for name in names])[index] * rng.gamma(4.0, 0.25, n)
    true = rng.normal(np.array([MEANS[name] for name in names])[index])
    score = true + SMEAR * rng.normal(size=n)
    moved = [true + sign * (SCALE + STRETCH * true) + SMEAR * rng.normal(size=n) for sign in (1, -1)]
    return Sample(process, weight, score, *moved)


def true_significance(cut: float, kind: str, n: int) -> float:
    """Profiled significance of the exact yields, with the statistics of `n` simulated events."""

    def above(name: str, sign: int) -> float:
        stretch = 1 + sign * STRETCH
        mean = MEANS[name] * stretch + sign * SCALE
        return float(YIELDS[name] * ndtr((mean - cut) / np.hypot(stretch, SMEAR)))

    s, backgrounds = above("signal", 0), ("ttbar", "fakes")
    b = sum(above(name, 0) for name in backgrounds)
    if kind == "known":
        return float(AMS2().value(s, b))
    up, down = (sum(above(name, sign) for name in backgrounds) - b for sign in (1, -1))
    size = NORMALISATION * above("ttbar", 0)
    variance = sum(SPREAD * above(name, 0) * YIELDS[name] / (n * SHARES[name]) for name in backgrounds)
    return profiled_significance([s], [b], [[up], [size]], [[down], [-size]], [variance])


def variations(sample: Sample, kind: str, rng: np.random.Generator) -> dict[str, Any] | None:
    """The systematics of a sample."""
    if kind == "known":
        return None
    more = np.where(sample.process == "ttbar", 1 + NORMALISATION, 1.0) * sample.weight
    scale = Varied(score=sample.up), Varied(score=sample.down)
    if kind == "own samples":
        others = [simulate(sample.score.size, rng) for _ in range(2)]
        scale = (
            Varied(others[0].up, others[0].weight, others[0].process == "signal"),
            Varied(others[1].down, others[1].weight, others[1].process == "signal"),
        )
    return {"scale": scale, "ttbar": (Varied(weight=more), None)}


def measure(kind: str, n: int, samples: int) -> dict[str, float]:
    """Mean regret and bias, and the coverage, over samples."""
    grid = np.linspace(-1.0, 3.5, 181)
    best = max(true_significance(float(cut), kind, n) for cut in grid)
    regret, bias, covered = [], [], []
    for seed in range(samples):
        rng = np.random.default_rng([seed, n, KINDS.index(kind)])
        sample = simulate(n, rng)
        found = scan(sample.score, sample.process == "signal", sample.weight, systematics=variations(sample, kind, rng))
        truth = true_significance(found.cut, kind, n)
        low, high = found.interval(n_boot=REPLICAS, random_state=seed).significance
        regret.append(best - truth)
        bias.append(found.significance - truth)
        covered.append(low <= truth <= high)
    return {
        "best": best,
        "regret": float(np.mean(regret)),
        "bias": float(np.mean(bias)),
        "bias error": float(np.std(bias) / np.sqrt(samples)),
        "coverage": float(np.mean(covered)),
    }


def true_categories(edges: Array, kind: str, n: int) -> float:
    """The same as `true_significance`, of categories."""

    def inside(name: str, sign: int) -> Array:
        stretch = 1 + sign * STRETCH
        mean = MEANS[name] * stretch + sign * SCALE
        yields: Array = -np.diff(YIELDS[name] * ndtr((mean - edges) / np.hypot(stretch, SMEAR)))
        return yields

    s, backgrounds = inside("signal", 0), ("ttbar", "fakes")
    b = np.sum([inside(name, 0) for name in backgrounds], axis=0)
    if kind == "known":
        return float(np.sqrt(2 * AMS2().objective(s, b).sum()))
    up, down = (np.sum([inside(name, sign) for name in backgrounds], axis=0) - b for sign in (1, -1))
    size = NORMALISATION * inside("ttbar", 0)
    variance = np.sum([SPREAD * inside(name, 0) * YIELDS[name] / (n * SHARES[name]) for name in backgrounds], axis=0)
    return profiled_significance(s, b, [up, size], [down, -size], variance)


def measure_categories(kind: str, n: int, samples: int) -> dict[str, list[float]]:
    """Bias with its error and coverage, on the events that chose the edges and on others."""
    found: dict[str, list[tuple[float, bool]]] = {"same": [], "other": []}
    for seed in range(samples):
        rng = np.random.default_rng([seed, n, KINDS.index(kind), 7])
        chosen, other = simulate(n, rng), simulate(n, rng)
        moved = [variations(sample, kind, rng) for sample in (chosen, other)]
        first = categorise(chosen.score, chosen.process == "signal", chosen.weight, 4, systematics=moved[0])
        again = first.evaluate(other.score, other.process == "signal", other.weight, systematics=moved[1])
        truth = true_categories(first.edges, kind, n)
        for where, one in (("same", first), ("other", again)):
            low, high = np.nanquantile(one.replicas(REPLICAS, seed), (0.16, 0.84))  # as `interval` has it
            found[where].append((one.significance - truth, bool(low <= truth <= high)))
    out = {}
    for where, pairs in found.items():
        bias = np.array([difference for difference, _ in pairs])
        out[where] = [bias.mean(), bias.std() / np.sqrt(samples), float(np.mean([held for _, held in pairs]))]
    return out


def print_categories(samples: int) -> None:
    """Print the table of categories."""
    for kind in KINDS:
        for n in SIZES:
            for where, (bias, error, coverage) in measure_categories(kind, n, samples).items():
                print(f"{kind:>12} {n:>7} {where:>6} {bias:>+7.3f} ±{error:.3f} {coverage:>6.2f}", flush=True)


def rows(samples: int) -> Iterator[dict[str, Any]]:
    """All kinds and sizes."""
    for kind in KINDS:
        for n in SIZES:
            yield {"kind": kind, "events": n, "samples": samples, **measure(kind, n, samples)}


if __name__ == "__main__":
    warnings.simplefilter("ignore", SmallSampleWarning)
    cut_scan.MAX_MODELLED = 2  # the interval of the cut, which takes most of the time, is not measured here
    if sys.argv[1:2] == ["categories"]:
        print_categories(int(sys.argv[2]) if len(sys.argv) > 2 else 100)
        sys.exit()
    found = []
    print(f"{'kind':>12} {'events':>7} {'best':>6} {'regret':>7} {'bias':>14} {'coverage':>8}")
    for row in rows(int(sys.argv[1]) if len(sys.argv) > 1 else 100):
        found.append(row)
        print(
            f"{row['kind']:>12} {row['events']:>7} {row['best']:>6.2f} {row['regret']:>7.3f} "
            f"{row['bias']:>+7.3f} ±{row['bias error']:.3f} {row['coverage']:>8.2f}",
            flush=True,
        )
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
