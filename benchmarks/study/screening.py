"""Screening: every setting on the halves of set t; what looks better than its baseline here goes to `confirm`."""

from __future__ import annotations

from benchmarks.protocol import UTILITY
from benchmarks.study.arms import ARMS, CONTROL, CUBIC, SYSTEMATIC
from benchmarks.study.data import Source
from benchmarks.study.runs import Run
from benchmarks.study.summary import Comparison, Measure

SEEDS, MANY, FEW = range(3), range(10), range(2)
MANY_SEEDS = ("plain", "grown", "ratio 38", "decomposed")  # those that are blended by fives and tens
FEW_SEEDS = ("plain, 4 folds", "u cross-fit", "u cross-fit, smoothed")

# Cuts over which a utility is averaged: where the plain model has its best, seen on training events.
MEASURES = {"AMS3": Measure(CUBIC), "OnOff": Measure(CONTROL), "Gaussian": Measure(SYSTEMATIC, 0.17, 0.27)}


def seeds(arm: str) -> range:
    """Seeds of an arm."""
    return MANY if arm in MANY_SEEDS else FEW if arm in FEW_SEEDS else SEEDS


def baseline(arm: str) -> str:
    """The plain model of the same trees and events."""
    if arm.startswith("u cross-fit"):
        return "plain, 4 folds"
    _, comma, rest = arm.partition(", ")
    same = f"plain, {rest}"
    return same if comma and same in ARMS else "plain"


def runs(folder: str) -> list[Run]:
    """All runs, seed by seed, so that a stopped screening has a little of everything."""
    source = Source("halves", folder)
    return [Run(source, "benchmarks.study.arms", arm, k) for k in MANY for arm in ARMS if k in seeds(arm)]


def comparisons() -> list[Comparison]:
    """Each arm against its baseline, by its own utility."""
    out = []
    for arm in ARMS:
        measure = next((m for name, m in MEASURES.items() if arm.endswith(name)), Measure(UTILITY))
        if baseline(arm) != arm:
            out.append(Comparison(arm, baseline(arm), tuple(seeds(arm)), measure))
    return out
