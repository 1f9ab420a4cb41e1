"""The content of a file in each format, and how to score events with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._types import Array, BoolArray
from fivesigma.errors import InputError
from fivesigma.exporting.blends import add_score
from fivesigma.exporting.check import run_onnx
from fivesigma.exporting.graph import Graph
from fivesigma.exporting.trees import kept_booster, xgboost_forest
from fivesigma.learners.xgboost import XGBoostModel


@dataclass(frozen=True)
class Prepared:
    """A file that is not written yet.

    Attributes
    ----------
    content : bytes
    landmarks : mapping of int to arrays
        Values of each feature at which the model changes its mind.
    run : callable
        Scores and selection of a table, by a program that knows the content only.
    """

    content: bytes
    landmarks: Mapping[int, Sequence[Array]]
    run: Callable[[Array], tuple[Array, BoolArray]]


def prepare_onnx(model: Any, cut: float, metadata: Mapping[str, str]) -> Prepared:
    """Write the model as an ONNX graph, to be run by onnxruntime."""
    need("onnxruntime")
    graph = Graph(model.n_features_in_)
    content = graph.model(add_score(graph, model), cut, metadata)
    return Prepared(content, graph.landmarks, lambda X: run_onnx(content, X))


def prepare_booster(model: Any, cut: float, metadata: Mapping[str, str]) -> Prepared:
    """Write the only booster of the model as XGBoost's JSON, to be read back by XGBoost."""
    part = _only_booster(model)
    forest, objective = xgboost_forest(part)  # refuses what other readers would misunderstand
    if objective != "binary:logistic" or forest.tree_factors:
        raise InputError("only trees with logistic loss and without dropout can be exported as xgboost-json")
    booster = kept_booster(part).copy()
    booster.set_attr(**{f"fivesigma_{name.removeprefix('fivesigma_')}": value for name, value in metadata.items()})
    content = bytes(booster.save_raw("json"))

    def run(X: Array) -> tuple[Array, BoolArray]:
        score = XGBoostModel(need("xgboost").Booster(model_file=bytearray(content))).signal_probability(X)
        return score, score >= cut

    return Prepared(content, {k: [values] for k, values in forest.thresholds().items()}, run)


def _only_booster(model: Any) -> XGBoostModel:
    """The booster that a model consists of."""
    parts = getattr(model, "models_", [])
    if len(parts) != 1:
        what = f"this {type(model).__name__} has {len(parts)}" if parts else f"a {type(model).__name__} has none"
        raise InputError(
            f"xgboost-json holds one XGBoost booster, and {what}; export it as onnx, or train with refit=True"
        )
    if not isinstance(parts[0], XGBoostModel):
        raise InputError(f"xgboost-json holds an XGBoost booster, not a {type(parts[0]).__name__}; export it as onnx")
    if not np.isnan(parts[0].missing):
        raise InputError(
            f"missing={parts[0].missing:g} cannot be told to readers of xgboost-json: train with NaN, or export as onnx"
        )
    return parts[0]
