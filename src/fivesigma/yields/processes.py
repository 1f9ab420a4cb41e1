"""What each category keeps of each process; a selection is one category."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import Array, BoolArray, IntArray
from fivesigma.errors import InputError


class ProcessYields(NamedTuple):
    """One process in every category."""

    signal: bool
    sum_of_weights: Array
    sum_of_squares: Array
    events: IntArray


class Processes(NamedTuple):
    """Names of the processes, which of them are signal, and the process of each event."""

    names: tuple[str, ...]
    signal: BoolArray
    codes: IntArray


def number_processes(signal: BoolArray, process: ArrayLike | None, *, split_mixed: bool = False) -> Processes:
    """Number the processes, or signal and background; a name of both is refused, or split into two by `split_mixed`."""
    if process is None:
        return Processes(("signal", "background"), np.array([True, False]), (~signal).astype(np.intp))
    given = np.asarray(process)
    if given.shape != signal.shape:
        raise InputError(f"process has shape {given.shape} for {signal.size} events")
    if split_mixed:
        given = given.astype(np.str_)
    names, codes = np.unique(given, return_inverse=True)
    share = np.bincount(codes, signal) / np.bincount(codes)
    mixed = (share > 0) & (share < 1)
    if not mixed.any():
        return Processes(tuple(map(str, names)), share == 1, codes)
    if not split_mixed:
        raise InputError(f"process {str(names[mixed][0])!r} has both signal and background events; give them two names")
    present, codes = np.unique(2 * codes + ~signal, return_inverse=True)
    words = [f"{names[k // 2]} ({'background' if k % 2 else 'signal'})" if mixed[k // 2] else str(names[k // 2])
             for k in present.tolist()]  # fmt: skip
    return Processes(tuple(words), present % 2 == 0, codes)


def process_yields(
    category: IntArray, n_categories: int, weight: Array, processes: Processes
) -> dict[str, ProcessYields]:
    """Sum weights, squared weights and events by process and category.

    Parameters
    ----------
    category : int array of shape (n_events,)
        From 0 to ``n_categories - 1``; events at -1 are left out.
    n_categories : int
    weight : array of shape (n_events,)
        Physics weights.
    processes : Processes
        Of the same events.
    """
    cell, shape = _numbered(category, n_categories, processes)
    first, second = (_sums(cell, shape, values) for values in (weight, np.square(weight)))
    events = _sums(cell, shape, None)
    return {
        name: ProcessYields(bool(processes.signal[i]), first[i], second[i], events[i].astype(np.intp))
        for i, name in enumerate(processes.names)
    }


def process_sums(category: IntArray, n_categories: int, values: Array, processes: Processes) -> Array:
    """Sum values by process and category."""
    return _sums(*_numbered(category, n_categories, processes), values)


def _numbered(category: IntArray, n_categories: int, processes: Processes) -> tuple[IntArray, tuple[int, int]]:
    """Number of the process and category of each event, and the shape of what they number."""
    cell = processes.codes * (n_categories + 1)
    cell += category
    cell += 1  # column 0 takes what is left out
    return cell, (len(processes.names), n_categories + 1)


def _sums(cell: IntArray, shape: tuple[int, int], values: Array | None) -> Array:
    sums = np.bincount(cell, values, minlength=shape[0] * shape[1]).reshape(shape)
    return np.asarray(sums[:, 1:], dtype=np.float64)


def class_sums(by_process: Mapping[str, ProcessYields], *, signal: bool) -> tuple[Array, Array]:
    """Sums of weights and of squared weights over the processes of one class, by category."""
    members = [rows for rows in by_process.values() if rows.signal is signal]
    return np.sum([rows.sum_of_weights for rows in members], axis=0), np.sum(
        [rows.sum_of_squares for rows in members], axis=0
    )
