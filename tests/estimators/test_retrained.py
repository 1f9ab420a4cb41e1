"""The retrained cascade as its users meet it."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from typing import Any, ClassVar, cast

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from scipy.sparse import csr_array
from scipy.special import ndtr
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    RepeatedStratifiedKFold,
    StratifiedKFold,
    TunedThresholdClassifierCV,
    cross_val_score,
)
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from fivesigma import (
    AMS2,
    AMS3,
    CascadeClassifier,
    FDivergence,
    RelativeBackground,
    SOverRootSB,
    Utility,
    make_scorer,
    scan,
)
from fivesigma._types import AnyArray, Array
from fivesigma.errors import InputError, SmallSampleWarning
from fivesigma.estimators.split_steps import TuningEvents
from fivesigma.estimators.training_sample import TrainingSample
from fivesigma.yields import rescale
from tests.estimators.blobs import YIELDS, make_blobs, needs_callbacks

xgboost = pytest.importorskip("xgboost")
lightgbm = pytest.importorskip("lightgbm")

X, Y, W = make_blobs()
OTHERS = make_blobs(seed=9)


def small_xgb(**options: Any) -> Any:
    return xgboost.XGBClassifier(n_estimators=20, max_depth=2, learning_rate=0.3, n_jobs=1, **options)


def small_lgbm(**options: Any) -> Any:
    return lightgbm.LGBMClassifier(n_estimators=20, num_leaves=4, learning_rate=0.3, verbosity=-1, n_jobs=1, **options)


LEARNERS = {
    "logistic": LogisticRegression(),
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
    "forest": RandomForestClassifier(20, min_samples_leaf=20),
    "histogram": HistGradientBoostingClassifier(max_iter=20),
    "margin only": LinearSVC(),
    "xgboost": small_xgb(),
    "lightgbm": small_lgbm(),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_any_weighted_learner_reaches_nearly_the_best_cut(name: str) -> None:
    model = CascadeClassifier(LEARNERS[name], max_rounds=4, extra_rounds=1, random_state=0, n_jobs=1)
    events = make_blobs(20_000, seed=1)
    model.fit(*events)
    other_X, other_y, other_w = make_blobs(40_000, seed=9)
    best = optimal_significance(1.5, YIELDS)
    assert 0.92 * best < model.significance(other_X, other_y, other_w) < 1.03 * best


def optimal_significance(distance: float, yields: tuple[float, float]) -> float:
    """AMS2 of the best likelihood-ratio cut, which is a cut on the first feature."""
    cut = np.linspace(-2.0, 5.0, 7001)
    return float(AMS2().value(yields[0] * ndtr(distance - cut), yields[1] * ndtr(-cut)).max())


def test_fixed_point_is_the_likelihood_ratio_cut() -> None:
    # Logistic regression is well specified for two Gaussians, so its selection at zero must end at the analytic best.
    distance, yields = 2.0, (200.0, 5_000.0)
    X, y, w = make_blobs(200_000, distance=distance, seed=3, yields=yields)
    model = CascadeClassifier(LogisticRegression(C=1e6), max_rounds=8, random_state=0, cut="zero").fit(X, y, w)
    grid = np.linspace(0.0, 4.0, 40_001)
    z = AMS2().value(yields[0] * ndtr(distance - grid), yields[1] * ndtr(-grid))
    best = float(grid[np.argmax(z)])
    last = model.history_[-1]
    learner = model.models_[0].estimator
    boundary = -learner.intercept_[0] / learner.coef_[0, 0]
    assert abs(learner.coef_[0, 1] / learner.coef_[0, 0]) < 0.02
    assert boundary == pytest.approx(best, abs=0.03)
    # The curve is flat at its top, so u is pinned only as well as the held-out yields are.
    assert last.u == pytest.approx(
        float(np.log1p(yields[0] * ndtr(distance - best) / (yields[1] * ndtr(-best)))), rel=0.05
    )


def test_round_zero_is_balanced_and_the_others_follow_u() -> None:
    model = CascadeClassifier(LogisticRegression(), max_rounds=3, extra_rounds=3, random_state=0, monitor_every=1)
    history = model.fit(X, Y, W).history_
    assert [r.index for r in history] == [0, 1, 2, 3]
    assert history[0].u is None
    for before, after in itertools.pairwise(history[1:]):
        assert after.u is not None
        assert after.u == pytest.approx(float(AMS2().u(before.s, before.b)))
        assert after.class_weights == pytest.approx([float(v) for v in AMS2().weights_at(after.u)])
        assert after.significance == pytest.approx(float(AMS2().value(after.s, after.b)))
    assert all(r.train_s is not None and r.train_s > 0 for r in history)
    assert model.kept_[0].significance == max(r.significance for r in history)


def test_no_rounds_leave_the_plain_model() -> None:
    model = CascadeClassifier(small_xgb(), cascade=False, random_state=0).fit(X, Y, W)
    assert [r.index for r in model.history_] == [0]
    signal, background = model.history_[0].class_weights
    assert signal * YIELDS[0] == pytest.approx(background * YIELDS[1])


def test_the_best_round_is_kept_not_the_last() -> None:
    model = CascadeClassifier(small_xgb(), max_rounds=8, extra_rounds=8, random_state=1).fit(X, Y, W)
    best = max(model.history_, key=lambda r: r.significance)
    assert model.kept_ == [best]
    assert best.index != model.history_[-1].index


def test_yields_are_scaled_to_the_full_sample() -> None:
    everything = CascadeClassifier(LogisticRegression(), cut=0.0, u_init=1e-9, max_rounds=1, random_state=0)
    first = everything.fit(X, Y, W).history_[0]
    assert (first.s, first.b) == pytest.approx(YIELDS)


def test_predict_decision_and_probability_agree() -> None:
    model = CascadeClassifier(small_xgb(), max_rounds=2, extra_rounds=0, random_state=0).fit(X, Y, W)
    p = model.predict_proba(X)
    assert np.allclose(p.sum(axis=1), 1.0)
    assert np.array_equal(model.predict(X) == 1, p[:, 1] >= model.cut_)
    assert np.array_equal(model.predict(X) == 1, model.decision_function(X) > 0)
    at_cut = CascadeClassifier(small_xgb(), cut=float(p[0, 1]), max_rounds=2, extra_rounds=0, random_state=0)
    assert at_cut.fit(X, Y, W).decision_function(X[:1])[0] > 0, "an event at the cut is selected"


@pytest.mark.parametrize("learner", ["xgboost", "lightgbm", "forest"])
@pytest.mark.parametrize("cv", [0.25, 3])
def test_same_seed_same_model(learner: str, cv: Any) -> None:
    fits = [
        CascadeClassifier(LEARNERS[learner], cv=cv, max_rounds=2, extra_rounds=1, n_restarts=2, keep=2, random_state=5)
        .fit(X, Y, W)
        .predict_proba(X)
        for _ in range(2)
    ]
    assert np.array_equal(fits[0], fits[1])


def test_restarts_differ_and_the_best_of_all_are_blended() -> None:
    model = CascadeClassifier(
        small_xgb(subsample=0.5), n_restarts=3, keep=4, max_rounds=3, extra_rounds=3, random_state=0, n_jobs=2
    ).fit(X, Y, W)
    assert {r.restart for r in model.history_} == {0, 1, 2}
    assert len({r.significance for r in model.history_ if r.index == 1}) == 3
    assert model.kept_ == sorted(model.history_, key=lambda r: -r.significance)[:4]
    parts = [m.signal_probability(X) for m in model.models_]
    assert np.allclose(model.predict_proba(X)[:, 1], np.mean(parts, axis=0))


def test_cross_fitted_yields_cover_all_events_and_refit_gives_one_model() -> None:
    folds = CascadeClassifier(small_xgb(), cv=4, max_rounds=1, random_state=0).fit(X, Y, W)
    assert len(folds.models_) == 4
    one = CascadeClassifier(small_xgb(), cv=4, max_rounds=1, random_state=0, refit=True).fit(X, Y, W)
    assert len(one.models_) == 1
    assert one.history_[0].s == folds.history_[0].s
    splitter = StratifiedKFold(4, shuffle=True, random_state=1)
    by_splitter = CascadeClassifier(small_xgb(), cv=splitter, max_rounds=1, random_state=0).fit(X, Y, W)
    by_splits = CascadeClassifier(small_xgb(), cv=list(splitter.split(X, Y)), max_rounds=1, random_state=0).fit(X, Y, W)
    assert np.array_equal(by_splitter.predict_proba(X), by_splits.predict_proba(X))


def test_split_is_stratified_by_process() -> None:
    process = np.where(Y == 1, "signal", np.where(np.arange(Y.size) % 40 == 0, "rare", "common"))
    seen: list[AnyArray] = []

    class Spy(LogisticRegression):
        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            seen.append(np.asarray(X)[:, 0])
            return super().fit(X, y, sample_weight)

    table = X.copy()
    table[:, 0] = np.arange(Y.size)  # so that the learner can tell which rows it got
    with pytest.warns(ConvergenceWarning):
        CascadeClassifier(Spy(max_iter=5), max_rounds=1, random_state=0, n_jobs=1).fit(table, Y, W, process=process)
    kept = np.isin(np.arange(Y.size), seen[0].astype(int))
    assert kept[process == "rare"].mean() == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize("learner", ["xgboost", "lightgbm", "histogram"])
@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_frames_reach_the_learner_with_their_columns(learner: str, kind: str) -> None:
    table = {"mass": X[:, 0], "other": X[:, 1]}
    frame = pd.DataFrame(table) if kind == "pandas" else pl.DataFrame(table)
    model = CascadeClassifier(LEARNERS[learner], max_rounds=1, random_state=0, n_jobs=1).fit(frame, Y, W)
    assert model.feature_names_in_.tolist() == ["mass", "other"]
    plain = CascadeClassifier(LEARNERS[learner], max_rounds=1, random_state=0, n_jobs=1).fit(X, Y, W)
    assert np.allclose(model.predict_proba(frame), plain.predict_proba(X))
    swapped = frame[["other", "mass"]]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(swapped)


def test_xgboost_sees_column_names_and_categories() -> None:
    frame = pd.DataFrame({"mass": X[:, 0], "channel": pd.Categorical(np.where(X[:, 1] > 0, "e", "mu"))})
    model = CascadeClassifier(small_xgb(enable_categorical=True), max_rounds=1, random_state=0).fit(frame, Y, W)
    assert model.models_[0].booster.feature_names == ["mass", "channel"]
    assert model.predict_proba(frame).shape == (Y.size, 2)


@pytest.mark.parametrize("learner", ["xgboost", "lightgbm"])
def test_names_that_libraries_do_not_take(learner: str) -> None:
    frame = pd.DataFrame({"jet[0]": X[:, 0], "a<b": X[:, 1]})
    model = CascadeClassifier(LEARNERS[learner], max_rounds=1, random_state=0).fit(frame, Y, W)
    assert model.feature_names_in_.tolist() == ["jet[0]", "a<b"]
    plain = CascadeClassifier(LEARNERS[learner], max_rounds=1, random_state=0).fit(X, Y, W)
    assert np.allclose(model.predict_proba(frame), plain.predict_proba(X))


@pytest.mark.parametrize("learner", ["xgboost", "lightgbm", "logistic"])
def test_sparse_tables(learner: str) -> None:
    table = csr_array(X)
    model = CascadeClassifier(LEARNERS[learner], max_rounds=1, random_state=0).fit(table, Y, W)
    dense = CascadeClassifier(LEARNERS[learner], max_rounds=1, random_state=0).fit(X, Y, W)
    assert np.allclose(model.predict_proba(table), dense.predict_proba(X), atol=1e-3)


def test_boolean_splits_and_processes_with_gaps() -> None:
    half = np.arange(4000) % 4 < 2
    by_mask = CascadeClassifier(small_xgb(), cv=[(half, ~half)], max_rounds=1, random_state=0).fit(X, Y, W)
    rows = [(np.flatnonzero(half), np.flatnonzero(~half))]
    by_rows = CascadeClassifier(small_xgb(), cv=rows, max_rounds=1, random_state=0).fit(X, Y, W)
    assert np.array_equal(by_mask.predict_proba(X), by_rows.predict_proba(X))
    gaps = [None if k % 3 == 0 else "known" for k in range(4000)]
    CascadeClassifier(small_xgb(), cascade=False, random_state=0).fit(X, Y, W, process=gaps)


@pytest.mark.parametrize("cv", [0.25, 3])
def test_a_process_of_a_single_event_is_split_with_its_class(cv: float) -> None:
    process = np.where(Y == 1, "signal", "common")
    process[[0, 1]] = "lonely"  # one background and one signal event
    model = CascadeClassifier(LogisticRegression(), max_rounds=1, cv=cv, random_state=0)
    assert model.fit(X, Y, W, process).cut_ > 0


def test_repeated_splits_do_not_make_events_more_precise() -> None:
    once = CascadeClassifier(LogisticRegression(), cv=2, cascade=False, random_state=0).fit(X, Y, W).history_[0]
    splitter = RepeatedStratifiedKFold(n_splits=2, n_repeats=5, random_state=0)
    often = CascadeClassifier(LogisticRegression(), cv=splitter, cascade=False, random_state=0).fit(X, Y, W).history_[0]
    assert often.effective_background == pytest.approx(once.effective_background, rel=0.05)


def test_only_rounds_that_count_are_blended() -> None:
    model = CascadeClassifier(
        LogisticRegression(), u_init=3.0, max_rounds=4, extra_rounds=4, keep=5, random_state=0, n_jobs=1
    ).fit(X, Y, W)
    assert not all(r.valid for r in model.history_)
    assert all(r.valid for r in model.kept_)
    relative = CascadeClassifier(
        LogisticRegression(), utility=RelativeBackground(0.1), keep=4, random_state=0, n_jobs=1
    )
    assert all(r.improved for r in relative.fit(X, Y, W).kept_)


def test_significances_below_zero_are_ranked_too() -> None:
    utility = FDivergence(lambda t: t**2 / 2, lambda t: t, h=lambda F: np.log(F) - 20)
    model = CascadeClassifier(LogisticRegression(), utility=utility, max_rounds=3, u_init=3.0, random_state=0, n_jobs=1)
    kept = model.fit(X, Y, W).kept_[0]
    assert kept.valid
    assert kept.significance < 0


@pytest.mark.usefixtures("metadata_routing")
def test_weights_reach_a_pipeline_with_routing_on() -> None:
    model = CascadeClassifier(LEARNERS["pipeline"], max_rounds=1, random_state=0, n_jobs=1).fit(X, Y, W)
    with sklearn.config_context(enable_metadata_routing=False):
        without = CascadeClassifier(LEARNERS["pipeline"], max_rounds=1, random_state=0, n_jobs=1).fit(X, Y, W)
    assert np.array_equal(model.predict_proba(X), without.predict_proba(X))


def test_scale_of_weights_does_not_matter_to_the_model() -> None:
    tiny = CascadeClassifier(small_xgb(), cascade=False, utility="ams3", random_state=0).fit(X, Y, W * 1e-40)
    usual = CascadeClassifier(small_xgb(), cascade=False, utility="ams3", random_state=0).fit(X, Y, W)
    assert np.allclose(tiny.predict_proba(X), usual.predict_proba(X), atol=1e-6)
    assert tiny.selected_fraction_ == pytest.approx(usual.selected_fraction_)


def test_nan_passes_to_learners_that_take_it_and_to_no_others() -> None:
    holes = X.copy()
    holes[::7, 1] = np.nan
    CascadeClassifier(small_xgb(), max_rounds=1, random_state=0).fit(holes, Y, W).predict(holes)
    with pytest.raises(ValueError, match="NaN"):
        CascadeClassifier(LogisticRegression(), max_rounds=1).fit(holes, Y, W)


@pytest.mark.parametrize("make", [small_xgb, small_lgbm], ids=["xgboost", "lightgbm"])
def test_binning_once_gives_the_model_of_a_fresh_fit(make: Any) -> None:
    half = np.arange(4000) % 4 < 2
    split = (np.flatnonzero(half), np.flatnonzero(~half))
    model = CascadeClassifier(make(), max_rounds=1, u_init=0.1, cv=[split], random_state=0).fit(X, Y)
    u, f = AMS2().weights_at(0.1)
    weight = np.where(Y[half] == 1, u, f)
    weight /= weight.mean()
    fresh = make(random_state=0).fit(X[half], Y[half], sample_weight=weight)
    difference = np.abs(fresh.predict_proba(X)[:, 1] - model.predict_proba(X)[:, 1])
    # LightGBM's bins never look at weights; XGBoost's own do, and the cascade's do not.
    assert difference.max() < 1e-6 if make is small_lgbm else np.mean(difference) < 0.03


def test_negative_weights_by_policy() -> None:
    signed = W.copy()
    signed[::50] *= -1
    with pytest.raises(InputError, match=r"negative in 80 of 4000 rows.*negative_weights"):
        CascadeClassifier(small_xgb()).fit(X, Y, signed)
    for policy in ("zero", "abs"):
        model = CascadeClassifier(small_xgb(), negative_weights=policy, max_rounds=1, random_state=0, u_init=1e-6)
        first = model.fit(X, Y, signed).history_[0]
        assert (first.s, first.b) == pytest.approx((signed[Y == 1].sum(), signed[Y == 0].sum()))


def test_rows_of_zero_weight_are_as_good_as_absent() -> None:
    weight = W.copy()
    weight[:800] = 0.0
    rows = [(np.arange(0, 4000, 2), np.arange(1, 4000, 2))]
    with_zeros = CascadeClassifier(small_xgb(), cv=_both_classes(rows), max_rounds=1, random_state=0).fit(X, Y, weight)
    later = [(a[a >= 800] - 800, b[b >= 800] - 800) for a, b in _both_classes(rows)]
    without = CascadeClassifier(small_xgb(), cv=later, max_rounds=1, random_state=0).fit(X[800:], Y[800:], W[800:])
    assert np.array_equal(with_zeros.predict_proba(X), without.predict_proba(X))


def _both_classes(_: Any) -> list[tuple[AnyArray, AnyArray]]:
    quarter = np.arange(4000) % 4 < 2
    return [(np.flatnonzero(quarter), np.flatnonzero(~quarter))]


@pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")
def test_labels_of_any_kind() -> None:
    names = np.where(Y == 1, "Signal", "background")
    model = CascadeClassifier(small_xgb(), max_rounds=1, random_state=0).fit(X, names, W)
    assert model.classes_.tolist() == ["background", "Signal"]
    assert set(model.predict(X)) <= {"background", "Signal"}
    flipped = CascadeClassifier(small_xgb(), max_rounds=1, random_state=0, pos_label=0).fit(X, Y, W)
    assert flipped.classes_.tolist() == [1, 0]


def test_utilities_without_guarantee_and_with_systematics() -> None:
    model = CascadeClassifier(
        LogisticRegression(), utility=RelativeBackground(0.1), max_rounds=6, extra_rounds=4, random_state=0
    ).fit(X, Y, W)
    known = CascadeClassifier(LogisticRegression(), max_rounds=6, extra_rounds=4, random_state=0).fit(X, Y, W)
    assert model.selected_fraction_ < known.selected_fraction_, "an uncertain background asks for a tighter cut"
    assert model.kept_[0].significance == max(r.significance for r in model.history_)


def test_clone_and_pickle() -> None:
    model = CascadeClassifier(small_xgb(), max_rounds=1, random_state=0)
    assert clone(model).get_params()["max_rounds"] == 1
    fitted = model.fit(X, Y, W)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))


def test_reprs_before_and_after_fit() -> None:
    model = CascadeClassifier(small_xgb(), max_rounds=2, random_state=0)
    assert "CascadeClassifier" in model._repr_html_()
    model.fit(X, Y, W)
    assert "CascadeClassifier" in model._repr_html_()
    assert repr(model.history_).splitlines()[1].split()[0] == "round"


def test_cross_validation_and_grid_search() -> None:
    assert cross_val_score(CascadeClassifier(LogisticRegression(), max_rounds=1, random_state=0), X, Y, cv=2).shape == (
        2,
    )
    search = GridSearchCV(
        CascadeClassifier(LogisticRegression(), max_rounds=1, random_state=0), {"estimator__C": [0.01, 1.0]}, cv=2
    )
    assert search.fit(X, Y, sample_weight=W).best_params_["estimator__C"] in (0.01, 1.0)


@pytest.fixture
def metadata_routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("metadata_routing")
def test_two_weights_by_metadata_routing() -> None:
    model = CascadeClassifier(LogisticRegression(), max_rounds=1, random_state=0).set_fit_request(
        sample_weight="physics"
    )
    scorer = make_scorer(AMS2(), yields=YIELDS).set_score_request(sample_weight="physics")
    scores = cross_val_score(model, X, Y, cv=KFold(2), scoring=scorer, params={"physics": W})
    best = optimal_significance(1.5, YIELDS)
    assert np.all(scores > 0.85 * best)
    assert np.all(scores < 1.15 * best)


@pytest.mark.usefixtures("metadata_routing")
def test_scorer_finds_a_threshold_with_scikit_learn() -> None:
    # Its thresholds reach to where nothing is selected.
    scorer = make_scorer(AMS2(), yields=YIELDS).set_score_request(sample_weight=True)
    learner = LogisticRegression().set_fit_request(sample_weight=True)
    model = TunedThresholdClassifierCV(learner, scoring=scorer, cv=2, thresholds=50)
    model.fit(X, Y, sample_weight=W)
    assert model.best_score_ > 0.85 * optimal_significance(1.5, YIELDS)


def test_selections_without_background_do_not_count() -> None:
    model = DummyClassifier(strategy="constant", constant=0).fit(X, Y)
    assert make_scorer()(model, X, Y, sample_weight=W) == 0.0
    everything = DummyClassifier(strategy="constant", constant=1).fit(X, Y)
    signal_alone = np.where(Y == 1, W, 0.0)
    assert make_scorer()(everything, X, Y, sample_weight=signal_alone) == 0.0


@pytest.mark.parametrize("pos_label", [0, 1])
def test_scorer_selects_what_is_predicted_to_be_the_signal(pos_label: int) -> None:
    model = LogisticRegression().fit(X, Y)
    signal, kept = (labels == pos_label for labels in (Y, model.predict(X)))
    s, b = W[kept & signal].sum(), W[kept & ~signal].sum()
    score = make_scorer(AMS2(), pos_label=pos_label)(model, X, Y, sample_weight=W)
    assert score == pytest.approx(float(AMS2().value(s, b)))


def test_scorer_without_weights_says_what_to_do() -> None:
    model = CascadeClassifier(LogisticRegression(), max_rounds=1, random_state=0).fit(X, Y, W)
    with pytest.raises(InputError, match="sample_weight"):
        make_scorer()(model, X, Y)
    other, y, w = OTHERS
    assert make_scorer()(model, other, y, sample_weight=w) == pytest.approx(model.significance(other, y, w))


@pytest.mark.parametrize("utility", [AMS2(b_reg=100.0), AMS3(), SOverRootSB()], ids=str)
def test_significance_is_that_of_the_utility_at_the_cut(utility: Utility) -> None:
    model = CascadeClassifier(LogisticRegression(), utility=utility, max_rounds=1, random_state=0).fit(X, Y, W)
    other, y, w = OTHERS
    kept = model.predict(other) == 1
    expected = utility.value(w[kept & (y == 1)].sum(), w[kept & (y == 0)].sum())
    assert model.significance(other, y, w) == pytest.approx(float(expected))


def test_significance_of_a_subset_with_and_without_rescaling() -> None:
    model = CascadeClassifier(LogisticRegression(), max_rounds=1, random_state=0).fit(X, Y, W)
    other, y, w = OTHERS
    half = slice(0, 2000)
    scaled = model.significance(other[half], y[half], w[half], yields=YIELDS)
    assert model.significance(other[half], y[half], w[half]) == pytest.approx(scaled / np.sqrt(2), rel=1e-2)
    with pytest.raises(InputError, match="not fitted"):
        model.significance(other[:3], [0, 1, 2], w[:3])
    with pytest.raises(InputError, match="b > 0"):
        model.significance(other[y == 1], y[y == 1], w[y == 1])


def test_progress_bar_only_when_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    CascadeClassifier(LogisticRegression(), max_rounds=2, random_state=0).fit(X, Y, W)
    assert capfd.readouterr() == ("", "")
    CascadeClassifier(LogisticRegression(), max_rounds=2, random_state=0, verbose=1).fit(X, Y, W)
    out, err = capfd.readouterr()
    assert out == ""
    assert "significance" in err
    assert "u " in err


@needs_callbacks
def test_callbacks_are_called_each_round_and_may_stop() -> None:
    calls: list[str] = []

    class Stop:
        def setup(self, estimator: Any, context: Any) -> None:
            calls.append("setup")

        def teardown(self, estimator: Any, context: Any) -> None:
            calls.append("teardown")

        def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
            calls.append(f"begin {context.task_name}")

        def on_fit_task_end(self, estimator: Any, context: Any) -> bool:
            calls.append(f"end {context.task_name}")
            return calls.count("end round") == 2

    model = CascadeClassifier(LogisticRegression(), max_rounds=5, extra_rounds=5, random_state=0)
    model.set_callbacks(Stop()).fit(X, Y, W)
    assert len(model.history_) == 2
    assert calls[0] == "setup"
    assert calls[-1] == "teardown"
    assert calls.count("begin round") == 2
    begun, ended = ([c.partition(" ")[2] for c in calls if c.startswith(word)] for word in ("begin", "end"))
    assert len(begun) == 3, "the fit and two rounds"
    assert sorted(begun) == sorted(ended), "what begins also ends"


class NoWeights(ClassifierMixin, BaseEstimator):
    def fit(self, X: Any, y: Any) -> Any:
        return self

    def predict_proba(self, X: Any) -> Array:
        return np.ones((len(X), 2)) / 2


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (CascadeClassifier(NoWeights()), "NoWeights.fit does not take sample_weight"),
        (CascadeClassifier(KNeighborsClassifier()), "KNeighborsClassifier.fit does not take sample_weight"),
        (CascadeClassifier(make_pipeline(StandardScaler(), KNeighborsClassifier())), "does not take sample_weight"),
        (CascadeClassifier(LogisticRegression(class_weight="balanced")), "class_weight='balanced' weights the classes"),
        (CascadeClassifier(small_xgb(scale_pos_weight=3.0)), "scale_pos_weight=3.0 weights the classes"),
        (CascadeClassifier(small_lgbm(is_unbalance=True)), "is_unbalance=True weights the classes"),
        (CascadeClassifier(small_xgb(early_stopping_rounds=3)), "early_stopping_rounds=3 needs an evaluation set"),
        (CascadeClassifier("xgboost"), "must be a scikit-learn classifier"),
        (CascadeClassifier(small_xgb(), utility=AMS2(), b_reg=10.0), "b_reg=10.0 is given with AMS2"),
        (CascadeClassifier(small_xgb(), utility="ams4"), "did you mean 'ams"),
        (CascadeClassifier(small_xgb(), u_init=-0.1), "u of AMS2 must be in"),
        (CascadeClassifier(small_xgb(), u_init="big"), "u_init must be 'auto' or a number"),
        (CascadeClassifier(small_xgb(), cv=1.5), "cv=1.5 is not between 0 and 1"),
        (CascadeClassifier(small_xgb(), cv=1), "cv=1 folds are too few"),
        (CascadeClassifier(small_xgb(), cv="five"), "cv must be a fraction"),
        (CascadeClassifier(small_xgb(), cv=[]), "cv gave no splits"),
        (
            CascadeClassifier(small_xgb(), cv=[(np.flatnonzero(Y == 1), np.arange(0, 9, 2))]),
            "without background among its",
        ),
        (CascadeClassifier(small_xgb(), cv=[(np.arange(100), np.arange(50, 150))]), "50 events of split 0 both in"),
        (CascadeClassifier(small_xgb(), cv=[(np.arange(100), np.arange(3990, 4010))]), "gives row 4009"),
        (CascadeClassifier(small_xgb(), cv=[(np.zeros(3), np.ones(3))]), "must give row numbers"),
        (CascadeClassifier(small_xgb(), cv=GroupKFold(2)), "cannot split these events"),
        (CascadeClassifier(small_xgb(), cut=cast("Any", None)), "cut=None is not between 0 and 1"),
        (CascadeClassifier(small_xgb(), u_init=cast("Any", None)), "must be 'auto' or a number, got None"),
        (CascadeClassifier(small_xgb(), cv=KFold(2), pos_label=7), "pos_label=7 is not among the labels"),
        (CascadeClassifier(small_xgb(), cut="best"), "cut='best' is not one of"),
        (CascadeClassifier(small_xgb(), cut=3.0), "cut=3.0 is not between 0 and 1"),
        (CascadeClassifier(small_xgb(), update_cut="one"), "update_cut must be one of"),
        (CascadeClassifier(small_xgb(), max_rounds=-1), "max_rounds must be an integer of at least 1"),
        (CascadeClassifier(small_xgb(), cascade=False, u_init=0.1), "cascade=False trains no round at u_init=0.1"),
        (CascadeClassifier(small_xgb(), keep=0), "keep must be an integer of at least 1"),
        (CascadeClassifier(small_xgb(), negative_weights="drop"), "negative_weights must be one of"),
    ],
    ids=lambda p: p if isinstance(p, str) else "",
)
def test_bad_parameters_get_one_sentence(model: CascadeClassifier, words: str) -> None:
    with pytest.raises(InputError) as caught:
        model.fit(X, Y, W)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_fold_without_signal_is_named() -> None:
    order = np.argsort(-Y, kind="stable")  # all signal first, so that plain folds split it off
    with pytest.raises(InputError, match="leaves split 0 without signal among its 2000 training events"):
        CascadeClassifier(small_xgb(), cv=KFold(2)).fit(X[order], Y[order], W[order])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sample_weight": np.full(4000, np.nan)}, "NaN or infinite in 4000 of 4000 rows"),
        ({"sample_weight": np.zeros(4000)}, "every sample_weight is zero"),
        ({"sample_weight": np.ones(3999)}, "3999 entries for 4000 events"),
        ({"sample_weight": np.where(Y == 1, 1.0, 0.0)}, "one class only"),
        ({"y": np.ones(4000)}, "one class only"),
        ({"y": np.arange(4000) % 3}, "Only binary classification is supported"),
        ({"process": np.zeros(3)}, "process has 3 entries"),
    ],
)
def test_bad_events_get_one_sentence(change: dict[str, Any], words: str) -> None:
    given = {"X": X, "y": Y, "sample_weight": W} | change
    with pytest.raises(InputError) as caught:
        CascadeClassifier(small_xgb()).fit(**given)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_real_events_rise_over_the_first_rounds(real_events: Any, capsys: pytest.CaptureFixture[str]) -> None:
    table, y, weight = real_events
    learner = xgboost.XGBClassifier(n_estimators=40, max_depth=4, learning_rate=0.15, n_jobs=1)
    model = CascadeClassifier(learner, b_reg=10.0, cv=2, max_rounds=2, extra_rounds=0, random_state=0)
    model.fit(table, y, weight)
    with capsys.disabled():
        print(f"\n{model.history_}")
    z = [r.significance for r in model.history_]
    assert z[1] > z[0] + 0.3
    assert 2.9 < max(z) < 3.9


class Recording(LogisticRegression):
    """Notes the ratio of the weights of signal and background that each fit sees."""

    seen: ClassVar[list[float]] = []

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        self.seen.append(float(sample_weight[y == 1].sum() / sample_weight[y == 0].sum()))
        return super().fit(X, y, sample_weight)


def test_refit_trains_with_the_class_weights_of_the_kept_rounds() -> None:
    Recording.seen.clear()
    model = CascadeClassifier(Recording(), max_rounds=3, keep=2, refit=True, random_state=0, n_jobs=1).fit(X, Y, W)
    assert len(Recording.seen) == len(model.history_) + 2
    for kept, ratio in zip(model.kept_, Recording.seen[-2:], strict=True):
        signal, background = kept.class_weights
        assert ratio == pytest.approx(signal * W[Y == 1].sum() / (background * W[Y == 0].sum()))
    assert model.kept_[0].index > 0, "a balanced round would not tell the two apart"


def test_class_weights_act_on_full_yields_whatever_share_of_a_class_is_trained_on() -> None:
    signal, background = np.flatnonzero(Y == 1), np.flatnonzero(Y == 0)
    split = np.append(signal[:1500], background[:500]), np.append(signal[1500:], background[500:])
    Recording.seen.clear()
    model = CascadeClassifier(Recording(), cv=[split], max_rounds=3, random_state=0, n_jobs=1).fit(X, Y, W)
    assert Recording.seen[0] == pytest.approx(1.0), "round 0 is balanced"
    for r, ratio in zip(model.history_, Recording.seen, strict=True):
        of_signal, of_background = r.class_weights
        assert ratio == pytest.approx(of_signal * YIELDS[0] / (of_background * YIELDS[1]))


def test_the_cut_is_tuned_on_the_blend_of_the_kept_rounds() -> None:
    train, held_out = np.arange(3000), np.arange(3000, 4000)
    model = CascadeClassifier(small_xgb(), cv=[(train, held_out)], max_rounds=3, keep=3, random_state=0, n_jobs=1)
    blend = model.fit(X, Y, W).predict_proba(X[held_out])[:, 1]
    assert len(model.models_) == 3
    best = scan(blend, Y[held_out], rescale(W[held_out], Y[held_out] == 1, YIELDS))
    assert model.cut_ == pytest.approx(best.cut)
    assert model.selected_fraction_ == best.fraction


def test_repeated_splits_do_not_make_thin_selections_valid() -> None:
    """An event that is held out five times is one event: the floor of effective events counts it once."""
    rng = np.random.default_rng(0)
    sample = TrainingSample.checked(
        np.zeros((400, 1)), np.arange(400) % 2, np.ones(400), None, pos_label=None, negative="error"
    )
    rows = np.arange(400)
    once, often = (TuningEvents.of(sample, np.tile(rows, n), AMS2()) for n in (1, 5))
    score = rng.normal(size=400) + sample.signal
    score[sample.signal] += 100 * (rng.random(200) < 0.2)  # the tightest cuts keep hardly any background
    a, b = once.scan(score, "peak"), often.scan(np.tile(score, 5), "peak")
    assert a.cut == b.cut
    assert np.array_equal(np.isfinite(a.curve.significance), np.isfinite(b.curve.significance))
    assert np.isnan(a.curve.significance).any()


def test_repeated_splits_do_not_make_a_small_sample_large() -> None:
    signal = np.arange(120) % 2 == 0
    sample = TrainingSample.checked(np.zeros((120, 1)), signal, np.ones(120), None, pos_label=None, negative="error")
    for n in (1, 5):
        gauge = TuningEvents.of(sample, np.tile(np.arange(120), n), AMS2())
        assert gauge.floor == 1.0
        with pytest.warns(SmallSampleWarning, match=r"60\.0 effective background events decide"):
            gauge.warn_if_small()
