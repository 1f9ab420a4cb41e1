"""The score of every kind of model: what is averaged, multiplied or ranked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fivesigma._types import Array
from fivesigma.blend import TINY as TINY_BLEND
from fivesigma.blend import Blend
from fivesigma.errors import InputError
from fivesigma.estimators.blended import BlendedClassifier
from fivesigma.estimators.significance_classifier import SignificanceClassifier
from fivesigma.exporting.graph import FEATURES, Graph
from fivesigma.exporting.linear import logistic_probability, transformed
from fivesigma.exporting.nets import net_probability
from fivesigma.exporting.trees import add_forest, lightgbm_probability, regression, staircase, xgboost_probability
from fivesigma.learners.decomposition import TINY as TINY_RATIO
from fivesigma.learners.decomposition import MeanWeight, RatioModel
from fivesigma.learners.lightgbm import LightGBMModel
from fivesigma.learners.net.classifier import NetClassifier
from fivesigma.learners.sklearn import SklearnModel
from fivesigma.learners.xgboost import XGBoostModel

_SAME = 2.0**-30  # scores that differ by less are the same score but for rounding in double precision


def add_score(graph: Graph, model: SignificanceClassifier | NetClassifier) -> str:
    """P(signal), or the blend of a pool."""
    if isinstance(model, NetClassifier):
        return net_probability(graph, FEATURES, model)
    if isinstance(model, BlendedClassifier):
        return _pool_score(graph, model)
    if type(model).score_checked is not SignificanceClassifier.score_checked:
        raise InputError(f"a {type(model).__name__} cannot be exported: it forms its score in a way of its own")
    return graph.mean([_probability(graph, FEATURES, part) for part in model.models_])


def _pool_score(graph: Graph, pool: BlendedClassifier) -> str:
    """Blend of the members, each the mean of its fits."""
    by_name: dict[str, list[str]] = {}
    for name, member in pool.members_:
        try:
            by_name.setdefault(name, []).append(add_score(graph, member))
        except InputError as err:
            raise InputError(f"member {name!r} of the pool: {err}") from err
    return blended(graph, pool.blend_, [graph.mean(fits) for fits in by_name.values()])


def blended(graph: Graph, blend: Blend, scores: Sequence[str]) -> str:
    """Weighted mean of members' scores, on the scale of the blend."""
    columns = list(scores)
    if blend.kind == "margin":
        columns = [_logit(graph, score, TINY_BLEND) for score in scores]
    elif blend.kind == "rank":
        columns = [rank(graph, score, knots) for score, knots in zip(scores, blend.knots, strict=True)]
    weighted = [graph.add("Mul", c, float(w)) for c, w in zip(columns, blend.weights, strict=True)]
    mean = graph.total(weighted)
    return graph.add("Sigmoid", mean) if blend.kind == "margin" else mean


def rank(graph: Graph, score: str, knots: Array) -> str:
    """Share of held-out events below a score: linear between their quantiles, the middle of a step at equal ones."""
    q = np.linspace(0.0, 1.0, knots.size)
    steps, first = np.unique(knots, return_index=True)
    last = np.append(first[1:], knots.size) - 1
    # The first entry is for scores below all knots, whose rank is 0; above all of them it is 1.
    starts, at = np.append(0.0, q[last]), np.append(0.0, steps)
    gaps = np.diff(steps)
    rises = np.concatenate([[0.0], q[first[1:]] - q[last[:-1]], [0.0]])
    below = _count(graph, score, steps)
    distance = graph.add("Sub", score, graph.add("Gather", at, below))
    share = graph.add("Div", distance, graph.add("Gather", np.concatenate([[1.0], gaps, [1.0]]), below))
    rise = graph.add("Mul", share, graph.add("Gather", rises, below))
    out = graph.add("Add", graph.add("Gather", starts, below), rise)
    # A score of many held-out events: rounding must not take an event from the middle of the step to one of its ends.
    many = last > first
    if not many.any():
        return out
    tied = steps[many]
    room = np.minimum(np.append(np.inf, gaps), np.append(gaps, np.inf)) / 4
    near = np.minimum(_SAME, room)[many]
    middles = ((q[first] + q[last]) / 2)[many]
    nearest = _count(graph, score, (tied[:-1] + tied[1:]) / 2)
    apart = graph.add("Abs", graph.add("Sub", score, graph.add("Gather", tied, nearest)))
    is_tied = graph.add("LessOrEqual", apart, graph.add("Gather", near, nearest))
    return graph.add("Where", is_tied, graph.add("Gather", middles, nearest), out)


def _count(graph: Graph, score: str, steps: Array) -> str:
    """Number of steps at or below a score."""
    if steps.size == 0:
        return graph.cast(graph.add("Mul", score, 0.0), np.int64)
    return graph.cast(add_forest(graph, score, staircase(steps)), np.int64)


def _logit(graph: Graph, probability: str, tiny: float) -> str:
    """Log-odds of a probability that is kept from 0 and 1."""
    p = graph.add("Clip", probability, tiny, 1.0 - tiny)
    return graph.add("Log", graph.add("Div", p, graph.add("Sub", 1.0, p)))


def _probability(graph: Graph, table: str, part: Any) -> str:
    """P(signal) of one trained model."""
    if isinstance(part, XGBoostModel):
        return xgboost_probability(graph, table, part)
    if isinstance(part, LightGBMModel):
        return lightgbm_probability(graph, table, part.boosters)
    if isinstance(part, RatioModel):
        return _ratio(graph, table, part)
    return _classifier(graph, table, part.estimator if isinstance(part, SklearnModel) else part)


def _classifier(graph: Graph, table: str, classifier: Any) -> str:
    """P(second class) of a classifier with scikit-learn's interface."""
    name = type(classifier).__name__
    if isinstance(classifier, NetClassifier):
        return net_probability(graph, table, classifier)
    if name == "Pipeline":
        for _, step in classifier.steps[:-1]:
            table = transformed(graph, table, step)
        return _classifier(graph, table, classifier.steps[-1][1])
    if name == "LogisticRegression":
        return logistic_probability(graph, table, classifier)
    if name == "XGBClassifier":
        return xgboost_probability(graph, table, XGBoostModel(classifier.get_booster(), classifier.missing))
    if name == "LGBMClassifier":
        return lightgbm_probability(graph, table, [classifier.booster_], averaged=True)
    raise InputError(
        f"a {name} cannot be exported; known are XGBoost, LightGBM, NetClassifier, LogisticRegression and Pipelines of "
        "them"
    )


def _ratio(graph: Graph, table: str, model: RatioModel) -> str:
    """P(signal) from the odds of a classifier and the mean weights of both classes."""
    log_ratio = _logit(graph, _probability(graph, table, model.classifier), TINY_RATIO)
    signal, background = (_log_mean(graph, table, mean) for mean in (model.signal, model.background))
    log_ratio = graph.add("Sub", graph.add("Add", log_ratio, signal), background)
    return graph.add("Sigmoid", graph.add("Add", log_ratio, model.log_balance))


def _log_mean(graph: Graph, table: str, mean: MeanWeight) -> str:
    """Logarithm of the mean weight of a class."""
    if mean.regressor is None:
        return graph.constant(float(np.log(mean.scale)))
    weight = graph.add("Mul", regression(graph, table, mean.regressor), mean.scale)
    return graph.add("Log", graph.add("Clip", weight, *mean.bounds))
