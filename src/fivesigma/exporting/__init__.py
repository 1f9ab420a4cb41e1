"""Trained models as files that other programs read: ONNX, and XGBoost's JSON."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

import fivesigma
from fivesigma._tools.extras import need
from fivesigma._tools.files import refuse_special, written_whole
from fivesigma._types import Array, BoolArray
from fivesigma.datasets.columns import Columns
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError
from fivesigma.estimators.net_classifier import NetClassifier
from fivesigma.estimators.significance_classifier import SignificanceClassifier
from fivesigma.exporting.graph import FEATURES, SCORE, SELECTED, Graph
from fivesigma.exporting.operators import add_score
from fivesigma.exporting.trees import xgboost_forest
from fivesigma.learners.xgboost import XGBoostModel

__all__ = ["FORMATS", "Exported", "export"]

FORMATS = {".onnx": "onnx", ".json": "xgboost-json"}  # by the ending of the file
PRECISIONS = ("float64", "float32")
TOLERANCE = 1e-5  # largest difference of a score with which a file is written
N_SIMULATED = 4096
_MISSING = 0.1  # share of missing values among simulated ones


@dataclass(frozen=True)
class Exported:
    """What was written, and how far it is from the model.

    Attributes
    ----------
    path : Path
    format : str
    precision : str
        Of the features that the file takes and of the score that it gives.
    largest_difference : float
        Of the score of any event from the library's.
    n_moved : int
        Events that the cut selects in one of them only: their scores differ from the cut by rounding.
    n_events : int
        Events of the comparison.
    simulated : bool
        Whether these were simulated.
    """

    path: Path
    format: str
    precision: str
    largest_difference: float
    n_moved: int
    n_events: int
    simulated: bool


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
    refuse_special(path)
    if path.exists() and not force:
        raise InputError(f"{path} is there already; choose another name, or replace it with force=True or --force")
    if not isinstance(model, (SignificanceClassifier, NetClassifier)):
        raise InputError(f"a {type(model).__name__} cannot be exported; give a trained classifier of fivesigma")
    check_is_fitted(model)
    cut = float(getattr(model, "cut_", 0.5))
    metadata = _metadata(model, cut, categories)
    landmarks: Mapping[int, Sequence[Array]]
    run: Callable[[Array], tuple[Array, BoolArray]]
    if format == "onnx":
        need("onnxruntime")
        graph = Graph(model.n_features_in_, precision)
        content = graph.model(add_score(graph, model), cut, metadata)
        landmarks, run = graph.landmarks, partial(run_onnx, content)
    else:
        content, landmarks, run = _booster(model, cut, metadata)
    X = simulated_table(model, landmarks) if events is None else given_table(model, events)
    X = X.astype(precision).astype(np.float64, copy=False)
    score, selected = run(X)
    expected = library_score(model, X)
    largest = _compare(score, expected)
    with written_whole(path) as beside:
        beside.write_bytes(content)
    n_moved = int(np.sum(selected != (expected >= cut)))
    return Exported(path, format, precision, largest, n_moved, score.size, simulated=events is None)


def _compare(score: Array, expected: Array) -> float:
    """Largest difference of two scores, which must be no more than rounding."""
    difference = np.abs(score - expected)
    largest = float(np.max(difference, initial=0.0))
    if not largest <= TOLERANCE:
        at = int(np.argmax(np.where(np.isnan(difference), np.inf, difference)))
        raise InputError(
            f"the exported model gives event {at} of {score.size:,} the score {score[at]:.8g} and the library gives it "
            f"{expected[at]:.8g}; they may differ by {TOLERANCE:g}, so nothing was written"
        )
    return largest


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


def _booster(
    model: Any, cut: float, metadata: Mapping[str, str]
) -> tuple[bytes, dict[int, list[Array]], Callable[[Array], tuple[Array, BoolArray]]]:
    """The only booster of the model as XGBoost's JSON, landmarks of each feature, and XGBoost that reads it back."""
    parts = getattr(model, "models_", [])
    if len(parts) != 1:
        what = f"this {type(model).__name__} has {len(parts)}" if parts else f"a {type(model).__name__} has none"
        raise InputError(
            f"xgboost-json holds one XGBoost booster, and {what}; export it as onnx, or train with refit=True"
        )
    part = parts[0]
    if not isinstance(part, XGBoostModel):
        raise InputError(f"xgboost-json holds an XGBoost booster, not a {type(part).__name__}; export it as onnx")
    if not np.isnan(part.missing):
        raise InputError(
            f"missing={part.missing:g} cannot be told to readers of xgboost-json: train with NaN, or export as onnx"
        )
    forest, objective = xgboost_forest(part)  # refuses what other readers would misunderstand
    if objective != "binary:logistic" or forest.tree_factors:
        raise InputError("only trees with logistic loss and without dropout can be exported as xgboost-json")
    booster = part.kept.copy()
    booster.set_attr(**{f"fivesigma_{name.removeprefix('fivesigma_')}": value for name, value in metadata.items()})
    content = bytes(booster.save_raw("json"))

    def run(X: Array) -> tuple[Array, BoolArray]:
        score = XGBoostModel(need("xgboost").Booster(model_file=bytearray(content))).signal_probability(X)
        return score, score >= cut

    return content, {k: [values] for k, values in forest.thresholds().items()}, run


def _metadata(model: Any, cut: float, categories: Any) -> dict[str, str]:
    """What a reader must know beside the scores; numbers and lists as JSON."""
    found: dict[str, Any] = {
        "feature_names": Columns.of_model(model).feature_names or [f"f{k}" for k in range(model.n_features_in_)],
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


def run_onnx(content: bytes, X: Array) -> tuple[Array, BoolArray]:
    """Score and selection of each event by onnxruntime, on one thread."""
    runtime = need("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    asked = np.float32 if session.get_inputs()[0].type == "tensor(float)" else np.float64
    score, selected = session.run([SCORE, SELECTED], {FEATURES: X.astype(asked, copy=False)})
    return score, selected


def library_score(model: Any, X: Array) -> Array:
    """P(signal) by the model itself."""
    with warnings.catch_warnings():
        # The table has the model's columns in their order; that it is not a frame does not matter here.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        if isinstance(model, SignificanceClassifier):
            return np.asarray(model.__fivesigma_score__(X), dtype=np.float64)
        return np.asarray(model.predict_proba(X)[:, 1], dtype=np.float64)


def given_table(model: Any, events: Any) -> Array:
    """Features of given events, as the model would see them."""
    if isinstance(events, Events):
        names = getattr(model, "feature_names_in_", None)
        table: Any = events.X if names is None else events.table([str(name) for name in names])
        if table.shape[1] != model.n_features_in_:
            raise InputError(
                f"the events have {table.shape[1]} features, and the model was trained with {model.n_features_in_}"
            )
    else:
        table = validate_data(model, events, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
    if len(table) == 0:
        raise InputError("there are no events on which the exported model could be compared")
    return np.ascontiguousarray(table, dtype=np.float64)


def simulated_table(model: Any, landmarks: Mapping[int, Sequence[Array]], n_events: int = N_SIMULATED) -> Array:
    """Events at, just beside and between the values at which the model changes its mind, some of them missing."""
    rng = np.random.default_rng(0)
    X = np.empty((n_events, model.n_features_in_))
    for k in range(X.shape[1]):
        known = np.unique(np.concatenate(landmarks[k])) if k in landmarks else np.array([-1.0, 1.0])
        X[:, k] = _around(known, n_events, rng)
    if _takes_nan(model):
        X[rng.random(X.shape) < _MISSING] = np.nan
    return X


def _takes_nan(model: Any) -> bool:
    """Whether the model scores an event of which nothing is known; tags do not say it of a Pipeline that imputes."""
    try:
        library_score(model, np.full((1, model.n_features_in_), np.nan))
    except ValueError:
        return False
    return True


def _around(known: Array, n: int, rng: np.random.Generator) -> Array:
    """Values of one feature, half of them anywhere in the range of its landmarks, the others where rounding matters."""
    at = rng.choice(known, n)
    single = at.astype(np.float32)
    below, above = (np.nextafter(single, np.float32(end)).astype(np.float64) for end in (-np.inf, np.inf))
    low, high = float(known[0]), float(known[-1])
    width = high - low or abs(low) or 1.0
    anywhere = rng.uniform(low - 0.1 * width, high + 0.1 * width, n)
    # Midway between two numbers of single precision a value is rounded to one of them.
    beside = [np.nextafter(at, -np.inf), np.nextafter(at, np.inf)]
    special = [at, *beside, below, above, (single + below) / 2, (single + above) / 2]
    return np.asarray(np.where(rng.random(n) < 0.5, anywhere, np.choose(rng.integers(len(special), size=n), special)))
