"""Whether a net gains if events near the cut count more in its last epochs: the same net with and without, paired.

``python -m benchmarks.studies.net_focus run DATA [PROBLEM ...] [SEEDS]`` trains, and adds to
benchmarks/studies/net_focus.json after every seed: it can be killed, and the same call resumes. Nets are those of
`AutoClassifier` for so many events, blended with a booster by equal ranks as there. Problems are those of
`benchmarks.studies.auto` with other seeds, but set b is not read: set t is tested on other events of t.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import as_table
from benchmarks.studies.auto import N_TEST, PROBLEMS, Problem
from benchmarks.studies.protocol import mean_significance, ranks, read_set, scaled_part
from benchmarks.studies.study.data import SIMULATED
from fivesigma import GrownCascadeClassifier
from fivesigma._tools.files import written_whole
from fivesigma._types import Array
from fivesigma.datasets import Events
from fivesigma.estimators.auto import make_net
from fivesigma.yields import balanced_class_weights

RESULTS = Path(__file__).parent / "net_focus.json"
FIRST_SEED, SEEDS = 40, 5
FOCUS = (0.0, 1.0, 3.0)
TREES: dict[str, Any] = {"cascade": False, "n_trees": 150, "cut": "zero", "n_jobs": 1}


def _within(n: int, data: str, seed: int) -> Problem:
    """Events of set t, tested on others of it."""
    t = read_set(str(Path(data) / SIMULATED), "t")
    rows = np.random.default_rng(seed).permutation(len(t))
    test = scaled_part(t, np.sort(rows[n : n + N_TEST]))
    return Problem([(scaled_part(t, np.sort(rows[:n])), np.arange(len(test)))], test)


WITHIN = {f"t-{n}": partial(_within, n) for n in (10_000, 50_000)}
ALL = {name: make for name, make in (PROBLEMS | WITHIN).items() if name != "t-b"}


def one_seed(problem: str, data: str, seed: int) -> dict[str, Any]:
    """Train on the events of one seed; return significances of nets alone and in the blend, by focus."""
    parts, test = ALL[problem](data, seed)
    scores = {focus: np.empty((2, len(test))) for focus in FOCUS}
    seconds = dict.fromkeys(FOCUS, 0.0)
    for train, rows in parts:
        weight = np.clip(train.weight, 0, None)
        factors = np.where(train.is_signal, *balanced_class_weights(weight, train.is_signal))
        trees = GrownCascadeClassifier(random_state=seed, **TREES).fit(train.X, train.is_signal, weight)
        known = ranks(trees.predict_proba(test.X[rows])[:, 1])
        for focus in FOCUS:
            net = make_net(len(train), train.feature_names).set_params(focus=focus, random_state=seed, n_jobs=1)
            start = time.process_time()
            net.fit(train.X, train.is_signal, weight * factors)
            seconds[focus] += time.process_time() - start
            of_net = ranks(net.decision_function(test.X[rows]))
            scores[focus][:, rows] = of_net, of_net + known
    z = {str(focus): [measure(score, test) for score in both] for focus, both in scores.items()}
    return {"z": z, "seconds": list(seconds.values())}


def measure(score: Array, test: Events) -> float:
    """Mean AMS over cuts at 10 to 20 % of the events."""
    return round(mean_significance(score, test), 4)


def run(data: str, *wanted: str) -> None:
    """Train every seed of every problem that is not in the results yet, seed by seed."""
    n_seeds = int(wanted[-1]) if wanted and wanted[-1].isdigit() else SEEDS
    problems = [name for name in wanted if not name.isdigit()] or list(ALL)
    for seed in range(FIRST_SEED, FIRST_SEED + n_seeds):
        for problem in problems:
            results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            done = results.setdefault(problem, {})
            if str(seed) not in done:
                done[str(seed)] = one_seed(problem, data, seed)
                with written_whole(RESULTS) as path:
                    path.write_text(json.dumps(results, separators=(",", ":")) + "\n")
                print(problem, seed, done[str(seed)], flush=True)


def tables() -> dict[str, str]:
    """Gain of each focus, of the net alone and in the blend; the error is the spread of seeds."""
    rows, means = [], []
    for problem, seeds in json.loads(RESULTS.read_text()).items():
        z = np.array([[found["z"][str(focus)] for focus in FOCUS] for found in seeds.values()])
        gains = z[:, 1:] - z[:, :1]
        spent = np.array([found["seconds"] for found in seeds.values()]).mean(axis=0)
        means.append((gains.mean(axis=0), gains.var(axis=0, ddof=1) / len(gains)))
        cells = [_gain(*pair) for pair in zip(means[-1][0].T.ravel(), means[-1][1].T.ravel(), strict=True)]
        rows.append([f"{problem} ({len(seeds)})", f"{z[:, 0, 0].mean():.3f}", *cells, f"{spent[2] / spent[0]:.2f}"])
    total, variance = (np.array(part) for part in zip(*means, strict=True))
    cells = [
        _gain(*pair) for pair in zip(total.mean(0).T.ravel(), variance.sum(0).T.ravel() / len(total) ** 2, strict=True)
    ]
    rows.append(["mean", "", *cells, ""])
    of_blend = [f"in a blend with trees, {focus:g}" for focus in FOCUS[1:]]
    return {
        "gains": as_table(["problem (seeds)", "net", *(f"focus {f:g}" for f in FOCUS[1:]), *of_blend, "time"], rows)
    }


def _gain(mean: float, variance: float) -> str:
    return f"{mean:+.3f} ± {variance**0.5:.3f}"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    run(*sys.argv[2:])
