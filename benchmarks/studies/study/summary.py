"""From the scores of finished runs to the figures of docs/validation/study.md: what is in results.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks.studies.protocol import (
    UTILITY,
    Steps,
    entering_steps,
    paired_gain,
    replicated,
    selection_steps,
    step_significance,
)
from benchmarks.studies.study.data import Source
from benchmarks.studies.study.runs import Cache, Run
from fivesigma._types import AnyArray, Array
from fivesigma.datasets import Events
from fivesigma.significance import Utility

N_BOOT = 200


class Measure(NamedTuple):
    """A utility and the range of selected shares over which it is averaged."""

    utility: Utility = UTILITY
    low: float = 0.10
    high: float = 0.20

    @property
    def steps(self) -> Steps:
        """How events enter the selection."""
        return partial(entering_steps, fractions=np.linspace(self.low, self.high, 41))


class Comparison(NamedTuple):
    """An arm and its baseline."""

    arm: str
    baseline: str
    seeds: tuple[int, ...]
    measure: Measure = Measure()
    has_cut: bool = True  # whether the arm's own cut was tuned for this score and utility


def compared(item: Comparison, source: Source, cache: Cache, blends: Sequence[int] = ()) -> dict[str, Any]:
    """Figures of one comparison: both measures, and the first measure of blends of so many seeds."""
    test, utility, replicas = source.test(), item.measure.utility, _replicas(source)
    groups = [[cache.scores(Run(source, "", name, k)) for k in item.seeds] for name in (item.arm, item.baseline)]
    facts = [[cache.facts[Run(source, "", name, k).key] for k in item.seeds] for name in (item.arm, item.baseline)]
    scores = [[rank for rank, _ in group] for group in groups]
    own: list[list[AnyArray]] = [[selected for _, selected in group] for group in groups]
    out: dict[str, Any] = {
        "arm": item.arm,
        "baseline": item.baseline,
        "seeds": len(item.seeds),
        "window": _measured(scores, test, item.measure.steps, utility, replicas),
        "time ratio": round(_ratio(facts, "seconds"), 3),
        "seconds": _mean(facts[0], "seconds"),
        "memory": facts[0][0]["memory"],
        "fraction": [round(float(np.mean(f["fraction"])), 4) for f in facts[0]],
        "fraction spread": round(float(np.std([x for f in facts[0] for x in f["fraction"]], ddof=1)), 4)
        if sum(len(f["fraction"]) for f in facts[0]) > 1
        else None,
    }
    if item.has_cut:
        out["own cut"] = _measured(own, test, selection_steps, utility, replicas)
    if "u" in facts[0][0]:
        out["u"] = [round(f["u"], 5) for f in facts[0]]
    for size in blends:
        n = len(item.seeds) // size
        if n:
            blended = [[np.mean(group[k * size : (k + 1) * size], axis=0) for k in range(n)] for group in scores]
            out[f"blend of {size}"] = _measured(blended, test, item.measure.steps, utility, replicas)
    return out


def mixed(parts: Mapping[str, range], baseline: Mapping[str, range], source: Source, cache: Cache) -> dict[str, Any]:
    """Figures of one blend of models of several arms against another of as many models."""
    measure = Measure()
    blends = [
        np.mean([cache.scores(Run(source, "", name, k))[0] for name, seeds in group.items() for k in seeds], axis=0)
        for group in (parts, baseline)
    ]
    names = [" + ".join(f"{len(seeds)} {name}" for name, seeds in group.items()) for group in (parts, baseline)]
    found = _measured([[b] for b in blends], source.test(), measure.steps, measure.utility, _replicas(source))
    return {"arm": names[0], "baseline": names[1], "window": found}


@lru_cache(maxsize=1)
def _replicas(source: Source) -> list[Array]:
    """Replicas that all comparisons of a source share."""
    return list(replicated(source.test(), N_BOOT))


def _measured(
    groups: Sequence[Sequence[AnyArray]], test: Events, steps: Steps, utility: Utility, replicas: Sequence[AnyArray]
) -> dict[str, Any]:
    ours, theirs = ([step_significance(steps(s), test, utility) for s in group] for group in groups)
    gain, error = paired_gain(groups[0], groups[1], test, steps, utility=utility, replicas=replicas)
    return {
        "value": round(float(np.mean(ours)), 4),
        "baseline": round(float(np.mean(theirs)), 4),
        "gain": round(gain, 4),
        "error": round(error, 4),
        "by seed": [round(float(d), 4) for d in np.subtract(ours, theirs)],
    }


def _ratio(facts: Sequence[Sequence[dict[str, Any]]], name: str) -> float:
    ours, theirs = ([float(f[name]) for f in group] for group in facts)
    return float(np.median(np.divide(ours, theirs)))


def _mean(facts: Sequence[dict[str, Any]], name: str) -> float:
    return round(float(np.mean([f[name] for f in facts])), 2)
