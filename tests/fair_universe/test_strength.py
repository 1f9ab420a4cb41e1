"""The fit of mu: closed forms, pyhf, and coverage; the challenge's score by its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fivesigma.errors import InputError
from fivesigma.fair_universe.strength import Templates, score_intervals
from fivesigma.likelihood.shifts import Normalisation, Varied, yield_shifts

S, B = np.array([5.0, 10.0, 30.0]), np.array([1000.0, 200.0, 60.0])


def uncertain(size: float = 0.1) -> Templates:
    """One uncertainty of the whole background, one of the signal."""
    up_b = np.stack([size * B, 0 * B])
    up_s = np.stack([0 * S, 0.1 * S])
    return Templates(S, B, np.stack([up_s, -up_s]), np.stack([up_b, -up_b]))


def test_the_asimov_counts_give_the_true_mu_and_its_error() -> None:
    templates = Templates(S, B)
    mu = np.array([0.5, 1.0, 2.0])
    found = templates.fit(mu[:, None] * S + B)
    np.testing.assert_allclose(found.mu, mu, atol=1e-5)
    error = 1 / np.sqrt((S**2 / (mu[:, None] * S + B)).sum(axis=1))
    np.testing.assert_allclose((found.high - found.low) / 2, error, rtol=0.01)


def test_agrees_with_pyhf() -> None:
    pyhf = pytest.importorskip("pyhf")
    templates = uncertain()
    model = pyhf.Model(
        {
            "channels": [
                {
                    "name": "c",
                    "samples": [
                        {
                            "name": "s",
                            "data": S.tolist(),
                            "modifiers": [
                                {"name": "mu", "type": "normfactor", "data": None},
                                {
                                    "name": "theory",
                                    "type": "histosys",
                                    "data": {"hi_data": (1.1 * S).tolist(), "lo_data": (0.9 * S).tolist()},
                                },
                            ],
                        },
                        {
                            "name": "b",
                            "data": B.tolist(),
                            "modifiers": [
                                {
                                    "name": "shape",
                                    "type": "histosys",
                                    "data": {"hi_data": (1.1 * B).tolist(), "lo_data": (0.9 * B).tolist()},
                                }
                            ],
                        },
                    ],
                }
            ],
            "parameters": [{"name": "mu", "bounds": [[-1.5, 20]]}],
        },
        poi_name="mu",
        validate=False,
    )
    rng = np.random.default_rng(0)
    counts = rng.poisson(S + B, size=(4, 3)).astype(float)
    found = templates.fit(counts)
    for n, mu, low, high in zip(counts, found.mu, found.low, found.high, strict=True):
        data = [*n, *model.config.auxdata]
        best, lowest = pyhf.infer.mle.fit(data, model, return_fitted_val=True)
        assert float(best[model.config.poi_index]) == pytest.approx(mu, abs=2e-3)
        for end in (low, high):
            _, at = pyhf.infer.mle.fixed_poi_fit(end, data, model, return_fitted_val=True)
            assert float(at - lowest) == pytest.approx(1.0, abs=2e-3)  # twice the negative logarithm


def test_nuisances_widen_and_cover() -> None:
    rng = np.random.default_rng(1)
    templates = uncertain()
    theta = rng.normal(size=(2, 400))
    expected = 1.5 * (1 + 0.1 * theta[1])[:, None] * S + (1 + 0.1 * theta[0])[:, None] * B
    counts = rng.poisson(expected)
    truth = np.full(400, 1.5)
    knowing = templates.fit(counts)
    ignorant = templates.without_nuisances().fit(counts)
    judged, naive = (score_intervals(truth, f.low, f.high) for f in (knowing, ignorant))
    assert judged.width > naive.width
    assert judged.coverage == pytest.approx(0.683, abs=0.08)
    assert naive.coverage < 0.6
    assert judged.score > naive.score


def test_an_empty_category_is_fitted() -> None:
    found = Templates(S, B).fit([[1000.0, 0.0, 50.0]])
    assert np.isfinite([*found.mu, *found.low, *found.high]).all()
    assert found.low[0] < found.mu[0] < 0


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), n_nuisances=st.integers(0, 3), known=st.booleans())
def test_the_interval_is_where_the_likelihood_says(seed: int, n_nuisances: int, known: bool) -> None:
    rng = np.random.default_rng(seed)
    s, b = rng.uniform(1, 30, 4), rng.uniform(20, 2000, 4)
    up_s, up_b = rng.normal(0, 0.05, (2, n_nuisances, 4)) * np.stack([s, b])[:, None]
    shifts = np.stack([up_s, -up_s]), np.stack([up_b, -0.8 * up_b])
    templates = Templates(s, b, *shifts, None if known else 0.3 * b)
    counts = rng.poisson(rng.uniform(0, 3) * s + b, size=(3, 4)).astype(float)
    found = templates.fit(counts)
    lowest = templates.objective(counts, found.mu)
    for other in (-0.3, 0.02, 1.0):
        assert (templates.objective(counts, found.mu + other) >= lowest - 1e-7).all()
    for end, floor in ((found.low, -0.95 * (b / s).min()), (found.high, -np.inf)):
        inside = end > max(floor, -20) + 1e-3
        np.testing.assert_allclose(templates.objective(counts, end)[inside], lowest[inside] + 0.5, atol=1e-4)


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_covers_at_small_and_at_large_strengths(mu: float) -> None:
    """A fit that stopped at mu = 0 would cover 84 % of a small strength."""
    templates = Templates(S, B)
    found = templates.fit(np.random.default_rng(3).poisson(mu * S + B, size=(2000, 3)))
    covered = np.mean((found.low <= mu) & (mu <= found.high))
    assert covered == pytest.approx(0.6827, abs=3 * (0.6827 * 0.3173 / 2000) ** 0.5)


def test_templates_of_few_events_need_their_statistics() -> None:
    """The truth differs from templates of as many simulated events as the data have: the fit must know of that."""
    rng = np.random.default_rng(4)
    counts = rng.poisson(S + rng.poisson(B, size=(600, 3)))
    covered = []
    for variance in (B, None):
        found = Templates(S, B, variance=variance).fit(counts)
        covered.append(np.mean((found.low <= 1.0) & (found.high >= 1.0)))
    assert covered[0] == pytest.approx(0.68, abs=0.06)
    assert covered[1] < 0.6


def test_templates_come_from_filled_categories() -> None:
    y, process = np.array([1, 0, 0]), ["s", "b", "b"]
    moved = Varied(weight=np.array([11.0, 120.0, 900.0]))
    systematics: dict[str, tuple[Varied, None] | Normalisation] = {"shape": (moved, None), "b": Normalisation("b", 0.1)}
    edges, score = [0, 0.5, np.inf], np.array([1.0, 1.0, 0.0])
    found = Templates.of(yield_shifts(edges, score, y, [10.0, 100.0, 1000.0], systematics, process=process))
    np.testing.assert_allclose(found.s, [0, 10])
    assert found.shifts_s is not None
    np.testing.assert_allclose(found.shifts_s[0], [[0, 1], [0, 0]])
    assert found.shifts_b is not None
    np.testing.assert_allclose(found.shifts_b, [[[-100, 20], [100, 10]], [[100, -20], [-100, -10]]])
    assert found.variance is not None
    np.testing.assert_allclose(found.variance, [1e6, 1e4])


def test_bad_input_is_one_sentence() -> None:
    with pytest.raises(InputError, match="every category needs background"):
        Templates(S, 0 * B)
    with pytest.raises(InputError, match=r"counts must have the shape \(n_experiments, 3\)"):
        Templates(S, B).fit([1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="must be alike"):
        score_intervals([1.0], [0.5, 0.5], [1.5])


@pytest.mark.parametrize(("covered", "penalty"), [(68, 1.0), (60, 1.0), (50, None), (90, None)])
def test_the_score_follows_its_definition(covered: int, penalty: float | None) -> None:
    truth = np.ones(100)
    low, high = np.full(100, 0.5), np.full(100, 1.5)
    low[covered:], high[covered:] = 1.2, 2.2
    found = score_intervals(truth, low, high)
    if penalty is None:
        s = (0.6827 * 0.3173 / 100) ** 0.5
        distance = abs(covered / 100 - 0.6827) - 2 * s
        penalty = 1 + (distance / s) ** (4 if covered < 68 else 3)
    assert found.coverage == covered / 100
    assert found.score == pytest.approx(-np.log(1.001 * penalty))
