"""Events of files, read chunk by chunk: the one reader behind `load_events`, `from_frame` and all that streams."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fivesigma._types import AnyArray, BoolArray, IntArray
from fivesigma.datasets.blocks import Block, FeatureTable, check_values, finite_weights, read_blocks, refuse_duplicates
from fivesigma.datasets.columns import BY_PROCESS, WEIGHT, Columns, Source, find_signal, join_parts, some
from fivesigma.datasets.events import Events
from fivesigma.datasets.folds import hash_rows
from fivesigma.datasets.remembered import as_in_training
from fivesigma.datasets.sources import Input, Paths, find_inputs
from fivesigma.errors import InputError, is_number, shortened

ROWS = 100_000  # events of a chunk, before the cut
SIGNAL, BACKGROUND = "signal", "background"  # labels where files say what an event is


class Chunk(NamedTuple):
    """Some events of one file: its position in the list of files, and the rows in it, before the cut."""

    events: Events
    file: int
    rows: IntArray


class EventStream:
    """Files of events, read chunk by chunk in every pass over it.

    Parquet and ROOT files are read in pieces; a CSV file is in memory while it is read. That a file has changed between
    two passes is noticed. `load_events` is `load` of a stream.

    Whoever needs more than events with one weight reads it in the same pass: ``keep`` takes definitions, such as
    several weights and the masks of several selections. Making the stream refuses a column that one of the files
    lacks, before anything is read.

    Parameters
    ----------
    path, **asked
        As in `load_events`.
    rows : int, optional
        Events of a chunk, before the cut; None as the format is best read.

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
    >>> from fivesigma.datasets import EventStream, make_htautau, write_events
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_events(make_htautau(2500), pathlib.Path(folder) / "events.parquet")
    ...     stream = EventStream(path, rows=1000, keep=["in_sr = PRI_jet_num >= 2", "w_up = Weight * 1.1"])
    ...     [(len(chunk.events), chunk.events.kept["in_sr"].dtype) for chunk in stream][:2]
    [(1000, dtype('bool')), (1000, dtype('bool'))]
    """

    def __init__(self, path: Paths | Mapping[str, Paths], *, rows: int | None = ROWS, **asked: Any) -> None:
        self._start(*find_inputs(path, Columns(**asked)), rows)

    @classmethod
    def like(
        cls, model: Any, path: Paths | Mapping[str, Paths], *, rows: int | None = ROWS, **asked: Any
    ) -> EventStream:
        """Read files as the training events of a model were read, but for what is asked otherwise; notes say how.

        Features, their definitions, the code of missing values, kept columns, weight, cut and tree are those of the
        training. So are the signal and the normalisation of processes, if `path` is a mapping. A parameter that is
        given wins, None too: ``cut=None`` takes all events, ``luminosity=None`` leaves weights as they stand.
        ``EventStream.like(model, path, rows=None).load()`` reads all events at once.
        """
        columns, notes = as_in_training(model, path, asked)
        inputs, columns, more = find_inputs(path, columns)
        return cls.of_inputs(inputs, columns, [*notes, *more], rows)

    @classmethod
    def of_inputs(
        cls, inputs: Sequence[Input], columns: Columns, notes: Sequence[str] = (), rows: int | None = None
    ) -> EventStream:
        """Make a stream of what was found already, or of what is in memory, in chunks as they are best read."""
        stream = cls.__new__(cls)
        stream._start(inputs, columns, notes, rows)
        return stream

    def _start(self, inputs: Sequence[Input], columns: Columns, notes: Sequence[str], rows: int | None) -> None:
        if rows is not None and (not is_number(rows) or rows < 1 or rows != int(rows)):
            raise InputError(f"rows must be an integer of at least 1, got {rows!r}")
        self._rows = None if rows is None else int(rows)
        self._inputs, self._asked = list(inputs), columns
        if not self._by_process and any(isinstance(getattr(columns, name), Mapping) for name in BY_PROCESS):
            raise InputError("a weight or a cut for each process needs {process: files}; give one for all events")
        self._notes = list(notes)
        self._states = [item.state() for item in self._inputs]
        self._own = list(range(len(self._inputs)))  # positions of the files that are read
        self._sources: dict[int, Source] = {}
        with self._of(0):
            self.columns, self._left_out, self._held_back = columns.settle(self._open(0), self._inputs[0].process)
        for at in self._own:
            with self._of(at):
                # Which refuses a file that lacks a column.
                self.columns.of_process(self._inputs[at].process).reading(self._open(at))
        self.feature_names = self.columns.feature_names
        self.files = tuple(item.name for item in self._inputs)
        self.counts: dict[int, tuple[int, int]] = {}  # events read and kept, by the position of files read to their end
        self._labels: dict[Any, int] = {}  # with how often they were seen
        self._n_empty = 0

    def __repr__(self) -> str:
        head = f"EventStream: {len(self.files)} file{'s' * (len(self.files) != 1)}, {len(self.feature_names)} features"
        n = sum(counts[1] for counts in self.counts.values())
        return f"{head}, {n:,} events" if len(self.counts) == len(self.files) else head

    def __iter__(self) -> Iterator[Chunk]:
        """Read all columns of all files once."""
        for at, block in self._blocks(self.columns):
            yield self._chunk(at, block, self._features(at, block))

    def load(self) -> Events:
        """Read all events and join them; their features are written into one table while they are read."""
        table = FeatureTable(self.feature_names, self.columns.missing)
        parts: list[Chunk] = []
        for at, block in self._blocks(self.columns):
            with self._of(at):
                table.add(block.columns, block.where)
            parts.append(self._chunk(at, block))
            del block  # the next one is read now
        self._n_empty = table.n_empty
        self.check_all_read()
        self._refuse_empty_process()

        def join(name: str | None, columns: Sequence[Any]) -> Any:
            places = [self.files[part.file] for part in parts]
            return None if columns[0] is None else join_parts(str(name), list(zip(places, columns, strict=True)))

        roles = {"y": self.columns.label, "weight": "weight", "process": self.columns.process, "ids": self.columns.ids}
        return replace(
            parts[0].events,
            X=table.finish(),
            signal=self.signal,
            feature_names=self.feature_names,
            kept={name: join(name, [part.events.kept[name] for part in parts]) for name in self.columns.kept_names},
            notes=self.notes,
            **{field: join(name, [getattr(part.events, field) for part in parts]) for field, name in roles.items()},
        )

    def tables(self) -> Iterator[NDArray[np.float32]]:
        """Read the features alone, chunk by chunk, in the same order."""
        for at, block in self._blocks(replace(self.columns, label=None, weight=None, process=None, ids=None, keep=())):
            yield self._features(at, block)

    def described(self) -> Iterator[Chunk]:
        """Read everything but the features, chunk by chunk, in the same order."""
        for at, block in self._blocks(replace(self.columns, features=())):
            yield self._chunk(at, block)

    def only(self, files: Sequence[int]) -> EventStream:
        """The events of some of the files, for a process that reads no others; the rest is as settled by all files."""
        out = copy.copy(self)
        out._own, out._sources, out.counts, out._labels = list(files), {}, {}, {}
        return out

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the open files; another process finds them by their whole names."""
        return self.__dict__ | {"_sources": {}, "_inputs": [item.absolute() for item in self._inputs]}

    def _open(self, at: int) -> Source:
        if at not in self._sources:
            self._refuse_change(at)
            self._sources[at] = self._inputs[at].open()
        return self._sources[at]

    @contextmanager
    def _of(self, at: int) -> Iterator[None]:
        """Say in an error of which process the file is."""
        process = self._inputs[at].process
        try:
            yield
        except InputError as err:
            if process is None or str(err).endswith(f"(process {process!r})"):
                raise
            raise InputError(f"{err} (process {process!r})") from err

    @property
    def sizes(self) -> list[int]:
        """Bytes of each file."""
        return [state[0] for state in self._states]

    @property
    def labels(self) -> list[Any]:
        """Labels that were seen so far."""
        return list(self._labels)

    def add_labels(self, labels: Sequence[Any]) -> None:
        """Take note of labels that others have seen in other files."""
        self._labels = dict.fromkeys(labels, 0) | self._labels

    def state(self) -> list[tuple[Any, ...]]:
        """Files in their order, with what tells that one has changed."""
        return [(name, *state) for name, state in zip(self.files, self._states, strict=True)]

    def _blocks(self, columns: Columns) -> Iterator[tuple[int, Block]]:
        """Read the files one after the other, and check everything but the features."""
        self._n_empty, self._labels = 0, dict.fromkeys(self._labels, 0)
        for at in self._own:
            n_read = n_rows = 0
            ids: list[tuple[AnyArray, IntArray | None]] = []
            own = columns.of_process(self._inputs[at].process)
            with self._of(at):
                source = self._open(at)
                self._refuse_change(at)
                for block in read_blocks(source, own.reading(source), self._rows):
                    self._check(at, block, own)
                    if columns.ids is not None and columns.features:  # without features no event is looked up by it
                        ids.append((block.columns[columns.ids], block.passed))
                    n_read, n_rows = n_read + block.n_read, n_rows + block.n_rows
                    yield at, block
                    del block  # the next one is read now
                self._refuse_change(at)
                if self.counts.setdefault(at, (n_read, n_rows)) != (n_read, n_rows):
                    raise InputError(say_changed(source.name))
                refuse_duplicates(ids, str(columns.ids), source.name)
        if self._own and not any(self.counts[at][0] for at in self._own):
            raise InputError(f"{self._where} holds no events")

    def _refuse_change(self, at: int) -> None:
        if self._inputs[at].state() != self._states[at]:
            raise InputError(say_changed(self._inputs[at].name))

    def _features(self, at: int, block: Block) -> NDArray[np.float32]:
        table = FeatureTable(self.feature_names, self.columns.missing)
        with self._of(at):
            table.add(block.columns, block.where)
        self._n_empty += table.n_empty
        return table.finish()

    def _chunk(self, at: int, block: Block, X: NDArray[np.float32] | None = None) -> Chunk:
        """Checked events of a block, without features if those are elsewhere."""
        columns, n = self.columns, block.n_rows
        y, process, ids = (
            None if c is None else block.columns[c] for c in (columns.label, columns.process, columns.ids)
        )
        if self._by_process:  # one text for many events, without memory for each
            own = str(self._inputs[at].process)
            label = SIGNAL if own in self._asked.signal else BACKGROUND
            process, y = (np.broadcast_to(np.array(text), (n,)) for text in (own, label))
        knows = self._by_process or len(self._labels) == 2 or self._asked.signal is not None
        events = Events(
            X=np.empty((n, 0), dtype=np.float32) if X is None else X,
            y=np.full(n, None, dtype=object) if y is None else y,
            weight=block.columns[WEIGHT],
            signal=self.signal if knows else None,
            feature_names=() if X is None else self.feature_names,
            process=process,
            ids=ids,
            kept={name: block.columns[name] for name in columns.kept_names},
            columns=columns,
        )
        return Chunk(events, at, block.rows())

    def _check(self, at: int, block: Block, columns: Columns) -> None:
        """Check everything but the features of a block; weights get the factor of their process."""
        found, needed, features = block.columns, frozenset(columns.named), frozenset(columns.feature_names)
        for name in (columns.label, columns.process, columns.ids, *columns.kept_names):
            if name is not None:
                found[name] = check_values(found[name], name, block.source, nan=name not in needed)
                if name in features and found[name].dtype.kind == "U":
                    where = f"column {name!r} of {block.source}"
                    raise InputError(f"{where} holds text and cannot be a feature; only keep it")
        if columns.label is not None:
            self._count_labels(found[columns.label], block.source)
        weight = np.ones(block.n_rows) if columns.weight is None else finite_weights(block, columns.weight)
        factor = self._inputs[at].factor
        found[WEIGHT] = weight if factor == 1.0 else weight * factor

    def _count_labels(self, y: AnyArray, source: str) -> None:
        """Count the labels, of which there must be two in the end."""
        # A comparison for each known label finds a new one without sorting millions of labels.
        known, rest = iter(self.labels), y
        while rest.size and len(self._labels) <= 10:
            label = next(known, None)
            label = rest[0].item() if label is None else label
            other = rest[rest != label]
            self._labels[label] = self._labels.get(label, 0) + rest.size - other.size
            rest = other
        if len({isinstance(label, str) for label in self._labels}) == 2:  # numbers and text cannot be ordered
            raise InputError(
                f"column {self.columns.label!r} holds {'text' if y.dtype.kind == 'U' else 'numbers'} in {source} and "
                "not in the files before it; make them alike"
            )
        if len(self._labels) > 2:
            raise InputError(self._two_labels(more=bool(rest.size)))

    def _two_labels(self, *, more: bool = False) -> str:
        by_name = sorted(self._labels, key=lambda label: (isinstance(label, str), label))
        seen = ", ".join(f"{label!r} ({self._labels[label]:,})" for label in by_name) or "none"
        return (
            f"column {self.columns.label!r} of {self._where} must hold two labels; it holds {seen}{' and more' * more}"
        )

    @property
    def _by_process(self) -> bool:
        """Whether files say what an event is."""
        return self._inputs[0].process is not None

    @property
    def labelled(self) -> bool:
        """Whether the events have labels."""
        return self.columns.label is not None or self._by_process

    @property
    def signal(self) -> Any:
        """The label that means signal; known when all labels were seen, unless it was given."""
        if self._by_process:
            return SIGNAL
        if not self.labelled:
            return None
        asked = self._asked.signal
        if len(self._labels) < 2 and asked is not None:
            return next((label for label in self._labels if str(label) == str(asked)), asked)
        return find_signal(sorted(self._labels), asked, self._where)

    @property
    def classes(self) -> tuple[Any, Any]:
        """(background, signal), known after a pass over all events."""
        if self._by_process:
            return BACKGROUND, SIGNAL
        if len(self._labels) != 2:
            raise InputError(self._two_labels())
        signal = self.signal
        return next(label for label in self._labels if label != signal), signal

    @property
    def _where(self) -> str:
        return self._inputs[0].name if len(self._inputs) == 1 else f"{len(self._inputs)} files"

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out and how weights were normalised; the cut is among them after a pass over all events."""
        notes = list(self._notes)
        n_read, n = (sum(counts[k] for counts in self.counts.values()) for k in (0, 1))
        if self.columns.cut is not None:
            cut = shortened(repr(self.columns.cut))
            notes.append(f"{n_read - n:,} of {n_read:,} events fail the cut {cut} and are left out.")
        empty = [self.files[at] for at, counts in sorted(self.counts.items()) if counts[0] == 0]
        if empty:
            notes.append(f"{len(empty)} of {len(self.files)} files hold no events: {some(empty)}.")
        if self._held_back:
            taken, others = ", ".join(self.feature_names), ", ".join(self._held_back)
            notes.append(f"Features: {taken}; not by their name or use: {others}.")
        if self._left_out:
            names = ", ".join(map(shortened, self._left_out[:40])) + " and more" * (len(self._left_out) > 40)
            notes.append(f"Not features, because they do not hold one number per event: {names}.")
        if self._n_empty:
            notes.append(f"{self._n_empty:,} empty or NaN feature values are read as missing.")
        return tuple(notes)

    def check_all_read(self) -> None:
        """After a pass, refuse files of which no event is left, and labels that are not two."""
        n_read, n = (sum(counts[k] for counts in self.counts.values()) for k in (0, 1))
        if n == 0:
            raise InputError(f"none of {n_read:,} events passes the cut {shortened(repr(self.columns.cut))}")
        if self.labelled:
            _ = self.classes

    def _refuse_empty_process(self) -> None:
        """Every process needs events, and both classes too."""
        names = [item.process for item in self._inputs if item.process is not None]
        for name in dict.fromkeys(names):
            own = [at for at, item in enumerate(self._inputs) if item.process == name]
            if not sum(self.counts[at][1] for at in own):
                files = ", ".join(self.files[at] for at in own)
                raise InputError(f"no event of the process {name!r} passes the cut ({files})")
        if names and all(name in self._asked.signal for name in names):
            raise InputError("every process is signal; at least one must be background")


def held_out_rows(seed: int, file: int, rows: IntArray, fraction: float) -> BoolArray:
    """Events to hold out: those whose hash of (seed, position of the file, row) is below a fraction of its range."""
    start = hash_rows(hash_rows(np.array([seed])) ^ np.uint64(file))
    values = hash_rows(start ^ hash_rows(rows))
    return values < np.uint64(min(round(fraction * 2.0**64), 2**64 - 1))


def say_changed(name: str) -> str:
    """What is said of a file that is not the same in every pass."""
    return f"{name} has changed since the first pass over it; every pass needs the same events: start anew"
