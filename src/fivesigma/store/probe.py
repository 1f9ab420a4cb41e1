"""Scores of a few fixed events, saved with a model: another version of a library must give the same.

A library may read a file of another version without a complaint and mean something else by it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from fivesigma._tools.extras import BOOSTERS, version_of
from fivesigma._types import Array
from fivesigma.errors import StoreError

LIBRARIES = ("sklearn", *BOOSTERS, "torch")
_ROWS = 16
_CLOSE = {"rtol": 1e-4, "atol": 1e-6}  # what float32 and another order of sums may change


def probe(model: Any) -> list[float] | None:
    """Scores of fixed events of all sizes; None if the model takes no plain array, as a Pipeline that needs names."""
    try:
        return [float(score) for score in _scores(model)]
    except Exception:  # whatever a learner raises
        return None


def check_probe(model: Any, saved: Any, versions: Mapping[str, str], where: str) -> None:
    """Refuse a model that other versions of its libraries cannot use, or score otherwise.

    Parameters
    ----------
    model : estimator
    saved : list of float or None
        What `probe` gave when the model was saved; models of format 1 have none.
    versions : mapping of str to str
        Of the libraries that wrote the model.
    where : str
        Name of the model.
    """
    other = {
        name: (then, now)
        for name in LIBRARIES
        if (then := versions.get(name)) is not None and (now := version_of(name)) is not None and then != now
    }
    if not other:
        return
    then, now = (", ".join(f"{name} {pair[k]}" for name, pair in other.items()) for k in (0, 1))
    advice = f"install {then} or train the model again"
    try:
        scores = _scores(model)
    except (AttributeError, TypeError) as err:  # what objects of another version raise
        raise StoreError(f"{where} was saved with {then} and cannot be used with {now} ({err}); {advice}") from err
    except Exception:  # it may need a frame
        return
    numbers = isinstance(saved, list) and len(saved) == _ROWS and all(isinstance(v, float) for v in saved)
    if saved is not None and not numbers:
        raise StoreError(f"the probe in the manifest of {where} is not {_ROWS} scores")
    if saved is not None and not np.allclose(scores, saved, equal_nan=True, **_CLOSE):
        raise StoreError(f"{where} was saved with {then} and gives other scores with {now}; {advice}")


def made_up_events(model: Any, n_rows: int = _ROWS) -> Array:
    """Events whose features are of all sizes; always the same."""
    rng = np.random.default_rng(0)
    shape = (n_rows, int(model.n_features_in_))
    return np.asarray(rng.normal(size=shape) * 10.0 ** rng.uniform(-2, 3, size=shape))


def _scores(model: Any) -> Array:
    X = made_up_events(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if hasattr(model, "__fivesigma_score__"):
            return np.asarray(model.__fivesigma_score__(X), dtype=np.float64)
        return np.asarray(model.predict_proba(X)[:, 1], dtype=np.float64)
