"""Small files of events, and models by which runs are compared."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from fivesigma.datasets import make_htautau
from fivesigma.datasets.write import write_events

# Without sampling of rows and columns, so that models of different numbers of workers can be equal.
ALL_ROWS = {"subsample": 1.0, "colsample_bytree": 1.0, "max_depth": 3}


class Where(LogisticRegression):
    """Remembers in which process it was fitted."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Where:
        self.pid_ = os.getpid()
        super().fit(X, y, sample_weight)
        return self


def write_files(folder: Path, n_files: int = 4, n_events: int = 1200) -> str:
    """Write files of simulated events; return the pattern that finds them."""
    for k in range(n_files):
        write_events(make_htautau(n_events, random_state=k), folder / f"part-{k}.parquet")
    return str(folder / "part-*.parquet")


def trees(model: Any) -> bytes:
    """The trees of a model, byte by byte."""
    (only,) = model.models_
    return bytes(only.booster.save_raw("ubj"))


def assert_same(one: Any, other: Any) -> None:
    """Two fits gave the same trees, rounds and cut."""
    assert trees(one) == trees(other)
    assert one.cut_ == other.cut_
    assert one.selected_fraction_ == other.selected_fraction_
    for a, b in zip(one.history_, other.history_, strict=True):
        np.testing.assert_allclose((a.s, a.b, a.significance), (b.s, b.b, b.significance), rtol=1e-12)
