"""One score is enough: its categories reach the significance without binning, and no others pass it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from fivesigma import AMS2, Normalisation, Varied, categorise, yield_shifts
from fivesigma._types import Array, IntArray
from fivesigma.likelihood.least_favourable import (
    efficient_direction,
    efficient_score,
    least_favourable,
    likelihood_ratio,
)
from fivesigma.likelihood.profile import Counts
from fivesigma.likelihood.shifts import Systematics, counts_of


class Toy(NamedTuple):
    """Exact densities on the cells of a plane: signal, background and the shifts of the background."""

    s: Array
    b: Array
    shifts: Array

    @property
    def ratios(self) -> tuple[Array, Array, Array]:
        return self.s + self.b, self.s / self.b, self.shifts / self.b


def random_toy(seed: int, n: int = 40, n_systematics: int = 3) -> Toy:
    """Three Gaussian backgrounds, of which some have an uncertain yield and some an uncertain place."""
    rng = np.random.default_rng(seed)
    x, y = (v.ravel() for v in np.meshgrid(*[np.linspace(-4, 4, n)] * 2))

    def blob(total: float, at: Array, width: float) -> Array:
        density = np.exp(-((x - at[0]) ** 2 + (y - at[1]) ** 2) / (2 * width**2))
        return np.asarray(total * density / density.sum())

    places = rng.normal(0, 1, (3, 2))
    parts = [blob(rng.uniform(2e3, 2e4), place, 1.5) for place in places]
    s, b = blob(rng.uniform(100, 400), rng.normal(0, 1, 2), 0.7), np.sum(parts, axis=0)
    shifts = [rng.uniform(0.02, 0.2) * part for part in parts]
    moved = [
        (blob(p.sum(), at + 0.1, 1.5) - blob(p.sum(), at - 0.1, 1.5)) / 2 for p, at in zip(parts, places, strict=True)
    ]
    chosen = rng.permutation(6)[:n_systematics]
    return Toy(s, b, np.array([*shifts, *moved])[chosen])


def summed(bin_of: IntArray, *values: Array) -> list[Array]:
    """Sums in the bins that are not empty; the first values are positive."""
    sums: Array = np.array([np.bincount(bin_of, v) for v in values], dtype=np.float64)
    return list(sums[:, sums[0] > 0])


def binned(toy: Toy, bin_of: IntArray) -> float:
    """Profiled significance of a partition."""
    n, b, *rows = summed(bin_of, toy.s + toy.b, toy.b, *toy.shifts)
    up = np.array(rows)
    return float(np.sqrt(2 * Counts(n, b, up, -up).lowest().objective))


def uncertainty(toy: Toy, bin_of: IntArray) -> float:
    n, s, *rows = summed(bin_of, toy.s + toy.b, toy.s, *toy.shifts)
    return efficient_direction(n, s / n, np.array(rows) / n, np.ones(len(rows))).value


def quantile_bins(score: Array, weight: Array, k: int) -> IntArray:
    order = np.argsort(score)
    out = np.empty(score.size, dtype=np.intp)
    share = np.cumsum(weight[order]) / weight.sum()
    out[order] = np.minimum((k * share).astype(np.intp), k - 1)
    return out


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(2, 200))
def test_no_categories_of_any_score_exceed_the_significance_without_binning(seed: int, n_sys: int, k: int) -> None:
    toy = random_toy(seed, n=20, n_systematics=n_sys)
    bound = least_favourable(*toy.ratios, np.ones(n_sys)).value
    _, r_s, r = toy.ratios
    rng = np.random.default_rng(seed)
    others = [
        r_s,
        rng.normal(size=r_s.size),
        r_s - rng.normal(0, 1, n_sys) @ r,
        likelihood_ratio(r_s, r, rng.normal(0, 0.3, n_sys)),
    ]
    for score in others:
        assert binned(toy, quantile_bins(score, toy.s + toy.b, k)) <= bound * (1 + 1e-9)
    assert binned(toy, rng.integers(0, k, r_s.size)) <= bound * (1 + 1e-9)


@pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")  # cells are no simulated events
@pytest.mark.parametrize("seed", range(5))
def test_fifty_optimal_categories_of_t_reach_it_within_a_per_cent(seed: int) -> None:
    toy = random_toy(seed)
    weight, r_s, r = toy.ratios
    found = least_favourable(weight, r_s, r, np.ones(3))
    n = r_s.size
    y, w = np.repeat([1, 0], n), np.concatenate([toy.s, toy.b])

    def reached(score: Array, k: int = 50) -> float:
        moved = {
            str(j): (Varied(weight=np.concatenate([toy.s, toy.b + row])), None) for j, row in enumerate(toy.shifts)
        }
        found = categorise(
            np.tile(score, 2), y, w, k, systematics=moved, rule="peak", min_effective=0, mc_statistics=False
        )
        return found.significance

    value = reached(np.log1p(likelihood_ratio(r_s, r, found.pulls)))
    assert 0.99 * found.value < value < found.value * (1 + 1e-9)
    assert reached(np.log1p(r_s)) <= value + 0.01 * found.value


def test_the_pulls_minimise_the_integral() -> None:
    toy = random_toy(3)
    n = toy.s + toy.b

    def cost(theta: Array) -> float:
        m = toy.b + theta @ toy.shifts
        return float(np.sum(n * np.log(n / m) - n + m) + theta @ theta / 2)

    theirs = minimize(cost, np.zeros(3), method="BFGS", options={"gtol": 1e-9})
    found = least_favourable(*toy.ratios, np.ones(3))
    np.testing.assert_allclose(found.pulls, theirs.x, atol=1e-5)
    assert found.value == pytest.approx(np.sqrt(2 * theirs.fun), rel=1e-9)


def test_a_free_systematic_costs_at_least_as_much_as_a_constrained_one() -> None:
    toy = random_toy(1)
    constrained = least_favourable(*toy.ratios, np.ones(3))
    free = least_favourable(*toy.ratios, np.array([0.0, 1.0, 1.0]))
    assert free.value <= constrained.value
    n = toy.s + toy.b
    m = toy.b + free.pulls @ toy.shifts
    slope = ((1 - n / m) * toy.shifts).sum(axis=1) + np.array([0.0, 1.0, 1.0]) * free.pulls
    np.testing.assert_allclose(slope, 0, atol=1e-6)


def test_nothing_moves_the_score_where_nothing_is_uncertain() -> None:
    toy = random_toy(0)
    weight, r_s, _ = toy.ratios
    found = least_favourable(weight, r_s, np.zeros((0, r_s.size)), np.zeros(0))
    expected = np.sqrt(2 * np.sum((toy.s + toy.b) * np.log1p(r_s) - toy.s))
    assert found.value == pytest.approx(expected, rel=1e-10)
    np.testing.assert_array_equal(likelihood_ratio(r_s, np.zeros((0, r_s.size)), found.pulls), (1 + r_s) - 1)


def test_the_background_of_the_score_never_vanishes() -> None:
    r = np.array([[-3.0, 0.0]])
    assert np.isfinite(np.log1p(likelihood_ratio(np.zeros(2), r, np.ones(1)))).all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 200))
def test_no_categories_measure_better_than_the_limit_and_those_of_the_efficient_score_reach_it(
    seed: int, k: int
) -> None:
    toy = random_toy(seed, n=20)
    n = toy.s + toy.b
    share, rho = toy.s / n, toy.shifts / n
    found = efficient_direction(n, share, rho, np.ones(3))
    rng = np.random.default_rng(seed)
    for score in (share, rng.normal(size=n.size), share - rng.normal(0, 0.1, 3) @ rho):
        assert uncertainty(toy, quantile_bins(score, n, k)) >= found.value * (1 - 1e-9)
    best = uncertainty(toy, quantile_bins(efficient_score(share, rho, found.pulls), toy.s, 100))
    assert found.value * (1 - 1e-9) <= best <= 1.02 * found.value


def test_the_uncertainty_is_that_of_the_likelihood() -> None:
    toy = random_toy(2)
    n = toy.s + toy.b
    found = efficient_direction(n, toy.s / n, toy.shifts / n, np.array([1.0, 0.0, 1.0]))
    rows = np.vstack([toy.s, toy.shifts])  # derivatives of n in mu and in each pull
    hessian = (rows / n) @ rows.T + np.diag([0.0, 1.0, 0.0, 1.0])
    assert found.value == pytest.approx(np.sqrt(np.linalg.inv(hessian)[0, 0]), rel=1e-8)


def test_constraints_are_those_of_the_hessian_of_the_likelihood() -> None:
    rng = np.random.default_rng(0)
    process = np.repeat(["H", "W", "Z"], 50)
    score, weight = rng.uniform(size=150), rng.uniform(1, 3, 150)
    tilt = np.where(process == "H", 1.0, 1 + 0.2 * score) * weight
    given: Systematics = {
        "Z": Normalisation("Z", 0.2),
        "tilt": (Varied(weight=tilt), None),
        "W": Normalisation("W", None),
    }
    shifts = yield_shifts([0, 0.2, 0.4, 0.6, 0.8, 1], score, process == "H", weight, given, process=process)
    s, b = shifts.yields(signal=True), shifts.yields(signal=False)
    counts = counts_of(AMS2(), s, b, shifts)

    def likelihood(at: Array) -> float:
        m = at[0] * s + b + counts.shifts(at[None, 1:])[0][0]
        return float((m - (s + b) * np.log(m)).sum() + (at[1] ** 2 + at[2] ** 2) / 2)

    steps, here = 1e-4 * np.eye(4), np.array([1.0, 0, 0, 0])

    def second(i: int, j: int) -> float:
        signs = ((1, 1), (1, -1), (-1, 1), (-1, -1))
        return sum(p * q * likelihood(here + p * steps[i] + q * steps[j]) for p, q in signs) / 4e-8

    hessian = np.array([[second(i, j) for j in range(4)] for i in range(4)])
    widths = np.sqrt(np.diag(np.linalg.inv(hessian)))[1:]
    np.testing.assert_allclose(list(shifts.constraints().values()), widths, rtol=1e-3)
