"""How far quoted significances are from the truth, for each number that a model offers.

``python -m benchmarks.studies.honesty run [SECONDS] [FILE]`` fits until the time is over, and goes on where it stopped.

2,000 events to train on, 1,000 to quote on, eight features, weights scaled to the expected yields, 20 seeds. Truth is
the significance of the same selection, or of the same categories, on 50,000 other events.

* *null*: labels are random; AMS2, 100 signal and 4,000 background events.
* *nullrel*: the same with a background known to 10 %, and 400 signal events.
* *sig*: a weak signal in three features; AMS2 with b_reg = 10.
* *tight*: signal and background are far apart, so that few background events pass the cut.
* *heavy*: as sig, with weights that scatter by a factor of four.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fivesigma import (
    AMS2,
    AutoClassifier,
    CascadePool,
    Categories,
    GrownCascadeClassifier,
    RelativeBackground,
    Utility,
    categorise,
)
from fivesigma._types import Array, BoolArray
from fivesigma.cut.bootstrap import Interval, paired_difference
from fivesigma.errors import FivesigmaError
from fivesigma.yields import signal_and_background, significance_or_zero

RESULTS = Path(__file__).with_suffix(".json")
SEEDS, TRAIN, TEST, TRUTH = 20, 2_000, 1_000, 50_000
CATEGORIES = 3


class Scenario(NamedTuple):
    """Where a number might be too good."""

    utility: Utility
    yields: tuple[float, float]
    separation: float
    scatter: float = 0.0


SCENARIOS = {
    "null": Scenario(AMS2(), (100.0, 4_000.0), 0.0),
    "nullrel": Scenario(RelativeBackground(0.1), (400.0, 4_000.0), 0.0),
    "sig": Scenario(AMS2(b_reg=10.0), (75.0, 4_000.0), 0.6),
    "tight": Scenario(AMS2(), (10.0, 1_000.0), 1.6),
    "heavy": Scenario(AMS2(b_reg=10.0), (75.0, 4_000.0), 0.6, 1.3),
}


class Sample(NamedTuple):
    """Events of two classes."""

    X: Array
    signal: BoolArray
    weight: Array


def simulate(scenario: Scenario, n: int, rng: np.random.Generator) -> Sample:
    """Gaussian features, half of the events signal; each class is scaled to its yield."""
    signal = rng.random(n) < 0.5
    X = rng.normal(size=(n, 8))
    X[:, :3] += scenario.separation * signal[:, None]
    weight = np.exp(scenario.scatter * rng.normal(size=n))
    for members, full in ((signal, scenario.yields[0]), (~signal, scenario.yields[1])):
        weight[members] *= full / weight[members].sum()
    return Sample(X, signal, weight)


def _grown(utility: Utility, seed: int, n_trees: int = 100) -> Any:
    return GrownCascadeClassifier(n_trees=n_trees, utility=utility, random_state=seed, n_jobs=1)


def _auto(utility: Utility, seed: int) -> Any:
    return AutoClassifier(utility=utility, random_state=seed, n_jobs=1)


def _pool(utility: Utility, seed: int) -> Any:
    members = [(f"grown {k}", _grown(utility, 100 * seed + k, 50)) for k in range(4)]
    return CascadePool(members, utility=utility, cv=4, keep=2, random_state=seed, n_jobs=1)


MODELS: dict[str, Callable[[Utility, int], Any]] = {"grown": _grown, "auto": _auto, "pool": _pool}


def _at_cut(found: Any, score: Array, sample: Sample, utility: Utility) -> tuple[float, Interval | None]:
    """Significance of events above the cut of a model, zero if they have none, and its 68 % interval."""
    selected = score >= found.cut_
    value = significance_or_zero(utility, *signal_and_background(sample.weight, sample.signal, selected))
    try:
        both = paired_difference(selected, selected, sample.signal, sample.weight, utility, n_boot=200)
    except FivesigmaError:
        return value, None
    return value, both.first_interval


def _in_categories(found: Categories) -> tuple[float, Interval | None]:
    """Significance, and its 68 % interval as `interval` has it, which would choose the edges anew as well."""
    low, high = np.nanquantile(found.replicas(100), (0.16, 0.84)).tolist()
    return found.significance, (low, high) if np.isfinite(low) else None


def measure(name: str, model: str, seed: int) -> dict[str, Any]:
    """Every number that one model offers, beside its truth."""
    scenario = SCENARIOS[name]
    utility = scenario.utility
    rng = np.random.default_rng([seed, list(SCENARIOS).index(name)])
    train, test, more, large = (simulate(scenario, n, rng) for n in (TRAIN, TEST, TEST, TRUTH))
    found = MODELS[model](utility, seed).fit(train.X, train.signal.astype(int), train.weight)
    score, other, far = (found.predict_proba(part.X)[:, 1] for part in (test, more, large))
    truth = _at_cut(found, far, large, utility)[0]
    out: dict[str, Any] = {"truth": truth}

    def note(what: str, quoted: tuple[float, Interval | None], truth: float) -> None:
        value, interval = quoted
        out[what] = [value - truth, None if interval is None else bool(interval[0] <= truth <= interval[1])]

    note("test", _at_cut(found, score, test, utility), truth)
    held_out = np.asarray(found.held_out_score_)
    known = np.isfinite(held_out)  # a single model holds a quarter of its events out
    kept = Sample(train.X[known], train.signal[known], train.weight[known])
    for members, full in ((kept.signal, scenario.yields[0]), (~kept.signal, scenario.yields[1])):
        kept.weight[members] *= full / kept.weight[members].sum()
    note("held-out", _at_cut(found, held_out[known], kept, utility), truth)
    chosen = categorise(score, test.signal, test.weight, CATEGORIES, utility, min_effective=10.0)
    expected = chosen.evaluate(far, large.signal, large.weight, mc_statistics=False).significance
    note("categories, same events", _in_categories(chosen), expected)
    fresh = chosen.evaluate(other, more.signal, more.weight)
    note("categories, other events", _in_categories(fresh), expected)
    out["truth of categories"] = expected
    return out


def run(seconds: float, results: Path = RESULTS) -> None:
    """Fit what is missing until the time is over."""
    rows: dict[str, Any] = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
    begin = time.monotonic()
    for seed in range(SEEDS):
        for name in SCENARIOS:
            for model in MODELS:
                key = f"{name} {model} {seed}"
                if key in rows:
                    continue
                if time.monotonic() - begin > seconds:
                    return
                try:
                    rows[key] = measure(name, model, seed)
                except FivesigmaError as error:
                    rows[key] = {"error": str(error)}
                results.write_text(json.dumps(rows, indent=0) + "\n", encoding="utf-8")


def tables() -> dict[str, str]:
    """Mean of quoted less true significance, its error, and the coverage of the interval."""
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))
    lines = [
        "| quoted number | scenario | truth | " + " | ".join(MODELS) + " |",
        "|---|---|---|" + "---|" * len(MODELS),
    ]
    for what in ("test", "held-out", "categories, same events", "categories, other events"):
        for name in SCENARIOS:
            cells, truths = [], []
            for model in MODELS:
                found = [rows.get(f"{name} {model} {seed}", {}) for seed in range(SEEDS)]
                found = [row for row in found if what in row]
                difference = np.array([row[what][0] for row in found])
                covered = [row[what][1] for row in found if row[what][1] is not None]
                truths += [row["truth of categories" if "categories" in what else "truth"] for row in found]
                error = difference.std(ddof=1) / np.sqrt(difference.size)
                share = f"{np.mean(covered):.2f}" if covered else "-"
                lacking = f" ({difference.size} seeds)" if difference.size < SEEDS else ""
                cells.append(f"{difference.mean():+.3f} ± {error:.3f}, {share}{lacking}")
            lines.append(f"| {what} | {name} | {np.mean(truths):.2f} | " + " | ".join(cells) + " |")
    return {"bias": "\n".join(lines)}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run(float(sys.argv[2]) if len(sys.argv) > 2 else 480.0, Path(sys.argv[3]) if len(sys.argv) > 3 else RESULTS)
