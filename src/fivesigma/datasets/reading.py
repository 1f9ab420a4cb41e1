"""Reading a source chunk by chunk: expressions are evaluated and events are cut before the next chunk is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from numpy.typing import NDArray

    from fivesigma.datasets.columns import Kind, Source
    from fivesigma.datasets.expression import Expression
    from fivesigma.datasets.features import FeatureTable

__all__ = ["Block", "read_block", "read_blocks"]


@dataclass(slots=True)
class Block:
    """The columns of one source after the cut.

    Attributes
    ----------
    source : str
        Name of the source, for messages.
    columns : dict of str to array
        By name; the values of expressions under the names that they define.
    n_read, n_rows : int
        Events before and after the cut.
    passed : int array or None
        Rows of the source that passed the cut; None for all.
    process : str or None
        The process of all events, where it is known by the file.
    """

    source: str
    columns: dict[str, NDArray[Any]]
    n_read: int
    n_rows: int
    passed: NDArray[np.intp] | None
    process: str | None = None

    def where(self, index: int) -> str:
        """Name a row as the user finds it: counted from 1, in the source, before the cut."""
        row = index if self.passed is None else int(self.passed[index])
        return f"row {row + 1:,} of {self.source}"


def read_block(
    source: Source,
    kinds: Mapping[str, Kind],
    derived: Mapping[str, Expression],
    cut: Expression | None,
    *,
    table: FeatureTable | None = None,
    keep: Collection[str] = (),
) -> Block:
    """Read the columns of a source, and the values of expressions, of the events that pass the cut.

    Parameters
    ----------
    source : Source
    kinds : mapping of str to Kind
        Columns that are wanted as they are.
    derived : mapping of str to Expression
        Expressions whose values are wanted, by the name that the value gets.
    cut : Expression, optional
        Condition that events must pass.
    table : FeatureTable, optional
        Gets the features, which are then no columns of the block.
    keep : collection of str
        Features that are columns of the block nevertheless.
    """
    only_features = frozenset(() if table is None else table.names).difference(keep)
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in (*kinds, *derived) if name not in only_features}
    passed: list[NDArray[np.intp]] = []
    n_read = 0
    for block in read_blocks(source, kinds, derived, cut):
        if table is not None:
            table.add(block.columns, block.where)
        for name, arrays in parts.items():
            arrays.append(block.columns[name])
        if cut is not None and block.passed is not None:
            passed.append(block.passed)
        n_read += block.n_read
    if n_read == 0:
        raise InputError(f"{source.name} holds no events")
    out = {name: arrays[0] if len(arrays) == 1 else np.concatenate(arrays) for name, arrays in parts.items()}
    rows = np.concatenate(passed) if cut is not None else None
    return Block(source.name, out, n_read, n_read if rows is None else rows.size, rows)


def read_blocks(
    source: Source,
    kinds: Mapping[str, Kind],
    derived: Mapping[str, Expression],
    cut: Expression | None,
    rows: int | None = None,
) -> Iterator[Block]:
    """Read a source as `read_block` does, one chunk after the other; rows are counted from its beginning.

    Parameters
    ----------
    source, kinds, derived, cut
        As in `read_block`.
    rows : int, optional
        Events per chunk, before the cut; by default as the format is best read.
    """
    expressions = [*derived.values(), *([] if cut is None else [cut])]
    raw = frozenset[str]().union(*(e.columns for e in expressions))
    wanted: dict[str, Kind] = {**kinds, **dict.fromkeys(sorted(raw), "raw")}
    first = 0
    for chunk in source.chunks(wanted, rows):
        n = len(next(iter(chunk.values())))
        columns = {name: _precise(chunk[name]) for name in raw}
        kept: Any = slice(None)
        passed = None if first == 0 else np.arange(first, first + n)
        n_rows = n
        if cut is not None:
            kept = np.flatnonzero(cut.condition(columns, n))
            passed, n_rows = kept + first, kept.size
        out = {name: _flat(chunk[name], name, source)[kept] for name in kinds}
        out |= {name: expression.number(columns, n)[kept] for name, expression in derived.items()}
        yield Block(source.name, out, n, n_rows, passed)
        first += n


def _precise(column: Any) -> Any:
    """Numbers in which products of weights keep their digits."""
    if _is_jagged(column):
        awkward = need("awkward")
        return awkward.values_astype(column, np.float64) if "float32" in str(column.type) else column
    return column.astype(np.float64) if column.dtype == np.float32 else column


def _flat(column: Any, name: str, source: Source) -> NDArray[Any]:
    """A column that is wanted by itself, and used in an expression as well."""
    if _is_jagged(column) or column.ndim != 1:
        shape = column.type if _is_jagged(column) else " * ".join(map(str, (*column.shape, column.dtype)))
        raise InputError(
            f"column {name!r} of {source.name} does not hold one value per event but the shape {shape}; pick one with "
            f"'{name}[0]', or use sum, max, min, count, any, all"
        )
    return np.asarray(column)


def _is_jagged(column: Any) -> bool:
    return type(column).__module__.partition(".")[0] == "awkward"
