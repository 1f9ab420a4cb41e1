"""Yields: weights and labels of events, and what a selection keeps of them."""

from __future__ import annotations

from fivesigma.yields.checks import KNOWN_PAIRS, check_counts, check_size, check_weights, name_rows, split_labels
from fivesigma.yields.selection import (
    Processes,
    ProcessYields,
    Yields,
    class_sums,
    effective_count,
    number_names,
    number_processes,
    process_sums,
    process_yields,
    signal_and_background,
    significance_of,
    significance_or_nan,
    significance_or_zero,
    standard_errors,
    valid_yields,
    yields,
)
from fivesigma.yields.weights import NEGATIVE_WEIGHTS, balanced_class_weights, learner_weights, rescale, scale_factor

__all__ = [
    "KNOWN_PAIRS",
    "NEGATIVE_WEIGHTS",
    "ProcessYields",
    "Processes",
    "Yields",
    "balanced_class_weights",
    "check_counts",
    "check_size",
    "check_weights",
    "class_sums",
    "effective_count",
    "learner_weights",
    "name_rows",
    "number_names",
    "number_processes",
    "process_sums",
    "process_yields",
    "rescale",
    "scale_factor",
    "signal_and_background",
    "significance_of",
    "significance_or_nan",
    "significance_or_zero",
    "split_labels",
    "standard_errors",
    "valid_yields",
    "yields",
]
