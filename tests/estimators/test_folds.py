"""Folds by event number: each event meets the model that did not see it, in training, in data and in varied trees."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fivesigma import AutoClassifier, CascadePool, GrownCascadeClassifier, load, save
from fivesigma.datasets import Events, from_arrays, make_htautau
from fivesigma.errors import InputError

pytest.importorskip("xgboost")

RNG = np.random.default_rng(0)
TOY = make_htautau(3000, random_state=0)
NUMBERS = RNG.permutation(10**12 + np.arange(3000) * 7)
EVENTS = from_arrays(
    TOY.X, TOY.y, TOY.weight, signal="s", feature_names=TOY.feature_names, keep={"eventNumber": NUMBERS}
)
SETTINGS: dict[str, Any] = {"cv": 3, "by": "eventNumber", "random_state": 0, "n_jobs": 1}


def members() -> list[tuple[str, Any]]:
    return [("plain", GrownCascadeClassifier(n_trees=4, cascade=False)), ("grown", GrownCascadeClassifier(n_trees=4))]


Blended = CascadePool | AutoClassifier


@pytest.fixture(scope="module")
def pool() -> CascadePool:
    return CascadePool(members(), **SETTINGS).fit(EVENTS)


@pytest.fixture(scope="module")
def auto() -> AutoClassifier:
    return AutoClassifier(n_trees=4, net=False, **SETTINGS).fit(EVENTS)


@pytest.fixture(params=["pool", "auto"])
def model(request: pytest.FixtureRequest) -> Blended:
    found: Blended = request.getfixturevalue(request.param)
    return found


def test_training_events_get_their_held_out_scores(model: Blended) -> None:
    np.testing.assert_allclose(model.predict_proba(EVENTS)[:, 1], model.held_out_score_, atol=1e-6)
    assert model.cut_ == pytest.approx(np.quantile(model.held_out_score_, 1 - model.selected_fraction_), abs=0.02)


def test_another_number_is_another_model(model: Blended) -> None:
    moved = replace(EVENTS, kept={"eventNumber": NUMBERS + 1})
    before, after = model.predict_proba(EVENTS)[:, 1], model.predict_proba(moved)[:, 1]
    assert np.mean(before != after) > 0.95
    again = replace(EVENTS, kept={"eventNumber": NUMBERS + 3})
    np.testing.assert_array_equal(model.predict_proba(again)[:, 1], before)


def test_order_and_company_do_not_matter(model: Blended, tmp_path: Path) -> None:
    some = RNG.permutation(3000)[:500]
    loaded = load(save(model, tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(EVENTS[some]), model.predict_proba(EVENTS)[some])


def test_arrays_are_scored_by_the_mean_of_all_fits(model: Blended) -> None:
    with pytest.warns(UserWarning, match="feature names"):
        scores = model.predict_proba(EVENTS.X)[:, 1]
    assert not np.allclose(scores, model.predict_proba(EVENTS)[:, 1])


def test_an_array_of_folds(pool: CascadePool) -> None:
    given = CascadePool(members(), cv=NUMBERS % 3, random_state=0, n_jobs=1).fit(EVENTS)
    np.testing.assert_allclose(given.held_out_score_, pool.held_out_score_, atol=1e-12)


def test_the_front_door_keeps_each_fold_from_the_fits_that_score_it(auto: AutoClassifier) -> None:
    """Other features in fold 1 change the fits of the other folds, and not the plain one that scores fold 1."""
    fold = NUMBERS % 3
    other = EVENTS.X.copy()
    other[fold == 1] = RNG.permutation(other[fold == 1])
    changed = AutoClassifier(n_trees=4, net=False, **SETTINGS).fit(replace(EVENTS, X=other))

    def plain_fits(model: AutoClassifier) -> dict[int, Any]:
        members = zip(model.members_, model.folds_, strict=True)
        return {fold: member for (name, member), fold in members if name == "plain"}

    before, after = plain_fits(auto), plain_fits(changed)
    assert set(before) == set(after) == {0, 1, 2}
    for k in range(3):
        same = np.array_equal(before[k].__fivesigma_score__(EVENTS.X), after[k].__fivesigma_score__(EVENTS.X))
        assert same == (k == 1)


def test_the_front_door_by_number_says_what_it_chose_and_resumes(auto: AutoClassifier, tmp_path: Path) -> None:
    model = AutoClassifier(n_trees=4, net=False, **SETTINGS, checkpoint=tmp_path)
    for _ in range(2):  # the second time from the checkpoint
        model.fit(EVENTS)
        np.testing.assert_array_equal(model.predict_proba(EVENTS), auto.predict_proba(EVENTS))
        assert model.choice_ == auto.choice_
        assert model.choice_.endswith("4 trees on 3 splits")
    moved = replace(EVENTS, kept={"eventNumber": NUMBERS + 1})
    with pytest.raises(InputError, match="checkpoint"):
        model.fit(moved)


def test_the_front_door_needs_events_and_whole_folds(auto: AutoClassifier) -> None:
    with pytest.raises(InputError, match=r"eventNumber.*keep="):
        auto.predict(replace(EVENTS, kept={}))
    with pytest.raises(InputError, match="kept column of Events, and X is a ndarray"):
        AutoClassifier(n_trees=4, net=False, **SETTINGS).fit(EVENTS.X, EVENTS.y, EVENTS.weight)
    with pytest.raises(InputError, match="needs an integer cv"):
        AutoClassifier(n_trees=4, **{**SETTINGS, "cv": 0.25}).fit(EVENTS)


def test_bad_input_gets_one_sentence(pool: CascadePool) -> None:
    bare: Events = replace(EVENTS, kept={})
    with pytest.raises(InputError, match=r"eventNumber.*keep="):
        pool.predict(bare)
    with pytest.raises(InputError, match="kept column of Events, and X is a ndarray"):
        CascadePool(members(), **SETTINGS).fit(EVENTS.X, EVENTS.y, EVENTS.weight)
    with pytest.raises(InputError, match="needs an integer cv"):
        CascadePool(members(), **{**SETTINGS, "cv": 0.25}).fit(EVENTS)
    even = np.where(EVENTS.is_signal, 2 * NUMBERS, 2 * NUMBERS + 1)
    with pytest.raises(InputError, match=r"without background|without signal"):
        CascadePool(members(), **{**SETTINGS, "cv": 2}).fit(replace(EVENTS, kept={"eventNumber": even}))
    with pytest.raises(InputError, match="2999 fold numbers for 3000 events"):
        CascadePool(members(), cv=NUMBERS[1:] % 3, random_state=0).fit(EVENTS)
    with pytest.raises(InputError, match="one fold number only"):
        CascadePool(members(), cv=np.zeros(3000, dtype=int), random_state=0).fit(EVENTS)
