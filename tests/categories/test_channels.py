"""Several channels that share their categories: the search against all partitions, for both goals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from benchmarks.studies.systematic_categories import random_cells

from fivesigma._types import IntArray
from fivesigma.categories.one_score.dual import programs, search
from fivesigma.categories.one_score.profiled_cells import Cells, DiscoveryCells, MeasurementCells, join_cells
from fivesigma.likelihood.profile import Freedom

SIZES = (7, 5, 6)


def channels(seed: int, goal: str) -> list[Cells]:
    """Three channels with two common systematics, of which one may be free."""
    rng = np.random.default_rng(seed)
    constraint = np.array([1.0, float(seed % 2)])
    out: list[Cells] = []
    for size in SIZES:
        cells = random_cells(rng, size, 2)
        assert isinstance(cells, DiscoveryCells)
        plain = (cells.n, cells.allowed, cells.offset, cells.constant)
        if goal == "measurement":
            delta = (cells.up - cells.down) / 2
            out.append(MeasurementCells(*plain, cells.n - cells.b, delta, constraint))
        else:
            out.append(DiscoveryCells(*plain, cells.b, cells.up, cells.down, Freedom(constraint)))
    return out


def partitions(k: int, *, whole: bool, shares: tuple[int, ...] | None) -> IntArray:
    """All partitions of the three channels into k categories, as numbers of running sums."""
    starts = np.cumsum([0, *(size + 1 for size in SIZES[:-1])])
    by_channel = []
    for start, size in zip(starts, SIZES, strict=True):
        ways = [
            edges
            for n in range(k + 1)
            for edges in itertools.combinations(range(start + 1, start + size + 1), n)
            if not whole or (edges and edges[-1] == start + size)
        ]
        by_channel.append(ways)
    every = [
        sum(ways, ())
        for ways in itertools.product(*by_channel)
        if sum(map(len, ways)) == k and (shares is None or tuple(map(len, ways)) == shares)
    ]
    return np.array(every)


@pytest.mark.parametrize("goal", ["discovery", "measurement"])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("k", "whole", "shares"),
    [(4, True, None), (3, False, None), (5, True, (2, 1, 2)), (3, False, (1, 2, 0)), (1, False, None)],
)
def test_the_search_finds_the_best_of_all_partitions(
    goal: str, seed: int, k: int, whole: bool, shares: tuple[int, ...] | None
) -> None:
    cells = join_cells(channels(seed, goal), whole=whole, shares=shares)
    every = partitions(k, whole=whole, shares=shares)
    starts = [np.zeros(2), *(1.5 * np.eye(2)), *(-1.5 * np.eye(2))]  # bent shifts have several minima
    objective = np.min([cells.between(every).profile(start).objective for start in starts], axis=0)
    for edges in every[:: len(every) // 5]:
        assert float(cells.between(edges).lowest().objective) <= cells.at(np.zeros(2), edges[None])[0] * (1 + 1e-9)
    found = search(cells, k)
    assert found.bound >= objective.max() * (1 - 1e-7)
    assert np.sqrt(2 * objective.max()) - np.sqrt(2 * found.objective) < 1e-3
    assert tuple(found.edges.tolist()) in set(map(tuple, every.tolist()))
    at_zero = programs(cells, k, np.zeros(2)).backtrack()
    best = cells.at(np.zeros(2), every).max()
    assert cells.at(np.zeros(2), at_zero[None])[0] == pytest.approx(best, rel=1e-12)


def test_a_chain_has_the_sums_of_its_channels() -> None:
    apart = channels(0, "discovery")
    cells = join_cells(apart, whole=True)
    edges = np.array([3, 7, 13, 16, 20])
    assert [part.tolist() for part in cells.split(edges)] == [[3, 7], [5], [2, 6]]
    theta = np.array([0.4, -0.2])
    alone = sum(
        (one.at(theta, part[None])[0] - one.penalty(theta)) for one, part in zip(apart, cells.split(edges), strict=True)
    )
    assert cells.at(theta, edges[None])[0] == pytest.approx(alone + cells.penalty(theta), rel=1e-12)
