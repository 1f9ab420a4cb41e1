"""The score of every kind of model as operators: blends and products, linear models, nets."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from fivesigma._types import AnyArray, Array, IntArray
from fivesigma.blend import TINY as TINY_BLEND
from fivesigma.blend import Blend
from fivesigma.errors import InputError
from fivesigma.estimators.blended import BlendedClassifier
from fivesigma.estimators.net_classifier import NetClassifier
from fivesigma.estimators.significance_classifier import SignificanceClassifier
from fivesigma.exporting.graph import Graph
from fivesigma.exporting.trees import add_forest, lightgbm_probability, regression, staircase, xgboost_probability
from fivesigma.learners.density_ratios import TINY as TINY_RATIO
from fivesigma.learners.density_ratios import MeanWeight, RatioModel
from fivesigma.learners.lightgbm import LightGBMModel
from fivesigma.learners.net.inputs import FAR, NO_COLUMN, STEEP, Inputs, symmetric_copies
from fivesigma.learners.sklearn import SklearnModel
from fivesigma.learners.xgboost import XGBoostModel

_SAME = 2.0**-30  # scores that differ by less are the same score but for rounding in double precision


def add_score(graph: Graph, model: SignificanceClassifier | NetClassifier) -> str:
    """P(signal), or the blend of a pool."""
    if isinstance(model, NetClassifier):
        return net_probability(graph, graph.table, model)
    if isinstance(model, BlendedClassifier):
        return _pool_score(graph, model)
    if type(model).__fivesigma_score__ is not SignificanceClassifier.__fivesigma_score__:
        raise InputError(f"a {type(model).__name__} cannot be exported: it forms its score in a way of its own")
    return graph.mean([_probability(graph, graph.table, part) for part in model.models_])


def _pool_score(graph: Graph, pool: BlendedClassifier) -> str:
    """Blend of the members, each the mean of its fits."""
    by_name: dict[str, list[str]] = {}
    for name, member in pool.members_:
        try:
            by_name.setdefault(name, []).append(add_score(graph, member))
        except InputError as err:
            raise InputError(f"member {name!r} of the pool: {err}") from err
    return add_blend(graph, pool.blend_, [graph.mean(fits) for fits in by_name.values()])


def add_blend(graph: Graph, blend: Blend, scores: Sequence[str]) -> str:
    """Weighted mean of members' scores, on the scale of the blend."""
    columns = scores
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
    """P(signal), or of the second class, of a trained model or of a classifier with scikit-learn's interface."""
    name = type(part).__name__
    if isinstance(part, XGBoostModel):
        return xgboost_probability(graph, table, part)
    if isinstance(part, LightGBMModel):
        return lightgbm_probability(graph, table, part.boosters)
    if isinstance(part, RatioModel):
        return _ratio(graph, table, part)
    if isinstance(part, SklearnModel):
        return _probability(graph, table, part.estimator)
    if isinstance(part, NetClassifier):
        return net_probability(graph, table, part)
    if name == "Pipeline":
        for _, step in part.steps[:-1]:
            table = apply_step(graph, table, step)
        return _probability(graph, table, part.steps[-1][1])
    if name == "LogisticRegression":
        return logistic_probability(graph, table, part)
    if name == "XGBClassifier":
        return xgboost_probability(graph, table, XGBoostModel(part.get_booster(), part.missing))
    if name == "LGBMClassifier":
        return lightgbm_probability(graph, table, [part.booster_], averaged=True)
    raise InputError(
        f"a {name} cannot be exported; known are XGBoost, LightGBM, NetClassifier, LogisticRegression and Pipelines of "
        "them"
    )


def _ratio(graph: Graph, table: str, model: RatioModel) -> str:
    """P(signal) from the odds of a classifier and the mean weights of both classes."""

    def log_mean(mean: MeanWeight) -> str:
        if mean.regressor is None:
            return graph.constant(float(np.log(mean.scale)))
        weight = graph.add("Mul", regression(graph, table, mean.regressor), mean.scale)
        return graph.add("Log", graph.add("Clip", weight, *mean.bounds))

    log_ratio = _logit(graph, _probability(graph, table, model.classifier), TINY_RATIO)
    signal, background = log_mean(model.signal), log_mean(model.background)
    log_ratio = graph.add("Sub", graph.add("Add", log_ratio, signal), background)
    return graph.add("Sigmoid", graph.add("Add", log_ratio, model.log_balance))


# Linear models, and the steps of a Pipeline that are linear or fill in what is missing.


def logistic_probability(graph: Graph, table: str, classifier: Any) -> str:
    """P(second class) of a logistic regression."""
    coefficients = np.asarray(classifier.coef_, dtype=np.float64)
    if coefficients.shape[0] != 1:
        raise InputError("a LogisticRegression with several classes cannot be exported")
    margin = graph.add("MatMul", table, np.ascontiguousarray(coefficients.T))
    return graph.add("Sigmoid", graph.add("Add", margin, np.asarray(classifier.intercept_, dtype=np.float64)))


def apply_step(graph: Graph, table: str, step: Any) -> str:
    """Table after one step of a Pipeline."""
    name = type(step).__name__
    if step is None or step == "passthrough":
        return table
    if name == "SimpleImputer" and not step.add_indicator and str(step.missing_values) == "nan":
        # Asked for rather than looked up, as it rounds its statistics to the precision that it was fitted in.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of columns that have no names here, or are left out
            filling = np.asarray(step.transform(np.full((1, step.n_features_in_), np.nan)), dtype=np.float64)
        if filling.shape[1] == step.n_features_in_:  # a column without any value would be left out
            return graph.same_columns(table, graph.add("Where", graph.add("IsNaN", table), filling, table))
    if name == "StandardScaler":
        return _scale(graph, table, step.mean_, step.scale_)
    if name == "RobustScaler":
        return _scale(graph, table, step.center_, step.scale_)
    if name == "MinMaxScaler" and not step.clip:
        return _scale(graph, table, -step.min_ / step.scale_, 1.0 / step.scale_)
    raise InputError(
        f"the step {step!r} of a Pipeline cannot be exported; known are StandardScaler, RobustScaler, MinMaxScaler "
        "without clip, and SimpleImputer of NaN without an indicator"
    )


def _scale(graph: Graph, table: str, centre: AnyArray | None, scale: AnyArray | None) -> str:
    """Table less its centre, over its scale; each may be left out."""
    if centre is not None:
        for k, at in enumerate(centre):
            width = 1.0 if scale is None else scale[k]
            graph.note(table, k, at + np.array([-2.0, -1.0, 0.0, 1.0, 2.0]) * width)
        table = graph.add("Sub", table, np.asarray(centre, dtype=np.float64))
    return table if scale is None else graph.add("Div", table, np.asarray(scale, dtype=np.float64))


# A small net, from the columns of the table to its log-odds, in plain operators and double precision.


def net_probability(graph: Graph, table: str, net: NetClassifier) -> str:
    """P(second class) of a net: the mean of the log-odds over symmetric copies, through the logistic function."""
    inputs = net.inputs_
    copies = symmetric_copies(net.n_augment) if len(inputs.momenta) else [(0.0, 1.0, 1.0)]
    seen = graph.add("Unsqueeze", _scalars(graph, table, inputs), np.array([0]))
    if len(copies) > 1:
        seen = graph.add("Expand", seen, np.array([len(copies), 1, 1]))
    if len(inputs.momenta):
        units = zip(inputs.momenta, inputs.momentum_units, inputs.momentum_factors, strict=True)
        vectors = [_vector(graph, table, *momentum) for momentum in units]
        momenta = vectors[0] if len(vectors) == 1 else graph.add("Concat", *vectors, axis=1)
        turned = graph.add("MatMul", momenta, _turns(copies, len(vectors)))
        seen = graph.add("Concat", seen, turned, axis=2)
    layers = [layer.astype(np.float64) for layer in net.weights_]
    for weight, offset in zip(layers[:-2:2], layers[1:-2:2], strict=True):
        linear = graph.add("Add", graph.add("MatMul", seen, weight.T), offset)
        # SiLU without Sigmoid: older versions of onnxruntime fuse the two into an operator without double precision.
        out = graph.add("Div", linear, graph.add("Add", graph.add("Exp", graph.add("Neg", linear)), 1.0))
        seen = graph.add("Concat", out, seen, axis=2)
    log_odds = graph.add("Add", graph.add("MatMul", seen, layers[-2].T), layers[-1])
    return graph.add("Sigmoid", graph.add("ReduceMean", log_odds, np.array([0]), keepdims=0))


def _turns(copies: list[tuple[float, float, float]], n_momenta: int) -> Array:
    """Matrices that turn the components of all momenta, (x, y, z) of one after the other, into all x, all y, all z."""
    out = np.zeros((len(copies), 3 * n_momenta, 3 * n_momenta))
    for matrix, (angle, mirror, flip) in zip(out, copies, strict=True):
        cos, sin = np.cos(angle), np.sin(angle)
        turn = np.array([[cos, -sin * mirror, 0.0], [sin, cos * mirror, 0.0], [0.0, 0.0, flip]])
        for k in range(n_momenta):
            matrix[3 * k : 3 * k + 3, k::n_momenta] = turn.T
    return out


def _scalars(graph: Graph, table: str, inputs: Inputs) -> str:
    x = _compress(graph, graph.columns(table, inputs.columns), inputs.units)
    x = graph.add("Mul", graph.add("Sub", x, inputs.means), inputs.factors)
    x = graph.add("Where", graph.add("IsNaN", x), 0.0, x)  # before the limits, which runtimes apply to NaN too
    x = _round(graph, graph.add("Clip", x, -FAR, FAR))
    for k, column in enumerate(inputs.columns):  # landmarks: the mean, and what lies two standard deviations from it
        if inputs.factors[k]:
            at = inputs.means[k] + np.array([-2.0, -1.0, 0.0, 1.0, 2.0]) / inputs.factors[k]
            unit = inputs.units[k]
            graph.note(table, int(column), at if unit == 0 else np.copysign(np.expm1(np.abs(at)) * unit, at))
    if not inputs.flags.size:
        return x
    flags = graph.add("IsNaN", graph.columns(table, inputs.flags))
    return graph.add("Concat", x, graph.cast(flags, np.float64), axis=1)


def _vector(graph: Graph, table: str, columns: IntArray, units: Array, factors: Array) -> str:
    """One momentum as a vector whose length is a logarithm; zero where a part of it is missing."""
    pt, eta, phi = (None if c == NO_COLUMN else graph.columns(table, c) for c in columns)
    assert pt is not None and phi is not None  # noqa: PT018 - only eta can be unknown
    missing = graph.add("Or", graph.add("IsNaN", pt), graph.add("IsNaN", phi))
    if eta is not None:
        missing = graph.add("Or", missing, graph.add("IsNaN", eta))
    pt, phi = (graph.add("Where", missing, 0.0, v) for v in (pt, phi))
    size = _length(graph, pt, units[0], factors[0])
    # The cosine as a sine, which older runtimes have in double precision too.
    angles = (graph.add("Add", phi, np.pi / 2), phi)
    xy = [graph.add("Mul", size, graph.add("Sin", angle)) for angle in angles]
    for column, values in zip(columns[[0, 2]], ((0.0, units[0], 5 * units[0]), (-3.0, 0.0, 3.0)), strict=True):
        graph.note(table, int(column), np.array(values))
    if eta is None:
        z = graph.add("Mul", size, 0.0)
    else:
        graph.note(table, int(columns[1]), np.array([-2.5, 0.0, 2.5]))
        eta = graph.add("Clip", graph.add("Where", missing, 0.0, eta), -STEEP, STEEP)
        # sinh, which onnxruntime has in single precision only
        twice = graph.add("Sub", graph.add("Exp", eta), graph.add("Exp", graph.add("Neg", eta)))
        z = _length(graph, graph.add("Mul", pt, graph.add("Mul", twice, 0.5)), units[1], factors[1])
    return _round(graph, graph.add("Concat", *xy, z, axis=1))


def _length(graph: Graph, p: str, unit: float, factor: float) -> str:
    size = graph.add("Mul", _compress(graph, p, np.array([unit])), factor)
    return graph.add("Clip", size, -FAR, FAR)


def _compress(graph: Graph, x: str, units: Array) -> str:
    """Odd logarithm in some unit; x itself where that is 0."""
    log = units != 0
    if not log.any():
        return x
    size = graph.add("Div", graph.add("Abs", x), np.where(log, units, 1.0))
    odd = graph.add("Mul", graph.add("Sign", x), graph.add("Log", graph.add("Add", size, 1.0)))
    return odd if log.all() else graph.add("Where", log, odd, x)


def _round(graph: Graph, x: str) -> str:
    """Round to single precision, as the inputs of a net are."""
    return graph.cast(graph.cast(x, np.float32), np.float64)
