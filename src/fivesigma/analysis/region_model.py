"""Training: the events of chosen regions, and one model that scores each event by a fit that did not see it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from fivesigma.analysis.all_regions import normalisations
from fivesigma.analysis.configuration import Analysis, Key, Side
from fivesigma.analysis.ntuple_reader import Reader
from fivesigma.analysis.settings import AnalysisSettings
from fivesigma.analysis.templates import Template
from fivesigma.datasets.events import Events
from fivesigma.datasets.stream import BACKGROUND, SIGNAL
from fivesigma.errors import InputError, did_you_mean, shortened
from fivesigma.estimators.make import MODELS, make_model
from fivesigma.learners.libraries import check_library, installed_library
from fivesigma.likelihood.shifts import Normalisation
from fivesigma.significance import AMS2

# Parameters that every model takes, and those that the analysis sets itself.
_SHARED = ("utility", "b_reg", "negative_weights", "random_state", "cut")
_OURS = (
    *("cv", "by", "checkpoint", "checkpoint_every", "verbose", "n_jobs", "pos_label", "refit", "estimator"),
    *("weight_estimator", "cascade", "n_repeats", "memory", "cache"),
)


def train_model(
    reader: Reader,
    analysis: Analysis,
    regions: Sequence[Mapping[str, Any]],
    templates: Sequence[Template],
    norms: Mapping[str, float | None],
    **options: Any,
) -> Any:
    """Train on the events of some regions, with their systematics if the model knows what to do with them.

    `templates` are those of simulated events in these regions, `norms` the widths of free norm factors.
    """
    model = make_region_model(analysis.settings, **options)
    events = Events.concatenate(training_events(reader, [t for t in templates if t.systematic is None]))
    known: dict[str, Any] = {}
    if analysis.profiled:
        present = set(np.asarray(events.process).tolist())
        by_key = {template.key: template for template in templates if template.sample in present}
        systematics = _training_systematics(reader, analysis, regions, by_key)
        known = {"systematics": systematics | normalisations(analysis, norms, regions)}
    with warnings.catch_warnings():
        # The file names the samples that a systematic changes.
        warnings.filterwarnings("ignore", ".* is taken as in the nominal events")
        return model.fit(events, **known)


def training_events(reader: Reader, templates: Iterable[Template]) -> list[Events]:
    """Events of each template and file that has some, with the weights that the fit expects."""
    parts = []
    for template in templates:
        texts = [] if template.weight is None else [template.weight]
        read = [reader.read(tree, template.owner, texts, cut=template.condition) for tree in template.trees]
        parts += [reader.events(entries, template) for entries in read if len(entries)]
    return parts


def _training_systematics(
    reader: Reader, analysis: Analysis, regions: Sequence[Mapping[str, Any]], by_key: Mapping[Key, Template]
) -> dict[str, tuple[Events, Events | None] | Normalisation]:
    """Systematics of some regions as a training takes them; those with one modifier move together.

    A sample that a systematic changes in one of the regions is as in the nominal events in the others.
    """
    read = cache(lambda key: training_events(reader, [by_key[key]]))
    places = [key[:2] for key in by_key if key[2] is None]
    found: dict[str, tuple[Events, Events | None] | Normalisation] = {}
    for name, own in analysis.variations(regions, places).items():
        up, down = (_common_factor(side) for side in (own.up, own.down))
        if up is not None and down is not None and up != 1.0 and np.isclose(up + down, 2.0):
            samples = list(dict.fromkeys(key[1] for _, key in own.up))
            found[name] = Normalisation(samples, min(round(abs(up - 1.0), 12), 1.0))
            continue
        above, below = (
            [replace(events, weight=share * events.weight) for share, key in side for events in read(key)]
            for side in (own.up, _without_negative(own.down))
        )
        found[name] = Events.concatenate(above), None if own.mirrored else Events.concatenate(below)
    return found


def _common_factor(side: Side) -> float | None:
    """The factor of nominal samples that a side consists of; None if it has varied events, or several factors."""
    shares = {share for share, _ in side}
    return shares.pop() if len(shares) == 1 and all(key[2] is None for _, key in side) else None


def _without_negative(side: Side) -> Side:
    """The same with nominal samples in place of mirrored ones, whose events would have negative weights."""
    mirrored = dict.fromkeys(key[:2] for share, key in side if share < 0)
    kept = [(share, key) for share, key in side if key[:2] not in mirrored]
    return [*kept, *((1.0, (*place, None, None)) for place in mirrored)]


def make_region_model(settings: AnalysisSettings, *, checkpoint: Path | None, n_jobs: int | None, verbose: int) -> Any:
    """Make the estimator of all folds that the block asks for; the estimator itself checks the values."""
    model = str(settings.model)
    usual = dict.fromkeys(("library", "n_trees", *MODELS[model]().get_params(deep=False), *_SHARED))
    known = [name for name in usual if name not in _OURS]
    for name in settings.model_options:
        if name not in known:
            hint = did_you_mean(name, known) or f"; known are {', '.join(known)}"
            raise InputError(f"ModelOptions has the unknown key {shortened(repr(name))}{hint}")
    ours = {"cv": settings.folds, "by": settings.event_number, "n_jobs": n_jobs, "verbose": verbose}
    ours |= {"goal": settings.goal} if model == "profiled" else {}
    given = {"random_state": 0, "utility": "ams2", **settings.model_options, **ours}
    return make_model(model, checkpoint=checkpoint, **given)


class GivenScore(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A score that exists already, where a report wants a model."""

    def __init__(self, score: str = "", cut: float = 0.0, random_state: int | None = None) -> None:
        self.score, self.cut, self.random_state = score, cut, random_state
        self.cut_, self.utility_ = cut, AMS2()
        self.classes_ = np.array([BACKGROUND, SIGNAL])
        self.history_: list[Any] = []


def check_model(settings: AnalysisSettings) -> None:
    """Refuse parameters that the training would refuse when it begins."""
    if not settings.trains:
        return
    model = make_region_model(settings, checkpoint=None, n_jobs=None, verbose=0)
    model.__fivesigma_check__()
    if settings.model_options.get("params"):
        library = settings.model_options.get("library", "auto")
        check_library(installed_library() if library == "auto" else library, settings.model_options["params"])
    for _, member in getattr(model, "estimators", ()):
        member.__fivesigma_check__()
