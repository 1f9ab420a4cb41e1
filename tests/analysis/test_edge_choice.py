"""Edges, and what is expected of edges that did not see the events that fill them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fivesigma import Varied, categorise, yield_shifts
from fivesigma.analysis.configuration import AnalysisSettings
from fivesigma.analysis.edge_choice import (
    RegionEvents,
    Variations,
    change,
    choose_categories,
    cross_fitted,
    edges_of,
    scale,
    shifts_in,
    take,
)
from fivesigma.scored.scored_events import ScoredEvents

SETTINGS = AnalysisSettings(
    regions=("SR",), features=("x",), event_number="n", folds=3, categories=3, min_effective=10.0, model="plain"
)


def events(n: int = 2000, shift: float = 0.0) -> ScoredEvents:
    rng = np.random.default_rng(5)
    signal = np.arange(n) % 2 == 0
    score = 1 / (1 + np.exp(-rng.normal(1.5 * signal + shift)))
    weight = np.where(signal, 0.05, 1.0) * rng.uniform(0.5, 1.5, n)
    process = np.where(signal, "S", np.where(rng.random(n) < 0.5, "A", "B"))
    return ScoredEvents(score, signal, weight, None, process, ids=rng.integers(0, 3, n))


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
    edges = edges_of(choose_categories(RegionEvents(nominal, given), SETTINGS))
    found = cross_fitted({"SR": RegionEvents(nominal, given)}, SETTINGS, {"SR": edges}, advance=lambda *_: None)["SR"]
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
    quoted = cross_fitted({"SR": RegionEvents(nominal, variations)}, SETTINGS, {"SR": edges}, advance=lambda *_: None)[
        "SR"
    ]
    seen = shifts_in(edges, RegionEvents(nominal, variations))
    assert set(quoted.up) == {"shift", "A"}
    assert 0.5 * seen.significance < quoted.significance < seen.significance * 1.02
    # The totals are those of all events above the lowest edges, and a normalisation is one in every category.
    ratio = quoted.up["A"]["A"] / quoted.nominal["A"].sum_of_weights
    np.testing.assert_allclose(ratio, 1.2)
    np.testing.assert_allclose(quoted.down["A"]["A"] / quoted.nominal["A"].sum_of_weights, 0.8)


def test_shifts_are_those_of_yield_shifts(nominal: ScoredEvents, variations: Variations) -> None:
    sides = [Varied(v.score, v.weight, v.signal, v.process) for v in variations["shift"]]  # type: ignore[union-attr]
    direct = yield_shifts(
        [0.3, 0.7, np.inf],
        nominal.score,
        nominal.signal,
        nominal.weight,
        {"shift": (sides[0], sides[1])},
        process=nominal.process,
    )
    found = shifts_in(np.array([0.3, 0.7, np.inf]), RegionEvents(nominal, {"shift": variations["shift"]}))
    assert found.significance == direct.significance


@pytest.mark.parametrize("number", ["cut", "auto"])
def test_numbers_of_categories(nominal: ScoredEvents, variations: Variations, number: str) -> None:
    settings = replace(SETTINGS, categories=number)
    edges = edges_of(choose_categories(RegionEvents(nominal, variations), settings))
    quoted = cross_fitted({"SR": RegionEvents(nominal, variations)}, settings, {"SR": edges}, advance=lambda *_: None)[
        "SR"
    ]
    assert edges[-1] == np.inf
    assert len(quoted.yields(signal=True)) == len(edges) - 1
    assert len(edges) == 2 or number == "auto"
