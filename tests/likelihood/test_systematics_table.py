"""How the best cut moves with the background's uncertainty, against a brute-force scan."""

from __future__ import annotations

import math

import numpy as np
import pytest
from benchmarks.studies.systematics import UNCERTAINTIES, Row, expected_events, rows
from scipy.optimize import minimize_scalar

from fivesigma._types import Array

Curves = tuple[Array, Array, Array]


def asimov(s: float, b: float, sigma: float) -> float:
    """Cowan's formula for a background b with an uncertainty sigma, as printed."""
    if sigma == 0:
        return math.sqrt(2 * ((s + b) * math.log(1 + s / b) - s))
    v = sigma**2
    first = (s + b) * math.log((s + b) * (b + v) / (b * b + (s + b) * v))
    return math.sqrt(2 * (first - b * b / v * math.log(1 + v * s / (b * (b + v)))))


def gaussian(s: float, b: float, sigma: float) -> float:
    """Poisson likelihood ratio with a Gaussian constraint on b, minimised by search."""

    def cost(theta: float) -> float:
        n, m = s + b, b + theta
        return n * math.log(n / m) - n + m + (theta**2 / (2 * sigma**2) if sigma else 0.0)

    return math.sqrt(2 * (cost(0.0) if sigma == 0 else minimize_scalar(cost, bounds=(0, s), method="bounded").fun))


@pytest.fixture(scope="module")
def made() -> list[Row]:
    return rows()


@pytest.fixture(scope="module")
def curves() -> Curves:
    score, y, weight = expected_events()
    cuts = np.unique(score)[600:2600:2]
    s = np.array([weight[(score >= cut) & (y == 1)].sum() for cut in cuts])
    b = np.array([weight[(score >= cut) & (y == 0)].sum() for cut in cuts])
    return cuts, s, b


@pytest.mark.parametrize("i", range(len(UNCERTAINTIES)))
def test_best_cuts_equal_a_brute_force_scan(i: int, made: list[Row], curves: Curves) -> None:
    cuts, s, b = curves
    row = made[i]
    known = int(np.argmax([asimov(x, y, 0.0) for x, y in zip(s, b, strict=True)]))
    sigma = row.uncertainty * b[known]
    # On/off counts with a control region tau times as large: sigma_b^2 = b / tau.
    per_event = sigma**2 / b[known]
    scans = (
        [asimov(x, y, row.uncertainty * y) for x, y in zip(s, b, strict=True)],
        [gaussian(x, y, sigma) for x, y in zip(s, b, strict=True)],
        [asimov(x, y, math.sqrt(per_event * y)) for x, y in zip(s, b, strict=True)],
    )
    for z, cut, significance in zip(scans, row.cut, row.significance, strict=True):
        assert significance == pytest.approx(max(z), rel=1e-4)
        assert cut == pytest.approx(cuts[int(np.argmax(z))], abs=0.02)
    assert row.unmoved == pytest.approx(asimov(s[known], b[known], sigma), rel=1e-4)


def test_cuts_move_as_the_text_says(made: list[Row]) -> None:
    relative, constant, on_off = zip(*(row.cut for row in made), strict=True)
    assert (np.diff(relative) > 0).all()
    assert (np.diff(constant) < 0).all()
    assert (np.diff(on_off) <= 0).all()
    assert all(row.unmoved <= row.significance[0] for row in made)
