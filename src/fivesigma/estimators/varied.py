"""Variations of events as a fitted model scores them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fivesigma._types import BoolArray
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError
from fivesigma.likelihood.shifts import Normalisation, Systematics, Varied, with_variations
from fivesigma.scored.scored_events import signal_probability

__all__ = ["scored_variations"]


def scored_variations(
    model: Any, signal: BoolArray, systematics: Mapping[str, tuple[Any, Any] | Normalisation]
) -> Systematics:
    """Score varied events."""

    def one(name: str, moved: Any) -> Varied:
        if isinstance(moved, Varied):
            return moved if moved.y is None else replace(moved, y=_is_signal(model, name, moved.y))
        if isinstance(moved, Events):
            score = signal_probability(model, moved)  # also of a Pipeline, which does not take Events
            return Varied(score, moved.weight, _is_signal(model, name, moved.y), moved.process)
        if np.ndim(moved) == 1:
            return Varied(weight=moved)
        score = model.predict_proba(moved)[:, 1]
        if score.size != signal.size:
            raise InputError(f"systematics[{name!r}] has {score.size} events for {signal.size} nominal ones")
        return Varied(score=score)

    return with_variations(systematics, one)


def _is_signal(model: Any, name: str, y: Any) -> BoolArray:
    labels = np.asarray(y)
    unknown = ~np.isin(labels, model.classes_)
    if unknown.any():
        raise InputError(f"systematics[{name!r}] has labels that were not fitted: {labels[unknown].tolist()[:1]}")
    signal: BoolArray = labels == model.classes_[1]
    return signal
