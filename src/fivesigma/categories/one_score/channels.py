"""Categories of several channels, such as the regions of an analysis, chosen together with shared pulls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from fivesigma.categories.floors import Floors
from fivesigma.categories.one_score.dual import search
from fivesigma.categories.one_score.exact import candidate_cuts, edges_at, grid_of
from fivesigma.categories.one_score.profiled_cells import MAX_EDGES_PROFILED, join_cells, make_cells, merged
from fivesigma.categories.one_score.result import Categories, fill
from fivesigma.categories.one_score.search import MIN_EFFECTIVE_UNCERTAIN, judge
from fivesigma.categories.one_score.smooth import averaged
from fivesigma.cut.ranking import rank_events
from fivesigma.likelihood.shifts import Systematics, YieldShifts, check_shifts, yield_shifts
from fivesigma.scored.scored_events import ScoredEvents
from fivesigma.significance import AMS2
from fivesigma.yields import ProcessYields

__all__ = ["categorise_channels"]

_NOTHING = "(nothing)"  # a process without events, and a systematic that moves none


def categorise_channels(
    channels: Mapping[str, tuple[ScoredEvents, Systematics]],
    n_categories: int,
    *,
    shares: Sequence[int] | None = None,
    goal: str = "discovery",
    min_effective: float | None = None,
    min_background: float = 0.0,
) -> dict[str, Categories]:
    """Find the categories of several channels with the best profiled value of all of them together.

    A systematic of one name is one pull in all channels. Every channel has at least one category.

    Parameters
    ----------
    channels : mapping of str to (ScoredEvents, systematics)
        Events with processes, and their systematics as in `categorise`.
    n_categories : int
        In all channels together.
    shares : sequence of int, optional
        Categories of each channel; by default as many as each is worth.
    goal, min_effective, min_background
        As in `categorise`.

    Returns
    -------
    dict of str to Categories
        Quoted channel by channel, with the statistics of the simulation.
    """
    floors = Floors.checked(min_background, MIN_EFFECTIVE_UNCERTAIN if min_effective is None else min_effective)
    ranked = {name: rank_events(*scored.arrays()) for name, (scored, _) in channels.items()}
    cuts = {name: candidate_cuts(one, MAX_EDGES_PROFILED // len(channels)) for name, one in ranked.items()}
    own = {
        name: yield_shifts(edges_at(ranked[name], cuts[name]), scored, systematics=systematics)
        for name, (scored, systematics) in channels.items()
    }
    for shifts in own.values():
        check_shifts(shifts.up, shifts.yields(signal=False), shifts.background_shifts())
    raw = {name: grid_of(ranked[name], cuts[name]) for name in channels}
    smooth = {name: averaged(grid) for name, grid in raw.items()}
    padded = _aligned(own)
    by_events, by_model = (
        [make_cells(grids[name], padded[name], floors, AMS2(), goal) for name in channels] for grids in (raw, smooth)
    )
    cells, real = join_cells(by_model, shares=shares), join_cells(by_events, shares=shares)
    found = search(cells, n_categories)
    numbers = [part.size for part in cells.split(found.edges)]
    if min(numbers) == 0:  # a channel that is worth nothing has one category all the same
        numbers = [max(number, 1) for number in numbers]
        numbers[int(np.argmax(numbers))] -= sum(numbers) - n_categories
        cells, real = join_cells(by_model, shares=numbers), join_cells(by_events, shares=numbers)
        found = search(cells, n_categories)
    chosen, said = judge(found, cells, real)
    out = {}
    for (name, (scored, _)), places in zip(channels.items(), cells.split(chosen.edges), strict=True):
        edges = edges_at(ranked[name], cuts[name][places - 1])
        fill_with = partial(fill, ranked[name], scored.process, edges, utility=AMS2(), rule="model", floors=floors)
        shifts = merged(own[name], cuts[name].size - places[::-1], edges)
        out[name] = fill_with(goal=goal, held_out=False, correlated=True, mc_statistics=True, shifts=shifts, said=said)
    return out


def _aligned(channels: Mapping[str, YieldShifts]) -> dict[str, YieldShifts]:
    """The same systematics in the same order in all channels, and at least one; some move nothing."""
    names = list(dict.fromkeys(name for shifts in channels.values() for name in shifts.up)) or [_NOTHING]
    free = {name for shifts in channels.values() for name in shifts.free}
    scales = {name for shifts in channels.values() for name, processes in shifts.free.items() if processes}
    out = {}
    for channel, shifts in channels.items():
        zeros = np.zeros(shifts.edges.size - 1)
        nominal = {**shifts.nominal, _NOTHING: ProcessYields(False, zeros, zeros, zeros.astype(int))}
        unmoved = {process: rows.sum_of_weights for process, rows in nominal.items()}
        up, down = ({name: {**unmoved, **side.get(name, {})} for name in names} for side in (shifts.up, shifts.down))
        by = {name: shifts.free.get(name) or ((_NOTHING,) if name in scales else ()) for name in names if name in free}
        out[channel] = YieldShifts(shifts.edges, nominal, up, down, by)
    return out
