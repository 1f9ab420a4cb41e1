"""Confirmation on events that no choice has seen: sets b and u of the simulation, and the real events cross-fitted."""

from __future__ import annotations

from typing import Any

from benchmarks.studies.study import arms
from benchmarks.studies.study.data import Source
from benchmarks.studies.study.runs import Cache, Run
from benchmarks.studies.study.screening import baseline
from benchmarks.studies.study.summary import Comparison, compared, mixed

FIVE, TEN = range(5), range(10)
SHORT = dict.fromkeys(
    ("plain, 30 trees", "grown, 30 trees", "ratio 38, 30 trees", "plain, depth 3", "grown, depth 3"), FIVE
)
ON_REAL = ("plain", "grown", "damping 0.9", "ratio 38", "u from train", "decomposed", "cut at zero", *list(SHORT)[:3])
FOLDED = {"plain, 4 folds": range(3), "u cross-fit": range(3)}
CHOSEN: dict[str, dict[str, range]] = {
    "unseen": {
        "plain": TEN,
        "grown": TEN,
        "ratio 38": FIVE,
        "decomposed": FIVE,
        "cut at zero": FIVE,
        **SHORT,
        **FOLDED,
    },
    "folds": dict.fromkeys(ON_REAL, range(3)) | FOLDED,
}
ASIDE = (
    ("grown", "ratio 38"),
    ("decomposed", "grown"),
    ("cut at zero", "grown"),
    ("grown, 30 trees", "ratio 38, 30 trees"),
)

# Ten models each, against ten plain ones.
MIXTURES: tuple[dict[str, range], ...] = (
    {"grown": TEN},
    {"plain": FIVE, "grown": FIVE},
    {"plain": FIVE, "decomposed": FIVE},
    {"grown": FIVE, "decomposed": FIVE},
)


def runs(folder: str) -> list[Run]:
    """All runs, seed by seed."""
    return [
        Run(Source(kind, folder), arms.__name__, arm, k)
        for kind, chosen in CHOSEN.items()
        for k in TEN
        for arm, seeds in chosen.items()
        if k in seeds
    ]


def results(folder: str, cache: Cache) -> list[dict[str, Any]]:
    """Each arm against its baseline, and a few arms against each other."""
    out = []
    for kind, chosen in CHOSEN.items():
        pairs = [(arm, baseline(arm)) for arm in chosen if baseline(arm) != arm]
        for arm, base in [*pairs, *ASIDE]:
            common = tuple(k for k in chosen[arm] if k in chosen[base])
            found = compared(Comparison(arm, base, common), Source(kind, folder), cache, (3, 5, 10))
            out.append({"events": kind, **found})
    unseen = Source("unseen", folder)
    blends = [mixed(parts, {"plain": TEN}, unseen, cache) for parts in MIXTURES]
    return [*out, *({"events": "blends", **found} for found in blends)]
