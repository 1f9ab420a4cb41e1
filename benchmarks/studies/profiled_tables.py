"""Tables from what ``profiled.py`` has measured."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from benchmarks.studies.profiled import N_CATEGORIES, N_SIZES, RESULTS, SIZES
from fivesigma._types import Array

SAMPLES = {
    "pythia-8000": "Pythia, 8,000",
    "pythia-25000": "Pythia, 25,000",
    "pythia-125000": "Pythia, 125,000",
    "toy-8000": "toy, 8,000",
    "toy-25000": "toy, 25,000",
    "toy-125000": "toy, 125,000",
}

Results = dict[str, dict[str, dict[str, Any]]]


def column(results: Results, part: str, key: str) -> Array:
    """One figure of all seeds; NaN where it was not measured."""
    return np.array([row.get(key, np.nan) for _, row in sorted(results[part].items())], dtype=np.float64)


def mean(values: Array) -> str:
    return "-" if np.isnan(values).any() else f"{values.mean():.2f}"


def gain(values: Array) -> str:
    if np.isnan(values).any():
        return "-"
    error = values.std(ddof=1) / np.sqrt(values.size) if values.size > 1 else np.nan
    return f"{values.mean():+.2f} ± {error:.2f}" if values.size > 1 else f"{values.mean():+.2f} (one seed)"


def gains_table(results: Results) -> str:
    """Significance of all scores."""
    lines = [
        "| events | K | naive | plain | `AutoClassifier` | **t** | gain | over `AutoClassifier` | limit | seeds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    keys = ("plain naive", "plain knowing", "auto knowing", "t knowing", "plain limit")
    for part, name in SAMPLES.items():
        for k in N_CATEGORIES if part in results else ():
            naive, plain, auto, t, limit = (column(results, part, f"{key} {k}") for key in keys)
            lines.append(
                f"| {name} | {k} | {mean(naive)} | {mean(plain)} | {mean(auto)} | **{mean(t)}** | {gain(t - plain)} "
                f"| {gain(t - auto)} | {mean(limit)} | {t.size} |"
            )
    return "\n".join(lines)


def simulation_table(results: Results) -> str:
    """The same with the statistics of the simulation, as pyhf's staterror."""
    lines = [
        "| events | K | plain | `AutoClassifier` | **t** | gain | over `AutoClassifier` |",
        "|---|---|---|---|---|---|---|",
    ]
    for part, name in SAMPLES.items():
        for k in N_CATEGORIES if part in results else ():
            plain, auto, t = (column(results, part, f"{key} simulation {k}") for key in ("plain", "auto", "t"))
            lines.append(
                f"| {name} | {k} | {mean(plain)} | {mean(auto)} | **{mean(t)}** | {gain(t - plain)} "
                f"| {gain(t - auto)} |"
            )
    return "\n".join(lines)


def exact_table(results: Results) -> str:
    """Share of the significance without binning that fifty categories have."""
    share = [column(results, "exact", key) / column(results, "exact", "unbinned") for key in ("t", "s/b")]
    return (
        f"On {share[0].size} toys whose densities are known, 50 optimal categories of t have "
        f"{100 * share[0].min():.2f} to {100 * share[0].max():.2f} % of the significance without binning; those of s/b "
        f"have {100 * share[1].min():.0f} to {100 * share[1].max():.0f} %."
    )


def sizes_of(results: Results) -> list[tuple[float, str]]:
    """Sizes of the systematics that were run, and their parts; zero is a run without any."""
    parts = [(0.0, "none"), *((size, f"size-{size:g}") for size in SIZES), (1.0, f"pythia-{N_SIZES}")]
    return sorted((size, part) for size, part in parts if part in results)


def sizes_table(results: Results) -> str:
    """Ten categories, against the size of all systematics."""
    lines = [
        "| size | plain score, naive edges | plain score, edges with systematics | t | gain |",
        "|---|---|---|---|---|",
    ]
    for size, part in sizes_of(results):
        naive, plain, t = (column(results, part, key) for key in ("plain naive 10", "plain knowing 10", "t knowing 10"))
        lines.append(f"| {size:g} | {mean(naive)} | {mean(plain)} | {mean(t)} | {gain(t - plain)} |")
    return "\n".join(lines)


def thirty_sentence(results: Results) -> str:
    """What thirty systematics gain on other events."""
    plain, t = (column(results, "thirty", f"{score} knowing 10") for score in ("plain", "t"))
    return (
        f"On other events, with {N_SIZES:,} to train on and ten categories, the plain score has {mean(plain)} and t "
        f"{mean(t)}: {gain(t - plain)} ({t.size} seeds)."
    )


def thirty_table(results: Results) -> str:
    """Seconds of one fit with no, four and thirty systematics, and what held-out events say of both scores."""
    lines = [
        "| events | seconds without | four systematics | thirty | ratio | left out of thirty | held-out: plain | t |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for n, row in sorted(results["thirty-time"].items(), key=lambda item: int(item[0])):
        seconds = " | ".join(f"{row[key]:.1f}" for key in ("none", "four", "thirty"))
        held_out = f"{row['plain']:.2f} | {row['t']:.2f}"
        lines.append(f"| {int(n):,} | {seconds} | {row['thirty'] / row['none']:.1f} | {row['left out']} | {held_out} |")
    return "\n".join(lines)


def tables() -> dict[str, str]:
    """All tables as Markdown."""
    results: Results = json.loads(RESULTS.read_text())
    makers = {
        "gains": gains_table,
        "simulation": simulation_table,
        "exact": exact_table,
        "sizes": sizes_table,
        "thirty": thirty_table,
        "thirty-gain": thirty_sentence,
    }
    return {name: make(results) for name, make in makers.items()}
