from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fivesigma import AMS2, AMS3, CutScan, GaussianBackground, Utility, scan
from fivesigma.cut import cut_scan as module
from fivesigma.cut.bootstrap import poisson_sums
from fivesigma.cut.ranking import Ranking
from fivesigma.cut.rules import Seen, choose
from fivesigma.errors import InputError, SmallSampleWarning
from tests.significance.exact import UTILITIES, name_of

Sample = tuple[np.ndarray, np.ndarray, np.ndarray]
pytestmark = pytest.mark.filterwarnings("ignore:the cut keeps .* hangs on single events")  # they are few here


def _sample(n: int, seed: int = 0) -> Sample:
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.3
    return rng.normal(1.5 * y), y, rng.exponential(size=n) * np.where(y, 0.05, 1.0)


def _brute_force(score: Any, y: Any, w: Any, utility: Utility, floor: float) -> np.ndarray:
    """Rows of (events, s, b, significance) for every distinct score as the cut, from the tightest."""
    rows = []
    for threshold in np.unique(score)[::-1]:
        kept = score >= threshold
        s, background = w[kept & y].sum(), w[kept & ~y]
        b = background.sum()
        effective = b**2 / np.square(background).sum() if background.any() else 0.0
        counts = s >= 0 and b > 0 and effective >= floor
        rows.append((kept.sum(), s, b, float(utility.value(s, b)) if counts else np.nan))
    return np.array(rows)


@pytest.mark.parametrize("utility", UTILITIES, ids=name_of)
@pytest.mark.parametrize("negative", [False, True])
def test_scan_is_the_brute_force_over_all_cuts(utility: Utility, negative: bool) -> None:
    rng = np.random.default_rng(7)
    for levels in (5, 30, 10_000):  # many ties, some, none
        y, score = rng.random(120) < 0.4, rng.integers(0, levels, size=120) / levels
        w = rng.exponential(size=120)
        if negative:
            w *= rng.choice([-1.0, 1.0], p=[0.15, 0.85], size=120)
        best = scan(score, y, w, utility, "peak", min_effective=3.0)
        events, s, b, z = _brute_force(score, y, w, utility, 3.0).T
        curve = best.curve
        np.testing.assert_array_equal(curve.fraction, events / 120)
        np.testing.assert_allclose(curve.s, s, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(curve.b, b, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(curve.significance, z, rtol=1e-11)
        top = int(np.nanargmax(z))
        assert best.significance == pytest.approx(z[top], rel=1e-11)
        assert best.fraction == events[top] / 120
        kept = w[(score >= best.cut) & ~y]
        assert best.effective_background == pytest.approx(kept.sum() ** 2 / np.square(kept).sum(), rel=1e-11)


def _consistent(best: CutScan, score: np.ndarray, y: np.ndarray, w: np.ndarray) -> None:
    """The cut, and all cuts of the curve, select what they say."""
    curve = best.curve
    for cut, fraction, s, b in zip(*curve[:4], strict=True):
        kept = score >= float(cut)
        assert kept.mean() == fraction
        assert w[kept & y].sum() == pytest.approx(s, rel=1e-12, abs=1e-12)
        assert w[kept & ~y].sum() == pytest.approx(b, rel=1e-12, abs=1e-12)
    kept = score >= best.cut
    assert kept.mean() == best.fraction
    assert w[kept & y].sum() == pytest.approx(best.s, rel=1e-12)
    assert w[kept & ~y].sum() == pytest.approx(best.b, rel=1e-12)
    assert best.significance == pytest.approx(float(best.utility.value(best.s, best.b)), rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble, np.int64, np.bool_])
@pytest.mark.parametrize("rule", ["plateau", "peak", "smooth"])
def test_the_cut_selects_what_it_says(dtype: Any, rule: str) -> None:
    score, y, w = _sample(600)
    score = (score * 2 if np.dtype(dtype).kind in "iu" else score > 1 if dtype == np.bool_ else score).astype(dtype)
    _consistent(scan(score, y, w, rule=rule, min_effective=5), score, y, w)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@given(
    picks=st.lists(st.integers(0, 9), min_size=12, max_size=12),
    start=st.sampled_from([0.1, 1.0, 0.7548, -0.3, 0.0, 1e-7, np.inf]),
)
def test_cuts_between_neighbouring_floats_and_infinities(dtype: Any, picks: list[int], start: float) -> None:
    ladder = [np.array(start, dtype=dtype)]
    for _ in range(7):
        ladder.append(np.nextafter(ladder[-1], np.array(-np.inf, dtype=dtype)))
    ladder += [np.array(np.inf, dtype=dtype), np.array(-np.inf, dtype=dtype)]
    score = np.array([ladder[i] for i in picks], dtype=dtype)
    y = np.arange(12) % 2 == 0
    _consistent(scan(score, y, np.ones(12), rule="peak", min_effective=0.0), score, y, np.ones(12))


def test_ties_are_never_split() -> None:
    score = np.repeat([0.9, 0.5, 0.1], 4)
    y = np.array([1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0], dtype=bool)
    best = scan(score, y, np.ones(12), rule="plateau", min_effective=0.0)
    assert best.curve.fraction.tolist() == [4 / 12, 8 / 12, 1.0]
    assert best.curve.cut.tolist() == [0.7, 0.3, 0.1]


def test_cuts_that_do_not_count_are_nan_and_never_chosen() -> None:
    # A pure signal region, then negative signal, then too little background, then a usable cut far below the others.
    score = np.arange(40.0)[::-1]
    y = np.zeros(40, dtype=bool)
    y[[0, 1, 3, 30]] = True
    w = np.ones(40)
    w[3] = -9.0
    w[30] = 8.0
    for rule in (
        "plateau",
        "peak",
        "smooth",
    ):  # tests/cut/test_cut_model.py has the rule "model", for which these are few
        best = scan(score, y, w, rule=rule, min_effective=10.0)
        z = best.curve.significance
        assert np.isnan(z[:2]).all()  # b = 0, where AMS2 is infinite
        assert np.isnan(z[3:30]).all()  # s < 0
        assert np.isnan(z[2])  # one background event
        assert np.isfinite(z[30:]).all()
        assert best.s >= 0
        assert best.effective_background >= 10
        assert best.fraction >= 31 / 40


def test_the_floor_is_ten_or_one_with_a_warning() -> None:
    score, y, w = _sample(2000)
    effective = []
    for best in (scan(score, y, w), scan(score, y, w, min_effective=50.0)):
        first = int(np.flatnonzero(np.isfinite(best.curve.significance))[0])
        kept = w[(score >= best.curve.cut[first]) & ~y]
        effective.append(kept.sum() ** 2 / np.square(kept).sum())
    assert 10 <= effective[0] < 13
    assert 50 <= effective[1] < 53
    few = slice(0, 60)
    with pytest.warns(SmallSampleWarning, match=r"the background has \d\d\.\d effective events; cuts that keep as few"):
        small = scan(score[few], y[few], w[few], rule="plateau")
    assert small.effective_background >= 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scan(score[few], y[few], w[few], rule="plateau", min_effective=1.0)


@pytest.mark.parametrize(("n_background", "least"), [(99, 1), (100, 10)])
def test_a_hundred_effective_background_events_are_not_few(n_background: int, least: int) -> None:
    """From there on a cut must keep ten of them, and nothing is said."""
    y = np.append(np.zeros(n_background, dtype=int), np.ones(20, dtype=int))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        best = scan(np.arange(y.size)[::-1], y, np.ones(y.size), rule="plateau")
    assert [w.category for w in caught] == [SmallSampleWarning] * (least == 1)
    first = int(np.flatnonzero(np.isfinite(best.curve.significance))[0])
    assert best.curve.b[first] == least


def test_single_events_that_decide_are_said() -> None:
    y, weight = np.arange(80) % 2 == 0, np.ones(80)
    y[:20] = True
    y[3] = False
    with pytest.warns(SmallSampleWarning, match=r"1\.0 of background; its significance hangs on single events"):
        scan(-np.arange(80.0), y, weight, rule="peak", min_effective=0.0)
    weight[18] = 1e4  # a signal event
    with pytest.warns(SmallSampleWarning, match=r"the cut keeps 1\.0 effective signal events and \d+\.0 of background"):
        scan(-np.arange(80.0), y, weight, rule="peak", min_effective=1.0)


def test_nothing_to_choose_is_an_error_with_the_reason() -> None:
    score, y, w = _sample(300)
    with pytest.raises(InputError, match=r"no cut is valid: .* at least 1000, but over all cuts s reaches .*"):
        scan(score, y, w, min_effective=1000.0)
    with pytest.raises(InputError, match=r"no cut is valid: .*b 0 and the effective background count 0"):
        scan(score, y, np.where(y, w, 0.0), min_effective=1.0)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"score": [0.1, np.nan, 0.2]}, "score is NaN in 1 of 3 rows (at 1)"),
        ({"score": [0.1, 0.2]}, "score has shape (2,) for 3 events"),
        ({"y": [0, 0, 0]}, "y has one class only (0)"),
        ({"sample_weight": [1.0, np.inf, 1.0]}, "sample_weight is NaN or infinite in 1 of 3 rows (at 1)"),
        ({"utility": "ams"}, "no utility is called 'ams'; did you mean"),
        ({"rule": "plato"}, "rule must be one of 'model', 'plateau', 'peak', 'smooth', got 'plato'"),
        ({"min_effective": -1.0}, "min_effective must be >= 0, got -1.0"),
        ({"pos_label": 7}, "pos_label=7 is not among the labels [0, 1]"),
    ],
)
def test_bad_input(change: dict[str, Any], sentence: str) -> None:
    given: dict[str, Any] = {"score": [0.3, 0.2, 0.1], "y": [1, 0, 0], "sample_weight": [1.0, 1.0, 1.0]}
    with pytest.raises(InputError, match=re.escape(sentence)):
        scan(**{"min_effective": 1.0, **given, **change})


def test_labels_names_and_b_reg() -> None:
    score, y, w = _sample(2000)
    best = scan(score, y, w, AMS2(b_reg=10.0))
    named = scan(score, np.where(y, "Signal", "background"), w, AMS2(b_reg=10.0))
    assert (named.cut, named.s, named.b) == (best.cut, best.s, best.b)
    flipped = scan(score, ~y, w, AMS2(b_reg=10.0), pos_label=False)
    assert (flipped.cut, flipped.s) == (best.cut, best.s)
    assert best.b == pytest.approx(w[(score >= best.cut) & ~y].sum())  # without b_reg
    assert best.significance == pytest.approx(float(AMS2().value(best.s, best.b + 10.0)))
    assert scan(score, y, w, "ams3").utility == AMS3()
    assert "rule='model', utility=AMS2(b_reg=10.0)" in repr(best)
    assert best == best  # noqa: PLR0124 - arrays inside must not be compared
    assert best != named


# rules, on curves made for them


def _taken(rule: str, z: np.ndarray, last: np.ndarray, error_at: Callable[[int], float]) -> int:
    def unused(*_: Any) -> Any:
        raise AssertionError

    return choose(rule, Seen(z, last, error_at, z, z, unused, unused))[1]


def test_peak_takes_the_highest_and_the_tightest_of_equals() -> None:
    z = np.array([np.nan, 1.0, 3.0, 2.0, 3.0, np.nan])
    assert _taken("peak", z, np.arange(6), lambda _: 1.0) == 2


def test_plateau_takes_the_middle_of_the_widest_stretch() -> None:
    z = np.zeros(100)
    z[3] = 5.0  # a narrow spike
    z[40:61] = 4.6  # a wide stretch within half of the error of 1
    z[70:99] = 4.4  # wider, but too low
    assert _taken("plateau", z, np.arange(100), lambda _: 1.0) == 50
    assert _taken("plateau", z, np.arange(100), lambda _: 0.1) == 3  # a small error trusts the spike
    assert _taken("plateau", z, np.arange(100), lambda _: 1.3) == 84
    assert _taken("plateau", z, np.arange(100), lambda k: 1.0 if k == 3 else 9.9) == 50  # the error of the peak


def test_plateau_is_measured_in_events_and_broken_by_cuts_that_do_not_count() -> None:
    z = np.array([0.0, 2.0, 2.0, 2.0, 0.0, 2.0, 2.0, 0.0])
    last = np.array([0, 1, 2, 3, 4, 5, 90, 99])
    assert _taken("plateau", z, last, lambda _: 0.1) in (5, 6)  # two cuts, 85 events
    assert _taken("plateau", z, np.arange(8), lambda _: 0.1) == 2  # three cuts
    stretch = np.array([2.0, 2.0, 2.0, np.nan, 2.0, 2.0, 2.0, 2.0, 2.0])
    assert _taken("plateau", stretch, np.arange(9), lambda _: 0.1) == 6
    uneven = np.array([0, 10, 20, 90, 100])  # the middle event is the 50th, whatever the number of cuts
    assert _taken("plateau", np.ones(5), uneven, lambda _: 0.1) == 2


def test_smooth_takes_the_peak_of_the_average() -> None:
    n = 1000
    z = 3.0 - ((np.arange(n) - 600) / 300.0) ** 2
    z[100] = 9.0  # one fluctuation
    z[590:610] = np.nan
    assert _taken("peak", z, np.arange(n), lambda _: 1.0) == 100
    at = _taken("smooth", z, np.arange(n), lambda _: 1.0)
    assert 570 <= at <= 630
    assert np.isfinite(z[at])
    # 2 % of 1,000 events: a stretch of 20 raised by more than its neighbours wins, from its middle.
    z = np.ones(n)
    z[300:321] = 2.0
    z[320] = 3.0  # the last event of the window belongs to it
    assert _taken("smooth", z, np.arange(n), lambda _: 1.0) == 310


def test_plateau_depth_is_half_a_standard_error() -> None:
    score, y, w = _sample(5000)
    best = scan(score, y, w, rule="plateau")
    z = best.curve.significance
    top = int(np.nanargmax(z))
    kept = score >= best.curve.cut[top]
    s, b = best.curve.s[top], best.curve.b[top]
    w_s, w_b = w[kept & y], w[kept & ~y]
    slope_s, slope_b = (np.array(AMS2().class_weights(s, b)) / z[top]).tolist()
    error = np.hypot(slope_s * np.sqrt((w_s**2).sum()), slope_b * np.sqrt((w_b**2).sum()))
    high = np.flatnonzero(z >= z[top] - 0.5 * error)
    groups = np.split(high, np.flatnonzero(np.diff(high) > 1) + 1)
    widest = max(groups, key=lambda g: g[-1] - g[0])
    middle = (widest[0] + widest[-1] + 2) / 2 / 5000
    # The error comes from a step of one sigma instead of a slope, so it is not quite the same.
    assert best.fraction == pytest.approx(middle, abs=0.1 * (widest[-1] - widest[0]) / 5000)
    assert scan(score, y, w, rule="peak").significance == pytest.approx(z[top], rel=1e-12)


@pytest.mark.parametrize("heavy", ["signal", "background"])
def test_standard_errors_are_propagated_from_both_classes(heavy: str) -> None:
    score, y, w = _sample(20_000)
    w = np.ones(20_000)
    w[y == (heavy == "signal")] = np.where(np.arange(20_000) % 5 == 0, 30.0, 0.1)[y == (heavy == "signal")]
    best = scan(score, y, w, "ams3")
    cuts = np.array([4000, 9000, 15_000])
    for cut, error in zip(cuts, best.errors(cuts), strict=True):
        kept = score >= best.curve.cut[cut]
        s, b = w[kept & y], w[kept & ~y]
        relative = np.hypot(np.sqrt((s**2).sum()) / s.sum(), 0.5 * np.sqrt((b**2).sum()) / b.sum())
        assert error == pytest.approx(relative * best.curve.significance[cut], rel=0.06)


# intervals


def test_intervals_are_reproducible() -> None:
    best = scan(*_sample(3000))
    assert best.interval(n_boot=50) == best.interval(n_boot=50, random_state=0)
    assert best.interval(n_boot=50) != best.interval(n_boot=50, random_state=1)


@pytest.mark.parametrize("utility", [AMS2(), AMS2(b_reg=20.0), GaussianBackground(5.0)])
def test_interval_has_the_width_of_the_standard_error(utility: Utility) -> None:
    score, y, w = _sample(8000)
    best = scan(score, y, w, utility, "model" if utility == AMS2() else "plateau")
    kept = score >= best.cut
    slope_s, slope_b = utility.class_weights(best.s, best.b)
    sigma = np.hypot(slope_s * np.sqrt((w[kept & y] ** 2).sum()), slope_b * np.sqrt((w[kept & ~y] ** 2).sum()))
    sigma /= best.significance  # Z = sqrt(2 F)
    one, two = best.interval(level=0.6827, n_boot=2000), best.interval(level=0.9545, n_boot=2000)
    assert (one.significance[1] - one.significance[0]) / 2 == pytest.approx(sigma, rel=0.08)
    assert (two.significance[1] - two.significance[0]) / 4 == pytest.approx(sigma, rel=0.08)
    assert np.mean(one.significance) == pytest.approx(best.significance, abs=0.15 * sigma)
    assert two.cut[0] <= one.cut[0] <= best.cut <= one.cut[1] <= two.cut[1]


def test_interval_covers_the_scatter_of_new_samples() -> None:
    """Significance at a fixed cut, over samples with Poisson numbers of events."""
    n, cut = 3000, 1.5
    inside, trials = 0, 150
    truth = scan(*_sample(400_000)).curve
    at = int(np.searchsorted(-truth.cut, -cut))
    expected = float(AMS2().value(truth.s[at] * n / 400_000, truth.b[at] * n / 400_000))
    for seed in range(trials):
        size = int(np.random.default_rng(seed).poisson(n))
        score, y, w = _sample(size, seed=1000 + seed)
        best = scan(np.where(score >= cut, 1.0, 0.0), y, w, rule="peak")
        low, high = best.interval(n_boot=200, random_state=seed).significance
        inside += low <= expected <= high
    assert 0.68 * trials - 3 * 5.7 < inside < 0.68 * trials + 3 * 5.7


def test_coarse_blocks_agree_with_all_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    best = scan(*_sample(3000))
    exact = best.interval(n_boot=300)
    monkeypatch.setattr(module, "MAX_BLOCKS", 200)
    assert best._grid(module.MAX_BLOCKS).size <= 200
    assert best.chosen in best._grid(module.MAX_BLOCKS)
    coarse = best.interval(n_boot=300)
    assert coarse.significance == pytest.approx(exact.significance, rel=1e-12)  # the same replicas of the same cut
    assert coarse.cut == pytest.approx(exact.cut, abs=0.1 * (exact.cut[1] - exact.cut[0]))


def test_no_more_than_4096_blocks() -> None:
    best = scan(*_sample(20_000))
    grid = best._grid(module.MAX_BLOCKS)
    assert 4000 < grid.size <= 4096
    assert best.chosen in grid
    assert grid[-1] == best.curve.cut.size - 1
    assert (np.diff(grid) > 0).all()


@pytest.mark.parametrize("rule", ["plateau", "peak", "smooth"])
def test_the_cut_of_each_replica_follows_the_rule(rule: str) -> None:
    best = scan(*_sample(3000), rule=rule)
    low, high = best.interval(n_boot=200).cut
    assert low < high
    assert low <= best.cut <= high
    if rule == "peak":
        narrow = scan(*_sample(3000), rule="smooth").interval(n_boot=200).cut
        assert high - low > 0.5 * (narrow[1] - narrow[0])


def test_intervals_are_quantiles_over_replicas_of_the_whole_procedure() -> None:
    best = scan(*_sample(3000), rule="plateau")
    ranking, z0 = best.ranking, best.curve.significance
    assert isinstance(ranking, Ranking)
    s, b = poisson_sums(ranking.weight, ranking.signal, np.arange(3000), 40, random_state=9)
    error = best.errors(np.arange(3000))
    cuts, at_cut = [], []
    for z in np.where(np.isfinite(z0), AMS2().value(s, np.where(b > 0, b, 1.0)), np.nan):
        high = np.flatnonzero(z >= np.nanmax(z) - 0.5 * error[int(np.nanargmax(z))])
        stretch = max(np.split(high, np.flatnonzero(np.diff(high) > 1) + 1), key=lambda g: g[-1] - g[0])
        cuts.append(best.curve.cut[(stretch[0] + stretch[-1]) // 2])
        at_cut.append(z[best.chosen])
    interval = best.interval(n_boot=40, random_state=9, level=0.5)
    assert interval.significance == pytest.approx(np.quantile(at_cut, [0.25, 0.75]), rel=1e-12)
    assert interval.cut == tuple(np.quantile(cuts, [0.25, 0.75], method="nearest"))


def test_intervals_with_infinite_scores() -> None:
    score, y, w = _sample(3000)
    score[score > 1.0] = np.inf
    score[score < 0.0] = -np.inf
    best = scan(score, y, w)
    interval = best.interval(n_boot=50)
    assert interval.significance[0] < best.significance < interval.significance[1]
    assert not np.isnan(interval.cut).any()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"level": 0.0}, "level must be between 0 and 1, got 0.0"),
        ({"level": 1.0}, "level must be between 0 and 1, got 1.0"),
        ({"level": 68}, "level must be between 0 and 1, got 68"),
        ({"n_boot": 0}, "n_boot must be at least 1, got 0"),
    ],
)
def test_bad_intervals(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        scan(*_sample(500)).interval(**arguments)


def test_no_background_in_any_replica() -> None:
    best = scan([3.0, 2.0, 1.0], [1, 0, 1], [1.0, 1.0, 1.0], rule="plateau", min_effective=1.0)
    # Some seed draws no copies of the one background event in its only replica.
    with pytest.raises(InputError, match="no replica keeps any background at the cut"):
        _ = [best.interval(n_boot=1, random_state=seed) for seed in range(50)]


# figure


def test_plot_draws_curve_band_and_cut() -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    best = scan(*_sample(2000))
    figure, ax = plt.subplots()
    assert best.plot(ax) is ax
    curve, line = ax.get_lines()
    np.testing.assert_allclose(curve.get_xdata(), best.curve.fraction)
    np.testing.assert_allclose(curve.get_ydata(), best.curve.significance)
    assert set(line.get_xdata()) == {best.fraction}
    (band,) = ax.collections
    vertices = band.get_paths()[0].vertices
    error = best.errors(best._grid(module.MAX_BLOCKS))
    assert vertices[:, 1].max() == pytest.approx(np.nanmax(best.curve.significance + error))
    assert vertices[:, 1].min() == pytest.approx(np.nanmin(best.curve.significance - error))
    assert [t.get_text() for t in ax.get_legend().get_texts()][1] == "significance"
    assert ax.get_ylabel() == "significance (AMS2)"
    plt.close(figure)
    current = plt.gca()
    assert best.plot() is current
    plt.close("all")
