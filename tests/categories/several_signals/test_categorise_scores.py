"""Categories for several signals: what is found, what it is worth elsewhere, floors, files, workspaces, bad input."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fivesigma
from fivesigma import ScoreCategories, categorise_scores
from fivesigma._types import Array
from fivesigma.categories.class_sample import check_sample
from fivesigma.categories.several_signals import ascent, regions
from fivesigma.categories.several_signals.region_rules import ArgmaxRule, LinearRule
from fivesigma.categories.several_signals.regions import fit
from fivesigma.errors import InputError, StoreError
from tests.categories.several_signals.toys import PROCESSES, SIGNALS, Events, gaussians, significances

ROLES: dict[str, Any] = {"signals": SIGNALS, "processes": PROCESSES}


@pytest.fixture(scope="module")
def events() -> Events:
    return gaussians(scatter=0.3)


@pytest.fixture(scope="module")
def five(events: Events) -> ScoreCategories:
    return categorise_scores(*events, 5, **ROLES)


def test_significances_and_goal_are_those_of_the_assigned_events(five: ScoreCategories, events: Events) -> None:
    category = five.assign(events.scores)
    assert set(np.unique(category)) <= set(range(-1, 5))
    z = significances(category, events, 5)
    np.testing.assert_allclose([five.z["ggF"], five.z["VBF"]], z, rtol=1e-9)
    assert five.value == pytest.approx(np.sqrt(z.prod()), rel=1e-9)
    for name in PROCESSES:
        inside = [events.weight[(category == k) & (events.process == name)].sum() for k in range(5)]
        np.testing.assert_allclose(five.by_process[name].sum_of_weights, inside, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("goal", ["geometric", "sum", "minimum", lambda z: z[0] + 2 * z[1]])
@pytest.mark.parametrize("others", ["background", "ignore"])
def test_every_goal_is_the_goal_of_the_events(events: Events, goal: Any, others: str) -> None:
    found = categorise_scores(*events, 3, goal=goal, others=others, **ROLES)
    z = significances(found.assign(events.scores), events, 3, others)
    expected = {
        "geometric": np.sqrt(z.prod()),
        "sum": np.sqrt((z**2).sum()),
        "minimum": z.min(),
    }.get(goal, z[0] + 2 * z[1])
    assert found.value == pytest.approx(expected, rel=1e-9)
    assert found.value <= found.bound.value * 1.02
    assert found.bound.value <= found.bound.any_number * 1.05


@pytest.mark.parametrize("discard", [True, False])
@pytest.mark.parametrize("floor", [10.0, 60.0])
def test_floors_hold_for_the_events_of_every_record(discard: bool, floor: float) -> None:
    events = gaussians(n=6000, seed=2, scatter=1.0)
    found = categorise_scores(*events, 6, discard=discard, min_effective=floor, min_background=2.0, **ROLES)
    for record in (*found.path, found):
        category = record.assign(events.scores)
        assert discard or (category >= 0).all()
        for k in range(len(record)):
            w = events.weight[(category == k) & (events.process == "Z")]
            assert w.sum() >= 2.0 * (1 - 1e-9)
            assert w.sum() ** 2 / (w**2).sum() >= floor * (1 - 1e-9)
            assert record.effective_b[k] == pytest.approx(w.sum() ** 2 / (w**2).sum())


def test_a_category_is_split_where_the_floors_cannot_be_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    events = gaussians(n=4000, seed=2, scatter=1.0)
    settings = categorise_scores(*events, 1, **ROLES).settings
    sample = check_sample(*events, settings.roles)
    repair = ascent.repair_floors  # of cells as before; no rule is repaired for events
    monkeypatch.setattr(ascent, "repair_floors", lambda p, rows: repair(p, rows) if p.points.ratios.size else None)
    found = fit(sample, replace(settings, n_categories=8)).search
    monkeypatch.setattr(regions, "_split_once", lambda rule, problem: [])
    assert None in fit(sample, replace(settings, n_categories=8)).search
    for n, rule in enumerate(found, 1):
        assert rule is not None
        background = events.process == "Z"
        category, w = rule.assign(events.scores)[background], events.weight[background]
        for k in range(n):
            inside = w[category == k]
            assert inside.sum() ** 2 / np.square(inside).sum() >= 10 * (1 - 1e-9)


def test_signals_never_count_for_the_floor_and_floor_processes_choose() -> None:
    events = gaussians(n=4000, seed=3)
    rare = events.process.copy()
    rare[(rare == "Z") & (np.arange(rare.size) % 20 == 0)] = "W"  # 200 events
    found = categorise_scores(
        events.scores,
        rare,
        events.weight,
        3,
        signals=SIGNALS,
        processes=["ggF", "VBF", "Z"],
        floor_processes=["W"],
        min_effective=15,
    )
    category = found.assign(events.scores)
    for k in range(3):
        assert np.count_nonzero((category == k) & (rare == "W")) >= 15
    with pytest.raises(InputError, match="floor_processes has the signal 'ggF'; only background can count for a floor"):
        categorise_scores(*events, 3, floor_processes=["ggF"], **ROLES)


def test_path_has_the_record_of_every_smaller_number(five: ScoreCategories) -> None:
    assert [len(record) for record in five.path] == [1, 2, 3, 4]
    values = [record.value for record in (*five.path, five)]
    assert (np.diff(values) > 0).all()
    bounds = [record.bound.value for record in (*five.path, five)]
    assert (np.diff(bounds) >= 0).all()


def test_it_never_ends_below_the_simple_way_where_it_was_judged(five: ScoreCategories) -> None:
    for record in (*five.path, five):
        assert record.judged.search is not None
        assert record.judged.simple is not None
        assert record.way == ("search" if record.judged.search > record.judged.simple else "argmax")
        assert isinstance(record.region_rule, LinearRule if record.way == "search" else ArgmaxRule)


@pytest.mark.parametrize("goal", ["geometric", "sum", "minimum"])
@pytest.mark.parametrize(("seed", "others"), [(0, "background"), (1, "background"), (2, "ignore")])
def test_no_record_is_below_the_simple_way_on_the_other_half(goal: str, seed: int, others: str) -> None:
    """Both ways are fitted on each half here, and judged on the other by code of the test alone."""
    events = gaussians(n=600, seed=20 + seed, separation=1.0 + 0.5 * seed, scatter=0.5)
    found = categorise_scores(*events, 4, goal=goal, others=others, discard=seed != 1, **ROLES)
    settings = found.settings
    sample = check_sample(*events, settings.roles)
    halves = sample.halves()
    first = np.concatenate([np.flatnonzero(events.process == name)[::2] for name in PROCESSES])
    np.testing.assert_array_equal(halves[0].scores, events.scores[first])
    goals: Any = {"geometric": lambda z: np.sqrt(z.prod()), "sum": lambda z: np.sqrt((z**2).sum()), "minimum": np.min}
    judged = np.zeros((4, 2))
    for here, there in (halves, halves[::-1]):
        share = here.floor_count / sample.floor_count
        floors = replace(settings.floors, min_effective=settings.floors.min_effective * share)
        fitted = fit(here, replace(settings, floors=floors))
        rest = Events(there.scores, np.array(there.names)[there.process], there.weight)
        for k, ways in enumerate(zip(fitted.search, fitted.simple, strict=True)):
            for i, rule in enumerate(ways):
                z = np.nan if rule is None else significances(rule.assign(there.scores), rest, k + 1, others)
                judged[k, i] += np.nan if rule is None else goals[goal](z) / 2
    for record, (search, simple) in zip((*found.path, found), judged[-1 - len(found.path) :], strict=True):
        assert record.judged.how == "cross-fitted"
        for reported, own in ((record.judged.search, search), (record.judged.simple, simple)):
            assert np.isnan(own) if reported is None else reported == pytest.approx(own, rel=1e-9)
        if not np.isnan(search) and not np.isnan(simple):
            assert (search if record.way == "search" else simple) == max(search, simple)


def test_the_search_gains_on_other_events() -> None:
    tune, test = gaussians(n=20_000, seed=5), gaussians(n=200_000, seed=6)
    found = categorise_scores(*tune, 4, **ROLES)
    quoted = found.evaluate(*test)
    assert quoted.held_out
    assert quoted.path == ()
    assert quoted.value == pytest.approx(found.value, rel=0.05)
    largest = test.scores.argmax(axis=1)
    plain = np.sqrt(significances(np.where(largest < 2, largest, -1), test, 2).prod())
    assert quoted.value > 1.1 * plain


def test_wrong_scores_are_calibrated() -> None:
    tune, test = gaussians(n=20_000, seed=7), gaussians(n=100_000, seed=8)

    def distorted(events: Events) -> Array:
        p = events.scores**0.4 * np.array([1.0, 5.0, 30.0])
        return np.asarray(p / p.sum(axis=1, keepdims=True))

    exact = categorise_scores(*tune, 4, **ROLES).evaluate(*test).value
    found = [
        categorise_scores(distorted(tune), *tune[1:], 4, calibrate=calibrate, **ROLES)
        .evaluate(distorted(test), *test[1:])
        .value
        for calibrate in (True, False)
    ]
    assert found[0] == pytest.approx(exact, rel=0.01)
    assert found[0] > found[1]


def test_a_prior_is_as_good_as_the_one_that_is_found() -> None:
    events = gaussians(n=5000, seed=9)
    shares = np.array([0.1, 0.1, 0.8])
    p = events.scores * shares
    p /= p.sum(axis=1, keepdims=True)
    right = categorise_scores(*events, 3, calibrate=False, prior=[1, 1, 1], **ROLES)
    given = categorise_scores(p, *events[1:], 3, calibrate=False, prior=shares, **ROLES)
    assert np.mean(right.assign(events.scores) != given.assign(p)) < 1e-3  # rounding moves events at an edge
    guessed = categorise_scores(p, *events[1:], 3, calibrate=False, **ROLES)
    assert guessed.value == pytest.approx(right.value, rel=0.02)


def test_one_signal_has_exact_intervals_of_the_calibrated_ratio() -> None:
    events = gaussians(n=4000, seed=10)
    keep = events.process != "VBF"
    scores, process, weight = events.scores[keep], events.process[keep], events.weight[keep]
    process = np.where((process == "Z") & (np.arange(process.size) % 2 == 0), "W", process)
    found = categorise_scores(
        scores, process, weight, 3, signals=["ggF"], processes=["ggF", "W", "Z"], min_effective=10
    )
    rule = found.region_rule
    if isinstance(rule, LinearRule):
        ratio = rule.ratios.of(scores)[:, 0]
        category = found.assign(scores)
        order = np.argsort(ratio)
        assert (np.diff(category[order]) >= 0).all()
        exact = fivesigma.categorise(ratio, process == "ggF", weight, 3, rule="peak")
        assert found.value == pytest.approx(exact.significance, rel=1e-3)


def test_the_same_events_give_the_same_categories(five: ScoreCategories, events: Events) -> None:
    again = categorise_scores(*events, 5, **ROLES)
    np.testing.assert_array_equal(again.assign(events.scores), five.assign(events.scores))
    assert repr(again) == repr(five)


def test_negative_weights_and_three_signals() -> None:
    rng = np.random.default_rng(0)
    n = 4000
    means = 1.5 * np.concatenate([np.eye(3), np.zeros((1, 3))])
    x = np.concatenate([rng.normal(mean, size=(n, 3)) for mean in means])
    logs = x @ means.T - (means**2).sum(axis=1) / 2
    scores = np.exp(logs) / np.exp(logs).sum(axis=1, keepdims=True)
    process = np.repeat(["a", "b", "c", "z"], n)
    weight = np.repeat([30.0 / n, 20.0 / n, 10.0 / n, 3000.0 / n], n) * rng.choice(
        [1.0, -0.2], p=[0.9, 0.1], size=4 * n
    )
    found = categorise_scores(scores, process, weight, 6, signals=["a", "b", "c"], processes=["a", "b", "c", "z"])
    assert set(found.z) == {"a", "b", "c"}
    assert (found.effective_b >= 10).all()
    assert found.value > found.path[0].value


@pytest.mark.parametrize("way", ["search", "argmax"])
def test_saved_and_loaded(events: Events, five: ScoreCategories, tmp_path: Path, way: str) -> None:
    record = next(r for r in (five, *five.path) if r.way == "search")
    if way == "argmax":
        record = next((r for r in (five, *five.path) if r.way == way), None) or _simple(events)
    again = fivesigma.load(fivesigma.save(record, tmp_path / "categories"))
    assert repr(again) == repr(record)
    assert [len(r) for r in again.path] == [len(r) for r in record.path]
    np.testing.assert_array_equal(again.assign(events.scores), record.assign(events.scores))
    assert again.evaluate(*events).value == pytest.approx(record.value, rel=1e-12)


def _simple(events: Events) -> ScoreCategories:
    """A record of the simple way."""
    searched = categorise_scores(*events, 3, **ROLES)
    sample = check_sample(*events, searched.settings.roles)
    rule = fit(sample, searched.settings).simple[-1]
    assert rule is not None
    return replace(searched, region_rule=rule, path=()).evaluate(*events)


def test_goals_that_cannot_be_saved(events: Events, tmp_path: Path) -> None:
    by_function = categorise_scores(*events, 2, goal=lambda z: z.sum(), **ROLES)
    with pytest.raises(StoreError, match="a file holds no code"):
        fivesigma.save(by_function, tmp_path / "function")
    assert not (tmp_path / "function").exists()


@pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning")  # pyhf 0.7.6 uses it
def test_pyhf_has_one_strength_per_signal_and_agrees(five: ScoreCategories) -> None:
    pyhf = pytest.importorskip("pyhf")
    workspace = pyhf.Workspace(five.to_pyhf(staterror=False))
    assert [m["name"] for m in workspace["measurements"]] == ["discovery of ggF", "discovery of VBF"]
    for name in SIGNALS:
        model = workspace.model(measurement_name=f"discovery of {name}")
        assert set(model.config.par_order) == {"mu_ggF", "mu_VBF"}
        start = [1.0, 1.0]
        fixed = [parameter != f"mu_{name}" for parameter in model.config.par_order]
        bounds = model.config.suggested_bounds()
        q0 = pyhf.infer.test_statistics.q0(0.0, model.expected_data(start), model, start, bounds, fixed)
        assert float(q0) ** 0.5 == pytest.approx(five.z[name], abs=1e-3)
    assert "staterror" in json.dumps(five.to_pyhf())
    with pytest.raises(InputError, match=r"data has shape \(3,\) for 5 categories"):
        five.to_pyhf(data=[1, 2, 3])
    with pytest.raises(InputError, match=r"data must be finite and >= 0, got \[-1"):
        five.to_pyhf(data=[-1, 2, 3, 4, 5])
    with pytest.raises(InputError, match=r"data must be numbers of events, got \['many'\]"):
        five.to_pyhf(data=["many"])


def test_plot_shows_every_large_region(five: ScoreCategories, events: Events) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    fig, ax = plt.subplots()
    five.plot(ax, scores=events.scores)
    assert ax.get_xlabel() == "log(p(ggF) / p(background))"
    labels = {text.get_text() for text in ax.texts}
    assert labels <= {"discarded", *map(str, range(5))}
    assert len(labels) >= 4
    five.plot(ax, experiment="Toy", luminosity=3.0)
    assert {"Toy", "Simulation"} <= {text.get_text() for text in ax.texts}
    with pytest.raises(InputError, match=r"no signal is called 'ggf'; did you mean 'ggF'\?"):
        five.plot(ax, axes=("ggf", "VBF"))
    plt.close(fig)


def test_other_events_may_be_scaled_to_full_yields(five: ScoreCategories, events: Events) -> None:
    half = Events(*(column[::2] for column in events))
    full = {name: float(events.weight[events.process == name].sum()) for name in PROCESSES}
    scaled = five.evaluate(*half, yields=full)
    assert scaled.value == pytest.approx(five.value, rel=0.15)
    assert scaled.value > 1.2 * five.evaluate(*half).value
    with pytest.raises(InputError, match="yields has 'zz', of which there are no events"):
        five.evaluate(*half, yields={"zz": 1.0})


def test_scores_that_tell_nothing_still_give_one_category() -> None:
    events = gaussians(n=500)
    alike = np.full_like(events.scores, 1 / 3)
    one = categorise_scores(alike, *events[1:], 1, **ROLES)
    assert (one.assign(alike) == 0).all()
    with pytest.raises(InputError, match=r"2 categories do not fit: .* 1 is the most that was found"):
        categorise_scores(alike, *events[1:], 2, **ROLES)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"scores": lambda e: e.scores * 0.5}, "scores does not sum to one in 9000 of 9000 rows"),
        ({"scores": lambda e: -e.scores}, "scores is negative in 9000 of 9000 rows"),
        ({"scores": lambda e: e.scores * np.nan}, "scores is NaN or infinite in 9000 of 9000 rows"),
        ({"scores": lambda e: e.scores[:, :2]}, r"scores has shape \(9000, 2\); 3 processes need shape"),
        ({"scores": lambda e: e.scores[:0]}, "scores is empty"),
        ({"scores": lambda e: [["a"] * 3]}, "scores must be numbers"),
        ({"process": lambda e: e.process[1:]}, r"process has shape \(8999,\) for 9000 events"),
        ({"process": lambda e: np.where(e.process == "VBF", "Z", e.process)}, "process 'VBF' has no events"),
        ({"sample_weight": lambda e: e.weight * np.nan}, "sample_weight is NaN or infinite"),
        ({"sample_weight": lambda e: e.weight[1:]}, "sample_weight has 8999 entries for 9000 events"),
        ({"sample_weight": lambda e: np.where(e.process == "ggF", -1.0, 1.0)}, "the weights of signal 'ggF' sum to"),
        ({"sample_weight": lambda e: np.where(e.process == "Z", -1.0, 1.0)}, "the weights of the background sum to"),
        ({"signals": lambda e: ["ggH", "VBF"]}, "signal 'ggH' is not a process; processes are 'ggF', 'VBF', 'Z'"),
        ({"signals": lambda e: []}, "signals is empty"),
        ({"signals": lambda e: ["ggF", "ggF"]}, "signals has 'ggF' twice"),
        ({"signals": lambda e: PROCESSES}, "every process is a signal"),
        ({"n_categories": lambda e: 0}, "n_categories must be a whole number from 1, got 0"),
        ({"n_categories": lambda e: 2.5}, "n_categories must be a whole number from 1, got 2.5"),
        ({"goal": lambda e: "geometry"}, "goal must be one of .* got 'geometry'; did you mean 'geometric'"),
        ({"others": lambda e: "noise"}, "others must be one of 'background', 'ignore', got 'noise'"),
        ({"prior": lambda e: [1.0, 2.0]}, r"prior has shape \(2,\); it needs one share for each of 3 processes"),
        ({"prior": lambda e: [1.0, 2.0, 0.0]}, "prior must be finite and > 0"),
        ({"n_categories": lambda e: "2"}, "n_categories must be a whole number from 1, got '2'"),
        ({"signals": lambda e: "ggF"}, "signals must be a list of names, got 'ggF'"),
        ({"floor_processes": lambda e: "Z"}, "floor_processes must be a list of names, got 'Z'"),
        ({"floor_processes": lambda e: []}, "floor_processes is empty; name at least one background"),
        ({"goal": lambda e: lambda z: "high"}, "goal must give a finite number for an array of Z, got 'high'"),
        ({"goal": lambda e: lambda z: z}, "goal must give a finite number for an array of Z, got array"),
        ({"goal": lambda e: lambda z: np.nan}, "goal must give a finite number for an array of Z, got nan"),
        ({"goal": lambda e: lambda z: -z.sum()}, "goal must increase with the Z; it gives -2 for Z of one and -4 for"),
        ({"goal": lambda e: lambda z: 1}, "goal must increase with the Z; it gives 1 for Z of one and 1 for Z of two"),
        ({"signals": lambda e: None}, "signals must be a list of names, got None"),
        ({"prior": lambda e: "flat"}, "prior must be numbers, got 'flat'"),
        ({"min_background": lambda e: "all"}, "min_background must be finite and >= 0, got 'all'"),
        ({"min_effective": lambda e: -1.0}, "min_effective must be finite and >= 0, got -1.0"),
        ({"floor_processes": lambda e: ["tt"]}, "floor_processes has 'tt', of which there are no events"),
        ({"utility": lambda e: fivesigma.RelativeBackground(0.1)}, "cannot be used here"),
        (
            {"min_effective": lambda e: 900.0, "n_categories": lambda e: 8},
            "8 categories do not fit: each needs b > 0 and an effective background count of at least 900, and [1-3] ",
        ),
    ],
)
def test_bad_input_gets_one_sentence(change: dict[str, Any], sentence: str) -> None:
    events = gaussians()
    arguments: dict[str, Any] = {
        "scores": events.scores,
        "process": events.process,
        "sample_weight": events.weight,
        "n_categories": 2,
        **ROLES,
    }
    arguments |= {name: make(events) for name, make in change.items()}
    with pytest.raises(InputError, match=sentence) as caught:
        categorise_scores(**arguments)
    assert "\n" not in str(caught.value)
