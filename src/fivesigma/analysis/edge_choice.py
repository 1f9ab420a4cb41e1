"""Choosing categories or a cut with the systematics, and what edges that did not see the events lead to."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.analysis.configuration import CUT, DIRECTIONS, Analysis, AnalysisSettings, acts, modifier_of
from fivesigma.analysis.histograms import Key
from fivesigma.categories import Categories, categorise
from fivesigma.cut.best_cut import scan
from fivesigma.datasets.folds import fold_numbers
from fivesigma.errors import InputError, SmallSampleWarning
from fivesigma.likelihood.shifts import Normalisation, Systematics, Varied, YieldShifts, yield_shifts
from fivesigma.scored.scored_events import ScoredEvents

__all__ = ["Variations", "choose_categories", "cross_fitted", "nominal_events", "shifts_in", "variations_of"]

#: By name the events up and down, where without the latter yields mirror those of the former; or an uncertain yield.
Variations = Mapping[str, tuple[ScoredEvents, ScoredEvents | None] | Normalisation]


def nominal_events(analysis: Analysis, scored: Mapping[Key, ScoredEvents]) -> ScoredEvents:
    """Simulated events of the chosen region, with the weights that the fit expects."""
    region = analysis.chosen
    return join(
        [
            scale(scored[key], analysis.norm_factor(region, sample))
            for sample in analysis.simulated
            if (key := (region["Name"], sample["Name"], None, None)) in scored
        ]
    )


def variations_of(analysis: Analysis, scored: Mapping[Key, ScoredEvents]) -> Variations:
    """Events of the chosen region under each systematic that acts there; those with one modifier move together."""
    region = analysis.chosen
    sides: dict[str, dict[str, list[ScoredEvents]]] = {}
    mirrored: dict[str, set[bool]] = {}
    for systematic in analysis.varied:
        for sample in analysis.simulated:
            key = (region["Name"], sample["Name"], None, None)
            if not acts(systematic, region, sample) or key not in scored:
                continue
            unmoved, factor = scored[key], analysis.norm_factor(region, sample)
            side = sides.setdefault(modifier_of(systematic), {direction: [] for direction in DIRECTIONS})
            mirror = bool(systematic["Down"].get("Symmetrize", False))
            mirrored.setdefault(modifier_of(systematic), set()).add(mirror)
            for direction in DIRECTIONS:
                if systematic["Type"] == "Normalization":
                    moved = scale(unmoved, factor * (1.0 + systematic[direction]["Normalization"]))
                elif direction == "Down" and mirror:  # twice the nominal events less those that moved up
                    moved = join([scale(unmoved, 2.0 * factor), scale(side["Up"][-1], -1.0)])
                else:
                    varied = (region["Name"], sample["Name"], systematic["Name"], direction)
                    if varied not in scored:
                        raise InputError(
                            f"no event of sample {sample['Name']!r}, systematic {systematic['Name']!r} {direction} is "
                            f"in region {region['Name']!r}"
                        )
                    moved = scale(scored[varied], factor)
                side[direction].append(moved)
    return {
        name: (join(side["Up"]), None if mirrored[name] == {True} else join(side["Down"]))
        for name, side in sides.items()
    }


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


def choose_categories(
    nominal: ScoredEvents, variations: Variations, settings: AnalysisSettings, number: int | None = None
) -> Any:
    """Categories or the cut with the largest profiled significance; without a number that of the settings.

    Returns
    -------
    Categories or CutScan
        Quoted with the statistics of the simulation.
    """
    systematics = systematics_of(variations) or None
    if settings.categories == CUT:
        return scan(nominal, min_effective=settings.min_effective, systematics=systematics)
    return categorise(
        nominal,
        n_categories=settings.categories if number is None else number,
        min_effective=settings.min_effective or None,
        min_background=settings.min_background or 0.0,
        systematics=systematics,
        mc_statistics=True,
    )


def edges_of(found: Any) -> Array:
    """Edges of what was chosen; the last is infinite."""
    return found.edges if isinstance(found, Categories) else np.array([found.cut, np.inf])


def cross_fitted(
    nominal: ScoredEvents,
    variations: Variations,
    settings: AnalysisSettings,
    edges: Array,
    *,
    advance: Callable[[int, str], None],
) -> YieldShifts:
    """Yields of categories whose edges were chosen without the fold of the events that fill them.

    For every fold the edges are chosen on the events of the others, scaled to the full yield of each class.
    """
    number = len(edges) - 1
    _, signal, weight = nominal.arrays()
    fold = folds_of(nominal, settings.folds)
    chosen = []
    for k in range(settings.folds):
        factors = [float(weight[signal == c].sum() / weight[(signal == c) & (fold != k)].sum()) for c in (True, False)]

        def without(side: ScoredEvents, k: int = k, factors: list[float] = factors) -> ScoredEvents:
            rest = take(side, folds_of(side, settings.folds) != k)
            return scale(rest, np.where(rest.arrays()[1], *factors))

        others = change(variations, without)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallSampleWarning)
            chosen.append(_at_most(without(nominal), others, settings, number))
        advance(1, f"fold {k + 1} of {settings.folds}")

    def category(events: ScoredEvents) -> ScoredEvents:
        """Number of the category, from the top, so that folds with fewer have the same highest ones."""
        found = np.full(len(events), -1.0)
        fold = folds_of(events, settings.folds)
        for k, own in enumerate(chosen):
            rows = fold == k
            place = np.searchsorted(own, events.score[rows], side="right") - 1
            place = np.minimum(place, len(own) - 2)
            found[rows] = np.where(place < 0, -1, place + number - (len(own) - 1))
        return replace(events, score=found)

    return shifts_in(np.arange(number + 1.0), category(nominal), change(variations, category))


def _at_most(nominal: ScoredEvents, variations: Variations, settings: AnalysisSettings, number: int) -> Array:
    """Edges of as many categories as these events allow, up to the number."""
    for k in range(number, 1, -1):
        try:
            return edges_of(choose_categories(nominal, variations, settings, k))
        except InputError:  # the floors cannot be met so often with fewer events
            continue
    return edges_of(choose_categories(nominal, variations, settings, 1))


def shifts_in(edges: Array, nominal: ScoredEvents, variations: Variations) -> YieldShifts:
    """Yields of categories, nominal and varied."""
    return yield_shifts(edges, nominal, systematics=systematics_of(variations))


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
