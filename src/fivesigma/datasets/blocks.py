"""Reading a source chunk by chunk: expressions are evaluated and events are cut before the next chunk is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fivesigma._tools.extras import need
from fivesigma._types import AnyArray, Array, IntArray
from fivesigma.datasets.columns import WEIGHT, Kind, Plan, Source, join_parts
from fivesigma.datasets.expression import is_jagged, one_per_event
from fivesigma.errors import InputError, shortened

# Rows copied from columns to the table at a time: a piece that stays in the processor's cache.
_PIECE = 1_024
_GROWTH = 1.25


@dataclass(slots=True)
class Block:
    """Columns of a source after the cut, events before and after it, and rows that passed it, None for all."""

    source: str
    columns: dict[str, AnyArray]
    n_read: int
    n_rows: int
    passed: IntArray | None

    def rows(self) -> IntArray:
        """Rows in the source of the events that passed the cut."""
        return np.arange(self.n_rows) if self.passed is None else self.passed

    def where(self, index: int) -> str:
        """Name a row as the user finds it: counted from 1, in the source, before the cut."""
        row = index if self.passed is None else int(self.passed[index])
        return f"row {row + 1:,} of {self.source}"


def read_columns(source: Source, kinds: Mapping[str, Kind]) -> dict[str, AnyArray]:
    """Read columns that are not events, such as scores, as a whole."""
    chunks = list(source.chunks(kinds))
    if not any(len(column) for chunk in chunks for column in chunk.values()):
        raise InputError(f"{source.name} holds no events")
    return {
        name: np.concatenate([_as_kind(chunk[name], name, source.name, kind) for chunk in chunks])
        for name, kind in kinds.items()
    }


def read_blocks(source: Source, plan: Plan, rows: int | None = None) -> Iterator[Block]:
    """Read what is planned of the events that pass the cut, in chunks of so many rows before the cut."""
    kinds, derived, cut = plan
    wanted: dict[str, Kind] = {**kinds, **dict.fromkeys(sorted(plan.raw), "raw")}
    if not wanted:  # constants alone: any column tells how many events there are
        wanted = {(*source.numbers, *source.names)[0]: "raw"}
    first = 0
    for chunk in source.chunks(wanted, rows):
        n = len(next(iter(chunk.values())))
        if n == 0:
            continue
        columns = {name: _precise(chunk[name]) for name in plan.raw}
        kept: Any = slice(None)
        passed = None if first == 0 else np.arange(first, first + n)
        n_rows = n
        if cut is not None:
            kept = np.flatnonzero(cut.condition(columns, n))
            passed, n_rows = kept + first, kept.size
        out = {name: _as_kind(chunk[name], name, source.name, kind)[kept] for name, kind in kinds.items()}
        out |= {name: expression.values(columns, n)[kept] for name, expression in derived.items()}
        del chunk, columns  # else they are in memory while the next chunk is read
        yield Block(source.name, out, n, n_rows, passed)
        del out
        first += n


def _precise(column: Any) -> Any:
    """What expressions see of a column: numbers in which products of weights keep their digits."""
    column = one_per_event(column) if is_jagged(column) else column
    if is_jagged(column):
        return need("awkward").values_astype(column, np.float64) if "float32" in str(column.type) else column
    return column.astype(np.float64) if column.dtype == np.float32 else column


def _as_kind(column: Any, name: str, source: str, kind: Kind) -> AnyArray:
    """A column as it is wanted, which must have one value per event."""
    column = one_per_event(column, gaps=kind == "value") if is_jagged(column) else column
    shape = column.type if is_jagged(column) else None
    if shape is None and column.ndim != 1:
        shape = " * ".join(map(str, (*column.shape, column.dtype)))
    elif shape is None and column.dtype.kind == "O":  # text or gaps, or arrays of uproot
        first = next((item for item in column if item is not None), "")
        shape = None if np.isscalar(first) else f"{len(column)} * var * {getattr(first, 'dtype', '?')}"
    if shape is not None:
        raise InputError(
            f"column {name!r} of {source} does not hold one value per event but the shape {shape}; pick one with "
            f"'{name}[0]', or use sum, max, min, count, any, all"
        )
    if kind == "value":
        return np.asarray(column)
    try:
        with np.errstate(over="ignore"):
            return np.asarray(column.astype(kind, copy=False))
    except (TypeError, ValueError, OverflowError):
        row, value = next((i, v) for i, v in enumerate(column.tolist(), start=1) if not _is_number(v))
    raise InputError(f"column {name!r} should hold numbers, but row {row:,} of {source} has {shortened(repr(value))}")


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def check_values(column: AnyArray, name: str, source: str, *, nan: bool) -> AnyArray:
    """A column as an array of text, whole numbers, numbers or truth; only what is kept may have NaN."""
    gaps = np.zeros(len(column), dtype=bool)
    if column.dtype.kind == "f" and not nan:
        gaps = np.isnan(column)
    elif column.dtype.kind == "O":
        gaps = np.fromiter(map(_is_missing, column), bool)
    if gaps.any():
        row = int(np.argmax(gaps)) + 1
        raise InputError(f"column {name!r} is empty in row {row:,} of {source}; every event needs a value there")
    if column.dtype.kind == "O":
        types = {type(v) for v in column}
        if column.ndim != 1 or any(issubclass(kind, list | tuple | dict | np.ndarray) for kind in types):
            raise InputError(f"column {name!r} of {source} does not hold one value per event")
        column = np.array(column.tolist()) if len(types) == 1 else column
    if column.dtype.kind not in "biufU":
        raise InputError(
            f"column {name!r} of {source} holds {column.dtype} values; give text or numbers, not a mixture"
        )
    return column


def _is_missing(value: Any) -> bool:
    """Whether it is None, pandas' NA, or unequal to itself as NaN and NaT are."""
    if value is None or type(value).__name__ == "NAType":
        return True
    unequal = value != value  # noqa: PLR0124 - as NaN and NaT are; several of them for an array
    return isinstance(unequal, bool | np.bool_) and bool(unequal)


def finite_weights(block: Block, name: str) -> Array:
    """Weights of a block, all of which must be finite."""
    column = block.columns[WEIGHT if WEIGHT in block.columns else name]
    bad = np.flatnonzero(~np.isfinite(column))
    if len(bad):
        rows = ", ".join(f"{column[i]} in {block.where(int(i))}" for i in bad[:3])
        more = f" and in {len(bad) - 3:,} more rows" if len(bad) > 3 else ""
        raise InputError(f"every event needs a finite weight, but {shortened(name)!r} is {rows}{more}")
    return column.astype(np.float64, copy=False)


def refuse_duplicates(parts: Sequence[tuple[AnyArray, IntArray | None]], name: str, source: str) -> None:
    """Each identifier once in its file, which has these identifiers and rows, block by block; files may count alike."""
    if not parts:
        return
    ids = join_parts(name, [(source, part) for part, _ in parts])
    if ids.dtype.kind in "iu" and (ids[1:] > ids[:-1]).all():
        return
    order = np.argsort(ids, kind="stable")
    again = np.flatnonzero(ids[order[1:]] == ids[order[:-1]])
    if len(again):
        rows = np.concatenate([np.arange(len(part)) if passed is None else passed for part, passed in parts])
        first, second = (f"row {rows[order[again[0] + step]] + 1:,} of {source}" for step in (0, 1))
        raise InputError(
            f"identifiers in {name!r} must be unique, but {ids[order[again[0]]]} is in {first} and in {second} "
            f"({len(again):,} duplicates in all): rename the column or pass ids=None if it does not identify events"
        )


class FeatureTable:
    """Rows of float32 features that grow at the end; `missing` becomes NaN, `n_empty` values were NaN in the source."""

    def __init__(self, names: Sequence[str], missing: float | None) -> None:
        self.names = tuple(names)
        self.missing = missing
        self.n_rows = self.n_empty = 0
        self._rows = np.empty((0, len(self.names)), dtype=np.float32)

    def add(self, columns: Mapping[str, AnyArray], where: Callable[[int], str]) -> None:
        """Append rows; `where` names a row of these columns in an error."""
        n = len(columns[self.names[0]])
        if self.n_rows + n > len(self._rows):
            self._resize(max(self.n_rows + n, int(_GROWTH * self.n_rows)))
        for first in range(0, n, _PIECE):
            last = min(first + _PIECE, n)
            piece = self._rows[self.n_rows + first : self.n_rows + last]
            with np.errstate(over="ignore"):  # too large for float32 is infinite, and refused below
                for j, name in enumerate(self.names):
                    piece[:, j] = columns[name][first:last]
            self.n_empty += int(np.isnan(piece).sum())
            if self.missing is not None:
                piece[piece == np.float32(self.missing)] = np.nan
            infinite = np.isinf(piece)
            if infinite.any():
                i, j = np.argwhere(infinite)[0]
                raise InputError(
                    f"column {self.names[j]!r} is infinite (or too large for float32) in {where(first + int(i))}: mark "
                    "it as missing, or leave the column out"
                )
        self.n_rows += n

    def finish(self) -> NDArray[np.float32]:
        """All rows; nothing can be added any more."""
        self._resize(self.n_rows)
        return self._rows

    def _resize(self, n_rows: int) -> None:
        # The memory is moved by the system, not copied; nobody else refers to it yet.
        self._rows.resize((n_rows, len(self.names)), refcheck=False)
