"""Categories of several channels that are chosen together from events."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fivesigma import Normalisation, ScoredEvents, Varied, categorise
from fivesigma._types import Array
from fivesigma.categories.one_score.search import categorise_channels
from fivesigma.errors import InputError
from fivesigma.likelihood.shifts import Systematics, profiled_significance, yield_shifts

pytestmark = pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")
Channel = tuple[ScoredEvents, Systematics]


def channel(seed: int, signal: float, *, levels: int = 0, free: bool = False, n: int = 3000) -> Channel:
    """Events of three processes with two systematics, one of them of the score; few distinct scores if asked for."""
    rng = np.random.default_rng(seed)
    is_signal = np.arange(n) % 2 == 0
    margin = rng.normal(1.5 * is_signal)
    process = np.where(is_signal, "S", np.where(rng.random(n) < 0.5, "A", "B"))
    weight = np.where(is_signal, signal / n, 1000 / n)

    def score(shift: float) -> Array:
        moved: Array = margin + shift
        return np.round(levels * np.tanh(moved)) if levels else moved

    systematics: dict[str, tuple[Varied, Varied | None] | Normalisation] = {
        "shift": (Varied(score=score(0.1)), Varied(score=score(-0.1))),
        "A": Normalisation("A", None if free else 0.2),
    }
    return ScoredEvents(score(0.0), is_signal, weight, None, process), systematics


@pytest.mark.parametrize("goal", ["discovery", "measurement"])
def test_one_channel_has_the_categories_of_categorise(goal: str) -> None:
    scored, systematics = channel(0, 60.0)
    alone = categorise(scored, n_categories=4, goal=goal, systematics=systematics)
    found = categorise_channels({"A": (scored, systematics)}, 4, goal=goal)["A"]
    np.testing.assert_array_equal(found.edges, alone.edges)
    assert found.significance == pytest.approx(alone.significance, rel=1e-12)


def together(channels: dict[str, Channel], edges: dict[str, list[float]]) -> float:
    """Profiled significance of all channels; a pull is one for all of them."""
    parts = [yield_shifts(edges[name], scored, systematics=given) for name, (scored, given) in channels.items()]
    s, b = (np.concatenate([part.yields(signal=c) for part in parts]) for c in (True, False))
    rows = [np.array(part.background_shifts()) for part in parts]
    up, down = (np.concatenate([row[:, i] for row in rows], axis=1) for i in (0, 1))
    return profiled_significance(s, b, up, down)


def test_it_is_the_best_of_all_partitions() -> None:
    """Six distinct scores in each channel; the yields that choose are smoothed, so that a little may be lost."""
    channels = {"A": channel(1, 60.0, levels=3), "B": channel(2, 20.0, levels=3)}
    found = categorise_channels(channels, 4, min_effective=10)
    ours = together(channels, {name: one.edges.tolist() for name, one in found.items()})
    places = np.arange(-3.5, 3.0)
    sets = [[*edges, np.inf] for k in (1, 2, 3) for edges in itertools.combinations(places.tolist(), k)]
    best = max(
        together(channels, {"A": first, "B": second})
        for first in sets
        for second in sets
        if len(first) + len(second) == 6
    )
    assert sum(len(one.edges) - 1 for one in found.values()) == 4
    assert 0.97 * best < ours <= best * (1 + 1e-9)


def test_shares_and_floors_hold() -> None:
    channels = {"A": channel(1, 60.0, free=True), "B": channel(2, 5.0), "C": (channel(3, 60.0)[0], {})}
    found = categorise_channels(channels, 6, shares=(3, 1, 2), min_effective=40)
    assert [len(one.edges) - 1 for one in found.values()] == [3, 1, 2]
    for one in found.values():
        assert min(one.effective_b) >= 40
    with pytest.raises(InputError, match="no 60 categories are allowed"):
        categorise_channels(channels, 60, min_effective=1000)


def test_a_channel_that_is_worth_nothing_keeps_one_category() -> None:
    """Without signal and without systematics; with them it would measure the background."""
    found = categorise_channels({"A": channel(1, 60.0), "B": (channel(2, 1e-9)[0], {})}, 4)
    assert len(found["B"].edges) == 2
    assert len(found["A"].edges) == 4
    measured = categorise_channels({"A": channel(1, 60.0), "B": channel(2, 1e-9)}, 4)
    assert len(measured["B"].edges) > 2


def test_without_systematics_each_channel_counts_for_itself() -> None:
    channels: dict[str, Channel] = {name: (channel(seed, 60.0)[0], {}) for name, seed in (("A", 1), ("B", 2))}
    found = categorise_channels(channels, 6)
    assert sum(len(one.edges) - 1 for one in found.values()) == 6
