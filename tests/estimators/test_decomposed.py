"""The decomposed learner as its users meet it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import GammaRegressor, LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fivesigma
from fivesigma import AMS2, CascadeClassifier, CascadePool, DecomposedClassifier
from fivesigma._types import Array, IntArray
from fivesigma.errors import InputError
from fivesigma.learners import libraries
from fivesigma.learners.density_ratios import fit_mean_weight
from fivesigma.learners.libraries import default_regressor
from tests.estimators.blobs import YIELDS, make_blobs
from tests.estimators.test_retrained import optimal_significance

xgboost = pytest.importorskip("xgboost")
lightgbm = pytest.importorskip("lightgbm")

DISTANCE, SLOPE_S, SLOPE_B = 1.5, 0.5, -0.8


def make_weighted(n: int = 4000, seed: int = 0) -> tuple[Array, IntArray, Array]:
    """Gaussians whose weights are gamma-distributed around exponentials of the second feature."""
    X, y, weight = make_blobs(n, distance=DISTANCE, seed=seed)
    slope = np.where(y == 1, SLOPE_S, SLOPE_B)
    mean = weight * np.exp(slope * X[:, 1] - slope**2 / 2)
    return X, y, mean * np.random.default_rng(seed + 1).gamma(4.0, 0.25, size=n)


def exact_log_ratio(X: Array) -> Array:
    """Log R of `make_weighted`: the ratio of densities, of yields and of mean weights."""
    densities = DISTANCE * X[:, 0] - DISTANCE**2 / 2
    weights = (SLOPE_S - SLOPE_B) * X[:, 1] - (SLOPE_S**2 - SLOPE_B**2) / 2
    return np.asarray(densities + weights + np.log(YIELDS[0] / YIELDS[1]))


X, Y, W = make_weighted()


def small(**options: Any) -> DecomposedClassifier:
    given: dict[str, Any] = {
        "estimator": xgboost.XGBClassifier(n_estimators=20, max_depth=2, learning_rate=0.3),
        "weight_estimator": xgboost.XGBRegressor(objective="reg:gamma", n_estimators=20, max_depth=2),
        "random_state": 0,
        "n_jobs": 1,
    }
    return DecomposedClassifier(**given | options)


def linear(**options: Any) -> DecomposedClassifier:
    return small(estimator=LogisticRegression(C=1e6), weight_estimator=GammaRegressor(alpha=0.0), **options)


@pytest.mark.parametrize("options", [{}, {"cv": 3}, {"refit": True}], ids=str)
def test_the_exact_ratio_is_recovered_weights_included(options: dict[str, Any]) -> None:
    # Logistic and gamma regression are well specified here, so log R is found up to statistics.
    model = linear(**options).fit(*make_weighted(100_000, seed=3))
    grid = np.random.default_rng(5).normal(size=(2000, 2))
    for part in model.models_:
        assert np.abs(part.log_ratio(grid) - exact_log_ratio(grid)).max() < 0.12
    balanced = exact_log_ratio(grid) - np.log(YIELDS[0] / YIELDS[1])
    assert np.abs(model.predict_proba(grid)[:, 1] - 1 / (1 + np.exp(-balanced))).max() < 0.03


def test_boosters_come_near_the_exact_ratio_where_events_are() -> None:
    model = DecomposedClassifier(random_state=0, n_jobs=1).fit(*make_weighted(60_000, seed=3))
    test, *_ = make_weighted(5_000, seed=4)
    error = model.models_[0].log_ratio(test) - exact_log_ratio(test)
    without = error - model.models_[0].signal.log_mean(test) + model.models_[0].background.log_mean(test)
    assert np.sqrt(np.mean(error**2)) < 0.55
    assert np.std(without) > 1.2, "the classifier alone does not know the weights"


LEARNERS: dict[str, tuple[Any, Any]] = {
    "logistic": (LogisticRegression(), GammaRegressor(alpha=0.0)),
    "least squares": (LogisticRegression(), LinearRegression()),
    "forests": (RandomForestClassifier(10, min_samples_leaf=20), RandomForestRegressor(10, min_samples_leaf=20)),
    "no sample_weight": (KNeighborsClassifier(100), make_pipeline(StandardScaler(), GammaRegressor(alpha=0.0))),
    "histogram": (
        HistGradientBoostingClassifier(max_iter=20, max_leaf_nodes=4),
        HistGradientBoostingRegressor(loss="gamma", max_iter=20, max_leaf_nodes=4),
    ),
    "lightgbm": (
        lightgbm.LGBMClassifier(n_estimators=20, num_leaves=4, verbosity=-1, learning_rate=0.3),
        lightgbm.LGBMRegressor(objective="gamma", n_estimators=20, num_leaves=4, verbosity=-1),
    ),
    "xgboost": (small().estimator, small().weight_estimator),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_any_pair_of_learners_beats_the_classifier_alone(name: str) -> None:
    estimator, weight_estimator = LEARNERS[name]
    model = small(estimator=estimator, weight_estimator=weight_estimator).fit(*make_weighted(10_000, seed=1))
    test = make_weighted(20_000, seed=9)
    exact = fivesigma.scan(exact_log_ratio(test[0]), test[1], test[2], rule="plateau").significance
    probability = model.models_[0].classifier.signal_probability(test[0])
    alone = fivesigma.scan(probability, test[1], test[2], rule="plateau").significance
    assert alone < 0.8 * exact
    assert 0.85 * exact < model.significance(*test) < 1.03 * exact


def test_constant_weights_need_no_regression() -> None:
    events = make_blobs(20_000, seed=1)
    model = small(weight_estimator=Refusing()).fit(*events)
    assert model.models_[0].signal.regressor is None
    assert model.models_[0].background.regressor is None
    best = optimal_significance(1.5, YIELDS)
    assert 0.92 * best < model.significance(*make_blobs(40_000, seed=9)) < 1.03 * best
    one_class = np.where(events[1] == 1, events[2], np.random.default_rng(0).gamma(2.0, size=20_000))
    with pytest.raises(AssertionError, match="was asked"):
        small(weight_estimator=Refusing()).fit(events[0], events[1], one_class)


def test_the_mean_of_equal_weights_is_within_them() -> None:
    for n in range(1, 100):  # where the store would refuse what rounding did
        found = fit_mean_weight(Refusing(), np.zeros((n, 1)), np.full(n, 0.1), seed=0, n_threads=1)
        assert found.bounds[0] <= found.scale <= found.bounds[1]


class Refusing(LinearRegression):  # type: ignore[misc, unused-ignore]  # typed in some versions only
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        raise AssertionError("was asked")


def test_means_stay_within_the_weights_that_were_seen() -> None:
    x = np.linspace(0, 1, 50)[:, None]
    weight = np.exp(3 * x[:, 0])
    line = fit_mean_weight(LinearRegression(), x, weight, 0, 1)
    means = np.exp(line.log_mean(np.array([[-5.0], [0.5], [5.0]])))
    assert means == pytest.approx([weight.min(), means[1], weight.max()])
    assert weight.min() < means[1] < weight.max()


def test_a_classifier_that_is_certain_leaves_the_order_to_the_weights() -> None:
    model = small(estimator=KNeighborsClassifier(1), weight_estimator=GammaRegressor()).fit(X, Y, W)
    p = model.predict_proba(X)[:, 1]
    assert np.isfinite(model.models_[0].log_ratio(X)).all()
    assert np.unique(p).size > 1000


def test_the_scale_of_the_weights_does_not_matter_to_the_scores() -> None:
    a, b = (small().fit(X, Y, W * np.where(Y == 1, f, g)).predict_proba(X) for f, g in ((1, 1), (1e-4, 1e3)))
    assert np.allclose(a, b, atol=1e-5)


def test_the_classifier_sees_no_weights() -> None:
    heavy = np.where(Y == 1, 1.0, 1.0 + 9.0 * (X[:, 0] > 1))
    split = [(np.arange(3000), np.arange(3000, 4000))]
    by_weight, by_count = (small(cv=split).fit(X, Y, w).models_[0].classifier for w in (heavy, np.ones(4000)))
    assert np.array_equal(by_weight.signal_probability(X), by_count.signal_probability(X))


def test_a_refit_is_trained_on_all_events_whatever_the_splits() -> None:
    a, b = (linear(cv=cv, refit=True).fit(X, Y, W) for cv in (0.25, 3))
    assert len(a.models_) == len(b.models_) == 1
    assert np.array_equal(a.predict_proba(X), b.predict_proba(X))


def test_rows_of_zero_weight_belong_to_nothing() -> None:
    empty = np.arange(4000) % 5 == 0
    rows = np.flatnonzero(~empty)
    # The fold that comes with the rows, once among rows of zero weight and once without them.
    train, held = rows[: rows.size // 2], rows[rows.size // 2 :]
    with_zeros = [(np.append(train, np.flatnonzero(empty)), held)]
    without = [(np.arange(train.size), np.arange(train.size, rows.size))]
    a = small(cv=with_zeros).fit(X, Y, np.where(empty, 0.0, W))
    b = small(cv=without).fit(X[rows], Y[rows], W[rows])
    # Only the weights' scale is another, which boosters see in single precision.
    assert np.allclose(a.predict_proba(X), b.predict_proba(X), atol=1e-5)
    assert a.cut_ == pytest.approx(b.cut_, abs=1e-5)


@pytest.mark.parametrize("policy", ["zero", "abs"])
def test_negative_weights_follow_the_policy_and_yields_keep_the_sign(policy: str) -> None:
    below = np.arange(4000) % 11 == 0
    signed = np.where(below, -0.5 * W, W)
    split = [(np.arange(3000), np.arange(3000, 4000))]
    model = small(negative_weights=policy, cv=split, cut=0.0).fit(X, Y, signed)
    seen = np.abs(signed) if policy == "abs" else np.maximum(signed, 0)
    same = small(cv=split).fit(X, Y, seen)
    # The learners see what they would see of the positive weights; a row of weight zero is no row.
    assert np.allclose(model.predict_proba(X), same.predict_proba(X), atol=1e-4)
    assert model.history_[0].s == pytest.approx(signed[Y == 1].sum())
    assert model.history_[0].b == pytest.approx(signed[Y == 0].sum())


def test_one_round_with_the_held_out_yields_at_the_cut() -> None:
    model = small(b_reg=10.0).fit(X, Y, W)
    (only,) = model.history_
    assert only.index == 0
    assert only.u is None
    assert only.valid
    assert only.significance == pytest.approx(float(AMS2(b_reg=10.0).value(only.s, only.b)))
    assert only.class_weights[0] / only.class_weights[1] == pytest.approx(np.exp(model.models_[0].log_balance))
    assert only.following.u == pytest.approx(float(AMS2(b_reg=10.0).u(only.s, only.b)), rel=0.2)


def test_predict_decision_and_probability_agree() -> None:
    model = small(cv=2).fit(X, np.where(Y == 1, "s", "b"), W)
    p = model.predict_proba(X)
    assert np.allclose(p.sum(axis=1), 1.0)
    assert np.array_equal(model.predict(X) == "s", p[:, 1] >= model.cut_)
    assert np.array_equal(model.predict(X) == "s", model.decision_function(X) > 0)
    assert small(cut="zero").fit(X, Y, W).cut_ == 0.5


@pytest.mark.parametrize("name", ["xgboost", "lightgbm", "forests"])
def test_same_seed_same_model_bit_for_bit(name: str) -> None:
    estimator, weight_estimator = LEARNERS[name]
    made = [small(estimator=estimator, weight_estimator=weight_estimator, random_state=r, cv=2) for r in (0, 0, 1)]
    scores = [m.fit(X, Y, W).predict_proba(X) for m in made]
    assert np.array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], scores[2])


def test_frames_and_missing_values_reach_both_learners() -> None:
    holes = X.copy()
    holes[::5, 1] = np.nan
    frame = pd.DataFrame(holes, columns=["mass", "other"])
    by_frame, by_array = small().fit(frame, Y, W), small().fit(holes, Y, W)
    assert np.array_equal(by_frame.predict_proba(frame), by_array.predict_proba(holes))
    assert by_frame.feature_names_in_.tolist() == ["mass", "other"]
    with pytest.raises(ValueError, match="NaN"):
        small(weight_estimator=GammaRegressor()).fit(holes, Y, W)


def test_clone_pickle_and_reprs() -> None:
    model = small().fit(X, Y, W)
    assert clone(model).get_params(deep=False).keys() == model.get_params(deep=False).keys()
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert "DecomposedClassifier" in model._repr_html_()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("logistic", {"refit": True}),
        ("histogram", {}),
        ("lightgbm", {"cv": 2}),
        ("xgboost", {"cv": 2}),
        ("default", {}),
        ("constant", {}),
    ],
    ids=str,
)
def test_saved_and_loaded_scores_are_the_same(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("skops")
    pair = LEARNERS.get(name, (None, None) if name == "default" else LEARNERS["xgboost"])
    weight = np.ones(4000) if name == "constant" else W
    model = small(estimator=pair[0], weight_estimator=pair[1], **options).fit(X, Y, weight)
    again = fivesigma.load(fivesigma.save(model, tmp_path / "model"))
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.history_ == model.history_
    assert type(again.weight_estimator) is type(model.weight_estimator)


def test_a_checkpoint_goes_on_after_the_splits_that_are_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = small(cv=3).fit(X, Y, W)
    fits = []
    inner = DecomposedClassifier._fit_rows

    def until_the_third(self: Any, *args: Any) -> Any:
        fits.append(args)
        if len(fits) == 3:
            raise KeyboardInterrupt
        return inner(self, *args)

    monkeypatch.setattr(DecomposedClassifier, "_fit_rows", until_the_third)
    with pytest.raises(KeyboardInterrupt):
        small(cv=3, checkpoint=tmp_path / "run").fit(X, Y, W)
    resumed = small(cv=3, checkpoint=tmp_path / "run").fit(X, Y, W)
    assert len(fits) == 4, "two splits before the interruption, the third in vain and once more"
    assert np.array_equal(resumed.predict_proba(X), whole.predict_proba(X))
    with pytest.raises(InputError, match="of other events"):
        small(cv=3, checkpoint=tmp_path / "run").fit(X, Y, 2 * W)


def test_member_of_a_pool_like_any_other(tmp_path: Path) -> None:
    members = [("decomposed", small()), ("linear", linear()), ("plain", LogisticRegression())]
    given: dict[str, Any] = {"b_reg": 10.0, "random_state": 0, "n_jobs": 1}
    pool = CascadePool(members, **given, checkpoint=tmp_path / "pool").fit(X, Y, W)
    assert list(pool.member_significance_) == ["decomposed", "linear", "plain"]
    kept = dict(pool.members_)
    assert type(kept["decomposed"]) is DecomposedClassifier
    assert kept["linear"].utility_ == AMS2(b_reg=10.0)
    assert len(pool.history_) == 3
    assert np.isfinite(pool.predict_proba(X)).all()
    again = fivesigma.load(fivesigma.save(pool, tmp_path / "saved"))
    assert np.array_equal(again.predict_proba(X), pool.predict_proba(X))
    bagged = CascadePool([("decomposed", small())], cv=2, **given).fit(X, Y, W)
    assert len(bagged.members_) == 2


def test_progress_bar_shows_the_significance(capfd: pytest.CaptureFixture[str]) -> None:
    small(verbose=1).fit(X, Y, W)
    out, err = capfd.readouterr()
    assert out == ""
    assert "1/1" in err
    assert "significance" in err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"estimator": "xgboost"}, "estimator must be a scikit-learn classifier"),
        ({"estimator": LinearRegression()}, "gives no score"),
        ({"estimator": LogisticRegression(class_weight="balanced")}, "class_weight='balanced' weights the classes"),
        ({"weight_estimator": "gamma"}, "weight_estimator must be a scikit-learn regressor"),
        ({"weight_estimator": LogisticRegression()}, "weight_estimator must be a scikit-learn regressor"),
        ({"cut": "best"}, "cut='best' is not one of"),
        ({"cut": 1.5}, "is not between 0 and 1"),
        ({"cv": 1}, "cv=1 folds are too few"),
        ({"negative_weights": "drop"}, "negative_weights must be one of"),
        ({"utility": AMS2(), "b_reg": 1.0}, "b_reg"),
        ({"checkpoint": "nowhere", "random_state": None}, "needs an integer random_state"),
    ],
    ids=str,
)
def test_bad_parameters_get_one_sentence(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        small(**options).fit(X, Y, W)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"sample_weight": np.full(4000, np.nan)},
        {"sample_weight": np.zeros(4000)},
        {"sample_weight": np.ones(3999)},
        {"sample_weight": np.where(np.arange(4000) == 7, -1.0, W)},
        {"y": np.ones(4000)},
        {"y": np.arange(4000) % 3},
        {"process": np.ones(3)},
    ],
    ids=str,
)
def test_same_sentences_as_the_retrained_cascade(change: dict[str, Any]) -> None:
    given = {"X": X, "y": Y, "sample_weight": W} | change
    sentences = []
    for model in (small(), CascadeClassifier(n_jobs=1)):
        with pytest.raises(InputError) as caught:
            model.fit(**given)
        sentences.append(str(caught.value))
    assert sentences[0] == sentences[1]


def test_default_regressor_is_the_best_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(default_regressor()).__name__ == "XGBRegressor"
    monkeypatch.setattr(libraries, "installed", lambda name: name == "lightgbm")
    assert type(default_regressor()).__name__ == "LGBMRegressor"
    monkeypatch.setattr(libraries, "installed", lambda name: False)
    fallback = default_regressor()
    assert type(fallback).__name__ == "HistGradientBoostingRegressor"
    assert fallback.loss == "gamma"
    assert (fallback.max_leaf_nodes, default_regressor(depth=3).max_leaf_nodes) == (15, 7)
    model = small(weight_estimator=fallback).fit(X, Y, W)
    assert model.models_[0].signal.regressor.n_iter_ == 100
