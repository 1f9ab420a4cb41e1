from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare, poisson

from fivesigma.cut import bootstrap as module
from fivesigma.cut.bootstrap import PoissonCounts, poisson_sums


def test_counts_follow_a_poisson_distribution() -> None:
    n = 400_000
    counts = PoissonCounts(0, n).draw(n)
    seen = np.bincount(counts, minlength=9)
    assert seen.size == 9  # no more than eight copies
    expected = np.append(poisson.pmf(np.arange(6), 1.0), poisson.sf(5, 1.0)) * n
    assert chisquare(np.append(seen[:6], seen[6:].sum()), expected).pvalue > 1e-3


def test_mean_and_variance_are_one_to_sixteen_bits() -> None:
    above = (65536 - module._THRESHOLDS.astype(np.int64)) / 65536  # P(copies > k)
    mean = above.sum()
    second = ((2 * np.arange(8) + 1) * above).sum()
    assert mean == pytest.approx(1.0, abs=5e-5)
    assert second - mean**2 == pytest.approx(1.0, abs=5e-4)


@pytest.mark.parametrize("n", [1, 3, 4, 5, 1001])
def test_any_number_of_counts(n: int) -> None:
    source = PoissonCounts(1, 2000)
    first = source.draw(n).copy()
    assert first.shape == (n,)
    np.testing.assert_array_equal(PoissonCounts(1, n).draw(n), first)


def test_draws_differ() -> None:
    source = PoissonCounts(1, 1000)
    first = source.draw(1000).copy()
    assert (first != source.draw(1000)).any()
    assert (first != PoissonCounts(2, 1000).draw(1000)).any()


def _sample(n: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.exponential(size=n), rng.random(n) < 0.3


def test_blocks_do_not_change_the_sums_at_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK", 300)  # blocks that begin and end inside chunks
    weight, signal = _sample()
    fine = poisson_sums(weight, signal, np.arange(weight.size), 20, random_state=5)
    starts = np.array([0, 1, 7, 250, 251, 999, 1800])
    ends = np.append(starts[1:] - 1, weight.size - 1)
    coarse = poisson_sums(weight, signal, starts, 20, random_state=5)
    for every, some in zip(fine, coarse, strict=True):
        np.testing.assert_allclose(some, every[:, ends], rtol=1e-12)
    assert (np.diff(fine[0], axis=1)[:, ~signal[1:]] == 0).all()
    assert (np.diff(fine[1], axis=1)[:, signal[1:]] == 0).all()


def test_replicas_are_whole_numbers_of_events() -> None:
    weight, signal = np.ones(50), np.arange(50) % 2 == 0
    s, b = poisson_sums(weight, signal, np.arange(50), 30, random_state=0)
    for sums in (s, b):
        copies = np.diff(sums, axis=1, prepend=0.0)
        np.testing.assert_array_equal(copies, np.round(copies))
        assert copies.min() == 0.0
        assert copies.max() > 2.0


@pytest.mark.parametrize("chunk", [1 << 17, 128])
def test_mean_and_scatter_of_the_sums(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(module, "_CHUNK", chunk)
    weight, signal = _sample()
    starts = np.array([0, 1000])
    n_boot = 2000
    for sums, members in zip(poisson_sums(weight, signal, starts, n_boot, 0), (signal, ~signal), strict=True):
        for column, end in enumerate((1000, 2000)):
            w = weight[:end][members[:end]]
            sigma = np.sqrt(np.square(w).sum())
            assert sums[:, column].mean() == pytest.approx(w.sum(), abs=4 * sigma / np.sqrt(n_boot))
            assert sums[:, column].std() == pytest.approx(sigma, rel=4 / np.sqrt(2 * n_boot))
    s, b = poisson_sums(weight, signal, starts, n_boot, 0)
    assert abs(np.corrcoef(s[:, 1], b[:, 1])[0, 1]) < 4 / np.sqrt(n_boot)
    assert abs(np.corrcoef(s[:-1, 1], s[1:, 1])[0, 1]) < 4 / np.sqrt(n_boot)
