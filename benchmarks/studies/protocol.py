"""How learners are compared: events, measures, and the gain of one over another with its error.

The measure of a score is significance (AMS2, b_reg = 10) of test events, each class scaled to its full yield: the mean
over cuts that select 10 to 20 % of the events, which has little noise, or the value at the learner's own cut.

A gain is the mean over K seeds of the difference on the same test events. Its error is

    sqrt(V + S^2 / K),

V the variance of that mean over Poisson replicas of the test events (the same replicas for both learners and all seeds,
each class scaled to its full yield) and S the spread of the difference over seeds, which draw other training events,
other held-out events and other trees. A single blend of seeds has no S.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma import AMS2
from fivesigma._tools.files import written_whole
from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.challenge import B_REG, YIELDS
from fivesigma.cut.bootstrap import PoissonCounts
from fivesigma.datasets import Events, load_events
from fivesigma.significance import Utility
from fivesigma.yields import rescale

UTILITY = AMS2(b_reg=B_REG)
TOTALS = (YIELDS["s"], YIELDS["b"])
FRACTIONS = np.linspace(0.10, 0.20, 41)  # selected shares of events over which significance is averaged
N_BOOT = 400

Steps = Callable[[AnyArray], IntArray]


def scaled_part(events: Events, rows: IntArray) -> Events:
    """Some rows, scaled to the full yields."""
    return events[rows].scaled_to(**YIELDS)


def read_set(path: str, *names: str) -> Events:
    """Read one KaggleSet of a parquet file, or several as one."""
    cut = " || ".join(f"KaggleSet == '{name}'" for name in names)
    features = ["DER_*", "PRI_*"]
    events = load_events(path, features=features, weight="KaggleWeight", process="Process", cut=cut)
    return events.scaled_to(**YIELDS)


def read_real(path: str) -> Events:
    """Read events of the challenge's own file, which names no processes."""
    return as_measured(load_events(path, weight="KaggleWeight"))


def as_measured(events: Events) -> Events:
    """Give events the yields of the challenge, and their class as process where none is known."""
    process = events.is_signal if events.process is None else events.process
    return replace(events.scaled_to(**YIELDS), process=process)


def entering_steps(score: AnyArray, fractions: Array = FRACTIONS) -> IntArray:
    """Number of the first cut at which each event is selected, counted from the tightest."""
    rank = np.empty(score.size, dtype=np.intp)
    rank[np.argsort(-score, kind="stable")] = np.arange(score.size)
    return np.searchsorted(fractions * score.size, rank, side="right")


def selection_steps(selected: AnyArray) -> IntArray:
    """The same for one fixed selection: zero for the events that it keeps, one for the others."""
    return np.where(selected, 0, 1)


def ranks(score: Array) -> Array:
    """Share of events below each, by which scores of different fits are compared and blended."""
    return np.asarray(np.argsort(np.argsort(score, kind="stable")) / score.size)


def mean_significance(score: Array, events: Events) -> float:
    """Mean AMS over cuts that select 10 to 20 % of the events."""
    return step_significance(entering_steps(score), events)


def step_significance(steps: IntArray, events: Events, utility: Utility = UTILITY) -> float:
    """Mean significance over the cuts at which events enter in steps."""
    return _Entered(steps, events.is_signal).significance(events.weight, utility)


def paired_gain(
    scores: Sequence[AnyArray],
    baseline: Sequence[AnyArray],
    events: Events,
    steps: Steps,
    *,
    utility: Utility = UTILITY,
    replicas: Iterable[Array] | None = None,
) -> tuple[float, float]:
    """Mean gain over seeds and its error, as in the text above; `replicas` are those of `replicated`."""
    signal = events.is_signal
    ours, theirs = ([_Entered(steps(s), signal) for s in group] for group in (scores, baseline))

    def gains(weight: Array) -> Array:
        mine, base = ([e.significance(weight, utility) for e in group] for group in (ours, theirs))
        return np.subtract(mine, base)

    found = gains(events.weight)
    means = [gains(weight).mean() for weight in (replicated(events) if replicas is None else replicas)]
    spread = found.var(ddof=1) / found.size if found.size > 1 else 0.0
    return float(found.mean()), float(np.sqrt(np.var(means, ddof=1) + spread))


def gains_with_replicas(ours: IntArray, theirs: IntArray, events: Events, n_boot: int) -> list[float]:
    """Gain of one selection, given by its steps, over another: of the events, then of each of their replicas."""
    mine, base = (_Entered(steps, events.is_signal) for steps in (ours, theirs))
    weights = itertools.chain([events.weight], replicated(events, n_boot))
    return [mine.significance(w, UTILITY) - base.significance(w, UTILITY) for w in weights]


def replicated(events: Events, n_boot: int = N_BOOT) -> Iterator[Array]:
    """Weights of Poisson replicas of the events, each class scaled to its full yield."""
    source, signal = PoissonCounts(0, len(events)), events.is_signal
    for _ in range(n_boot):
        yield rescale(events.weight * source.draw(len(events)), signal, TOTALS)


class _Entered:
    """Events of each class that enter at any cut: the few of which replicas are summed."""

    def __init__(self, steps: IntArray, signal: BoolArray) -> None:
        self._n = max(int(steps.max()), 1)  # one cut that keeps all events leaves none for a later step
        inside = steps < self._n
        self._rows = [np.flatnonzero(inside & c) for c in (signal, ~signal)]
        self._steps = [steps[rows] for rows in self._rows]

    def significance(self, weight: Array, utility: Utility) -> float:
        """Mean significance over the cuts."""
        s, b = (
            np.cumsum(np.bincount(steps, weight[rows], minlength=self._n))
            for rows, steps in zip(self._rows, self._steps, strict=True)
        )
        return float(np.mean(utility.value(s, b)))


def add_missing(
    results: Path, wanted: Sequence[str], problems: Iterable[str], seeds: range, one_seed: Callable[[str, int], Any]
) -> None:
    """Measure every seed of every problem that a file of results lacks; it is written after each, so a call resumes.

    `wanted` are words of a command line: problems in place of all, and in the end a number of seeds.
    """
    if wanted and wanted[-1].isdigit():
        seeds = range(seeds.start, seeds.start + int(wanted[-1]))
    names = [name for name in wanted if not name.isdigit()] or list(problems)
    for seed in seeds:
        for name in names:
            found = json.loads(results.read_text()) if results.exists() else {}
            done = found.setdefault(name, {})
            if str(seed) not in done:
                done[str(seed)] = one_seed(name, seed)
                with written_whole(results) as path:
                    path.write_text(json.dumps(found, separators=(",", ":")) + "\n")
                print(name, seed, flush=True)
