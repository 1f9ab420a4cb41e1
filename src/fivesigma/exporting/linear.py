"""Logistic regression, and the steps of a Pipeline that are linear or fill in what is missing."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from fivesigma._types import AnyArray, Array
from fivesigma.errors import InputError
from fivesigma.exporting.graph import Graph


def logistic_probability(graph: Graph, table: str, classifier: Any) -> str:
    """P(second class) of a logistic regression."""
    coefficients = np.asarray(classifier.coef_, dtype=np.float64)
    if coefficients.shape[0] != 1:
        raise InputError("a LogisticRegression with several classes cannot be exported")
    margin = graph.add("MatMul", table, np.ascontiguousarray(coefficients.T))
    return graph.add("Sigmoid", graph.add("Add", margin, np.asarray(classifier.intercept_, dtype=np.float64)))


def transformed(graph: Graph, table: str, step: Any) -> str:
    """Table after one step of a Pipeline."""
    name = type(step).__name__
    if step is None or step == "passthrough":
        return table
    if name == "SimpleImputer" and not step.add_indicator and _is_nan(step.missing_values):
        # Asked for rather than looked up, as it rounds its statistics to the precision that it was fitted in.
        filling = _transform(step, np.full((1, step.n_features_in_), np.nan))
        if filling.shape[1] == step.n_features_in_:  # a column without any value would be left out
            return graph.same_columns(table, graph.add("Where", graph.add("IsNaN", table), filling, table))
    if name == "StandardScaler":
        return _scaled(graph, table, step.mean_, step.scale_)
    if name == "RobustScaler":
        return _scaled(graph, table, step.center_, step.scale_)
    if name == "MinMaxScaler" and not step.clip:
        return _scaled(graph, table, -step.min_ / step.scale_, 1.0 / step.scale_)
    raise InputError(
        f"the step {step!r} of a Pipeline cannot be exported; known are StandardScaler, RobustScaler, MinMaxScaler "
        "without clip, and SimpleImputer of NaN without an indicator"
    )


def _scaled(graph: Graph, table: str, centre: AnyArray | None, scale: AnyArray | None) -> str:
    """Table less its centre, over its scale; each may be left out."""
    if centre is not None:
        for k, at in enumerate(centre):
            width = 1.0 if scale is None else scale[k]
            graph.note(table, k, at + np.array([-2.0, -1.0, 0.0, 1.0, 2.0]) * width)
        table = graph.add("Sub", table, np.asarray(centre, dtype=np.float64))
    return table if scale is None else graph.add("Div", table, np.asarray(scale, dtype=np.float64))


def _transform(step: Any, table: Array) -> Array:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of columns that have no names here, or are left out
        return np.asarray(step.transform(table), dtype=np.float64)


def _is_nan(value: Any) -> bool:
    return isinstance(value, (float, np.floating)) and bool(np.isnan(value))
