"""What every utility accepts and refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fivesigma import (
    AMS2,
    AMS3,
    FDivergence,
    GaussianBackground,
    OnOff,
    RelativeBackground,
    SOverRootSB,
    Utility,
)
from fivesigma.errors import FivesigmaError, InputError
from fivesigma.significance import VariationalUtility
from tests.significance.exact import UTILITIES, VARIATIONAL, cubic, cubic_slope, name_of


@pytest.mark.parametrize("utility", UTILITIES, ids=name_of)
def test_scalars_arrays_and_broadcasting(utility: Utility) -> None:
    s, b = np.array([1.0, 5.0, 20.0]), np.array([[3.0], [8.0]])
    z = utility.value(s, b)
    assert z.shape == (2, 3)
    assert z[1, 2] == utility.value(20, 8)
    assert np.ndim(utility.value(20, 8)) == 0
    signal, background = utility.class_weights(s, b)
    assert signal.shape == background.shape == (2, 3)
    assert utility.value([], []).shape == (0,)


@pytest.mark.parametrize("utility", UTILITIES, ids=name_of)
def test_b_reg_is_added_to_b_and_nothing_else(utility: Utility) -> None:
    bare = type(utility)(**{**vars(utility), "b_reg": 0.0})
    s, b = 7.0, 12.0
    assert utility.value(s, b) == bare.value(s, b + utility.b_reg)
    assert utility.class_weights(s, b) == bare.class_weights(s, b + utility.b_reg)
    if utility.b_reg:
        assert utility.value(s, 0.0) == bare.value(s, utility.b_reg)
        assert utility.value(s, b) < bare.value(s, b)


@pytest.mark.parametrize("utility", UTILITIES, ids=name_of)
@pytest.mark.parametrize("method", ["value", "class_weights", "objective"])
@pytest.mark.parametrize(
    ("s", "b", "sentence"),
    [
        (-1.5, 10.0, "s must be between 0 and 1e+75, got -1.5"),
        ([1.0, -2.0, np.nan], 10.0, "s must be between 0 and 1e+75, got -2, nan (2 of 3 values)"),
        (np.inf, 10.0, "s must be between 0 and 1e+75, got inf"),
        (1.0, np.nan, "must be between 1e-75 and 1e+75, got nan"),
        (1.0, [np.inf, 2.0], "must be between 1e-75 and 1e+75, got inf (1 of 2 values)"),
        ([1.0, 2.0], [1.0, 2.0, 3.0], "shapes must broadcast, got s of shape (2,), b of shape (3,)"),
    ],
)
def test_bad_yields_are_refused_with_their_values(utility: Utility, method: str, s: Any, b: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        getattr(utility, method)(s, b)


@pytest.mark.parametrize("utility", UTILITIES, ids=name_of)
def test_background_must_be_positive_after_b_reg(utility: Utility) -> None:
    sentence = f"b + b_reg (b_reg = {utility.b_reg:g}) must be between 1e-75 and 1e+75, got 0, -4 (2 of 3 values)"
    with pytest.raises(InputError, match=re.escape(sentence)):
        utility.value(1.0, np.array([0.0, 9.0, -4.0]) - utility.b_reg)
    with pytest.raises(InputError, match=r"must be between 1e-75 and 1e\+75, got 0$"):
        utility.value(1.0, 0.0 - utility.b_reg)


@pytest.mark.parametrize("utility", VARIATIONAL, ids=name_of)
def test_u_outside_the_domain_is_refused(utility: VariationalUtility) -> None:
    low, high = utility.u_domain
    assert low == 0.0
    for bad in (-1e-9, high, np.nan):
        with pytest.raises(InputError, match=rf"^u of {type(utility).__name__} must be in \[0, .*, got "):
            utility.weights_at(bad)
        with pytest.raises(InputError, match=rf"^u of {type(utility).__name__} must be in"):
            utility.surrogate(1.0, 10.0, bad, 2.0)
    inside = np.array([low, 0.3 * min(high, 1.0), np.nextafter(min(high, 30.0), 0.0)])
    assert np.isfinite(utility.weights_at(inside)).all()
    with pytest.raises(InputError, match="shapes must broadcast"):
        utility.surrogate(1.0, 10.0, [0.1, 0.2], [1.0, 2.0, 3.0])


def test_domains_end_where_they_should() -> None:
    assert SOverRootSB().u_domain == (0.0, 0.5)
    assert OnOff(tau=3.0).u_domain == pytest.approx((0.0, np.log(4.0)))
    assert AMS2().u_domain == AMS3().u_domain == GaussianBackground(1.0).u_domain == (0.0, np.inf)
    # Yields come as close to the end as s/b is large, and never past it.
    for utility in (SOverRootSB(), OnOff(tau=3.0)):
        u = float(utility.u(1e6, 1.0))
        assert utility.u_domain[1] * (1 - 1e-5) < u < utility.u_domain[1]


@pytest.mark.parametrize(
    ("build", "sentence"),
    [  # where types are ignored they are wrong on purpose
        (lambda: AMS2(b_reg=-1.0), "AMS2: b_reg must be a finite number >= 0, got -1.0"),
        (lambda: AMS3(b_reg=np.nan), "AMS3: b_reg must be a finite number >= 0, got nan"),
        (lambda: SOverRootSB(b_reg="10"), "SOverRootSB: b_reg must be a finite number >= 0, got '10'"),  # type: ignore[arg-type]
        (lambda: AMS2(b_reg=None), "AMS2: b_reg must be a finite number >= 0, got None"),  # type: ignore[arg-type]
        (lambda: OnOff(tau=np.inf), "OnOff: tau must be a finite number >= 0, got inf"),
        (lambda: OnOff(tau=0.0), "OnOff: tau must be > 0"),
        (lambda: GaussianBackground(sigma=-2.0), "GaussianBackground: sigma must be a finite number >= 0, got -2.0"),
        (lambda: RelativeBackground(fraction=-0.1), "fraction must be a finite number >= 0, got -0.1"),
        (lambda: FDivergence(cubic, None), "FDivergence: f_prime must be a function, got None"),  # type: ignore[arg-type]
        (lambda: FDivergence(2.0, cubic), "FDivergence: f must be a function, got 2.0"),  # type: ignore[arg-type]
        (lambda: FDivergence(cubic, cubic_slope, b_reg=-1.0), "b_reg must be a finite number >= 0, got -1.0"),
    ],
)  # fmt: skip
def test_bad_parameters_are_refused(build: Callable[[], Utility], sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)) as caught:
        build()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, FivesigmaError)


@pytest.mark.parametrize(
    ("f", "f_prime"),
    [
        (np.sqrt, lambda t: 0.5 / np.sqrt(t)),
        (cubic, lambda t: cubic_slope(t) * 1.01),
        (lambda t: t**2 / 2, lambda t: -t),
        (lambda t: np.where(t < 3, t**2, t + 6), lambda t: np.where(t < 3, 2 * t, 1.0)),
        (lambda t: t * np.nan, lambda t: t),
    ],
    ids=["concave", "wrong slope", "wrong sign", "hollow", "nan"],
)
def test_a_users_f_must_be_convex_with_that_slope(f: Callable[..., Any], f_prime: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="f must be convex with slope f_prime, which fails near s/b = "):
        FDivergence(f, f_prime)


def test_a_users_h_is_used() -> None:
    utility = FDivergence(cubic, cubic_slope, h=np.log1p)
    assert utility.value(2.0, 4.0) == pytest.approx(np.log1p(4.0 * cubic(np.array(0.5))))
    assert FDivergence(cubic, cubic_slope).value(2.0, 4.0) == pytest.approx((8.0 * cubic(np.array(0.5))) ** 0.5)


def test_a_negative_objective_needs_an_h() -> None:
    negative: dict[str, Any] = {"f": lambda t: t**2 - t, "f_prime": lambda t: 2 * t - 1}
    with pytest.raises(InputError, match=re.escape("F = b f(s/b) must be >= 0 unless h is given, got -2.5")):
        FDivergence(**negative).value(5.0, 10.0)
    assert FDivergence(**negative, h=np.tanh).value(5.0, 10.0) == np.tanh(-2.5)


def test_from_objective_turns_sums_over_categories_into_significance() -> None:
    s, b = np.array([3.0, 8.0]), np.array([5.0, 90.0])
    utility = AMS2()
    assert utility.from_objective(utility.objective(s, b).sum()) == pytest.approx(np.hypot(*utility.value(s, b)))


def test_utilities_are_values() -> None:
    assert AMS2(b_reg=10.0) == AMS2(b_reg=10.0) != AMS2()
    assert len({OnOff(1.0), OnOff(1.0), OnOff(2.0)}) == 2
    assert repr(OnOff(tau=2.0, b_reg=1.0)) == "OnOff(tau=2.0, b_reg=1.0)"


def _of_one_number(t: Any) -> Any:
    return t * t if t > 0 else 0.0


@pytest.mark.parametrize(
    ("functions", "sentence"),
    [
        ((lambda t: t * t / 2, lambda t: t, lambda F: -F), "h must increase with F"),
        ((lambda t: t * t / 2, lambda t: t, lambda F: F / F * 0.0), "h must increase with F"),
        ((lambda t: 1 + t * t / 2, lambda t: t), "f(0) must be 0, for no signal has no significance; got 1"),
        ((lambda t: np.log(t) * t**2 / t, lambda t: np.log(t) + 1), "f(0) must be 0"),
        ((lambda t: t, np.ones_like), "f_prime must be a number at s/b = 0 and grow from there; a line has no u"),
        ((_of_one_number, lambda t: 2 * t), "f must take an array of numbers and give one for each"),
        ((lambda t: t * t, lambda _: 2.0), "f_prime must give one value for each number, got 1 for 2001"),
    ],
)
def test_functions_of_a_user_that_cannot_be_a_significance(functions: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        FDivergence(*functions)
