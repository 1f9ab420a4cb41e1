"""Files of scored events that are never in memory all at once: read part by part, written chunk by chunk."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._tools.files import written_with_digest
from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.datasets.columns import find_signal, require
from fivesigma.datasets.sources import Paths, Target, find_targets
from fivesigma.datasets.stream import EventStream, say_changed
from fivesigma.datasets.tables import CsvFile, ParquetFile
from fivesigma.errors import InputError
from fivesigma.scored.scored_events import ScoredEvents, check_ending
from fivesigma.yields import ProcessYields, number_processes, process_yields, scale_factor

if TYPE_CHECKING:
    from fivesigma.datasets.columns import Kind

COLUMNS = ("score", "label", "weight", "selected", "process", "id")  # of a file; the first three are those of a scan
ROWS = 1 << 20  # events of a part

#: Some of the events: scores without NaN, which of them are signal, and their physics weights.
Part = tuple[AnyArray, BoolArray, Array]


class ScoreFile:
    """One file of scores, whose columns are checked as they are read."""

    def __init__(self, target: Target, needed: Sequence[str]) -> None:
        check_ending(Path(target.name))
        self.name, self._target, self._state = target.name, target, target.state()
        self.source = cast("CsvFile | ParquetFile", target.open())  # by its ending
        for name in needed:
            require(name, self.source)

    def read(self, names: Sequence[str], first: int = 0, rows: int | None = None) -> dict[str, AnyArray]:
        """Read some columns, those that there are, of all or of some rows."""
        kinds: dict[str, Kind] = {
            name: "float64" if name in ("score", "weight") else "value" for name in names if name in self.source.names
        }
        self._refuse_change()
        read = self.source.read(kinds, first, rows)
        self._refuse_change()
        for name, column in read.items():
            if not isinstance(column, np.ndarray):  # lists are awkward arrays
                raise InputError(f"column {name!r} of {self.name} does not hold one value per event")
            if not column.size:
                raise InputError(f"{self.name} holds no events")
            if kinds[name] == "float64" and not np.isfinite(column).all():
                row = first + int(np.argmin(np.isfinite(column))) + 1
                raise InputError(f"column {name!r} of {self.name} is not finite in row {row:,}")
        if "selected" in read and read["selected"].dtype.kind != "b":
            raise InputError(f"column 'selected' of {self.name} must hold true or false")
        return read

    def _refuse_change(self) -> None:
        if self._target.state() != self._state:
            raise InputError(say_changed(self.name))


def find_labels(column: AnyArray) -> list[Any]:
    """Distinct labels, ascending."""
    return np.unique(column).tolist() if column.dtype.kind != "O" else sorted(set(map(str, column)))


def find_classes(labels: Sequence[Any], signal: Any, where: str) -> tuple[Any, Any]:
    """(background, signal), of which there must be two."""
    if len(labels) != 2:
        raise InputError(f"column 'label' of {where} must hold two labels; it holds {len(labels)}")
    meant = find_signal(sorted(labels), signal, where)
    return labels[1 - labels.index(meant)], meant


class ScoredFiles:
    """Scored events in files, read part by part whenever they are needed.

    `scan` and `categorise` take them in place of arrays. The files are those that ``fivesigma predict`` and
    `ScoredEvents.write` write: Parquet in parts of any size, CSV file by file. That one has changed between two passes
    is noticed.

    Parameters
    ----------
    path : path, glob pattern, or a sequence of these
        Files with the columns score, label and weight, and maybe selected and process.
    signal : label, optional
        The label that means signal. It must be given unless the labels are a known pair such as s/b.
    yields : (float, float), optional
        Full yields of signal and background to which the weights are scaled, if these events stand for the whole.
    rows : int, default=1_048_576
        Events of a part.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from fivesigma import ScoredEvents, ScoredFiles, scan
    >>> rng = np.random.default_rng(0)
    >>> y = rng.random(20_000) < 0.5
    >>> scored = ScoredEvents(rng.normal(2.0 * y), y, np.where(y, 0.02, 2.0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = scored.write(pathlib.Path(folder) / "scores.parquet")
    ...     best = scan(ScoredFiles(f"{folder}/*.parquet"))
    >>> best.cut == scan(scored).cut
    True
    """

    def __init__(
        self, path: Paths, signal: Any = None, yields: tuple[float, float] | None = None, *, rows: int = ROWS
    ) -> None:
        self._signal, self._yields = signal, yields
        self._files = [ScoreFile(target, COLUMNS[:3]) for target in find_targets(path)]
        self._parts: list[tuple[ScoreFile, int, int | None]] = []  # file, first row, rows
        for file in self._files:
            if isinstance(file.source, ParquetFile):
                self._parts += [(file, first, rows) for first in range(0, max(1, file.source.n_rows), rows)]
            else:
                self._parts.append((file, 0, None))

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, at: int) -> Part:
        return self.part(at)[0]

    def part(self, at: int, *others: str) -> tuple[Part, dict[str, AnyArray]]:
        """Read a part, and other columns of it, those that its file has."""
        if not 0 <= at < len(self):
            raise IndexError(at)
        classes, factors = self._classes_and_factors
        file, first, rows = self._parts[at]
        read = file.read((*COLUMNS[:3], *others), first, rows)
        score, weight = read.pop("score"), read.pop("weight")
        signal = np.asarray(read.pop("label") == classes[1], dtype=np.bool_)
        return (score, signal, weight if factors is None else weight * np.where(signal, *factors)), read

    @cached_property
    def _classes_and_factors(self) -> tuple[tuple[Any, Any], tuple[float, float] | None]:
        """The labels (background, signal), and the factors of signal and background: one look at all files."""
        names = ("label",) if self._yields is None else ("label", "weight")
        sums: dict[Any, float] = {}
        for file, first, rows in self._parts:
            read = file.read(names, first, rows)
            for label in find_labels(read["label"]):
                own = read["weight"][read["label"] == label] if "weight" in read else np.zeros(1)
                sums[label] = sums.get(label, 0.0) + float(own.sum())
        where = self._files[0].name if len(self._files) == 1 else f"{len(self._files)} files"
        background, signal = find_classes(list(sums), self._signal, where)
        if self._yields is None:
            return (background, signal), None
        totals = zip(("signal", "background"), (signal, background), self._yields, strict=True)
        s, b = (scale_factor(name, sums[label], total) for name, label, total in totals)
        return (background, signal), (s, b)

    def by_process(self, edges: Array | None) -> dict[str, ProcessYields]:
        """What each process has in the intervals between ascending edges, of which the last is infinity.

        Without edges, among the events that are not marked as selected, and among those that are.
        """
        n = 2 if edges is None else edges.size - 1
        found: dict[str, ProcessYields] = {}
        for at in range(len(self)):
            (score, signal, weight), read = self.part(at, "process", *(["selected"] if edges is None else []))
            if edges is not None:
                category: IntArray = np.minimum(np.searchsorted(edges, score, side="right") - 1, n - 1)
            elif "selected" in read:
                category = read["selected"].astype(np.intp)
            else:
                raise InputError("the files have no column 'selected' of true and false: give --cut or --fraction")
            processes = number_processes(signal, read.get("process"))
            for name, rows in process_yields(category, n, weight, processes).items():
                known = found.get(name)
                if known is not None and known.signal != rows.signal:
                    raise InputError(f"process {name!r} has both signal and background events; give them two names")
                sums = rows[1:] if known is None else (a + b for a, b in zip(known[1:], rows[1:], strict=True))
                found[name] = ProcessYields(rows.signal, *sums)
        return found


class Written(NamedTuple):
    """Numbers of events that were scored, and that the model's cut selects."""

    events: int
    selected: int


def write_scores(model: Any, stream: EventStream, path: str | os.PathLike[str]) -> Written:
    """Score a stream of events and write the file that `ScoredEvents.write` would, chunk by chunk."""
    path = Path(path)
    check_ending(path)
    counts = [0, 0]

    def frames() -> Iterator[Any]:
        for chunk in stream:
            if not len(chunk.events):
                continue
            scored = ScoredEvents.of(model, chunk.events)
            if stream.columns.weight is None:
                scored = replace(scored, weight=None)
            frame = scored.frame(counts[0])
            counts[0] += len(scored)
            counts[1] += 0 if scored.selected is None else int(scored.selected.sum())
            yield frame.with_columns(label=chunk.events.y) if stream.labelled else frame
        stream.check_all_read()

    with written_with_digest(path) as beside:
        _sink(frames(), beside, csv=path.suffix.lower() == ".csv")
    return Written(*counts)


def _sink(frames: Iterator[Any], path: Path, *, csv: bool) -> None:
    """Write frames one after the other."""
    polars = need("polars")
    first: Any = next(frames)
    failed: list[BaseException] = []

    def source(*_: Any) -> Iterator[Any]:
        yield first
        try:
            yield from (frame.cast(first.schema) for frame in frames)
        except BaseException as err:  # it is raised below
            # Raised here, it would be wrapped, and polars might still write when the file is removed.
            failed.append(err)

    lazy = polars.io.plugins.register_io_source(source, schema=first.schema)
    (lazy.sink_csv if csv else lazy.sink_parquet)(path)
    if failed:
        raise failed[0]
