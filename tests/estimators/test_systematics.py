"""Systematic variations at the cut of a trained model, and training with an uncertain background."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from fivesigma import (
    AMS2,
    CascadeClassifier,
    CascadePool,
    GaussianBackground,
    GrownCascadeClassifier,
    OnOff,
    RelativeBackground,
)
from fivesigma.cascade.rounds import History
from fivesigma.errors import InputError
from fivesigma.significance import Utility
from tests.estimators.blobs import YIELDS, make_blobs

X, Y, W = make_blobs()
MODEL = CascadeClassifier(LogisticRegression(), max_rounds=1, random_state=0, n_jobs=1).fit(*make_blobs(seed=9))


def test_weight_variations_move_the_yields_by_as_much() -> None:
    shifts = MODEL.yield_shifts(X, Y, W, {"normalisation": (1.2 * W, 0.8 * W)})
    up, down = shifts.up["normalisation"], shifts.down["normalisation"]
    assert shifts.yields(signal=False, of=up) == pytest.approx(1.2 * shifts.yields(signal=False))
    assert shifts.yields(signal=True, of=down) == pytest.approx(0.8 * shifts.yields(signal=True))


def test_an_uncertain_background_costs_significance_as_much_as_its_gaussian_constraint() -> None:
    moved = np.where(Y == 1, W, 1.1 * W)
    with_it = MODEL.significance(X, Y, W, systematics={"background": (moved, None)})
    selected = MODEL.predict(X) == 1
    s, b = W[selected & (Y == 1)].sum(), W[selected & (Y == 0)].sum()
    assert with_it == pytest.approx(float(GaussianBackground(0.1 * b).value(s, b)), rel=1e-3)
    assert with_it < MODEL.significance(X, Y, W)


def test_table_variations_move_events_across_the_cut() -> None:
    up, down = X + np.array([0.1, 0.0]), X - np.array([0.1, 0.0])
    shifts = MODEL.yield_shifts(X, Y, W, {"scale": (up, down)})
    b, b_up = shifts.yields(signal=False)[0], shifts.yields(signal=False, of=shifts.up["scale"])[0]
    assert b_up == pytest.approx(W[(MODEL.predict(up) == 1) & (Y == 0)].sum())
    assert b_up > b > shifts.yields(signal=False, of=shifts.down["scale"])[0]


def test_rescaled_yields_rescale_the_variations() -> None:
    half = slice(0, 2000)
    given = {"background": (1.1 * W[half], None)}
    scaled = MODEL.yield_shifts(X[half], Y[half], W[half], given, yields=YIELDS)
    assert scaled.yields(signal=False, of=scaled.up["background"]) == pytest.approx(1.1 * scaled.yields(signal=False))
    assert scaled.yields(signal=False)[0] == pytest.approx(
        2 * W[half][(MODEL.predict(X[half]) == 1) & (Y[half] == 0)].sum()
    )


def test_variation_of_other_events_is_refused() -> None:
    with pytest.raises(InputError, match=r"systematics\['tes'\] has 5 events for 4000"):
        MODEL.significance(X, Y, W, systematics={"tes": (X[:5], None)})


@pytest.mark.parametrize(
    "utility", [OnOff(1.0), GaussianBackground(30.0), RelativeBackground(0.2), AMS2(b_reg=5.0)], ids=repr
)
@pytest.mark.parametrize(
    "model",
    [
        CascadeClassifier(LogisticRegression(), max_rounds=3, n_jobs=1),
        GrownCascadeClassifier(n_trees=15, params={"max_depth": 2, "learning_rate": 0.3}, n_jobs=1),
        CascadePool([("plain", LogisticRegression()), ("grown", GrownCascadeClassifier(n_trees=10))], n_jobs=1),
    ],
    ids=lambda m: type(m).__name__,
)
def test_every_utility_trains_every_estimator(model: Any, utility: Utility) -> None:
    fitted = model.set_params(utility=utility, random_state=0).fit(X, Y, W)
    assert fitted.utility_ == utility
    z = fitted.significance(*make_blobs(seed=9))
    everything = float(utility.value(*YIELDS))
    assert z > 1.15 * everything
    for r in fitted.history_:
        assert np.isfinite([v for (v,) in History([r]).to_columns().values() if isinstance(v, float)]).all()
