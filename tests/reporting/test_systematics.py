"""Systematics in the report: both curves, the waterfall, and samples of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import fivesigma
from fivesigma import Normalisation, ProfiledClassifier
from fivesigma.datasets import Events, from_arrays, make_htautau
from fivesigma.errors import InputError
from fivesigma.estimators.moved_events import bin_edges
from fivesigma.estimators.significance_classifier import scored_variations
from fivesigma.likelihood.shifts import Varied, with_variations


def with_systematics(cascade: Any, events: Events) -> tuple[Any, dict[str, Any]]:
    other = make_htautau(9_000, random_state=5)
    given = {
        "W": (events.weight * np.where(events.process == "wjets", 1.1, 1.0), None),
        "generator": (other[other.process == "ttbar"], None),
        "nothing": (events.weight, None),
    }
    return fivesigma.report(cascade, events, systematics=given, n_boot=10), given


def test_the_waterfall_ends_at_what_a_fit_finds(cascade: Any, test_events: Events) -> None:
    """Statistics, each systematic, the costliest first, and the statistics of the simulation."""
    page, given = with_systematics(cascade, test_events)
    found = page.data.systematics
    shifts = cascade.yield_shifts(test_events, None, None, given)
    assert found.waterfall == shifts.waterfall()
    assert found.waterfall[0][1] == found.known_background
    assert found.notes == ("Systematic 'nothing' moves no background at the cut: it changes nothing there.",)
    assert f'<td id="table-waterfall-fitted">{found.waterfall[-1][1]:.3f}</td>' in page.html
    assert found.notes[0].replace("'", "&#39;") in page.html
    for process in ("wjets", "ztautau"):  # as in the nominal events, which the other sample lacks
        np.testing.assert_array_equal(shifts.up["generator"][process], shifts.nominal[process].sum_of_weights)


def test_both_curves_are_those_of_the_scan(cascade: Any, test_events: Events) -> None:
    page, given = with_systematics(cascade, test_events)
    cuts = page.data.cuts
    scored = fivesigma.ScoredEvents.of(cascade, test_events)
    curve = fivesigma.scan(scored, systematics=scored_variations(cascade, test_events.is_signal, given))
    profiled = np.interp(cuts.fraction, curve.curve.fraction, curve.values)  # variations are smooth along it
    np.testing.assert_allclose(cuts.profiled, profiled, rtol=1e-12)
    assert (cuts.profiled[np.isfinite(profiled)] < cuts.known[np.isfinite(profiled)]).all()
    assert cuts.known[cuts.chosen] == pytest.approx(page.data.systematics.known_background)
    assert 'data-live="profiled"' in page.html
    plain = fivesigma.report(cascade, test_events, n_boot=10)
    assert plain.data.cuts.profiled is None
    assert 'data-live="profiled"' not in plain.html


def test_scored_events_take_varied_ones(cascade: Any, test_events: Events) -> None:
    page, given = with_systematics(cascade, test_events)
    scored = fivesigma.ScoredEvents.of(cascade, test_events)
    labels = np.array(scored.classes)

    def relabelled(_: str, one: Varied) -> Varied:
        return one if one.y is None else replace(one, y=labels[np.asarray(one.y).astype(int)])

    varied = with_variations(scored_variations(cascade, test_events.is_signal, given), relabelled)
    found = fivesigma.report(cascade, scored, systematics=varied, n_boot=10)
    assert found.data.systematics == page.data.systematics
    with pytest.raises(
        InputError, match=r"systematics\['W'\] must be Varied, with scores, where ScoredEvents are given"
    ):
        fivesigma.report(cascade, scored, systematics={"W": given["W"]})


def test_yields_scale_variations_but_not_samples_of_their_own(cascade: Any, test_events: Events) -> None:
    given = {"W": (test_events.weight * np.where(test_events.process == "wjets", 1.1, 1.0), None)}
    once = fivesigma.report(cascade, test_events, systematics=given, n_boot=10).data.systematics
    yields = (2 * test_events.weight[test_events.is_signal].sum(), 2 * test_events.weight[~test_events.is_signal].sum())
    twice = fivesigma.report(cascade, test_events, systematics=given, yields=yields, n_boot=10).data.systematics
    assert once is not None
    assert twice is not None
    assert twice.shifts[0].b_up == pytest.approx(once.shifts[0].b_up)
    with pytest.raises(InputError, match="yields cannot scale a sample of its own"):
        fivesigma.report(cascade, test_events, systematics={"x": (test_events, None)}, yields=yields, n_boot=10)


def test_what_a_variation_must_not_be(cascade: Any, test_events: Events) -> None:
    n, process, signal = len(test_events), test_events.process, test_events.is_signal
    assert process is not None
    renamed, other = np.where(process == "wjets", "WW", process), np.where(signal, "t", "b")
    for moved, sentence in (
        (replace(test_events, y=other), r"systematics\['x'\] has labels that were not fitted: \['t'\]"),
        (replace(test_events, process=np.full(n, "WW")), "x up: process 'WW' has both signal and background events"),
        (replace(test_events, process=renamed), "x up has the process 'WW', which the nominal events lack"),
        (test_events.X[:7], r"systematics\['x'\] has 7 events for 12000 nominal ones"),
        (3.5 * test_events.weight, "x up moves the background from .* by more than itself"),
        (np.full(n, np.nan), "x up: sample_weight is NaN or infinite in 12000 of 12000 rows"),
    ):
        with pytest.raises(InputError, match=sentence):
            fivesigma.report(cascade, test_events, systematics={"x": (moved, None)}, n_boot=10)


def test_a_score_that_knows_the_systematics_shows_what_it_relies_on() -> None:
    rng = np.random.default_rng(0)
    process = np.repeat(["H", "W", "Z"], 3000)

    def sample() -> Events:
        X = rng.normal(size=(9000, 2)) + np.repeat([[2, 0], [0, 0], [2, 1]], 3000, axis=0)
        return from_arrays(X, process == "H", np.where(process == "H", 0.05, 1.0), process=process)

    train, test = sample(), sample()
    systematics = {"Z": Normalisation("Z", 0.1), "W": Normalisation("W", 0.02)}
    model = ProfiledClassifier(LogisticRegression(), cv=2, random_state=0, n_jobs=1)
    model.fit(train, systematics=systematics)
    page = fivesigma.report(model, test, systematics=systematics, n_boot=5)
    found = page.data.profiled
    assert found is not None
    plain, t = found.panels
    assert found.pulls == model.pulls_
    assert not plain.control.any()
    assert t.control[0]
    lowest = [panel.shares[panel.backgrounds.index("Z"), 0] for panel in (plain, t)]
    assert lowest[1] > 0.8 > 2 * lowest[0]  # the control region is almost pure Z
    np.testing.assert_allclose(t.shares.sum(axis=0), 1.0)
    scored = fivesigma.ScoredEvents.of(model, test)
    edges = bin_edges(scored.score, *scored.arrays()[1:])
    shifts = fivesigma.yield_shifts(edges, scored, systematics=systematics)
    assert t.waterfall == shifts.waterfall()
    assert t.constraints == shifts.constraints()
    before_simulation = [panel.waterfall[-2][1] for panel in (plain, t)]
    assert before_simulation[1] > before_simulation[0] + 0.1
    assert "Z" in found.narrow
    for part in ('id="profiled-waterfall-1"', 'id="profiled-waterfall-2"', "control regions:", 'id="table-pulls"'):
        assert part in page.html
    alone = fivesigma.report(model, scored, systematics=systematics, n_boot=5).data.profiled
    assert alone is not None
    assert [panel.name for panel in alone.panels] == ["score t"]  # without features the plain score is not known
    assert fivesigma.report(model, test, n_boot=5).data.profiled is None
