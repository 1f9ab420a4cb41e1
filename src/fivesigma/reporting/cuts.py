"""Everything against the cut: yields, efficiencies and utilities on a small grid, and the progress of a cascade."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.cascade.rounds import Round
from fivesigma.cut.best_cut import CutScan, floor_for, scan
from fivesigma.cut.ranking import Ranking
from fivesigma.likelihood.shifts import Systematics
from fivesigma.scored.scored_events import ScoredEvents
from fivesigma.significance import AMS2, UTILITIES, Utility, VariationalUtility
from fivesigma.yields import effective_count, significance_or_nan

EVEN_IN_SCORE, EVEN_IN_RANK, EVEN_IN_BACKGROUND = 190, 90, 100  # together with two more cuts less than 400
MOST_MINORANTS = 5
MOST_SERIES = 12  # cascades of a pool that are drawn
MOST_ROUNDS = 400  # rounds of a cascade that are sent


@dataclass(frozen=True, eq=False)
class CutTable:
    """Cuts in ascending order, and what each of them keeps."""

    cut: Array  # (n_cuts,): thresholds on the score, and the unweighted share of events that they select
    fraction: Array
    s: Array  # yields and effective counts
    b: Array
    effective_s: Array
    effective_b: Array
    efficiency: Array  # s and b as shares of all signal and background, and s / (s + b)
    background_efficiency: Array
    purity: Array
    # of the model's utility, and its standard error from the simulation; NaN where a cut is not valid
    significance: Array
    error: Array
    # all utilities by their label; the model's own is the first, and its b_reg is not said again
    utilities: dict[str, Array]
    b_reg: float  # of the model's utility, and of the others unless their label says otherwise
    chosen: int  # rows of the model's cut and of the highest significance on these events
    best: int
    auc: float  # weighted area under the curve of efficiency against background efficiency, from all events
    floor: float  # effective background count that a cut must keep to be valid
    # with systematics, the significance of a counting experiment (no b_reg) without and with them
    known: Array | None = None
    profiled: Array | None = None


def utility_label(utility: Utility, b_reg: float = 0.0) -> str:
    """Name of a utility with its numbers; `b_reg` is what goes without saying."""
    numbers = {k: v for k, v in vars(utility).items() if isinstance(v, int | float)}
    if numbers.get("b_reg") == b_reg:
        del numbers["b_reg"]
    name = utility.label or type(utility).__name__
    return f"{name} ({', '.join(f'{k} = {v:.4g}' for k, v in numbers.items())})" if numbers else name


def usual_utilities(b_reg: float, b: float) -> list[Utility]:
    """All utilities with usual parameters, for the background `b` at the model's cut."""
    return [kind.with_usual_numbers(b, b_reg) for kind in UTILITIES.values()]


def cut_table(
    model: Any, scored: ScoredEvents, utilities: Sequence[Utility] | None, systematics: Systematics | None
) -> CutTable:
    """Tabulate cuts on the score of a model, the model's own among them."""
    score, signal, weight = scored.arrays()
    utility: Utility = model.utility_
    floor = floor_for(effective_count(weight[~signal]))
    scanned = scan(scored, utility=utility, rule="peak", min_effective=floor)
    ranking = scanned.ranking
    chosen = int(np.searchsorted(ranking.last, np.count_nonzero(score >= model.cut_) - 1))
    points = _grid(scanned, chosen)
    s, b = ranking.s[points], ranking.b[points]
    var_s, var_b = ranking.variances(points)
    threshold = ranking.thresholds(points)
    threshold[points == chosen] = model.cut_
    fraction = (ranking.last[points] + 1.0) / weight.size
    significance = scanned.values[points]
    valid = np.isfinite(significance)
    columns: dict[str, Array] = {
        "cut": threshold,
        "fraction": fraction,
        "s": s,
        "b": b,
        "effective_s": _share(s * s, var_s, 0.0),
        "effective_b": _share(b * b, var_b, 0.0),
        "efficiency": s / ranking.s[-1],
        "background_efficiency": b / ranking.b[-1],
        "purity": _share(s, s + b),
        "significance": significance,
        "error": scanned.errors(points),
    }
    if systematics is not None:
        curve = scan(scored, min_effective=floor, systematics=systematics).curve
        columns["profiled"] = np.interp(fraction, curve.fraction, curve.significance)
        columns["known"] = significance_or_nan(AMS2(), s, b, valid)
    if utilities is None:
        utilities = usual_utilities(utility.b_reg, float(ranking.b[chosen]))
    shown = [utility, *(u for u in utilities if u != utility)]
    return CutTable(
        **{name: column[::-1] for name, column in columns.items()},  # a ranking begins with the highest cut
        utilities={utility_label(u, utility.b_reg): significance_or_nan(u, s, b, valid)[::-1] for u in shown},
        b_reg=float(utility.b_reg),
        chosen=int(np.flatnonzero(points[::-1] == chosen)[0]),
        best=int(np.flatnonzero(points[::-1] == scanned.chosen)[0]),
        auc=float(np.trapezoid(np.append(0.0, ranking.s), np.append(0.0, ranking.b)) / (ranking.s[-1] * ranking.b[-1])),
        floor=floor,
    )


def _grid(scanned: CutScan, chosen: int) -> IntArray:
    """Cuts that are close together in the score, in rank, or in background, whichever a figure shows."""
    ranking = cast("Ranking", scanned.ranking)  # of events in memory
    last, score = ranking.last, ranking.score[ranking.order]
    even = np.linspace(float(score[-1]), float(score[0]), EVEN_IN_SCORE)
    selected = score.size - np.searchsorted(score[::-1], even)
    in_score = np.searchsorted(last, np.maximum(selected, 1) - 1)
    in_rank = np.searchsorted(last, np.linspace(0, last[-1], EVEN_IN_RANK))
    grown = np.maximum.accumulate(ranking.b)  # with negative weights b itself need not ascend
    least = float(grown[np.argmax(grown > 0)])
    in_b = np.searchsorted(grown, np.geomspace(least, float(grown[-1]), EVEN_IN_BACKGROUND))
    points = np.concatenate([in_score, in_rank, in_b, [chosen, scanned.chosen, last.size - 1]])
    return np.unique(np.minimum(points, last.size - 1))


def _share(part: Array, whole: Array, of_nothing: float = np.nan) -> Array:
    return np.asarray(np.divide(part, whole, out=np.full(part.size, of_nothing), where=whole > 0))


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


def progress_of(model: Any, table: CutTable) -> Progress:
    """Gather the rounds of a model and set their minorants against the curve of its score."""
    utility: Utility = model.utility_
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
    train_s, train_b = np.array([(r.train_s, r.train_b) for r in shown], dtype=np.float64).T  # None becomes NaN
    return Series(
        name,
        [r.index for r in shown],
        np.array([r.following.u if moved and r.following.u is not None else np.nan for r in shown]),
        np.array([r.significance if r.valid else np.nan for r in shown]),
        significance_or_nan(utility, train_s, train_b),
    )


def _some(rounds: Sequence[Round]) -> list[tuple[int, float]]:
    """The first round with a u, the last, and a few whose u lie evenly between the smallest and the largest."""
    first = {r.following.u: r.index for r in reversed(rounds) if r.following.u is not None}  # u may stay for rounds
    known = sorted((t, u) for u, t in first.items())
    if len(known) <= MOST_MINORANTS:
        return known
    path = np.array([u for _, u in known])
    nearest = [int(np.argmin(np.abs(path - u))) for u in np.linspace(path.min(), path.max(), MOST_MINORANTS)]
    return [known[k] for k in sorted({0, len(known) - 1, *nearest})]


def _minorant(t: int, u: float, utility: VariationalUtility, s: Array, b: Array) -> Minorant:
    value = -np.asarray(utility.surrogate(s, b, u, 0.0))
    here = np.asarray(utility.u(s, b))
    inside = here.min() <= u <= here.max()
    touch = int(np.argmin(np.asarray(utility.objective(s, b)) - value)) if inside else None
    return Minorant(t, float(u), value, touch, int(np.argmax(value)))
