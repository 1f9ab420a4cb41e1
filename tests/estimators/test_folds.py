"""Folds by event number: each event meets the model that did not see it, in training, in data and in varied trees."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fivesigma import CascadePool, GrownCascadeClassifier, load, save
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


@pytest.fixture(scope="module")
def pool() -> CascadePool:
    return CascadePool(members(), **SETTINGS).fit(EVENTS)


def test_training_events_get_their_held_out_scores(pool: CascadePool) -> None:
    np.testing.assert_allclose(pool.predict_proba(EVENTS)[:, 1], pool.held_out_score_, atol=1e-6)
    assert pool.cut_ == pytest.approx(np.quantile(pool.held_out_score_, 1 - pool.selected_fraction_), abs=0.02)


def test_another_number_is_another_model(pool: CascadePool) -> None:
    moved = replace(EVENTS, kept={"eventNumber": NUMBERS + 1})
    before, after = pool.predict_proba(EVENTS)[:, 1], pool.predict_proba(moved)[:, 1]
    assert np.mean(before != after) > 0.95
    again = replace(EVENTS, kept={"eventNumber": NUMBERS + 3})
    np.testing.assert_array_equal(pool.predict_proba(again)[:, 1], before)


def test_order_and_company_do_not_matter(pool: CascadePool, tmp_path: Path) -> None:
    some = RNG.permutation(3000)[:500]
    loaded = load(save(pool, tmp_path / "pool"))
    np.testing.assert_array_equal(loaded.predict_proba(EVENTS[some]), pool.predict_proba(EVENTS)[some])


def test_arrays_are_scored_by_the_mean_of_all_fits(pool: CascadePool) -> None:
    with pytest.warns(UserWarning, match="feature names"):
        scores = pool.predict_proba(EVENTS.X)[:, 1]
    assert not np.allclose(scores, pool.predict_proba(EVENTS)[:, 1])


def test_an_array_of_folds(pool: CascadePool) -> None:
    given = CascadePool(members(), cv=NUMBERS % 3, random_state=0, n_jobs=1).fit(EVENTS)
    np.testing.assert_allclose(given.held_out_score_, pool.held_out_score_, atol=1e-12)


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
