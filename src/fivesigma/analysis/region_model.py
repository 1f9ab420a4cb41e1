"""Training: the events of the chosen region, and one model that scores each event by a fit that did not see it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from fivesigma.analysis.configuration import DIRECTIONS, Analysis, AnalysisSettings, find_named, modifier_of
from fivesigma.analysis.ntuple_reader import Reader
from fivesigma.analysis.templates import Template
from fivesigma.datasets.events import Events
from fivesigma.datasets.stream import BACKGROUND, SIGNAL
from fivesigma.errors import InputError, did_you_mean, is_number, shortened
from fivesigma.estimators.make import MODELS, make_model
from fivesigma.likelihood.shifts import Normalisation
from fivesigma.significance import AMS2

__all__ = ["GivenScore", "check_model", "make_region_model", "training_events", "training_systematics"]

# Parameters that belong to all folds together, and those that the analysis sets itself.
_SHARED = ("utility", "b_reg", "negative_weights", "random_state", "cut")
_OURS = (
    *("cv", "by", "checkpoint", "checkpoint_every", "verbose", "n_jobs", "pos_label", "refit", "estimator"),
    *("weight_estimator", "cascade", "n_repeats", "memory", "cache"),
)
# Parameters of the boosting libraries that neither open files nor connections, by the names of both.
_PARAMS = (
    *("max_depth", "learning_rate", "eta", "max_leaves", "num_leaves", "grow_policy", "max_bin", "device"),
    *("min_child_weight", "min_child_samples", "min_data_in_leaf", "min_sum_hessian_in_leaf", "min_split_loss"),
    *("gamma", "min_gain_to_split", "max_delta_step", "sampling_method", "subsample", "bagging_fraction"),
    *("bagging_freq", "feature_fraction", "feature_fraction_bynode", "colsample_bytree", "colsample_bylevel"),
    *("colsample_bynode", "reg_lambda", "reg_alpha", "lambda", "alpha", "lambda_l1", "lambda_l2", "linear_tree"),
    *("extra_trees", "path_smooth", "max_cat_to_onehot", "min_data_in_bin", "deterministic"),
)
_MOST = 1e6  # trees, rounds, depth: more is an error of writing


def training_events(reader: Reader, analysis: Analysis, templates: Iterable[Template]) -> list[Events]:
    """Simulated events of each template and file that has some, with the weights that the fit expects."""
    parts = []
    for template in templates:
        texts = [] if template.weight is None else [template.weight]
        factor = 1.0
        if not template.is_data:
            region = find_named(analysis.regions, template.region)
            factor = analysis.norm_factor(region, find_named(analysis.simulated, template.sample))
        for tree in template.trees:
            entries = reader.read(tree, template.owner, texts, cut=template.condition)
            if len(entries):
                weight = entries.weight(template) * factor
                signal = template.sample in analysis.signal
                parts.append(reader.events(entries, weight, signal=signal, sample=template.sample))
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
    read = cache(lambda key: training_events(reader, analysis, [by_key[key]]))
    moves = [(region, s, sample) for region in regions for s, sample in analysis.moved(region)]
    acting = [move for move in moves if move[2] in present]
    found: dict[str, tuple[Events, Events | None] | Normalisation] = {}
    for name in dict.fromkeys(modifier_of(systematic) for _, systematic, _ in acting):
        moved = [(region["Name"], s, sample) for region, s, sample in acting if modifier_of(s) == name]
        own = {s["Name"]: s for _, s, _ in moved}
        samples = list(dict.fromkeys(sample for *_, sample in moved))
        there = {key[:2] for key in by_key if key[1] in samples and key[2] is None}
        first = moved[0][1]
        size = first["Up"].get("Normalization", 0.0)
        everywhere = there == {(region, sample) for region, _, sample in moved}
        if everywhere and len(own) == 1 and size != 0 and first["Down"].get("Normalization") == -size:
            found[name] = Normalisation(samples, min(abs(size), 1.0))
            continue
        sides: list[Events | None] = []
        for direction in DIRECTIONS:
            if direction == "Down" and all(s["Down"].get("Symmetrize", False) for s in own.values()):
                sides.append(None)
                continue
            parts: list[Events] = []
            for place in [key for key in by_key if key[:2] in there and key[2] is None]:
                systematic = next((s for region, s, sample in moved if (region, sample) == place[:2]), None)
                key = place if systematic is None else (*place[:2], systematic["Name"], direction)
                if systematic is not None and systematic["Type"] == "Normalization":
                    factor = 1.0 + systematic[direction]["Normalization"]
                    parts += [replace(nominal, weight=factor * nominal.weight) for nominal in read(place)]
                else:  # a mirrored side beside one that is not stands still
                    parts += read(key if key in by_key else place)
            sides.append(Events.concatenate(parts))
        up, down = sides
        assert up is not None  # which is never mirrored
        found[name] = up, down
    return found


def make_region_model(settings: AnalysisSettings, *, checkpoint: Path | None, n_jobs: int | None, verbose: int) -> Any:
    """Make the estimator of all folds that the block asks for."""
    shared: dict[str, Any] = {"random_state": 0, "utility": "ams2"}
    shared |= {name: value for name, value in settings.options.items() if name in _SHARED}
    shared |= {
        "cv": settings.folds,
        "by": settings.event_number,
        **({"goal": settings.goal} if settings.model == "profiled" else {}),
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "n_jobs": n_jobs,
        "verbose": verbose,
    }
    own = {name: value for name, value in settings.options.items() if name not in _SHARED}
    model = str(settings.model)
    return make_model(model, **_checked(MODELS[model], own), **shared)


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
    for _, member in getattr(model, "estimators", ()):
        member.__fivesigma_check__()


def _checked(kind: type[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that the estimator has and that reach nothing but its trees."""
    own = dict.fromkeys(("library", "n_trees", *kind().get_params(deep=False)))
    known = [name for name in own if name not in (*_OURS, *_SHARED)]
    for name, value in options.items():
        if name not in known:
            hint = did_you_mean(name, (*known, *_SHARED)) or f"; known are {', '.join((*known, *_SHARED))}"
            raise InputError(f"ModelOptions has the unknown key {shortened(repr(name))}{hint}")
        if name == "params":
            _check_params(value)
        else:
            _check_value(value, name)
    return dict(options)


def _check_params(params: Any) -> None:
    if not isinstance(params, dict):
        raise InputError(f"params of ModelOptions must be a mapping of parameters, got {shortened(repr(params))}")
    for name, value in params.items():
        if name not in _PARAMS:
            hint = did_you_mean(name, _PARAMS) or f"; known are {', '.join(_PARAMS)}"
            raise InputError(
                f"params of ModelOptions has the key {shortened(repr(name))}, which it does not take{hint}"
            )
        _check_value(value, f"params {name}")


def _check_value(value: Any, name: str) -> None:
    short = isinstance(value, bool) or value is None or (isinstance(value, str) and len(value) <= 40)
    pair = isinstance(value, list) and len(value) <= 2 and all(map(is_number, value))
    if not (short or pair or (is_number(value) and abs(value) <= _MOST)):
        raise InputError(
            f"{name} of ModelOptions must be a number up to {_MOST:,.0f}, a word or a truth, got "
            f"{shortened(repr(value))}"
        )
