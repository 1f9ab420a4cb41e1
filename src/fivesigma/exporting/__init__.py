"""Trained models as files that other programs read: ONNX, and XGBoost's JSON."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

import fivesigma
from fivesigma._tools.files import written_whole
from fivesigma.datasets.columns import Columns
from fivesigma.errors import InputError
from fivesigma.estimators.significance_classifier import SignificanceClassifier
from fivesigma.exporting.check import Comparison, compare, given_table, library_score, simulated_table
from fivesigma.exporting.formats import prepare_booster, prepare_onnx
from fivesigma.learners.net.classifier import NetClassifier

__all__ = ["FORMATS", "Exported", "export"]

FORMATS = ("onnx", "xgboost-json")


@dataclass(frozen=True)
class Exported:
    """What was written, and how far it is from the model.

    Attributes
    ----------
    path : Path
    format : str
    comparison : Comparison
        Largest difference of the scores, and events that changed sides of the cut.
    simulated : bool
        Whether the events of the comparison were simulated.
    """

    path: Path
    format: str
    comparison: Comparison
    simulated: bool

    @property
    def largest_difference(self) -> float:
        """Largest difference of a score from the library's."""
        return self.comparison.largest_difference


def export(
    model: Any,
    path: str | os.PathLike[str],
    format: str = "onnx",  # noqa: A002 - the name that users know
    events: Any = None,
    categories: Any = None,
) -> Exported:
    """Write a trained model as a file that other programs read, after comparing its scores with the model's.

    Parameters
    ----------
    model : trained classifier of fivesigma
    path : path
        File to write; it appears whole or not at all.
    format : {"onnx", "xgboost-json"}, default="onnx"
        An ONNX graph with the input ``features`` (float64, NaN is missing) and the outputs ``score`` and ``selected``;
        or, if the model is one XGBoost booster, XGBoost's own JSON.
    events : Events, array or frame, optional
        Events on which file and model are compared. By default they are simulated around the model's thresholds.
    categories : Categories or array of edges, optional
        Edges of categories of the score, kept as metadata.

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
    ...     written = export(model, f"{folder}/model.json", format="xgboost-json")
    >>> written.largest_difference
    0.0
    """
    if format not in FORMATS:
        raise InputError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to write {path.name} to")
    if not isinstance(model, (SignificanceClassifier, NetClassifier)):
        raise InputError(f"a {type(model).__name__} cannot be exported; give a trained classifier of fivesigma")
    check_is_fitted(model)
    cut = float(getattr(model, "cut_", 0.5))
    metadata = _metadata(model, cut, categories)
    prepared = prepare_onnx(model, cut, metadata) if format == "onnx" else prepare_booster(model, cut, metadata)
    X = simulated_table(model, prepared.landmarks) if events is None else given_table(model, events)
    score, selected = prepared.run(X)
    comparison = compare(score, library_score(model, X), selected, cut)
    with written_whole(path) as beside:
        beside.write_bytes(prepared.content)
    return Exported(path, format, comparison, simulated=events is None)


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
