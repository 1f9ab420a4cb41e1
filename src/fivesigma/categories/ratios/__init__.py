"""Ratios of signal to background density, from the class probabilities of a classifier."""

from __future__ import annotations

from fivesigma.categories.ratios.calibration import Ratios, fit_ratios
from fivesigma.categories.ratios.one_signal import OneRatio, fit_ratio
from fivesigma.categories.ratios.sample import Roles, Sample, check_sample

__all__ = ["OneRatio", "Ratios", "Roles", "Sample", "check_sample", "fit_ratio", "fit_ratios"]
