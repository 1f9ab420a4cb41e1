"""How far the yields at the cut move under systematic variations, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fivesigma.datasets.events import Events
from fivesigma.errors import InputError
from fivesigma.estimators.varied import scored_variations
from fivesigma.likelihood.shifts import Normalisation, Varied, scaled, yield_shifts
from fivesigma.likelihood.shifts import Systematics as Variations
from fivesigma.scored.scored_events import ScoredEvents


@dataclass(frozen=True)
class Shift:
    """One systematic: relative changes of the yields at the cut, one standard deviation up and down."""

    name: str
    s_up: float
    s_down: float
    b_up: float
    b_down: float


@dataclass(frozen=True)
class Step:
    """One step of the waterfall: what is added, the significance after it, and how much it changed."""

    name: str
    significance: float
    change: float


@dataclass(frozen=True)
class Systematics:
    """All of them, and what they cost at the cut.

    Attributes
    ----------
    shifts : list of Shift
    significance, known_background : float
        Of a counting experiment at the cut (no b_reg) whose background moves along, and of one that is known.
    waterfall : list of Step
        From statistics alone to what a fit will find: each systematic, the one that costs most first, and the
        statistics of the simulation.
    notes : tuple of str
        A sentence for each systematic that moves nothing.
    """

    shifts: list[Shift]
    significance: float
    known_background: float
    waterfall: list[Step]
    notes: tuple[str, ...]


def variations_of(
    model: Any,
    events: Events | ScoredEvents,
    scored: ScoredEvents,
    given: Mapping[str, tuple[Any, Any] | Normalisation] | None,
) -> Variations | None:
    """Variations as the model scores them, with weights as those of the scored events; None if there are none.

    Parameters
    ----------
    model : estimator
    events : Events or ScoredEvents
        As they were given.
    scored : ScoredEvents
        Scaled to the yields that they stand for.
    given : mapping of str to (up, down), optional
        As in `fivesigma.report`.
    """
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


def systematics_of(scored: ScoredEvents, cut: float, variations: Variations | None) -> Systematics | None:
    """What systematics do at the cut, if there are any."""
    if variations is None:
        return None
    found = yield_shifts([cut, np.inf], scored, systematics=variations)
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
    steps = found.waterfall()
    before = [steps[0][1], *(value for _, value in steps)]
    waterfall = [Step(name, value, value - last) for (name, value), last in zip(steps, before, strict=False)]
    return Systematics(shifts, found.significance, found.known_background, waterfall, notes)
