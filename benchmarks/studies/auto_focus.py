"""The net of `AutoClassifier` with and without focus, on samples that are large enough for it.

``python -m benchmarks.studies.auto_focus run DATA [PROBLEM ...] [SEEDS]`` trains what is missing in
benchmarks/studies/auto_focus.json. *halves* and *toy* train on one half of set t and of 120,000 events of the toy and
score the other, both ways; *b* trains on set t and scores set b. Only the nets of the two fits differ.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import as_table
from benchmarks.studies.protocol import (
    UTILITY,
    add_missing,
    as_measured,
    entering_steps,
    paired_gain,
    ranks,
    read_set,
    scaled_part,
    selection_steps,
    step_significance,
)
from fivesigma._types import AnyArray
from fivesigma.datasets import Events, make_htautau
from fivesigma.estimators import auto

RESULTS = Path(__file__).parent / "auto_focus.json"
SEEDS = 2
ARMS = {"without": 0.0, "with": 3.0}
PROBLEMS = ("halves", "toy", "b")
Parts = Sequence[tuple[Events, Any]]  # training events, and rows of the test events that they score


def events_of(problem: str, data: str, seed: int) -> tuple[Events, Parts]:
    """Test events, and what is trained for which of them."""
    if problem == "b":
        test = read_set(data, "b")
        return test, [(read_set(data, "t"), np.arange(len(test)))]
    if problem == "halves":
        events = read_set(data, "t")
        half = np.random.default_rng(seed).random(len(events)) < 0.5
    else:
        events = as_measured(make_htautau(120_000, random_state=900 + seed))
        half = np.arange(len(events)) < len(events) // 2
    one, other = np.flatnonzero(half), np.flatnonzero(~half)
    return events, [(scaled_part(events, one), other), (scaled_part(events, other), one)]


def scored(parts: Parts, test: Events, seed: int, focus: float) -> tuple[tuple[AnyArray, AnyArray], float]:
    """Ranks and selection of the test events, and seconds of the processor."""
    plain_net, start = auto.make_net, time.process_time()
    score, selected = np.empty(len(test)), np.zeros(len(test), dtype=np.bool_)
    auto.make_net = lambda *given: plain_net(*given).set_params(focus=focus)
    try:
        for train, rows in parts:
            model = auto.AutoClassifier(utility=UTILITY, random_state=seed, n_jobs=1).fit(train)
            found = model.predict_proba(test.X[rows])[:, 1]
            score[rows], selected[rows] = ranks(found), found >= model.cut_
    finally:
        auto.make_net = plain_net
    return (score, selected), time.process_time() - start


def one_seed(problem: str, data: str, seed: int) -> dict[str, Any]:
    """Measure both fits on the same events."""
    test, parts = events_of(problem, data, seed)
    arms = {arm: scored(parts, test, seed, focus) for arm, focus in ARMS.items()}
    out: dict[str, Any] = {"seconds": [seconds for _, seconds in arms.values()]}
    for what, k, steps in (("over", 0, entering_steps), ("own", 1, selection_steps)):
        of = [measured[k] for measured, _ in arms.values()]
        out[what] = [step_significance(steps(values), test) for values in of]
        out[f"gain {what}"] = paired_gain([of[1]], [of[0]], test, steps)
    return out


def run(data: str, *wanted: str) -> None:
    """Train every seed of every problem that is not in the results yet, seed by seed."""
    add_missing(RESULTS, wanted, PROBLEMS, range(SEEDS), lambda problem, seed: one_seed(problem, data, seed))


def tables() -> dict[str, str]:
    """Mean AMS without and with focus, and the gain, whose error covers test events and seeds."""
    rows = []
    for problem, seeds in json.loads(RESULTS.read_text()).items():
        cells = []
        for what in ("over", "own"):
            gains, errors = np.transpose([found[f"gain {what}"] for found in seeds.values()])
            # Seeds share test events, so that errors do not fall with their number.
            error = np.hypot(errors.mean(), gains.std(ddof=1) / gains.size**0.5 if gains.size > 1 else 0.0)
            before, after = np.mean([found[what] for found in seeds.values()], axis=0)
            cells += [f"{before:.3f}", f"{after:.3f}", f"{gains.mean():+.3f} ± {error:.3f}"]
        rows.append([f"{problem} ({len(seeds)})", *cells])
    head = ["problem (seeds)", "over cuts, without", "with", "gain", "own cut, without", "with", "gain"]
    return {"gains": as_table(head, rows)}


def main(what: str, *arguments: str) -> None:
    """See the module."""
    warnings.simplefilter("ignore")
    {"run": run}[what](*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
