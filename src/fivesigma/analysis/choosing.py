"""Choosing categories or a cut with the systematics, and what edges that did not see the events lead to."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.analysis.configuration import DIRECTIONS, Analysis, acts
from fivesigma.analysis.reading import Reader, region_events
from fivesigma.analysis.settings import CUT, Settings
from fivesigma.analysis.templates import Template
from fivesigma.categories import Categories, categorise
from fivesigma.cut.best_cut import scan
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError, SmallSampleWarning
from fivesigma.likelihood.shifts import Varied, YieldShifts, yield_shifts

__all__ = ["RegionScores", "Variations", "choose", "cross_fitted", "scores_of", "shifts_in", "variations_of"]


@dataclass(frozen=True, eq=False)
class RegionScores:
    """Events of the chosen region, each scored by a fit that did not see it."""

    score: Array
    weight: Array
    signal: BoolArray
    process: AnyArray
    fold: IntArray

    def __len__(self) -> int:
        return len(self.score)

    def of(self, rows: Any) -> RegionScores:
        """Some of the events."""
        return RegionScores(*(getattr(self, name)[rows] for name in ("score", "weight", "signal", "process", "fold")))

    def scaled(self, factor_s: float, factor_b: float) -> RegionScores:
        """The same with the weights of each class multiplied."""
        weight = self.weight * np.where(self.signal, factor_s, factor_b)
        return RegionScores(self.score, weight, self.signal, self.process, self.fold)

    def with_scores(self, score: Array) -> RegionScores:
        """The same with other scores."""
        return RegionScores(score, self.weight, self.signal, self.process, self.fold)

    @classmethod
    def joined(cls, parts: Sequence[RegionScores]) -> RegionScores:
        """All of them, one after the other."""
        names = ("score", "weight", "signal", "process", "fold")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def varied(self, labels: tuple[Any, Any]) -> Varied:
        """The events as a sample of its own."""
        y = np.array(labels)[self.signal.astype(np.intp)]
        return Varied(score=self.score, weight=self.weight, y=y, process=self.process)


#: By name the events up and down; without the latter, yields mirror those of the former.
Variations = Mapping[str, tuple[RegionScores, RegionScores | None]]


def scores_of(model: Any, reader: Reader, events: Events) -> RegionScores:
    """Score events of the chosen region."""
    return RegionScores(
        model.predict_proba(events)[:, 1],
        events.weight,
        events.is_signal,
        np.asarray(events.process),
        reader.folds(events.kept[reader.settings.event_number]),
    )


def variations_of(
    model: Any,
    reader: Reader,
    analysis: Analysis,
    templates: Sequence[Template],
    nominal: RegionScores,
    *,
    advance: Callable[[int, str], None],
) -> Variations:
    """Events of the chosen region under each systematic that acts there; those with one modifier move together."""
    by_key = {template.key: template for template in templates}
    region = analysis.chosen
    sides: dict[str, dict[str, list[RegionScores]]] = {}
    mirrored: dict[str, set[bool]] = {}
    for systematic in analysis.systematics:
        for sample in analysis.simulated:
            own = nominal.process == sample["Name"]
            if not acts(systematic, region, sample) or not own.any():
                continue
            name = systematic.get("ModifierName", systematic["Name"])
            side = sides.setdefault(name, {direction: [] for direction in DIRECTIONS})
            mirror = bool(systematic["Down"].get("Symmetrize", False))
            mirrored.setdefault(name, set()).add(mirror)
            unmoved = nominal.of(own)
            for direction in DIRECTIONS:
                if systematic["Type"] == "Normalization":
                    factor = 1.0 + systematic[direction]["Normalization"]
                    moved = unmoved.scaled(factor, factor)
                elif direction == "Down" and mirror:  # twice the nominal events less those that moved up
                    moved = RegionScores.joined([unmoved.scaled(2.0, 2.0), side["Up"][-1].scaled(-1.0, -1.0)])
                else:
                    template = by_key[region["Name"], sample["Name"], systematic["Name"], direction]
                    unvaried = by_key[region["Name"], sample["Name"], None, None]
                    moved = _scored(model, reader, analysis, template, unvaried, unmoved=unmoved)
                    advance(1, f"{systematic['Name']} {direction}")
                side[direction].append(moved)
    return {
        name: (
            RegionScores.joined(side["Up"]),
            None if mirrored[name] == {True} else RegionScores.joined(side["Down"]),
        )
        for name, side in sides.items()
    }


def _scored(
    model: Any,
    reader: Reader,
    analysis: Analysis,
    template: Template,
    nominal: Template,
    *,
    unmoved: RegionScores,
) -> RegionScores:
    """Events of a varied template; where only the weights differ, the scores are the nominal ones."""
    same = all(getattr(template, name) == getattr(nominal, name) for name in ("files", "tree", "replaced", "condition"))
    if same:
        weight = np.concatenate([w for _, w in region_events(reader, template, features=False)])
        return RegionScores(unmoved.score, weight, unmoved.signal, unmoved.process, unmoved.fold)
    signal = template.sample in analysis.signal
    parts = [
        scores_of(model, reader, reader.events(entries, weight, signal=signal, sample=template.sample))
        for entries, weight in region_events(reader, template)
        if len(entries)
    ]
    if not parts:
        raise InputError(f"no event of {template.owner} is in region {template.region!r}: {template.condition}")
    return RegionScores.joined(parts)


def choose(nominal: RegionScores, variations: Variations, settings: Settings, number: int | None = None) -> Array:
    """Edges of the categories with the largest profiled significance; the last is infinite, as in `Categories`."""
    if settings.categories != CUT:
        return best_categories(nominal, variations, settings, number).edges
    found = scan(
        nominal.score,
        nominal.signal,
        nominal.weight,
        min_effective=settings.min_effective,
        systematics=systematics_of(variations) or None,
        process=nominal.process,
    )
    return np.array([found.cut, np.inf])


def best_categories(
    nominal: RegionScores, variations: Variations, settings: Settings, number: int | None = None
) -> Categories:
    """Categories with the largest profiled significance; it is quoted with the statistics of the simulation.

    Without a number it is that of the settings.
    """
    return categorise(
        nominal.score,
        nominal.signal,
        nominal.weight,
        settings.categories if number is None else number,
        min_effective=settings.min_effective or None,
        min_background=settings.min_background or 0.0,
        systematics=systematics_of(variations) or None,
        process=nominal.process,
        mc_statistics=True,
    )


def cross_fitted(
    nominal: RegionScores,
    variations: Variations,
    settings: Settings,
    edges: Array,
    *,
    advance: Callable[[int, str], None],
) -> YieldShifts:
    """Yields of categories whose edges were chosen without the fold of the events that fill them.

    For every fold the edges are chosen on the events of the others, scaled to the full yield of each class.
    """
    number = len(edges) - 1
    chosen = []
    for k in range(settings.folds):
        rest = nominal.of(nominal.fold != k)
        factors = [
            float(nominal.weight[nominal.signal == c].sum() / rest.weight[rest.signal == c].sum())
            for c in (True, False)
        ]

        def without(side: RegionScores, k: int = k, factors: list[float] = factors) -> RegionScores:
            return side.of(side.fold != k).scaled(*factors)

        others: Variations = {
            name: (without(up), None if down is None else without(down)) for name, (up, down) in variations.items()
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallSampleWarning)
            chosen.append(_at_most(rest.scaled(*factors), others, settings, number))
        advance(1, f"fold {k + 1} of {settings.folds}")

    def category(events: RegionScores) -> RegionScores:
        """Number of the category, from the top, so that folds with fewer have the same highest ones."""
        found = np.full(len(events), -1.0)
        for k, own in enumerate(chosen):
            rows = events.fold == k
            place = np.searchsorted(own, events.score[rows], side="right") - 1
            place = np.minimum(place, len(own) - 2)
            found[rows] = np.where(place < 0, -1, place + number - (len(own) - 1))
        return events.with_scores(found)

    moved: Variations = {
        name: (category(up), None if down is None else category(down)) for name, (up, down) in variations.items()
    }
    return shifts_in(np.arange(number + 1.0), category(nominal), moved)


def _at_most(nominal: RegionScores, variations: Variations, settings: Settings, number: int) -> Array:
    """As many categories as these events allow, up to the number."""
    if settings.categories == CUT:
        return choose(nominal, variations, settings)
    for k in range(number, 1, -1):
        try:
            return choose(nominal, variations, settings, k)
        except InputError:  # the floors cannot be met so often with fewer events
            continue
    return choose(nominal, variations, settings, 1)


def shifts_in(edges: Array, nominal: RegionScores, variations: Variations) -> YieldShifts:
    """Yields of categories, nominal and varied."""
    return yield_shifts(
        edges,
        nominal.score,
        nominal.signal,
        nominal.weight,
        systematics_of(variations),
        process=nominal.process,
    )


def systematics_of(
    variations: Variations, labels: tuple[Any, Any] = (False, True)
) -> dict[str, tuple[Varied, Varied | None]]:
    """Variations as the rest of fivesigma takes them, with the labels of background and signal."""
    return {
        name: (up.varied(labels), None if down is None else down.varied(labels))
        for name, (up, down) in variations.items()
    }
