"""What the rules for the cut lose, and how often their intervals cover: the tables of docs/validation/cut.md.

``python -m benchmarks.studies.cut_scores DATA FOLDER`` trains the models and scores the events, once.
``python -m benchmarks.studies.cut_rules regret FOLDER [SOURCE ...]`` and ``coverage FOLDER`` repeat only the choice
of the cut
and add to benchmarks/studies/cut_rules.json after each setting: they can be killed, and the same call resumes.
Remove the file
to begin anew.

The regret of a cut is the true significance of the best cut less that of the cut. Truth is exact for Gaussians (with
weights of one, with a tenth of them negative, and with weights that change by orders of magnitude along the score) and
otherwise measured on events that did not tune the cut: 1,400,000 of the toy, the rest of set t, set b, or the other
half of the real events. That curve is smoothed over the logarithm of the selected fraction, since the best of a noisy
curve is no truth.
"""

from __future__ import annotations

import itertools
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.ndimage import gaussian_filter1d
from scipy.special import ndtr

from benchmarks.studies.cut_scores import KINDS, Scored, read_scored
from benchmarks.studies.protocol import UTILITY
from fivesigma import AMS2, Utility, scan
from fivesigma._tools.files import written_whole
from fivesigma._types import Array, IntArray
from fivesigma.cut.best_cut import CutScan
from fivesigma.cut.rules import RULES
from fivesigma.datasets.htautau import YIELDS
from fivesigma.errors import SmallSampleWarning
from fivesigma.yields import rescale

HERE = Path(__file__).parent
RESULTS = HERE / "cut_rules.json"

TOTALS = YIELDS["s"], YIELDS["b"]
SIZES = (1_500, 6_000, 15_000, 30_000, 100_000)
SAMPLES, COVERED_SAMPLES = 50, 400
COVERED = ("gauss-1.5", "gauss-2.0", "heavy-ratio", "toy-plain")
COVERED_RULES = ("model", "plateau")
TOY_TRUTH = 1_400_000
RATIO_TOTALS = 300.0, 3000.0  # without b_reg, so that the best cuts keep little background
GAUSSIANS = (1.5, 2.0)  # distances in standard deviations; a tenth of the events is signal
LEVEL, REPLICAS = 0.68, 200


class Truth(NamedTuple):
    """The true significance against the cut, from the tightest cut."""

    cut: Array
    significance: Array
    utility: Utility = UTILITY

    def at(self, cut: float) -> float:
        """Significance at a cut."""
        return float(np.interp(-cut, -self.cut, self.significance))

    @classmethod
    def measured(cls, events: Scored, smoothing: float) -> Truth:
        """From events, smoothed by a Gaussian of this width in the logarithm of the selected fraction."""
        curve = scan(*scaled(events), UTILITY, "peak", min_effective=0.0).curve
        fraction = np.geomspace(0.002, 1.0, 2000)
        cuts = np.searchsorted(curve.fraction, fraction).clip(0, curve.fraction.size - 1)
        z = np.nan_to_num(curve.significance[cuts])
        return cls(curve.cut[cuts], gaussian_filter1d(z, smoothing / np.log(fraction[1] / fraction[0]), mode="nearest"))

    @classmethod
    def gaussians(cls, distance: float) -> Truth:
        """Exact, for scores of unit variance."""
        cut = np.linspace(5.0, -3.0, 8001)
        return cls(cut, UTILITY.value(TOTALS[0] * ndtr(distance - cut), TOTALS[1] * ndtr(-cut)))

    @classmethod
    def ratios(cls) -> Truth:
        """Exact, for `ratios`: weights shift the mean of the second feature to the slope of their logarithm."""
        width, utility = np.hypot(1.5, 1.3), AMS2()
        cut = np.linspace(9.0, -8.0, 8001)
        s, b = (
            t * ndtr((m - cut) / width) for t, m in zip(RATIO_TOTALS, (1.5**2 + 1.3 * 0.5, -1.3 * 0.8), strict=True)
        )
        return cls(cut, utility.value(s, b), utility)


Draw = Callable[[int, np.random.Generator], tuple[Scored, Truth]]


def ratios(n: int, rng: np.random.Generator) -> Scored:
    """Two-dimensional Gaussians with weights that depend on one of the features, scored by the exact ratio.

    Half of the yields is selected, so samples keep the scatter of their totals, which intervals contain.
    """
    signal = rng.random(n) < 0.5
    x, z = rng.normal(size=(2, n))
    slope = np.where(signal, 0.5, -0.8)
    weight = rng.gamma(4.0, 0.25, size=n) * np.exp(slope * z - slope**2 / 2)
    weight *= np.where(signal, *RATIO_TOTALS) / (n / 2)
    return Scored(1.5 * (x + 1.5 * signal) + 1.3 * z, signal, weight)


def negative(n: int, rng: np.random.Generator) -> Scored:
    """Gaussians 1.5 apart with weights that scatter over decades, a tenth of them negative."""
    signal = rng.random(n) < 0.3
    weight = np.exp(1.2 * rng.normal(size=n)) * np.where(rng.random(n) < 0.1, -1.0, 1.0)
    return scaled(Scored(rng.normal(1.5 * signal), signal, weight))


def scaled(events: Scored) -> Scored:
    """Events with the challenge's yields."""
    return events._replace(weight=rescale(events.weight, events.signal, TOTALS))


def take(events: Scored, rows: IntArray) -> Scored:
    """Some rows, with the challenge's yields."""
    return scaled(events.part(rows))


def source(name: str, folder: str, *, population: bool = False, as_drawn: bool = False) -> Draw:
    """How tuning samples of one source are drawn, each with its truth.

    Truth is that of other events, or that of the population from which a sample is drawn. Samples have the challenge's
    yields, or keep the scatter of their totals as drawn.
    """
    where, _, kind = name.partition("-")
    if where == "heavy":
        made, true = (ratios, Truth.ratios()) if kind == "ratio" else (negative, Truth.gaussians(1.5))
        return lambda n, rng: (made(n, rng), true)
    if where == "gauss":
        distance = float(kind)
        exact = Truth.gaussians(distance)

        def gaussians(n: int, rng: np.random.Generator) -> tuple[Scored, Truth]:
            signal = rng.random(n) < 0.1
            weight = np.where(signal, TOTALS[0] / 0.1, TOTALS[1] / 0.9) / n
            sample = Scored(rng.normal(distance * signal), signal, weight)
            return sample if as_drawn else scaled(sample), exact

        return gaussians
    events = read_scored(folder, f"t-{kind}" if where == "b" else name)
    if where in ("toy", "b"):
        tuning = events.score.size - (TOY_TRUTH if where == "toy" and not population else 0)
        others = read_scored(folder, name)
        if tuning < events.score.size:
            others = take(others, np.arange(tuning, events.score.size))
        fixed = Truth.measured(others, 0.03 if where == "toy" else 0.1)
        if as_drawn:
            every = scaled(events)
            return lambda n, rng: (every.part(rng.choice(tuning, n, replace=False), tuning / n), fixed)
        return lambda n, rng: (take(events, rng.choice(tuning, n, replace=False)), fixed)

    def split(n: int, rng: np.random.Generator) -> tuple[Scored, Truth]:
        rows = rng.permutation(events.score.size)
        return take(events, rows[:n]), Truth.measured(take(events, rows[n:]), 0.1)

    return split


def sizes_of(name: str) -> Iterator[int]:
    """Sizes of the tuning samples that a source allows."""
    most = {"t": 30_000, "b": 30_000, "real": 12_000, "heavy": 30_000}.get(name.partition("-")[0], SIZES[-1])
    return (n for n in SIZES if n <= most)


HEAVY = ["heavy-ratio", "heavy-negative"]
SOURCES = [
    *(f"gauss-{d}" for d in GAUSSIANS),
    *HEAVY,
    *(f"{where}-{k}" for where in ("toy", "t", "b", "real") for k in KINDS),
]


def regret(results: dict[str, Any], folder: str, *names: str) -> Iterator[None]:
    """Mean regret of each rule, and how much less it is than the plateau's, with errors from the samples."""
    out = results.setdefault("regret", {})
    for name in names or SOURCES:
        missing = [n for n in sizes_of(name) if f"{name}, {n}" not in out]
        if not missing:
            continue
        draw = source(name, folder)
        for n in missing:
            rng = np.random.default_rng([2027, n])
            lost = np.array([_regrets(*draw(n, rng)) for _ in range(SAMPLES)])
            against = lost - lost[:, [list(RULES).index("plateau")]]
            out[f"{name}, {n}"] = {
                "rules": list(RULES),
                "regret": lost.mean(axis=0).round(4).tolist(),
                "error": _error(lost),
                "against plateau": against.mean(axis=0).round(4).tolist(),
                "error against plateau": _error(against),
            }
            print(name, n, out[f"{name}, {n}"]["regret"], flush=True)
            yield


def _regrets(sample: Scored, truth: Truth) -> list[float]:
    best = float(truth.significance.max())
    return [best - truth.at(scan(*sample, truth.utility, rule).cut) for rule in RULES]


def _error(values: Array) -> list[float]:
    found: list[float] = (values.std(axis=0, ddof=1) / np.sqrt(len(values))).round(4).tolist()
    return found


def coverage(results: dict[str, Any], folder: str, *names: str) -> Iterator[None]:
    """Share of samples whose interval holds the true significance at the chosen cut, and the mean bias of the value."""
    for yields, name in itertools.product(("fixed", "as drawn"), names or COVERED):
        if (yields, name) == ("fixed", "heavy-ratio"):
            continue  # its samples always keep the scatter of their totals
        out = results.setdefault(f"coverage, yields {yields}", {})
        missing = [n for n in SIZES[1:4] if f"{name}, {n}" not in out]
        if not missing:
            continue
        draw = source(name, folder, population=True, as_drawn=yields == "as drawn")
        for n in missing:
            rng = np.random.default_rng([8, n])
            rows = [_covered(*draw(n, rng), seed) for seed in range(COVERED_SAMPLES)]
            out[f"{name}, {n}"] = {
                "rules": COVERED_RULES,
                "covered": np.mean([r[0] for r in rows], axis=0).round(3).tolist(),
                "bias": np.mean([r[1] for r in rows], axis=0).round(4).tolist(),
                "error": _error(np.array([r[1] for r in rows])),
            }
            print(name, n, out[f"{name}, {n}"], flush=True)
            yield


def _covered(sample: Scored, truth: Truth, seed: int) -> tuple[list[bool], list[float]]:
    covered, bias = [], []
    for rule in COVERED_RULES:
        best = scan(*sample, truth.utility, rule)
        low, high = significance_interval(best, sample, seed)
        true = truth.at(best.cut)
        covered.append(low <= true <= high)
        bias.append(best.significance - true)
    return covered, bias


def significance_interval(best: CutScan, sample: Scored, seed: int) -> tuple[float, float]:
    """What ``best.interval()`` gives for the significance, without choosing the cut anew in each replica."""
    selected = sample.score >= best.cut
    signal = sample.signal[selected]
    weight = sample.weight[selected] * np.random.default_rng(seed).poisson(size=(REPLICAS, signal.size))
    z = best.utility.value(weight[:, signal].sum(axis=1), weight[:, ~signal].sum(axis=1))
    low, high = np.quantile(z, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
    return float(low), float(high)


def tables() -> dict[str, str]:
    """Both tables as Markdown."""
    results = json.loads(RESULTS.read_text())
    return {"regret": "\n".join(_mean_rows(results["regret"])), "coverage": "\n".join(_coverage_rows(results))}


def _mean_rows(results: dict[str, Any]) -> Iterator[str]:
    """Means over each kind of events, over each size, and over all."""
    yield from _head("mean of (settings)")
    kinds, sizes = (list(dict.fromkeys(parts)) for parts in zip(*map(_parts, results), strict=True))
    for title, chosen in (
        *((kind, [row for name, row in results.items() if _parts(name)[0] == kind]) for kind in kinds),
        *((f"{n:,} events", [row for name, row in results.items() if _parts(name)[1] == n]) for n in sizes),
        ("all", list(results.values())),
        ("all but real", [row for name, row in results.items() if _parts(name)[0] != "real"]),
    ):
        yield _regret_row(f"{title} ({len(chosen)})", chosen)


def _parts(name: str) -> tuple[str, int]:
    """Kind of events, and number of events to tune on."""
    source_name, n = name.split(", ")
    return source_name.partition("-")[0], int(n)


def _head(first: str) -> Iterator[str]:
    yield f"| {first} | {' | '.join(RULES)} | model less plateau | model / plateau |"
    yield "|" + " --- |" * (len(RULES) + 3)


def _regret_row(name: str, rows: list[dict[str, Any]]) -> str:
    """Means over settings, whose errors are taken as independent."""
    values, errors = ([np.array([r[key] for r in rows]) for key in keys] for keys in (
        ("regret", "against plateau"), ("error", "error against plateau")))  # fmt: skip
    mean, less = (v.mean(axis=0) for v in values)
    error, less_error = (np.sqrt(np.square(e).sum(axis=0)) / len(rows) for e in errors)
    cells = [f"{m:.3f} ± {e:.3f}" for m, e in zip(mean, error, strict=True)]
    model, plateau = list(RULES).index("model"), list(RULES).index("plateau")
    ratio = mean[model] / mean[plateau]
    covariance = (error[model] ** 2 + error[plateau] ** 2 - less_error[model] ** 2) / 2
    spread = np.sqrt(error[model] ** 2 + (ratio * error[plateau]) ** 2 - 2 * ratio * covariance) / mean[plateau]
    cells += [f"{less[model]:+.3f} ± {less_error[model]:.3f}", f"{ratio:.2f} ± {spread:.2f}"]
    return f"| {name} | {' | '.join(cells)} |"


def _coverage_rows(results: dict[str, Any]) -> Iterator[str]:
    """Shares and biases, with yields that are fixed and as drawn."""
    tables = [results[f"coverage, yields {yields}"] for yields in ("fixed", "as drawn")]
    columns = [f"{rule}, yields {yields}" for yields in ("fixed", "as drawn") for rule in COVERED_RULES]
    yield f"| score, events to tune on | {' | '.join(columns)} |"
    yield "|" + " --- |" * (len(columns) + 1)
    for name, n in itertools.product(COVERED, SIZES[1:4]):
        cells = [
            f"{table[f'{name}, {n}']['covered'][i]:.1%}, {table[f'{name}, {n}']['bias'][i]:+.2f}"
            if f"{name}, {n}" in table else "" for table in tables for i in range(len(COVERED_RULES))
        ]  # fmt: skip
        yield f"| {name}, {n:,} | {' | '.join(cells)} |"


def main(what: str, *arguments: str) -> None:
    """Measure one of the tables."""
    warnings.simplefilter("ignore", SmallSampleWarning)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for _ in {"regret": regret, "coverage": coverage}[what](results, *arguments):
        with written_whole(RESULTS) as path:
            path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
