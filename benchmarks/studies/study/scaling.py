"""Scaling: from 30,000 to 1,000,000 training events of the toy simulation, scored on 300,000 others.

At 100,000 events, where three samples share no event, the class ratio and the capacity of the trees are varied too: the
large test sample shows what screening cannot.
"""

from __future__ import annotations

from typing import Any

from benchmarks.studies.study import arms
from benchmarks.studies.study.data import Source
from benchmarks.studies.study.runs import Cache, Run
from benchmarks.studies.study.screening import baseline
from benchmarks.studies.study.summary import Comparison, compared

SEEDS = {30_000: range(3), 100_000: range(3), 300_000: range(2), 1_000_000: range(1)}
MAIN = ("plain", "grown", "ratio 38", "decomposed")
SIZES = ("depth 3", "30 trees", "60 trees", "200 trees")
MORE: dict[int, tuple[str, ...]] = {
    30_000: ("cut at zero",),
    100_000: (
        "cut at zero",
        *("ratio 150", "ratio 10", "ratio 1", "u fixed at end", "ratio 38, 30 trees"),
        *(f"{name}, {what}" for what in SIZES for name in ("plain", "grown")),
    ),
}
ASIDE = (("cut at zero", "grown"), ("grown", "u fixed at end"), ("grown, 30 trees", "ratio 38, 30 trees"))


def runs(folder: str) -> list[Run]:
    """All runs, the small ones first."""
    return [
        Run(Source(f"toy-{n}", folder), arms.__name__, arm, k)
        for n, seeds in SEEDS.items()
        for k in seeds
        for arm in (*MAIN, *MORE.get(n, ()))
    ]


def results(folder: str, cache: Cache) -> list[dict[str, Any]]:
    """Each arm against its baseline, by number of training events."""
    out = []
    for n, seeds in SEEDS.items():
        pairs = [(arm, baseline(arm)) for arm in (*MAIN, *MORE.get(n, ())) if baseline(arm) != arm]
        pairs += [pair for pair in ASIDE if all(arm in (*MAIN, *MORE.get(n, ())) for arm in pair)]
        for arm, base in pairs:
            found = compared(Comparison(arm, base, tuple(seeds)), Source(f"toy-{n}", folder), cache, (3,))
            out.append({"events": n, **found})
    return out
