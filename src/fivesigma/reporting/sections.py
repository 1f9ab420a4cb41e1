"""Sections of a page that not every model has: features, categories, systematics, and those of other parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from fivesigma._types import Array
from fivesigma.categories import Categories
from fivesigma.categories.several_signals import ScoreCategories
from fivesigma.datasets.columns import Columns
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError
from fivesigma.estimators.varied import scored_variations
from fivesigma.likelihood.shifts import Normalisation, Systematics, Varied, scaled, yield_shifts
from fivesigma.scored.scored_events import ScoredEvents, signal_probability

MOST_FEATURES = 25
MOST_SHUFFLED = 4000  # events on which features are shuffled


@dataclass(frozen=True)
class Section:
    """A section that a user of the report adds before the verdict, such as the expectation of an analysis.

    All text is escaped where it is shown.

    Attributes
    ----------
    name : str
        Anchor of the section: letters and hyphens.
    title : str
    headline : (str, str), optional
        A number, and what it is.
    text : tuple of str
        Paragraphs.
    waterfall : sequence of (str, float)
        The significance after each uncertainty, the first without any of them; drawn as bars.
    tables : tuple of (str, heads, rows)
        Caption, heads of the columns, and rows of text.
    notes : tuple of str
    figures : tuple of (str, bytes)
        Caption, and the picture as PNG.
    """

    name: str
    title: str
    headline: tuple[str, str] | None = None
    text: tuple[str, ...] = ()
    waterfall: Sequence[tuple[str, float]] = ()
    tables: tuple[tuple[str, Sequence[str], Sequence[Sequence[str]]], ...] = ()
    notes: tuple[str, ...] = ()
    figures: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True)
class Importance:
    """Share of each feature, the largest first."""

    # {"gain", "permutation"}: what is shared: the gain of all splits, or what the area under the ROC curve loses where
    # a feature is shuffled
    kind: str
    names: list[str]
    share: list[float]
    rest: float  # share of all features that are not listed
    n_rest: int  # how many these are


def rank_features(model: Any, final: Any, names: Sequence[str], events: Events | ScoredEvents) -> Importance | None:
    """Importance of features."""
    kind, share = "gain", getattr(final, "feature_importances_", None)
    if isinstance(events, Events) and not _all_know_gains(final):
        kind, names, share = "permutation", _names_in(model, events), _permuted(model, events)
    if share is None or not share.sum() > 0:
        return None
    share = share / share.sum()
    order = np.argsort(-share, kind="stable")
    shown, rest = order[:MOST_FEATURES], order[MOST_FEATURES:]
    listed = [str(names[j]) for j in shown]
    return Importance(kind, listed, share[shown].tolist(), float(share[rest].sum()), rest.size)


def _all_know_gains(model: Any) -> bool:
    """Whether a model says the gains of all its parts; of a decomposed model, one factor alone does."""
    members = [member for _, member in getattr(model, "members_", [])]
    if members:
        return all(map(_all_know_gains, members))
    parts = getattr(model, "models_", [model])
    return all(not hasattr(part, "classifier") and hasattr(getattr(part, "estimator", model), "feature_importances_")
               for part in parts)  # fmt: skip


def _names_in(model: Any, events: Events) -> Sequence[str]:
    """Features of the events, in the order in which the model was trained with them."""
    return Columns.of_model(model).feature_names or events.feature_names


def _permuted(model: Any, events: Events) -> Array:
    """What the weighted area under the ROC curve loses where one feature after the other is shuffled."""
    rng = np.random.default_rng(0)
    some = events[np.sort(rng.permutation(len(events))[:MOST_SHUFFLED])]
    signal, weight = some.is_signal, np.abs(some.weight)
    if not 0 < np.count_nonzero(signal) < signal.size:
        return np.zeros(1)
    order, lost = rng.permutation(len(some)), []
    area = roc_auc_score(signal, signal_probability(model, some), sample_weight=weight)
    for name in _names_in(model, events):
        X = some.X.copy()
        X[:, some.feature_names.index(name)] = X[order, some.feature_names.index(name)]
        shuffled = signal_probability(model, replace(some, X=X))
        lost.append(max(area - roc_auc_score(signal, shuffled, sample_weight=weight), 0.0))
    return np.array(lost)


@dataclass(frozen=True)
class CategoryRow:
    """One category: what it is called, its yields by process, and the effective background in it."""

    name: str
    yields: list[float]
    effective_b: float
    significance: float | None


@dataclass(frozen=True)
class CategoryTable:
    """All categories."""

    significance: dict[str, float]  # of all categories together; of each signal if there are several
    cross_fitted: float | None  # the same with edges that were chosen without the events that fill them
    held_out: bool  # whether the edges were chosen on other events than these
    bound: float | None  # what no such categories exceed on the events that chose them
    processes: list[str]  # heads of the yields, signals first
    rows: list[CategoryRow]
    notes: tuple[str, ...]


def category_table(categories: Any, cross_fitted: float | None = None) -> CategoryTable | None:
    """Table of categories of either kind; None if there are none."""
    if categories is None:
        if cross_fitted is not None:
            raise InputError("cross_fitted is the significance of categories: give categories too")
        return None
    if isinstance(categories, Categories):
        edges = categories.edges
        names = [f"{low:.4g} to {high:.4g}" for low, high in pairwise(edges)]
        each: list[float | None] = list(map(float, categories.by_category))
        together, bound = {"significance": categories.significance}, categories.bound
    elif isinstance(categories, ScoreCategories):
        names, each = [str(k) for k in range(len(categories))], [None] * len(categories)
        together, bound = dict(categories.z), categories.bound.value
    else:
        raise InputError(f"categories must be of categorise or categorise_scores, got {type(categories).__name__}")
    by_process = categories.by_process
    ordered = sorted(by_process, key=lambda name: not by_process[name].signal)
    columns = [by_process[name].sum_of_weights for name in ordered]
    effective = np.asarray(categories.effective_b)
    rows = [
        CategoryRow(name, [float(column[k]) for column in columns], float(effective[k]), each[k])
        for k, name in enumerate(names)
    ]
    return CategoryTable(together, cross_fitted, categories.held_out, bound, ordered, rows, categories.notes)


@dataclass(frozen=True)
class Shift:
    """One systematic: relative changes of the yields at the cut, one standard deviation up and down."""

    name: str
    s_up: float
    s_down: float
    b_up: float
    b_down: float


@dataclass(frozen=True)
class ShiftTable:
    """All systematics, and what they cost at the cut."""

    shifts: list[Shift]
    # of a counting experiment at the cut (no b_reg) whose background moves along, and of one that is known
    significance: float
    known_background: float
    # from statistics alone to what a fit will find: the significance after each systematic, the one that costs most
    # first, and after the statistics of the simulation
    waterfall: list[tuple[str, float]]
    notes: tuple[str, ...]  # a sentence for each systematic that moves nothing


def score_systematics(
    model: Any, events: Events | ScoredEvents, scored: ScoredEvents, given: Mapping[str, Any] | None
) -> Systematics | None:
    """Systematics as the model scores them, with weights as those of the scored events; None if there are none."""
    if given is None:
        return None
    _, signal, weight = scored.arrays()
    if isinstance(events, ScoredEvents):
        for name, pair in given.items():
            if isinstance(pair, Normalisation):
                continue
            if not all(moved is None or isinstance(moved, Varied) for moved in pair):
                raise InputError(f"systematics[{name!r}] must be Varied, with scores, where ScoredEvents are given")
    found = scored_variations(model, signal, given)
    before = events.arrays()[2] if isinstance(events, ScoredEvents) else events.weight
    if weight is before or np.array_equal(weight, before):
        return found
    return scaled(found, signal, *(float(weight[c].sum() / before[c].sum()) for c in (signal, ~signal)))


def shift_table(scored: ScoredEvents, cut: float, systematics: Systematics | None) -> ShiftTable | None:
    """Tabulate what systematics do at the cut, if there are any."""
    if systematics is None:
        return None
    found = yield_shifts([cut, np.inf], scored, systematics=systematics)
    moves = dict(zip(found.up, found.background_shifts(), strict=True))
    notes = tuple(
        f"Systematic {name!r} moves no background at the cut: it changes nothing there."
        for name, (up, down) in moves.items()
        if not (up.any() or down.any())
    )

    def change(name: str, *, signal: bool, up: bool) -> float:
        moved = found.yields(signal=signal, of=(found.up if up else found.down)[name]).sum()
        return float(moved / found.yields(signal=signal).sum() - 1)

    shifts = [
        Shift(name, *(change(name, signal=signal, up=up) for signal in (True, False) for up in (True, False)))
        for name in found.up
    ]
    return ShiftTable(shifts, found.significance, found.known_background, found.waterfall(), notes)
