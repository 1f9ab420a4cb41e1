"""Edges, and what is expected of edges that did not see the events that fill them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fivesigma import Varied, categorise, yield_shifts
from fivesigma._types import Array
from fivesigma.analysis.edge_choice import (
    RegionEvents,
    Variations,
    change,
    choose_categories,
    edges_by_fold,
    edges_of,
    number_by_fold,
    scale,
    systematics_of,
    take,
)
from fivesigma.analysis.settings import AnalysisSettings
from fivesigma.likelihood.shifts import YieldShifts
from fivesigma.scored.scored_events import ScoredEvents

SETTINGS = AnalysisSettings(
    region=("SR",), features=("x",), event_number="n", folds=3, number=3, min_effective=10.0, model="plain"
)


def events(n: int = 2000, shift: float = 0.0) -> ScoredEvents:
    rng = np.random.default_rng(5)
    signal = np.arange(n) % 2 == 0
    score = 1 / (1 + np.exp(-rng.normal(1.5 * signal + shift)))
    weight = np.where(signal, 0.05, 1.0) * rng.uniform(0.5, 1.5, n)
    process = np.where(signal, "S", np.where(rng.random(n) < 0.5, "A", "B"))
    return ScoredEvents(score, signal, weight, None, process, ids=rng.integers(0, 3, n))


def shifts_in(edges: Array, region: RegionEvents) -> YieldShifts:
    return yield_shifts(edges, region.nominal, systematics=systematics_of(region.variations))


def cross_fitted(region: RegionEvents, settings: AnalysisSettings, n: int) -> YieldShifts:
    """Yields of categories whose edges were chosen without the fold of the events that fill them."""
    edges = edges_by_fold({"SR": region}, settings, {"SR": n}, advance=lambda *_: None)["SR"]

    def numbered(events: ScoredEvents) -> ScoredEvents:
        return replace(events, score=number_by_fold(events, edges, n))

    return shifts_in(np.arange(n + 1.0), RegionEvents(numbered(region.nominal), change(region.variations, numbered)))


def yield_of(events: ScoredEvents, signal: bool) -> float:
    _, is_signal, weight = events.arrays()
    return float(weight[is_signal == signal].sum())


@pytest.fixture(scope="module")
def nominal() -> ScoredEvents:
    return events()


@pytest.fixture(scope="module")
def variations(nominal: ScoredEvents) -> Variations:
    heavier = scale(take(nominal, nominal.process == "A"), 1.2)
    return {"shift": (events(shift=0.1), events(shift=-0.1)), "A": (heavier, None)}


@pytest.mark.parametrize("uncertain", [False, True])
def test_cross_fitted_yields_are_those_of_each_fold_in_the_edges_of_the_others(
    nominal: ScoredEvents, variations: Variations, uncertain: bool
) -> None:
    given = variations if uncertain else {}
    found = cross_fitted(RegionEvents(nominal, given), SETTINGS, 3)
    totals = {True: np.zeros(3), False: np.zeros(3)}
    for k in range(3):
        rest, own = take(nominal, nominal.ids != k), take(nominal, nominal.ids == k)
        factor = {c: yield_of(nominal, c) / yield_of(rest, c) for c in (True, False)}  # it stands for the full yield

        def without(side: ScoredEvents | None, k: int = k, factor: dict[bool, float] = factor) -> Varied:
            assert side is not None
            kept = take(side, side.ids != k)
            score, signal, weight = kept.arrays()
            return Varied(score, weight * np.where(signal, factor[True], factor[False]), signal, kept.process)

        scaled = without(rest)
        others = change(given, without)
        chosen = categorise(
            rest.score,
            rest.signal,
            scaled.weight,
            3,
            min_effective=10.0,
            process=rest.process,
            systematics=others or None,
        )
        place = chosen.assign(own.score)
        _, signal, weight = own.arrays()
        for c in (True, False):
            rows = (signal == c) & (place >= 0)
            totals[c] += np.bincount(place[rows], weight[rows], minlength=3)
    for c in (True, False):
        np.testing.assert_allclose(found.yields(signal=c), totals[c])


def test_what_no_fold_saw_is_not_above_what_was_seen(nominal: ScoredEvents, variations: Variations) -> None:
    edges = edges_of(choose_categories(RegionEvents(nominal, variations), SETTINGS))
    quoted = cross_fitted(RegionEvents(nominal, variations), SETTINGS, 3)
    seen = shifts_in(edges, RegionEvents(nominal, variations))
    assert set(quoted.up) == {"shift", "A"}
    assert 0.5 * seen.significance < quoted.significance < seen.significance * 1.02
    # The totals are those of all events above the lowest edges, and a normalisation is one in every category.
    ratio = quoted.up["A"]["A"] / quoted.nominal["A"].sum_of_weights
    np.testing.assert_allclose(ratio, 1.2)
    np.testing.assert_allclose(quoted.down["A"]["A"] / quoted.nominal["A"].sum_of_weights, 0.8)


@pytest.mark.parametrize("number", ["cut", "auto"])
def test_numbers_of_categories(nominal: ScoredEvents, variations: Variations, number: str) -> None:
    settings = replace(SETTINGS, number=number)
    edges = edges_of(choose_categories(RegionEvents(nominal, variations), settings))
    quoted = cross_fitted(RegionEvents(nominal, variations), settings, len(edges) - 1)
    assert edges[-1] == np.inf
    assert len(quoted.yields(signal=True)) == len(edges) - 1
    assert len(edges) == 2 or number == "auto"
