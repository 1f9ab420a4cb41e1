"""From columns to checked `Events`: the one gate that every file and every frame passes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fivesigma.datasets.columns import join_parts, known_signal
from fivesigma.datasets.events import Events
from fivesigma.datasets.expression import Cut
from fivesigma.errors import InputError, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from fivesigma.datasets.columns import Columns, Source

__all__ = ["assemble"]

# Rows copied from columns to the table at a time: a piece that stays in the processor's cache.
_PIECE = 1_024


@dataclass(slots=True)
class _Block:
    """The columns of one source after the cut."""

    source: str
    columns: dict[str, NDArray[Any]]
    n_rows: int
    passed: NDArray[np.intp] | None  # rows of the source that passed the cut, None for all

    def where(self, index: int) -> str:
        """Name a row as the user finds it: counted from 1, in the source, before the cut."""
        row = index if self.passed is None else int(self.passed[index])
        return f"row {row + 1:,} of {self.source}"


def assemble(sources: Iterable[Source], columns: Columns, signal: Any) -> Events:
    """Read the sources one after the other and build the checked events."""
    cut = None if columns.cut is None else Cut(columns.cut)
    settled: Columns | None = None
    left_out: tuple[str, ...] = ()
    blocks: list[_Block] = []
    n_read = 0
    for source in sources:
        if settled is None:
            settled, left_out = columns.settled(source)
        kinds = settled.kinds(source, cut)
        read = source.read(kinds)
        n_rows = len(next(iter(read.values())))
        if n_rows == 0:
            raise InputError(f"{source.name} holds no events")
        needed = frozenset(settled.named)
        for name, kind in kinds.items():
            if kind == "value":
                read[name] = _plain(read[name], name, source.name, nan=name not in needed)
        for name in frozenset(settled.keep).intersection(settled.features or ()):
            if read[name].dtype.kind == "U":
                raise InputError(f"column {name!r} of {source.name} holds text and cannot be a feature; only keep it")
        n_read += n_rows
        blocks.append(_cut(_Block(source.name, read, n_rows, None), cut))
    if settled is None or settled.features is None:
        raise InputError("there is no file to read")
    n = sum(block.n_rows for block in blocks)
    notes = _notes(left_out, cut, n_read, n)
    if n == 0:
        raise InputError(f"none of {n_read:,} events passes the cut {shortened(repr(columns.cut))}")
    where = blocks[0].source if len(blocks) == 1 else f"{len(blocks)} files"
    y, signal = _labels(blocks, settled.label, signal, where)
    w = np.ones(n) if settled.weight is None else _weights(blocks, settled.weight)
    events = Events(
        X=np.empty((n, len(settled.features)), dtype=np.float32),
        y=y,
        weight=w,
        signal=signal,
        feature_names=settled.features,
        process=None if settled.process is None else _joined(blocks, settled.process),
        ids=None if settled.ids is None else _unique_ids(blocks, settled.ids),
        kept={name: _joined(blocks, name) for name in settled.keep},
        columns=settled,
    )
    n_empty = _fill(events.X, blocks, settled.features, settled.missing)
    if n_empty:
        notes += (f"{n_empty:,} empty or NaN feature values are read as missing.",)
    return replace(events, notes=notes)


def _plain(column: NDArray[Any], name: str, source: str, *, nan: bool) -> NDArray[Any]:
    """Turn a column into an array of text, whole numbers, numbers or truth; only what is kept may have NaN."""
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
        column = np.array(column.tolist()) if len(types) == 1 else column
    if column.dtype.kind not in "biufU":
        raise InputError(
            f"column {name!r} of {source} holds {column.dtype} values; give text or numbers, not a mixture"
        )
    return column


def _is_missing(value: Any) -> bool:
    """Whether it is None, pandas' NA, or unequal to itself as NaN and NaT are."""
    return value is None or type(value).__name__ == "NAType" or bool(value != value)  # noqa: PLR0124 - NaN and NaT


def _cut(block: _Block, cut: Cut | None) -> _Block:
    if cut is None:
        return block
    passed = np.flatnonzero(cut.passes({name: block.columns[name] for name in cut.columns}))
    columns = {name: column[passed] for name, column in block.columns.items()}
    return _Block(block.source, columns, len(passed), passed)


def _notes(left_out: Sequence[str], cut: Cut | None, n_read: int, n: int) -> tuple[str, ...]:
    notes = []
    if cut is not None:
        notes.append(f"{n_read - n:,} of {n_read:,} events fail the cut {shortened(repr(cut.text))} and are left out.")
    if left_out:
        names = ", ".join(map(shortened, left_out))
        notes.append(f"Not features, because they do not hold one number per event: {names}.")
    return tuple(notes)


def _fill(X: NDArray[np.float32], blocks: list[_Block], features: Sequence[str], missing: float | None) -> int:
    """Move the feature columns into `X`, freeing each block when it is done; count NaN in the source."""
    start = n_empty = 0
    while blocks:
        block = blocks.pop(0)
        for first in range(0, block.n_rows, _PIECE):
            last = min(first + _PIECE, block.n_rows)
            piece = X[start + first : start + last]
            with np.errstate(over="ignore"):  # too large for float32 is infinite, and refused below
                for j, name in enumerate(features):
                    piece[:, j] = block.columns[name][first:last]
            n_empty += int(np.isnan(piece).sum())
            if missing is not None:
                piece[piece == np.float32(missing)] = np.nan
            infinite = np.isinf(piece)
            if infinite.any():
                i, j = np.argwhere(infinite)[0]
                msg = (
                    f"column {features[j]!r} is infinite (or too large for float32) in "
                    f"{block.where(first + int(i))}: mark it as missing, or leave the column out"
                )
                raise InputError(msg)
        start += block.n_rows
    return n_empty


def _labels(blocks: list[_Block], label: str | None, signal: Any, where: str) -> tuple[NDArray[Any], Any]:
    """Return the labels, of which there must be two, and the one that means signal."""
    if label is None:
        return np.full(sum(block.n_rows for block in blocks), None, dtype=object), None
    y = _joined(blocks, label)
    # Two comparisons find a third label without sorting millions of labels.
    other = y != y[0]
    found = [y[0], *y[other][:1]]
    third = other & (y != found[-1])
    if len(found) == 2 and not third.any():
        labels = sorted(np.asarray(found).tolist())
        return y, known_signal(labels, signal, where)
    values, counts = np.unique(y, return_counts=True)
    seen = ", ".join(f"{v!r} ({c:,})" for v, c in zip(values.tolist()[:10], counts[:10], strict=False))
    more = f" and {len(values) - 10:,} more" if len(values) > 10 else ""
    raise InputError(f"column {label!r} of {where} must hold two labels; it holds {seen}{more}")


def _weights(blocks: list[_Block], name: str) -> NDArray[np.float64]:
    for block in blocks:
        column = block.columns[name]
        bad = np.flatnonzero(~np.isfinite(column))
        if len(bad):
            rows = ", ".join(f"{column[i]} in {block.where(int(i))}" for i in bad[:3])
            more = f" and in {len(bad) - 3:,} more rows" if len(bad) > 3 else ""
            raise InputError(f"every event needs a finite weight, but {name!r} is {rows}{more}")
    return _joined(blocks, name).astype(np.float64, copy=False)


def _unique_ids(blocks: list[_Block], name: str) -> NDArray[Any]:
    ids = _joined(blocks, name)
    if ids.dtype.kind in "iu" and (ids[1:] > ids[:-1]).all():
        return ids  # ascending, the usual case, needs no sort
    order = np.argsort(ids, kind="stable")
    again = np.flatnonzero(ids[order[1:]] == ids[order[:-1]])
    if len(again) == 0:
        return ids
    first, second = (_locate(blocks, int(order[again[0] + step])) for step in (0, 1))
    msg = (
        f"identifiers in {name!r} must be unique, but {ids[order[again[0]]]} is in {first} and in {second} "
        f"({len(again):,} duplicates in all): pass ids=None if this column does not identify events"
    )
    raise InputError(msg)


def _locate(blocks: list[_Block], index: int) -> str:
    for block in blocks:
        if index < block.n_rows:
            break
        index -= block.n_rows
    return block.where(index)


def _joined(blocks: list[_Block], name: str) -> NDArray[Any]:
    return join_parts(name, [(block.source, block.columns[name]) for block in blocks])
