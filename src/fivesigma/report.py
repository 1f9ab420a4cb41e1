"""Deprecated name of `fivesigma.reporting`; ``fivesigma.report(model, events)`` is the function, and stays."""

from __future__ import annotations

import sys
import warnings

from fivesigma.reporting import Report, ReportData, data_hash, report

__all__ = ["Report", "ReportData", "data_hash", "report"]

warnings.warn("the module fivesigma.report is now called fivesigma.reporting", DeprecationWarning, stacklevel=2)

# An imported module becomes an attribute of its package, and would hide the function there: so the function, which
# knows the names of this module, takes its place.
for _name, _value in (("Report", Report), ("ReportData", ReportData), ("data_hash", data_hash), ("report", report)):
    setattr(report, _name, _value)
sys.modules[__name__] = report  # type: ignore[assignment]
