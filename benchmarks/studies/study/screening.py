"""Screening: every setting on the halves of set t; what looks better than its baseline here goes to `confirm`."""

from __future__ import annotations

from typing import Any

from benchmarks.studies.study import arms
from benchmarks.studies.study.arms import ARMS, CONTROL, CUBIC, SYSTEMATIC
from benchmarks.studies.study.data import Source
from benchmarks.studies.study.runs import Cache, Run
from benchmarks.studies.study.summary import Comparison, Measure, compared

SEEDS = range(2)
# Those that are blended, and those whose cuts are compared, which has more noise.
BLENDED, CUTS = ("plain", "grown", "ratio 38", "decomposed"), ("cut at zero", "plain, smooth cut", "grown, smooth cut")
MORE_SEEDS = dict.fromkeys((*BLENDED, *CUTS), range(5))

# Cuts over which a utility is averaged: where the plain model has its best, seen on training events.
MEASURES = {"AMS3": Measure(CUBIC), "OnOff": Measure(CONTROL), "Gaussian": Measure(SYSTEMATIC, 0.17, 0.27)}


NO_CUT = ("path average", *MEASURES)
TOY_ONLY = ("60 trees",)
BLENDS = (2, 5)

# Is it the path or its end? Do remedies help the cascade itself?
ASIDE = (
    ("grown", "u fixed at end"),
    ("grown", "ratio 38"),
    ("grown, path average", "grown"),
    ("tight loss", "u fixed at end"),
    ("u cross-fit, smoothed", "u cross-fit"),
    ("damping 0.9", "grown"),
    ("plateau cut", "grown"),
    ("cut at zero", "grown"),
    ("grown, 200 trees", "grown"),
    ("plain, 200 trees", "plain"),
    ("grown, early stopping", "grown"),
    ("plain, early stopping", "plain"),
    ("grown, 30 trees", "ratio 38, 30 trees"),
    ("grown, smooth cut", "grown"),
    ("u cross-fit", "grown"),
)


def seeds(arm: str) -> range:
    """Seeds of an arm."""
    return range(0) if arm.endswith(TOY_ONLY) else MORE_SEEDS.get(arm, SEEDS)


def baseline(arm: str) -> str:
    """The plain model of the same trees and events."""
    if arm in ("plain, smooth cut", "plain, 4 folds"):
        return "plain"
    if arm.startswith("u cross-fit"):
        return "plain, 4 folds"
    _, comma, rest = arm.partition(", ")
    same = f"plain, {rest}"
    return same if comma and same in ARMS else "plain"


def runs(folder: str) -> list[Run]:
    """All runs, seed by seed, so that a stopped screening has a little of everything."""
    source = Source("halves", folder)
    return [Run(source, arms.__name__, arm, k) for k in range(5) for arm in ARMS if k in seeds(arm)]


def results(folder: str, cache: Cache) -> list[dict[str, Any]]:
    """Each arm against its baseline, by its own utility, and a few arms against each other."""
    pairs = [(arm, baseline(arm)) for arm in ARMS if baseline(arm) != arm and seeds(arm)]
    out = []
    for arm, base in [*pairs, *ASIDE]:
        measure = next((m for name, m in MEASURES.items() if arm.endswith(name)), Measure())
        common = tuple(k for k in seeds(arm) if k in seeds(base))
        out.append(
            compared(
                Comparison(arm, base, common, measure, not arm.endswith(NO_CUT)),
                Source("halves", folder),
                cache,
                BLENDS,
            )
        )
    return out
