"""The paper's claims: Proposition 1, Fenchel-Young, convexity, and the monotonicity that follows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from fivesigma import AMS2, AMS3, FDivergence, OnOff, RelativeBackground, SOverRootSB, Utility
from fivesigma._types import Array
from fivesigma.significance import VariationalUtility
from tests.significance.exact import UTILITIES, VARIATIONAL, cubic, cubic_slope, name_of

GUARANTEED = [u for u in UTILITIES if u.guaranteed]
signals = st.floats(1e-3, 1e4)
backgrounds = st.floats(1e-2, 1e4)
shares = st.floats(1e-6, 1 - 1e-6)


def _u_range(utility: VariationalUtility, largest: float) -> tuple[float, float]:
    low, high = utility.u_domain
    return low, min(high, largest)


@pytest.mark.parametrize("utility", VARIATIONAL, ids=name_of)
@given(s=signals, b=backgrounds, missed=st.floats(0, 1e3), share=shares)
def test_surrogate_never_below_minus_f_and_touches_it(
    utility: VariationalUtility, s: float, b: float, missed: float, share: float
) -> None:
    p, u = s + missed, float(utility.u(s, b))
    F = float(utility.objective(s, b))
    signal, background = utility.weights_at(u)
    rounding = 1e-13 * float(background * (b + utility.b_reg) + p * signal)
    assert utility.surrogate(s, b, u, p) == pytest.approx(-F, rel=1e-12, abs=rounding)
    low, high = _u_range(utility, 2.0 * u + 1.0)
    other = low + share * (high - low)
    signal, background = utility.weights_at(other)
    rounding = 1e-13 * float(background * (b + utility.b_reg) + p * signal)
    assert utility.surrogate(s, b, other, p) >= -F - rounding


@pytest.mark.parametrize("utility", VARIATIONAL, ids=name_of)
@pytest.mark.parametrize(("s", "b", "p"), [(3.0, 10.0, 4.0), (0.2, 50.0, 1.0), (40.0, 15.0, 40.0), (200.0, 9.0, 300.0)])
def test_infimum_is_attained_at_the_closed_form(utility: VariationalUtility, s: float, b: float, p: float) -> None:
    low, high = _u_range(utility, 2.0 * float(utility.u(s, b)) + 1.0)
    found = minimize_scalar(
        lambda u: float(utility.surrogate(s, b, u, p)), bounds=(low, high), method="bounded", options={"xatol": 1e-10}
    )
    assert found.fun == pytest.approx(-float(utility.objective(s, b)), rel=1e-9)
    assert found.x == pytest.approx(float(utility.u(s, b)), rel=1e-4)


@pytest.mark.parametrize("utility", [AMS2(), AMS3(b_reg=2.0)], ids=name_of)
def test_surrogate_is_the_papers(utility: VariationalUtility) -> None:
    s, b, u, p = 3.0, 20.0, 0.2, 5.0
    f_star = np.exp(u) - u - 1 if isinstance(utility, AMS2) else u**2 / 2
    missed = p - s
    assert utility.surrogate(s, b, u, p) == pytest.approx((b + utility.b_reg) * f_star + missed * u - p * u, rel=1e-13)


@pytest.mark.parametrize("utility", VARIATIONAL, ids=name_of)
def test_class_weights_are_the_weights_at_u(utility: VariationalUtility) -> None:
    s, b = np.array([0.5, 3.0, 80.0]), np.array([40.0, 2.0, 30.0])
    signal, background = utility.class_weights(s, b)
    np.testing.assert_array_equal(signal, utility.u(s, b))
    np.testing.assert_allclose(background, utility.weights_at(signal)[1], rtol=1e-11)


USERS = [
    FDivergence(cubic, cubic_slope),
    FDivergence(lambda t: np.hypot(1.0, t) - 1.0, lambda t: t / np.hypot(1.0, t)),  # its u ends at 1
    FDivergence(lambda t: (1 + t) * np.log1p(t) - t, np.log1p),
    FDivergence(lambda t: t**1.5, lambda t: 1.5 * np.sqrt(t), h=np.log1p),
    FDivergence(lambda t: t**2 / 2 + t, lambda t: t + 1.0),  # its u starts at 1
]


@pytest.mark.parametrize("utility", USERS)
@given(t=st.floats(0, 1e3), share=shares)
def test_fenchel_young_for_a_users_f(utility: FDivergence, t: float, share: float) -> None:
    low, high = _u_range(utility, 30.0)
    u = low + share * (high - low)
    at = np.array(t)
    f, f_star = float(utility.f(at)), float(utility.weights_at(u)[1])
    assert f + f_star >= t * u - 1e-9 * (abs(f) + abs(f_star) + t * u)
    touching = float(utility.f_prime(at))
    if low <= touching < high:
        assert f + float(utility.weights_at(touching)[1]) == pytest.approx(t * touching, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize(
    ("mine", "ours"),
    [
        (FDivergence(lambda t: (1 + t) * np.log1p(t) - t, np.log1p, b_reg=3.0), AMS2(b_reg=3.0)),
        (FDivergence(lambda t: t**2 / (2 * (1 + t)), lambda t: (t**2 + 2 * t) / (2 * (1 + t) ** 2)), SOverRootSB()),
    ],
    ids=["AMS2", "SOverRootSB"],
)
def test_a_users_f_that_is_ours_gives_our_numbers(mine: VariationalUtility, ours: VariationalUtility) -> None:
    s, b = np.array([1.0, 10.0, 300.0]), np.array([30.0, 9.0, 20.0])
    np.testing.assert_allclose(mine.value(s, b), ours.value(s, b), rtol=1e-12)
    np.testing.assert_allclose(mine.class_weights(s, b), ours.class_weights(s, b), rtol=1e-11)
    u = np.array([0.0, 1e-3, 0.1, 0.4, 0.499])
    np.testing.assert_allclose(mine.weights_at(u)[1], ours.weights_at(u)[1], rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("utility", GUARANTEED, ids=name_of)
@given(s=st.tuples(signals, signals), b=st.tuples(backgrounds, backgrounds), share=shares)
def test_objective_is_convex_where_claimed(
    utility: Utility, s: tuple[float, float], b: tuple[float, float], share: float
) -> None:
    mix = np.array([share, 1 - share])
    ends = utility.objective(s, b)
    assert utility.objective(mix @ s, mix @ b) <= mix @ ends + 1e-12 * ends.max()


def test_relative_background_is_not_convex_and_says_so() -> None:
    utility = RelativeBackground(0.5)
    assert not utility.guaranteed
    assert utility.objective(45.5, 45.5) > 1.5 * np.mean(utility.objective([1.0, 90.0], [1.0, 90.0]))
    # The same three points with a background that a fixed control region measures.
    assert OnOff(tau=4.0).guaranteed
    assert OnOff(tau=4.0).objective(45.5, 45.5) <= np.mean(OnOff(tau=4.0).objective([1.0, 90.0], [1.0, 90.0])) * (
        1 + 1e-12
    )


def _selections(weight: Array, signal: np.ndarray) -> tuple[Array, Array]:
    """s and b of every selection of the events."""
    kept = np.array(list(itertools.product([0.0, 1.0], repeat=weight.size)))
    return kept @ (weight * signal), kept @ (weight * ~signal)


@pytest.mark.parametrize("utility", GUARANTEED, ids=name_of)
@pytest.mark.parametrize("seed", range(6))
def test_exact_rounds_never_lose_significance(utility: Utility, seed: int) -> None:
    """Algorithm 1 with an exact minimiser of the weighted error, over all selections of up to 12 events."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(6, 13))
    weight = rng.exponential(size=n) * rng.choice([0.1, 1.0, 10.0], size=n)
    signal = rng.permutation(np.arange(n) % 3 == 0)
    s, b = _selections(weight, signal)
    # An event cannot be told from its neighbour: only selections that take both or none are possible.
    kept = np.array(list(itertools.product([False, True], repeat=n)))
    possible = np.all(kept[:, 0 : n - 1 : 2] == kept[:, 1:n:2], axis=1) & (b > 0)
    s, b = s[possible], b[possible]
    p = weight[signal].sum()
    F, Z = utility.objective(s, b), utility.value(s, b)
    improved = 0
    for start in rng.choice(s.size, size=10):
        g = int(start)
        for _ in range(50):
            w_s, w_b = utility.class_weights(s[g], b[g])
            error = w_b * b + w_s * (p - s)
            # A smaller weighted error is a commensurately larger objective, for every selection and not only the best.
            assert np.all(F - F[g] >= error[g] - error - 1e-12 * (F[g] + error[g] + error))
            better = int(error.argmin())
            if not error[better] < error[g] * (1 - 1e-12):
                break
            assert Z[better] > Z[g]
            g, improved = better, improved + 1
        else:
            pytest.fail("the cascade did not stop")
    assert improved > 0
