"""Doors for filled histograms: fine bins of a workspace, or of templates, merged as the fit needs them."""

from __future__ import annotations

from fivesigma.rebinning.rebinned import Rebinned, rebin

__all__ = ["Rebinned", "rebin"]
