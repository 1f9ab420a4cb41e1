"""The score that knows the systematics."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from xgboost import XGBClassifier

import fivesigma
from fivesigma import Normalisation, ProfiledClassifier, ScoredEvents, Varied, categorise
from fivesigma.datasets import from_arrays
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError
from fivesigma.estimators.moved_events import FoldedEvents, SystematicsReader, bin_edges
from fivesigma.estimators.significance_classifier import scored_variations
from fivesigma.learners.density_ratios import ContrastTrainer

Z = {"Z": Normalisation("Z", 0.1)}
PLACES = {"H": (2.0, 0.0), "W": (0.0, 0.0), "Z": (2.0, 1.0)}


def toy(n: int = 2000, seed: int = 0, moved: tuple[float, float] = (0.0, 0.0)) -> Events:
    """A signal at (2, 0), W at the origin, and Z beside the signal; all background may be moved."""
    rng = np.random.default_rng(seed)
    process = np.repeat(list(PLACES), n)
    X = rng.normal(size=(3 * n, 2)) + np.repeat(list(PLACES.values()), n, axis=0)
    X[process != "H"] += moved
    weight = np.where(process == "H", 200.0, 4000.0) / n
    order = rng.permutation(3 * n)
    return from_arrays(
        X[order],
        np.where(process == "H", "s", "b")[order],
        weight[order],
        signal="s",
        process=process[order],
        ids=order,
        keep={"number": order},
    )


def shift(events: Events, by: float) -> Events:
    """The same events elsewhere along the first feature."""
    return replace(events, X=events.X + np.array([by, 0], dtype=np.float32))


def at(*points: tuple[float, float]) -> Events:
    return from_arrays(points, None, signal=None)


def small(**options: Any) -> ProfiledClassifier:
    return ProfiledClassifier(LogisticRegression(), random_state=0, n_jobs=1, **options)


@pytest.fixture(scope="module")
def events() -> Events:
    return toy()


@pytest.fixture(scope="module")
def fitted(events: Events) -> ProfiledClassifier:
    return small().fit(events, systematics=Z)


def test_the_score_gains_on_other_events(fitted: ProfiledClassifier) -> None:
    plain, best = fitted.history_[0].value, max(r.value for r in fitted.history_)
    assert best > 1.15 * plain
    test = toy(20_000, seed=1)
    t = ScoredEvents.of(fitted, test)
    s_over_b = replace(t, score=fitted.models_[0].signal_probability(test.X))
    gain = [categorise(scored, n_categories=10, systematics=Z).significance for scored in (s_over_b, t)]
    assert gain[1] > 1.15 * gain[0]


def test_pure_events_of_an_uncertain_background_have_the_lowest_scores(fitted: ProfiledClassifier) -> None:
    beside, elsewhere = fitted.decision_function(at((2.0, 4.0), (-2.0, 0.0)))
    assert beside < elsewhere
    assert fitted.pulls_["Z"] > 0
    assert fitted.left_out_ == []


def test_held_out_significance_is_that_of_the_bins_of_held_out_scores(
    events: Events, fitted: ProfiledClassifier
) -> None:
    scored = ScoredEvents(fitted.held_out_score_, events.is_signal, events.weight, process=events.process)
    edges = bin_edges(scored.score, events.is_signal, events.weight)
    value = fivesigma.yield_shifts(edges, scored, systematics=Z).significance
    assert value == pytest.approx(max(r.value for r in fitted.history_), rel=1e-9)


def test_predict_proba_rises_with_t_and_predict_uses_the_cut(events: Events, fitted: ProfiledClassifier) -> None:
    t, p = fitted.decision_function(events), fitted.predict_proba(events)[:, 1]
    assert (np.diff(p[np.argsort(t)]) >= 0).all()
    np.testing.assert_array_equal(fitted.predict(events) == "s", p >= fitted.cut_)
    np.testing.assert_array_equal(ScoredEvents.of(fitted, events).selected, p >= fitted.cut_)
    assert 0 < fitted.selected_fraction_ < 1


def test_t_is_the_log_of_the_likelihood_ratio(events: Events) -> None:
    flat = {"all": Normalisation(["W", "Z"], 0.1), "Z": Normalisation("Z", 0.1)}
    model = small().fit(events, systematics=flat)
    assert "all" in model.pulls_
    p = model.models_[0].signal_probability(events.X)
    r_s = np.exp(np.log(p / (1 - p)) + model.log_prior_)
    spread = model.decision_function(events) - np.log1p(r_s)
    assert np.abs(spread).max() < 0.2


def test_without_systematics_it_is_the_plain_score(events: Events) -> None:
    model = small().fit(events)
    assert model.choice_.startswith("the plain score; held-out significance")
    assert model.pulls_ == {}
    assert len(model.history_) == 1
    p = np.mean([m.signal_probability(events.X) for m in model.models_], axis=0)
    np.testing.assert_array_equal(np.argsort(model.decision_function(events)), np.argsort(p))


def test_systematics_that_cost_nothing_are_left_out_and_named(events: Events) -> None:
    model = small().fit(events, systematics={**Z, "tiny": Normalisation("W", 1e-5), "H": Normalisation("H", 0.3)})
    assert model.left_out_ == ["tiny", "H"]
    assert "matter less than 0.5%: tiny, H" in model.choice_
    assert model.pulls_["tiny"] == model.pulls_["H"] == 0
    alone = small().fit(events, systematics=Z)
    np.testing.assert_array_equal(model.decision_function(events), alone.decision_function(events))


def test_the_plain_score_is_kept_where_it_is_better(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = importlib.import_module("fivesigma.estimators.profiled")

    def misled(excess: Any, *_: Any) -> Any:
        return np.random.default_rng(0).normal(size=excess.size)

    monkeypatch.setattr(module, "likelihood_ratio", misled)
    model = small().fit(events, systematics=Z)
    assert model.choice_.startswith("the plain score, held-out significance")
    assert model.pulls_ == {"Z": 0.0}


@pytest.mark.parametrize("form", ["events", "table", "frame", "own sample"])
def test_shapes_are_learned_from_every_form_of_varied_events(events: Events, form: str) -> None:
    up, down = shift(events, 0.2), shift(events, -0.2)
    nominal: Any = events
    given: Any = (up, down)
    if form == "table":
        given = (up.X, down.X)
    if form == "frame":
        given = tuple(pl.DataFrame(e.X, schema=list(events.feature_names)) for e in (up, down))
    if form == "own sample":
        given = tuple(shift(toy(3000, seed), f) for seed, f in ((5, 0.2), (6, -0.2)))
    model = small().fit(nominal, systematics={"shift": given})
    assert model.shift_terms_["shift"][0] == "opposite"
    points = at((5.0, 0.0), (-2.0, 0.0))
    odds = np.mean([m["shift"].signal_probability(points.X) for m in model.shift_models_], axis=0)
    assert odds[0] > 0.5 > odds[1]  # at large values there is more up than down
    high, low = model.decision_function(points) - np.log1p(np.exp(_plain_margin(model, points.X)))
    assert np.sign(low - high) == np.sign(model.pulls_["shift"]) != 0


def _plain_margin(model: ProfiledClassifier, X: Any) -> Any:
    p = np.mean([m.signal_probability(X) for m in model.models_], axis=0)
    return np.log(p / (1 - p)) + model.log_prior_


def test_weights_are_learned_as_the_normalisation_that_they_are(events: Events, fitted: ProfiledClassifier) -> None:
    heavier = np.where(events.process == "Z", 1.1, 1.0) * events.weight
    model = small().fit(events, systematics={"Z": (heavier, None)})
    ours, theirs = (np.argsort(np.argsort(m.decision_function(events))) for m in (model, fitted))
    assert np.corrcoef(ours, theirs)[0, 1] > 0.95


def test_arrays_and_events_make_the_same_model(events: Events, fitted: ProfiledClassifier) -> None:
    model = small().fit(events.X, events.y, events.weight, process=events.process, systematics=Z)
    np.testing.assert_array_equal(model.held_out_score_, fitted.held_out_score_)


def test_a_free_yield_costs_more_than_a_constrained_one(events: Events, fitted: ProfiledClassifier) -> None:
    named = small().fit(events, systematics=Z, free=["Z"])
    free = small().fit(events, systematics={"Z": Normalisation("Z", None)})
    assert named.pulls_ == free.pulls_
    assert max(r.value for r in free.history_) < max(r.value for r in fitted.history_)
    assert 0 < free.pulls_["Z"] < 0.2


def test_a_measurement_uses_the_efficient_score(events: Events) -> None:
    model = small(goal="measurement").fit(events, systematics=Z)
    values = [r.value for r in model.history_]
    assert min(values[1:]) < values[0]  # a smaller uncertainty
    assert "efficient score" in model.choice_
    signal = small(goal="measurement").fit(events, systematics={"H": Normalisation("H", 0.3)})
    assert signal.left_out_ == []  # the yield of the signal matters for its strength
    known = small(goal="measurement").fit(events)
    weight, p = events.weight, np.exp(_plain_margin(known, events.X))
    expected = 1 / np.sqrt(np.sum(weight * (p / (1 + p)) ** 2))
    assert known.bound_ == pytest.approx(expected, rel=0.02)


def test_with_numbers_of_events_each_is_scored_by_the_fits_that_did_not_see_it(events: Events) -> None:
    given = {**Z, "shift": (shift(events, 0.1), shift(events, -0.1))}
    model = small(by="number", cv=3).fit(events, systematics=given)
    np.testing.assert_allclose(model.predict_proba(events)[:, 1], model.held_out_score_, rtol=1e-12)
    shuffled = events[np.random.default_rng(0).permutation(len(events))]
    order = np.argsort(shuffled.kept["number"])
    expected = model.held_out_score_[np.argsort(events.kept["number"])]
    np.testing.assert_allclose(model.predict_proba(shuffled)[order, 1], expected, rtol=1e-12)


def test_varied_events_belong_to_the_fold_of_the_event_with_the_same_identifier(events: Events) -> None:
    home = np.arange(len(events)) % 5
    nominal = FoldedEvents(events.X, events.is_signal, events.weight, events.process, home)
    classes = np.array(["b", "s"])

    def folds(varied: Events, ids: Any) -> Any:
        reader = SystematicsReader(nominal, classes, ids, lambda _, moved: moved.X, None, 0)
        up = reader.read("shift", (varied, None)).up
        assert up is not None
        return up.home

    order = np.random.default_rng(0).permutation(len(events))
    np.testing.assert_array_equal(folds(shift(events, 0.2)[order], events.ids), home[order])
    by_chance = folds(shift(events, 0.2)[order], None)
    assert 0.1 < np.mean(by_chance == home[order]) < 0.3


def test_a_process_without_varied_events_is_as_in_the_nominal_ones(events: Events) -> None:
    part = events.process != "W"
    given = {"shift": tuple(shift(events[part], f) for f in (1.2, -0.2))}
    model = small().fit(events, systematics=given)
    assert not np.isnan(model.held_out_score_).any()
    points = np.array([[-1.0, -2.0], [4.0, 2.0]])
    p = np.mean([m["shift"].signal_probability(points) for m in model.shift_models_], axis=0)
    at_w, at_z = p - 0.5
    assert abs(at_w) < abs(at_z)


def test_it_can_be_saved_and_loaded(events: Events, fitted: ProfiledClassifier, tmp_path: Path) -> None:
    again = fivesigma.load(fivesigma.save(fitted, tmp_path / "model"))
    np.testing.assert_array_equal(again.predict_proba(events), fitted.predict_proba(events))
    assert again.history_ == fitted.history_
    assert again.choice_ == fitted.choice_
    assert again.pulls_ == fitted.pulls_


def test_boosters_can_be_saved_with_their_shapes(events: Events, tmp_path: Path) -> None:
    trees = XGBClassifier(n_estimators=10, max_depth=2)
    model = ProfiledClassifier(trees, random_state=0, n_jobs=1)
    model.fit(events, systematics={**Z, "shift": (shift(events, 0.2), None)})
    again = fivesigma.load(fivesigma.save(model, tmp_path / "model"))
    np.testing.assert_array_equal(again.decision_function(events), model.decision_function(events))


def test_an_interrupted_run_resumes(events: Events, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {**Z, "shift": (shift(events, 0.2), shift(events, -0.2))}
    whole = small().fit(events, systematics=given)
    fit, calls = ContrastTrainer.fit, []

    def killed(*args: Any) -> Any:
        calls.append(0)
        if len(calls) == 8:
            raise RuntimeError("killed")
        return fit(*args)

    monkeypatch.setattr(ContrastTrainer, "fit", killed)
    with pytest.raises(RuntimeError, match="killed"):
        small(checkpoint=tmp_path / "run").fit(events, systematics=given)
    resumed = small(checkpoint=tmp_path / "run").fit(events, systematics=given)
    assert len(calls) == 8 + 15 - 7
    np.testing.assert_array_equal(resumed.held_out_score_, whole.held_out_score_)


def test_a_checkpoint_of_other_variations_is_refused(events: Events, tmp_path: Path) -> None:
    small(checkpoint=tmp_path / "run").fit(events, systematics=Z)
    with pytest.raises(InputError, match="is of other events"):
        small(checkpoint=tmp_path / "run").fit(events, systematics={"Z": Normalisation("Z", 0.2)})


def test_the_default_booster_finds_its_number_of_trees() -> None:
    events = toy(700)
    model = ProfiledClassifier(cv=2, random_state=0, n_jobs=1)
    model.fit(events, systematics={**Z, "shift": (shift(events, 0.2), shift(events, -0.2))})
    models: list[Any] = [model.models_[0], model.shift_models_[0]["shift"]]
    trees = [m.booster.num_boosted_rounds() for m in models]
    assert trees[0] >= 10
    assert trees[1] == trees[0] // 4


def test_it_is_no_member_of_a_pool(events: Events) -> None:
    with pytest.raises(InputError, match="learns from systematics that a pool does not hand on"):
        fivesigma.CascadePool([("profiled", small())], random_state=0).fit(events)


def test_a_report_takes_it(events: Events, fitted: ProfiledClassifier, tmp_path: Path) -> None:
    page = fivesigma.report(fitted, toy(1000, seed=3), systematics=Z)
    assert fitted.choice_.partition(";")[0] in page.write(tmp_path / "report.html").read_text()


def test_parameters_are_scikit_learn_s() -> None:
    model = small(goal="measurement", cv=3)
    assert clone(model).get_params()["goal"] == "measurement"
    assert clone(model).set_params(estimator__C=0.5).estimator.C == 0.5


def test_it_says_which_systematics_the_data_constrain(events: Events, fitted: ProfiledClassifier) -> None:
    scored = ScoredEvents(fitted.held_out_score_, events.is_signal, events.weight, process=events.process)
    shifts = fivesigma.yield_shifts(bin_edges(scored.score, events.is_signal, events.weight), scored, systematics=Z)
    assert fitted.constraints_ == pytest.approx(shifts.constraints(), rel=1e-9)
    assert f"the data constrain Z to {fitted.constraints_['Z']:.2f} of its size" in fitted.choice_
    free = small().fit(events, systematics=Z, free=["Z"])
    assert "constrain" not in free.choice_


def test_it_can_judge_itself_with_systematics(events: Events, fitted: ProfiledClassifier) -> None:
    scored = scored_variations(fitted, events.is_signal, Z)
    assert scored == Z
    test = toy(6000, seed=9)
    assert fitted.significance(test, systematics=Z) < fitted.significance(test)


NAN = np.full(6000, np.nan)


@pytest.mark.parametrize(
    ("systematics", "options", "message"),
    [
        ({"Z": Normalisation("ZZ", 0.1)}, {}, "systematic 'Z' scales the process 'ZZ', of which there are no events"),
        ([Z], {}, "systematics must map names to"),
        ({"a": 3}, {}, "systematic 'a' must be a Normalisation or two variations"),
        ({"a": (None, None)}, {}, "systematic 'a' must be a Normalisation or two variations"),
        ({"a": (NAN, None)}, {}, "a up: sample_weight is NaN or infinite"),
        ({"a": (np.ones(3), None)}, {}, "a up: sample_weight has"),
        ({"a": (np.ones((3, 2)), None)}, {}, "a up has 3 events for 6000 nominal ones"),
        ({"a": (np.ones((6000, 5)), None)}, {}, "a up is a ndarray with 5 features"),
        ({"a": (Varied(score=np.ones(6000)), None)}, {}, "a up has scores, and a model learns from features"),
        (Z, {"free": ["ZZ"]}, "free names 'ZZ', which is no systematic"),
    ],
)
def test_bad_systematics_are_refused_in_a_sentence(
    events: Events, systematics: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        small().fit(events, systematics=systematics, **options)


def test_varied_events_that_do_not_fit_are_refused_in_a_sentence(events: Events) -> None:
    def refused(message: str, up: Any, down: Any = None, nominal: Events = events) -> None:
        with pytest.raises(InputError, match=message):
            small().fit(nominal, systematics={"a": (up, down)})

    other = from_arrays(events.X, events.y, events.weight, signal="s", feature_names=["p", "q"])
    refused("a up: no feature 'x0'", other)
    up = shift(events, 0.1)
    refused("systematic 'a' is the same up as down", up, up)
    refused("systematic 'a' is the same up as the nominal events", events)
    refused("by more than itself", 3 * events.weight)
    refused("a down makes the yield of 'Z' negative, -2000", np.where(events.process == "Z", 2.5, 1) * events.weight)
    some = (events.process == "Z") & (events.column("x0") > 3)
    refused("systematic 'a': sample_weight is negative", np.where(some, -1.0, 1.0) * events.weight)
    refused("a up has NaN in feature 'x0', where the nominal events have none", np.full_like(events.X, np.nan))
    refused("a up: could not convert string to float", np.full(events.X.shape, "x"))
    refused("by more than itself", replace(up, weight=-events.weight))
    refused("has no labels", replace(up, y=np.full(len(up), None), signal=None))
    refused("has the label 'b2'", replace(up, y=np.where(up.y == "b", "b2", "s")))
    refused("has the process 'W2'", replace(up, process=np.where(up.is_signal, "H", "W2")))
    refused("has no process, which", replace(up, process=None))
    with pytest.raises(InputError, match="and the events have no process"):
        small().fit(replace(events, process=None), systematics=Z)
    with pytest.warns(UserWarning, match="a up has no signal: it is taken as in the nominal events"):
        small().fit(events, systematics={"a": (up[~up.is_signal], None)})


def test_a_sample_in_any_order_makes_the_same_score(events: Events) -> None:
    up, down = shift(events, 0.2), shift(events, -0.2)
    still = events.column("x1") > 0  # events that nothing moves are one row of both samples
    up, down = (replace(e, X=np.where(still[:, None], events.X, e.X)) for e in (up, down))
    order = np.random.default_rng(0).permutation(len(events))
    one, other = (small().fit(events, systematics={"shift": s}) for s in ((up, down), (up[order], down[order])))
    np.testing.assert_allclose(one.decision_function(events), other.decision_function(events), rtol=1e-4, atol=1e-6)


def test_xgboost_sees_an_event_of_both_samples_once() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 2))
    first, second = 1 + 0.5 * np.tanh(X[:, 0]), 1 - 0.5 * np.tanh(X[:, 0])
    first[:200] = second[1900:] = 0.0
    trees = XGBClassifier(n_estimators=20, max_depth=3)
    options: Any = {"negative": "error", "seed": 0, "n_threads": 1}
    once = ContrastTrainer(trees, X, **options).fit(first, second)
    both = np.concatenate([X, X])
    n = len(X)
    twice = ContrastTrainer(trees, both, **options).fit(np.append(first, np.zeros(n)), np.append(np.zeros(n), second))
    np.testing.assert_allclose(once.signal_probability(X), twice.signal_probability(X), atol=2e-3)
    other = ContrastTrainer(LogisticRegression(), X, **options).fit(first, second)
    assert np.corrcoef(once.signal_probability(X), other.signal_probability(X))[0, 1] > 0.9


def test_sides_that_are_not_opposite_have_a_classifier_each(events: Events, tmp_path: Path) -> None:
    beside = replace(events, X=events.X + np.where(events.process == "Z", 1.0, 0.0)[:, None].astype(np.float32))
    further = replace(events, X=events.X + np.where(events.process == "Z", 1.2, 0.0)[:, None].astype(np.float32))
    model = small().fit(events, systematics={"bent": (beside, further)})
    assert len(model.shift_terms_["bent"]) == 4  # a prior for each side
    assert set(model.shift_models_[0]) >= {"bent", "bent (down)"}
    place = at((3.5, 2.5))
    up, down = (
        np.mean([m[k].signal_probability(place.X) for m in model.shift_models_]) for k in ("bent", "bent (down)")
    )
    assert min(up, down) > 0.55  # both bring Z there
    again = fivesigma.load(fivesigma.save(model, tmp_path / "model"))
    np.testing.assert_array_equal(again.decision_function(events), model.decision_function(events))


def test_parts_that_the_score_would_do_without_are_left_out(events: Events) -> None:
    heavier = {f"copy {k}": (np.where(events.process == "Z", 1 + 1e-3 * k, 1.0) * events.weight, None) for k in (8, 9)}
    model = small().fit(events, systematics={**Z, **heavier})
    assert "Z" not in model.left_out_
    assert set(model.left_out_) == set(heavier)
    assert set(model.shift_models_[0]) == {"Z"}
    alone = small().fit(events, systematics=Z)
    assert model.pulls_["Z"] == pytest.approx(alone.pulls_["Z"], rel=0.1)


@pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning")  # pyhf 0.7.6 uses it
def test_pyhf_finds_what_categories_of_the_score_quote(events: Events, fitted: ProfiledClassifier) -> None:
    workspace = pytest.importorskip("fivesigma.categories.workspace")
    pytest.importorskip("pyhf")
    moved = scored_variations(fitted, events.is_signal, {**Z, "shift": (shift(events, 0.1), shift(events, -0.1))})
    score = fitted.predict_proba(events)[:, 1]
    scored = ScoredEvents(score, events.is_signal, events.weight, process=events.process)
    best = categorise(scored, n_categories=6, systematics=moved, mc_statistics=False)
    theirs = workspace.discovery_significance(workspace.to_pyhf(best, best.shifts, staterror=False))
    assert theirs == pytest.approx(best.significance, rel=1e-6)


def test_a_cv_that_holds_events_out_twice_is_refused(events: Events) -> None:
    from sklearn.model_selection import RepeatedStratifiedKFold

    with pytest.raises(InputError, match="holds some events out twice"):
        small(cv=RepeatedStratifiedKFold(n_splits=2, n_repeats=2)).fit(events, systematics=Z)


def test_one_split_is_enough(events: Events) -> None:
    model = small(cv=0.4).fit(events, systematics={**Z, "shift": (shift(toy(1500, 3), 0.2), shift(toy(1500, 4), -0.2))})
    assert np.isnan(model.held_out_score_).sum() == 3600
    assert len(model.models_) == 1


def test_a_cut_at_the_sign_of_a_margin_is_refused(events: Events) -> None:
    with pytest.raises(InputError, match="cut='zero' is the sign of a margin"):
        small(cut="zero").fit(events, systematics=Z)


def test_bins_hold_enough_background() -> None:
    rng = np.random.default_rng(0)
    signal = np.repeat([True, False], [1000, 300])
    score, weight = rng.normal(3.0 * signal), rng.uniform(0.5, 2, 1300)
    edges = bin_edges(score, signal, weight)
    cell = np.searchsorted(edges, score, side="right") - 1
    first, second = (np.bincount(cell[~signal], weight[~signal] ** k, minlength=edges.size - 1) for k in (1, 2))
    assert (first[1:] ** 2 / second[1:] >= 25).all()
    assert edges.size > 3
