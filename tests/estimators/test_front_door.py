"""What a scikit-learn engineer tries first: tables of all kinds, meta-estimators, groups, grids, interruptions."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import HistGradientBoostingClassifier, StackingClassifier, VotingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fivesigma
from fivesigma import AutoClassifier, CascadeClassifier, CascadePool, DecomposedClassifier, GrownCascadeClassifier
from fivesigma._tools.threads import wanted_cores
from fivesigma.datasets import Events, make_htautau
from fivesigma.errors import DuplicatedEventsWarning, InputError, TrainingEventsWarning

pytest.importorskip("xgboost")
pytest.importorskip("lightgbm")
pytestmark = pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")

RNG = np.random.default_rng(3)
N = 1200
Y = np.arange(N) % 2
X = RNG.normal(size=(N, 3)) + 1.2 * Y[:, None]
W = np.where(Y == 1, 0.1, 1.0) * RNG.uniform(0.5, 1.5, N)
OTHERS = RNG.normal(size=(N, 3)) + 1.2 * Y[:, None], Y, W


def front_doors() -> dict[str, Any]:
    small: dict[str, Any] = {"random_state": 0}
    return {
        "auto": AutoClassifier(cv=2, n_trees=4, **small),
        "auto-lightgbm": AutoClassifier(cv=2, n_trees=4, library="lightgbm", net=False, **small),
        "auto-histogram": AutoClassifier(cv=2, n_trees=4, library="histogram", net=False, **small),
        "fast": AutoClassifier(cv=2, n_trees=4, fast=True, **small),
        "grown": GrownCascadeClassifier(n_trees=4, **small),
        "grown-lightgbm": GrownCascadeClassifier("lightgbm", n_trees=4, **small),
        "retrained": CascadeClassifier(max_rounds=1, extra_rounds=0, **small),
        "decomposed": DecomposedClassifier(**small),
        "pool": CascadePool([("grown", GrownCascadeClassifier(n_trees=4))], **small),
    }


def frame() -> pd.DataFrame:
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    table["kind"] = pd.Categorical(np.where(X[:, 0] > 0.5, "two jets", "one jet"))
    return table


@pytest.mark.parametrize("name", front_doors())
def test_categorical_columns_in_every_front_door(name: str) -> None:
    model = front_doors()[name].set_params()
    if name == "auto-histogram":
        model.set_params(params={"categorical_features": "from_dtype"})
    model.fit(frame(), Y, W)
    assert np.isfinite(model.predict_proba(frame())).all()


@pytest.mark.parametrize("name", ["auto", "grown", "grown-lightgbm", "decomposed"])
def test_text_is_refused_by_the_name_of_its_column(name: str) -> None:
    polars = pytest.importorskip("polars")
    text = [str(k % 3) for k in range(N)]
    for table in (
        frame().assign(kind=text),
        polars.from_pandas(frame()[["a", "b"]]).with_columns(kind=polars.Series(text)),
    ):
        with pytest.raises(InputError, match="column 'kind' of X holds text; make it categorical"):
            front_doors()[name].fit(table, Y, W)


@pytest.mark.parametrize("name", ["auto", "grown", "grown-lightgbm", "retrained"])
def test_tables_of_arrow_are_frames_and_lazy_ones_are_refused(name: str) -> None:
    arrow, polars = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    table = polars.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    model = front_doors()[name]
    of_arrow = clone(model).fit(arrow.table({"a": X[:, 0], "b": X[:, 1]}), Y, W)
    assert of_arrow.feature_names_in_.tolist() == ["a", "b"]
    of_polars = clone(model).fit(table, Y, W)
    np.testing.assert_array_equal(of_arrow.predict_proba(table), of_polars.predict_proba(table))
    with pytest.raises(InputError, match=r"call its collect\(\) first"):
        clone(model).fit(table.lazy(), Y, W)


def test_a_pool_takes_sparse_tables_only_if_all_members_do() -> None:
    sparse = csr_matrix(np.where(X > 1, X, 0.0))
    grown = ("grown", GrownCascadeClassifier(n_trees=3))
    line = ("line", LogisticRegression())
    with pytest.raises(TypeError, match=r"[Ss]parse data"):
        CascadePool([line, grown], random_state=0).fit(sparse, Y, W)
    pool = CascadePool([line], random_state=0).fit(sparse, Y, W)
    np.testing.assert_allclose(pool.predict_proba(sparse), pool.predict_proba(sparse.toarray()), atol=1e-12)


@pytest.mark.parametrize(
    "learner",
    [
        VotingClassifier([("a", LogisticRegression()), ("b", LogisticRegression(C=0.1))], voting="soft"),
        StackingClassifier([("a", LogisticRegression())], cv=2),
        GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2),
    ],
    ids=["voting", "stacking", "search"],
)
def test_meta_estimators_hand_on_the_weights(learner: Any) -> None:
    model = CascadeClassifier(learner, max_rounds=2, extra_rounds=0, random_state=0).fit(X, Y, W)
    rounds = [r.class_weights for r in model.history_]
    assert len(set(rounds)) > 1
    heavier = clone(model).fit(X, Y, np.where(X[:, 0] > 1, 5 * W, W))
    assert not np.allclose(model.predict_proba(X), heavier.predict_proba(X))


class _Odd(ClassifierMixin, BaseEstimator):
    """A learner that forgets to return itself, and one column."""

    def __init__(self, columns: int = 2) -> None:
        self.columns = columns

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> None:
        self.inner_ = LogisticRegression().fit(X, y, sample_weight)
        self.classes_ = self.inner_.classes_

    def predict_proba(self, X: Any) -> Any:
        return self.inner_.predict_proba(X)[:, : self.columns]


class _Unweighted(LogisticRegression):
    def fit(self, X: Any, y: Any) -> Any:
        return super().fit(X, y)


def test_learners_that_are_a_little_odd() -> None:
    small: dict[str, Any] = {"max_rounds": 1, "extra_rounds": 0, "random_state": 0}
    CascadeClassifier(_Odd(), **small).fit(X, Y, W)
    with pytest.raises(InputError, match=r"predict_proba of _Odd must give two columns, got the shape \(300, 1\)"):
        CascadeClassifier(_Odd(columns=1), **small).fit(X, Y, W)
    with pytest.raises(InputError, match="a cascade needs a learner that does, and DecomposedClassifier needs none"):
        CascadeClassifier(_Unweighted(), **small).fit(X, Y, W)
    with pytest.raises(InputError, match="CascadeClassifier takes physics weights"):
        CascadeClassifier(CascadeClassifier(LogisticRegression()), **small).fit(X, Y, W)


def test_a_page_of_a_model_has_no_links_to_nowhere() -> None:
    page = GrownCascadeClassifier(n_trees=3).fit(X, Y, W)._repr_html_()
    assert "generated/fivesigma" not in page


def test_a_model_at_the_end_of_a_pipeline_has_its_significance() -> None:
    pipe = make_pipeline(StandardScaler(), GrownCascadeClassifier(n_trees=5, random_state=0))
    pipe.fit(X, Y, growncascadeclassifier__sample_weight=W)
    other, y, w = OTHERS
    quoted = pipe[-1].significance(pipe[:-1].transform(other), y, w)
    alone = pipe[-1].predict(StandardScaler().fit(X).transform(other)) == 1
    assert quoted == pytest.approx(float(fivesigma.AMS2().value(w[alone & (y == 1)].sum(), w[alone & (y == 0)].sum())))
    with pytest.warns(TrainingEventsWarning, match="trained on 1,200 of 1,200 events"):
        pipe[-1].significance(pipe[:-1].transform(X), Y, W)


@pytest.mark.parametrize("name", front_doors())
def test_labels_that_do_not_say_what_is_signal_are_refused(name: str) -> None:
    labels = np.where(Y == 1, "fraud", "ok")
    with pytest.raises(InputError, match="'fraud' and 'ok', and nothing says which is the signal: set pos_label"):
        front_doors()[name].fit(X, labels, W)
    model = front_doors()[name].set_params(pos_label="fraud").fit(X, labels, W)
    assert model.classes_.tolist() == ["ok", "fraud"]


@pytest.mark.parametrize("name", ["grown", "retrained", "decomposed", "auto"])
def test_a_fit_that_was_broken_off_leaves_no_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = front_doors()[name].fit(X, Y, W)

    def stop(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(model), "_tune_on", stop)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, W)
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.parametrize("name", ["grown", "retrained", "decomposed"])
def test_held_out_scores_of_single_models(name: str) -> None:
    model = front_doors()[name].set_params(cv=3).fit(X, Y, W)
    score = model.held_out_score_
    assert score.shape == (N,)
    assert np.isfinite(score).all()
    half = clone(model).set_params(cv=0.5).fit(X, Y, W)
    held_out = np.isfinite(half.held_out_score_)
    assert held_out.sum() == N // 2
    np.testing.assert_allclose(half.held_out_score_[held_out], half.predict_proba(X[held_out])[:, 1], rtol=1e-5)
    assert half.selected_fraction_ == np.mean(half.held_out_score_[held_out] >= half.cut_)


@pytest.mark.parametrize("name", front_doors())
def test_importances_of_all_models_of_trees(name: str) -> None:
    table = np.column_stack([X[:, 0], RNG.normal(size=N), RNG.normal(size=N)])
    model = front_doors()[name].fit(table, Y, W)
    if name == "auto-histogram":
        assert not hasattr(model, "feature_importances_")
        return
    assert model.feature_importances_.argmax() == 0
    assert model.feature_importances_.sum() == pytest.approx(1.0)


def test_cores_are_counted_as_in_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    import joblib

    from fivesigma._tools import threads

    monkeypatch.setattr(threads, "available_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [wanted_cores(n) for n in (None, 1, 3, 20, -1, -2, -20)] == [1, 1, 3, 8, 8, 7, 1]
    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert wanted_cores(None) == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert [wanted_cores(n) for n in (None, 5, -1)] == [1, 5, 3]
    with pytest.raises(InputError, match="n_jobs must be an integer but 0"):
        GrownCascadeClassifier(n_jobs=0).fit(X, Y, W)


def test_a_grid_of_tree_parameters() -> None:
    scorer = fivesigma.make_scorer(yields=(60.0, 600.0))
    grid = {"max_depth": [1, 3], "learning_rate": [0.05, 0.5]}
    for model in (GrownCascadeClassifier(n_trees=3, random_state=0), AutoClassifier(fast=True, cv=2, n_trees=3)):
        found = GridSearchCV(model, grid, scoring=scorer, cv=2, error_score="raise").fit(X, Y, sample_weight=W)
        assert len(set(found.cv_results_["mean_test_score"].round(9))) > 2
    with pytest.raises(InputError, match=r"max_depth=3 is given with params\['max_depth'\]=4; give one of them"):
        GrownCascadeClassifier(max_depth=3, params={"max_depth": 4}).fit(X, Y, W)
    own = GrownCascadeClassifier(n_trees=3, max_depth=2, learning_rate=0.3, random_state=0).fit(X, Y, W)
    params = GrownCascadeClassifier(n_trees=3, params={"max_depth": 2, "eta": 0.3}, random_state=0).fit(X, Y, W)
    np.testing.assert_array_equal(own.predict_proba(X), params.predict_proba(X))


def test_score_is_accuracy_and_says_so() -> None:
    model = GrownCascadeClassifier(n_trees=5, random_state=0).fit(X, Y, W)
    assert model.score(X, Y, W) == pytest.approx(np.average(model.predict(X) == Y, weights=W))
    assert "Accuracy" in (model.score.__doc__ or "")


@pytest.mark.parametrize("cv", [0.3, 3, GroupKFold(3)], ids=["fraction", "folds", "splitter"])
def test_no_split_parts_a_group_and_copies_are_told(cv: Any) -> None:
    table, labels, weight = np.repeat(X[:300], 4, axis=0), np.repeat(Y[:300], 4), np.repeat(W[:300], 4) / 4
    groups = np.repeat(np.arange(300), 4)
    model = GrownCascadeClassifier(n_trees=4, cv=cv, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DuplicatedEventsWarning)
        told = clone(model).fit(table, labels, weight, groups=groups)
    held_out = np.isfinite(told.held_out_score_).reshape(300, 4)
    assert (held_out.all(axis=1) | ~held_out.any(axis=1)).all()
    if isinstance(cv, GroupKFold):
        with pytest.raises(InputError, match="groups"):
            clone(model).fit(table, labels, weight)
        return
    with pytest.warns(
        DuplicatedEventsWarning, match="held-out events have the same features as events that are trained"
    ):
        clone(model).fit(table, labels, weight)


def test_equal_rows_of_few_values_are_no_copies() -> None:
    whole = np.round(np.clip(X, 0, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error", DuplicatedEventsWarning)
        GrownCascadeClassifier(n_trees=4, random_state=0).fit(whole, Y, W)
        GrownCascadeClassifier(n_trees=4, random_state=0).fit(X, Y, W)


@pytest.mark.parametrize(
    ("library", "params"),
    [
        ("lightgbm", {"machines": "127.0.0.1:9999"}),
        ("lightgbm", {"num_machines": 2}),
        ("lightgbm", {"forcedsplits_filename": "/etc/passwd"}),
        ("lightgbm", {"fs": "/etc/passwd"}),
        ("xgboost", {"interaction_constraints": "[" * 100_000}),
        ("xgboost", {"model_in": "x"}),
    ],
)
def test_parameters_that_reach_files_or_machines_are_refused(library: str, params: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="params"):
        GrownCascadeClassifier(library, n_trees=1, params=params).fit(X, Y, W)


def test_a_library_beside_the_classifier_regresses_the_weights() -> None:
    model = DecomposedClassifier(HistGradientBoostingClassifier(max_iter=3), random_state=0).fit(X, Y, W)
    assert type(model.models_[0].signal.regressor).__name__ == "HistGradientBoostingRegressor"


@pytest.mark.parametrize("name", front_doors())
def test_significance_of_training_events_is_said_to_be_too_high(name: str, tmp_path: Path) -> None:
    """Of all of them, in any order, of a part, with other weights, as a frame; also of a model that was loaded."""
    model = front_doors()[name].set_params(cut=0.3).fit(X, Y, W)  # which keeps background
    order = RNG.permutation(N)
    for fitted in (model, fivesigma.load(fivesigma.save(model, tmp_path / "model"))):
        for rows in (slice(None), order, order[:900]):
            with pytest.warns(TrainingEventsWarning, match=r"events, so that .* too high; quote that of other events"):
                fitted.significance(X[rows], Y[rows], 2 * W[rows])
        with pytest.warns(TrainingEventsWarning, match="trained on 600 of 1,200 events"):
            fitted.significance(*(np.concatenate([a[:600], b[600:]]) for a, b in zip((X, Y, W), OTHERS, strict=True)))
        assert fitted.significance(*OTHERS) > 0
    named = pd.DataFrame(X, columns=["a", "b", "c"])
    with pytest.warns(TrainingEventsWarning):
        model.fit(named, Y, W).significance(named, Y, W)


def test_events_that_are_scored_out_of_fold_are_no_training_events() -> None:
    events = make_htautau(2000, random_state=0)
    events = replace(events, kept={"number": np.arange(2000)})
    pool = CascadePool([("plain", GrownCascadeClassifier(n_trees=4))], cv=2, by="number", random_state=0).fit(events)
    assert pool.significance(events) > 0
    with pytest.warns(TrainingEventsWarning):  # without their numbers all fits score them
        pool.significance(pd.DataFrame(events.X, columns=list(events.feature_names)), events.y, events.weight)


def test_equal_features_of_few_values_are_no_sign_of_training() -> None:
    model = GrownCascadeClassifier(n_trees=4, random_state=0).fit(np.sign(X), Y, W)
    assert model.significance(np.sign(X[:600]), Y[:600], W[:600]) > 0
    model.fit(X, Y, W)
    x, y, w = (np.concatenate([a[:3], b]) for a, b in zip((X, Y, W), OTHERS, strict=True))
    assert model.significance(x, y, w) > 0


def test_training_events_among_many_are_known_by_the_smallest_digests() -> None:
    train, test = make_htautau(10_000, random_state=0), make_htautau(10_000, random_state=1)
    model = GrownCascadeClassifier(n_trees=4, random_state=0).fit(train)
    with pytest.warns(TrainingEventsWarning, match=r"about (4[6-9]|5\d)(\.\d)? % of the events"):
        model.significance(Events.concatenate([train[:5000], test[:5000]]))
    assert model.significance(test) > 0
