from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from fivesigma.significance.numerics import expm1mx, log1pmx, poisson_f
from tests.significance.exact import f2, mpf

# Both sides of the switch from series to textbook at 0.05, and far from it.
NEAR_SWITCH = np.nextafter(0.05, [0.0, 1.0])
POSITIVE = np.concatenate([np.geomspace(1e-15, 1e7, 89), NEAR_SWITCH, np.linspace(0.045, 0.055, 21)])
BELOW_ZERO = -np.concatenate([np.geomspace(1e-15, 0.9, 61), NEAR_SWITCH])


@pytest.mark.parametrize(
    ("function", "exact", "x"),
    [
        (log1pmx, lambda v: mp.log(1 + v) - v, np.append(POSITIVE, BELOW_ZERO)),
        (expm1mx, lambda v: mp.exp(v) - 1 - v, np.append(POSITIVE[POSITIVE < 600], BELOW_ZERO)),
        (poisson_f, f2, np.append(POSITIVE, BELOW_ZERO)),
    ],
    ids=["log1pmx", "expm1mx", "poisson_f"],
)
def test_full_precision(function: Callable[..., Any], exact: Callable[[Any], Any], x: np.ndarray) -> None:
    for v, got in zip(x, function(x), strict=True):
        assert abs(float(mpf(got) / exact(mpf(v)) - 1)) < 1e-13, v


@pytest.mark.parametrize("function", [log1pmx, expm1mx, poisson_f])
def test_shapes_and_zero(function: Callable[..., Any]) -> None:
    assert function(0.0) == 0.0
    assert function(np.ones((2, 3))).shape == (2, 3)
    assert function(np.ones((0,))).shape == (0,)


@pytest.mark.parametrize("function", [log1pmx, expm1mx, poisson_f])
def test_long_arrays_agree_with_single_values(function: Callable[..., Any]) -> None:
    x = np.random.default_rng(0).permutation(np.geomspace(1e-6, 10.0, 40_000))  # several chunks of mixed sizes
    at = [0, 1, 16_383, 16_384, 39_999]
    np.testing.assert_allclose(function(x)[at], [function(v) for v in x[at]], rtol=1e-15)
