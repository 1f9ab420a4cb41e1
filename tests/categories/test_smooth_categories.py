"""The rule "model": edges that are best for modelled yields, under limits on the yields as they are."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fivesigma import AMS2, AMS3, Utility
from fivesigma.categories import categorise
from fivesigma.categories.floors import Floors
from fivesigma.categories.one_score.exact import (
    Grid,
    average_yields,
    best_edges,
    best_totals,
    candidate_cuts,
    grid_of,
    model_yields,
)
from fivesigma.cut.ranking import Ranking, rank_events
from fivesigma.scored.scored_events import as_scored

Sample = tuple[np.ndarray, np.ndarray, np.ndarray]
SEEDS = st.integers(0, 2**32 - 1)

pytestmark = pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")


def _sample(n: int, seed: int, *, distance: float = 1.5, negative: float = 0.0, decimals: int | None = None) -> Sample:
    """Two Gaussians with weights that scatter."""
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.4
    weight = rng.exponential(size=n) * np.where(y, 700.0, 400_000.0) / n
    weight *= np.where(rng.random(n) < negative, -1.0, 1.0)
    score = rng.normal(distance * y)
    return score if decimals is None else np.round(score, decimals), y, weight


def _modelled(ranking: Ranking, max_edges: int) -> Grid:
    cuts = candidate_cuts(ranking, max_edges)
    return model_yields(grid_of(ranking, cuts), ranking.last[cuts])


@settings(max_examples=25, deadline=None)
@given(
    SEEDS,
    st.integers(1, 3),
    st.sampled_from([AMS2(), AMS2(b_reg=10.0), AMS3()]),
    st.sampled_from([Floors(0.0, 0.0), Floors(0.0, 20.0), Floors(20_000.0, 5.0)]),
    st.sampled_from([0.0, 0.1]),
)
def test_the_search_is_exact_on_modelled_yields(
    seed: int, k: int, utility: Utility, limits: Floors, negative: float
) -> None:
    """No other edges have a larger F of the modelled yields, under the same limits on the measured ones."""
    grid = _modelled(rank_events(*_sample(600, seed, negative=negative)), 16)
    assert grid.smooth is not None
    best = -np.inf
    for edges in itertools.combinations(range(1, grid.s.size), k):
        at = [0, *edges]
        if limits.allow(*(np.diff(v[at]) for v in (grid.s, grid.b, grid.b2))).all():
            best = max(best, float(utility.objective(*(np.diff(v[at]) for v in grid.smooth)).sum()))
    totals = best_totals(grid, utility, limits, k)
    assert totals[-1].max() == pytest.approx(best, rel=1e-9)
    if best > -np.inf:
        chosen = np.append(0, best_edges(grid, utility, limits, totals, k))
        s, b = (np.diff(v[chosen]) for v in grid.smooth)
        assert float(utility.objective(s, b).sum()) == pytest.approx(best, rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.integers(1_000, 3_000), st.integers(1, 4), st.floats(0.0, 20.0), st.sampled_from([0.0, 0.1]))
def test_limits_hold_for_the_events(seed: int, n: int, k: int, floor: float, negative: float) -> None:
    score, y, weight = _sample(n, seed, negative=negative)
    found = categorise(score, y, weight, k, min_effective=floor, min_background=1_000.0, rule="model")
    category = found.assign(score)
    for i in range(k):
        inside = category == i
        b, b2 = (float(w[inside & ~y].sum()) for w in (weight, weight**2))
        assert weight[inside & y].sum() >= -1e-9
        assert b >= 1_000.0 * (1 - 1e-9)
        assert b * b >= floor * b2 * (1 - 1e-9)


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_no_monotone_transform_of_the_score_and_no_order_of_the_events_matters(seed: int) -> None:
    score, y, weight = _sample(1_000, seed)
    found = categorise(score, y, weight, 3, rule="model")
    transformed = categorise(np.exp(score), y, weight, 3, rule="model")
    np.testing.assert_array_equal(transformed.assign(np.exp(score)), found.assign(score))
    order = np.random.default_rng(seed).permutation(score.size)
    shuffled = categorise(score[order], y[order], weight[order], 3, rule="model")
    np.testing.assert_array_equal(shuffled.edges, found.edges)


@pytest.mark.parametrize(
    "sample",
    [_sample(60, 1), _sample(5_000, 1, decimals=0), _sample(40_000, 1, distance=4.0)],
    ids=["few events", "few distinct scores", "a cliff that no model follows"],
)
def test_what_cannot_be_modelled_is_averaged(sample: Sample) -> None:
    ranking = rank_events(*as_scored(*sample).arrays())
    cuts = candidate_cuts(ranking)
    raw = grid_of(ranking, cuts)
    found, expected = (
        model_yields(raw, ranking.last[cuts]).smooth,
        average_yields(raw).smooth,
    )
    assert found is not None
    assert expected is not None
    np.testing.assert_array_equal(found, expected)


def test_a_measurement_with_many_events_averages_less() -> None:
    noise = {}
    for n in (2_000, 50_000):
        raw = grid_of(ranking := rank_events(*_sample(n, 1)), candidate_cuts(ranking, 200))
        assert average_yields(raw).noise == 0.3
        measured = average_yields(raw, "measurement")
        noise[n] = measured.noise
        assert measured.smooth is not None
        kept, whole = (measured.smooth[1] - average_yields(raw).smooth[1], raw.b - average_yields(raw).smooth[1])  # type: ignore[index]
        np.testing.assert_allclose(kept, (measured.noise - 0.3) / 0.7 * whole, atol=1e-6 * raw.b[-1])
    assert noise[2_000] == 0.3
    assert noise[50_000] == pytest.approx(0.43, abs=0.02)  # 15,000 effective background events


def test_enough_events_are_modelled() -> None:
    ranking = rank_events(*_sample(2_000, 1))
    found, expected = (
        _modelled(ranking, 500).smooth,
        average_yields(grid_of(ranking, candidate_cuts(ranking, 500))).smooth,
    )
    assert found is not None
    assert expected is not None
    for ours, theirs, total in zip(found, expected, (ranking.s[-1], ranking.b[-1]), strict=True):
        assert ours[0] == 0
        assert not np.allclose(ours, theirs, rtol=1e-3)
        np.testing.assert_allclose(ours / total, theirs / total, atol=0.05)
