"""From ntuples to a fitted workspace: training, categories, templates and the fit from one file."""

from __future__ import annotations

from fivesigma.analysis.step_record import Record
from fivesigma.analysis.steps import analyse

__all__ = ["Record", "analyse"]
