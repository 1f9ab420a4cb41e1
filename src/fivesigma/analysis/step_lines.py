"""What each step found, in lines for a terminal and as a section of the report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from fivesigma.analysis.configuration import QUANTITY
from fivesigma.analysis.counting import table
from fivesigma.analysis.step_record import Record
from fivesigma.reporting import Section

__all__ = ["condensed", "expectation_section", "impacts_table", "lines", "waterfall_table", "yields_table"]

_AID = (
    "Systematic uncertainties and the statistics of the simulation are profiled. The first number is from edges that "
    "were chosen without the fold of the events that fill them. The number in sample is from the edges of the fit on "
    "the events that chose them, and tends to be too high. The sections below show the model at one cut."
)


_MANY = 4  # notes of one kind that become one line


def lines(step: str, record: Record, *, goal: str, blind: Sequence[str]) -> list[str]:
    """Describe what a step found; `blind` are the regions whose data are hidden."""
    found, folder, what = record[step], record.folder, QUANTITY[goal]
    notes = [f"note: {note}" for note in condensed(found.get("notes", []))]
    if step == "read":
        hidden = [f"data in region {region!r} are blinded" for region in blind]
        return [*found["normalisation"], table(found["yields"]), *hidden, *notes]
    if step == "train":
        return list(found["model"])
    if step == "categorise":
        quoted, seen, other = found["cross_fitted"], found["in_sample"][what], found["plain"]
        path = " -> ".join(f"{value:.3f} ({name})" for name, value in quoted["waterfall"])
        together = found["all_regions"]
        where = {"": ""} if len(found["edges"]) == 1 else {name: f" of {name}" for name in found["edges"]}
        out = [*notes]
        for text, edges in zip(where.values(), found["edges"].values(), strict=True):
            out.append(f"edges{text} {', '.join(f'{float(edge):.4g}' for edge in edges)}")
        out.append(f"expected {what} {quoted[what]:.3f} by cross-fitted edges ({seen:.3f} in sample): {path}")
        if other is not None:
            out.append(f"with the plain score {other[what]:.3f} by cross-fitted edges of its own")
        return [*out, f"with all regions {together['cross_fitted']:.3f} ({together['in_sample']:.3f} in sample)"]
    if step == "score":
        return [f"ntuples in {folder / 'ntuples'}"]
    if step == "workspace":
        expected = ", ".join(found["expected_data"])
        fit = f"mu = {found['mu']:.3f} +- {found['error']:.3f}, expected {what} {found[what]:.3f}"
        return [
            *notes,
            *([f"expected data in {expected}"] if expected else []),
            f"{fit} (all regions); workspace in {folder / 'workspace.json'}",
            _same_bins(record["categorise"]),
        ]
    pages = [name for name in record.steps[step].outputs if name.endswith(".html")]
    return [*notes, *(f"report in {folder / name}" for name in pages)]


def condensed(notes: Sequence[str]) -> list[str]:
    """Notes, of which many of one kind are one line; they are of one kind if only names and numbers differ.

    Examples
    --------
    >>> condensed([f"systematic 'sf{k}' moves no background" for k in range(30)])
    ["systematic 'sf0' moves no background (and 29 more like this, in analysis.json)"]
    """
    kinds: dict[str, list[str]] = {}
    for note in notes:
        kind = re.sub(r"^\S+ (up|down)\b|'[^']*'|[-+]?\d[\d.,e+-]*", "*", note)
        kinds.setdefault(kind, []).append(note)
    return [
        line
        for same in kinds.values()
        for line in (
            same if len(same) < _MANY else [f"{same[0]} (and {len(same) - 1} more like this, in analysis.json)"]
        )
    ]


def _same_bins(categorise: dict[str, Any]) -> str:
    """How our expectation compares with that of the fit."""
    ours = categorise["all_regions"]
    return (
        f"for the same bins we have {ours['in_sample']:.3f}, and {ours['as_pyhf']:.3f} with pyhf's one statistical "
        "factor for signal and background of a bin, whose relative error is that of their sum"
    )


def expectation_section(categorise: dict[str, Any], workspace: dict[str, Any], *, goal: str, blind: bool) -> Section:
    """What is expected, before the verdict of a report; `blind` says that data of chosen regions are expected ones."""
    what = QUANTITY[goal]
    quoted, seen = (categorise[which][what] for which in ("cross_fitted", "in_sample"))
    n = sum(map(len, categorise["s"].values()))
    many = "1 category" if n == 1 else f"{n} categories"
    data = "expected data in the chosen regions" if blind else "data"
    other = categorise["plain"]
    plain = () if other is None else (f"The plain score has {other[what]:.3f}, by cross-fitted edges of its own.",)
    unit, of_mu = ("σ ", "") if goal == "discovery" else ("", " of the signal strength")
    return Section(
        "expectation",
        "Expectation",
        headline=(f"{quoted:.3f}", f"{unit}expected {what}{of_mu} of {many}, in sample {seen:.3f}"),
        text=(
            _AID,
            *plain,
            f"The workspace of all regions has an expected {what} of {workspace[what]:.3f}; {_same_bins(categorise)}.",
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


def waterfall_table(steps: Sequence[Sequence[Any]], what: str) -> str:
    """Significance, or the uncertainty of mu, after each uncertainty as a LaTeX table."""
    changes = ["", *(f"${after[1] - before[1]:+.3f}$" for before, after in pairwise(steps))]
    body = [[_escaped(name), change, f"{z:.3f}"] for (name, z), change in zip(steps, changes, strict=True)]
    return _tabular(["source", "change", what], body)


def impacts_table(rows: Sequence[dict[str, Any]]) -> str:
    """Impacts of the parameters on the signal strength as a LaTeX table, the largest first."""
    ordered = sorted(rows, key=lambda row: -max(abs(row["postfit_up"]), abs(row["postfit_down"])))
    body = [[_escaped(name), *(f"${value:+.4f}$" for value in values)] for name, *values in map(dict.values, ordered)]
    return _tabular([_escaped(key) for key in rows[0]], body)


def _tabular(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [" & ".join(row) + r" \\" for row in (heads, *rows)]
    begin = rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}"
    return "\n".join([begin, r"\hline", lines[0], r"\hline", *lines[1:], r"\hline", r"\end{tabular}", ""])


def _escaped(text: str) -> str:
    """Text in which nothing is a command of LaTeX."""
    plain = "".join({"\\": "/", "~": "-", "^": "-"}.get(letter, letter) for letter in text if letter.isprintable())
    return re.sub(r"([#$%&_{}])", r"\\\1", plain)
