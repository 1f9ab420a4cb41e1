"""A net in `AutoClassifier`: the same fits with and without it, on events that nothing was tuned on.

``python -m benchmarks.studies.auto_net run DATA [PROBLEM ...] [SEEDS]`` trains, and adds to
benchmarks/studies/auto_net.json after every seed: it can be killed, and the same call resumes. Problems are those of
`benchmarks.studies.auto`, with other seeds: the training events are new.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.studies.auto import N_BOOT, PROBLEMS, Recorded, mean_gain
from benchmarks.studies.protocol import (
    UTILITY,
    add_missing,
    entering_steps,
    gains_with_replicas,
    selection_steps,
    step_significance,
)
from fivesigma._types import AnyArray, IntArray
from fivesigma.datasets import Events
from fivesigma.estimators.auto import NET
from fivesigma.estimators.blended import WINDOW, choose_blend, held_out_scores
from fivesigma.estimators.split_steps import TuningEvents

RESULTS = Path(__file__).parent / "auto_net.json"
FIRST_SEED, SEEDS = 20, 5
BEFORE, AFTER, EVEN = "without a net", "with a net", "with a net like any other member"


def train_both(train: Events, X: AnyArray, seed: int) -> tuple[dict[str, Any], dict[str, tuple[Any, Any]]]:
    """Train once; return notes, and scores and selections with and without the net, also at an even weight."""
    shared: dict[str, Any] = {"utility": UTILITY, "random_state": seed, "n_jobs": 1}
    if (train.weight < 0).any():
        shared["negative_weights"] = "zero"
    start = time.perf_counter()
    auto = Recorded(net=True, **shared).fit(train)
    seconds = time.perf_counter() - start
    sample, fits, root = auto.recorded
    scores = held_out_scores([fit for fit in fits if fit.task.name != NET], sample.signal.size)
    gauge = TuningEvents.of(sample, np.arange(sample.signal.size), auto.utility_)
    members = {BEFORE: choose_blend(scores, gauge, root).members, AFTER: tuple(auto.held_out_scores_)}
    everything = tuple(dict.fromkeys(fit.task.name for fit in fits))
    of_members = auto.blending(everything).member_scores(X)
    found = {}
    for name, chosen in (*members.items(), (EVEN, members[AFTER])):
        model = auto.blending(chosen, None if name == EVEN else NET)
        score = model.blend_([of_members[member] for member in chosen])
        found[name] = score, score >= model.cut_
    net = next(fit.model for fit in fits if fit.task.name == NET)
    of_net = sum(r.seconds for fit in fits if fit.task.name == NET for r in fit.model.history_)
    momenta = len(net.models_[0].estimator.inputs_.momenta)
    notes = {"choice": auto.choice_, "members": members, "seconds": seconds, "of net": of_net, "momenta": momenta}
    return notes, found


def one_seed(problem: str, data: str, seed: int) -> dict[str, Any]:
    """Train on the events of one seed, and measure both models on the test events."""
    parts, test = PROBLEMS[problem](data, seed)
    steps: dict[tuple[str, str], IntArray] = {}
    notes = []
    for train, rows in parts:
        note, found = train_both(train, test.X[rows], seed)
        notes.append(note)
        window = np.clip(WINDOW * found[BEFORE][1].mean(), 0, 1)
        for name, (score, selected) in found.items():
            for what, made in (("own", selection_steps(selected)), ("over", entering_steps(score, window))):
                steps.setdefault((name, what), np.zeros(len(test), dtype=np.intp))[rows] = made
    measured = {
        what: {
            "z": [step_significance(steps[name, what], test) for name in (BEFORE, AFTER)],
            "gains": np.round(gains_with_replicas(steps[AFTER, what], steps[BEFORE, what], test, N_BOOT), 4).tolist(),
            "over even": np.round(gains_with_replicas(steps[AFTER, what], steps[EVEN, what], test, N_BOOT), 4).tolist(),
        }
        for what in ("own", "over")
    }
    return {"notes": notes, **measured}


def run(data: str, *wanted: str) -> None:
    """Train every seed of every problem that is not in the results yet, seed by seed."""
    seeds = range(FIRST_SEED, FIRST_SEED + SEEDS)
    add_missing(RESULTS, wanted, PROBLEMS, seeds, lambda problem, seed: one_seed(problem, data, seed))


def tables() -> dict[str, str]:
    """The table as Markdown."""
    results = json.loads(RESULTS.read_text())
    return {"gains": "\n".join(_rows(results)), "weight": "\n".join(_rows_of_weight(results))}


def _rows(results: dict[str, Any]) -> Iterator[str]:
    """Both models on each problem, the paired gain, and the share of the net in the time."""
    both = "without | with | gain"
    yield f"| problem (seeds) | own cut: {both} | over cuts: {both} | blended | time of the net |"
    yield "|" + " --- |" * 9
    errors: dict[str, list[tuple[float, float]]] = {"own": [], "over": []}
    for problem, seeds in results.items():
        cells = []
        for what, pairs in errors.items():
            z = np.mean([found[what]["z"] for found in seeds.values()], axis=0)
            pairs.append(mean_gain([found[what]["gains"] for found in seeds.values()]))
            cells += [f"{z[0]:.3f}", f"{z[1]:.3f}", "{:+.3f} ± {:.3f}".format(*pairs[-1])]
        notes = [note for found in seeds.values() for note in found["notes"]]
        taken = sum(NET in note["members"][AFTER] for note in notes)
        share = np.median([note["of net"] / note["seconds"] for note in notes])
        yield f"| {problem} ({len(seeds)}) | {' | '.join(cells)} | {taken} of {len(notes)} | {share:.0%} |"
    means = [_mean(pairs) for pairs in errors.values()]
    yield f"| **mean** | | | {means[0]} | | | {means[1]} | | |"


def _rows_of_weight(results: dict[str, Any]) -> Iterator[str]:
    """What the net gains with the weight of one half over that of any other member, from the same fits."""
    yield f"| a half less even | {' | '.join(results)} | mean |"
    yield "|" + " --- |" * (len(results) + 2)
    for what, words in (("own", "own cut"), ("over", "over cuts")):
        pairs = [mean_gain([found[what]["over even"] for found in seeds.values()]) for seeds in results.values()]
        yield f"| {words} | {' | '.join('{:+.3f} ± {:.3f}'.format(*pair) for pair in pairs)} | {_mean(pairs)} |"


def _mean(pairs: list[tuple[float, float]]) -> str:
    gain, error = np.array(pairs).T
    return f"{gain.mean():+.3f} ± {np.sqrt(np.square(error).sum()) / gain.size:.3f}"


def main(what: str, *arguments: str) -> None:
    """See the module."""
    warnings.simplefilter("ignore")
    {"run": run}[what](*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
