"""Events of files that are never in memory all at once: read again, chunk by chunk, in every pass."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fivesigma.challenge import MISSING
from fivesigma.datasets.assemble import (
    BACKGROUND,
    SIGNAL,
    empty_note,
    physics_weights,
    plain_values,
    reading_notes,
    unique_ids,
)
from fivesigma.datasets.columns import Columns, known_signal
from fivesigma.datasets.events import Events
from fivesigma.datasets.features import FeatureTable
from fivesigma.datasets.folds import hashed
from fivesigma.datasets.load import Paths, open_sources
from fivesigma.datasets.reading import Block, read_block, read_blocks
from fivesigma.errors import InputError, is_number, shortened

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fivesigma._types import BoolArray, IntArray
    from fivesigma.datasets.columns import Source

__all__ = ["Chunk", "EventStream", "held_out_rows"]

ROWS = 100_000  # events of a chunk, before the cut


class Chunk(NamedTuple):
    """Some events of one file.

    Attributes
    ----------
    events : Events
        Checked as `load_events` checks them; labels as they stand in the file.
    file : int
        Position of the file in the list of files.
    rows : int array of shape (n_events,)
        Rows in that file, before the cut.
    """

    events: Events
    file: int
    rows: IntArray


class EventStream:
    """Files of events, read chunk by chunk in every pass over it.

    Parquet and ROOT files are read in pieces; a CSV file is in memory while it is read. That a file has changed between
    two passes is noticed.

    Parameters
    ----------
    path, features, label, signal, weight, process, ids, keep, missing, tree, cut, luminosity, cross_section, \
sum_of_weights
        As in `load_events`.
    rows : int, default=100_000
        Events of a chunk, before the cut.

    Attributes
    ----------
    columns : Columns
        What each column means, settled by the first file.
    feature_names : tuple of str
    files : tuple of str
        In the order in which they are read.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from fivesigma.datasets import EventStream, make_htautau
    >>> from fivesigma.datasets.write import write_events
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_events(make_htautau(2500), pathlib.Path(folder) / "events.parquet")
    ...     stream = EventStream(path, rows=1000)
    ...     [len(chunk.events) for chunk in stream]
    [1000, 1000, 500]
    """

    def __init__(
        self,
        path: Paths | Mapping[str, Paths],
        *,
        features: str | Sequence[str] | None = None,
        label: str | None = "Label",
        signal: Any = None,
        weight: str | None = "Weight",
        process: str | None = None,
        ids: str | None = "auto",
        keep: str | Sequence[str] = (),
        missing: float | None = MISSING,
        tree: str | None = None,
        cut: str | None = None,
        luminosity: float | None = None,
        cross_section: Mapping[str, float] | None = None,
        sum_of_weights: Mapping[str, float | str] | None = None,
        rows: int = ROWS,
    ) -> None:
        if not is_number(rows) or rows < 1 or rows != int(rows):
            raise InputError(f"rows must be an integer of at least 1, got {rows!r}")
        asked = Columns.asked(
            features=features,
            label=label,
            weight=weight,
            process=process,
            ids=ids,
            keep=keep,
            missing=missing,
            cut=cut,
        )
        self._opened = open_sources(
            path,
            asked,
            signal,
            tree=tree,
            luminosity=luminosity,
            cross_section=cross_section,
            sum_of_weights=sum_of_weights,
        )
        self._rows = int(rows)
        if not self._opened.targets:
            raise InputError("there is no file to read")
        self._states: list[tuple[int, ...]] = []
        self._counts: dict[int, tuple[int, int]] = {}  # events read and kept, by file
        self._sources: dict[int, Source] = {}
        self._closed: list[int] = []
        for at, target in enumerate(self._opened.targets):
            self._states.append(file_state(target.path))
            self._sources[at] = self._opened.source(at)
        self.columns, self._left_out, self._held_back = self._opened.columns.settled(self._sources[0])
        for source in self._sources.values():  # a column that one file lacks is refused before anything is read
            self.columns.reading(source)
        self.feature_names = self.columns.feature_names
        self.files = tuple(target.path.name for target in self._opened.targets)
        self._labels: list[Any] = []
        self._n_empty = 0
        self._unordered: set[int] = set()
        self._last_ids: dict[int, Any] = {}

    def __repr__(self) -> str:
        head = f"EventStream: {self.n_files} file{'s' * (self.n_files != 1)}, {len(self.feature_names)} features"
        n = sum(counts[1] for counts in self._counts.values())
        return f"{head}, {n:,} events" if len(self._counts) == self.n_files else head

    @property
    def n_files(self) -> int:
        """Number of files."""
        return len(self.files)

    def __iter__(self) -> Iterator[Chunk]:
        """Read all columns of all files once."""
        self._unordered, self._last_ids, self._n_empty = set(), {}, 0
        for at, block in self._blocks(self.columns):
            yield self._chunk(at, block, self.columns)

    def tables(self) -> Iterator[NDArray[np.float32]]:
        """Read the features alone, chunk by chunk, in the same order."""
        self._n_empty = 0
        only = replace(self.columns, label=None, weight=None, process=None, ids=None, keep=())
        for _, block in self._blocks(only):
            yield self._features(block)

    def described(self) -> Iterator[Chunk]:
        """Read everything but the features, chunk by chunk, in the same order."""
        for at, block in self._blocks(self.columns, features=False):
            yield self._chunk(at, block, self.columns, features=False)

    def only(self, files: Sequence[int]) -> EventStream:
        """The events of some of the files, for a process that reads no others; the rest is as settled by all files."""
        out = copy.copy(self)
        out._sources, out._closed = {}, list(files)
        out._counts, out._labels = {}, []
        return out

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the open files; another process finds them by their whole names."""
        targets = [target._replace(path=target.path.absolute()) for target in self._opened.targets]
        opened = self._opened._replace(targets=targets)
        return self.__dict__ | {"_sources": {}, "_closed": [*self._sources, *self._closed], "_opened": opened}

    def _reopen(self) -> None:
        """Open the files in a process to which the stream was sent."""
        for at in self._closed:
            self._refuse_change(at)
            self._sources[at] = self._opened.source(at)
        self._closed = []

    @property
    def sizes(self) -> list[int]:
        """Bytes of each file."""
        return [state[0] for state in self._states]

    @property
    def labels(self) -> list[Any]:
        """Labels that were seen so far."""
        return list(self._labels)

    @property
    def counts(self) -> dict[int, tuple[int, int]]:
        """Events read and kept, by the position of the files that were read to their end."""
        return dict(self._counts)

    def add_counts(self, counts: Mapping[int, tuple[int, int]]) -> None:
        """Take note of what others have read of other files."""
        self._counts.update(counts)

    def add_labels(self, labels: Sequence[Any]) -> None:
        """Take note of labels that others have seen in other files."""
        self._labels = list(dict.fromkeys([*self._labels, *labels]))

    def state(self) -> list[tuple[Any, ...]]:
        """Files in their order, with what tells that one has changed."""
        return [(name, *state) for name, state in zip(self.files, self._states, strict=True)]

    def _blocks(self, columns: Columns, *, features: bool = True) -> Iterator[tuple[int, Block]]:
        self._reopen()
        for at, source in self._sources.items():
            self._refuse_change(at)
            kinds, derived, cut = columns.reading(source)
            if not features:
                names = set(columns.feature_names) - {*columns.named, *columns.keep}
                kinds = {name: kind for name, kind in kinds.items() if name not in names}
                derived = {name: e for name, e in derived.items() if name not in names}
            n_read = n_rows = 0
            for block in read_blocks(source, kinds, derived, cut, self._rows):
                n_read, n_rows = n_read + block.n_read, n_rows + block.n_rows
                yield at, block
            if n_read == 0:
                raise InputError(f"{source.name} holds no events")
            self._refuse_change(at)
            if self._counts.setdefault(at, (n_read, n_rows)) != (n_read, n_rows):
                raise InputError(has_changed(source.name))

    def _refuse_change(self, at: int) -> None:
        if file_state(self._opened.targets[at].path) != self._states[at]:
            raise InputError(has_changed(self.files[at]))

    def _features(self, block: Block) -> NDArray[np.float32]:
        table = FeatureTable(self.feature_names, self.columns.missing)
        table.add(block.columns, block.where)
        self._n_empty += table.n_empty
        return table.finished()

    def _chunk(self, at: int, block: Block, columns: Columns, *, features: bool = True) -> Chunk:
        """Checked events of a block."""
        needed = frozenset(columns.named)
        for name in (columns.label, columns.process, columns.ids, *columns.keep):
            if name is not None:
                block.columns[name] = plain_values(block.columns[name], name, block.source, nan=name not in needed)
        n = block.n_rows
        processes = self._opened.processes
        process = None if columns.process is None else block.columns[columns.process]
        y: NDArray[Any] = np.full(n, None, dtype=object)
        if processes is not None:
            block.process = processes.names[at]
            process = np.full(n, block.process)
            y = np.full(n, SIGNAL if block.process in self._opened.signal else BACKGROUND)
        elif columns.label is not None:
            y = block.columns[columns.label]
            self._note_labels(y, block)
        if columns.ids is not None:
            self._note_ids(at, block.columns[columns.ids])
        weight = np.ones(n) if columns.weight is None else physics_weights([block], columns.weight)
        if processes is not None:
            weight = weight * processes.factors[at]
        rows = np.arange(n) if block.passed is None else block.passed
        X = self._features(block) if features else np.empty((n, 0), dtype=np.float32)
        events = Events(
            X=X,
            y=y,
            weight=weight,
            signal=self.signal if self._knows_signal else None,
            feature_names=self.feature_names if features else (),
            process=process,
            ids=None if columns.ids is None else block.columns[columns.ids],
            kept={name: block.columns[name] for name in columns.keep},
            columns=columns,
        )
        return Chunk(events, at, rows)

    def _note_labels(self, y: NDArray[Any], block: Block) -> None:
        """Remember the labels, of which there must be two in the end."""
        rest = y
        for label in self._labels:
            rest = rest[rest != label]
        while rest.size:
            self._labels.append(rest[0].item() if hasattr(rest[0], "item") else rest[0])
            if len(self._labels) > 2:
                seen = ", ".join(map(repr, self._labels))
                raise InputError(f"column {self.columns.label!r} must hold two labels; {block.source} has {seen}")
            rest = rest[rest != rest[0]]

    @property
    def _knows_signal(self) -> bool:
        return self._opened.processes is not None or len(self._labels) == 2 or self._opened.signal is not None

    @property
    def labelled(self) -> bool:
        """Whether the events have labels."""
        return self.columns.label is not None or self._opened.processes is not None

    @property
    def signal(self) -> Any:
        """The label that means signal; known when all labels were seen, unless it was given."""
        if self._opened.processes is not None:
            return SIGNAL
        if not self.labelled:
            return None
        if len(self._labels) < 2 and self._opened.signal is not None:
            same = [label for label in self._labels if str(label) == str(self._opened.signal)]
            return same[0] if same else self._opened.signal
        return known_signal(sorted(self._labels), self._opened.signal, self._where)

    @property
    def classes(self) -> tuple[Any, Any]:
        """(background, signal), known after a pass over all events."""
        if self._opened.processes is not None:
            return BACKGROUND, SIGNAL
        if len(self._labels) != 2:
            seen = ", ".join(map(repr, self._labels)) or "none"
            raise InputError(f"column {self.columns.label!r} of {self._where} must hold two labels; it holds {seen}")
        signal = self.signal
        return next(label for label in self._labels if label != signal), signal

    @property
    def _where(self) -> str:
        return self.files[0] if self.n_files == 1 else f"{self.n_files} files"

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out; the cut is among them after a pass over all events."""
        n_read, n = (sum(counts[k] for counts in self._counts.values()) for k in (0, 1))
        notes = reading_notes(self._opened.columns, self.columns, self._left_out, self._held_back, n_read=n_read, n=n)
        return notes if not self._n_empty else (*notes, empty_note(self._n_empty))

    def refuse_repeated_ids(self) -> None:
        """Refuse identifiers that a file has twice; a file whose identifiers ascend is not read for that."""
        for at in sorted(self._unordered):
            source, name = self._sources[at], str(self.columns.ids)
            cut = None if self.columns.cut is None else self.columns.reading(source)[2]
            block = read_block(source, {name: "value"}, {}, cut)
            block.columns[name] = plain_values(block.columns[name], name, source.name, nan=False)
            unique_ids([block], name)

    def _note_ids(self, at: int, ids: NDArray[Any]) -> None:
        """Remember whether identifiers ascend within a file."""
        last = self._last_ids.get(at)
        ascend = ids.dtype.kind in "iu" and bool((ids[1:] > ids[:-1]).all())
        if not ascend or (last is not None and ids.size and not ids[0] > last):
            self._unordered.add(at)
        if ids.size:
            self._last_ids[at] = ids[-1]

    def refuse_empty(self, n: int) -> None:
        """Refuse files of which no event is left."""
        if n == 0:
            n_read = sum(counts[0] for counts in self._counts.values())
            raise InputError(f"none of {n_read:,} events passes the cut {shortened(repr(self.columns.cut))}")


def held_out_rows(seed: int, file: int, rows: IntArray, fraction: float) -> BoolArray:
    """Events to hold out: those whose hash of (seed, position of the file, row) is below a fraction of its range.

    Examples
    --------
    >>> held_out_rows(0, 0, np.arange(8), 0.25).tolist()
    [True, False, False, False, True, True, False, True]
    """
    start = hashed(hashed(np.array([seed])) ^ np.uint64(file))
    values = hashed(start ^ hashed(rows))
    return values < np.uint64(min(round(fraction * 2.0**64), 2**64 - 1))


def file_state(path: os.PathLike[str]) -> tuple[int, ...]:
    """What the system says of a file, by which a change is noticed."""
    try:
        found = Path(path).stat()
    except OSError as err:
        raise InputError(f"{path} cannot be read: {err.strerror or err}") from err
    return found.st_size, found.st_mtime_ns, found.st_ino


def has_changed(name: str) -> str:
    """What is said of a file that is not the same in every pass."""
    return f"{name} has changed since the first pass over it; every pass needs the same events: start anew"
