"""Confirmation on events that no choice has seen: sets b and u of the simulation, and the real events cross-fitted."""

from __future__ import annotations

from typing import Any

from benchmarks.study import arms
from benchmarks.study.data import Source
from benchmarks.study.runs import Cache, Run
from benchmarks.study.screening import baseline
from benchmarks.study.summary import Comparison, compared

SEEDS = {"unseen": range(10), "folds": range(5)}
CHOSEN = {
    "unseen": ("plain", "grown", "ratio 38", "decomposed"),
    "folds": ("plain", "grown", "damping 0.9", "ratio 38", "u from train", "decomposed"),
}
ASIDE = (("grown", "ratio 38"),)


def runs(folder: str) -> list[Run]:
    """All runs, seed by seed."""
    return [
        Run(Source(kind, folder), arms.__name__, arm, k)
        for kind, seeds in SEEDS.items()
        for k in seeds
        for arm in CHOSEN[kind]
    ]


def results(folder: str, cache: Cache) -> list[dict[str, Any]]:
    """Each arm against its baseline, and the cascade against the ratio at which it ends."""
    out = []
    for kind, seeds in SEEDS.items():
        pairs = [(arm, baseline(arm)) for arm in CHOSEN[kind] if baseline(arm) != arm]
        for arm, base in [*pairs, *ASIDE]:
            found = compared(Comparison(arm, base, tuple(seeds)), Source(kind, folder), cache, (5, 10))
            out.append({"events": kind, **found})
    return out
