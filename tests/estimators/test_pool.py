"""The pool as its users meet it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import fivesigma
from fivesigma import AMS2, CascadeClassifier, CascadePool, GrownCascadeClassifier
from fivesigma._types import Array
from fivesigma.blend import Blend, quantiles
from fivesigma.errors import InputError
from fivesigma.estimators import running
from tests.estimators.blobs import YIELDS, make_blobs, needs_callbacks
from tests.estimators.test_retrained import optimal_significance

X, Y, W = make_blobs()


def grown(**options: Any) -> GrownCascadeClassifier:
    settings: dict[str, Any] = {"n_trees": 20, "params": {"max_depth": 2, "learning_rate": 0.2}}
    return GrownCascadeClassifier(**settings | options)


def members() -> list[tuple[str, Any]]:
    return [
        ("grown", grown()),
        ("plain", grown(cascade=False)),
        ("retrained", CascadeClassifier(LogisticRegression(), max_rounds=2, extra_rounds=0)),
        ("forest", RandomForestClassifier(20, min_samples_leaf=20)),
        ("net", MLPClassifier((8,), max_iter=30, tol=1.0, n_iter_no_change=30)),
    ]


def pool(**options: Any) -> CascadePool:
    given: dict[str, Any] = {"estimators": members(), "random_state": 0, "n_jobs": 1}
    return CascadePool(**given | options)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("blend", ["rank", "margin", "probability"])
def test_members_of_any_kind_blend(blend: str) -> None:
    model = pool(blend=blend).fit(*make_blobs(20_000, seed=1))
    best = optimal_significance(1.5, YIELDS)
    assert 0.92 * best < model.significance(*make_blobs(40_000, seed=9)) < 1.03 * best
    assert list(model.member_significance_) == ["grown", "plain", "retrained", "forest", "net"]
    assert len(model.members_) == 5


def few(**options: Any) -> CascadePool:
    given: dict[str, Any] = {"estimators": [("grown", grown()), ("bayes", GaussianNB()), ("forest", forest())]}
    return pool(**given | options)


def forest() -> RandomForestClassifier:
    return RandomForestClassifier(10, min_samples_leaf=20)


def test_one_event_is_scored_as_among_many() -> None:
    model = few().fit(X, Y, W)
    together = model.predict_proba(X[:50])
    assert np.array_equal(together, np.vstack([model.predict_proba(X[k : k + 1]) for k in range(50)]))


def test_held_out_scores_drive_the_cut_and_come_from_models_that_did_not_see_the_event() -> None:
    model = few().fit(X, Y, W)
    held = np.isfinite(model.held_out_score_)
    assert held.sum() == 1000
    assert np.allclose(model.predict_proba(X[held])[:, 1], model.held_out_score_[held])
    assert model.selected_fraction_ == pytest.approx(np.mean(model.held_out_score_[held] >= model.cut_))


def test_bagged_scores_cover_all_events_and_are_honest() -> None:
    # Labels at random: a model that had seen an event would know it, an honest score cannot.
    rng = np.random.default_rng(0)
    noise = rng.permutation(Y)
    deep = RandomForestClassifier(20, min_samples_leaf=1)
    model = CascadePool([("deep", deep)], cv=3, n_repeats=2, random_state=0, n_jobs=1).fit(X, noise)
    assert np.isfinite(model.held_out_score_).all()
    assert len(model.members_) == 6
    honest = model.held_out_score_[noise == 1].mean() - model.held_out_score_[noise == 0].mean()
    fooled = model.predict_proba(X[noise == 1])[:, 1].mean() - model.predict_proba(X[noise == 0])[:, 1].mean()
    assert abs(honest) < 0.03
    assert fooled > 0.15


@pytest.mark.parametrize("cv", [0.25, 2])
@pytest.mark.parametrize(
    "member",
    [
        GrownCascadeClassifier(n_trees=60, params={"max_depth": 8, "learning_rate": 0.5}, refit=True),
        CascadeClassifier(RandomForestClassifier(20), max_rounds=1, refit=True),
    ],
    ids=["grown", "retrained"],
)
def test_members_are_not_refitted_on_the_events_that_judge_them(member: Any, cv: Any) -> None:
    noise = np.random.default_rng(0).permutation(Y)
    model = CascadePool([("refit", member)], cv=cv, random_state=0, n_jobs=1).fit(X, noise)
    held = np.isfinite(model.held_out_score_)
    score, signal = model.held_out_score_[held], noise[held] == 1
    assert abs(score[signal].mean() - score[~signal].mean()) < 0.06
    assert not any(m.refit for _, m in model.members_)


def with_noise(n: int, seed: int) -> tuple[Any, Any, Any]:
    """Blobs with columns on which models overfit, each in its own way."""
    table, y, w = make_blobs(n, seed=seed)
    return np.hstack([table, np.random.default_rng(seed).normal(size=(n, 4))]), y, w


@pytest.mark.parametrize(
    "member",
    [grown(n_trees=60, params={"max_depth": 4, "learning_rate": 0.2}), RandomForestClassifier(30)],
    ids=["grown", "forest"],
)
def test_bagged_cut_selects_its_share_of_new_events(member: Any) -> None:
    model = pool(estimators=[("a", member)], cv=3).fit(*with_noise(4000, 0))
    new, *_ = with_noise(40_000, 9)
    assert np.mean(model.predict(new)) == pytest.approx(model.selected_fraction_, abs=0.015)


def test_a_row_that_is_held_out_twice_counts_once() -> None:
    train, held = np.arange(2000), np.arange(2000, 2400)
    model = pool(estimators=[("a", grown(n_trees=3))], cv=[(train, np.tile(held, 20))]).fit(X, Y, W)
    assert max(r.effective_background for r in model.history_) <= 200.001
    once, uneven = (
        pool(estimators=[("a", grown(n_trees=3))], cv=[(train, rows)]).fit(X, Y, W)
        for rows in (held, np.append(held, held[:150]))
    )
    assert [(r.s, r.b) for r in once.history_] == [(r.s, r.b) for r in uneven.history_]
    assert once.cut_ == uneven.cut_


def test_history_tells_the_fits_apart() -> None:
    model = pool(estimators=[("a", grown(n_trees=3)), ("b", grown(n_trees=4))], cv=2).fit(X, Y, W)
    assert [r.restart for r in model.history_] == [0] * 3 + [1] * 3 + [2] * 4 + [3] * 4


def test_members_may_name_the_signal() -> None:
    names = np.where(Y == 1, "s", "b")
    model = pool(estimators=[("a", grown(pos_label="s"))], pos_label="s").fit(X, names, W)
    assert model.classes_.tolist() == ["b", "s"]


def test_grid_search_over_a_members_parameter() -> None:
    search = GridSearchCV(pool(estimators=[("a", grown())]), {"a__n_trees": [1, 15]}, cv=2, scoring="roc_auc")
    search.fit(X, Y)
    assert search.best_params_ == {"a__n_trees": 15}
    assert search.best_estimator_.members_[0][1].n_trees_ == 15


class Stop:
    """Asks to stop at the end of a fit of the pool."""

    def __init__(self, number: int) -> None:
        self._number = number

    def setup(self, estimator: Any, context: Any) -> None: ...
    def teardown(self, estimator: Any, context: Any) -> None: ...
    def on_fit_task_begin(self, estimator: Any, context: Any) -> None: ...
    def on_fit_task_end(self, estimator: Any, context: Any) -> bool:
        return bool(context.task_name == "fit" and context.task_id == self._number)


@needs_callbacks
@pytest.mark.parametrize(("number", "names"), [(0, ["a", "a"]), (2, ["a", "a"]), (3, ["a", "a", "b", "b"])])
def test_callback_that_returns_true_stops_the_pool(number: int, names: list[str]) -> None:
    members = [(name, grown(n_trees=3)) for name in "abc"]
    model = pool(estimators=members, cv=2).set_callbacks(Stop(number)).fit(X, Y, W)
    assert [name for name, _ in model.members_] == names
    assert np.isfinite(model.predict_proba(X)).all()


def test_bagged_members_have_folds_of_their_own() -> None:
    model = CascadePool([("a", grown()), ("b", grown())], cv=2, random_state=0, n_jobs=1).fit(X, Y, W)
    scores = [m.predict_proba(X)[:, 1] for _, m in model.members_]
    held_out = [
        np.isclose(model.held_out_scores_[name], p) for (name, _), p in zip(model.members_, scores, strict=True)
    ]
    assert not np.array_equal(held_out[0], held_out[2])
    assert (held_out[0] ^ held_out[1]).all()  # each event was held out of one of the two fits
    assert all(m.cv == 0.25 for _, m in model.members_), "the rows of a split are not a parameter of a member"


def test_members_get_different_seeds_and_the_utility_of_the_pool() -> None:
    model = CascadePool([("a", grown()), ("b", grown())], b_reg=10.0, random_state=0, n_jobs=1).fit(X, Y, W)
    (_, a), (_, b) = model.members_
    assert a.random_state != b.random_state
    assert a.utility_ == b.utility_ == AMS2(b_reg=10.0)
    assert not np.array_equal(a.predict_proba(X), b.predict_proba(X))


def test_members_say_which_policy_for_negative_weights_they_were_trained_with() -> None:
    signed = np.where(np.arange(Y.size) % 50 < 2, -W, W)
    model = CascadePool([("a", grown())], negative_weights="abs", random_state=0, n_jobs=1).fit(X, Y, signed)
    assert [m.negative_weights for _, m in model.members_] == ["abs"]


class Recording(GaussianNB):
    """Notes the events that each fit sees."""

    seen: ClassVar[list[frozenset[float]]] = []

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        self.seen.append(frozenset(X[:, 0].tolist()))
        return super().fit(X, y, sample_weight)


def test_every_repeat_has_folds_of_its_own() -> None:
    Recording.seen.clear()
    CascadePool([("a", Recording())], cv=2, n_repeats=3, random_state=0, n_jobs=1).fit(X, Y, W)
    assert len(Recording.seen) == len(set(Recording.seen)) == 6
    assert all(len(rows) == Y.size / 2 for rows in Recording.seen)


def test_keep_takes_the_best_members() -> None:
    model = few(keep=1).fit(X, Y, W)
    best = max(model.member_significance_, key=lambda name: model.member_significance_[name])
    assert [name for name, _ in model.members_] == [best]


def test_fitted_weights_are_not_negative_and_drop_a_useless_member() -> None:
    class Noise(GaussianNB):
        def predict_proba(self, X: Any) -> Any:
            p = np.random.default_rng(0).random(len(X))
            return np.column_stack([1 - p, p])

    model = pool(estimators=[("good", GaussianNB()), ("noise", Noise())], weights="fit").fit(X, Y, W)
    assert model.blend_.weights.sum() == pytest.approx(1.0)
    assert (model.blend_.weights >= 0).all()
    assert model.blend_.weights[0] > 0.9


def test_fitted_weights_do_not_depend_on_the_yields_of_the_classes() -> None:
    table = X + np.outer(Y, [0.0, 1.0])  # both columns separate, and each member sees one of them
    columns = [FunctionTransformer(itemgetter((slice(None), [j]))) for j in (0, 1)]
    estimators = [(f"column-{j}", make_pipeline(column, GaussianNB())) for j, column in enumerate(columns)]
    rare, common = (
        pool(estimators=estimators, weights="fit").fit(table, Y, W * np.where(Y == 1, factor, 1.0)).blend_.weights
        for factor in (0.01, 1.0)
    )
    assert common == pytest.approx(rare)
    assert 0.1 < common[0] < 0.9, "a blend of one member would not tell the two apart"


@settings(max_examples=100, deadline=None)
@given(
    values=st.lists(st.floats(-1e6, 1e6) | st.sampled_from([0.1, 0.5]), min_size=1, max_size=40).map(np.array),
    q=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20).map(np.array),
)
def test_quantiles_are_those_of_numpy(values: Array, q: Array) -> None:
    found = quantiles(values, q)
    np.testing.assert_allclose(found, np.quantile(values, q), rtol=1e-14, atol=1e-300)
    assert ((found >= values.min()) & (found <= values.max())).all()


def test_ranks_are_shares_of_the_held_out_events_below() -> None:
    rng = np.random.default_rng(0)
    held = rng.random(10_000) ** 3
    blend = Blend.fitted("rank", [held])
    probe = np.array([0.001, 0.1, 0.5, 0.9, 2.0, -1.0])
    expected = [(held < p).mean() for p in probe]
    assert np.allclose(blend([probe]), expected, atol=2e-3)
    ties = Blend.fitted("rank", [np.array([0.0, 1.0, 1.0, 1.0, 2.0])])
    assert ties([np.array([1.0])])[0] == pytest.approx(0.5, abs=0.01)


def test_margins_are_averaged_on_their_own_scale() -> None:
    p = [np.array([0.9]), np.array([0.5])]
    assert Blend.fitted("margin", p)(p)[0] == pytest.approx(0.75)
    assert Blend.fitted("probability", p)(p)[0] == pytest.approx(0.7)
    assert np.isfinite(Blend.fitted("margin", p)([np.array([0.0]), np.array([1.0])])).all()


def test_same_seed_same_pool() -> None:
    scores = [few(n_jobs=2).fit(X, Y, W).predict_proba(X) for _ in range(2)]
    assert np.array_equal(scores[0], scores[1])


def test_paper_recipe_in_one_line() -> None:
    recipe = CascadePool.paper_ten(b_reg=10.0)
    assert [e.cascade for _, e in recipe.estimators] == [False] * 5 + [True] * 5
    assert {e.n_trees for _, e in recipe.estimators} == {500}
    model = CascadePool.paper_ten(n_trees=5, random_state=0, n_jobs=1).fit(X, Y, W)
    assert len(model.members_) == 10


def test_clone_pickle_params_and_repr() -> None:
    model = few(estimators=[("grown", grown()), ("forest", forest())]).fit(X, Y, W)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))
    again = clone(model).set_params(grown__n_trees=7)
    assert again.get_params()["grown__n_trees"] == 7
    assert "CascadePool" in model._repr_html_()


def test_saved_and_loaded(tmp_path: Path) -> None:
    model = few(weights="fit").fit(X, Y, W)
    again = fivesigma.load(fivesigma.save(model, tmp_path / "pool"))
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.member_significance_ == model.member_significance_


def test_progress_tells_member_round_u_and_significance(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[str] = []

    @contextmanager
    def record(total: int, visible: bool, what: str = "pool", done: int = 0) -> Iterator[Any]:
        assert (what, total) == ("pool", 20 + 1 + 1) if visible else what != "pool"
        yield lambda _, state: states.append(state) if visible else None

    monkeypatch.setattr(running, "steps", record)
    model = few(verbose=1).fit(X, Y, W)
    last = model.history_[19]
    expected = f"grown-0  round {last.index}  u {last.u:.4f}  significance {last.significance:.3f}"
    assert states[19:21] == [expected, "grown-0  done, 1 of 3 fits"]
    monkeypatch.undo()
    few(verbose=1).fit(X, Y, W)
    out, err = capfd.readouterr()
    assert out == ""
    assert "3 of 3 fits" in err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"estimators": []}, "estimators is empty"),
        ({"estimators": [GaussianNB()]}, "must be (name, estimator) pairs"),
        ({"estimators": [("knn", KNeighborsClassifier())]}, "does not take sample_weight"),
        ({"blend": "median"}, "blend must be one of rank, margin, probability"),
        ({"weights": "best"}, "weights must be one of even, fit"),
        ({"keep": 0}, "keep must be an integer of at least 1"),
        ({"keep": True}, "keep must be an integer of at least 1, got True"),
        ({"n_repeats": 0}, "n_repeats must be an integer of at least 1"),
        ({"cv": 1.5}, "cv=1.5 is not between 0 and 1"),
        ({"utility": AMS2(), "b_reg": 1.0}, "is given with AMS2"),
        ({"cut": "zero"}, "cut='zero' is the sign of a margin and blend='rank' has none"),
        ({"estimators": [("a", grown(update="cross-fit"))]}, "member 'a' has update='cross-fit'"),
        ({"estimators": [("../a", GaussianNB())]}, "'../a' cannot name a member"),
        ({"estimators": [("a/b", GaussianNB())]}, "'a/b' cannot name a member"),
        ({"estimators": [("a\\b", GaussianNB())]}, "cannot name a member"),
        ({"estimators": [(1, GaussianNB())]}, "1 cannot name a member"),
    ],
    ids=str,
)
def test_bad_parameters_get_one_sentence(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        few(**options).fit(X, Y, W)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_must_be_unique() -> None:
    with pytest.raises(ValueError, match="not unique"):
        CascadePool([("a", GaussianNB()), ("a", GaussianNB())]).fit(X, Y, W)


@pytest.mark.parametrize("cv", [0.25, 2])
def test_scores_of_each_member_blend_to_those_of_the_pool(cv: Any) -> None:
    model = few(cv=cv).fit(X, Y, W)
    held = np.isfinite(model.held_out_score_)
    of_held_out = [score[held] for score in model.held_out_scores_.values()]
    assert np.array_equal(model.blend_(of_held_out), model.held_out_score_[held])
    assert all(np.isnan(score[~held]).all() for score in model.held_out_scores_.values())
    scores = model.member_scores(X)
    assert list(scores) == ["grown", "bayes", "forest"]
    assert np.array_equal(model.blend_(list(scores.values())), model.predict_proba(X)[:, 1])


def test_members_that_were_not_kept_have_held_out_scores() -> None:
    model = few(keep=1).fit(X, Y, W)
    assert list(model.held_out_scores_) == ["grown", "bayes", "forest"]
    assert len(model.member_scores(X)) == 1
