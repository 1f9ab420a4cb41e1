"""Training: the events of the chosen region, and one model that scores each event by a fit that did not see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fivesigma.analysis.reading import Reader, region_events
from fivesigma.analysis.settings import Settings
from fivesigma.analysis.templates import Template
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError, did_you_mean
from fivesigma.estimators.auto import AutoClassifier
from fivesigma.estimators.decomposed import DecomposedClassifier
from fivesigma.estimators.grown import GrownCascadeClassifier
from fivesigma.estimators.pool import CascadePool
from fivesigma.estimators.retrained import CascadeClassifier

__all__ = ["make_model", "training_events"]

# Parameters that belong to all folds together, and those that the analysis sets itself.
_SHARED = ("utility", "b_reg", "negative_weights", "random_state", "cut")
_OURS = (
    *("cv", "by", "checkpoint", "verbose", "n_jobs", "pos_label", "refit", "estimator", "weight_estimator"),
    *("cascade", "n_repeats"),
)


def training_events(reader: Reader, templates: Sequence[Template], signal: Sequence[str]) -> Events:
    """Simulated events of the chosen region, with the weights of the experiment.

    Parameters
    ----------
    reader : Reader
    templates : sequence of Template
        Nominal ones of the chosen region.
    signal : sequence of str
        Samples that are signal.
    """
    parts = [
        reader.events(entries, weight, signal=template.sample in signal, sample=template.sample)
        for template in templates
        for entries, weight in region_events(reader, template)
    ]
    filled = [part for part in parts if len(part)]
    if not filled:
        raise InputError(f"no simulated event is in region {templates[0].region!r}: {templates[0].condition}")
    return Events.concatenate(filled)


def make_model(settings: Settings, *, checkpoint: Path | None, n_jobs: int | None, verbose: int) -> Any:
    """Make the estimator of all folds that the block asks for."""
    shared: dict[str, Any] = {"random_state": 0, "utility": "ams2"}
    shared |= {name: value for name, value in settings.options.items() if name in _SHARED}
    shared |= {
        "cv": settings.folds,
        "by": settings.event_number,
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "n_jobs": n_jobs,
        "verbose": verbose,
    }
    own = {name: value for name, value in settings.options.items() if name not in _SHARED}
    if settings.model == "auto":
        return AutoClassifier(**_checked(AutoClassifier, own), **shared)
    kinds: Mapping[str, type[Any]] = {
        "plain": GrownCascadeClassifier,
        "grown": GrownCascadeClassifier,
        "retrained": CascadeClassifier,
        "decomposed": DecomposedClassifier,
    }
    member = kinds[settings.model]
    fixed = {"cascade": False} if settings.model == "plain" else {}
    # A single member needs no common scale: its probability is the score.
    return CascadePool([(settings.model, member(**_checked(member, own), **fixed))], blend="probability", **shared)


def _checked(kind: type[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that the estimator has; whole numbers as YAML may have read them."""
    known = [name for name in kind().get_params(deep=False) if name not in (*_OURS, *_SHARED)]
    for name in options:
        if name not in known:
            hint = did_you_mean(name, (*known, *_SHARED)) or f"; known are {', '.join((*known, *_SHARED))}"
            raise InputError(f"ModelOptions has the unknown key {name!r}{hint}")
    return dict(options)
