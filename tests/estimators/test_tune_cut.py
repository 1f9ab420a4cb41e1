"""The cut of a fitted model can be tuned again, with systematics in mind."""

from dataclasses import replace

import numpy as np
import pytest

from fivesigma import AMS2, GrownCascadeClassifier, ScoredEvents, Varied, scan
from fivesigma.datasets import make_htautau

pytest.importorskip("xgboost")


def test_the_cut_of_predict_follows_the_systematics() -> None:
    train, test = make_htautau(12_000, random_state=0).split(0.5, random_state=0)
    model = GrownCascadeClassifier(n_trees=20, b_reg=10.0, cut="plateau", random_state=0, n_jobs=1).fit(train)
    scored = ScoredEvents.of(model, test)
    assert scored.weight is not None
    found = model.tune_cut(scored)
    assert found.cut == model.cut_ == scan(scored, utility=AMS2(b_reg=10.0), rule="plateau").cut
    more = Varied(weight=scored.weight * np.where(test.is_signal, 1.0, 1.2))
    uncertain = model.tune_cut(scored, {"normalisation": (more, None)}, rule="peak")
    assert uncertain.significance < uncertain.known_background
    assert uncertain.cut > found.cut, "an uncertain background asks for a purer selection"
    assert model.cut_ == uncertain.cut
    selected = model.predict(test) == "s"
    np.testing.assert_array_equal(selected, ScoredEvents.of(model, test).selected)
    assert model.selected_fraction_ == pytest.approx(selected.mean(), abs=1e-3)
    assert replace(scored, selected=selected).selected is not None
