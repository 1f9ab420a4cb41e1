"""Floors of `categorise` on some processes alone."""

from __future__ import annotations

import numpy as np
import pytest

from fivesigma import categorise
from fivesigma.errors import InputError
from fivesigma.likelihood.shifts import Varied


def events() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A signal, another one that counts as background and is pure where the first is, and a real background."""
    rng = np.random.default_rng(0)
    n = 4000
    process = np.repeat(["H", "other", "Z"], n)
    score = rng.normal(np.repeat([2.0, 2.5, 0.0], n))
    return score, (process == "H").astype(int), np.repeat([0.01, 0.001, 1.0], n), process


@pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")
@pytest.mark.parametrize("rule", ["peak", "model"])
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


@pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")
@pytest.mark.parametrize("rule", ["peak", "model"])
@pytest.mark.parametrize("uncertain", [False, True])
def test_naming_every_background_changes_nothing(rule: str, uncertain: bool) -> None:
    score, y, weight, process = events()
    larger = np.where(process == "Z", weight * (1 + 0.1 * score), weight)  # a slope of the real background alone
    systematics = {"slope": (Varied(weight=larger), None)} if uncertain else None
    options = {"process": process, "rule": rule, "systematics": systematics}
    plain, named = (
        categorise(score, y, weight, 3, **options, floor_processes=names)  # type: ignore[arg-type]
        for names in (None, ["Z", "other"])
    )
    np.testing.assert_allclose(named.edges, plain.edges)
