"""How far the yields at the cut move under systematic variations, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fivesigma.datasets.events import Events
from fivesigma.scored import ScoredEvents
from fivesigma.systematics import YieldShifts


@dataclass(frozen=True)
class Shift:
    """One systematic: relative changes of the yields at the cut, one standard deviation up and down."""

    name: str
    s_up: float
    s_down: float
    b_up: float
    b_down: float


@dataclass(frozen=True)
class Systematics:
    """All of them, and the significance with a background that moves along, and with one that is known."""

    shifts: list[Shift]
    significance: float
    known_background: float


def systematics_of(
    model: Any,
    events: Events | ScoredEvents,
    yields: tuple[float, float] | None,
    given: Mapping[str, tuple[Any, Any]] | None,
) -> Systematics | None:
    """Compute them, if there are any."""
    if given is None or isinstance(events, ScoredEvents):
        return None
    found: YieldShifts = model.yield_shifts(events.X, events.y, events.weight, given, yields=yields)

    def change(name: str, *, signal: bool, up: bool) -> float:
        moved = found.yields(signal=signal, of=(found.up if up else found.down)[name]).sum()
        return float(moved / found.yields(signal=signal).sum() - 1)

    shifts = [
        Shift(name, *(change(name, signal=signal, up=up) for signal in (True, False) for up in (True, False)))
        for name in found.up
    ]
    return Systematics(shifts, found.significance, found.known_background)
