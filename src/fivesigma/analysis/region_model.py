"""Training: the events of the chosen region, and one model that scores each event by a fit that did not see it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from fivesigma.analysis.configuration import DIRECTIONS, Analysis, AnalysisSettings, Key, modifier_of
from fivesigma.analysis.ntuple_reader import Reader
from fivesigma.analysis.templates import Template
from fivesigma.datasets.events import Events
from fivesigma.datasets.stream import BACKGROUND, SIGNAL
from fivesigma.errors import InputError, did_you_mean, shortened
from fivesigma.estimators.make import MODELS, make_model
from fivesigma.learners import check_library
from fivesigma.learners.libraries import installed_library
from fivesigma.likelihood.shifts import Normalisation
from fivesigma.significance import AMS2

__all__ = ["GivenScore", "check_model", "make_region_model", "training_events", "training_systematics"]

# Parameters that every model takes, and those that the analysis sets itself.
_SHARED = ("utility", "b_reg", "negative_weights", "random_state", "cut")
_OURS = (
    *("cv", "by", "checkpoint", "checkpoint_every", "verbose", "n_jobs", "pos_label", "refit", "estimator"),
    *("weight_estimator", "cascade", "n_repeats", "memory", "cache"),
)


def training_events(reader: Reader, templates: Iterable[Template]) -> list[Events]:
    """Events of each template and file that has some, with the weights that the fit expects."""
    parts = []
    for template in templates:
        texts = [] if template.weight is None else [template.weight]
        read = [(reader.read(tree, template.owner, texts, cut=template.condition)) for tree in template.trees]
        parts += [reader.events(entries, template) for entries in read if len(entries)]
    return parts


def training_systematics(
    reader: Reader,
    analysis: Analysis,
    regions: Sequence[Mapping[str, Any]],
    templates: Sequence[Template],
    present: Collection[str],
) -> dict[str, tuple[Events, Events | None] | Normalisation]:
    """Systematics of some regions as a training takes them; those with one modifier move together.

    A sample that a systematic changes in one of the regions is as in the nominal events in the others. Only samples of
    which there are events count.
    """
    by_key = {template.key: template for template in templates}
    read = cache(lambda key: training_events(reader, [by_key[key]]))
    found: dict[str, tuple[Events, Events | None] | Normalisation] = {}
    acting: dict[str, dict[tuple[str, str], Mapping[str, Any]]] = {}
    for region in regions:
        for systematic, sample in analysis.moved(region):
            if sample in present:
                acting.setdefault(modifier_of(systematic), {})[region["Name"], sample] = systematic
    for name, moved in acting.items():
        samples = list(dict.fromkeys(sample for _, sample in moved))
        places = [key[:2] for key in by_key if key[1] in samples and key[2] is None]
        first, *others = {s["Name"]: s for s in moved.values()}.values()
        size = first["Up"].get("Normalization", 0.0)
        if not others and moved.keys() == set(places) and size != 0 and first["Down"].get("Normalization") == -size:
            found[name] = Normalisation(samples, min(abs(size), 1.0))
            continue
        sides: list[Events | None] = []
        for direction in DIRECTIONS:
            mirrored = [s["Name"] for s in moved.values() if s[direction].get("Symmetrize", False)]
            if len(mirrored) == len(moved):
                sides.append(None)
                continue
            parts: list[Events] = []
            for place in places:
                own = moved.get(place)
                sources: list[tuple[float, Key]] = [(1.0, (*place, None, None))]
                # A mirrored side beside one that is not stands still: a training has no negative events.
                if own is not None and own["Name"] not in mirrored:
                    sources = analysis.sources(own, *place, direction)
                parts += [replace(e, weight=share * e.weight) for share, key in sources for e in read(key)]
            sides.append(Events.concatenate(parts))
        up, down = sides
        assert up is not None  # which is never mirrored
        found[name] = up, down
    return found


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
    return make_model(
        model,
        checkpoint=checkpoint,
        **{"random_state": 0, "utility": "ams2", **settings.model_options, **ours},
    )


class GivenScore(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A score that exists already, where a report wants a model."""

    def __init__(self, score: str = "", cut: float = 0.0, random_state: int | None = None) -> None:
        self.score, self.cut, self.random_state = score, cut, random_state
        self.cut_, self.utility_ = cut, AMS2()
        self.classes_ = np.array([BACKGROUND, SIGNAL])
        self.history_: list[Any] = []


def check_model(settings: AnalysisSettings) -> None:
    """Refuse parameters that the training would refuse when it begins."""
    if settings.score is not None or settings.model not in MODELS:
        return
    model = make_region_model(settings, checkpoint=None, n_jobs=None, verbose=0)
    model.__fivesigma_check__()
    if settings.model_options.get("params"):
        library = settings.model_options.get("library", "auto")
        check_library(installed_library() if library == "auto" else library, settings.model_options["params"])
    for _, member in getattr(model, "estimators", ()):
        member.__fivesigma_check__()
