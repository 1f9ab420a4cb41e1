"""Files of scored events that are never in memory all at once: read part by part, written chunk by chunk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._tools.files import written_with_digest
from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.datasets.columns import known_signal, require
from fivesigma.datasets.sources import Paths, find_targets
from fivesigma.datasets.stream import EventStream, has_changed
from fivesigma.datasets.tables import ParquetFile
from fivesigma.errors import InputError
from fivesigma.scored.scored_events import ScoredEvents, check_ending
from fivesigma.yields import ProcessYields, number_processes, process_yields, scale_factor

if TYPE_CHECKING:
    from fivesigma.datasets.columns import Kind, Source

__all__ = ["ScoredFiles"]

ROWS = 1 << 20  # events of a part


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
        self,
        path: Paths,
        signal: Any = None,
        yields: tuple[float, float] | None = None,
        *,
        rows: int = ROWS,
    ) -> None:
        self._targets = find_targets(path)
        for target in self._targets:
            check_ending(Path(target.name))
        self._signal, self._yields = signal, yields
        self._states = [target.state() for target in self._targets]
        self._sources: list[Source] = [target.open() for target in self._targets]
        self._parts: list[tuple[int, int, int | None]] = []  # file, first row, rows
        for at, source in enumerate(self._sources):
            for name in ("score", "label", "weight"):
                require(name, source)
            if isinstance(source, ParquetFile):
                if source.n_rows == 0:
                    raise InputError(f"{source.name} holds no events")
                self._parts += [(at, first, rows) for first in range(0, source.n_rows, rows)]
            else:
                self._parts.append((at, 0, None))

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, at: int) -> tuple[AnyArray, BoolArray, Array]:
        return self.part(at)[0]

    def part(self, at: int, *others: str) -> tuple[tuple[AnyArray, BoolArray, Array], dict[str, AnyArray]]:
        """Read a part, and other columns of it, those that its file has."""
        if not 0 <= at < len(self):
            raise IndexError(at)
        classes, factors = self._looked
        read, source, first = self._read(at, "score", "label", "weight", *others)
        score, weight = read.pop("score"), read.pop("weight")
        for name, values in (("score", score), ("weight", weight)):
            if not np.isfinite(values).all():
                row = first + int(np.argmin(np.isfinite(values))) + 1
                raise InputError(f"column {name!r} of {source.name} is not finite in row {row:,}")
        signal = np.asarray(read.pop("label") == classes[1], dtype=np.bool_)
        if self._yields is not None:
            weight = weight * np.where(signal, *factors)
        return (score, signal, weight), read

    def _read(self, at: int, *names: str) -> tuple[dict[str, AnyArray], Source, int]:
        file, first, rows = self._parts[at]
        source = self._sources[file]
        numbers = ("score", "weight")
        kinds: dict[str, Kind] = {
            name: "float64" if name in numbers else "value" for name in names if name in source.names
        }
        self._refuse_change(file)
        read: dict[str, AnyArray]
        if isinstance(source, ParquetFile):
            read = source.read(kinds, first, rows)
        else:
            (read,) = source.chunks(kinds)
        self._refuse_change(file)
        return read, source, first

    def _refuse_change(self, file: int) -> None:
        if self._targets[file].state() != self._states[file]:
            raise InputError(has_changed(self._sources[file].name))

    @cached_property
    def _looked(self) -> tuple[tuple[Any, Any], tuple[float, float]]:
        """The labels (background, signal), and the factors of signal and background: one look at all files."""
        labels: list[Any] = []
        sums: dict[Any, float] = {}
        for at in range(len(self)):
            read, source, _ = self._read(at, "label", *(["weight"] if self._yields is not None else []))
            found = read["label"]
            for label in np.unique(found).tolist() if found.dtype.kind != "O" else sorted(set(map(str, found))):
                if label not in sums:
                    labels.append(label)
                if self._yields is not None:
                    sums[label] = sums.get(label, 0.0) + float(read["weight"][found == label].sum())
                else:
                    sums[label] = 0.0
            if len(labels) > 2:
                raise InputError(f"column 'label' must hold two labels; {source.name} has a third one, {labels[2]!r}")
        where = self._sources[0].name if len(self._sources) == 1 else f"{len(self._sources)} files"
        if len(labels) != 2:
            raise InputError(f"column 'label' of {where} must hold two labels; it holds {len(labels)}")
        signal = known_signal(sorted(labels), self._signal, where)
        background = labels[1 - labels.index(signal)]
        if self._yields is None:
            return (background, signal), (1.0, 1.0)
        totals = self._yields
        return (background, signal), (
            scale_factor("signal", sums[signal], totals[0]),
            scale_factor("background", sums[background], totals[1]),
        )

    def by_process(self, edges: Array) -> dict[str, ProcessYields]:
        """What each process has in the intervals between ascending edges, of which the last is infinity."""
        n = edges.size - 1
        found: dict[str, ProcessYields] = {}
        for (score, signal, weight), read in self._with("process"):
            category: IntArray = np.minimum(np.searchsorted(edges, score, side="right") - 1, n - 1)
            self._add(found, process_yields(category, n, weight, number_processes(signal, read.get("process"))))
        return found

    def selected(self, cut: float | None) -> tuple[dict[str, ProcessYields], dict[str, ProcessYields]]:
        """What each process has in all, and above a cut or, without one, among the events marked as selected."""
        every: dict[str, ProcessYields] = {}
        kept: dict[str, ProcessYields] = {}
        for (score, signal, weight), read in self._with("process", "selected"):
            marked = read.get("selected")
            if cut is None and (marked is None or marked.dtype.kind != "b"):
                raise InputError("the files have no column 'selected' of true and false: give --cut or --fraction")
            chosen: BoolArray = score >= cut if cut is not None else np.asarray(marked, dtype=np.bool_)
            processes = number_processes(signal, read.get("process"))
            for sums, category in ((every, np.zeros(chosen.size, dtype=np.intp)), (kept, chosen.astype(np.intp) - 1)):
                self._add(sums, process_yields(category, 1, weight, processes))
        return every, kept

    def _with(self, *names: str) -> Iterator[tuple[tuple[AnyArray, BoolArray, Array], dict[str, AnyArray]]]:
        for at in range(len(self)):
            yield self.part(at, *names)

    @staticmethod
    def _add(sums: dict[str, ProcessYields], more: dict[str, ProcessYields]) -> None:
        for name, rows in more.items():
            known = sums.get(name)
            if known is None:
                sums[name] = rows
                continue
            if known.signal != rows.signal and known.events.any() and rows.events.any():
                raise InputError(f"process {name!r} has both signal and background events; give them two names")
            sums[name] = ProcessYields(
                known.signal if known.events.any() else rows.signal,
                known.sum_of_weights + rows.sum_of_weights,
                known.sum_of_squares + rows.sum_of_squares,
                known.events + rows.events,
            )


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
        stream.refuse_empty(counts[0])
        if stream.labelled:
            _ = stream.classes  # there must be two
        stream.refuse_repeated_ids()

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
