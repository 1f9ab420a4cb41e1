"""Utilities against other people's: pyhf, the profile fit, and each other in their limits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyhf
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from fivesigma import AMS2, AMS3, GaussianBackground, OnOff, RelativeBackground, SOverRootSB, Utility

COUNTS = [(5.0, 10.0), (10.0, 100.0), (30.0, 4.0), (240.0, 4800.0), (0.5, 1.0)]


def _pyhf_significance(s: float, b: float, modifiers: list[dict[str, Any]]) -> float:
    """Expected discovery significance: the root of q0 on the Asimov data of mu = 1."""
    mu = {"name": "mu", "type": "normfactor", "data": None}
    samples = [
        {"name": "signal", "data": [s], "modifiers": [mu]},
        {"name": "background", "data": [b], "modifiers": modifiers},
    ]
    model = pyhf.Model({"channels": [{"name": "bin", "samples": samples}]}, poi_name="mu", validate=False)
    parameters = model.config.suggested_init()
    parameters[model.config.poi_index] = 1.0
    data = model.expected_data(parameters)
    config = model.config
    q0 = pyhf.infer.test_statistics.q0(
        0.0, data, model, config.suggested_init(), config.suggested_bounds(), config.suggested_fixed()
    )
    return math.sqrt(q0)


@pytest.mark.parametrize(("s", "b"), COUNTS)
def test_ams2_is_pyhfs_expected_significance(s: float, b: float) -> None:
    assert float(AMS2().value(s, b)) == pytest.approx(_pyhf_significance(s, b, []), abs=1e-6)


@pytest.mark.parametrize(("s", "b"), COUNTS)
def test_b_reg_is_background(s: float, b: float) -> None:
    assert float(AMS2(b_reg=10.0).value(s, b)) == pytest.approx(_pyhf_significance(s, b + 10.0, []), abs=1e-6)


@pytest.mark.parametrize(("s", "b"), [(5.0, 10.0), (10.0, 100.0), (30.0, 40.0)])
@pytest.mark.parametrize("relative", [0.1, 0.4])
def test_uncertain_backgrounds_against_pyhf(s: float, b: float, relative: float) -> None:
    width = relative * b
    counted = {"name": "counted", "type": "shapesys", "data": [width]}  # an auxiliary Poisson count of (b / width)^2
    expected = _pyhf_significance(s, b, [counted])
    assert float(RelativeBackground(relative).value(s, b)) == pytest.approx(expected, abs=1e-5)
    assert float(OnOff(tau=b / width**2).value(s, b)) == pytest.approx(expected, abs=1e-5)
    normal = {"name": "normal", "type": "histosys", "data": {"hi_data": [b + width], "lo_data": [b - width]}}
    expected = _pyhf_significance(s, b, [normal])
    assert float(GaussianBackground(width).value(s, b)) == pytest.approx(expected, abs=1e-5)


@given(s=st.floats(0.1, 1e3), b=st.floats(0.5, 1e3), tau=st.floats(0.05, 50))
def test_on_off_is_li_and_ma_on_asimov_counts(s: float, b: float, tau: float) -> None:
    n_on, n_off, alpha = s + b, tau * b, 1 / tau
    total = n_on + n_off
    half_square = n_on * np.log((1 + alpha) / alpha * n_on / total) + n_off * np.log((1 + alpha) * n_off / total)
    assert OnOff(tau).objective(s, b) == pytest.approx(half_square, rel=1e-9, abs=1e-12 * total)


@given(s=st.floats(0.1, 1e3), b=st.floats(0.5, 1e3), sigma=st.floats(0.05, 100))
def test_gaussian_background_is_the_profile_fit(s: float, b: float, sigma: float) -> None:
    n = s + b

    def deviance(theta: float) -> float:
        return float(n * np.log(n / (b + theta)) - n + b + theta + theta**2 / (2 * sigma**2))

    fit = minimize_scalar(deviance, bounds=(0.0, s), method="bounded", options={"xatol": 1e-9 * s})
    assert GaussianBackground(sigma).objective(s, b) == pytest.approx(fit.fun, rel=1e-9, abs=1e-11 * n)


@pytest.mark.parametrize(
    "utility",
    [OnOff(tau=1e12), OnOff(tau=1e300), GaussianBackground(0.0), GaussianBackground(1e-8), RelativeBackground(0.0),
     RelativeBackground(1e-9), RelativeBackground(1e-160)],
)  # fmt: skip
def test_a_background_known_exactly_is_ams2(utility: Utility) -> None:
    s, b = np.array([1e-6, 0.3, 20.0, 500.0]), np.array([10.0, 5.0, 100.0, 3.0])
    np.testing.assert_allclose(utility.value(s, b), AMS2().value(s, b), rtol=1e-9)
    np.testing.assert_allclose(utility.class_weights(s, b), AMS2().class_weights(s, b), rtol=1e-9)


@given(s=st.floats(1e-3, 1e3), b=st.floats(1e-2, 1e4))
def test_order_of_the_measures(s: float, b: float) -> None:
    ams2 = float(AMS2().value(s, b))
    assert SOverRootSB().value(s, b) < ams2 < AMS3().value(s, b)
    for worse in (OnOff(2.0), GaussianBackground(1.0), RelativeBackground(0.2)):
        assert worse.value(s, b) < ams2 * (1 + 1e-14)


@pytest.mark.parametrize("utility", [AMS3(), SOverRootSB()])
def test_a_small_signal_is_ams2(utility: Utility) -> None:
    np.testing.assert_allclose(utility.value(1e-7, [1.0, 50.0]), AMS2().value(1e-7, [1.0, 50.0]), rtol=1e-7)


@given(scale=st.floats(0.1, 100), s=st.floats(1e-2, 1e3), b=st.floats(1e-1, 1e3))
def test_luminosity_scales_the_papers_family_by_its_root(scale: float, s: float, b: float) -> None:
    for utility in (AMS2(), AMS3(), SOverRootSB(), OnOff(3.0)):
        assert utility.value(scale * s, scale * b) == pytest.approx(scale**0.5 * float(utility.value(s, b)), rel=1e-12)
