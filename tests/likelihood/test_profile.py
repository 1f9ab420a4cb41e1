"""The profiled likelihood against scalar minimisation, high precision, other minimisers and pyhf."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from benchmarks.studies.systematic_categories import pyhf_workspace, random_workspace
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar

from fivesigma import GaussianBackground, discovery_significance, profiled_significance
from fivesigma._types import Array
from fivesigma.likelihood.profile import Counts, Term, deviance, known, profile_each, staterror

counts = st.floats(1.0, 1e4)


def one(*values: float) -> list[Array]:
    return [np.array([v]) for v in values]


@settings(max_examples=60, deadline=None)
@given(n=counts, m=counts, relative=st.floats(1e-3, 1.0))
def test_closed_forms_are_minima(n: float, m: float, relative: float) -> None:
    """Over the factor of a staterror."""

    def poisson(nu: float) -> float:
        return float(n * np.log(n / nu) - n + nu)

    by_hand = minimize_scalar(
        lambda gamma: poisson(gamma * m) + (gamma - 1) ** 2 / (2 * relative**2),
        bounds=(1e-9, max(1.0, n / m)),
        method="bounded",
        options={"xatol": 1e-12},
    )
    assert staterror(*one(n, m, relative**2)).value[0] == pytest.approx(by_hand.fun, rel=1e-6, abs=1e-7)


@given(n=counts, m=counts, v=st.floats(0.0, 1e4))
def test_closed_forms_to_high_precision(n: float, m: float, v: float) -> None:
    with mpmath.workdps(50):
        N, M, V = mpmath.mpf(n), mpmath.mpf(m), mpmath.mpf(v)
        nu = ((M - V) + mpmath.sqrt((M - V) ** 2 + 4 * N * V)) / 2
        expected = N * mpmath.log(N / nu) - N + nu + V * ((N - nu) / nu) ** 2 / 2
        assert staterror(*one(n, m, v / m**2)).value[0] == pytest.approx(float(expected), rel=1e-9, abs=1e-11 * (n + m))


@settings(max_examples=60)
@given(st.integers(0, 10_000))
def test_derivatives(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, b, relative = rng.uniform(10, 50, 5), rng.uniform(5, 50, 5), rng.uniform(0, 0.3, 5)
    forms: tuple[Callable[[Array], Term], ...] = (
        lambda m: known(n, m),
        lambda m: staterror(n, m, relative),
        lambda m: deviance(n, m, 30 * b, relative),  # far below b: the tangent
    )
    step = 1e-4
    for form in forms:
        low, here, high = (form(b + d) for d in (-step, 0.0, step))
        assert isinstance(here, Term)
        np.testing.assert_allclose((high.value - low.value) / (2 * step), here.slope, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose((high.slope - low.slope) / (2 * step), here.curvature, rtol=1e-5, atol=1e-7)


def random_counts(rng: np.random.Generator, *, stat: bool) -> Counts:
    s, b, up, down, variance = random_workspace(rng)
    return Counts(s + b, b, up, down, variance / b**2 if stat else None)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_the_gradient_is_that_of_the_cost(seed: int, stat: bool) -> None:
    rng = np.random.default_rng(seed)
    at = random_counts(rng, stat=stat)
    theta: Array = rng.normal(0, 1.5, (at.up.shape[0],))
    here = at.expand(theta)
    assert here.value == pytest.approx(at.cost(theta))
    for k in range(theta.size):
        step = 1e-5 * np.eye(theta.size)[k]
        slope = (at.cost(theta + step) - at.cost(theta - step)) / 2e-5
        assert here.gradient[k] == pytest.approx(float(slope), rel=1e-4, abs=1e-4)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_no_other_minimiser_is_lower(seed: int, stat: bool) -> None:
    rng = np.random.default_rng(seed)
    at = random_counts(rng, stat=stat)
    found = at.lowest()
    for start in (np.zeros(at.up.shape[0]), found.theta):
        other = minimize(lambda t: float(at.cost(t)), start, method="BFGS")
        assert found.objective <= other.fun + 1e-9


def test_many_at_once_are_as_one_by_one() -> None:
    rng = np.random.default_rng(3)
    b = rng.uniform(20, 500, (40, 4))
    up = rng.normal(0, 0.1, (40, 3, 4)) * b[:, None]
    many = Counts(b + rng.uniform(0, 2, b.shape) * np.sqrt(b), b, up, -1.2 * up)
    together = many.profile()
    for i in range(40):
        alone = Counts(many.n[i], many.b[i], many.up[i], many.down[i]).profile()
        assert together.objective[i] == pytest.approx(float(alone.objective), rel=1e-11)
        np.testing.assert_allclose(together.theta[i], alone.theta, atol=1e-6)


def test_two_minima() -> None:
    """Up and down on the same side: pyhf's fit starts at zero and stays in the higher minimum."""
    n, b, up, down = (np.array(v) for v in ([130.0, 1010.0], [100.0, 1000.0], [[40.0, -5.0]], [[45.0, 80.0]]))
    at = Counts(n, b, up, down)
    starts = [at.profile(np.array([x])).objective for x in (-2.0, 0.0, 2.0)]
    assert at.lowest().objective == pytest.approx(min(starts))
    assert max(starts) > min(starts) + 0.01


@pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning")
@pytest.mark.parametrize("stat", [False, True])
def test_pyhf_agrees(stat: bool) -> None:
    pytest.importorskip("pyhf")
    rng = np.random.default_rng(11)
    for _ in range(8):
        s, b, up, down, variance = random_workspace(rng)
        v = variance if stat else None
        fitted = Counts(s + b, b, up, down, None if v is None else v / b**2).lowest()
        pulls = {f"a{i}": float(pull) for i, pull in enumerate(fitted.theta)}
        theirs = discovery_significance(pyhf_workspace(s, b, up, down, v), pulls)
        assert profiled_significance(s, b, up, down, v) == pytest.approx(theirs, abs=1e-6)


def cuts_of(n: Array, b: Array, up: Array, down: Array) -> Counts:
    """Every cut is a partition of one category."""
    return Counts(n[:, None], b[:, None], up.T[..., None], down.T[..., None])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 3))
def test_cuts_at_once_are_as_one_by_one(seed: int, n_bent: int) -> None:
    rng = np.random.default_rng(seed)
    b = rng.uniform(10, 5_000, 30)
    n = b + rng.uniform(0, 3, 30) * np.sqrt(b)
    up = rng.normal(0, 0.1, (4, 30)) * b
    down = -up
    down[:n_bent] *= rng.uniform(-0.5, 1.5, (n_bent, 30))
    F = profile_each(cuts_of(n, b, up, down))
    for i in range(30):
        alone = Counts(n[i : i + 1], b[i : i + 1], up[:, i : i + 1], down[:, i : i + 1]).lowest()
        # From other pulls the lower of two minima may be found by one of the two alone.
        assert F[i] == pytest.approx(float(alone.objective), rel=1e-6, abs=1e-9)


def test_opposite_shifts_add_in_quadrature() -> None:
    b = np.array([50.0, 500.0, 5_000.0])
    up = np.array([0.03 * b, 0.04 * b])
    F = profile_each(cuts_of(b + 20, b, up, -up))
    expected = [float(GaussianBackground(0.05 * x).objective(20.0, x)) for x in b]
    np.testing.assert_allclose(F, expected, rtol=1e-12)
