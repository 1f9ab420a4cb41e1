"""Categories and cuts that know the systematics: the search against brute force, the certificate, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.studies.scan_systematics import simulate, variations
from benchmarks.studies.systematic_categories import (
    brute_force,
    expected,
    gaussian_systematics,
    gaussians,
    random_cells,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import fivesigma
from fivesigma import AMS2, AMS3, GaussianBackground, Normalisation, RelativeBackground, Varied, scan, yield_shifts
from fivesigma._types import Array, IntArray
from fivesigma.categories import Categories
from fivesigma.categories.one_score.dual import search
from fivesigma.categories.one_score.exact import average_yields, candidate_cuts, grid_of
from fivesigma.categories.one_score.profiled_cells import make_cells
from fivesigma.categories.workspace import discovery_significance, to_pyhf
from fivesigma.cut.ranking import rank_events
from fivesigma.errors import InputError, SmallSampleWarning
from fivesigma.likelihood.shifts import Systematics
from fivesigma.scored.scored_events import as_scored

_UNCERTAIN = (GaussianBackground, RelativeBackground)
Events = tuple[Array, IntArray, Array]


def categorise(*given: Any, **options: Any) -> Categories:
    """Edges of the events as they are where nothing is uncertain; no statistics of the simulation by default."""
    certain = options.get("systematics") is None and not any(isinstance(each, _UNCERTAIN) for each in given)
    defaults: dict[str, Any] = {"rule": "peak" if certain else "model", "mc_statistics": False}
    return fivesigma.categorise(*given, **defaults | options)


def events(n: int = 8_000, seed: int = 0) -> tuple[Events, Array, Systematics]:
    """Two Gaussians with three backgrounds and systematics of which one bends."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    process = np.where(y == 1, "H", np.where(np.arange(n) % 4 == 0, "Z", "ttbar"))
    score = rng.normal(1.5 * y)
    weight = np.where(y == 1, 100.0, 8_000.0) * 2 / n * rng.gamma(8.0, size=n) / 8
    ttbar = np.where(process == "ttbar", 1.1, 1.0)
    systematics: Systematics = {
        "scale": (Varied(score=score + 0.06), Varied(score=score - 0.04)),
        "ttbar": (Varied(weight=ttbar * weight), None),
    }
    return (score, y, weight), process, systematics


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 100_000), st.integers(1, 3), st.integers(1, 3))
def test_the_bound_holds_and_the_optimum_is_found(seed: int, k: int, n_systematics: int) -> None:
    cells = random_cells(np.random.default_rng(seed), {1: 40, 2: 22, 3: 14}[k], n_systematics)
    found = search(cells, k)
    best = brute_force(cells, k, found.theta)
    value, bound = np.sqrt(2 * np.array([found.objective, found.bound]))
    assert bound >= best - 1e-7
    assert value >= best - 0.01
    assert value <= bound


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 100_000), st.integers(4, 9), st.integers(1, 3))
def test_no_partition_exceeds_the_bound(seed: int, k: int, n_systematics: int) -> None:
    rng = np.random.default_rng(seed)
    cells = random_cells(rng, 60, n_systematics)
    found = search(cells, k)
    some = np.sort([rng.choice(60, k, replace=False) + 1 for _ in range(200)], axis=1)
    assert cells.between(some).profile(found.theta).objective.max() <= found.bound * (1 + 1e-9)
    # Near the optimum too.
    near = np.clip(found.edges + rng.integers(-1, 2, (200, k)), 1, 60)
    near = near[(np.diff(near, axis=1) > 0).all(axis=1)]
    assert cells.between(near).profile(found.theta).objective.max() <= found.bound * (1 + 1e-9)


@pytest.mark.parametrize("k", [10, 20])
def test_the_gap_closes_with_many_categories(k: int) -> None:
    for seed in range(3):
        sample = gaussians(seed)
        found = categorise(*sample.events, k, systematics=gaussian_systematics(sample))
        assert found.gap is not None
        assert 0 <= found.gap < 0.01


def test_the_gap_closes_where_two_systematics_are_nearly_one() -> None:
    """A shift of a Gaussian score is a tilt: together they give the likelihood a valley with two minima."""
    rng = np.random.default_rng(0)
    y = np.arange(100_000) % 2
    score = rng.normal(1.5 * y)
    weight = np.where(y == 1, 692.0, 411_000.0) * 2 / y.size
    tilt = [Varied(weight=np.where(y == 0, 1 + c * score, 1.0) * weight) for c in (0.05, -0.04)]
    systematics: Systematics = {
        "scale": (Varied(score=score + 0.05), Varied(score=score - 0.05)),
        "tilt": (tilt[0], tilt[1]),
    }
    found = categorise(score, y, weight, 10, systematics=systematics)
    assert found.gap is not None
    assert found.gap < 0.01


def test_edges_that_know_are_better_on_other_events() -> None:
    gains: dict[int, list[float]] = {1: [], 5: [], 10: []}
    for seed in range(100, 104):
        sample = gaussians(seed)
        for k, gain in gains.items():
            knowing = categorise(*sample.events, k, systematics=gaussian_systematics(sample))
            naive = categorise(*sample.events, k, rule="model")
            gain.append(expected(knowing.edges) - expected(naive.edges))
    assert min(map(min, gains.values())) > 0.1


def test_the_quoted_value_is_that_of_the_events_as_they_are() -> None:
    sample, process, systematics = events()
    found = categorise(*sample, 5, systematics=systematics, process=process)
    shifts = yield_shifts(found.edges, *sample, systematics, process=process)
    assert found.shifts is not None
    assert found.significance == pytest.approx(shifts.significance, rel=1e-9)
    for name, by_process in shifts.up.items():
        for key, values in by_process.items():
            np.testing.assert_allclose(found.shifts.up[name][key], values, rtol=1e-9)
            np.testing.assert_allclose(found.shifts.down[name][key], shifts.down[name][key], rtol=1e-9)
    assert found.rule == "model"
    assert found.effective_b.min() >= 25 * (1 - 1e-9)
    assert found.significance < found.known_background == pytest.approx(shifts.known_background)
    assert set(found.pulls) == {"scale", "ttbar"}
    text = repr(found)
    assert "profiled over scale, ttbar" in text
    assert f"{found.bound:.4f}" in text


def test_bound_and_gap_compare_like_with_like() -> None:
    sample, process, systematics = events()
    peak = categorise(*sample, 4, systematics=systematics, process=process, rule="peak")
    assert peak.bound is not None
    assert peak.gap is not None
    assert peak.bound - peak.gap == pytest.approx(peak.significance, rel=1e-6)
    smooth = categorise(*sample, 4, systematics=systematics, process=process)
    ranking = rank_events(*as_scored(*sample).arrays())
    cuts = candidate_cuts(ranking, 512)
    grid = average_yields(grid_of(ranking, cuts))
    fine = np.append(np.append(-np.inf, ranking.thresholds(cuts[:-1])[::-1]), np.inf)
    cells = make_cells(grid, yield_shifts(fine, *sample, systematics, process=process), smooth.floors, AMS2())
    chosen = np.searchsorted(-fine[::-1], -smooth.edges[:-1])[::-1]
    value = float(np.sqrt(2 * cells.between(chosen).lowest().objective))
    assert smooth.bound is not None
    assert smooth.gap is not None
    assert smooth.bound - smooth.gap == pytest.approx(value, rel=1e-6)
    assert smooth.significance <= peak.significance + peak.gap + 1e-9
    plain = categorise(*sample, 4)
    assert plain.gap == 0
    assert plain.bound == pytest.approx(plain.significance)
    assert smooth.evaluate(*sample, process=process, systematics=systematics).bound is None


def test_without_effect_it_is_the_search_without_systematics() -> None:
    """A systematic that moves nothing is said, and the edges are those of the sum over categories."""
    sample, _, _ = events(500)
    nothing: Systematics = {"nothing": (Varied(), None)}
    found = categorise(*sample, 4, systematics=nothing, rule="peak", min_effective=10)
    assert found.notes == ("systematic 'nothing' is identical to the nominal events: it changes nothing",)
    plain = categorise(*sample, 4)
    assert found.edges.tolist() == plain.edges.tolist()
    assert found.significance == pytest.approx(plain.significance, rel=1e-9)
    said = ("systematic 'nothing' moves no background: it does not change the discovery significance",)
    assert scan(*sample, systematics=nothing).notes == said


def test_evaluate_needs_the_variations_of_its_events() -> None:
    sample, process, systematics = events()
    found = categorise(*sample, 3, systematics=systematics, process=process)
    with pytest.raises(InputError, match=r"chosen with the systematics scale, ttbar: give systematics="):
        found.evaluate(*sample, process=process)
    again = found.evaluate(*sample, process=process, systematics=systematics)
    assert again.held_out
    assert again.significance == pytest.approx(found.significance, rel=1e-9)
    assert found.evaluate(*sample, process=process, systematics={}).significance == pytest.approx(
        found.known_background
    )
    twice = found.evaluate(*sample, yields=(200.0, 16_000.0), process=process, systematics=systematics)
    assert twice.shifts is not None
    assert found.shifts is not None
    before, after = (c.shifts.background_shifts()[1][0] / c.b for c in (found, twice) if c.shifts is not None)
    np.testing.assert_allclose(after, before)


def test_an_interval_says_what_speaks_against_it() -> None:
    sample, process, systematics = events()
    found = categorise(*sample, 3, systematics=systematics, process=process)
    assert "these events chose the edges" in found.interval(n_boot=5).note
    other = found.evaluate(*sample, systematics=systematics, process=process)
    assert "their noise passes for a shape" in other.interval(n_boot=5).note
    known = found.evaluate(*sample, systematics=systematics, process=process, mc_statistics=True)
    assert not known.interval(n_boot=5).note  # the noise of the shifts is in its lower end
    assert not found.evaluate(*sample, systematics={}, process=process).interval(n_boot=5).note
    scaled = {"norm": Normalisation("ttbar", 0.1)}
    assert not found.evaluate(*sample, systematics=scaled, process=process).interval(n_boot=5).note


def test_few_varied_events_are_said() -> None:
    """Scores that move by their own resolution carry noise across the edges; other weights of the events do not."""
    rng = np.random.default_rng(0)
    sample = simulate(2_000, rng)
    given = variations(sample, "same events", rng)
    assert given is not None
    scored = sample.score, sample.process == "signal", sample.weight
    for names, wanted in ((["scale", "ttbar"], True), (["ttbar"], False)):
        systematics = {name: given[name] for name in names}
        found = categorise(*scored, 4, systematics=systematics, mc_statistics=True)
        found = found.evaluate(*scored, systematics=systematics)
        assert any("takes the shifts as exact" in note for note in found.notes) is wanted
        low, high = np.nanquantile(found.replicas(60), (0.16, 0.84))
        interval = found.interval(n_boot=60).significance
        assert interval[1] == pytest.approx(high, abs=0.05)  # other replicas, by the blocks of other cuts
        assert bool(interval[0] < low - 0.1) is wanted


def test_intervals_hold_the_significance() -> None:
    sample, process, systematics = events()
    found = categorise(*sample, 3, systematics=systematics, process=process)
    low, high = found.interval(n_boot=60).significance
    assert low < found.significance < high
    own = categorise(*sample, 3, RelativeBackground(0.1))
    low, high = own.interval(n_boot=40).significance
    assert low < own.significance < high
    scanned = scan(*sample, systematics=systematics, process=process)
    low, high = scanned.interval(n_boot=100).significance
    assert low < scanned.significance < high


def test_statistics_of_the_simulation() -> None:
    sample, process, systematics = events(2_000)
    found = categorise(*sample, 4, systematics=systematics, process=process)
    quoted = categorise(*sample, 4, systematics=systematics, process=process, mc_statistics=True)
    assert quoted.edges.tolist() == found.edges.tolist()
    assert quoted.significance < found.significance
    assert found.evaluate(*sample, process=process, systematics=systematics, mc_statistics=True).significance == (
        pytest.approx(quoted.significance)
    )
    alone = categorise(*sample, 4, mc_statistics=True)
    assert alone.edges.tolist() == categorise(*sample, 4).edges.tolist()
    assert alone.significance < alone.known_background


@pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning")
@pytest.mark.parametrize("mc_statistics", [False, True])
@pytest.mark.parametrize("k", [1, 5])
def test_pyhf_finds_the_quoted_value(k: int, mc_statistics: bool) -> None:
    pytest.importorskip("pyhf")
    sample, process, systematics = events(4_000)
    found = categorise(*sample, k, systematics=systematics, process=process, mc_statistics=mc_statistics)
    workspace = to_pyhf(found, staterror=mc_statistics)
    kinds = {m["type"] for s in workspace["channels"][0]["samples"] for m in s["modifiers"]}
    assert kinds == {"normfactor", "histosys"} | ({"staterror"} if mc_statistics else set())
    assert discovery_significance(workspace, found.pulls) == pytest.approx(found.significance, abs=1e-6)


def test_the_waterfall_falls_to_what_a_fit_finds() -> None:
    sample, process, systematics = events(4_000)
    found = categorise(*sample, 4, systematics=systematics, process=process, mc_statistics=True)
    assert found.shifts is not None
    steps = found.shifts.waterfall()
    names, values = zip(*steps, strict=True)
    assert names[0] == "known background"
    assert set(names[1:-1]) == {"scale", "ttbar"}
    assert names[-1] == "simulation"
    assert (np.diff(values) < 0).all()
    assert values[0] == pytest.approx(found.known_background)
    assert values[-1] == pytest.approx(found.significance)
    costs = [
        values[0] - yield_shifts(found.edges, *sample, {name: systematics[name]}).significance for name in names[1:3]
    ]
    assert costs[0] > costs[1]


def test_auto_takes_the_fewest_categories_within_an_error_of_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fivesigma.categories.one_score.search.MAX_AUTO", 6)
    sample, process, systematics = events()
    auto = categorise(*sample, "auto", systematics=systematics, process=process)
    trials = [categorise(*sample, k, systematics=systematics, process=process) for k in range(1, 7)]
    assert auto.edges.tolist() == trials[len(auto) - 1].edges.tolist()
    z, replicas = (np.array(v) for v in zip(*((t.significance, t.replicas(100, 0)) for t in trials), strict=True))
    within = z.max() - z <= (replicas[z.argmax()] - replicas).std(axis=1)
    assert within[len(auto) - 1]
    assert not within[: len(auto) - 1].any()
    assert len(auto) > 1
    quoted = categorise(*sample, "auto", systematics=systematics, process=process, mc_statistics=True)
    assert quoted.edges.tolist() == auto.edges.tolist()
    assert quoted.significance < auto.significance


def test_auto_takes_statistics_of_the_simulation_and_utilities_of_their_own() -> None:
    sample, _, _ = events()
    plain, quoted = (categorise(*sample, mc_statistics=mc) for mc in (False, True))
    assert quoted.edges.tolist() == plain.edges.tolist()
    assert quoted.significance < plain.significance
    own = categorise(*sample, "auto", RelativeBackground(0.1))
    assert len(own) > 1
    assert own.significance > categorise(*sample, 1, RelativeBackground(0.1)).significance


def test_staterror_is_on_the_signal_only_if_asked() -> None:
    sample, process, _ = events(4_000)
    found = categorise(*sample, 2, process=process)
    for asked in (False, True):
        samples = to_pyhf(found, signal_staterror=asked)["channels"][0]["samples"]
        with_error = {s["name"] for s in samples if any(m["type"] == "staterror" for m in s["modifiers"])}
        assert with_error == {"Z", "ttbar"} | ({"H"} if asked else set())


def test_a_hundred_systematics() -> None:
    (score, y, weight), _, _ = events(6_000)
    rng = np.random.default_rng(0)
    waves = rng.normal(0, 0.02, (100, 3))
    systematics: Systematics = {
        f"wave {i}": (Varied(weight=np.where(y == 0, 1 + a * np.sin(score + 9 * c) + d, 1.0) * weight), None)
        for i, (a, c, d) in enumerate(waves)
    }
    found = categorise(score, y, weight, 5, systematics=systematics)
    assert len(found.pulls) == 100
    assert found.gap is not None
    assert found.gap < 0.05
    naive = categorise(score, y, weight, 5, rule="model", min_effective=25)
    assert found.significance >= naive.evaluate(score, y, weight, systematics=systematics).significance - 0.02


def test_a_sample_of_its_own() -> None:
    """Other events, of some of the processes; the others are as they were."""
    sample, process, _ = events(8_000)
    other, other_process, _ = events(6_000, seed=5)
    some = other_process == "ttbar"
    own = Varied(score=other[0][some] + 0.1, weight=other[2][some], y=other[1][some], process=other_process[some])
    shifts = yield_shifts([0.0, 1.0, np.inf], *sample, {"generator": (own, None)}, process=process)
    for name in ("H", "Z"):
        np.testing.assert_array_equal(shifts.up["generator"][name], shifts.nominal[name].sum_of_weights)
    category = np.digitize(other[0][some] + 0.1, [0.0, 1.0]) - 1
    expected = [other[2][some][category == i].sum() for i in (0, 1)]
    np.testing.assert_allclose(shifts.up["generator"]["ttbar"], expected)
    found = categorise(*sample, 3, systematics={"generator": (own, None)}, process=process)
    again = yield_shifts(found.edges, *sample, {"generator": (own, None)}, process=process)
    assert found.significance == pytest.approx(again.significance)
    cut = scan(*sample, rule="peak", systematics={"generator": (own, None)}, process=process, mc_statistics=False)
    at_cut = yield_shifts([cut.cut, np.inf], *sample, {"generator": (own, None)}, process=process)
    assert cut.significance == pytest.approx(at_cut.significance, rel=1e-9)


@pytest.mark.parametrize("utility", [AMS2(), AMS2(b_reg=5.0), GaussianBackground(20.0), RelativeBackground(0.05, 3.0)])
def test_one_category_is_the_peak_of_the_scan(utility: AMS2) -> None:
    sample, process, systematics = events(500)
    given: Any = {"systematics": systematics, "process": process, "rule": "peak", "mc_statistics": False}
    one = categorise(*sample, 1, utility, 0, 10, **given)
    cut = scan(*sample, utility, min_effective=10, **given)
    assert one.edges[0] == cut.cut
    assert one.significance == pytest.approx(cut.significance, rel=1e-9)
    at_cut = yield_shifts([cut.cut, np.inf], *sample, systematics, process=process)
    if utility == AMS2():
        assert cut.significance == pytest.approx(at_cut.significance, rel=1e-9)
        assert cut.known_background == pytest.approx(at_cut.known_background)
    assert cut.significance < cut.known_background


def test_the_curve_is_the_profile_of_every_cut() -> None:
    sample, process, systematics = events(900)
    found = scan(*sample, rule="peak", systematics=systematics, process=process, mc_statistics=False)
    naive = scan(*sample)
    assert found.systematics == ("scale", "ttbar")
    assert found.curve.cut.tolist() == naive.curve.cut.tolist()
    for i in np.flatnonzero(np.isfinite(found.curve.significance))[::90]:
        shifts = yield_shifts([found.curve.cut[i], np.inf], *sample, systematics, process=process)
        assert found.curve.significance[i] == pytest.approx(shifts.significance, rel=1e-9)
    assert found.significance > yield_shifts([naive.cut, np.inf], *sample, systematics, process=process).significance
    plt = pytest.importorskip("matplotlib.pyplot")
    _, ax = plt.subplots()
    labels = [line.get_label() for line in found.plot(ax).get_lines()]
    assert "if the background were known" in labels
    plt.close()


def wrong_variations() -> list[tuple[Systematics, str]]:
    (score, y, weight), process, _ = events(200)
    own = {"score": score, "weight": weight, "y": y}
    bad = np.where(np.arange(200) == 3, np.nan, 1.0)
    return [
        ({"x": (Varied(score=bad * score), None)}, "x up score must be 200 numbers"),
        ({"x": (Varied(), Varied(weight=bad * weight))}, "x down: sample_weight is NaN or infinite in 1 of 200 rows"),
        ({"x": (Varied(weight=3.5 * weight), None)}, "x up moves the background from .* by more than itself"),
        ({"x": (Varied(y=y, score=score), None)}, "x up has y, so it is a sample of its own: give its score and"),
        ({"x": (Varied(process=process), None)}, "x up has process but no y"),
        ({"x": (Varied(**own), None)}, "x up has no process, which the nominal events have"),
        ({"x": (Varied(**own, process=np.where(y == 1, "H", "WW")), None)}, "x up has the process 'WW', which the"),
        ({"x": (Varied(**own, process=np.where(y == 1, "Z", "H")), None)}, "x up has the process 'H' as signal or"),
        ({"x": (Varied(**{**own, "y": y + 1}, process=process), None)}, "x up y has the label 2; the nominal events"),
    ]


@pytest.mark.parametrize("case", range(9))
def test_wrong_variations_are_answered_in_a_sentence(case: int) -> None:
    sample, process, _ = events(200)
    systematics, sentence = wrong_variations()[case]
    with pytest.raises(InputError, match=sentence):
        categorise(*sample, 1, systematics=systematics, process=process)
    with pytest.raises(InputError, match=sentence):
        scan(*sample, systematics=systematics, process=process, min_effective=1)


def test_what_cannot_be_profiled_is_refused() -> None:
    sample, _, _ = events(400)
    nothing: Systematics = {"x": (Varied(), None)}
    with pytest.raises(InputError, match="systematics need utility AMS2, GaussianBackground or RelativeBackground"):
        categorise(*sample, 2, AMS3(), systematics=nothing)
    with pytest.raises(InputError, match="systematics need utility AMS2"):
        scan(*sample, AMS3(), systematics=nothing)
    with pytest.raises(InputError, match="50 categories do not fit"):
        categorise(*sample, 50, systematics=nothing)


def test_one_heavy_signal_event_is_said() -> None:
    (score, y, weight), _, _ = events()
    weight = weight.copy()
    weight[np.flatnonzero(y == 1)[0]] = 1e4
    with pytest.warns(SmallSampleWarning, match="effective signal events: a few heavy ones make its signal"):
        categorise(score, y, weight, 4)


def test_a_variation_without_most_of_its_events_is_said() -> None:
    (score, y, weight), process, _ = events()
    kept = np.arange(score.size) % 25 < 8
    few = Varied(score=score[kept], weight=weight[kept], y=y[kept], process=process[kept])
    found = categorise(score, y, weight, 3, systematics={"lost": (few, None)}, process=process)
    assert any("lost up moves the yield of" in note and "missing" in note for note in found.notes)
