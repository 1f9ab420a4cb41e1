"""Weights, yields and features of any finite size give a number or a sentence."""

from __future__ import annotations

import math
import warnings
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fivesigma
from fivesigma import AMS2, AMS3, GaussianBackground, OnOff, RelativeBackground, SOverRootSB, categorise, scan
from fivesigma._tools.extras import installed
from fivesigma.cut.rules import RULES
from fivesigma.errors import InputError, SmallSampleWarning
from fivesigma.significance import Utility, VariationalUtility
from fivesigma.yields import check_weights

sizes = st.floats(-300.0, 300.0).map(lambda e: 10.0**e)
small = st.floats(0.0, 50.0).map(lambda e: 10.0**-e) | st.just(0.0)


@st.composite
def utilities(draw: st.DrawFn) -> Utility:
    b_reg, number = draw(small), draw(st.floats(-50.0, 50.0).map(lambda e: 10.0**e))
    kind = draw(st.sampled_from([AMS2, AMS3, SOverRootSB, OnOff, GaussianBackground, RelativeBackground]))
    if kind is not OnOff:
        number **= 0.5
    return kind(b_reg=b_reg) if kind in (AMS2, AMS3, SOverRootSB) else kind(number, b_reg=b_reg)


def number_or_sentence(function: Any, *args: Any) -> Any:
    """Call and demand finite numbers, or the library's own error."""
    try:
        found = function(*args)
    except InputError:
        return None
    assert np.isfinite(found).all(), (found, args)
    return found


@settings(max_examples=300, deadline=None)
@given(utilities(), sizes | st.just(0.0), sizes)
def test_every_utility_of_any_yields(utility: Utility, s: float, b: float) -> None:
    z = number_or_sentence(utility.value, s, b)
    assert z is None or z >= 0
    weights = number_or_sentence(utility.class_weights, s, b)
    assert weights is None or min(weights) >= 0
    if isinstance(utility, VariationalUtility) and (u := number_or_sentence(utility.u, s, b)) is not None:
        number_or_sentence(utility.surrogate, s, b, u, s)


@settings(max_examples=200, deadline=None)
@given(sizes, sizes)
def test_the_numbers_are_those_of_many_digits(s: float, b: float) -> None:
    with mpmath.workdps(700):
        t = mpmath.mpf(s) / b
        exact = [
            mpmath.sqrt(2 * b * ((1 + t) * mpmath.log1p(t) - t)),
            s / mpmath.sqrt(b),
            s / mpmath.sqrt(mpmath.mpf(s) + b),
        ]
        for utility, z in zip((AMS2(), AMS3(), SOverRootSB()), exact, strict=True):
            found = number_or_sentence(utility.value, s, b)
            # A square below the smallest float is zero: Z then is so, to many more digits than it will be read to.
            assert found is None or abs(found - z) <= 1e-12 * z + 1e-9


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([1.0, 2.0**-200, 2.0**200]), st.floats(0.1, 1e3), st.floats(0.1, 1e3))
def test_scaling_the_yields_scales_the_significance(factor: float, s: float, b: float) -> None:
    for kind in (AMS2, AMS3, SOverRootSB):
        assert kind().value(factor * s, factor * b) == pytest.approx(
            float(kind().value(s, b)) * math.sqrt(factor), rel=1e-14
        )
    assert AMS2().class_weights(factor * s, factor * b) == pytest.approx(AMS2().class_weights(s, b), rel=1e-14)


@pytest.mark.parametrize(
    ("s", "b"), [(1.0, 1e-320), (1e160, 1e-160), (1e300, 1e-300), (5e-324, 5e-324), (1e308, 1e308)]
)
def test_yields_that_gave_nan(s: float, b: float) -> None:
    for utility in (AMS2(), AMS3(), SOverRootSB(), OnOff(1.0), GaussianBackground(1.0), RelativeBackground(0.1)):
        number_or_sentence(utility.value, s, b)
        number_or_sentence(utility.class_weights, s, b)
    number_or_sentence(fivesigma.FDivergence(lambda t: t**2 / 2, lambda t: t).value, s, b)


@pytest.mark.parametrize("value", [10**400, True, math.inf, math.nan, -1.0, 1e60, "1", 1j])
def test_parameters_that_no_formula_can_use(value: Any) -> None:
    for make in (lambda v: AMS2(b_reg=v), RelativeBackground, lambda v: OnOff(1.0, b_reg=v)):
        with pytest.raises(InputError, match="must be"):
            make(value)
    with pytest.raises(InputError, match="tau must be"):
        OnOff(1e-60)
    with pytest.raises(InputError, match=r"sigma must be at most 1e\+50"):
        GaussianBackground(1e200)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1 + 2j, 1.0], "real numbers"),
        ([10**400, 1], "must be numbers"),
        ([1e300, 1.0], r"largest sample_weight is 1e\+300"),
        ([-1e300, 1.0], r"largest sample_weight is 1e\+300"),
        ([1e-300, 0.0], "largest sample_weight is 1e-300"),
    ],
)
def test_weights_that_are_refused(weight: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_weights(weight, 2)


def some_events(n: int = 300) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(5)
    y = np.arange(n) % 2
    return rng.normal(y[:, None], 1.0, (n, 3)), y, np.where(y == 1, 0.1, 1.0) * rng.uniform(0.5, 1.5, n)


def numbers_of(result: Any) -> list[float]:
    return [result.significance, *np.ravel(result.s), *np.ravel(result.b)]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sizes, sizes, st.lists(st.tuples(st.integers(0, 199), sizes), max_size=3), st.sampled_from(list(RULES)),
    st.sampled_from([0.0, 1.0, 10.0]),
)  # fmt: skip
def test_scan_of_any_weights(
    signal: float, background: float, odd: list[tuple[int, float]], rule: str, least: float
) -> None:
    X, y, w = some_events(200)
    w = np.where(y == 1, signal * w, background * w)
    for row, size in odd:
        w[row] = size
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallSampleWarning)
        found = number_or_sentence(lambda: numbers_of(scan(X[:, 0], y, w, AMS2(), rule, min_effective=least)))
        number_or_sentence(
            lambda: scan(X[:, 0], y, w, AMS2(b_reg=1.0), rule, min_effective=least).interval(n_boot=5).significance
        )
        number_or_sentence(lambda: numbers_of(categorise(X[:, 0], y, w, 2, min_effective=least)))
    if 1e-40 < signal < 1e40 and 1e-40 < signal / background < 1e40 and not odd and least < 10:
        assert found is not None


def estimators() -> list[Any]:
    hist = HistGradientBoostingClassifier(max_iter=3, early_stopping=False)
    options: dict[str, Any] = {"random_state": 0, "n_jobs": 1, "b_reg": 1.0}
    net = fivesigma.NetClassifier(width=4, depth=1, epochs=1)
    line = make_pipeline(StandardScaler(), LogisticRegression())
    learners = [line, net] if installed("torch") else [line]
    return [
        *(fivesigma.CascadeClassifier(learner, max_rounds=1, extra_rounds=0, **options) for learner in learners),
        fivesigma.AutoClassifier(cv=2, n_trees=3, fast=True, **options),
        fivesigma.GrownCascadeClassifier(n_trees=3, **options),
        fivesigma.GrownCascadeClassifier("lightgbm", n_trees=3, **options),
        fivesigma.CascadeClassifier(hist, max_rounds=1, extra_rounds=1, **options),
        fivesigma.DecomposedClassifier(hist, **options),
        fivesigma.CascadePool(
            [("a", fivesigma.GrownCascadeClassifier(n_trees=3, b_reg=1.0))], random_state=0, n_jobs=1, b_reg=1.0, cv=2
        ),
    ]


def name_of(estimator: Any) -> str:
    inner = getattr(estimator, "estimator", None)
    return "-".join([type(estimator).__name__, getattr(estimator, "library", type(inner).__name__ if inner else "")])


def odd_weights() -> dict[str, Any]:
    _, y, w = some_events()
    one = w.copy()
    one[0] = 1e300
    large = w.copy()
    large[0] = 1e40
    return {
        "all tiny": w * 1e-300,
        "all huge": w * 1e300,
        "small": w * 1e-40,
        "large": w * 1e40,
        "one huge": one,
        "one large": large,
        "signal tiny": np.where(y == 1, w * 1e-300, w),
        "background tiny": np.where(y == 0, w * 1e-300, w),
        "far apart": np.where(y == 1, w * 1e-45, w * 1e45),
        "far apart the other way": np.where(y == 1, w * 1e45, w * 1e-45),
        "spread": w * 10.0 ** np.linspace(-45, 45, w.size),
    }


@pytest.mark.parametrize("name", odd_weights())
@pytest.mark.parametrize("estimator", estimators(), ids=name_of)
@pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")
def test_estimators_of_any_weights(estimator: Any, name: str) -> None:
    X, y, _ = some_events()
    w = odd_weights()[name]

    def run() -> list[float]:
        model = clone(estimator).fit(X, y, w)
        return [*model.predict_proba(X).ravel(), model.significance(X + 1e-3, y, w)]  # not the events of the training

    found = number_or_sentence(run)
    assert found is not None or name not in ("small", "large")


@pytest.mark.parametrize("name", odd_weights())
@pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")
def test_a_report_of_any_weights(name: str) -> None:
    X, y, w = some_events()
    model = fivesigma.GrownCascadeClassifier(n_trees=3, b_reg=1.0, random_state=0, n_jobs=1).fit(X, y, w)

    def run() -> list[float]:
        found = fivesigma.ScoredEvents(model.predict_proba(X)[:, 1], y == 1, odd_weights()[name])
        page = fivesigma.report(model, found, n_boot=20)
        assert page.html  # it can be drawn
        verdict = page.data.verdict
        return [verdict.significance, *verdict.interval, verdict.s, verdict.b]

    assert number_or_sentence(run) is not None or name not in ("small", "large")


@pytest.mark.parametrize("value", [1e37, 1e38, 3.5e38, -1e39, 1e300, -1e308])
@pytest.mark.parametrize("estimator", estimators(), ids=name_of)
@pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")
def test_estimators_of_any_features(estimator: Any, value: float) -> None:
    X, y, w = some_events()
    fitted = number_or_sentence(lambda: clone(estimator).fit(X, y, w).predict_proba(X))
    assert fitted is not None
    model = clone(estimator).fit(X, y, w)
    X = X.copy()
    X[7, 1] = value
    number_or_sentence(lambda: clone(estimator).fit(X, y, w).predict_proba(X))
    number_or_sentence(lambda: model.predict_proba(X))


@pytest.mark.parametrize("factor", [1e-300, 1e150, 1e300])
@pytest.mark.parametrize("estimator", estimators(), ids=name_of)
@pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of scikit-learn, before it gives up
def test_estimators_of_a_column_in_other_units(estimator: Any, factor: float) -> None:
    X, y, w = some_events()
    X[:, 1] *= factor
    number_or_sentence(lambda: clone(estimator).fit(X, y, w).predict_proba(X))


@pytest.mark.skipif(not installed("torch"), reason="needs torch")
def test_a_net_does_not_mind_the_unit_of_a_feature() -> None:
    X, y, w = some_events()
    net = fivesigma.NetClassifier(width=4, depth=1, epochs=1, random_state=0, n_jobs=1)
    right = net.fit(X, y, w).predict_proba(X)
    for factor in (2.0**-900, 2.0**990):
        np.testing.assert_array_equal(net.fit(X * factor, y, w).predict_proba(X * factor), right)


@pytest.mark.parametrize("estimator", [e for e in estimators() if "Pipeline" not in name_of(e)], ids=name_of)
@pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")
def test_estimators_of_a_column_without_values(estimator: Any) -> None:
    X, y, w = some_events()
    X[:, 1] = np.nan
    number_or_sentence(lambda: clone(estimator).fit(X, y, w).predict_proba(X))


def test_a_feature_too_large_for_xgboost_is_named() -> None:
    X, y, w = some_events()
    X[7, 1] = 1e39
    with pytest.raises(InputError, match=r"feature 1 .*row 7"):
        fivesigma.GrownCascadeClassifier(n_trees=2, b_reg=1.0, random_state=0, n_jobs=1).fit(X, y, w)


@pytest.mark.parametrize("kind", ["all", "signal", "background", "one signal", "one background"])
@pytest.mark.parametrize("exponent", [-90, -20, 12, 18, 50, 90])
@pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")
def test_profiled_uncertainties_of_any_weights(kind: str, exponent: int) -> None:
    X, y, w = some_events(400)
    score, process = X[:, 0], np.where(y == 1, "s", "b")
    these = {"all": y >= 0, "signal": y == 1, "background": y == 0}.get(kind)
    if these is None:
        these = np.arange(y.size) == int(kind == "one signal")
    w = np.where(these, w * 10.0**exponent, w)
    systematics = {"scale": (fivesigma.Varied(score=score * 1.05), fivesigma.Varied(score=score * 0.95))}
    profiled: dict[str, Any] = {"systematics": systematics, "process": process}

    number_or_sentence(lambda: scan(score, y, w, **profiled).significance)
    choices: list[dict[str, Any]] = [profiled, {"mc_statistics": True}]
    choices += [{"utility": utility} for utility in (GaussianBackground(1.0), RelativeBackground(0.1))]
    for chosen in choices:
        number_or_sentence(
            lambda chosen=chosen: numbers_of(categorise(score, y, w, n_categories=3, min_effective=1.0, **chosen))
        )


@pytest.mark.parametrize(
    ("systematics", "message"),
    [
        ({"scale": (np.ones(400), None)}, "scale up must be Varied"),
        ({"scale": (fivesigma.Varied(), "down")}, "scale down must be Varied"),
        ({"scale": fivesigma.Varied()}, "two variations"),
        ([("scale", None)], "must map names"),
    ],
)
def test_systematics_that_are_none(systematics: Any, message: str) -> None:
    X, y, w = some_events(400)
    for function in (scan, categorise):
        with pytest.raises(InputError, match=message):
            function(X[:, 0], y, w, systematics=systematics)


@pytest.mark.parametrize("exponent", [-320, -300, -99, -15, 15, 99, 300])
@pytest.mark.parametrize("kind", ["all", "A", "bkg", "one"])
@pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")
def test_categories_of_several_signals_of_any_weights(kind: str, exponent: int) -> None:
    rng = np.random.default_rng(0)
    names = ["A", "B", "bkg"]
    code = np.arange(600) % 3
    process, score = np.array(names)[code], np.exp(rng.normal(size=(600, 3)) + 1.5 * np.eye(3)[code])
    score /= score.sum(axis=1, keepdims=True)
    these = np.arange(600) == 2 if kind == "one" else (process == kind) | (kind == "all")
    w = rng.uniform(0.5, 1.5, 600) * np.where(these, 10.0**exponent, 1.0)

    def run() -> list[float]:
        found = fivesigma.categorise_scores(
            score, process, w, 2, signals=["A", "B"], processes=names, min_effective=1.0
        )
        return [found.value, *found.z.values()]

    number_or_sentence(run)
