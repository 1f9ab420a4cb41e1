"""A scan in two passes against a full sort of the same events."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fivesigma import AMS2, FDivergence, Utility, scan
from fivesigma.cut.best_cut import scan_partitions
from fivesigma.cut.binned_ranking import BinnedRanking
from fivesigma.cut.binned_search import RULES_OF_BINS
from fivesigma.cut.ranking import Ranking, rank_events
from fivesigma.cut.rules import choose, choose_by_model
from fivesigma.errors import InputError
from fivesigma.scored.score_bins import MAX_BINS, ArrayPartitions, BinSums, Partition, ScoreBins
from fivesigma.yields import significance_or_nan, standard_errors
from tests.significance.exact import UTILITIES, name_of

Sample = tuple[np.ndarray, np.ndarray, np.ndarray]


def _full_sort(sample: Sample, utility: Utility, rule: str, floor: float) -> tuple[Ranking, np.ndarray, int]:
    """The ranking of all events, the significance of every cut, and the cut that the rule takes of them."""
    ranking = rank_events(*sample)
    z = significance_or_nan(utility, ranking.s, ranking.b, ranking.valid(floor))

    def error_at(cut: int) -> float:
        s2, b2 = ranking.variances(np.array([cut]))
        return float(standard_errors(utility, ranking.s[[cut]], ranking.b[[cut]], s2, b2)[0])

    chosen = None
    if rule == "model":
        chosen = choose_by_model(utility, ranking.s, ranking.b, ranking.variances, z, ranking.last, error_at)
    if chosen is None:
        chosen = choose("plateau" if rule == "model" else rule, z, ranking.last, error_at)
    return ranking, z, chosen


def _agree(sample: Sample, utility: Utility, rule: str, floor: float, *, fine: int, rows: int) -> None:
    """Two passes over small parts, with bins as for `fine` events, take the cut of a full sort."""
    parts = ArrayPartitions(*sample, rows=rows)
    bins = ScoreBins.of(sample[0], fine)
    try:
        ranking, z, chosen = _full_sort(sample, utility, rule, floor)
    except InputError as err:
        with pytest.raises(InputError, match=re.escape(str(err)[:80])):
            scan_partitions(parts, utility, rule, min_effective=floor, bins=bins)
        return
    found = scan_partitions(parts, utility, rule, min_effective=floor, bins=bins)
    assert found.significance == pytest.approx(z[chosen], rel=1e-12, abs=1e-12)
    if found.fraction != (ranking.last[chosen] + 1) / ranking.score.size:
        # Sums in another order may settle a tie in another way: then the rule finds both cuts alike.
        assert found.significance == pytest.approx(z[chosen], rel=1e-14, abs=1e-14)
        assert rule == "peak"
        return
    assert found.cut == float(ranking.thresholds([chosen])[0])
    np.testing.assert_allclose([found.s, found.b], [ranking.s[chosen], ranking.b[chosen]], rtol=1e-12, atol=1e-12)
    assert found.effective_background == pytest.approx(ranking.effective(chosen), rel=1e-12)


pytestmark = pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")
KINDS = ("continuous", "ties", "infinite", "narrow", "huge", "lopsided")


def _sample(seed: int, n: int, kind: str, negative: float, dtype: Any) -> Sample:
    rng = np.random.default_rng(seed)
    y = rng.random(n) < rng.uniform(0.1, 0.9)
    y[:2] = [True, False]
    score = rng.normal(rng.uniform(0.0, 3.0) * y)
    if kind == "ties":
        score = np.round(score * 3) / 3
    elif kind == "infinite":
        score[rng.random(n) < 0.1] = np.inf
        score[rng.random(n) < 0.1] = -np.inf
    elif kind == "narrow":
        score = 1.0 + 1e-7 * np.round(score, 2)
    elif kind == "huge":
        score = np.sign(score) * 10.0 ** (
            score.clip(-6, 6) * (1 if dtype is np.float16 else 10 if dtype is np.float32 else 50)
        )
    elif kind == "lopsided":
        score = np.exp(5 * score)
    w = rng.exponential(size=n) * np.where(y, 0.05, 1.0)
    w[rng.random(n) < negative] *= -1.0
    with np.errstate(over="ignore"):
        return score.astype(dtype), y, w


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("rule", RULES_OF_BINS)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 400),
    kind=st.sampled_from(KINDS),
    negative=st.sampled_from([0.0, 0.05, 0.3]),
    floor=st.sampled_from([0.0, 1.0, 10.0]),
    fine=st.sampled_from([1, 200, 3_000, 100_000]),
)
def test_two_passes_are_the_full_sort(  # noqa: PLR0917 - what hypothesis varies
    dtype: Any, rule: str, seed: int, n: int, kind: str, negative: float, floor: float, fine: int
) -> None:
    _agree(_sample(seed, n, kind, negative, dtype), AMS2(), rule, floor, fine=fine, rows=97)


@pytest.mark.parametrize("rule", RULES_OF_BINS)
@pytest.mark.parametrize("negative", [0.0, 0.1])
@settings(max_examples=5)
@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(KINDS))
def test_two_passes_are_the_full_sort_of_many_events(rule: str, negative: float, seed: int, kind: str) -> None:
    _agree(_sample(seed, 20_000, kind, negative, np.float64), AMS2(10.0), rule, 10.0, fine=60_000, rows=7_000)


OWN = FDivergence(lambda t: t**2 / 2 + t**3 / 6, lambda t: t + t**2 / 2)


@pytest.mark.parametrize("utility", [*UTILITIES, OWN], ids=[*map(name_of, UTILITIES), "own f"])
@pytest.mark.parametrize("negative", [0.0, 0.15])
def test_every_utility_agrees(utility: Utility, negative: float) -> None:
    for seed in range(4):
        sample = _sample(seed, 3_000, "continuous", negative, np.float64)
        for rule in RULES_OF_BINS:
            _agree(sample, utility, rule, 5.0, fine=100_000, rows=1_000)


@given(
    scores=st.lists(st.floats(allow_nan=False), min_size=1, max_size=60),
    n=st.sampled_from([1, 100, 10_000, 10_000_000]),
    of=st.integers(1, 60),
)
def test_a_higher_score_is_never_in_a_later_bin(scores: list[float], n: int, of: int) -> None:
    bins = ScoreBins.of(np.array(scores[:of]), n)
    at = bins(np.sort(np.array(scores))[::-1])
    assert (np.diff(at) >= 0).all()
    assert at[0] >= 0
    assert at[-1] < len(bins) <= MAX_BINS


@pytest.mark.parametrize("negative", [0.0, 0.2])
def test_no_valid_cut_of_a_bin_exceeds_its_bound(negative: float) -> None:
    for seed in range(20):
        sample = _sample(seed, 800, "continuous", negative, np.float64)
        for floor in (0.0, 10.0):
            ranking = BinnedRanking(ArrayPartitions(*sample), ScoreBins.of(sample[0], 6_000))
            bound = ranking.upper_bounds(AMS2(), floor)
            ranking.resolve(np.ones(bound.size, dtype=bool))
            cuts = ranking.cuts()
            z = significance_or_nan(AMS2(), cuts.s, cuts.b, cuts.valid(floor))
            valid = np.isfinite(z)
            assert (z[valid] <= bound[cuts.place[valid]]).all()
            assert cuts.last.size == np.unique(sample[0]).size


def test_sums_add_up_over_partitions() -> None:
    sample = _sample(0, 1_000, "ties", 0.2, np.float32)
    bins = ScoreBins.of(sample[0], 5_000)
    n, whole = len(bins), Partition(*sample)
    halves = [Partition(*(v[rows] for v in sample)) for rows in (slice(0, 300), slice(300, None))]
    total = BinSums.empty(n)
    for part in halves:
        total += BinSums.of(bins(part.score), part, n)
    once = BinSums.of(bins(whole.score), whole, n)
    for name in ("events", "positive", "negative", "squares", "lowest", "extremes"):
        np.testing.assert_allclose(getattr(total, name), getattr(once, name), rtol=1e-14)
    assert once.negative.min() < 0 < once.positive.max()


@pytest.mark.parametrize("rule", RULES_OF_BINS)
def test_large_samples_need_two_passes_and_few_events(rule: str) -> None:
    sample = _sample(1, 300_000, "continuous", 0.0, np.float64)
    seen: list[int] = []

    class Counted(ArrayPartitions):
        def __getitem__(self, at: int) -> Partition:  # type: ignore[override]
            seen.append(at)
            return super().__getitem__(at)

    parts = Counted(*sample, rows=50_000)
    found = scan_partitions(parts, AMS2(10.0), rule)
    assert len(seen) <= 4 * len(parts)  # a sample that places the bins, and two or three passes
    assert found.significance == pytest.approx(scan(*sample, AMS2(10.0), rule).significance, rel=1e-12)
    assert found.curve.cut.size <= 65_536
    with pytest.raises(InputError, match=r"a scan of files does not rank all events.*ScoredEvents\.read"):
        _ = found.ranking


def test_the_curve_of_parts_is_on_the_curve_of_all() -> None:
    sample = _sample(2, 20_000, "continuous", 0.1, np.float64)
    few = scan_partitions(ArrayPartitions(*sample), AMS2(), "peak", min_effective=10.0).curve
    full = scan(*sample, rule="peak", min_effective=10.0).curve
    at = np.searchsorted(full.fraction, few.fraction)
    np.testing.assert_array_equal(full.fraction[at], few.fraction)
    np.testing.assert_allclose(full.s[at], few.s, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(full.significance[at], few.significance, rtol=1e-10)
    for cut, fraction in zip(few.cut, few.fraction, strict=True):
        assert np.mean(sample[0] >= cut) == fraction


def test_the_curve_does_not_change_with_the_callers_arrays() -> None:
    score, y, w = _sample(3, 2_000, "continuous", 0.0, np.float64)
    best = scan(score, y, w)
    expected = scan(score.copy(), y.copy(), w.copy()).curve
    score[:], w[:] = 0.0, 1.0
    y[:] = ~y
    for one, other in zip(best.curve, expected, strict=True):
        np.testing.assert_array_equal(one, other)
