from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from fivesigma import AMS2, AMS3, GaussianBackground, OnOff, SOverRootSB, Utility, scan
from fivesigma._types import IntArray
from fivesigma.cut.bootstrap import poisson_sums
from fivesigma.cut.ranking import Ranking, rank_events
from fivesigma.cut.rules import KnownBackground, ModelledCurve, model_curve
from fivesigma.cut.yield_model import MIN_CELLS
from fivesigma.errors import SmallSampleWarning
from tests.significance.exact import name_of

Sample = tuple[np.ndarray, np.ndarray, np.ndarray]
TOTALS = 700.0, 400_000.0
SEEDS = st.integers(0, 2**32 - 1)


def _sample(n: int, seed: int, distance: float = 1.5) -> Sample:
    """Two Gaussians with weights that scatter, scaled to fixed yields."""
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.3
    w = rng.exponential(size=n)
    for c, total in zip((y, ~y), TOTALS, strict=True):
        w[c] *= total / w[c].sum()
    return rng.normal(distance * y), y, w


def _curve(sample: Sample, utility: Utility, floor: float = 10.0) -> ModelledCurve | None:
    ranking = rank_events(*sample)
    return model_curve(KnownBackground(utility).seen(ranking, ranking.s), ranking.valid(floor))


def _true(cut: float, distance: float, utility: Utility) -> float:
    return float(utility.value(TOTALS[0] * ndtr(distance - cut), TOTALS[1] * ndtr(-cut)))


@pytest.mark.parametrize(
    "utility",
    [AMS2(b_reg=10.0), AMS2(), AMS3(), SOverRootSB(), OnOff(tau=1.0), GaussianBackground(sigma=50.0)],
    ids=name_of,
)
def test_it_loses_less_than_the_peak_and_the_plateau(utility: Utility) -> None:
    best = max(_true(cut, 1.5, utility) for cut in np.linspace(-2, 4, 601))
    lost: dict[str, list[float]] = {"model": [], "plateau": [], "peak": []}
    for seed in range(40):
        sample = _sample(10_000, seed)
        for rule, values in lost.items():
            values.append(best - _true(scan(*sample, utility, rule).cut, 1.5, utility))
    mean = {rule: np.mean(values) for rule, values in lost.items()}
    assert mean["model"] < 0.75 * mean["plateau"]
    assert mean["model"] < 0.75 * mean["peak"]


def test_with_many_events_both_views_are_the_truth() -> None:
    utility = AMS2(b_reg=10.0)
    sample = _sample(400_000, 3)
    found = _curve(sample, utility)
    assert found is not None
    cuts = rank_events(*sample).thresholds(found.cuts)
    usual = (cuts > 0.0) & (cuts < 2.5)
    true = np.array([_true(cut, 1.5, utility) for cut in cuts[usual]])
    assert usual.sum() > 50
    np.testing.assert_allclose(found.by_fraction[usual], true, rtol=0.03)
    np.testing.assert_allclose(found.by_background[usual], true, rtol=0.03)


def _disagreeing(n: int) -> Iterator[tuple[Ranking, IntArray, ModelledCurve]]:
    """Samples on which the best cuts of the two views keep fractions that the grid can tell apart."""
    for seed in range(40):
        y = np.arange(n) % 2 == 0
        score = np.random.default_rng(seed).normal(1.5 * y)
        sample = score, y, np.where(y, TOTALS[0], TOTALS[1]) / (n / 2)
        found, ranking = _curve(sample, AMS2(b_reg=10.0), floor=1.0), rank_events(*sample)
        assert found is not None
        at = found.cuts[[np.nanargmax(found.by_fraction), np.nanargmax(found.by_background)]]
        if abs(np.diff(np.log(ranking.last[at] + 1.0))[0]) > 0.2:
            yield ranking, at, found


@pytest.mark.parametrize("n", [400, 4_000])
def test_the_second_view_is_trusted_as_the_background_at_the_cut_grows(n: int) -> None:
    shares, trusts = [], []
    for ranking, at, found in _disagreeing(n):
        first, second, taken = np.log(ranking.last[[*at, found.best]] + 1.0)
        shares.append((taken - first) / (second - first))
        count = np.sqrt(np.prod(ranking.b[at])) / ranking.b[-1] * n / 2  # all background weighs the same
        trusts.append(count / (count + 50.0))
    assert len(shares) > 5
    np.testing.assert_allclose(shares, trusts, atol=0.2)


def test_the_cut_is_valid_where_no_cut_between_the_two_views_is() -> None:
    seen = 0
    for ranking, at, _ in _disagreeing(400):
        valid = np.isin(np.arange(ranking.last.size), at)
        found = model_curve(KnownBackground(AMS2(b_reg=10.0)).seen(ranking, ranking.s), valid)
        assert found is not None
        assert found.best in at
        seen += 1
    assert seen > 5


@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_no_monotone_transform_of_the_score_and_no_order_of_the_events_matters(seed: int) -> None:
    score, y, w = _sample(2_000, seed)
    best = scan(score, y, w, AMS2(b_reg=10.0), "model")
    again = scan(np.exp(score), y, w, AMS2(b_reg=10.0), "model")
    assert again.fraction == best.fraction
    order = np.random.default_rng(seed).permutation(score.size)
    shuffled = scan(score[order], y[order], w[order], AMS2(b_reg=10.0), "model")
    assert (shuffled.cut, shuffled.fraction) == (best.cut, best.fraction)


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_scales_of_the_weights_do_not_matter_where_the_utility_has_none(seed: int, of_s: float, of_b: float) -> None:
    score, y, w = _sample(2_000, seed)
    best = scan(score, y, w, AMS3(), "model")
    scaled = scan(score, y, w * np.where(y, of_s, of_b), AMS3(), "model")
    # Rounding may decide between neighbours of the grid, which is even in the logarithm of the fraction.
    assert scaled.fraction == pytest.approx(best.fraction, rel=0.05)


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.data())
def test_an_event_in_two_halves_hardly_matters(seed: int, data: st.DataObject) -> None:
    score, y, w = _sample(2_000, seed)
    best = scan(score, y, w, AMS2(b_reg=10.0), "model")
    i = data.draw(st.integers(0, score.size - 1))
    w[i] /= 2
    twice = np.append(np.arange(score.size), i)
    halved = scan(score[twice], y[twice], w[twice], AMS2(b_reg=10.0), "model")
    # Only the number of events moves, by one; the cells move with it, and the grid resolves a few per cent.
    assert halved.fraction == pytest.approx(best.fraction, rel=0.1)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(2, 400), st.sampled_from([3, 20, 10**6]), st.sampled_from([0.0, 1.0, 10.0]))
def test_the_cut_is_always_valid(seed: int, n: int, levels: int, floor: float) -> None:
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.5
    y[:2] = True, False
    score = np.floor(rng.normal(y) * levels)
    w = rng.exponential(size=n) * rng.choice([-1.0, 1.0], p=[0.1, 0.9], size=n)
    w[:2] = 30.0  # so that some cut is valid
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallSampleWarning)
        best = scan(score, y, w, rule="model", min_effective=min(floor, 1.0) if n < 100 else floor / 10)
    chosen = best.curve.fraction == best.fraction
    assert np.isfinite(best.curve.significance[chosen]).all()
    assert chosen.sum() == 1


def test_negative_weights_cost_no_more_than_the_plateau() -> None:
    utility = AMS2(b_reg=10.0)
    best = max(_true(cut, 1.5, utility) for cut in np.linspace(-2, 4, 601))
    lost: dict[str, list[float]] = {"model": [], "plateau": []}
    for seed in range(30):
        score, y, w = _sample(20_000, seed)
        rng = np.random.default_rng(seed)
        w *= rng.choice([-1.0, 1.0], p=[0.1, 0.9], size=w.size)
        for c, total in zip((y, ~y), TOTALS, strict=True):
            w[c] *= total / w[c].sum()
        for rule, values in lost.items():
            values.append(best - _true(scan(score, y, w, utility, rule).cut, 1.5, utility))
    assert np.mean(lost["model"]) < np.mean(lost["plateau"])


def test_too_few_events_are_said_and_have_the_plateau() -> None:
    score, y, w = _sample(60, 1)
    with pytest.warns(SmallSampleWarning, match=r"too few to model yields \(30 of each are needed\); the cut is the"):
        few = scan(score, y, w, rule="model", min_effective=1.0)
    assert few.cut == scan(score, y, w, rule="plateau", min_effective=1.0).cut
    assert few.rule == "plateau"
    assert "rule='plateau'" in repr(few)


@pytest.mark.parametrize("few", [True, False], ids=["signal", "background"])
def test_both_classes_need_enough_events(few: bool) -> None:
    y = np.where(np.arange(1_020) < 20, few, not few)
    sample = np.random.default_rng(0).normal(1.5 * y), y, np.ones(y.size)
    with pytest.warns(SmallSampleWarning, match="too few to model yields"):
        best = scan(*sample, rule="model", min_effective=1.0)
    assert best.cut == scan(*sample, rule="plateau", min_effective=1.0).cut
    assert _curve(sample, AMS2(), floor=1.0) is None


def test_few_distinct_scores_have_the_plateau() -> None:
    score, y, w = _sample(5_000, 1)
    coarse = np.round(score)
    assert np.unique(coarse).size < MIN_CELLS
    assert scan(coarse, y, w, rule="model").cut == scan(coarse, y, w, rule="plateau").cut


def test_a_background_that_few_cells_hold_leaves_the_first_view() -> None:
    # All background but a little is tied at the bottom, so its efficiency takes few values.
    rng = np.random.default_rng(0)
    y = np.repeat([True, False], [2_000, 500])
    score = np.where(y, rng.random(2_500), -1.0)
    score[-12:] = np.repeat([0.9, 0.6, 0.3], 4)
    found = _curve((score, y, np.ones(2_500)), AMS2(), floor=1.0)
    assert found is not None
    np.testing.assert_array_equal(found.by_fraction, found.by_background)


def test_ties_are_not_split() -> None:
    score, y, w = _sample(5_000, 2)
    best = scan(np.round(score, 1), y, w, AMS2(b_reg=10.0), "model")
    assert (np.round(score, 1) >= best.cut).mean() == best.fraction


def test_weights_that_change_by_orders_of_magnitude_cost_less_than_with_the_plateau() -> None:
    """Two-dimensional Gaussians with weights of their own slope, no b_reg: the exact ratio is the score."""
    truth = scan(*_ratio_scored(400_000, 99), AMS2(), "peak", min_effective=500.0).curve
    lost: dict[str, list[float]] = {"model": [], "plateau": []}
    for seed in range(40):
        for rule, values in lost.items():
            cut = scan(*_ratio_scored(5_000, seed), AMS2(), rule).cut
            values.append(float(np.nanmax(truth.significance) - np.interp(-cut, -truth.cut, truth.significance)))
    assert np.mean(lost["model"]) < 0.35 * np.mean(lost["plateau"])


def _ratio_scored(n: int, seed: int) -> Sample:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2 == 1
    x, z = rng.normal(size=(2, n))
    x[y] += 1.5
    slope = np.where(y, 0.5, -0.8)
    w = np.where(y, 300.0, 3000.0) / (n / 2) * np.exp(slope * z - slope**2 / 2) * rng.gamma(4.0, 0.25, size=n)
    return 1.5 * x + 1.3 * z, y, w


def test_the_interval_of_the_cut_chooses_by_the_same_rule() -> None:
    utility, sample = AMS2(b_reg=10.0), _sample(3_000, 4)
    best = scan(*sample, utility, "model")
    found = best.interval(n_boot=50, random_state=3)
    ranking, error = best.ranking, best.errors(np.arange(3_000))
    assert isinstance(ranking, Ranking)
    cuts = []
    for s, b in zip(*poisson_sums(ranking.weight, ranking.signal, ranking.last, 50, 3), strict=True):
        z = np.where(np.isfinite(best.values) & (b > 0), utility.value(s, np.where(b > 0, b, 1.0)), np.nan)
        top = int(np.nanargmax(z))
        replica = model_curve(
            KnownBackground(utility).seen(ranking, z)._replace(s=s, b=b), z >= z[top] - 2 * error[top]
        )
        assert replica is not None
        cuts.append(ranking.thresholds([replica.best])[0])
    np.testing.assert_array_equal(found.cut, np.quantile(cuts, [0.16, 0.84], method="nearest"))


def test_the_interval_of_the_cut_models_no_more_than_200_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    best = scan(*_sample(3_000, 4), AMS2(b_reg=10.0))
    assert best.rule == "model"
    many, few = best.interval(n_boot=260), best.interval(n_boot=200)
    # The draws of the signal come first, so more replicas draw other copies of the background.
    assert many.cut == pytest.approx(few.cut, rel=0.2)
    fitted = []

    def counted(*arguments: object) -> ModelledCurve | None:
        fitted.append(arguments)
        return model_curve(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("fivesigma.cut.rules.model_curve", counted)
    best.interval(n_boot=260)
    assert len(fitted) == 200


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.floats(0.2, 1.2))
def test_no_cut_that_is_clearly_worse_than_the_peak_is_taken(seed: int, slope: float) -> None:
    """Weights that change by orders of magnitude along the score mislead the model, most so without b_reg."""
    rng = np.random.default_rng(seed)
    y = rng.random(3_000) < 0.5
    score = rng.normal(2.0 * y)
    w = rng.exponential(size=y.size) * np.exp(np.where(y, -slope, slope) * score)
    best = scan(score, y, w, AMS2(), min_effective=5.0)
    top = int(np.nanargmax(best.values))
    assert best.significance >= best.values[top] - 2 * best.errors(np.array([top]))[0]


def test_the_significance_at_its_cut_is_less_optimistic() -> None:
    utility = AMS2(b_reg=10.0)
    optimism: dict[str, list[float]] = {"model": [], "plateau": []}
    for seed in range(60):
        sample = _sample(10_000, 500 + seed)
        for rule, values in optimism.items():
            best = scan(*sample, utility, rule)
            values.append(best.significance - _true(best.cut, 1.5, utility))
    assert np.mean(optimism["model"]) < 0.6 * np.mean(optimism["plateau"])
