"""A scan in two passes against a full sort of the same events."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fivesigma import AMS2, FDivergence, Utility, scan
from fivesigma.cut.best_cut import scan_binned
from fivesigma.cut.binned import MAX_BINS, RULES_OF_BINS, BinnedRanking, BinSums, ScoreBins, in_parts
from fivesigma.errors import InputError
from fivesigma.scored.scored_files import Part
from tests.significance.exact import UTILITIES, name_of

Sample = tuple[np.ndarray, np.ndarray, np.ndarray]


def _agree(sample: Sample, utility: Utility, rule: str, floor: float, *, fine: int, rows: int) -> None:
    """Two passes over small parts, with bins as for `fine` events, take the cut of a full sort."""
    parts = in_parts(*sample, rows=rows)
    bins = ScoreBins.of(sample[0], fine)
    try:
        sorted_ = scan(*sample, utility, rule, min_effective=floor)
    except InputError as err:
        with pytest.raises(InputError, match=re.escape(str(err)[:80])):
            scan_binned(BinnedRanking(parts, bins), utility, rule, floor)
        return
    found = scan_binned(BinnedRanking(parts, bins), utility, rule, floor)
    assert found.significance == pytest.approx(sorted_.significance, rel=1e-12, abs=1e-12)
    if found.fraction != sorted_.fraction:
        # Sums in another order may settle a tie in another way: then the rule finds both cuts alike.
        assert found.significance == pytest.approx(sorted_.significance, rel=1e-14, abs=1e-14)
        assert rule == "peak"
        return
    assert (found.cut, found.rule) == (sorted_.cut, sorted_.rule)
    np.testing.assert_allclose([found.s, found.b], [sorted_.s, sorted_.b], rtol=1e-12, atol=1e-12)
    assert found.effective_background == pytest.approx(sorted_.effective_background, rel=1e-12)
    if np.isfinite(sorted_.error):
        assert found.error == pytest.approx(sorted_.error, rel=1e-8)


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


def test_sums_add_up_over_partitions() -> None:
    sample = _sample(0, 1_000, "ties", 0.2, np.float32)
    bins = ScoreBins.of(sample[0], 5_000)
    total = sum((BinSums.of(part, bins) for part in in_parts(*sample, rows=300)), BinSums.empty(len(bins)))
    once = BinSums.of(sample, bins)
    for name in ("sums", "lowest", "extremes"):
        np.testing.assert_allclose(getattr(total, name), getattr(once, name), rtol=1e-12, atol=1e-12)
    assert once.sums[0].sum() == 1_000


@pytest.mark.parametrize("rule", RULES_OF_BINS)
@pytest.mark.parametrize("purest", [0, 3_000])
def test_beyond_the_purest_events_the_ends_of_bins_are_cuts(
    rule: str, purest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fivesigma.cut.binned.PUREST", purest)
    sample = _sample(1, 300_000, "continuous", 0.0, np.float64)
    seen: list[int] = []

    class Counted(list[Part]):
        def __getitem__(self, at: int) -> Part:  # type: ignore[override]
            seen.append(at)
            return super().__getitem__(at)

    parts = Counted(in_parts(*sample, rows=50_000))
    found = scan_binned(BinnedRanking(parts), AMS2(10.0), rule)
    assert len(seen) <= 3 * len(parts)  # a sample that places the bins, the sums, and the purest events
    sorted_ = scan(*sample, AMS2(10.0), rule)
    assert found.significance == pytest.approx(sorted_.significance, rel=1e-3)
    assert found.fraction == pytest.approx(sorted_.fraction, abs=100 / 300_000)
    assert np.count_nonzero(sample[0] >= found.cut) == round(found.fraction * 300_000)
    assert found.curve.cut.size <= 300_000 // 32 + purest
    kept = found.curve.fraction[: purest // 2] * 300_000
    np.testing.assert_allclose(kept, np.arange(1, kept.size + 1), rtol=1e-12)


@pytest.mark.parametrize("rule", ["model", "plateau"])
def test_intervals_without_the_events_are_those_with_them(rule: str) -> None:
    sample = _sample(4, 100_000, "continuous", 0.0, np.float64)
    found = scan_binned(BinnedRanking(in_parts(*sample)), AMS2(10.0), rule).interval(n_boot=300)
    exact = scan(*sample, AMS2(10.0), rule).interval(n_boot=300)
    width = exact.significance[1] - exact.significance[0]
    assert found.significance == pytest.approx(exact.significance, abs=0.2 * width)
    assert found.cut == pytest.approx(exact.cut, abs=0.5 * (exact.cut[1] - exact.cut[0]))


def test_a_rule_that_needs_every_cut_is_refused() -> None:
    ranking = BinnedRanking(in_parts(*_sample(0, 200, "ties", 0.0, np.float64)))
    with pytest.raises(
        InputError, match=r"rule='smooth' needs every cut.*'model', 'plateau', 'peak'.*ScoredEvents\.read"
    ):
        scan_binned(ranking, AMS2(), "smooth")


def test_the_curve_of_parts_is_on_the_curve_of_all() -> None:
    sample = _sample(2, 20_000, "continuous", 0.1, np.float64)
    few = scan_binned(BinnedRanking(in_parts(*sample)), AMS2(), "peak", 10.0).curve
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
