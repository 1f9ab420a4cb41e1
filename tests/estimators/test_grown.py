"""The grown cascade as its users meet it."""

from __future__ import annotations

import itertools
import json
import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from fivesigma import AMS2, AMS3, CascadeClassifier, FDivergence, GrownCascadeClassifier, scan
from fivesigma._tools.extras import installed
from fivesigma._types import IntArray
from fivesigma.cascade.algorithm import Schedule
from fivesigma.cascade.rounds import ClassWeights
from fivesigma.datasets import Events
from fivesigma.errors import InputError
from fivesigma.estimators.grown import EARLY_WINDOW, _best_end
from fivesigma.estimators.training_sample import TrainingSample
from fivesigma.learners.libraries import LIBRARIES, bind_grower, check_library, known_parameters
from fivesigma.learners.protocols import Binding
from fivesigma.yields import learner_weights, rescale, signal_and_background
from tests.estimators.blobs import YIELDS, make_blobs
from tests.estimators.test_retrained import optimal_significance

xgboost = pytest.importorskip("xgboost")
lightgbm = pytest.importorskip("lightgbm")

X, Y, W = make_blobs()
INSTALLED = [name for name in LIBRARIES if installed(name)]


def grown(library: str = "xgboost", **options: Any) -> GrownCascadeClassifier:
    settings: dict[str, Any] = {
        "n_trees": 30,
        "params": {"max_depth": 2, "learning_rate": 0.2},
        "random_state": 0,
        "n_jobs": 1,
    }
    return GrownCascadeClassifier(library, **settings | options)


@pytest.mark.parametrize("library", INSTALLED)
@pytest.mark.parametrize(
    "options", [{}, {"update": "cross-fit"}, {"cascade": False, "cv": 4}, {"update_cut": "plateau"}, {"cv": 3}], ids=str
)
def test_reaches_nearly_the_best_cut(library: str, options: dict[str, Any]) -> None:
    model = grown(library, **options).fit(*make_blobs(20_000, seed=1))
    best = optimal_significance(1.5, YIELDS)
    assert 0.92 * best < model.significance(*make_blobs(40_000, seed=9)) < 1.03 * best


@pytest.mark.parametrize("library", INSTALLED)
def test_a_round_for_each_tree_and_u_follows_the_yields_of_the_round_before(library: str) -> None:
    history = grown(library, update_every=1).fit(X, Y, W).history_
    assert [r.index for r in history] == list(range(30))
    for before, after in itertools.pairwise(history[1:]):
        expected = float(AMS2().u(before.s, before.b)) if before.valid else (before.u or 0.0) / 2
        assert after.u == pytest.approx(expected)


def weights_at(rows: Any, u: float) -> Any:
    sample = TrainingSample.checked(X, Y, W, None, pos_label=None, negative="error")
    return sample.learner_weights(rows, Schedule(AMS2()).at(u))


@pytest.mark.parametrize("library", INSTALLED)
def test_constant_u_is_plain_training_tree_for_tree(library: str) -> None:
    split = (np.flatnonzero(np.arange(4000) % 4 < 2), np.flatnonzero(np.arange(4000) % 4 >= 2))
    more = (
        {"rsm": 1.0, "subsample": 1.0, "random_strength": 0} if library == "catboost" else {"subsample": 1.0}
    )  # it seeds each tree
    model = grown(library, u_init=0.3, warmup=30, cv=[split], params={"max_depth": 3, **more}).fit(X, Y, W)
    assert {r.u for r in model.history_} == {0.3}
    weight, target = weights_at(split[0], 0.3), Y[split[0]]
    if library == "xgboost":
        matrix = xgboost.QuantileDMatrix(X[split[0]], label=target, weight=None)
        matrix.set_weight(weight)
        params: dict[str, Any] = {
            "learning_rate": 0.05,
            "max_depth": 3,
            "subsample": 1.0,
            "colsample_bytree": 0.8,
            "nthread": 1,
        }
        params |= {"objective": "binary:logistic", "base_score": 0.5}
        ours = model.models_[0].booster
        # The seed only draws columns; take the one that the cascade used.
        seed = json.loads(ours.save_config())["learner"]["generic_param"]["seed"]
        plain = xgboost.train({**params, "seed": seed}, matrix, num_boost_round=30)
        assert ours.get_dump() == plain.get_dump()
    elif library == "catboost":
        catboost = pytest.importorskip("catboost")
        pool = catboost.Pool(X[split[0]].astype(np.float32), target)
        pool.quantize()
        pool.set_weight(weight)
        options = {"learning_rate": 0.05, "depth": 3, "iterations": 30, "bootstrap_type": "No", "thread_count": 1}
        options |= {"loss_function": "Logloss", "boost_from_average": False, "random_strength": 0, "verbose": False}
        plain = catboost.CatBoost({**options, "allow_writing_files": False}).fit(pool)
        np.testing.assert_allclose(model.models_[0].booster.predict(X), plain.predict(X), rtol=1e-9)
    else:
        params = {"learning_rate": 0.05, "max_depth": 3, "num_leaves": 63, "feature_fraction": 0.8}
        params |= {"bagging_fraction": 1.0, "bagging_freq": 1, "objective": "binary", "boost_from_average": False}
        params |= {"verbosity": -1, "num_threads": 1, "deterministic": True, "force_row_wise": True}
        grower_seed = int(np.random.SeedSequence([_seed_of(model), 0]).generate_state(1)[0] >> 1)
        data = lightgbm.Dataset(X[split[0]], label=target, weight=weight)
        plain = lightgbm.train({**params, "seed": grower_seed}, data, num_boost_round=30)
        trees = [b["tree_structure"] for b in plain.dump_model()["tree_info"]]
        assert [b["tree_structure"] for b in model.models_[0].boosters[0].dump_model()["tree_info"]] == trees


def _seed_of(model: GrownCascadeClassifier) -> int:
    from fivesigma.estimators.running import spread_seeds

    return spread_seeds(model.random_state, 2)[1]


@pytest.mark.parametrize("library", INSTALLED)
def test_weights_set_between_trees_change_the_trees(library: str) -> None:
    rows = np.arange(4000)
    binding = Binding(X, Y, rows, rows, 1, 1)
    first, second = (bind_grower(library, check_library(library, {"max_depth": 2}), binding) for _ in range(2))
    heavy, light = np.where(Y == 1, 1.9, 0.1), np.where(Y == 1, 0.1, 1.9)
    for g, late in ((first, heavy), (second, light)):
        g.set_weights(heavy)
        g.grow()
        g.set_weights(late)
        g.grow()
    assert first.score().mean() > second.score().mean() + 0.005
    # Even weights are not ignored.
    second.set_weights(np.ones(4000))
    second.grow()
    third = bind_grower(library, check_library(library, {"max_depth": 2}), binding)
    for late in (heavy, light, light):
        third.set_weights(late)
        third.grow()
    assert not np.allclose(second.score(), third.score())


@pytest.mark.parametrize("library", INSTALLED)
def test_scores_of_the_cache_are_those_of_the_model(library: str) -> None:
    rows = np.arange(4000)
    g = bind_grower(library, {}, Binding(X, Y, rows[:3000], rows[3000:], 1, 1))
    g.set_weights(np.ones(3000))
    for _ in range(5):
        g.grow()
    model = g.model(5)
    assert np.allclose(g.score(), model.signal_probability(X[3000:]), atol=1e-6)
    assert np.allclose(g.score(held_out=False), model.signal_probability(X[:3000]), atol=1e-6)


@pytest.mark.parametrize("library", INSTALLED)
def test_same_seed_same_model_bit_for_bit(library: str) -> None:
    scores = [grown(library, n_jobs=2).fit(X, Y, W).predict_proba(X) for _ in range(2)]
    assert np.array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], grown(library, random_state=1).fit(X, Y, W).predict_proba(X))


def test_plain_model_has_balanced_weights_and_the_same_split() -> None:
    plain, cascaded = grown(cascade=False).fit(X, Y, W), grown().fit(X, Y, W)
    assert {r.u for r in plain.history_} == {None}
    signal, background = plain.history_[0].class_weights
    assert signal * YIELDS[0] == pytest.approx(background * YIELDS[1])
    # The first tree of the cascade is balanced too, so it is the same tree.
    assert plain.models_[0].booster[:1].get_dump() == cascaded.models_[0].booster[:1].get_dump()
    assert plain.models_[0].booster.get_dump() != cascaded.models_[0].booster.get_dump()


def test_u_runs_away_on_training_yields_and_not_on_held_out_ones(
    real_events: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    table, y, weight = real_events
    options: dict[str, Any] = {"n_trees": 120, "params": {"max_depth": 6, "learning_rate": 0.1}, "b_reg": 10.0}
    paths = {}
    for update in ("train", "held-out"):
        model = grown(update=update, **options).fit(table, y, weight)
        paths[update] = model.history_
        with capsys.disabled():
            print(f"\nu from {update} yields\n" + repr(type(model.history_)(model.history_[::20])))
    assert max(r.u for r in paths["train"] if r.u) > 0.25
    assert max(r.u for r in paths["held-out"] if r.u) < 0.15


def test_regularisation_of_u_reaches_the_loop() -> None:
    assert len({r.u for r in grown(update_every=10).fit(X, Y, W).history_}) <= 4
    calm, quick = (grown(damping=d).fit(X, Y, W).history_ for d in (0.9, 0.0))
    assert np.std([r.u for r in calm[10:] if r.u]) < np.std([r.u for r in quick[10:] if r.u])
    bounded = grown(u_bounds=(0.2, 0.3)).fit(X, Y, W).history_
    assert all(0.2 <= r.u <= 0.3 for r in bounded if r.u is not None)
    assert [r.u for r in grown(warmup=5).fit(X, Y, W).history_[:7]].count(None) == 6


@pytest.mark.parametrize("update", ["held-out", "train"])
@pytest.mark.parametrize("update_cut", ["zero", "plateau"])
def test_monitored_rounds_have_the_yields_of_the_training_events(update: str, update_cut: str) -> None:
    train, held_out = np.arange(3000), np.arange(3000, 4000)
    options: dict[str, Any] = {"n_trees": 4, "monitor_every": 1, "update": update, "update_cut": update_cut}
    model = grown(cv=[(train, held_out)], **options).fit(X, Y, W)
    last, driving = model.history_[-1], train if update == "train" else held_out

    def selected(rows: IntArray, cut: float) -> tuple[float, float]:
        signal = Y[rows] == 1
        kept = model.predict_proba(X[rows])[:, 1] >= cut
        return signal_and_background(rescale(W[rows], signal, YIELDS), signal, kept)

    best = scan(
        model.predict_proba(X[driving])[:, 1], Y[driving], rescale(W[driving], Y[driving] == 1, YIELDS), rule="plateau"
    )
    cut = 0.5 if update_cut == "zero" else best.cut
    assert (last.s, last.b) == pytest.approx(selected(driving, cut))
    assert (last.train_s, last.train_b) == pytest.approx(selected(train, cut))


def test_early_stopping_keeps_the_trees_up_to_the_best() -> None:
    model = grown(n_trees=300, early_stopping=40, params={"max_depth": 6, "learning_rate": 0.5}).fit(X, Y, W)
    assert model.n_trees_ + 40 == len(model.history_) < 300
    assert model.models_[0].n_trees == model.n_trees_


def test_early_stopping_looks_at_a_mean_not_at_a_spike() -> None:
    z = [1.0] * 30 + [9.0] + [2.0] * 40
    assert _best_end(z) == 31 + EARLY_WINDOW - 1
    assert _best_end(z[:10]) == 10


def test_early_stopping_looks_at_held_out_events_whatever_drives_u() -> None:
    options: dict[str, Any] = {"n_trees": 150, "early_stopping": 30, "params": {"max_depth": 6, "learning_rate": 0.5}}
    for drive in ({"update": "train"}, {"cascade": False}):
        model = grown(**options, **drive).fit(X, Y, W)
        assert model.n_trees_ < 100, "an overfitted booster is stopped although its training events look better still"


def test_resumed_run_does_not_grow_past_its_stop(tmp_path: Path) -> None:
    options: dict[str, Any] = {"n_trees": 300, "early_stopping": 20, "checkpoint": tmp_path, "checkpoint_every": 1}
    runs = [grown(**options, params={"max_depth": 6, "learning_rate": 0.5}).fit(X, Y, W) for _ in range(2)]
    assert [len(m.history_) for m in runs] == [len(runs[0].history_)] * 2
    assert np.array_equal(runs[0].predict_proba(X), runs[1].predict_proba(X))


@pytest.mark.parametrize(
    ("library", "other", "canonical"),
    [
        ("xgboost", {"eta": 0.5}, {"learning_rate": 0.5}),
        ("lightgbm", {"eta": 0.5}, {"learning_rate": 0.5}),
        ("lightgbm", {"subsample": 0.5}, {"bagging_fraction": 0.5}),
        ("lightgbm", {"colsample_bytree": 0.5}, {"feature_fraction": 0.5}),
        ("lightgbm", {"max_leaves": 3}, {"num_leaves": 3}),
    ],
    ids=str,
)
def test_other_names_of_parameters_reach_the_library(library: str, other: Any, canonical: Any) -> None:
    scores = [grown(library, params=p).fit(X, Y, W).predict_proba(X) for p in (other, canonical, None)]
    assert np.array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], scores[2])


def test_categories_in_another_order_give_the_same_scores() -> None:
    rng = np.random.default_rng(0)
    channel = pd.Categorical(np.where(Y == 1, rng.choice(["a", "b"], 4000), rng.choice(["b", "c"], 4000)))
    frame = pd.DataFrame({"mass": X[:, 0], "channel": channel})
    for early_stopping in (None, 10):
        model = grown(early_stopping=early_stopping).fit(frame, Y, W)
        other = frame.assign(channel=channel.reorder_categories(["c", "b", "a"]))
        assert np.array_equal(model.predict_proba(frame), model.predict_proba(other))


def test_a_model_of_a_frame_scores_events_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = grown().fit(frame, Y, W)
    events = Events(X=X.astype(np.float32), y=Y, weight=W, signal=1, feature_names=("a", "b"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert np.array_equal(model.predict_proba(events), model.predict_proba(frame))


def test_lightgbm_may_run_out_of_splits() -> None:
    few = slice(0, 400)
    model = grown("lightgbm", cv=3, n_trees=40, params={"min_gain_to_split": 15.0, "learning_rate": 0.5})
    model.fit(X[few], Y[few], W[few])
    assert {sum(b.current_iteration() for b in m.boosters) for m in model.models_} != {40}
    assert len(model.history_) == 40


def test_bounds_hold_when_nothing_is_selected() -> None:
    schedule = Schedule(AMS2(), bounds=(0.2, 0.3))
    assert schedule.selecting_more(schedule.at(0.25)).u == 0.2
    free = Schedule(AMS2())
    weights = free.at(0.25)
    for _ in range(2000):
        weights = free.selecting_more(weights)
    assert weights.u == pytest.approx(1e-6)


def test_functions_of_a_user_train_both_cascades() -> None:
    utility = FDivergence(lambda t: t**2 / 2, lambda t: t)
    mine, built_in = (grown(utility=u).fit(X, Y, W) for u in (utility, AMS3()))
    assert np.allclose(mine.predict_proba(X), built_in.predict_proba(X))
    falling = FDivergence(lambda t: (1 + t) * np.log1p(t) - 2 * t, lambda t: np.log1p(t) - 1.0, h=lambda F: F)
    with pytest.raises(InputError, match="it must rise with s"):
        grown(utility=falling).fit(X, Y, W)


@pytest.mark.parametrize("library", INSTALLED)
def test_refit_grows_one_booster_on_all_events_along_the_same_path(library: str) -> None:
    split, whole = grown(library, cv=3).fit(X, Y, W), grown(library, cv=3, refit=True).fit(X, Y, W)
    assert len(split.models_) == 3
    assert len(whole.models_) == 1
    assert [r.u for r in split.history_] == [r.u for r in whole.history_]
    assert split.cut_ == whole.cut_


def test_refit_gives_each_tree_the_class_weights_of_its_round() -> None:
    params: dict[str, Any] = {"max_depth": 3, "learning_rate": 0.2, "subsample": 1.0, "colsample_bytree": 1.0}
    model = grown(n_trees=10, params=params, update_every=2, refit=True).fit(X, Y, W)
    assert len({r.class_weights for r in model.history_}) > 3
    matrix = xgboost.QuantileDMatrix(X, label=Y)
    fixed = {"objective": "binary:logistic", "base_score": 0.5, "tree_method": "hist", "nthread": 1}
    booster = xgboost.Booster(params | fixed, cache=[matrix])
    for i, r in enumerate(model.history_):
        matrix.set_weight(learner_weights(W, Y == 1, r.class_weights))
        booster.update(matrix, i)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], booster.predict(matrix), rtol=1e-5)


@pytest.mark.parametrize("library", INSTALLED)
def test_importance_belongs_to_the_feature_that_separates(library: str) -> None:
    importance = grown(library).fit(X, Y, W).feature_importances_
    assert importance.sum() == pytest.approx(1.0)
    assert importance[0] > 0.8


@pytest.mark.parametrize("library", INSTALLED)
def test_missing_values_and_frames(library: str) -> None:
    holes = X.copy()
    holes[::5, 1] = np.nan
    frame = pd.DataFrame(holes, columns=["mass", "other"])
    by_frame, by_array = grown(library).fit(frame, Y, W), grown(library).fit(holes, Y, W)
    assert np.array_equal(by_frame.predict_proba(frame), by_array.predict_proba(holes))
    assert by_frame.feature_names_in_.tolist() == ["mass", "other"]


def test_clone_pickle_and_reprs() -> None:
    model = grown().fit(X, Y, W)
    assert clone(model).get_params() == model.get_params()
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert "GrownCascadeClassifier" in model._repr_html_()
    assert "GrownCascadeClassifier" in clone(model)._repr_html_()


def test_progress_bar_shows_tree_u_and_significance(capfd: pytest.CaptureFixture[str]) -> None:
    grown(verbose=1).fit(X, Y, W)
    out, err = capfd.readouterr()
    assert out == ""
    assert "30/30" in err
    assert "significance" in err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"library": "cat"}, "library must be xgboost or lightgbm or catboost, got 'cat'; did you mean 'catboost'?"),
        (
            {"params": {"objective": "reg:squarederror"}},
            "params['objective'] cannot be set: the loss is logistic",
        ),
        ({"params": {"scale_pos_weight": 3.0}}, "the cascade weights the classes"),
        ({"params": {"seed": 3}}, "use random_state"),
        ({"n_trees": 0}, "n_trees must be an integer of at least 1"),
        ({"update": "test"}, "update must be one of held-out, cross-fit, train"),
        ({"update_every": 0}, "update_every must be an integer of at least 1"),
        ({"damping": 1.0}, "damping must be a number in"),
        ({"damping": "a"}, "damping must be a number in"),
        ({"update_every": 1.5}, "update_every must be an integer"),
        ({"params": [1]}, "params must be a dictionary"),
        (
            {"params": {"max_dept": 3}},
            "params['max_dept'] is not a parameter that xgboost uses; did you mean 'max_depth'",
        ),
        ({"params": {"rate_drop": 0.1}}, "params['rate_drop'] is not a parameter that xgboost uses"),
        ({"params": {"num_leafs": 3}, "library": "lightgbm"}, "lightgbm uses; did you mean 'num_leaf' or 'num_leaves'"),
        ({"params": {"eta": 0.1, "learning_rate": 0.1}}, "params has 'learning_rate' under two names"),
        ({"params": {"tree_method": "exact"}}, "events are binned once"),
        ({"u_bounds": (0.1,)}, "must be two numbers"),
        ({"u_bounds": (0.5, 0.1)}, "must ascend"),
        ({"utility": "s_over_root_sb", "u_bounds": (0.1, 0.7)}, "domain"),
        ({"u_init": -1.0}, "domain"),
        ({"early_stopping": 0}, "early_stopping must be an integer of at least 1"),
        ({"utility": AMS2(), "b_reg": 10.0}, "is given with AMS2"),
        ({"checkpoint": "somewhere", "random_state": None}, "needs an integer random_state"),
        ({"cut": "best"}, "cut='best' is not one of"),
    ],
    ids=str,
)
def test_bad_parameters_get_one_sentence(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        grown(**options).fit(X, Y, W)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


XGBOOST = {
    "eta": 0.3, "min_split_loss": 0.1, "gamma": 0.1, "max_depth": 3, "min_child_weight": 2, "max_delta_step": 1,
    "subsample": 0.7, "sampling_method": "uniform", "colsample_bytree": 0.9, "colsample_bylevel": 0.9,
    "colsample_bynode": 0.9, "lambda": 2.0, "reg_lambda": 2.0, "alpha": 0.1, "reg_alpha": 0.1, "max_leaves": 4,
    "grow_policy": "lossguide", "max_bin": 32, "num_parallel_tree": 2, "monotone_constraints": "(1,0)",
    "interaction_constraints": "[[0, 1]]", "max_cat_to_onehot": 3, "max_cat_threshold": 8, "device": "cpu",
    "verbosity": 0, "seed_per_iteration": True, "refresh_leaf": 1, "disable_default_eval_metric": True,
}  # fmt: skip
LIGHTGBM = {
    "shrinkage_rate": 0.3, "num_leaves": 5, "min_data_in_leaf": 7, "min_child_samples": 7, "lambda_l1": 0.1,
    "reg_alpha": 0.1, "lambda_l2": 0.1, "min_gain_to_split": 0.1, "max_bin": 31, "bagging_fraction": 0.5,
    "feature_fraction_bynode": 0.5, "extra_trees": True, "path_smooth": 1.0, "monotone_constraints": [1, 0],
    "cat_smooth": 3.0, "linear_tree": False, "min_sum_hessian_in_leaf": 0.1, "max_cat_to_onehot": 3,
}  # fmt: skip


@pytest.mark.parametrize(
    ("library", "name", "value"),
    [*(("xgboost", *item) for item in XGBOOST.items()), *(("lightgbm", *item) for item in LIGHTGBM.items())],
)
def test_what_a_library_documents_is_not_taken_for_a_mistake(library: str, name: str, value: Any) -> None:
    assert list(check_library(library, {name: value}).values()) == [value]


def test_xgboost_itself_says_which_names_it_does_not_use() -> None:
    """The oracle: with validate_parameters it warns, once it is asked to train."""
    import xgboost

    table = xgboost.DMatrix(np.zeros((4, 2)), label=[0, 1, 0, 1])
    fixed = {"objective": "binary:logistic", "tree_method": "hist", "validate_parameters": True, "verbosity": 1}
    for name in ("eta", "max_dept", "rate_drop", "reg_lamda", "max_cached_hist_node", "num_leaves", "multi_strategy"):
        value = "one_output_per_tree" if name == "multi_strategy" else 1
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            xgboost.Booster({**fixed, name: value}, cache=[table]).update(table, 0)
        unused = any("not used" in str(w.message) for w in said)
        assert unused is (name not in known_parameters("xgboost")), name


@pytest.mark.parametrize(
    "change",
    [
        {"sample_weight": np.full(4000, np.nan)},
        {"sample_weight": np.zeros(4000)},
        {"sample_weight": np.ones(3999)},
        {"sample_weight": np.where(np.arange(4000) == 7, -1.0, W)},
        {"y": np.ones(4000)},
        {"y": np.arange(4000) % 3},
    ],
    ids=str,
)
def test_same_sentences_as_the_retrained_cascade(change: dict[str, Any]) -> None:
    given = {"X": X, "y": Y, "sample_weight": W} | change
    sentences = []
    for model in (grown(), CascadeClassifier(n_jobs=1)):
        with pytest.raises(InputError) as caught:
            model.fit(**given)
        sentences.append(str(caught.value))
    assert sentences[0] == sentences[1]


def test_class_weights_are_what_the_round_says() -> None:
    u, f = AMS2().weights_at(0.3)
    assert Schedule(AMS2()).at(0.3) == ClassWeights(float(u), float(f), 0.3)
