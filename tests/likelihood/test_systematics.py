"""Yield shifts under systematic variations, and the significance with them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from fivesigma import AMS2, GaussianBackground
from fivesigma._types import Array, IntArray
from fivesigma.categories import categorise
from fivesigma.errors import InputError
from fivesigma.likelihood.profile import interpolate
from fivesigma.likelihood.shifts import Normalisation, Varied, profiled_significance, yield_shifts

positive = st.floats(0.1, 1e4)


def events(n: int = 4_000) -> tuple[Array, IntArray, Array, Array]:
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    process = np.where(y == 1, "H", np.where(np.arange(n) % 4 == 0, "Z", "ttbar"))
    return rng.normal(1.5 * y), y, np.where(y == 1, 0.05, 1.0) * rng.gamma(3.0, size=n), process


@given(s=positive, b=positive, sigma=st.floats(0.0, 1e3))
def test_one_category_and_one_shift_is_gaussian_background(s: float, b: float, sigma: float) -> None:
    expected = float(GaussianBackground(sigma).value(s, b))
    assert profiled_significance([s], [b], [[sigma]]) == pytest.approx(expected, rel=1e-6)


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=5))
def test_without_shifts_it_is_the_sum_over_categories(yields: list[tuple[float, float]]) -> None:
    s, b = np.array(yields).T
    expected = np.sqrt(2 * AMS2().objective(s, b).sum())
    assert profiled_significance(s, b, []) == pytest.approx(expected, rel=1e-12)
    assert profiled_significance(s, b, np.zeros((3, s.size))) == pytest.approx(expected, rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 4))
def test_the_profile_is_the_minimum(seed: int, n_categories: int, n_systematics: int) -> None:
    rng = np.random.default_rng(seed)
    b = rng.uniform(5, 500, n_categories)
    s = rng.uniform(0, 1, n_categories) * b
    up = rng.normal(0, 0.2, (n_systematics, n_categories)) * b
    down = -up * rng.uniform(0.5, 1.5, up.shape)

    def twice_cost(theta: Array) -> float:
        m = b + interpolate(theta[:, None], up, down)[0].sum(axis=0)
        if (m <= 0).any():
            return np.inf
        return float(2 * ((s + b) * np.log((s + b) / m) - s - b + m).sum() + theta @ theta)

    found = minimize(
        twice_cost,
        np.zeros(n_systematics),
        method="Nelder-Mead",
        options={"xatol": 1e-7, "fatol": 1e-10, "maxiter": 5000},
    )
    z = profiled_significance(s, b, up, down)
    assert z <= np.sqrt(found.fun) + 1e-7
    assert z == pytest.approx(np.sqrt(found.fun), rel=1e-3, abs=1e-6)


def test_interpolation_passes_through_the_variations() -> None:
    up, down = np.array([3.0, -1.0]), np.array([-1.0, -1.0])
    for theta, expected in ((0.0, [0.0, 0.0]), (1.0, up), (-1.0, down), (2.0, 2 * up), (-3.0, 3 * down)):
        np.testing.assert_allclose(interpolate(np.array(theta), up, down)[0], expected, atol=1e-15)
    grid = np.linspace(-2, 2, 401)[:, None]
    shift, slope, curvature = interpolate(grid, up, down)
    np.testing.assert_allclose(np.gradient(shift, grid[:, 0], axis=0)[1:-1], slope[1:-1], atol=2e-3)
    np.testing.assert_allclose(np.gradient(slope, grid[:, 0], axis=0)[1:-1], curvature[1:-1], atol=0.1)


def test_uncertainties_only_lower_the_significance() -> None:
    s, b = np.array([5.0, 10.0, 8.0]), np.array([1000.0, 200.0, 20.0])
    known = profiled_significance(s, b, [])
    one = profiled_significance(s, b, [0.05 * b])
    two = profiled_significance(s, b, np.stack([0.05 * b, [0.0, 10.0, -2.0]]))
    assert two < one < known
    # The category without signal measures the shared uncertainty and so gives some of the significance back.
    alone = [float(GaussianBackground(0.05 * y).objective(x, y)) for x, y in zip(s, b, strict=True)]
    assert profiled_significance([*s, 0.0], [*b, 1e5], [0.05 * np.append(b, 1e5)]) > one
    assert one != pytest.approx(np.sqrt(2 * np.sum(alone)))
    assert profiled_significance([5.0, 1.0], [10.0, 0.0], [[1.0, 0.0]]) == profiled_significance([5.0], [10.0], [[1.0]])


def test_shifts_of_weights_and_scores() -> None:
    score, y, weight, process = events()
    found = categorise(score, y, weight, 3, process=process)
    heavier = weight * np.where(process == "ttbar", 1.2, 1.0)
    shifts = yield_shifts(
        found.edges,
        score,
        y,
        weight,
        {
            "xs_ttbar": (Varied(weight=heavier), None),
            "tes": (Varied(score=score + 0.1), Varied(score=score - 0.1)),
        },
        process=process,
    )
    for name, rows in found.by_process.items():
        np.testing.assert_allclose(shifts.nominal[name].sum_of_weights, rows.sum_of_weights)
        factor = 0.2 if name == "ttbar" else 0.0
        np.testing.assert_allclose(shifts.up["xs_ttbar"][name], rows.sum_of_weights * (1 + factor))
        np.testing.assert_allclose(shifts.down["xs_ttbar"][name], rows.sum_of_weights * (1 - factor))
        for side, moved in ((shifts.up, score + 0.1), (shifts.down, score - 0.1)):
            category = found.assign(moved)
            expected = [weight[(category == i) & (process == name)].sum() for i in range(3)]
            np.testing.assert_allclose(side["tes"][name], expected)
    assert shifts.known_background == pytest.approx(found.significance)
    up, down = (
        [shifts.yields(signal=False, of=side[name]) - found.b for name in side] for side in (shifts.up, shifts.down)
    )
    assert shifts.significance == pytest.approx(profiled_significance(found.s, found.b, up, down))
    assert shifts.significance < 0.9 * shifts.known_background
    table = repr(shifts)
    assert "xs_ttbar" in table
    assert f"{shifts.significance:.4f}" in table


def test_a_cut_is_one_category() -> None:
    score, y, weight, _ = events()
    up, down = weight * np.where(y == 0, 1.1, 1.0), weight * np.where(y == 0, 0.9, 1.0)
    shifts = yield_shifts([1.0, np.inf], score, y, weight, {"norm": (Varied(weight=up), Varied(weight=down))})
    s, b = weight[(score >= 1) & (y == 1)].sum(), weight[(score >= 1) & (y == 0)].sum()
    assert shifts.significance == pytest.approx(float(GaussianBackground(0.1 * b).value(s, b)))


def test_a_bounded_last_category_leaves_out_what_is_above() -> None:
    shifts = yield_shifts([0.0, 1.0, 2.0], [0.5, 1.5, 1.5, 3.0], [0, 0, 1, 1], np.ones(4), {})
    assert shifts.yields(signal=True).tolist() == [0.0, 1.0]
    assert shifts.yields(signal=False).tolist() == [1.0, 1.0]


def test_wrong_variations() -> None:
    score, y, weight, _ = events(100)
    with pytest.raises(InputError, match="tes up score must be 100 numbers"):
        yield_shifts([0.0, np.inf], score, y, weight, {"tes": (Varied(score=score[:5]), None)})
    with pytest.raises(InputError, match="w up: sample_weight has 5 entries for 100 events"):
        yield_shifts([0.0, np.inf], score, y, weight, {"w": (Varied(weight=weight[:5]), None)})
    for edges in ([1.0], [1.0, 0.0], [[0.0, 1.0]]):
        with pytest.raises(InputError, match="edges must be at least two ascending numbers"):
            yield_shifts(edges, score, y, weight, {})


@pytest.mark.parametrize("kind", ["weights", "scores", "own sample"])
def test_the_noise_of_shifts_is_that_of_replicas(kind: str) -> None:
    """Poisson copies of all events, the same for an event and for what it becomes."""
    rng = np.random.default_rng(0)
    n = 400
    y = np.arange(n) % 4 == 0
    score, weight = rng.normal(y), rng.uniform(0.5, 1.5, n)
    up = score + 0.3 * rng.normal(size=n)
    if kind == "weights":
        varied = Varied(weight=1.2 * weight)
    elif kind == "scores":
        varied = Varied(score=up)
    else:
        varied = Varied(score=rng.normal(y), weight=weight[::-1].copy(), y=y)
    edges = [-np.inf, 0.0, 1.0, np.inf]
    found = yield_shifts(edges, score, y, weight, {"a": (varied, None)})
    shifts = []
    for _ in range(1500):
        copies = rng.poisson(1.0, n)
        others = copies if varied.y is None else rng.poisson(1.0, n)
        moved, heavier = (
            given if given is not None else own for given, own in ((varied.score, score), (varied.weight, weight))
        )
        sums = [
            np.histogram(np.asarray(x)[~y], edges, weights=(np.asarray(w) * c)[~y])[0]
            for x, w, c in ((score, weight, copies), (moved, heavier, others))
        ]
        shifts.append(sums[1] - sums[0])
    assert found.noise is not None
    np.testing.assert_allclose(found.noise, np.var(shifts, axis=0), rtol=0.15)


def test_yields_alone_have_no_noise() -> None:
    y = np.arange(100) % 2 == 0
    process = np.where(y, "s", "b")
    found = yield_shifts([0.0, np.inf], np.ones(100), y, np.ones(100), {"b": Normalisation("b", 0.1)}, process=process)
    assert found.noise is None
