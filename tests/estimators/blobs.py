"""A small problem whose answer is known."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from fivesigma._types import Array, IntArray

YIELDS = (300.0, 3000.0)
needs_callbacks = pytest.mark.skipif(not find_spec("sklearn.callback"), reason="scikit-learn has callbacks since 1.9")


def make_blobs(
    n: int = 4000, *, distance: float = 1.5, seed: int = 0, yields: tuple[float, float] = YIELDS
) -> tuple[Array, IntArray, Array]:
    """Two Gaussians in two dimensions, half of the rows signal, weighted to the yields."""
    rng = np.random.default_rng(seed)
    y = (np.arange(n) % 2).astype(np.intp)
    X = rng.normal(size=(n, 2))
    X[:, 0] += distance * y
    weight = np.where(y == 1, yields[0], yields[1]) / (n / 2)
    return X, y, weight
