"""Smooth curves for the yields of a ranked sample."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.interpolate import BSpline
from scipy.optimize import minimize
from scipy.special import ndtr, ndtri

from fivesigma.cut import yield_model as module
from fivesigma.cut.ranking import rank_events
from fivesigma.cut.yield_model import MIN_CELLS, RankedYields

SEEDS = st.integers(0, 2**32 - 1)


def _measured(n: int, seed: int, *, distance: float = 1.5, share: float = 0.3, negative: float = 0.0) -> RankedYields:
    """Two Gaussians with weights that scatter, at cuts that are even in the logarithm of the fraction."""
    rng = np.random.default_rng(seed)
    y = rng.random(n) < share
    w = rng.exponential(size=n) * np.where(rng.random(n) < negative, -1.0, 1.0)
    return _at_cuts(rng.normal(distance * y), y, w)


def _at_cuts(score: np.ndarray, y: np.ndarray, w: np.ndarray) -> RankedYields:
    ranking = rank_events(score, y, w)
    cuts = np.unique(np.searchsorted(ranking.last, np.geomspace(5, y.size, 200) - 1))
    return RankedYields((ranking.last[cuts] + 1.0) / y.size, ranking.s[cuts], ranking.b[cuts], *ranking.variances(cuts))


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.sampled_from([0.0, 0.1]))
def test_modelled_yields_rise_to_the_measured_totals(seed: int, negative: float) -> None:
    measured = _measured(2_000, seed, negative=negative)
    assert measured.can_be_modelled
    for modelled, total in zip(measured.by_fraction(), (measured.s, measured.b), strict=True):
        assert (np.diff(modelled, prepend=0.0) > 0).all()
        assert modelled[-1] == pytest.approx(total[-1], rel=0.1)


def test_with_one_weight_the_totals_are_kept() -> None:
    rng = np.random.default_rng(3)
    y = rng.random(3_000) < 0.4
    measured = _at_cuts(rng.normal(1.5 * y), y, np.where(y, 2.0, 50.0))
    s, b = measured.by_fraction()
    assert s[-1] == pytest.approx(measured.s[-1], rel=1e-4)
    assert b[-1] == pytest.approx(measured.b[-1], rel=1e-4)


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_yields_scale_with_the_weights(seed: int, of_s: float, of_b: float) -> None:
    one = _measured(2_000, seed)
    scaled = RankedYields(one.fraction, of_s * one.s, of_b * one.b, of_s**2 * one.s2, of_b**2 * one.b2)
    for factor, before, after in zip((of_s, of_b), one.by_fraction(), scaled.by_fraction(), strict=True):
        np.testing.assert_allclose(after, factor * before, rtol=1e-3)


def test_with_many_events_they_are_the_truth() -> None:
    """Along the whole score, also where the signal vanishes; what is measured is as far off in the tightest cells."""
    rng = np.random.default_rng(1)
    y = rng.random(400_000) < 0.3
    score = rng.normal(1.5 * y)
    measured = _at_cuts(score, y, np.ones(y.size))
    cut = np.quantile(score, 1 - measured.fraction)
    usual = measured.fraction > 0.01
    for modelled, mean, share in zip(measured.by_fraction(), (1.5, 0.0), (0.3, 0.7), strict=True):
        np.testing.assert_allclose(modelled[usual], y.size * share * ndtr(mean - cut[usual]), rtol=0.05)


def test_they_scatter_less_than_what_is_measured() -> None:
    """In the tightest per cent of the events, over samples."""
    rows = []
    for seed in range(30):
        measured = _measured(5_000, seed)
        at = int(np.searchsorted(measured.fraction, 0.01))
        rows.append([measured.b[at], measured.by_fraction()[1][at]])
    assert np.std(np.array(rows)[:, 1]) < 0.7 * np.std(np.array(rows)[:, 0])


def test_few_events_of_a_class_and_few_cells_are_not_modelled() -> None:
    measured = _measured(2_000, 0)
    assert measured.can_be_modelled
    few = slice(None, None, -(-measured.fraction.size // (MIN_CELLS - 2)))
    columns = (measured.fraction, measured.s, measured.b, measured.s2, measured.b2)
    assert not RankedYields(*(v[::-1][few][::-1] for v in columns)).can_be_modelled
    assert not _measured(2_000, 0, share=0.01).can_be_modelled
    assert not _measured(2_000, 0, share=0.99).can_be_modelled


def test_what_contradicts_the_model_is_seen() -> None:
    """Classes so far apart that the background along the fraction is a cliff, which no smooth curve follows."""
    smooth, cliff = _measured(40_000, 1), _measured(40_000, 1, distance=4.0, share=0.5)
    assert not smooth.contradict(*smooth.by_fraction())
    assert cliff.contradict(*cliff.by_fraction())
    for factors in ((1.2, 1.0), (1.0, 1.2)):
        s, b = (factor * v for factor, v in zip(factors, smooth.by_fraction(), strict=True))
        assert smooth.contradict(s, b)


def test_both_scales_of_the_fraction_count() -> None:
    """The geometric mean of the fits along the logarithm and along the Gaussian quantile."""
    measured = _measured(3_000, 5)
    width = np.diff(measured.fraction, prepend=0.0)
    edges = np.append(0.0, measured.fraction)
    logarithm = np.array([quad(np.log, *cell)[0] for cell in itertools.pairwise(edges)]) / width
    quantile = module._mean_quantiles(measured.fraction)
    for modelled, total, weight in zip(
        measured.by_fraction(),
        (measured.s, measured.b),
        (measured.signal_weight, measured.background_weight),
        strict=True,
    ):
        fits = [
            module._running_fit(*module._spline(x, smoothness), total, width, weight)
            for x, smoothness in ((logarithm, module._BY_LOGARITHM), (quantile, module._BY_QUANTILE))
        ]
        assert not np.allclose(fits[0], fits[1], rtol=0.01)
        np.testing.assert_allclose(modelled, np.sqrt(fits[0] * fits[1]), rtol=1e-4)


def test_quantiles_are_means_over_cells() -> None:
    share = np.array([0.001, 0.02, 0.3, 0.31, 0.9, 1.0])
    edges = np.append(-np.inf, ndtri(share))
    for low, high, mean in zip(edges[:-1], edges[1:], module._mean_quantiles(share), strict=True):
        moments = [quad(lambda x, k=k: x**k * np.exp(-x * x / 2), low, high)[0] for k in (0, 1)]
        assert mean == pytest.approx(moments[1] / moments[0], abs=1e-6)


def test_poisson_means_are_the_minimum_of_the_penalised_likelihood() -> None:
    rng = np.random.default_rng(5)
    x = np.sort(rng.uniform(-3, 2, size=40))
    exposure = rng.uniform(0.5, 2.0, size=40)
    scale = np.linspace(0.5, 2.0, 40)  # of a count, at each point
    yields = scale * rng.poisson(20 * exposure * np.exp(-x) / scale)
    yields[7] = -2.0  # negative weights
    basis, penalty = module._spline(x, module._BY_BACKGROUND)
    means = module._poisson_means(basis, penalty, yields, exposure, scale)

    def loss(c: np.ndarray) -> float:
        log = basis @ c + np.log(exposure)
        return float(((np.exp(log) - yields * log) / scale).sum() + c @ penalty @ c / 2)

    start = np.full(basis.shape[1], np.log(yields.sum() / exposure.sum()))
    oracle = minimize(loss, start, method="BFGS", options={"gtol": 1e-6, "maxiter": 2000})
    np.testing.assert_allclose(means, exposure * np.exp(basis @ oracle.x), rtol=2e-3)
    assert (means / scale).sum() == pytest.approx((yields / scale).sum(), rel=1e-4)  # the spline holds the constants


def test_weights_of_events_are_local_where_they_are_light() -> None:
    total, squares = np.array([0.0, 2.0, 20.0, 40.0, 340.0]), np.array([0.0, 4.0, 40.0, 80.0, 3080.0])
    np.testing.assert_allclose(module._mean_weights(total, squares), 2.0 * np.ones(5) + [0, 0, 0, 0, 3080 / 340 - 2])
    heavy_first = np.array([100.0, 1000.0, 1100.0]), np.array([1e4, 1e5, 1.001e5])
    np.testing.assert_allclose(module._mean_weights(*heavy_first), 91.0 * np.ones(3))


def test_splines_are_those_of_scipy() -> None:
    x = np.sort(np.random.default_rng(1).uniform(-2.0, 3.0, size=100))
    basis, _ = module._spline(x, module._BY_LOGARITHM)
    knots = x[0] + module._BY_LOGARITHM.knots * np.arange(-3, basis.shape[1] + 1)
    np.testing.assert_allclose(basis, BSpline.design_matrix(x, knots, 3).toarray(), atol=1e-12)


def test_the_penalty_leaves_polynomials_alone() -> None:
    x = np.linspace(-4.0, 0.0, 50)
    basis, penalty = module._spline(x, module._BY_LOGARITHM)
    cubic = np.linalg.lstsq(basis, x**3 - 2 * x**2 + x, rcond=None)[0]
    quartic = np.linalg.lstsq(basis, x**4, rcond=None)[0]
    assert cubic @ penalty @ cubic < 1e-9
    # The fourth derivative of x^4 is 24; the penalty is the integral of its square over the spline's range.
    assert quartic @ penalty @ quartic == pytest.approx(module._BY_LOGARITHM.penalty * 24**2 * 4.0, rel=0.15)
