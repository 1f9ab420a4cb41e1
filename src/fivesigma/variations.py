"""Deprecated name of `fivesigma.systematics`."""

from __future__ import annotations

import warnings

from fivesigma.systematics import Varied, YieldShifts, profiled_significance, yield_shifts

__all__ = ["Varied", "YieldShifts", "profiled_significance", "yield_shifts"]

warnings.warn("fivesigma.variations is now called fivesigma.systematics", DeprecationWarning, stacklevel=2)
