"""Whether an exported file says what the model says: on given events, or on simulated ones where it is hardest."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from fivesigma._tools.extras import need
from fivesigma._types import Array, BoolArray
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError
from fivesigma.estimators.significance_classifier import SignificanceClassifier
from fivesigma.exporting.graph import FEATURES, SCORE, SELECTED

TOLERANCE = 1e-5  # largest difference of a score with which a file is written
N_SIMULATED = 4096
_MISSING = 0.1  # share of missing values among simulated ones


@dataclass(frozen=True)
class Agreement:
    """An exported file against the model."""

    largest_difference: float  # of the scores of any event
    n_moved: int  # events that the cut selects in one of them only: their scores differ from the cut by rounding
    n_events: int


def compare(score: Array, expected: Array, selected: BoolArray, cut: float) -> Agreement:
    """Compare scores and selections, and refuse a difference that is more than rounding."""
    difference = np.abs(score - expected)
    largest = float(np.max(difference, initial=0.0))
    if not largest <= TOLERANCE:
        at = int(np.argmax(np.where(np.isnan(difference), np.inf, difference)))
        raise InputError(
            f"the exported model gives event {at} of {score.size:,} the score {score[at]:.8g} and the library gives it "
            f"{expected[at]:.8g}; they may differ by {TOLERANCE:g}, so nothing was written"
        )
    return Agreement(largest, int(np.sum(selected != (expected >= cut))), score.size)


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
    special = [
        at,
        np.nextafter(at, -np.inf),
        np.nextafter(at, np.inf),
        below,
        above,
        (single + below) / 2,
        (single + above) / 2,
    ]
    return np.asarray(np.where(rng.random(n) < 0.5, anywhere, np.choose(rng.integers(len(special), size=n), special)))
