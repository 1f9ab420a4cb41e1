from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from fivesigma._tools.sort import CHUNK
from fivesigma.cut.ranking import Ranking, rank_events
from fivesigma.errors import InputError
from fivesigma.scored.scored_events import as_scored


def _ranked(score: Any, y: Any, weight: Any) -> Ranking:
    return rank_events(*as_scored(score, y, weight).arrays())


def test_running_yields_and_variances_by_hand() -> None:
    ranking = _ranked([0.1, 0.9, 0.5, 0.9, 0.3], [0, 1, 0, 0, 1], [1.0, 2.0, 4.0, -8.0, 16.0])
    assert ranking.last.tolist() == [1, 2, 3, 4]  # 0.9 twice, 0.5, 0.3, 0.1
    assert ranking.s.tolist() == [2.0, 2.0, 18.0, 18.0]
    assert ranking.b.tolist() == [-8.0, -4.0, -4.0, -3.0]
    var_s, var_b = ranking.variances(np.arange(4))
    assert var_s.tolist() == [4.0, 4.0, 260.0, 260.0]
    assert var_b.tolist() == [64.0, 80.0, 80.0, 81.0]
    assert [v.tolist() for v in ranking.variances(np.array([2]))] == [[260.0], [80.0]]
    assert (ranking.lightest, ranking.heaviest, ranking.squares) == (-8.0, 4.0, (260.0, 81.0))
    assert ranking.effective_background == pytest.approx(9.0 / 81.0)


def test_sums_over_many_chunks() -> None:
    rng = np.random.default_rng(0)
    n = 3 * CHUNK + 17
    score, y, w = rng.random(n), rng.random(n) < 0.4, rng.normal(1.0, 2.0, size=n)
    ranking = _ranked(score, y, w)
    order = np.argsort(-score)
    np.testing.assert_array_equal(ranking.order, order)
    np.testing.assert_allclose(ranking.s, np.cumsum(np.where(y, w, 0.0)[order]), rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(ranking.b, np.cumsum(np.where(y, 0.0, w)[order]), rtol=1e-12, atol=1e-9)
    assert ranking.squares == pytest.approx((np.square(w[y]).sum(), np.square(w[~y]).sum()))
    assert (ranking.lightest, ranking.heaviest) == (w[~y].min(), w[~y].max())


def test_a_large_sum_does_not_swallow_small_signal_variances() -> None:
    w = np.array([1e9, 1e-3, 1e9, 1e-3])
    var_s, _ = _ranked([4.0, 3.0, 2.0, 1.0], [0, 1, 0, 1], w).variances(np.array([1, 3]))
    np.testing.assert_allclose(var_s, [1e-6, 2e-6])


@pytest.mark.parametrize("min_effective", [0.0, 1.0, 3.0, 7.5])
@pytest.mark.parametrize("negative", [False, True])
def test_valid_is_the_floor_at_every_cut(min_effective: float, negative: bool) -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        n = 60
        w = rng.exponential(size=n)
        if negative:
            w *= rng.choice([-1.0, 1.0], p=[0.2, 0.8], size=n)
        y = rng.random(n) < 0.4
        score = rng.integers(0, 40, size=n) / 40
        ranking = _ranked(score, y, w)
        expected = []
        for threshold in np.unique(score)[::-1]:
            kept = w[(score >= threshold) & ~y]
            s = w[(score >= threshold) & y].sum()
            effective = kept.sum() ** 2 / np.square(kept).sum() if kept.size else 0.0
            expected.append(bool(s >= 0 and kept.sum() > 0 and effective >= min_effective))
        if any(expected):
            assert ranking.valid(min_effective).tolist() == expected


def test_equal_weights_reach_a_whole_floor() -> None:
    score = np.arange(20, 0, -1.0)
    ranking = _ranked(score, [0] * 19 + [1], np.full(20, 0.1))
    assert ranking.valid(10.0).tolist() == [False] * 9 + [True] * 11


@pytest.mark.parametrize(
    ("y", "w", "floor", "reached"),
    [
        ([0, 1, 0, 1], [0.0, 1.0, 0.0, 1.0], 1.0, "s reaches 2, b 0 and the effective background count 0"),
        ([0, 1, 0, 1], [1.0, 1.0, 1.0, 1.0], 5.0, "s reaches 2, b 2 and the effective background count 2"),
        ([1, 0, 0, 0], [-1.0, 1.0, 1.0, 1.0], 0.0, "s reaches -1, b 3 and the effective background count 3"),
        ([1, 0, 0, 0], [1.0, -1.0, -1.0, -1.0], 0.0, "s reaches 1, b 0 and the effective background count 3"),
    ],
)
def test_no_cut_is_valid(y: list[int], w: list[float], floor: float, reached: str) -> None:
    ranking = _ranked([4.0, 3.0, 2.0, 1.0], y, w)
    sentence = f"no cut is valid: each needs s >= 0, b > 0 and an effective background count of at least {floor:g}"
    with pytest.raises(InputError, match=re.escape(sentence) + ".*" + re.escape(reached)):
        ranking.valid(floor)


@pytest.mark.parametrize("floor", [-1.0, np.nan])
def test_a_bad_floor(floor: float) -> None:
    with pytest.raises(InputError, match=f"min_effective must be >= 0, got {floor}"):
        _ranked([1.0, 2.0], [0, 1], [1.0, 1.0]).valid(floor)


def test_a_ranking_does_not_change_with_the_callers_array() -> None:
    score = np.array([1.0, 2.0, 3.0])
    ranking = _ranked(score, [0, 1, 1], np.ones(3))
    score[:] = 0.0
    assert ranking.thresholds().tolist() == [2.5, 1.5, 1.0]
