"""Trained models as files that other programs read: ONNX, and XGBoost's JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

import fivesigma
from fivesigma._tools.extras import need
from fivesigma._tools.files import refuse_special, written_whole
from fivesigma._types import Array, BoolArray
from fivesigma.datasets.columns import Columns
from fivesigma.errors import InputError
from fivesigma.estimators.net_classifier import NetClassifier
from fivesigma.estimators.significance_classifier import SignificanceClassifier
from fivesigma.exporting.check import Agreement, compare, given_table, library_score, run_onnx, simulated_table
from fivesigma.exporting.graph import Graph
from fivesigma.exporting.operators import add_score
from fivesigma.exporting.trees import kept_booster, xgboost_forest
from fivesigma.learners.xgboost import XGBoostModel

__all__ = ["FORMATS", "Exported", "export"]

FORMATS = {".onnx": "onnx", ".json": "xgboost-json"}  # by the ending of the file
PRECISIONS = ("float64", "float32")


class _Prepared(NamedTuple):
    """Content of a file, landmarks of each feature, and how a program that knows the content alone scores events."""

    content: bytes
    landmarks: Mapping[int, Sequence[Array]]
    run: Callable[[Array], tuple[Array, BoolArray]]


@dataclass(frozen=True)
class Exported:
    """What was written, and how far it is from the model.

    Attributes
    ----------
    path : Path
    format : str
    precision : str
        Of the features that the file takes and of the score that it gives.
    comparison : Agreement
        Largest difference of the scores, and events that changed sides of the cut.
    simulated : bool
        Whether the events of the comparison were simulated.
    """

    path: Path
    format: str
    precision: str
    comparison: Agreement
    simulated: bool

    @property
    def largest_difference(self) -> float:
        """Largest difference of a score from the library's."""
        return self.comparison.largest_difference


def export(
    model: Any,
    path: str | os.PathLike[str],
    format: str | None = None,  # noqa: A002 - the name that users know
    events: Any = None,
    categories: Any = None,
    *,
    precision: str = "float64",
    force: bool = False,
) -> Exported:
    """Write a trained model as a file that other programs read, after comparing its scores with the model's.

    Parameters
    ----------
    model : trained classifier of fivesigma
    path : path
        File to write, which ends in ``.onnx`` or ``.json``; it appears whole or not at all.
    format : {"onnx", "xgboost-json"}, optional
        What the ending says by default: an ONNX graph with the input ``features`` (NaN is missing) and the outputs
        ``score`` and ``selected``; or, if the model is one XGBoost booster, XGBoost's own JSON.
    events : Events, array or frame, optional
        Events on which file and model are compared. By default they are simulated around the model's thresholds.
    categories : Categories or array of edges, optional
        Edges of categories of the score, kept as metadata.
    precision : {"float64", "float32"}, default="float64"
        Of the input and the score of an ONNX graph; programs in C++ often have float32. In between all is float64. The
        comparison is made with features that were rounded so.
    force : bool, default=False
        Whether to replace a file that is there.

    Returns
    -------
    Exported
        With the ``largest_difference`` of a score. Above 1e-5 nothing is written.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from fivesigma import GrownCascadeClassifier, export
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([1, 0], 2000)
    >>> X = rng.normal(size=(4000, 2)) + 1.5 * y[:, None]
    >>> w = np.where(y == 1, 0.15, 1.5)
    >>> model = GrownCascadeClassifier(n_trees=20, random_state=0, n_jobs=1).fit(X, y, sample_weight=w)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = export(model, f"{folder}/model.json")
    >>> written.largest_difference
    0.0
    """
    path = Path(path)
    format = _format(path, format)  # noqa: A001
    if precision not in PRECISIONS:
        raise InputError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to write {path.name} to")
    refuse_special(path)
    if path.exists() and not force:
        raise InputError(f"{path} is there already; choose another name, or replace it with force=True or --force")
    if not isinstance(model, (SignificanceClassifier, NetClassifier)):
        raise InputError(f"a {type(model).__name__} cannot be exported; give a trained classifier of fivesigma")
    check_is_fitted(model)
    cut = float(getattr(model, "cut_", 0.5))
    metadata = _metadata(model, cut, categories)
    prepared = _onnx(model, cut, metadata, precision) if format == "onnx" else _booster(model, cut, metadata)
    X = simulated_table(model, prepared.landmarks) if events is None else given_table(model, events)
    X = X.astype(precision).astype(np.float64, copy=False)
    score, selected = prepared.run(X)
    comparison = compare(score, library_score(model, X), selected, cut)
    with written_whole(path) as beside:
        beside.write_bytes(prepared.content)
    return Exported(path, format, precision, comparison, simulated=events is None)


def _format(path: Path, asked: str | None) -> str:
    """The format that the ending of the file stands for, if that is the one that is asked for."""
    if asked is not None and asked not in FORMATS.values():
        raise InputError(f"format must be one of {', '.join(FORMATS.values())}, got {asked!r}")
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        known = " or ".join(f"{ending} ({name})" for ending, name in FORMATS.items())
        raise InputError(f"{path.name} does not say its format by its ending; it must end in {known}")
    if asked not in (None, found):
        raise InputError(f"{path.name} ends as a file of {found} does, and {asked} is asked for; change one of the two")
    return found


def _onnx(model: Any, cut: float, metadata: Mapping[str, str], precision: str) -> _Prepared:
    """Write the model as an ONNX graph, to be run by onnxruntime."""
    need("onnxruntime")
    graph = Graph(model.n_features_in_, precision)
    content = graph.model(add_score(graph, model), cut, metadata)
    return _Prepared(content, graph.landmarks, lambda X: run_onnx(content, X))


def _booster(model: Any, cut: float, metadata: Mapping[str, str]) -> _Prepared:
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

    return _Prepared(content, {k: [values] for k, values in forest.thresholds().items()}, run)


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


def _metadata(model: Any, cut: float, categories: Any) -> dict[str, str]:
    """What a reader must know beside the scores; numbers and lists as JSON."""
    known = getattr(model, "feature_names_in_", None)
    names = Columns.of_model(model).feature_names if known is None else known
    names = names if len(names) else [f"f{k}" for k in range(model.n_features_in_)]
    found: dict[str, Any] = {
        "feature_names": [str(name) for name in names],
        "classes": model.classes_.tolist(),
        "cut": cut,
        "selected_fraction": getattr(model, "selected_fraction_", None),
        "category_edges": None if categories is None else _edges(categories),
    }
    out = {name: json.dumps(value) for name, value in found.items() if value is not None}
    if hasattr(model, "utility_"):
        out["utility"] = repr(model.utility_)
    return {**out, "missing": "NaN", "model": type(model).__name__, "fivesigma_version": fivesigma.__version__}


def _edges(categories: Any) -> list[float | None]:
    """Edges of categories; infinity, which JSON does not have, is null."""
    edges = np.asarray(getattr(categories, "edges", categories), dtype=np.float64)
    if edges.ndim != 1 or edges.size < 2 or not (np.diff(edges) > 0).all():
        raise InputError(f"categories must be Categories or two or more ascending edges, got {categories!r}")
    return [float(e) if np.isfinite(e) else None for e in edges]
