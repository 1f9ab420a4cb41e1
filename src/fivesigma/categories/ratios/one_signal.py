"""Class probabilities of one signal and several backgrounds as one score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import AnyArray, Array
from fivesigma.categories.ratios.calibration import Ratios, fit_ratios
from fivesigma.categories.ratios.class_sample import Roles, check_sample, check_scores
from fivesigma.errors import InputError, did_you_mean
from fivesigma.likelihood.shifts import Systematics, Varied, with_variations
from fivesigma.yields import split_labels


@dataclass(frozen=True)
class OneRatio:
    """How class probabilities become the logarithm of the expected signal over the expected background."""

    processes: tuple[str, ...]  # names of the columns of the scores
    signal: str  # the one that is signal
    ratios: Ratios  # the calibration

    def of(self, scores: ArrayLike) -> Array:
        """One score per event, of class probabilities; what is one score already is returned as it is."""
        given = np.asarray(scores)
        if given.ndim < 2:
            return given
        return self.ratios.of(check_scores(given, len(self.processes)))[:, 0]

    def of_systematics(self, systematics: Systematics | None) -> Systematics | None:
        """Variations with one score per event."""
        if systematics is None:
            return None

        def of(_: str, varied: Varied) -> Varied:
            return varied if varied.score is None else replace(varied, score=self.of(varied.score))

        return with_variations(systematics, of)


def fit_ratio(  # noqa: PLR0917 - in the order of `categorise`
    scores: ArrayLike,
    y: ArrayLike | None,
    sample_weight: ArrayLike | None,
    process: ArrayLike | None,
    processes: Sequence[str] | None,
    pos_label: Any = None,
    *,
    calibrate: bool = True,
) -> OneRatio:
    """Find the signal among the columns and fit the calibration."""
    shape = np.shape(scores)
    for name, given in (("y", y), ("sample_weight", sample_weight), ("process", process), ("processes", processes)):
        if given is None:
            raise InputError(f"scores of shape {shape} need {name}={_MEANING[name]}")
    assert y is not None
    assert sample_weight is not None
    assert process is not None
    assert processes is not None
    columns = tuple(map(str, processes))
    signal, _ = split_labels(y, pos_label)
    labels: AnyArray = np.asarray(process).astype(np.str_)
    if labels.shape != signal.shape:
        raise InputError(f"process has shape {labels.shape} for {signal.size} events")
    named = np.unique(labels[signal]).tolist()
    if len(named) != 1 or named[0] not in columns:
        hint = did_you_mean(named[0], columns) if len(named) == 1 else ""
        raise InputError(
            f"the signal events are of {', '.join(map(repr, named))}, and one of the columns "
            f"{', '.join(map(repr, columns))} must be all of the signal{hint or '; see categorise_scores for several'}"
        )
    roles = Roles(columns, (named[0],))
    if named[0] in np.unique(labels[~signal]):
        raise InputError(f"process {named[0]!r} has signal and background events")
    sample = check_sample(scores, labels, sample_weight, roles)
    return OneRatio(columns, named[0], fit_ratios(sample, roles, calibrate=calibrate))


_MEANING = {
    "y": "the labels",
    "sample_weight": "the physics weights",
    "process": "the name of the process of each event",
    "processes": "the names of the columns",
}
