"""Estimators take `Events` as they are: labels, weights, processes and names come along."""

from typing import Any

import numpy as np
import pytest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline

from fivesigma import CascadeClassifier, CascadePool, DecomposedClassifier, GrownCascadeClassifier, load, save
from fivesigma.datasets import Events, from_arrays, make_htautau
from fivesigma.errors import InputError

pytest.importorskip("xgboost")

EVENTS = make_htautau(3000, random_state=0)
SETTINGS: dict[str, Any] = {"random_state": 0, "n_jobs": 1}


def shuffled(events: Events) -> Events:
    order = np.arange(len(events.feature_names))[::-1]
    columns = {name: events.X[:, events.feature_names.index(name)] for name in np.array(events.feature_names)[order]}
    return from_arrays(
        np.column_stack(list(columns.values())), events.y, events.weight, signal="s", feature_names=list(columns)
    )


def test_a_fit_of_events_is_the_fit_of_their_arrays() -> None:
    by_events = GrownCascadeClassifier(n_trees=5, **SETTINGS).fit(EVENTS)
    by_arrays = GrownCascadeClassifier(n_trees=5, **SETTINGS).fit(EVENTS.X, EVENTS.y, EVENTS.weight, EVENTS.process)
    np.testing.assert_array_equal(by_events.predict_proba(EVENTS), by_arrays.predict_proba(EVENTS.X))
    np.testing.assert_array_equal(by_arrays.predict_proba(EVENTS), by_arrays.predict_proba(EVENTS.X))
    assert by_events.feature_names_in_.tolist() == list(EVENTS.feature_names)
    assert not hasattr(by_arrays, "feature_names_in_")
    test = make_htautau(3000, random_state=1)
    assert by_events.significance(test) == by_arrays.significance(test.X, test.y, test.weight)
    assert by_events.significance(test, sample_weight=2 * test.weight) > by_events.significance(test)


def test_a_fit_of_arrays_forgets_the_events_before_it() -> None:
    model = GrownCascadeClassifier(n_trees=3, **SETTINGS).fit(EVENTS)
    assert model.data_hash_
    model.fit(EVENTS.X[::2], EVENTS.y[::2], EVENTS.weight[::2])
    assert not hasattr(model, "data_hash_"), "a report would take these events for the training events"
    assert not hasattr(model, "columns_")


def test_columns_are_found_by_name(tmp_path: object) -> None:
    model = GrownCascadeClassifier(n_trees=5, **SETTINGS).fit(EVENTS)
    other = shuffled(EVENTS)
    assert other.feature_names != EVENTS.feature_names
    np.testing.assert_array_equal(model.predict_proba(other), model.predict_proba(EVENTS))
    again = load(save(model, f"{tmp_path}/model"))
    np.testing.assert_array_equal(again.predict_proba(other), model.predict_proba(EVENTS))
    fewer = from_arrays(EVENTS.X[:, 1:], EVENTS.y, feature_names=EVENTS.feature_names[1:])
    with pytest.raises(InputError, match=f"no feature '{EVENTS.feature_names[0]}'"):
        model.predict(fewer)
    nameless = GrownCascadeClassifier(n_trees=5, **SETTINGS).fit(EVENTS.X, EVENTS.y, EVENTS.weight)
    with pytest.raises(InputError, match="have 29 features, and the model was trained with 30"):
        nameless.predict(fewer)
    with pytest.warns(UserWarning, match="valid feature names"):  # scikit-learn's habit
        model.predict(EVENTS.X)


def test_a_pool_hands_names_to_its_members() -> None:
    members = [("grown", GrownCascadeClassifier(n_trees=3)), ("decomposed", DecomposedClassifier())]
    pool = CascadePool(members, cv=2, **SETTINGS).fit(EVENTS)
    assert all(m.feature_names_in_.tolist() == list(EVENTS.feature_names) for _, m in pool.members_)
    np.testing.assert_array_equal(pool.predict_proba(shuffled(EVENTS)), pool.predict_proba(EVENTS))
    assert pool.member_scores(EVENTS).keys() == {"grown", "decomposed"}


def test_the_signal_of_the_events_is_the_signal() -> None:
    events = from_arrays(EVENTS.X, np.where(EVENTS.is_signal, "a", "z"), EVENTS.weight, signal="a")
    model = GrownCascadeClassifier(n_trees=3, **SETTINGS).fit(events)
    assert model.classes_.tolist() == ["z", "a"]


def test_events_without_labels_are_refused_in_training_only() -> None:
    unlabelled = from_arrays(EVENTS.X, None, feature_names=EVENTS.feature_names)
    with pytest.raises(InputError, match="target y is None"):
        GrownCascadeClassifier(n_trees=3, **SETTINGS).fit(unlabelled)
    model = GrownCascadeClassifier(n_trees=3, **SETTINGS).fit(EVENTS)
    np.testing.assert_array_equal(model.predict(unlabelled), model.predict(EVENTS))


@pytest.mark.parametrize("kind", [CascadeClassifier, DecomposedClassifier])
def test_a_learner_that_imputes_is_given_what_is_missing(kind: type) -> None:
    assert np.isnan(EVENTS.X).any()
    learner = make_pipeline(SimpleImputer(), GaussianNB())
    options: dict[str, Any] = {"weight_estimator": None} if kind is DecomposedClassifier else {"max_rounds": 1}
    model = kind(learner, **options, **SETTINGS).fit(EVENTS)
    assert np.isfinite(model.predict_proba(EVENTS)).all()
    with pytest.raises(ValueError, match="NaN"):
        CascadeClassifier(LogisticRegression(), **SETTINGS).fit(EVENTS)
