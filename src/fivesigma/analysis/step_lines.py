"""What each step found, in lines for a terminal."""

from __future__ import annotations

from fivesigma.analysis.counting import table
from fivesigma.analysis.step_record import Record

__all__ = ["lines"]


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
        return [table(found["yields"]), *hidden, *notes]
    if step == "train":
        return [found["model"]]
    if step == "categorise":
        quoted, seen = found["cross_fitted"], found["in_sample"]["significance"]
        path = " -> ".join(f"{value:.3f} ({what})" for what, value in quoted["waterfall"])
        return [
            f"edges {', '.join(f'{float(edge):.4g}' for edge in found['edges'])}",
            f"expected significance {quoted['significance']:.3f} by cross-fitted edges ({seen:.3f} in sample): {path}",
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
