from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fivesigma._tools.sort import CHUNK, sort_descending


def _check(score: np.ndarray) -> None:
    flag = np.random.default_rng(1).random(score.size) < 0.4
    order, last, flag_by_rank = sort_descending(score, flag)
    np.testing.assert_array_equal(flag_by_rank, flag[order])
    np.testing.assert_array_equal(np.sort(order), np.arange(score.size))
    ranked = score[order]
    np.testing.assert_array_equal(ranked, np.sort(score)[::-1])
    changes = np.flatnonzero(ranked[:-1] != ranked[1:])
    np.testing.assert_array_equal(last, np.append(changes, score.size - 1))


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=50))
def test_any_floats(score: list[float]) -> None:
    _check(np.array(score))


@given(
    st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, 5e-324, -5e-324, 0.1]), min_size=1, max_size=40)
)
def test_ties_signed_zeros_and_infinities(score: list[float]) -> None:
    _check(np.array(score))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 4, CHUNK - 1, CHUNK, 2 * CHUNK + 5])
def test_sizes_and_types(n: int, dtype: type[np.floating]) -> None:
    _check(np.random.default_rng(n).normal(size=n).astype(dtype))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_neighbouring_floats_whose_difference_the_index_pushes_out(sign: float) -> None:
    rng = np.random.default_rng(0)
    ulp = np.spacing(0.3)
    _check(sign * (0.3 + ulp * rng.integers(0, 40, size=3000)))
    many = sign * rng.choice([0.3, 0.7], size=5000)
    _check(many + ulp * rng.integers(-2, 3, size=5000))
