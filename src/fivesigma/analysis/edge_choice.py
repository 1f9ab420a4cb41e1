"""Choosing the categories of all regions with the systematics, and histograms whose edges did not see the events."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.analysis.configuration import Analysis, Key, Side
from fivesigma.analysis.histograms import Histograms, fill_histogram
from fivesigma.analysis.settings import CUT, AnalysisSettings
from fivesigma.categories import Categories, categorise
from fivesigma.categories.one_score.search import categorise_channels
from fivesigma.cut.best_cut import scan
from fivesigma.datasets.folds import fold_numbers
from fivesigma.errors import InputError, SmallSampleWarning
from fivesigma.likelihood.shifts import Normalisation, Systematics, Varied, with_variations
from fivesigma.scored.scored_events import ScoredEvents

_COLUMNS = ("score", "signal", "weight", "process", "ids")

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
    factors = {
        (region["Name"], sample["Name"]): analysis.norm_factor(region, sample)
        for sample in analysis.simulated
        if (region["Name"], sample["Name"], None, None) in scored
    }

    def events(side: Side) -> ScoredEvents:
        return join([scale(scored[key], share * factors[key[:2]]) for share, key in side])

    found = analysis.variations([region], factors)
    variations = {name: (events(own.up), None if own.mirrored else events(own.down)) for name, own in found.items()}
    return RegionEvents(events([(1.0, (*place, None, None)) for place in factors]), variations | dict(norms))


def join(parts: Sequence[ScoredEvents]) -> ScoredEvents:
    """All events, one part after the other."""
    columns: Any = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
    return ScoredEvents(**columns)


def scale(events: ScoredEvents, factor: float | Array) -> ScoredEvents:
    """The same with the weights multiplied."""
    return replace(events, weight=events.arrays()[2] * factor)


def take(events: ScoredEvents, rows: Any) -> ScoredEvents:
    """Some of the events."""
    return ScoredEvents(**{name: getattr(events, name)[rows] for name in _COLUMNS})


def folds_of(events: ScoredEvents, n_folds: int) -> IntArray:
    """Fold of each event, by its number."""
    return fold_numbers(n_folds, np.asarray(events.ids))


def choose_edges(
    regions: Mapping[str, RegionEvents], settings: AnalysisSettings, shares: Sequence[int] | None = None
) -> dict[str, Any]:
    """Categories, or the cut, of each region; several regions share their categories by what each is worth."""
    if len(regions) == 1 or settings.number == CUT:
        number = None if shares is None else shares[0]
        return {name: choose_categories(events, settings, number) for name, events in regions.items()}
    total = settings.number if shares is None else sum(shares)
    if isinstance(total, str):  # "auto": what each would have alone
        total = sum(len(choose_categories(events, settings)) for events in regions.values())
    channels = {name: (events.nominal, systematics_of(events.variations)) for name, events in regions.items()}
    return dict(categorise_channels(channels, total, shares=shares, **_wanted(settings)))


def choose_categories(events: RegionEvents, settings: AnalysisSettings, number: int | None = None) -> Any:
    """Categories or the cut of one region with the best profiled value; without a number that of the settings."""
    systematics = systematics_of(events.variations) or None
    if settings.number == CUT:
        return scan(events.nominal, min_effective=settings.min_effective, systematics=systematics)
    n = settings.number if number is None else number
    known: dict[str, Any] = {"systematics": systematics, "mc_statistics": True}
    return categorise(events.nominal, n_categories=n, **known, **_wanted(settings))


def _wanted(settings: AnalysisSettings) -> dict[str, Any]:
    floors = {"min_effective": settings.min_effective or None, "min_background": settings.min_background or 0.0}
    return {"goal": settings.goal, **floors}


def edges_of(found: Any) -> Array:
    """Edges of what was chosen; the last is infinite."""
    return found.edges if isinstance(found, Categories) else np.array([found.cut, np.inf])


def cross_fitted(
    keys: Sequence[Key],
    scored: Mapping[Key, ScoredEvents],
    regions: Mapping[str, RegionEvents],
    settings: AnalysisSettings,
    edges: Mapping[str, Array],
    *,
    advance: Callable[[int, str], None],
) -> Histograms:
    """Histograms in as many categories, whose edges were chosen without the fold of the events that fill them."""
    numbers = {name: len(own) - 1 for name, own in edges.items()}
    chosen = edges_by_fold(regions, settings, numbers, advance=advance)
    found = {}
    for key in [key for key in keys if key[0] in numbers]:
        number, place, weight = numbers[key[0]], np.empty(0), np.empty(0)
        if key in scored:
            place, weight = number_by_fold(scored[key], chosen[key[0]], number), scored[key].arrays()[2]
        found[key] = fill_histogram(np.arange(number + 1.0), place, weight)
    return found


def edges_by_fold(
    regions: Mapping[str, RegionEvents],
    settings: AnalysisSettings,
    numbers: Mapping[str, int],
    *,
    advance: Callable[[int, str], None],
) -> dict[str, list[Array]]:
    """Edges of each region for every fold, chosen on the events of the others, scaled to the full yields."""
    chosen = []
    for k in range(settings.folds):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallSampleWarning)
            rest = {name: _without(events, k, settings.folds) for name, events in regions.items()}
            chosen.append(_at_most(rest, settings, numbers))
        advance(1, f"fold {k + 1} of {settings.folds}")
    return {name: [one[name] for one in chosen] for name in regions}


def number_by_fold(events: ScoredEvents, edges: Sequence[Array], number: int) -> Array:
    """Number of each event's category by the edges of its fold; from the top, for folds with fewer categories."""
    found, fold = np.full(len(events), -1.0), folds_of(events, len(edges))
    for k, own in enumerate(edges):
        rows, n = fold == k, len(own) - 1
        place = np.minimum(np.searchsorted(own, events.score[rows], side="right") - 1, n - 1)
        found[rows] = np.where(place < 0, -1, place + number - n)
    return found


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


def systematics_of(variations: Variations, labels: tuple[Any, Any] = (False, True)) -> Systematics:
    """Variations as the rest of fivesigma takes them, with the labels of background and signal."""

    def varied(events: ScoredEvents) -> Varied:
        score, signal, weight = events.arrays()
        return Varied(score, weight, np.array(labels)[signal.astype(np.intp)], events.process)

    return change(variations, varied)


def change(variations: Variations, work: Callable[[ScoredEvents], Any]) -> dict[str, Any]:
    """The same with the events of each side changed."""
    return with_variations(variations, lambda _, side: work(side))
