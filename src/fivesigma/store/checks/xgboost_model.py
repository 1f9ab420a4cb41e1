"""A booster of XGBoost in its own format, UBJSON: refused unless it is as XGBoost writes it and can be used safely."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from fivesigma.store.checks.refusal import UncheckedError, refuse_unless
from fivesigma.store.checks.ubjson import Span, read_ubjson, read_value
from fivesigma.store.checks.xgboost_trees import Trees, check_trees, read_trees

# Objectives and the parameters that are written with them.
_OBJECTIVES: dict[str, tuple[bytes, ...]] = {
    "binary:logistic": (b"reg_loss_param",),
    "binary:logitraw": (b"reg_loss_param",),
    "binary:hinge": (),
    "reg:logistic": (b"reg_loss_param",),
    "reg:squarederror": (b"reg_loss_param",),
    "reg:squaredlogerror": (),
    "reg:pseudohubererror": (b"pseudo_huber_param",),
    "reg:absoluteerror": (),
    "reg:gamma": (b"reg_loss_param",),
    "reg:tweedie": (b"tweedie_regression_param",),
    "count:poisson": (b"poisson_regression_param",),
}
_LOGISTIC = ("binary:logistic", "reg:logistic", "binary:logitraw")
_POSITIVE = ("reg:gamma", "reg:tweedie", "count:poisson")
_NUMBER = re.compile(r"[-+]?(\d{1,20}\.?\d{0,20}|\.\d{1,20})([eE][-+]?\d{1,3})?")
_WHOLE = re.compile(r"\d{1,9}")
_FEATURE_TYPES = ("float", "int", "i", "q", "c")


def check_booster(text: bytes, objectives: Collection[str] = tuple(_OBJECTIVES)) -> tuple[int, int]:
    """Refuse what is not a booster that can be used safely.

    Parameters
    ----------
    text : bytes
        UBJSON.
    objectives : collection of str
        What the booster may have been trained for.

    Returns
    -------
    n_features, n_rounds : int
    """
    found = _part(read_ubjson(text, {b"trees": read_trees}), "the file", (b"learner", b"version"))
    refuse_unless(
        isinstance(found[b"version"], list)
        and len(found[b"version"]) == 3
        and all(isinstance(k, int) and 0 <= k < 1000 for k in found[b"version"]),
        "its version is not three numbers",
    )
    learner = _part(
        found[b"learner"],
        "learner",
        (b"attributes", b"gradient_booster", b"learner_model_param", b"objective"),
        (b"feature_names", b"feature_types"),
    )
    n_features = _check_learner(learner, objectives)
    rounds = _check_gradient_booster(text, learner[b"gradient_booster"], n_features)
    _check_attributes(learner[b"attributes"], rounds)
    return n_features, rounds


def model_in_snapshot(content: bytes) -> bytes:
    """Cut the booster out of what pickling an XGBoost booster keeps, which is a booster and its settings."""

    def skip(text: bytes, at: int) -> tuple[Span, int]:
        _, stop = read_value(text, at, {b"trees": read_trees})
        return Span(b"", at, stop), stop

    found = _part(read_ubjson(content, {b"Model": skip}), "the file", (b"Config", b"Model"))
    return content[found[b"Model"].start : found[b"Model"].stop]


def _part(value: Any, what: str, needed: Collection[bytes], optional: Collection[bytes] = ()) -> Mapping[bytes, Any]:
    """Take an object that has the needed keys and no unknown one."""
    if not isinstance(value, dict):
        raise UncheckedError(f"{what} is no object")
    for key in needed:
        refuse_unless(key in value, f"{what} has no {key.decode()}")
    for key in value:
        refuse_unless(key in needed or key in optional, f"{what} has {key[:40]!r}, which is not known here")
    return value


def _whole(part: Mapping[bytes, Any], key: bytes) -> int:
    value = part[key]
    refuse_unless(isinstance(value, str) and _WHOLE.fullmatch(value), f"{key.decode()} is no whole number")
    return int(value)


def _finite(value: Any, what: str) -> float:
    refuse_unless(isinstance(value, str) and _NUMBER.fullmatch(value), f"{what} is no number")
    refuse_unless(abs(float(value)) < float(np.finfo(np.float32).max), f"{what} is not finite")
    return float(value)


def _check_learner(learner: Mapping[bytes, Any], objectives: Collection[str]) -> int:
    """Check the objective and the shape of input and output; return the number of features."""
    keys = (b"base_score", b"num_class", b"num_feature", b"num_target")
    param = _part(learner[b"learner_model_param"], "learner_model_param", keys, (b"boost_from_average",))
    refuse_unless(_whole(param, b"num_class") <= 1 and _whole(param, b"num_target") == 1, "it has several outputs")
    refuse_unless(param.get(b"boost_from_average", "1") in ("0", "1"), "boost_from_average is neither 0 nor 1")
    n_features = _whole(param, b"num_feature")
    refuse_unless(n_features >= 1, "it has no features")
    objective = learner[b"objective"]
    name = objective.get(b"name") if isinstance(objective, dict) else None
    refuse_unless(isinstance(name, str) and name in objectives, f"its objective is {str(name)[:40]!r}")
    for key in _OBJECTIVES[str(name)]:
        parameters = _part(objective, "objective", (b"name", *_OBJECTIVES[str(name)]))[key]
        refuse_unless(isinstance(parameters, dict), f"{key.decode()} is no object")
        for value in parameters.values():
            _finite(value, "a parameter of the objective")
    if not _OBJECTIVES[str(name)]:
        _part(objective, "objective", (b"name",))
    score = param[b"base_score"]
    if isinstance(score, str) and score.startswith("[") and score.endswith("]"):
        score = score[1:-1]
    base = _finite(score, "base_score")
    in_range = 0 < base < 1 if name in _LOGISTIC else base > 0 or name not in _POSITIVE
    refuse_unless(in_range, f"base_score is {base}, which {name} does not allow")
    for key in (b"feature_names", b"feature_types"):
        names = learner.get(key, [])
        refuse_unless(
            isinstance(names, list) and len(names) in (0, n_features) and all(isinstance(k, str) for k in names),
            f"{key.decode()} are not one for each feature",
        )
    refuse_unless(len(set(learner.get(b"feature_names", []))) in (0, n_features), "two features have one name")
    refuse_unless(all(k in _FEATURE_TYPES for k in learner.get(b"feature_types", [])), "a feature type is not known")
    return n_features


def _check_gradient_booster(text: bytes, booster: Any, n_features: int) -> int:
    """Check trees or linear weights; return the number of rounds."""
    name = booster.get(b"name") if isinstance(booster, dict) else None
    if name == "gblinear":
        model = _part(_part(booster, "gblinear", (b"model", b"name"))[b"model"], "model", (b"weights",), (_ROUNDS,))
        weights = model[b"weights"]
        refuse_unless(isinstance(weights, Span) and weights.marker == b"d", "weights are no numbers")
        values = weights.of(text)
        refuse_unless(values.size == n_features + 1 and np.isfinite(values).all(), "weights do not fit the features")
        rounds = model.get(_ROUNDS, 0)
        refuse_unless(isinstance(rounds, int) and 0 <= rounds < 1 << 31, "boosted_rounds is no number of rounds")
        return int(rounds)
    if name == "dart":
        drop = _part(booster, "dart", (b"gbtree", b"name", b"weight_drop"))[b"weight_drop"]
        booster = booster[b"gbtree"]
        n_trees = _check_gbtree(text, booster, n_features)
        refuse_unless(isinstance(drop, list) and len(drop) == n_trees, "weight_drop is not one for each tree")
        refuse_unless(all(isinstance(w, float) and math.isfinite(w) for w in drop), "weight_drop is not finite")
        return n_trees
    refuse_unless(name == "gbtree", f"it is a booster of the kind {str(name)[:40]!r}")
    return _check_gbtree(text, booster, n_features)


_ROUNDS = b"boosted_rounds"


def _check_gbtree(text: bytes, booster: Any, n_features: int) -> int:
    booster = _part(booster, "gbtree", (b"model", b"name"))
    refuse_unless(booster[b"name"] == "gbtree", "the trees are not called gbtree")
    keys = (b"gbtree_model_param", b"tree_info", b"trees")
    model = _part(booster[b"model"], "model", keys, (b"iteration_indptr", b"cats"))
    trees: Trees = model[b"trees"]
    param = _part(model[b"gbtree_model_param"], "gbtree_model_param", (b"num_parallel_tree", b"num_trees"))
    n, parallel = len(trees), _whole(param, b"num_parallel_tree")
    refuse_unless(_whole(param, b"num_trees") == n, f"num_trees is not {n}")
    refuse_unless(model[b"tree_info"] == [0] * n, "tree_info is not zero for each tree")
    refuse_unless(parallel >= 1 and n % parallel == 0, "num_parallel_tree does not divide the number of trees")
    refuse_unless(
        model.get(b"iteration_indptr", list(range(0, n + 1, parallel))) == list(range(0, n + 1, parallel)),
        "iteration_indptr does not count the trees",
    )
    check_trees(trees, n_features)
    if b"cats" in model:
        _check_categories(text, model[b"cats"], n_features)
    return n // parallel


def _check_categories(text: bytes, cats: Any, n_features: int) -> None:
    """Check the names of categories, which XGBoost 3.1 and later keep."""
    cats = _part(cats, "cats", (b"enc", b"feature_segments", b"sorted_idx"))
    spans = (cats[b"feature_segments"], cats[b"sorted_idx"])
    refuse_unless(all(isinstance(k, Span) and k.marker == b"l" for k in spans), "cats are no whole numbers")
    segments, order = (span.of(text).astype(np.int64) for span in spans)
    features = cats[b"enc"]
    refuse_unless(isinstance(features, list), "enc is no array")
    if not features:
        refuse_unless(segments.size == 0 and order.size == 0, "cats have segments without categories")
        return
    refuse_unless(len(features) == n_features and segments.size == n_features + 1, "cats are not one for each feature")
    refuse_unless(segments[0] == 0 and segments[-1] == order.size, "the segments of cats do not fit")
    refuse_unless((np.diff(segments) >= 0).all(), "the segments of cats do not rise")
    for k, feature in enumerate(features):
        of_feature = np.sort(order[segments[k] : segments[k + 1]])
        refuse_unless(np.array_equal(of_feature, np.arange(of_feature.size)), "the order of categories is none")
        _check_category_names(text, feature, of_feature.size)


def _check_category_names(text: bytes, feature: Any, n_categories: int) -> None:
    feature = _part(feature, "enc", (b"values",), (b"offsets", b"type"))
    refuse_unless(isinstance(feature[b"values"], Span), "categories are no array")
    values = feature[b"values"].of(text)
    if b"offsets" not in feature:
        refuse_unless(feature.get(b"type") in range(64) and values.size == n_categories, "categories do not fit")
        return
    refuse_unless(b"type" not in feature and isinstance(feature[b"offsets"], Span), "categories are of two kinds")
    refuse_unless(feature[b"values"].marker == b"i" and feature[b"offsets"].marker == b"l", "categories are no text")
    offsets = feature[b"offsets"].of(text).astype(np.int64)
    refuse_unless(offsets.size == (n_categories + 1 if n_categories else offsets[:1].size), "categories do not fit")
    if offsets.size:
        fits = offsets[0] == 0 and offsets[-1] == values.size and (np.diff(offsets) >= 0).all()
        refuse_unless(fits, "the names of categories do not fit")
    else:
        refuse_unless(values.size == 0, "the names of categories do not fit")


def _check_attributes(attributes: Any, n_rounds: int) -> None:
    refuse_unless(
        isinstance(attributes, dict) and all(isinstance(v, str) for v in attributes.values()), "attributes are no text"
    )
    best = attributes.get(b"best_iteration")
    if best is not None:
        refuse_unless(_WHOLE.fullmatch(best) and int(best) < n_rounds, "best_iteration is beyond the last round")
    if b"best_score" in attributes:
        _finite(attributes[b"best_score"], "best_score")
