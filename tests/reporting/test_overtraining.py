"""The score of training events against that of other events."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import ks_2samp
from sklearn.linear_model import LogisticRegression

import fivesigma
from fivesigma import CascadePool
from fivesigma.datasets import Events, from_arrays
from fivesigma.errors import TrainingEventsWarning
from fivesigma.reporting import Report
from tests.reporting.conftest import B_REG, grown
from tests.reporting.synthetic import Oracle, overlaid


def overlay(found: Report) -> Any:
    assert found.data.overtraining is not None
    return found.data.overtraining


def test_distance_and_probability_are_those_of_kolmogorov_and_smirnov() -> None:
    here, training = overlaid(0), overlaid(1, shift=0.02)
    found = overlay(fivesigma.report(Oracle(), here, trained_on=training, n_boot=10))
    for one in found.classes:
        pair = [e.X[e.is_signal == (one.name == "signal"), 0].astype(float) for e in (training, here)]
        expected = ks_2samp(*pair, method="asymp")
        assert one.distance == pytest.approx(expected.statistic, abs=1e-12)
        assert one.probability == pytest.approx(expected.pvalue, rel=0.15)
        width = found.edges[1] - found.edges[0]
        assert one.training.sum() * width == pytest.approx(1.0)
        assert one.here.sum() * width == pytest.approx(1.0)
    same = overlay(fivesigma.report(Oracle(), here, trained_on=here, n_boot=10))
    assert [(one.distance, one.probability) for one in same.classes] == [(0.0, 1.0)] * 2


def test_the_probability_is_even_for_samples_of_one_distribution() -> None:
    model, chances = Oracle(), []
    model.cut_ = 0.5
    for seed in range(40):
        found = overlay(fivesigma.report(model, overlaid(seed, 400), trained_on=overlaid(seed + 100, 400), n_boot=2))
        chances += [one.probability for one in found.classes]
    assert 0.35 < np.mean(chances) < 0.65
    assert np.mean(np.array(chances) < 0.05) < 0.15


def test_an_overtrained_model_is_seen(train: Events, test_events: Events) -> None:
    few = train[:4000]
    model = grown(few, n_trees=150, cascade=False)
    found = fivesigma.report(model, test_events, trained_on=few, n_boot=10)
    o = overlay(found)
    totals = [float(test_events.weight[c].sum()) for c in (test_events.is_signal, ~test_events.is_signal)]
    assert o.here == pytest.approx(found.data.verdict.significance)
    if np.isfinite(o.training):
        with pytest.warns(TrainingEventsWarning):
            assert o.training == pytest.approx(model.significance(few, yields=tuple(totals)))
        assert o.training > o.here
    assert min(one.probability for one in o.classes) < 1e-3
    assert '<b id="training-significance">' in found.html
    (sent,) = re.findall(r'id="data">(.*?)</script>', found.html)
    for k, one in enumerate(json.loads(sent)["overtraining"]["classes"]):
        assert f'<div id="fig-overtraining-{k}">' in found.html
        np.testing.assert_allclose(one["here"], o.classes[k].here, rtol=1e-7)
    assert 'id="overtraining"' not in fivesigma.report(model, test_events, n_boot=10).html


def test_folds_by_number_are_said() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(2000) % 2
    X = rng.normal(size=(2000, 2)) + y[:, None]
    events = replace(from_arrays(X, y, np.ones(2000), signal=1), kept={"number": np.arange(2000) // 2})
    model = CascadePool([("plain", LogisticRegression())], cv=2, by="number", b_reg=B_REG, random_state=0, n_jobs=1)
    found = fivesigma.report(model.fit(events), events, trained_on=events, n_boot=10)
    assert overlay(found).by == "number"
    assert "each by the fits that did not see its fold (number)" in found.html
