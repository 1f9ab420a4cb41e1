"""Events that many tests use."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

DATA = Path(os.environ.get("FIVESIGMA_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(scope="session")
def real_events() -> tuple[NDArray[np.float32], NDArray[np.str_], NDArray[np.float64]]:
    """X, y and weights of the first 22,889 events of the 2014 challenge, scaled to its yields."""
    polars = pytest.importorskip("polars")
    path = DATA / "atlas-higgs-challenge-2014-v2.first22889.csv.gz"
    if not path.exists():
        pytest.skip("the challenge's events are not beside this clone (set FIVESIGMA_DATA to their folder)")
    frame = polars.read_csv(path)
    X = frame.select([c for c in frame.columns if c.startswith(("DER_", "PRI_"))]).to_numpy().astype(np.float32)
    X[X == -999.0] = np.nan
    y = frame["Label"].to_numpy().astype(str)
    weight = frame["KaggleWeight"].to_numpy().copy()
    weight[y == "s"] *= 691.98861 / weight[y == "s"].sum()
    weight[y == "b"] *= 410999.84732 / weight[y == "b"].sum()
    return X, y, weight
