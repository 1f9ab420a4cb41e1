"""The cascade's progress: the objective against the cut, the minorants that touch it, and what each round reached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fivesigma._types import Array
from fivesigma.cascade.rounds import Round
from fivesigma.reporting.cuts import CutTable
from fivesigma.significance import Utility, VariationalUtility
from fivesigma.yields import significance_or_nan

MOST_MINORANTS = 5
MOST_SERIES = 12  # cascades of a pool that are drawn
MOST_ROUNDS = 400  # rounds of a cascade that are sent


@dataclass(frozen=True, eq=False)
class Series:
    """Rounds of one cascade."""

    name: str
    round: list[int]
    u: Array  # u_t, from the yields of round t; NaN where the class weights belong to no u
    # on held-out and on training events at the update cut; NaN where a round is not valid or was not looked at
    significance: Array
    train: Array


@dataclass(frozen=True, eq=False)
class Minorant:
    """-R(., u_t) = u_t s - f*(u_t) (b + b_reg) less a constant, never above the objective."""

    round: int  # t
    u: float  # u_t
    value: Array  # at each cut
    # row at which it touches the objective: where the yields of the final score have this u. None if no cut does
    touch: int | None
    top: int  # row of its maximum, to which a better classifier at these weights would move


@dataclass(frozen=True, eq=False)
class Progress:
    """What the figure of a cascade's progress shows."""

    cut: Array  # F against the cut, where cuts are valid
    objective: Array
    minorants: list[Minorant]
    series: list[Series]
    name: str  # what the objective is called: Z²/2, or F where Z is another function of it
    of: str  # which cascade the minorants belong to
    note: str  # why there are no minorants, or empty


def progress_of(model: Any, utility: Utility, table: CutTable) -> Progress:
    """Gather the rounds of a model and set their minorants against the curve of its score."""
    runs = list(_runs(model))
    series = [_series(name, rounds, utility) for name, rounds in runs[:MOST_SERIES]]
    valid = np.isfinite(table.significance)
    s, b = table.s[valid], table.b[valid]
    objective = np.asarray(utility.objective(s, b))
    paths = [(name, rounds) for name, rounds in runs if _moved(rounds)]
    of, note, minorants = "", "", list[Minorant]()
    if not isinstance(utility, VariationalUtility):
        note = f"{type(utility).__name__} has no u, so there are no minorants to draw."
    elif not paths:
        note = "This is a plain model: its class weights stayed balanced, so there is no path of u."
    else:
        of, rounds = max(paths, key=lambda run: max(r.significance for r in run[1]))
        minorants = [_minorant(t, u, utility, s, b) for t, u in _some(rounds)]
    halved = np.allclose(table.significance[valid], np.sqrt(2.0 * objective))
    return Progress(table.cut[valid], objective, minorants, series, "Z²/2" if halved else "F", of, note)


def _runs(model: Any, name: str = "") -> Iterator[tuple[str, list[Round]]]:
    """The cascades of a model by name: restarts, and the members of a pool."""
    if hasattr(model, "members_"):
        for number, (member, fitted) in enumerate(model.members_):
            repeated = sum(other == member for other, _ in model.members_) > 1
            yield from _runs(fitted, f"{member} #{number + 1}" if repeated else str(member))
        return
    # Not every model has rounds, and not all of them are those of a cascade.
    history = [r for r in getattr(model, "history_", []) if isinstance(r, Round)]
    restarts = sorted({r.restart for r in history})
    for k in restarts:
        label = " ".join(part for part in (name, f"restart {k}" if len(restarts) > 1 else "") if part)
        yield label or "cascade", [r for r in history if r.restart == k]


def _moved(rounds: Sequence[Round]) -> bool:
    """Whether any round was trained at a u; a plain model may know one that it never used."""
    return any(r.u is not None for r in rounds)


def _series(name: str, rounds: Sequence[Round], utility: Utility) -> Series:
    moved = _moved(rounds)
    step = -(-len(rounds) // MOST_ROUNDS)
    shown = [r for k, r in enumerate(rounds) if k % step == 0 or k == len(rounds) - 1]
    train_s, train_b = (
        np.array([np.nan if v is None else v for v in column])
        for column in ([r.train_s for r in shown], [r.train_b for r in shown])
    )
    return Series(
        name,
        [r.index for r in shown],
        np.array([r.following.u if moved and r.following.u is not None else np.nan for r in shown]),
        np.array([r.significance if r.valid else np.nan for r in shown]),
        significance_or_nan(utility, train_s, train_b),
    )


def _some(rounds: Sequence[Round]) -> list[tuple[int, float]]:
    """The first round with a u, the last, and a few whose u lie evenly between the smallest and the largest."""
    known = [(r.index, r.following.u) for r in rounds if r.following.u is not None]
    if len(known) <= MOST_MINORANTS:
        return known
    path = np.array([u for _, u in known])
    wanted = np.linspace(path.min(), path.max(), MOST_MINORANTS)
    nearest = {int(np.argmin(np.abs(path - u))) for u in wanted}
    some = sorted({0, len(known) - 1, *nearest})
    return [known[k] for k in some]


def _minorant(t: int, u: float, utility: VariationalUtility, s: Array, b: Array) -> Minorant:
    value = -np.asarray(utility.surrogate(s, b, u, 0.0))
    here = np.asarray(utility.u(s, b))
    inside = here.min() <= u <= here.max()
    touch = int(np.argmin(np.asarray(utility.objective(s, b)) - value)) if inside else None
    return Minorant(t, float(u), value, touch, int(np.argmax(value)))
