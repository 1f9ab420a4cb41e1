"""What each step found, in lines for a terminal and as a section of the report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from fivesigma.analysis.counting import table
from fivesigma.analysis.step_record import Record
from fivesigma.reporting import Section

__all__ = ["expectation_section", "lines", "waterfall_table", "yields_table"]

_AID = (
    "Systematic uncertainties and the statistics of the simulation are profiled. The first number is from edges that "
    "were chosen without the fold of the events that fill them. The number in sample is from the edges of the fit on "
    "the events that chose them, and tends to be too high. The sections below show the model at one cut."
)


def lines(step: str, record: Record, *, blind: str | None) -> list[str]:
    """Describe what a step found.

    Parameters
    ----------
    step : str
    record : Record
    blind : str or None
        Region whose data are hidden.
    """
    found, folder = record[step], record.folder
    notes = [f"note: {note}" for note in found.get("notes", [])]
    if step == "read":
        hidden = [] if blind is None else [f"data in region {blind!r} are blinded"]
        return [*found["normalisation"], table(found["yields"]), *hidden, *notes]
    if step == "train":
        return [found["model"]]
    if step == "categorise":
        quoted, seen = found["cross_fitted"], found["in_sample"]["significance"]
        path = " -> ".join(f"{value:.3f} ({what})" for what, value in quoted["waterfall"])
        together = found["all_regions"]
        return [
            *notes,
            f"edges {', '.join(f'{float(edge):.4g}' for edge in found['edges'])}",
            f"expected significance {quoted['significance']:.3f} by cross-fitted edges ({seen:.3f} in sample): {path}",
            f"with all regions {together['cross_fitted']:.3f} ({together['in_sample']:.3f} in sample)",
        ]
    if step == "score":
        return [f"ntuples in {folder / 'ntuples'}"]
    if step == "workspace":
        expected = ", ".join(found["expected_data"])
        fit = f"mu = {found['mu']:.3f} +- {found['error']:.3f}, expected significance {found['significance']:.3f}"
        return [
            *notes,
            *([f"expected data in {expected}"] if expected else []),
            f"{fit} (all regions); workspace in {folder / 'workspace.json'}",
        ]
    return [f"report in {folder / 'report.html'}"]


def expectation_section(categorise: dict[str, Any], workspace: dict[str, Any], *, blind: bool) -> Section:
    """What is expected, before the verdict of a report.

    Parameters
    ----------
    categorise, workspace : dict
        What these steps found.
    blind : bool
        Whether the data of the chosen region are expected ones.
    """
    quoted, seen = (categorise[which]["significance"] for which in ("cross_fitted", "in_sample"))
    many = "1 category" if len(categorise["s"]) == 1 else f"{len(categorise['s'])} categories"
    data = "expected data in the chosen region" if blind else "data"
    return Section(
        "expectation",
        "Expectation",
        headline=(f"{quoted:.3f}", f"σ expected significance of {many}, in sample {seen:.3f}"),
        text=(
            _AID,
            f"The workspace of all regions has an expected significance of {workspace['significance']:.3f} σ.",
            f"Fit to {data}: signal strength {workspace['mu']:.3f} ± {workspace['error']:.3f}.",
        ),
        waterfall=[(name, value) for name, value in categorise["cross_fitted"]["waterfall"]],
    )


def yields_table(rows: Sequence[dict[str, Any]]) -> str:
    r"""Yields and their statistical errors as a LaTeX table, a row for each sample and a column for each region.

    Examples
    --------
    >>> row = {"region": "SR_1", "sample": "V+jets", "entries": 100, "yield": 50.0, "effective": 25.0}
    >>> print(yields_table([row]))
    \begin{tabular}{lr}
    \hline
    sample & SR\_1 \\
    \hline
    V+jets & $50.0 \pm 10.0$ \\
    \hline
    \end{tabular}
    <BLANKLINE>
    """
    regions, samples = (list(dict.fromkeys(row[key] for row in rows)) for key in ("region", "sample"))
    by_key = {(row["region"], row["sample"]): row for row in rows}

    def cell(region: str, sample: str) -> str:
        row = by_key.get((region, sample))
        if row is None:
            return "--"
        error = abs(row["yield"]) / row["effective"] ** 0.5 if row["effective"] > 0 else 0.0
        return f"${row['yield']:.1f} \\pm {error:.1f}$"

    body = [[_escaped(sample), *(cell(region, sample) for region in regions)] for sample in samples]
    return _tabular(["sample", *map(_escaped, regions)], body)


def waterfall_table(steps: Sequence[Sequence[Any]]) -> str:
    """Significance after each uncertainty as a LaTeX table."""
    changes = ["", *(f"${after[1] - before[1]:+.3f}$" for before, after in pairwise(steps))]
    body = [[_escaped(name), change, f"{z:.3f}"] for (name, z), change in zip(steps, changes, strict=True)]
    return _tabular(["uncertainty", "change", "significance"], body)


def _tabular(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [" & ".join(row) + r" \\" for row in (heads, *rows)]
    begin = rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}"
    return "\n".join([begin, r"\hline", lines[0], r"\hline", *lines[1:], r"\hline", r"\end{tabular}", ""])


def _escaped(text: str) -> str:
    """Text in which nothing is a command of LaTeX."""
    plain = "".join({"\\": "/", "~": "-", "^": "-"}.get(letter, letter) for letter in text if letter.isprintable())
    return re.sub(r"([#$%&_{}])", r"\\\1", plain)
