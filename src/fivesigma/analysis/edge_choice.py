"""Choosing the categories of all regions with the systematics, and what edges that did not see the events lead to."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.analysis.configuration import CUT, DIRECTIONS, Analysis, AnalysisSettings, modifier_of
from fivesigma.analysis.histograms import Key
from fivesigma.categories import Categories, categorise
from fivesigma.categories.one_score.search import categorise_channels
from fivesigma.cut.best_cut import scan
from fivesigma.datasets.folds import fold_numbers
from fivesigma.errors import InputError, SmallSampleWarning
from fivesigma.likelihood.shifts import Normalisation, Systematics, Varied, YieldShifts, yield_shifts
from fivesigma.scored.scored_events import ScoredEvents

__all__ = ["RegionEvents", "Variations", "choose_edges", "cross_fitted", "events_of_region", "shifts_in"]

#: By name the events up and down, where without the latter yields mirror those of the former; or an uncertain yield.
Variations = Mapping[str, tuple[ScoredEvents, ScoredEvents | None] | Normalisation]


class RegionEvents(NamedTuple):
    """Simulated events of a chosen region with the weights that the fit expects, and the same under each systematic."""

    nominal: ScoredEvents
    variations: Variations


def events_of_region(
    analysis: Analysis,
    region: Mapping[str, Any],
    scored: Mapping[Key, ScoredEvents],
    norms: Mapping[str, Normalisation],
) -> RegionEvents:
    """Events of a chosen region; systematics with one modifier move together."""
    name = region["Name"]
    factors = {
        sample["Name"]: analysis.norm_factor(region, sample)
        for sample in analysis.simulated
        if (name, sample["Name"], None, None) in scored
    }
    nominal = {sample: scale(scored[name, sample, None, None], factor) for sample, factor in factors.items()}
    sides: dict[str, dict[str, list[ScoredEvents]]] = {}
    mirrored: dict[str, set[bool]] = {}
    for systematic, sample in analysis.moved(region):
        if sample not in nominal:
            continue
        side = sides.setdefault(modifier_of(systematic), {direction: [] for direction in DIRECTIONS})
        mirror = bool(systematic["Down"].get("Symmetrize", False))
        mirrored.setdefault(modifier_of(systematic), set()).add(mirror)
        for direction in DIRECTIONS:
            key = (name, sample, systematic["Name"], direction)
            if systematic["Type"] == "Normalization":
                moved = scale(nominal[sample], 1.0 + systematic[direction]["Normalization"])
            elif direction == "Down" and mirror:  # twice the nominal events less those that moved up
                moved = join([scale(nominal[sample], 2.0), scale(side["Up"][-1], -1.0)])
            elif key in scored:
                moved = scale(scored[key], factors[sample])
            else:
                raise InputError(
                    f"no event of sample {sample!r}, systematic {systematic['Name']!r} {direction}, is in region "
                    f"{name!r}"
                )
            side[direction].append(moved)
    variations: dict[str, Any] = {
        modifier: (join(side["Up"]), None if mirrored[modifier] == {True} else join(side["Down"]))
        for modifier, side in sides.items()
    }
    return RegionEvents(join(list(nominal.values())), variations | dict(norms))


def join(parts: Sequence[ScoredEvents]) -> ScoredEvents:
    """All events, one part after the other."""
    names = ("score", "signal", "weight", "process", "ids")
    columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return ScoredEvents(**columns)


def scale(events: ScoredEvents, factor: float | Array) -> ScoredEvents:
    """The same with the weights multiplied."""
    return replace(events, weight=events.arrays()[2] * factor)


def take(events: ScoredEvents, rows: Any) -> ScoredEvents:
    """Some of the events."""
    names = ("score", "signal", "weight", "process", "ids")
    columns: dict[str, Any] = {name: getattr(events, name)[rows] for name in names}
    return ScoredEvents(**columns)


def folds_of(events: ScoredEvents, n_folds: int) -> IntArray:
    """Fold of each event, by its number."""
    return fold_numbers(n_folds, np.asarray(events.ids))


def choose_edges(
    regions: Mapping[str, RegionEvents], settings: AnalysisSettings, shares: Sequence[int] | None = None
) -> dict[str, Any]:
    """Categories, or the cut, of each region; several regions share their categories by what each is worth."""
    if len(regions) == 1 or settings.categories == CUT:
        number = None if shares is None else shares[0]
        return {name: choose_categories(events, settings, number) for name, events in regions.items()}
    total = settings.categories if shares is None else sum(shares)
    if isinstance(total, str):  # "auto": what each would have alone
        total = sum(len(choose_categories(events, settings)) for events in regions.values())
    found = categorise_channels(
        {name: (events.nominal, systematics_of(events.variations)) for name, events in regions.items()},
        total,
        shares=shares,
        goal=settings.goal,
        min_effective=settings.min_effective or None,
        min_background=settings.min_background or 0.0,
    )
    return dict(found)


def choose_categories(events: RegionEvents, settings: AnalysisSettings, number: int | None = None) -> Any:
    """Categories or the cut of one region with the best profiled value; without a number that of the settings."""
    systematics = systematics_of(events.variations) or None
    if settings.categories == CUT:
        return scan(events.nominal, min_effective=settings.min_effective, systematics=systematics)
    return categorise(
        events.nominal,
        n_categories=settings.categories if number is None else number,
        min_effective=settings.min_effective or None,
        min_background=settings.min_background or 0.0,
        goal=settings.goal,
        systematics=systematics,
        mc_statistics=True,
    )


def edges_of(found: Any) -> Array:
    """Edges of what was chosen; the last is infinite."""
    return found.edges if isinstance(found, Categories) else np.array([found.cut, np.inf])


def cross_fitted(
    regions: Mapping[str, RegionEvents],
    settings: AnalysisSettings,
    edges: Mapping[str, Array],
    *,
    advance: Callable[[int, str], None],
) -> dict[str, YieldShifts]:
    """Yields of categories whose edges were chosen without the fold of the events that fill them.

    For every fold the edges are chosen on the events of the others, scaled to the full yield of each class.
    """
    numbers = {name: len(own) - 1 for name, own in edges.items()}
    chosen = []
    for k in range(settings.folds):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallSampleWarning)
            rest = {name: _without(events, k, settings.folds) for name, events in regions.items()}
            chosen.append(_at_most(rest, settings, numbers))
        advance(1, f"fold {k + 1} of {settings.folds}")

    def filled(name: str, events: RegionEvents) -> YieldShifts:
        number = numbers[name]

        def category(side: ScoredEvents) -> ScoredEvents:
            """Number of the category, from the top, so that folds with fewer have the same highest ones."""
            found = np.full(len(side), -1.0)
            fold = folds_of(side, settings.folds)
            for k, own in enumerate(one[name] for one in chosen):
                rows = fold == k
                place = np.searchsorted(own, side.score[rows], side="right") - 1
                place = np.minimum(place, len(own) - 2)
                found[rows] = np.where(place < 0, -1, place + number - (len(own) - 1))
            return replace(side, score=found)

        numbered = RegionEvents(category(events.nominal), change(events.variations, category))
        return shifts_in(np.arange(number + 1.0), numbered)

    return {name: filled(name, events) for name, events in regions.items()}


def _without(events: RegionEvents, k: int, n_folds: int) -> RegionEvents:
    """Events of the other folds, scaled to the full yield of each class."""
    _, signal, weight = events.nominal.arrays()
    others = folds_of(events.nominal, n_folds) != k
    totals = [(float(weight[signal == c].sum()), float(weight[(signal == c) & others].sum())) for c in (True, False)]
    factors = [total / rest if rest else 1.0 for total, rest in totals]

    def without(side: ScoredEvents) -> ScoredEvents:
        rest = take(side, folds_of(side, n_folds) != k)
        return scale(rest, np.where(rest.arrays()[1], *factors))

    return RegionEvents(without(events.nominal), change(events.variations, without))


def _at_most(
    regions: Mapping[str, RegionEvents], settings: AnalysisSettings, numbers: Mapping[str, int]
) -> dict[str, Array]:
    """Edges of as many categories as these events allow, up to the numbers."""
    shares = dict(numbers)
    while True:
        try:
            found = choose_edges(regions, settings, list(shares.values()))
        except InputError:  # the floors cannot be met so often with fewer events
            largest = max(shares, key=lambda name: shares[name])
            if shares[largest] == 1:
                raise
            shares[largest] -= 1
        else:
            return {name: edges_of(one) for name, one in found.items()}


def shifts_in(edges: Array, events: RegionEvents) -> YieldShifts:
    """Yields of categories, nominal and varied."""
    return yield_shifts(edges, events.nominal, systematics=systematics_of(events.variations))


def systematics_of(variations: Variations, labels: tuple[Any, Any] = (0, 1)) -> Systematics:
    """Variations as the rest of fivesigma takes them, with the labels of background and signal."""

    def varied(events: ScoredEvents) -> Varied:
        score, signal, weight = events.arrays()
        return Varied(score, weight, np.array(labels)[signal.astype(np.intp)], events.process)

    return change(variations, varied)


def change(variations: Variations, work: Callable[[ScoredEvents], Any]) -> dict[str, Any]:
    """The same with the events of each side changed."""
    return {
        name: value
        if isinstance(value, Normalisation)
        else tuple(None if side is None else work(side) for side in value)
        for name, value in variations.items()
    }
