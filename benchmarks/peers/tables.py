"""Tables from what ``inferno.py`` and ``fair_universe.py`` have measured."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from benchmarks.peers import fair_universe, inferno
from fivesigma._types import Array

ARMS = {
    "profiled": '`ProfiledClassifier(goal="measurement")`, ten categories, fit with pulls',
    "plain": "(a) plain score, ten bins of equal content, fit with pulls",
    "ignoring": "(b) the first one, fit that ignores the nuisances",
}


def with_error(values: Array) -> str:
    """Mean and standard error, if there are several values."""
    error = f" ± {values.std(ddof=1) / values.size**0.5:.2f}" if values.size > 1 else ""
    return f"{values.mean():.2f}{error}"


def inferno_rows(results: dict[str, Any]) -> list[str]:
    """Means and standard errors over seeds beside the published rows, and ratios to the limit."""
    lines = ["| | " + " | ".join(map(str, inferno.ROWS)) + " |", "|---|" + "---|" * len(inferno.ROWS)]
    for name, published in inferno.PUBLISHED.items():
        lines.append(f"| {name} | " + " | ".join(f"{value:.2f}" for value in published) + " |")
    limit = inferno.PUBLISHED["analytical likelihood (paper)"]
    of_row = {row: [one for key, one in results.items() if key.startswith(f"{row}/")] for row in inferno.ROWS}
    for bins in inferno.BINS:
        figures = {row: np.array([one[f"{bins} bins"] for one in found]) for row, found in of_row.items()}
        cells = [with_error(v) if v.size else "" for v in figures.values()]
        lines.append(f"| **fivesigma, {bins} bins** | " + " | ".join(cells) + " |")
        ratios = [f"{v.mean() / limit[row]:.3f}" if v.size else "" for row, v in figures.items()]
        lines.append(f"| the same, over the limit | {' | '.join(ratios)} |")
    lines.append("| seeds | " + " | ".join(str(len(found)) for found in of_row.values()) + " |")
    seconds = [f"{np.mean([one['training'] for one in found]):.0f} s" if found else "" for found in of_row.values()]
    return [*lines, "| training, one core | " + " | ".join(seconds) + " |"]


def fair_universe_rows(found: dict[str, Any], widths: dict[str, list[float]]) -> list[str]:
    """Width, coverage and score of each model, and how much wider (a) is in the same sets."""
    lines = ["| | width | coverage | challenge's score | half width expected at mu = 1 |", "|---|---|---|---|---|"]
    for name, text in ARMS.items():
        width, coverage, score, _ = found["scores"][name]
        errors = found["errors"][name]
        lines.append(
            f"| {text} | {width:.3f} ± {errors[0]:.3f} | {coverage:.3f} ± {errors[1]:.3f} | {score:.3f} "
            f"| {found['expected'][name]:.3f} |"
        )
    seconds = ", ".join(f"{name} {value:.0f} s" for name, value in found["seconds"].items())
    n = found["scores"]["profiled"][3]
    wider = with_error(np.array(widths["plain"]) - np.array(widths["profiled"]))
    said = f"{n:,} experiments; time on one core: {seconds}. Set by set, (a) is wider than the first by {wider}."
    return [*lines, "", said]


def elimination_rows(found: dict[str, Any]) -> list[str]:
    """Coverage where one thing after the other is as in the benchmark."""
    lines = ["| fit with | coverage | width | mean of fitted less true mu | spread |", "|---|---|---|---|---|"]
    for name, row in found.items():
        n_error = (row["coverage"] * (1 - row["coverage"]) / 1000) ** 0.5
        lines.append(
            f"| {name} | {row['coverage']:.3f} ± {n_error:.3f} | {row['width']:.2f} | {row['bias']:+.2f} "
            f"| {row['spread']:.2f} |"
        )
    return lines


def tables() -> dict[str, str]:
    """All tables as Markdown."""
    ours = json.loads(fair_universe.RESULTS.read_text())
    rows = {
        "inferno": inferno_rows(json.loads(inferno.RESULTS.read_text())),
        "fair-universe": fair_universe_rows(ours["comparison"], ours["widths"]),
        "elimination": elimination_rows(ours["elimination"]),
    }
    return {name: "\n".join(lines) for name, lines in rows.items()}
