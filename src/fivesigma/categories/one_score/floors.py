"""Floors on the background of some processes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import BoolArray, IntArray
from fivesigma.categories.one_score.optimum import Grid
from fivesigma.cut.ranking import Ranking
from fivesigma.errors import InputError


class FloorProcesses(NamedTuple):
    """Which events count for the floors.

    Attributes
    ----------
    names : tuple of str
        Of the processes that count.
    counts : bool array of shape (n_events,), optional
        Which events these are, by rank; None if their processes are not known.
    """

    names: tuple[str, ...]
    counts: BoolArray | None

    @classmethod
    def of(cls, names: Sequence[str], ranking: Ranking, process: ArrayLike | None) -> FloorProcesses:
        """Find the events of the processes; there may be none."""
        if process is None:
            return cls(tuple(names), None)
        given = np.asarray(process).astype(np.str_)
        if given.shape != ranking.score.shape:
            raise InputError(f"process has shape {given.shape} for {ranking.score.size} events")
        return cls(tuple(names), np.isin(given, list(names))[ranking.order])

    def ranking(self, ranking: Ranking) -> Ranking:
        """The same events, of which no other background has a weight."""
        if self.counts is None:
            raise InputError("floor_processes needs process, the name of the process of each event")
        return replace(ranking, weight=np.where(self.counts | ranking.signal, ranking.weight, 0.0))

    def grid(self, grid: Grid, ranking: Ranking, cuts: IntArray) -> Grid:
        """Limits on these processes alone; F is as before."""
        weight = np.where(ranking.signal, 0.0, self.ranking(ranking).weight)
        b, b2 = (np.append(0.0, np.cumsum(w)[ranking.last[cuts]]) for w in (weight, np.square(weight)))
        return replace(grid, b2=b2, floor=b)


def check_floor_processes(names: Sequence[str], ranking: Ranking, process: ArrayLike | None) -> FloorProcesses:
    """Find the events that count for the floors, or say what is wrong with the names."""
    if process is None:
        raise InputError("floor_processes needs process, the name of the process of each event")
    for name in names:
        own = FloorProcesses.of([name], ranking, process).counts
        assert own is not None
        if not own.any():
            raise InputError(f"floor_processes has {name!r}, of which there are no events")
        if ranking.signal[own].any():
            raise InputError(f"floor_processes has the signal {name!r}; only background can count for a floor")
    return FloorProcesses.of(names, ranking, process)
