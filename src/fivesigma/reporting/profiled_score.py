"""What a score that knows the systematics relies on: control regions, its cost beside the plain score, and pulls."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fivesigma._types import Array, BoolArray
from fivesigma.datasets.events import Events
from fivesigma.estimators.held_out_bins import bin_edges
from fivesigma.likelihood.shifts import Systematics, yield_shifts
from fivesigma.reporting.sections import score_systematics
from fivesigma.scored.scored_events import ScoredEvents, signal_probability

MOST_BACKGROUNDS = 6
NARROW = 0.5  # of a constraint, below which the data measure a systematic better than it was known
_NO_EXCESS = 0.5  # score at which s + b is like the background at its least favourable pulls


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
    rows = {key: np.maximum(one.sum_of_weights, 0.0) for key, one in found.nominal.items() if not one.signal}
    ranked = sorted(rows, key=lambda key: -rows[key].sum())
    shown, rest = ranked[:MOST_BACKGROUNDS], ranked[MOST_BACKGROUNDS:]
    stack = [rows[key] for key in shown] + [np.sum([rows[key] for key in rest], axis=0)] * bool(rest)
    total = np.maximum(np.sum(stack, axis=0), np.finfo(float).tiny)
    names = shown + [f"{len(rest)} smaller ones"] * bool(rest)
    below = (edges[1:] <= _NO_EXCESS) & control
    return ScorePanel(name, names, np.array(stack) / total, below, found.waterfall(), found.constraints())
