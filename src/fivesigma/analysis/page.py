"""The section of the report that belongs to an analysis: what is expected, what it costs, and the fit."""

from __future__ import annotations

from typing import Any

from fivesigma.reporting import Section

__all__ = ["expectation_section"]

_AID = (
    "Systematic uncertainties and the statistics of the simulation are profiled. The first number is from edges that "
    "were chosen without the fold of the events that fill them. The number in sample is from the edges of the fit on "
    "the events that chose them, and tends to be too high. The sections below show the model at one cut."
)


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
    text = [_AID]
    if workspace["significance"] is not None:
        text.append(f"The workspace of all regions has an expected significance of {workspace['significance']:.3f} σ.")
    if workspace["mu"] is not None:
        data = "expected data in the chosen region" if blind else "data"
        text.append(f"Fit to {data}: signal strength {workspace['mu']:.3f} ± {workspace['error']:.3f}.")
    return Section(
        "expectation",
        "Expectation",
        headline=(f"{quoted:.3f}", f"σ expected significance of {many}, in sample {seen:.3f}"),
        text=tuple(text),
        waterfall=[(name, value) for name, value in categorise["cross_fitted"]["waterfall"]],
    )
