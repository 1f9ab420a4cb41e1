"""Ratios of signal to background density, from the class probabilities of a classifier."""

from __future__ import annotations

from fivesigma.categories.ratios.calibration import OneRatio, Ratios, fit_ratio, fit_ratios
from fivesigma.categories.ratios.class_sample import ClassSample, Roles, check_sample

__all__ = ["ClassSample", "OneRatio", "Ratios", "Roles", "check_sample", "fit_ratio", "fit_ratios"]
