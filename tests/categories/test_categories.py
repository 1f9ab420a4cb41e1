"""Exact categories: against brute force, against the scan, and within their limits."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from benchmarks.peers.gato_comparison import evaluate, expected_significance, gaussians
from benchmarks.studies.systematics import expected_events
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

import fivesigma
from fivesigma import (
    AMS2,
    AMS3,
    FDivergence,
    GaussianBackground,
    OnOff,
    RelativeBackground,
    SOverRootSB,
    Utility,
    profiled_significance,
    scan,
)
from fivesigma._types import Array, IntArray
from fivesigma.categories import Categories
from fivesigma.categories.floors import Floors
from fivesigma.categories.one_score.exact import MAX_EDGES, average_yields, best_totals, candidate_cuts, grid_of
from fivesigma.cut.ranking import rank_events
from fivesigma.errors import InputError, SmallSampleWarning
from fivesigma.scored.scored_events import as_scored


def categorise(*given: Any, **options: Any) -> Categories:
    """Exact edges of the events as they are, quoted without the statistics of the simulation, unless a test says so."""
    defaults: dict[str, Any] = {"rule": "peak", "mc_statistics": False}
    return fivesigma.categorise(*given, **defaults | options)


HOMOGENEOUS = [AMS2(), AMS3(), SOverRootSB(), OnOff(tau=2.0)]
UTILITIES = [
    *HOMOGENEOUS,
    AMS2(b_reg=3.0),
    GaussianBackground(sigma=0.7),
    RelativeBackground(fraction=0.2),
    FDivergence(lambda t: t**2 / 2, lambda t: t, h=lambda F: F**0.25),
]
Sample = tuple[Array, IntArray, Array]

quiet = pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")


def simulated(n: int = 20_000, separation: float = 1.5, seed: int = 1) -> Sample:
    """Half signal and half background with the yields of the 2014 challenge and weights that scatter."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    weight = rng.gamma(2.0, size=n) * np.where(y == 1, 700.0, 400_000.0) / n
    return rng.normal(separation * y), y, weight


@st.composite
def small_samples(draw: st.DrawFn, *, negative: bool = True) -> Sample:
    n = draw(st.integers(4, 11))
    score = np.array(draw(st.lists(st.integers(0, 9), min_size=n, max_size=n)), dtype=np.float64)
    y = np.array(draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
    lowest = -1.0 if negative else 0.125
    weight = np.array(draw(st.lists(st.floats(lowest, 4.0, width=16), min_size=n, max_size=n)))
    assume(0 < y.sum() < n)
    assume(weight.any())
    return score, y, weight


def brute_force(
    sample: Sample, k: int, utility: Utility, min_background: float = 0.0, min_effective: float = 0.0
) -> float:
    """Largest sum of F over all sets of k + 1 edges, minus infinity if none is allowed."""
    score, y, w = sample
    best = -np.inf
    for chosen in itertools.combinations(np.unique(score), k):
        edges = [*chosen, np.inf]
        total = 0.0
        for low, high in itertools.pairwise(edges):
            inside = (score >= low) & (score < high)
            s, b, b2 = w[inside & (y == 1)].sum(), w[inside & (y == 0)].sum(), (w[inside & (y == 0)] ** 2).sum()
            # Sums that are zero but for rounding are settled neither way: 16-bit weights add up exactly.
            if s < 0 or b <= 0 or b < min_background or b * b < min_effective * b2 * (1 - 1e-9):
                total = -np.inf
                break
            total += float(utility.objective(s, b))
        best = max(best, total)
    return best


@quiet
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    small_samples(), st.integers(1, 4), st.sampled_from(UTILITIES), st.sampled_from([0.0, 1.5]), st.sampled_from([0, 2])
)
def test_equals_brute_force(
    sample: Sample, k: int, utility: Utility, min_background: float, min_effective: float
) -> None:
    expected = brute_force(sample, k, utility, min_background, min_effective)

    def run() -> float:
        return categorise(*sample, k, utility, min_background, min_effective, correlated=False).significance

    if expected == -np.inf:
        with pytest.raises(InputError, match="do not fit"):
            run()
    else:
        assert run() == pytest.approx(float(utility.from_objective(expected)), rel=1e-9)


@quiet
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(small_samples(negative=False), st.sampled_from(HOMOGENEOUS))
def test_more_categories_never_lose(sample: Sample, utility: Utility) -> None:
    before = 0.0
    for k in range(1, 6):
        try:
            now = categorise(*sample, k, utility, min_effective=0).significance
        except InputError:
            return
        assert now >= before - 1e-12
        before = now


@pytest.mark.parametrize("utility", UTILITIES, ids=lambda u: f"{type(u).__name__}-{u.b_reg:g}")
def test_one_category_is_the_peak_of_the_scan(utility: Utility) -> None:
    sample = simulated(4_000)
    one = categorise(*sample, 1, utility, correlated=False)
    peak = scan(*sample, utility, rule="peak", min_effective=10)
    assert one.edges.tolist() == [peak.cut, np.inf]
    assert one.significance == pytest.approx(peak.significance, rel=1e-12)
    assert (one.s[0], one.b[0]) == (pytest.approx(peak.s), pytest.approx(peak.b))
    assert one.effective_b[0] == pytest.approx(peak.effective_background)


def test_one_category_is_the_peak_of_the_scan_on_a_coarser_grid() -> None:
    sample = simulated(50_000)
    grid = candidate_cuts(rank_events(*as_scored(*sample).arrays()))
    assert MAX_EDGES // 2 < grid.size <= MAX_EDGES
    curve = scan(*sample, rule="peak", min_effective=10).curve
    best = grid[np.nanargmax(curve.significance[grid])]
    one = categorise(*sample, 1)
    assert one.edges[0] == curve.cut[best]
    assert one.significance == pytest.approx(curve.significance[best], rel=1e-12)


def test_the_grid_costs_little() -> None:
    """The optimum over three times as many edges is next to nothing better."""
    sample = simulated(40_000)
    ranking, limits = rank_events(*as_scored(*sample).arrays()), Floors(0.0, 100.0)
    fine = grid_of(ranking, candidate_cuts(ranking, 12_000))
    best = np.sqrt(2 * best_totals(fine, AMS2(), limits, 3)[-1].max())
    found = categorise(*sample, 3, min_effective=100).significance
    assert found == pytest.approx(best, rel=1e-3)
    assert found <= best


def test_limits_are_hard() -> None:
    sample = simulated()
    free = categorise(*sample, 5)
    assert free.b.min() < 1000
    assert free.effective_b.min() >= 10
    by_yield = categorise(*sample, 5, min_background=2000.0)
    assert by_yield.b.min() >= 2000
    by_error = categorise(*sample, 5, max_relative_mc_error=0.05)
    assert by_error.effective_b.min() >= 400 * (1 - 1e-9)
    assert by_error.edges.tolist() == categorise(*sample, 5, min_effective=400).edges.tolist()
    assert max(by_yield.significance, by_error.significance) < free.significance


def test_smooth_edges_hold_on_other_events() -> None:
    """Averaged over samples, edges for modelled yields are better in truth, and what they promise is nearer to it."""

    def truth(edges: Array) -> float:
        s, b = (yields * -np.diff(ndtr(mean - edges)) for mean, yields in ((1.5, 700.0), (0.0, 400_000.0)))
        return float(np.sqrt(2 * AMS2().objective(s, b).sum()))

    gains, optimism = [], []
    for seed in range(5):
        score, y, weight = simulated(40_000, seed=seed)
        weight[y == 1] *= 700 / weight[y == 1].sum()
        weight[y == 0] *= 400_000 / weight[y == 0].sum()
        peak, smooth = (categorise(score, y, weight, 8, rule=rule) for rule in ("peak", "model"))
        assert smooth.significance <= peak.significance
        assert smooth.effective_b.min() >= 10
        gains.append(truth(smooth.edges) - truth(peak.edges))
        optimism.append([found.significance - truth(found.edges) for found in (peak, smooth)])
    assert np.mean(gains) > 0.03
    of_peak, of_smooth = np.mean(optimism, axis=0)
    assert abs(of_smooth) < 0.5 * of_peak


@quiet
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(small_samples(), st.integers(1, 4), st.sampled_from([AMS2(), AMS3()]), st.sampled_from([0.0, 2.0]))
def test_smooth_equals_brute_force(sample: Sample, k: int, utility: Utility, min_effective: float) -> None:
    """F of the averaged yields of few events, under limits on the yields as they are."""
    ranking = rank_events(*as_scored(*sample).arrays())
    grid = average_yields(grid_of(ranking, candidate_cuts(ranking)))
    limits = Floors(0.0, min_effective)
    running_s, running_b = (grid.s, grid.b) if grid.smooth is None else grid.smooth
    best = -np.inf
    for edges in itertools.combinations(range(grid.s.size), k + 1):
        at = list(edges)
        s, b = np.diff(running_s[at]), np.diff(running_b[at])
        if at[0] == 0 and limits.allow(*(np.diff(v[at]) for v in (grid.s, grid.b, grid.b2))).all():
            best = max(best, float(utility.objective(s, b).sum()) if (s >= 0).all() and (b > 0).all() else -np.inf)
    if k < grid.s.size:
        assert best_totals(grid, utility, limits, k)[-1].max() == pytest.approx(best, rel=1e-9)


@quiet
@pytest.mark.parametrize(
    "boundaries",
    [
        [0.9373131990432739],
        [0.6185161471366882, 0.8676757216453552, 0.948355495929718, 0.9862542152404785],
        [
            0.420829952,
            0.683467269,
            0.832186460,
            0.899171948,
            0.938857436,
            0.964640021,
            0.977476954,
            0.9873029,
            0.994676948,
        ],
        [
            0.303966641,
            0.571587861,
            0.742468834,
            0.834042072,
            0.901181102,
            0.938845515,
            0.964634836,
            0.977476239,
            0.987330198,
        ],
    ],
    ids=["2", "5", "10", "10 with a penalty"],
)
def test_not_below_gato_hep(boundaries: list[float]) -> None:
    """With what gato-hep 0.2.1 found in `benchmarks.peers.gato_comparison`: one rule for these events, one for
    others."""
    sample = gaussians(0)
    theirs = np.array([-np.inf, *boundaries, np.inf])
    inside, effective = evaluate(theirs, sample)
    peak, smooth = (
        categorise(*sample, theirs.size - 1, min_effective=min(effective, 25), rule=rule) for rule in ("peak", "model")
    )
    assert peak.significance >= inside
    assert expected_significance(smooth.edges) >= expected_significance(theirs) + 0.005


@pytest.mark.parametrize("separation", [1.0, 1.5])
def test_edges_for_yields_without_noise(separation: float) -> None:
    """Signal and background are quantiles of their Gaussians; the purest of them are few, and the model is smooth."""
    quantiles = ndtri((np.arange(50_000) + 0.5) / 50_000)
    y = np.repeat([1, 0], 50_000)
    sample = np.append(quantiles + separation, quantiles), y, np.where(y == 1, 700.0, 400_000.0) / 50_000
    peak, smooth = (categorise(*sample, 4, rule=rule) for rule in ("peak", "model"))
    assert smooth.significance == pytest.approx(peak.significance, rel=0.015)
    assert smooth.edges[:-1] == pytest.approx(peak.edges[:-1], abs=0.1)


def test_averages_leave_yields_without_noise_as_they_are() -> None:
    """With weights that change by decades along the score, so that they contradict a smooth model."""
    sample = expected_events()
    peak, smooth = (categorise(*sample, 4, min_effective=0, rule=rule) for rule in ("peak", "model"))
    assert smooth.significance == pytest.approx(peak.significance, rel=1e-3)
    assert smooth.edges[:-1] == pytest.approx(peak.edges[:-1], abs=0.2)


@quiet
def test_smoothing_of_almost_nothing() -> None:
    """Events in one step, or without positive signal, have nothing to smooth."""
    for score, weight in (([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]), ([1.0, 2.0, 3.0], [2.0, 0.0, 3.0])):
        one = categorise(score, [0, 1, 1], weight, 1, min_effective=0, rule="model")
        assert one.significance == categorise(score, [0, 1, 1], weight, 1, min_effective=0).significance
    flat = categorise([1.0, 2.0, 3.0], [0, 1, 0], [2.0, 0.0, 3.0], 1, min_effective=0, rule="model")
    assert flat.significance == 0


def test_infeasible_limits_give_one_sentence() -> None:
    sample = simulated(2_000)
    with pytest.raises(
        InputError, match=r"^9 categories do not fit: each needs .* at most 4 can have .*lower the floors$"
    ):
        categorise(*sample, 9, min_effective=150)
    with pytest.raises(InputError, match=r"^1000000 categories do not fit"):
        categorise(*simulated(200), 1_000_000)
    with pytest.raises(InputError, match="an effective background count of at least 100000"):
        categorise(*sample, "auto", min_effective=1e5)


def test_edges_and_assignment() -> None:
    score, y, weight = simulated()
    found = categorise(score, y, weight, 4)
    assert found.edges.shape == (5,)
    assert (np.diff(found.edges) > 0).all()
    assert found.edges[-1] == np.inf
    assert len(found) == 4
    inner = found.edges[1]
    assert found.assign([found.edges[0], inner, np.nextafter(inner, -np.inf), np.inf]).tolist() == [0, 1, 0, 3]
    assert found.assign([-np.inf]).tolist() == [-1]
    category = found.assign(score)
    for i in range(4):
        assert found.s[i] == pytest.approx(weight[(category == i) & (y == 1)].sum())
        assert found.b[i] == pytest.approx(weight[(category == i) & (y == 0)].sum())
    assert (found.s.size, found.by_category.size) == (4, 4)
    assert found.significance == pytest.approx(np.sqrt(np.square(found.by_category).sum()))
    with pytest.raises(InputError, match="score is NaN in 1 of 2 rows"):
        found.assign([0.1, np.nan])


@pytest.mark.parametrize("n_classes", [1, 2, 3])
def test_class_probabilities_are_for_categorise_scores(n_classes: int) -> None:
    scores, y = np.full((10, n_classes), 1 / n_classes), np.arange(10) % 2
    with pytest.raises(InputError, match=rf"^score .*shape \(10, {n_classes}\).* categorise_scores[^.]*$"):
        categorise(scores, y, np.ones(10), 2)


def test_a_score_without_information_keeps_everything() -> None:
    y = np.arange(400) % 2
    weight = np.where(y == 1, 0.01, 1.0)
    one = categorise(np.arange(400) // 2, y, weight, 1)
    assert one.edges.tolist() == [-np.inf, np.inf]
    assert one.assign([-np.inf, 0.0, np.inf]).tolist() == [0, 0, 0]


def test_infinite_scores_stay_inside_the_last_category() -> None:
    score, y, weight = simulated(2_000)
    score[score > 2.5] = np.inf
    score[score < -1.0] = -np.inf
    found = categorise(score, y, weight, 3)
    assert np.isfinite(found.edges[1:-1]).all()
    assert found.assign([np.inf]).tolist() == [2]
    assert found.evaluate(score, y, weight).significance == pytest.approx(found.significance)


@quiet
@pytest.mark.parametrize("n_below", [40, 9000])  # all cuts are candidates, or some
def test_a_category_of_infinite_scores_alone_has_no_edge(n_below: int) -> None:
    """It would be the best, but its lower edge could not be told from the open end above it."""
    rng = np.random.default_rng(0)
    score = np.concatenate([np.full(60, np.inf), rng.uniform(size=n_below)])
    y = np.concatenate([np.arange(60) % 2, np.arange(n_below) % 2])
    weight = np.where(y == 1, np.where(score == np.inf, 20.0, 10.0 / n_below), np.where(score == np.inf, 1.0, 0.5))
    found = categorise(score, y, weight, 2, min_effective=0)
    assert np.isfinite(found.edges[1:-1]).all()
    assert found.assign([np.inf]).tolist() == [1]
    again = found.evaluate(score, y, weight)
    np.testing.assert_allclose(again.s, found.s)
    np.testing.assert_allclose(again.b, found.b)
    assert (again.b > 0).all()
    assert again.significance == pytest.approx(found.significance)


@quiet
@pytest.mark.parametrize("before", [31, 32, 33, 63, 64])  # edges are handled in blocks
def test_smoothed_yields_that_differ_by_rounding_only(before: int) -> None:
    """A background event of almost no weight may leave no difference between smoothed yields."""
    score, y = -np.arange(100.0), np.arange(100) % 2
    y[before] = 0
    for weight in np.spacing(before) * np.arange(1, 6) / 2:
        tiny, without = np.ones(100), np.ones(100)
        tiny[before], without[before] = weight, 0.0
        found, expected = (categorise(score, y, w, 1, min_effective=0, rule="model") for w in (tiny, without))
        assert found.significance == pytest.approx(expected.significance, rel=1e-9)


def test_held_out_events_fill_the_same_categories() -> None:
    found = categorise(*simulated(seed=1), 4, min_effective=200)
    score, y, weight = simulated(seed=2)
    other = found.evaluate(score, y, weight)
    assert (found.held_out, other.held_out) == (False, True)
    assert "events that chose the edges" in repr(found)
    assert "held-out events" in repr(other)
    category = found.assign(score)
    s = [weight[(category == i) & (y == 1)].sum() for i in range(4)]
    b = [weight[(category == i) & (y == 0)].sum() for i in range(4)]
    np.testing.assert_allclose(other.s, s)
    np.testing.assert_allclose(other.b, b)
    assert other.significance == pytest.approx(np.sqrt(2 * AMS2().objective(s, b).sum()))
    assert (found.rule, other.rule) == ("peak", "peak")
    smooth = categorise(*simulated(2_000, seed=1), 2, rule="model")
    assert smooth.evaluate(score, y, weight).rule == "model", "its intervals would choose edges by another rule"
    part = slice(None, 5_000)
    totals = (float(weight[y == 1].sum()), float(weight[y == 0].sum()))
    scaled = found.evaluate(score[part], y[part], weight[part], yields=totals)
    assert scaled.significance == pytest.approx(other.significance, rel=0.15)
    assert found.evaluate(score[part], y[part], weight[part]).significance < 0.6 * scaled.significance


def test_what_should_not_be_believed_is_said() -> None:
    score, y, weight = simulated(2_000)
    with pytest.warns(SmallSampleWarning, match=r"category 0, .* effective background events, an error of \d+ % on b"):
        few = categorise(score, y, weight, 1, min_effective=2)
    assert any(few.effective_b < 10)
    assert few.notes[-1] in repr(few)
    empty_above = (score < few.edges[0]) | (y == 1)
    with pytest.warns(SmallSampleWarning, match=r"category 0, .* b = 0: it is not valid"):
        other = few.evaluate(score[empty_above], y[empty_above], weight[empty_above])
    assert other.by_category[-1] == 0
    assert np.isfinite(other.significance)


def test_processes() -> None:
    score, y, weight = simulated()
    process = np.where(y == 1, "H", np.where(np.arange(y.size) % 4 == 0, "Z", "ttbar"))
    found = categorise(score, y, weight, 3, process=process)
    assert list(found.by_process) == ["H", "Z", "ttbar"]
    assert [p.signal for p in found.by_process.values()] == [True, False, False]
    category = found.assign(score)
    for name, rows in found.by_process.items():
        for i in range(3):
            w = weight[(category == i) & (process == name)]
            assert rows.sum_of_weights[i] == pytest.approx(w.sum())
            assert rows.sum_of_squares[i] == pytest.approx(np.square(w).sum())
            assert rows.events[i] == w.size
    plain = categorise(score, y, weight, 3)
    assert list(plain.by_process) == ["signal", "background"]
    np.testing.assert_allclose(plain.by_process["background"].sum_of_weights, found.b)
    with pytest.raises(InputError, match="process 'x' has both signal and background"):
        categorise(score, y, weight, 3, process=np.full(y.size, "x"))
    with pytest.raises(InputError, match=r"process has shape \(2,\) for 20000 events"):
        categorise(score, y, weight, 3, process=["a", "b"])


def test_auto_stops_where_a_gain_is_uncertain() -> None:
    sample = simulated(20_000)
    auto = categorise(*sample, "auto")
    assert 3 <= len(auto) < 20
    assert auto.edges.tolist() == categorise(*sample, len(auto)).edges.tolist()
    flat = np.arange(2_000) % 2
    useless = categorise(np.random.default_rng(3).uniform(size=2_000), flat, np.where(flat == 1, 0.1, 10.0), "auto")
    assert len(useless) <= 2
    again = categorise(*sample, "auto", random_state=0)
    assert again.edges.tolist() == auto.edges.tolist()


def test_auto_draws_its_replicas_from_the_seed() -> None:
    flat = np.arange(1_000) % 2 == 0
    sample = np.random.default_rng(1_000).normal(2.0 * flat), flat, np.where(flat, 0.02, 2.0)
    numbers = [len(categorise(*sample, "auto", random_state=seed)) for seed in range(12)]
    assert len(set(numbers)) > 1, "a gain about as large as its uncertainty: some replicas say so, others not"


def test_replicas_scatter_around_the_yields() -> None:
    ranking = rank_events(*as_scored(*simulated(2_000)).arrays())
    cuts = np.array([100, 400, 900])  # what is below the last is in no category
    s, b = ranking.replicas(cuts, 400, 0)
    for column, exact in ((s, ranking.s[cuts]), (b, ranking.b[cuts])):
        error = column.std(axis=0) / 20
        assert (np.abs(column.mean(axis=0) - exact) < 4 * error).all()
    var_s, var_b = ranking.variances(cuts)
    np.testing.assert_allclose(s.var(axis=0), var_s, rtol=0.3)
    np.testing.assert_allclose(b.var(axis=0), var_b, rtol=0.3)


@quiet
def test_auto_does_not_follow_single_events() -> None:
    sample = simulated(400)
    assert categorise(*sample, 12, min_effective=1).significance > 2 * categorise(*sample, 2).significance
    assert len(categorise(*sample, "auto", min_effective=1)) < 6


@quiet
def test_auto_needs_replicas_in_which_a_category_has_background() -> None:
    """Categories with one background event each gain much, but only where a replica holds all of these events."""
    score = np.repeat([2.0, 1.0, 0.0], [51, 11, 2000])
    y = np.repeat([1, 0, 1, 0], [50, 1, 10, 2001])
    weight = np.repeat([0.4, 1.0, 0.1, 1.0, 0.5], [50, 1, 10, 1, 2000])
    sample = (score, y, weight)
    two = categorise(*sample, 2, min_effective=0)
    assert two.significance > 1.001 * categorise(*sample, 1, min_effective=0).significance
    assert len(categorise(*sample, "auto", min_effective=0)) == 1


def test_auto_takes_what_fits() -> None:
    score = np.repeat([0.0, 1.0], 100)
    y = np.tile([0, 1], 100)
    two = categorise(score, y, np.where(score == 1, 1.0, np.where(y == 1, 0.01, 1.0)), "auto")
    assert two.edges.tolist() == [-np.inf, 0.5, np.inf]


def test_a_correlated_background_uncertainty_is_one_systematic() -> None:
    sample = simulated(4_000)
    for utility in (GaussianBackground(sigma=500.0), RelativeBackground(fraction=0.1), "relative_background(0.1)"):
        together = categorise(*sample, 3, utility)
        assert together.correlated
        assert together.significance < together.known_background
        apart = categorise(*sample, 3, utility, correlated=False)
        size = 500.0 if isinstance(utility, GaussianBackground) else 0.1 * together.b
        expected = profiled_significance(together.s, together.b, [size * np.ones(3)])
        assert together.significance == pytest.approx(expected, rel=1e-9)
        # Categories with little signal measure what moves all of them.
        assert together.significance > apart.significance
    assert categorise(*sample, 2, OnOff(tau=1.0)).significance > 0


def test_one_category_with_a_constant_uncertainty_is_gaussian_background() -> None:
    sample, utility = simulated(4_000), GaussianBackground(sigma=30.0, b_reg=5.0)
    one = categorise(*sample, 1, utility, rule="peak", min_effective=10)
    peak = scan(*sample, utility, rule="peak", min_effective=10)
    assert one.significance == pytest.approx(float(utility.value(one.s, one.b)[0]), rel=1e-9)
    assert one.significance == pytest.approx(peak.significance, rel=1e-3)
    assert one.gap == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_categories": 0}, "n_categories must be a whole number from 1 or 'auto', got 0"),
        ({"n_categories": "many"}, "got 'many'"),
        ({"n_categories": 2.0}, "got 2.0"),
        ({"n_categories": True}, "got True"),
        ({"n_categories": 2, "min_background": -1.0}, "min_background must be finite and >= 0"),
        ({"n_categories": 2, "min_effective": np.nan}, "min_effective must be finite and >= 0"),
        ({"n_categories": 2, "rule": "modl"}, "rule must be one of 'model', 'peak', got 'modl'"),
        ({"n_categories": 2, "max_relative_mc_error": 0.0}, "max_relative_mc_error must be > 0"),
    ],
)
def test_wrong_options(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        categorise(*simulated(200), **options)  # wrong on purpose


def test_interval_is_as_wide_as_the_scatter_of_samples() -> None:
    def sample(seed: int) -> Sample:
        score, y, weight = simulated(60_000, seed=seed)
        drawn = np.random.default_rng(seed + 1000).random(y.size) < 0.1  # counts scatter almost as Poisson's do
        return score[drawn], y[drawn], 10 * weight[drawn]

    edges = categorise(*sample(0), 3, min_effective=80)
    others = [edges.evaluate(*sample(seed)) for seed in range(1, 61)]
    intervals = [other.interval(n_boot=60).significance for other in others[:8]]
    width = np.mean([(high - low) / 2 for low, high in intervals])
    assert width == pytest.approx(np.std([other.significance for other in others]), rel=0.25)


def test_the_same_seed_gives_the_same_interval() -> None:
    small = categorise(*simulated(2_000), 2)
    assert small.interval(n_boot=40) == small.interval(n_boot=40)
    for wrong in ({"level": 1.0}, {"n_boot": 0}):
        with pytest.raises(InputError):
            small.interval(**wrong)


@quiet
def test_interval_without_replicas() -> None:
    one = categorise([0.0, 0.0, 1.0], [0, 1, 1], [1.0, 1.0, 1.0], 1, min_effective=1)
    with pytest.raises(InputError, match="too few events"):
        [one.interval(n_boot=1, random_state=seed) for seed in range(10)]


def test_histogram() -> None:
    pytest.importorskip("hist")
    found = categorise(*simulated(), 4)
    filled = found.to_hist()
    np.testing.assert_allclose(filled["signal", :].values(), found.s)
    np.testing.assert_allclose(filled["background", :].variances(), found.by_process["background"].sum_of_squares)
    assert filled.axes.name == ("process", "category")


def test_plot() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    found = categorise(*simulated(), 4)
    assert found.plot(ax) is ax
    pyplot = pytest.importorskip("matplotlib.pyplot")
    assert found.plot() is pyplot.gca()
    pyplot.close()
    assert len(ax.patches) == 4 + 1
    assert f"{found.significance:.3f}" in ax.get_legend().get_title().get_text()


def test_no_warning_without_reason() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        categorise(*simulated(), 3, "ams2").interval(n_boot=5)
