"""Values, u and class weights against the published formulas in 60 digits, for s/b from 1e-12 to 1e6."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

from fivesigma import Utility
from fivesigma.significance import VariationalUtility
from tests.significance.exact import (
    UTILITIES,
    VARIATIONAL,
    conjugate,
    mpf,
    name_of,
    objective,
    slopes,
)

RATIOS = np.geomspace(1e-12, 1e6, 37)
BACKGROUNDS = [0.02, 7.0, 3e4]
RTOL = 1e-12


def _points(utility: Utility) -> list[tuple[float, float]]:
    return [(float(t * (b + utility.b_reg)), b) for b in BACKGROUNDS for t in RATIOS]


def _worst(got: np.ndarray, want: list[object]) -> float:
    return max(abs(float(mpf(g) / w - 1)) for g, w in zip(got, want, strict=True))


@pytest.mark.parametrize("utility", UTILITIES, ids=name_of)
def test_value(utility: Utility) -> None:
    s, b = np.array(_points(utility)).T
    exact = [mp.sqrt(2 * objective(utility, mpf(x), mpf(y))) for x, y in zip(s, b, strict=True)]
    assert _worst(utility.value(s, b), exact) < RTOL


@pytest.mark.parametrize("utility", UTILITIES, ids=name_of)
def test_class_weights_are_the_slopes_of_the_objective(utility: Utility) -> None:
    s, b = np.array(_points(utility)).T
    signal, background = utility.class_weights(s, b)
    exact = [slopes(utility, mpf(x), mpf(y)) for x, y in zip(s, b, strict=True)]
    assert _worst(signal, [e[0] for e in exact]) < RTOL
    assert _worst(background, [e[1] for e in exact]) < RTOL


@pytest.mark.parametrize("utility", VARIATIONAL, ids=name_of)
def test_u_and_weights_at(utility: VariationalUtility) -> None:
    s, b = np.array(_points(utility)).T
    u = utility.u(s, b)
    assert _worst(u, [slopes(utility, mpf(x), mpf(y))[0] for x, y in zip(s, b, strict=True)]) < RTOL
    signal, background = utility.weights_at(u)
    np.testing.assert_array_equal(signal, u)
    for x, got in zip(u, background, strict=True):
        exact = conjugate(utility, mpf(x))
        # Near the end of its domain f* magnifies the rounding of u itself by u f*'(u) / f*(u).
        condition = float(mpf(x) * mp.diff(lambda v: conjugate(utility, v), mpf(x), relative=True) / exact)
        assert abs(float(mpf(got) / exact - 1)) < RTOL + 4e-16 * condition, x


@pytest.mark.parametrize("utility", UTILITIES, ids=name_of)
def test_no_signal_has_no_significance(utility: Utility) -> None:
    assert utility.value(0.0, 3.0) == 0.0
    np.testing.assert_array_equal(utility.class_weights(0.0, 3.0), (0.0, 0.0))
