"""From columns to checked `Events`: the one gate that every file and every frame passes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fivesigma.datasets.columns import WEIGHT, join_parts, known_signal
from fivesigma.datasets.events import Events
from fivesigma.datasets.features import FeatureTable
from fivesigma.datasets.reading import Block, read_block
from fivesigma.errors import InputError, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from fivesigma.datasets.columns import Columns, Source

__all__ = ["Processes", "assemble"]

SIGNAL, BACKGROUND = "signal", "background"  # labels where files say what an event is


class Processes(NamedTuple):
    """The process of each source, and the factor of its weights."""

    names: Sequence[str]
    factors: Sequence[float]


def assemble(sources: Iterable[Source], columns: Columns, signal: Any, *, processes: Processes | None = None) -> Events:
    """Read the sources one after the other and build the checked events.

    Parameters
    ----------
    sources : iterable of Source
    columns : Columns
        What each column means.
    signal : label, or sequence of processes
        Which events are signal.
    processes : Processes, optional
        Names and factors of the processes, one for each source, where files and not a column say what an event is.
    """
    settled: Columns | None = None
    left_out: tuple[str, ...] = ()
    held_back: tuple[str, ...] = ()
    table = FeatureTable((), None)
    blocks: list[Block] = []
    for at, source in enumerate(sources):
        with _of_process(None if processes is None else processes.names[at]):
            if settled is None:
                settled, left_out, held_back = columns.settled(source)
                table = FeatureTable(settled.feature_names, settled.missing)
            block = _checked_block(source, settled, table)
        if processes is not None:
            block.process = processes.names[at]
        blocks.append(block)
    if settled is None or settled.features is None:
        raise InputError("there is no file to read")
    n, n_read = sum(block.n_rows for block in blocks), sum(block.n_read for block in blocks)
    notes = reading_notes(columns, settled, left_out, held_back, n_read=n_read, n=n)
    if n == 0:
        raise InputError(f"none of {n_read:,} events passes the cut {shortened(repr(columns.cut))}")
    where = blocks[0].source if len(blocks) == 1 else f"{len(blocks)} files"
    if processes is None:
        y, meant = _labels(blocks, settled.label, signal, where)
        process = None if settled.process is None else _joined(blocks, settled.process)
    else:
        process = np.repeat([str(block.process) for block in blocks], [block.n_rows for block in blocks])
        y, meant = np.where(np.isin(process, list(signal)), SIGNAL, BACKGROUND), SIGNAL
        _check_processes(blocks, processes, signal)
    w = np.ones(n) if settled.weight is None else physics_weights(blocks, settled.weight)
    if processes is not None:
        w = w * np.repeat(processes.factors, [block.n_rows for block in blocks])
    if table.n_empty:
        notes += (empty_note(table.n_empty),)
    return Events(
        X=table.finished(),
        y=y,
        weight=w,
        signal=meant,
        feature_names=settled.feature_names,
        process=process,
        ids=None if settled.ids is None else unique_ids(blocks, settled.ids),
        kept={name: _joined(blocks, name) for name in settled.keep},
        columns=settled,
        notes=notes,
    )


def empty_note(n_empty: int) -> str:
    """What is said of features that are missing in the source itself."""
    return f"{n_empty:,} empty or NaN feature values are read as missing."


@contextmanager
def _of_process(name: str | None) -> Iterator[None]:
    """Say in an error of which process the file is."""
    try:
        yield
    except InputError as err:
        if name is None:
            raise
        raise InputError(f"{err} (process {name!r})") from err


def _checked_block(source: Source, settled: Columns, table: FeatureTable) -> Block:
    """Read a source: features go into the table, and other columns are checked."""
    block = read_block(source, *settled.reading(source), table=table, keep=settled.keep)
    needed = frozenset(settled.named)
    for name in (settled.label, settled.process, settled.ids, *settled.keep):
        if name is not None:
            block.columns[name] = plain_values(block.columns[name], name, source.name, nan=name not in needed)
    for name in frozenset(settled.keep).intersection(settled.features or ()):
        if block.columns[name].dtype.kind == "U":
            raise InputError(f"column {name!r} of {source.name} holds text and cannot be a feature; only keep it")
    return block


def _check_processes(blocks: list[Block], processes: Processes, signal: Sequence[str]) -> None:
    """Every process needs events, and both classes too."""
    for name in dict.fromkeys(processes.names):
        own = [block for block in blocks if block.process == name]
        if not sum(block.n_rows for block in own):
            raise InputError(f"no event of the process {name!r} passes the cut ({', '.join(b.source for b in own)})")
    if all(name in signal for name in processes.names):
        raise InputError("every process is signal; at least one must be background")


def plain_values(column: NDArray[Any], name: str, source: str, *, nan: bool) -> NDArray[Any]:
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


def reading_notes(
    asked: Columns, settled: Columns, left_out: Sequence[str], held_back: Sequence[str], *, n_read: int, n: int
) -> tuple[str, ...]:
    notes = []
    if asked.cut is not None:
        notes.append(f"{n_read - n:,} of {n_read:,} events fail the cut {shortened(repr(asked.cut))} and are left out.")
    if held_back:
        notes.append(f"Features: {', '.join(settled.feature_names)}; not by their name or use: {', '.join(held_back)}.")
    if left_out:
        names = ", ".join(map(shortened, left_out))
        notes.append(f"Not features, because they do not hold one number per event: {names}.")
    return tuple(notes)


def _labels(blocks: list[Block], label: str | None, signal: Any, where: str) -> tuple[NDArray[Any], Any]:
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


def physics_weights(blocks: list[Block], name: str) -> NDArray[np.float64]:
    for block in blocks:
        column = block.columns[WEIGHT if WEIGHT in block.columns else name]
        bad = np.flatnonzero(~np.isfinite(column))
        if len(bad):
            rows = ", ".join(f"{column[i]} in {block.where(int(i))}" for i in bad[:3])
            more = f" and in {len(bad) - 3:,} more rows" if len(bad) > 3 else ""
            of = "" if block.process is None else f" (process {block.process!r})"
            raise InputError(f"every event needs a finite weight, but {shortened(name)!r} is {rows}{more}{of}")
    parts = [block.columns[WEIGHT if WEIGHT in block.columns else name] for block in blocks]
    return np.concatenate(parts).astype(np.float64, copy=False)


def unique_ids(blocks: list[Block], name: str) -> NDArray[Any]:
    """Identifiers, each once in its file: several files may count their events alike."""
    for block in blocks:
        ids = block.columns[name]
        if ids.dtype.kind in "iu" and (ids[1:] > ids[:-1]).all():
            continue  # ascending, the usual case, needs no sort
        order = np.argsort(ids, kind="stable")
        again = np.flatnonzero(ids[order[1:]] == ids[order[:-1]])
        if len(again):
            first, second = (block.where(int(order[again[0] + step])) for step in (0, 1))
            raise InputError(
                f"identifiers in {name!r} must be unique, but {ids[order[again[0]]]} is in {first} and in {second} "
                f"({len(again):,} duplicates in all): rename the column or pass ids=None if it does not identify events"
            )
    return _joined(blocks, name)


def _joined(blocks: list[Block], name: str) -> NDArray[Any]:
    return join_parts(name, [(block.source, block.columns[name]) for block in blocks])
