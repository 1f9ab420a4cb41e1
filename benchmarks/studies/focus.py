"""Whether a booster gains if events near the cut count more: plain and focused boosters, tree by tree, paired.

``python -m benchmarks.studies.focus run DATA [PROBLEM ...] [SEEDS]`` grows boosters and adds to
benchmarks/studies/focus.json after every seed: it can be killed, and the same call resumes. An arm is judged at the
number of trees at which its own mean over seeds is highest, and at equal processor time. Every seed has other training
and other test events, but for the test events of the toy, so that errors are spreads of seeds.

From a tree on, and anew every 20 trees, the learner weights are multiplied by

    1 + kappa exp(-(ln(r / r0))^2 / (2 width^2)),

r an event's rank from the top as a share of all training events under the present booster, r0 the share that the best
cut keeps of held-out events, and each class is scaled back to its sum. A fifth of the events is held out for r0, in all
arms. Blends are means of the ranks of two boosters of other seeds: two plain ones, or one plain and one focused.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import as_table
from benchmarks.studies.protocol import (
    UTILITY,
    add_missing,
    as_measured,
    entering_steps,
    ranks,
    read_real,
    read_set,
    scaled_part,
    step_significance,
)
from benchmarks.studies.study.data import REAL, SIMULATED
from fivesigma import scan
from fivesigma._types import Array, BoolArray
from fivesigma.datasets import Events, make_htautau
from fivesigma.learners.libraries import bind_grower
from fivesigma.learners.protocols import Binding
from fivesigma.yields import balanced_class_weights, learner_weights

RESULTS = Path(__file__).parent / "focus.json"
SEEDS, EVERY = 5, 20


class Focus(NamedTuple):
    """Settings of a focus."""

    start: int
    kappa: float = 3.0
    width: float = 0.7

    def factors(self, score: Array, signal: BoolArray, weight: Array, share: float) -> Array:
        """Factors of the learner weights."""
        share_above = 1.0 - ranks(score) + 0.5 / score.size
        factor = 1.0 + self.kappa * np.exp(-(np.log(share_above / share) ** 2) / (2.0 * self.width**2))
        for c in (signal, ~signal):
            factor[c] *= weight[c].sum() / (weight[c] * factor[c]).sum()
        return np.asarray(factor)


class Problem(NamedTuple):
    """Events to train on, events to test on, and the numbers of trees at which boosters are looked at."""

    train: Events
    test: Events
    trees: tuple[int, ...]


def _halves(n: int, data: str, seed: int) -> Problem:
    """Events of set t, tested on 62,500 others of it."""
    t = read_set(str(Path(data) / SIMULATED), "t")
    rows = np.random.default_rng(100 + seed).permutation(len(t))
    trees = (100, 150, 200, 250, 300, 350, 400, 500, 600) if n > 20_000 else (40, 80, 120, 160, 200, 250, 300)
    return Problem(scaled_part(t, np.sort(rows[:n])), scaled_part(t, np.sort(rows[-62_500:])), trees)


def _real(data: str, seed: int) -> Problem:
    events = read_real(str(Path(data) / REAL))
    a, b = np.array_split(np.random.default_rng(100 + seed).permutation(len(events)), 2)
    return Problem(scaled_part(events, np.sort(a)), scaled_part(events, np.sort(b)), (40, 60, 80, 120, 160, 200, 250))


def _toy(n: int, _: str, seed: int) -> Problem:
    trees = (100, 150, 200, 250, 300, 350, 400, 500, 600) if n > 20_000 else (40, 60, 80, 120, 160, 200, 250)
    return Problem(as_measured(make_htautau(n, 3000 + seed)), as_measured(make_htautau(60_000, 9)), trees)


PROBLEMS: dict[str, Callable[[str, int], Problem]] = {
    "t-62500": partial(_halves, 62_500),
    "real": _real,
    "toy-5000": partial(_toy, 5_000),
    "t-10000": partial(_halves, 10_000),
    "toy-50000": partial(_toy, 50_000),
}


def arms(problem: str) -> dict[str, Focus | None]:
    """Boosters of a problem by name."""
    starts = (60, 180, 300) if problem in ("t-62500", "toy-50000") else (20, 60, 120)
    out: dict[str, Focus | None] = {"plain": None}
    out |= {f"focus from {start}": Focus(start) for start in starts}
    out |= {
        f"kappa 1 from {starts[1]}": Focus(starts[1], kappa=1.0),
        f"width 0.35 from {starts[1]}": Focus(starts[1], width=0.35),
    }
    return out


def grow(library: str, problem: Problem, focus: Focus | None, seed: int) -> tuple[dict[int, Array], dict[int, float]]:
    """Scores of the test events and processor time so far, by number of trees."""
    train, test, looks = problem
    rows = np.random.default_rng(seed).permutation(len(train))
    held, fitted = np.sort(rows[: len(train) // 5]), np.sort(rows[len(train) // 5 :])
    both = np.concatenate([train.X, test.X])
    signal = np.concatenate([train.is_signal, test.is_signal])
    judged = np.concatenate([held, np.arange(len(train), len(both))])
    binding = Binding(both, signal.astype(np.intp), fitted, judged, seed, 1)
    grower = bind_grower(library, {"max_bin": 128}, binding)
    classes = signal[fitted]
    weight = learner_weights(train.weight[fitted], classes, balanced_class_weights(train.weight[fitted], classes))
    grower.set_weights(weight)
    held_out = scaled_part(train, held)
    scores, seconds, spent = {}, {}, 0.0
    for n in range(1, max(looks) + 1):
        start = time.process_time()
        if focus is not None and n > focus.start and (n - 1 - focus.start) % EVERY == 0:
            found = scan(grower.score()[: held.size], held_out.is_signal, held_out.weight, utility=UTILITY)
            grower.set_weights(weight * focus.factors(grower.score(held_out=False), classes, weight, found.fraction))
        grower.grow()
        spent += time.process_time() - start
        if n in looks:
            scores[n], seconds[n] = grower.score()[held.size :], spent
    return scores, seconds


def one_seed(library: str, name: str, data: str, seed: int) -> dict[str, Any]:
    """Grow all arms on the events of one seed."""
    problem = PROBLEMS[name](data, seed)
    chosen = arms(name)
    if library != "xgboost":
        chosen = dict(list(chosen.items())[:3])
    other, _ = grow(library, problem, None, seed + 1000)  # the first half of every blend
    found: dict[str, Any] = {}
    for arm, focus in chosen.items():
        scores, seconds = grow(library, problem, focus, seed)
        found[arm] = {}
        for n, score in scores.items():
            steps = [entering_steps(s) for s in (score, ranks(score) + ranks(other[n]))]
            found[arm][n] = {"seconds": seconds[n], "z": [step_significance(s, problem.test) for s in steps]}
    return found


def run(data: str, *wanted: str) -> None:
    """Grow every seed of every problem that is not in the results yet."""

    def one(key: str, seed: int) -> dict[str, Any]:
        name, _, library = key.partition(":")
        return one_seed(library or "xgboost", name, data, seed)

    add_missing(RESULTS, wanted, PROBLEMS, range(SEEDS), one)


def tables() -> dict[str, str]:
    """The best focus of each problem: at its own number of trees, in the time of the best plain booster, in a blend."""
    rows = []
    for problem, seeds in json.loads(RESULTS.read_text()).items():
        arms = next(iter(seeds.values()))
        trees = list(arms["plain"])
        seconds = {
            arm: np.mean([[found[arm][n]["seconds"] for n in trees] for found in seeds.values()], axis=0)
            for arm in arms
        }
        cells: list[str] = []
        for blend in (0, 1):
            z = {
                arm: np.array([[found[arm][n]["z"][blend] for n in trees] for found in seeds.values()]) for arm in arms
            }
            means = {arm: values.mean(axis=0) for arm, values in z.items()}
            plain = int(means["plain"].argmax())
            focused = [arm for arm in arms if arm != "plain"]
            best = max(focused, key=lambda arm: means[arm].max())
            if blend == 0:
                cells += [f"{means['plain'][plain]:.3f}, {trees[plain]} trees", f"{means[best].max():.3f}, {best}"]
            cells.append(_gain(z[best][:, int(means[best].argmax())] - z["plain"][:, plain]))
            if blend == 0:
                spent = {
                    arm: np.where(seconds[arm] <= 1.02 * seconds["plain"][plain], means[arm], 0) for arm in focused
                }
                best = max(focused, key=lambda arm: spent[arm].max())
                cells.append(_gain(z[best][:, int(spent[best].argmax())] - z["plain"][:, plain]))
        rows.append([f"{problem} ({len(seeds)})", *cells])
    head = ["problem (seeds)", "plain", "best focus", "gain", "gain in the same time", "gain in a blend of two"]
    return {"gains": as_table(head, rows)}


def _gain(gains: Array) -> str:
    return f"{gains.mean():+.3f} ± {gains.std(ddof=1) / len(gains) ** 0.5:.3f}"


def main(what: str, *arguments: str) -> None:
    """See the module."""
    warnings.simplefilter("ignore")
    {"run": run}[what](*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
