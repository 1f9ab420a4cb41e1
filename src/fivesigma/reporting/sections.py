"""Sections of a page that not every model has: features, categories, systematics, what a profiled score relies on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from fivesigma._types import Array, BoolArray
from fivesigma.categories import Categories
from fivesigma.categories.several_signals import ScoreCategories
from fivesigma.datasets.columns import Columns
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError
from fivesigma.estimators.moved_events import bin_edges
from fivesigma.estimators.significance_classifier import scored_variations
from fivesigma.likelihood.shifts import Normalisation, Systematics, Varied, scaled, yield_shifts
from fivesigma.reporting.histogram import largest_processes
from fivesigma.scored.scored_events import ScoredEvents, signal_probability

MOST_FEATURES = 25
MOST_SHUFFLED = 4000  # events on which features are shuffled
NARROW = 0.5  # of a constraint, below which the data measure a systematic better than it was known
_NO_EXCESS = 0.5  # score at which s + b is like the background at its least favourable pulls


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
class CategoryTable:
    """All categories."""

    significance: dict[str, float]  # of all categories together; of each signal if there are several
    cross_fitted: float | None  # the same with edges that were chosen without the events that fill them
    held_out: bool  # whether the edges were chosen on other events than these
    bound: float | None  # what no such categories exceed on the events that chose them
    mc_statistics: bool  # whether the statistics of the simulation are in the significance; they are not in the bound
    heads: list[str]  # name of the category, processes (signals first), effective background, maybe significance alone
    rows: list[tuple[str | float, ...]]
    notes: tuple[str, ...]


def category_table(categories: Any, cross_fitted: float | None = None) -> CategoryTable | None:
    """Table of categories of either kind; None if there are none."""
    if categories is None:
        if cross_fitted is not None:
            raise InputError("cross_fitted is the significance of categories: give categories too")
        return None
    if isinstance(categories, Categories):
        names = [f"{low:.4g} to {high:.4g}" for low, high in pairwise(categories.edges)]
        together, bound = {"significance": categories.significance}, categories.bound
        alone, mc_statistics = {"alone (σ)": categories.by_category}, categories.mc_statistics
    elif isinstance(categories, ScoreCategories):
        names, alone, mc_statistics = [str(k) for k in range(len(categories))], {}, False
        together, bound = dict(categories.z), categories.bound.value
    else:
        raise InputError(f"categories must be of categorise or categorise_scores, got {type(categories).__name__}")
    by_process = sorted(categories.by_process.items(), key=lambda item: not item[1].signal)
    columns = {name: one.sum_of_weights for name, one in by_process}
    columns |= {"effective b": categories.effective_b, **alone}
    rows = list(zip(names, *(np.asarray(column).tolist() for column in columns.values()), strict=True))
    judged = together, cross_fitted, categories.held_out, bound, mc_statistics
    return CategoryTable(*judged, ["category", *columns], rows, categories.notes)


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
            sides = () if isinstance(pair, Normalisation) else pair
            if not all(moved is None or isinstance(moved, Varied) for moved in sides):
                raise InputError(f"systematics[{name!r}] must be Varied, with scores, where ScoredEvents are given")
    found = scored_variations(model, signal, given)
    before = events.arrays()[2] if isinstance(events, ScoredEvents) else events.weight
    if weight is before or np.array_equal(weight, before):
        return found
    return scaled(found, signal, before, weight)


def shift_table(scored: ScoredEvents, cut: float, systematics: Systematics) -> ShiftTable:
    """Tabulate what systematics do at the cut."""
    found = yield_shifts([cut, np.inf], scored, systematics=systematics)
    notes = tuple(
        f"Systematic {name!r} moves no background at the cut: it changes nothing there."
        for name, moved in zip(found.up, found.background_shifts(), strict=True)
        if not np.any(moved)
    )

    def change(moved: Any, *, signal: bool) -> float:
        return float(found.yields(signal=signal, of=moved).sum() / found.yields(signal=signal).sum() - 1)

    shifts = [
        Shift(name, *(change(side[name], signal=signal) for signal in (True, False) for side in (found.up, found.down)))
        for name in found.up
    ]
    return ShiftTable(shifts, found.significance, found.known_background, found.waterfall(), notes)


@dataclass(frozen=True, eq=False)
class ScorePanel:
    """Bins of one score, from the lowest to the highest."""

    name: str
    backgrounds: list[str]  # the largest first
    shares: Array  # (n_backgrounds, n_bins): of the background of each bin
    control: BoolArray  # (n_bins,): where the moved background exceeds s + b, so that a fit measures it
    waterfall: list[tuple[str, float]]
    constraints: dict[str, float]


@dataclass(frozen=True, eq=False)
class ProfiledPicture:
    """The plain score of a model, if events have features, and the one that knows the systematics."""

    panels: list[ScorePanel]
    pulls: dict[str, float]
    narrow: list[str]  # systematics that the data constrain to less than half of their size


def profiled_picture(
    model: Any, events: Events | ScoredEvents, scored: ScoredEvents, varied: Systematics | None, given: Any
) -> ProfiledPicture | None:
    """Fill bins of both scores; None for other models, and without systematics."""
    if varied is None or getattr(model, "goal", None) != "discovery":
        return None
    panels = []
    if isinstance(events, Events) and any(model.pulls_.values()):
        plain = copy(model)
        plain.pulls_ = dict.fromkeys(model.pulls_, 0.0)  # at which t rises with s/b
        other = replace(scored, score=signal_probability(plain, events))
        moved = score_systematics(plain, events, other, given)
        assert moved is not None  # as `varied`
        panels.append(_panel("plain score", other, moved, control=False))
    panels.append(_panel("score t", scored, varied, control=True))
    narrow = [name for name, width in panels[-1].constraints.items() if width < NARROW]
    return ProfiledPicture(panels, model.pulls_, narrow)


def _panel(name: str, scored: ScoredEvents, systematics: Systematics, *, control: bool) -> ScorePanel:
    score, signal, weight = scored.arrays()
    edges = bin_edges(np.asarray(score, dtype=np.float64), signal, weight)
    found = yield_shifts(edges, scored, systematics=systematics)
    stack = largest_processes(found.nominal, signal=False)[::-1]
    filled = np.maximum([one.values for one in stack], 0.0)
    shares = filled / np.maximum(filled.sum(axis=0), np.finfo(float).tiny)
    below = (edges[1:] <= _NO_EXCESS) & control
    return ScorePanel(name, [one.name for one in stack], shares, below, found.waterfall(), found.constraints())
