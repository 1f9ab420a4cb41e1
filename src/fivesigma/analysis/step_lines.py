"""What each step found, in lines for a terminal and as a section of the report."""

from __future__ import annotations

from typing import Any

from fivesigma.analysis.counting import table
from fivesigma.analysis.step_record import Record
from fivesigma.reporting import Section

__all__ = ["expectation_section", "lines"]

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
