"""Limits of `categorise` on some processes alone."""

from __future__ import annotations

import numpy as np
import pytest

from fivesigma import categorise
from fivesigma.errors import InputError


def events() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A signal, another one that counts as background and is pure where the first is, and a real background."""
    rng = np.random.default_rng(0)
    n = 4000
    process = np.repeat(["H", "other", "Z"], n)
    score = rng.normal(np.repeat([2.0, 2.5, 0.0], n))
    return score, (process == "H").astype(int), np.repeat([0.01, 0.001, 1.0], n), process


@pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")
@pytest.mark.parametrize("rule", ["peak", "smooth"])
def test_another_signal_cannot_satisfy_the_floor(rule: str) -> None:
    score, y, weight, process = events()
    real = process == "Z"

    def fewest(**options: object) -> float:
        found = categorise(score, y, weight, 5, process=process, rule=rule, min_effective=10, **options)  # type: ignore[arg-type]
        category = found.assign(score)
        return float(min(np.count_nonzero(real & (category == k)) for k in range(5)))

    assert fewest(floor_processes=["Z"]) >= 10
    assert fewest() < 10


def test_bad_floor_processes() -> None:
    score, y, weight, process = events()
    with pytest.raises(InputError, match="floor_processes needs process"):
        categorise(score, y, weight, 2, floor_processes=["Z"])
    with pytest.raises(InputError, match="floor_processes has the signal 'H'; only background can count"):
        categorise(score, y, weight, 2, process=process, floor_processes=["H"])
    with pytest.raises(InputError, match="floor_processes has 'W', of which there are no events"):
        categorise(score, y, weight, 2, process=process, floor_processes=["W"])
