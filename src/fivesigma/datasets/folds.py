"""Which rows go where: stratified parts, and fold numbers that do not depend on the order of a file."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fivesigma._types import AnyArray, BoolArray, IntArray
from fivesigma.errors import InputError


def stratified_part(
    classes: Sequence[tuple[str, BoolArray]], process: AnyArray | None, fraction: float, random_state: Any
) -> BoolArray:
    """Draw a fraction of the events, the same of every class and, to one event, of every process."""
    try:
        share = float(fraction)
    except (TypeError, ValueError):
        share = np.nan
    if not 0 < share < 1:
        raise InputError(f"fraction must be a number between 0 and 1, got {fraction!r}")
    try:
        rng = np.random.default_rng(random_state)
    except (TypeError, ValueError) as err:
        raise InputError(f"random_state must be an integer of at least 0 or None, got {random_state!r}") from err
    part = np.zeros(len(classes[0][1]), dtype=bool)
    for name, members in classes:
        rows = rng.permutation(np.flatnonzero(members))
        if rows.size == 0:
            continue  # what the whole does not have, a part cannot have
        n_part = int(np.floor(share * rows.size + 0.5))
        if not 0 < n_part < rows.size:
            raise InputError(
                f"a fraction of {share:g} leaves one part without {name}, of which there are {rows.size:,} events"
            )
        if process is not None:
            codes = np.unique(process[rows], return_inverse=True)[1]
            rows = rows[np.argsort(codes, kind="stable")]
        # Evenly spaced rows, in order of process and from a random start: no process is off by a whole event.
        steps = (np.arange(rows.size + 1) * n_part + rng.integers(rows.size)) // rows.size
        part[rows[np.diff(steps) > 0]] = True
    return part


def fold_numbers(k: int, numbers: AnyArray) -> IntArray:
    """Integers modulo `k`, from 0 to k - 1 for negative ones too."""
    try:
        n_folds = operator.index(k)
    except TypeError:
        n_folds = 0
    if isinstance(k, bool) or not 2 <= n_folds < 2**31:
        raise InputError(f"k must be an integer of at least 2 (and below 2^31), got {k!r}")
    # In 64 bits, because k need not fit into the type of the column; int64 and uint64 have no common type.
    wide = np.uint64 if numbers.dtype.kind == "u" else np.int64
    return (numbers.astype(wide) % wide(n_folds)).astype(np.intp)


def hash_rows(rows: IntArray | NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64 (Steele, Lea and Flood 2014) of row numbers: as good as random, and the same everywhere."""
    z = (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
