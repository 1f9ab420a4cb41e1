"""A worker's own share of the events: what is held of it, and what all shares have together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.dask.group import Group
from fivesigma.datasets.events import Events
from fivesigma.datasets.folds import hash_rows
from fivesigma.datasets.stream import Chunk, EventStream, held_out_rows
from fivesigma.errors import InputError
from fivesigma.yields import check_size, check_weights, learner_weights, scale_factor, split_labels

_BINS = 1  # of the hash that draws the sample: any number but those of splits, which are not combined with it


class Partition(NamedTuple):
    """One partition of a Dask collection, with its number among all."""

    number: int
    X: AnyArray
    y: AnyArray
    weight: AnyArray


class EventParts:
    """Partitions of a worker, of which there may be none, with the methods of an `EventStream` that workers use."""

    def __init__(self, parts: Sequence[Partition], feature_names: tuple[str, ...], named: bool = True) -> None:
        # `named`: whether the names are the user's
        self._parts, self.feature_names, self.named = parts, feature_names, named
        self._labels: list[Any] = []

    @property
    def labels(self) -> list[Any]:
        """Labels that were seen so far."""
        return list(self._labels)

    def add_labels(self, labels: Sequence[Any]) -> None:
        """Take note of labels that other workers have seen."""
        self._labels = list(dict.fromkeys([*self._labels, *labels]))

    @property
    def classes(self) -> tuple[Any, Any]:
        """(background, signal)."""
        background, signal = split_labels(np.array(self._labels))[1].tolist()
        return background, signal

    def described(self) -> Iterator[Chunk]:
        """Everything but the features."""
        for part in self._parts:
            self.add_labels(np.unique(part.y).tolist())
            weight = check_weights(part.weight, len(part.X)) if len(part.X) else np.empty(0)
            yield _chunk(part.number, part.y, weight)

    def tables(self) -> Iterator[AnyArray]:
        """The features alone, in the same order."""
        for part in self._parts:
            yield part.X


def _chunk(number: int, y: AnyArray, weight: Array) -> Chunk:
    X = np.empty((y.size, 0), dtype=np.float32)
    return Chunk(Events(X=X, y=y, weight=weight, signal=None, feature_names=()), number, np.arange(y.size))


LocalEvents = EventStream | EventParts  # what a worker reads again and again: its own files, or parts in its memory


def as_partition(number: int, X: Any, y: Any, weight: Any) -> Partition:
    """Take a partition as arrays; run on the worker that has it."""
    table = np.asarray(X)
    if table.ndim != 2:
        raise InputError(f"partition {number} of X has shape {table.shape}; it must have events and features")
    if table.dtype.kind not in "biuf":
        raise InputError(f"partition {number} of X holds {table.dtype}; features must be numbers")
    labels, given = np.asarray(y), np.ones(len(table)) if weight is None else np.asarray(weight, dtype=np.float64)
    for name, values in (("y", labels), ("sample_weight", given)):
        if values.shape != (len(table),):
            raise InputError(
                f"partition {number} has {len(table)} events and {name} of shape {values.shape}; split all alike"
            )
    return Partition(number, np.ascontiguousarray(table, dtype=np.float32), labels, given)


class LocalTable:
    """The features of a worker's events; the first pass may hold them for the next ones, until they are let go."""

    def __init__(self, events: LocalEvents, n_events: int, *, hold: bool) -> None:
        self._events, self._hold = events, hold
        self._held: list[AnyArray] | None = None
        self.shape = (n_events, len(events.feature_names))

    def chunks(self) -> Iterator[AnyArray]:
        """Read all features once."""
        if self._hold and self._held is None:
            self._held = list(self._events.tables())
        yield from self._events.tables() if self._held is None else self._held

    def let_go(self) -> None:
        """Hold nothing from now on."""
        self._hold, self._held = False, None


@dataclass(frozen=True)
class Side:
    """Training or held-out events of a worker, with the yields that those of all workers stand for."""

    rows: IntArray  # of the worker's events; those of zero weight are left out
    signal: BoolArray
    weight: Array  # each class scaled so that this side of all workers has the full yield


@dataclass(frozen=True)
class Share:
    """A worker's share of the events."""

    table: LocalTable
    classes: tuple[Any, Any]  # (background, signal)
    signal: BoolArray
    train: Side
    held_out: Side
    totals: tuple[float, float]  # full yields of signal and background, of all workers
    bins: AnyArray  # features of the training events that decide the bins, the same on every worker
    sums: list[float]  # counts and sums of weights of all workers: they tell the events of two runs apart


def read_share(
    group: Group,
    events: LocalEvents,
    *,
    fraction: float,
    seed: int,
    pos_label: Any,
    negative: str,
    most: int,
    hold: bool = False,
) -> Share:
    """Read this worker's labels and weights, and draw at most `most` rows of all workers, which decide the bins.

    Which events are held out, and which decide the bins, depends on their file and row alone, not on how files are
    spread over workers.
    """
    y, weight, held, key, place = group.agree(lambda: _describe(events, fraction, seed))

    def named() -> tuple[Any, Any]:
        events.add_labels([label for labels in labels_of_all for label in labels])
        classes = events.classes
        if pos_label is None:
            return classes
        if pos_label not in classes:
            raise InputError(f"pos_label={pos_label!r} is not among the labels {list(classes)}")
        return classes if classes[1] == pos_label else classes[::-1]

    labels_of_all = group.gather(events.labels)
    if group.sum(float(weight.size)) == 0:
        raise InputError("no event is left on any worker: none passes the cut")
    classes = group.agree(named)
    signal = np.asarray(y == classes[1], dtype=np.bool_)

    if negative == "error":  # in a sentence that says in which row
        group.agree(lambda: weight.min(initial=0.0) < 0 and learner_weights(weight, signal, negative=negative))
    sides = {"training": ~held & (weight != 0), "held-out": held & (weight != 0)}
    kinds = {"signal": signal, "background": ~signal}
    cells = [members & side for side in sides.values() for members in kinds.values()]
    counts = group.sum(np.array([np.count_nonzero(cell) for cell in cells]))
    present = group.sum(np.array([weight[cell].sum() for cell in cells]))
    totals = group.sum(np.array([weight[members].sum() for members in kinds.values()])).tolist()
    largest = group.most(np.array([np.abs(weight[members]).max(initial=0.0) for members in kinds.values()]))
    for name, total, size in zip(kinds, totals, largest.tolist(), strict=True):
        if not total > 0:
            raise InputError(f"the weights of the class {name} sum to {total:g}; a yield must be > 0")
        check_size(size, f"weight of the class {name}")
    factors: list[float] = []
    for at, (part, name) in enumerate((part, name) for part in sides for name in kinds):
        if not counts[at]:
            raise InputError(
                f"cv={fraction!r} leaves no {name} among the {part} events of all workers; both classes are needed"
            )
        factors.append(scale_factor(f"{name} of the {part} events", float(present[at]), totals[at % 2]))
    train, held_out = (
        Side(rows, signal[rows], weight[rows] * np.where(signal[rows], *factors[2 * k : 2 * k + 2]))
        for k, rows in enumerate(map(np.flatnonzero, sides.values()))
    )
    n_train = float(counts[:2].sum())
    table = LocalTable(events, weight.size, hold=hold)
    drawn = sides["training"]
    if n_train > most:
        drawn = drawn & (key < np.uint64(most / n_train * 2.0**64))
    own = group.agree(lambda: _rows(table, drawn))
    places = np.concatenate(group.gather(place[drawn]))
    bins = np.concatenate(group.gather(own))[np.argsort(places, kind="stable")]
    sums = [*counts.tolist(), *present.tolist()]
    return Share(table, classes, signal, train, held_out, (totals[0], totals[1]), bins, sums)


def _describe(events: LocalEvents, fraction: float, seed: int) -> tuple[AnyArray, Array, BoolArray, AnyArray, IntArray]:
    """Of each event the label, the weight, whether it is held out, a random number, and its place among all files."""
    chunks = [*events.described()] or [_chunk(0, np.empty(0), np.empty(0))]
    return (
        np.concatenate([np.asarray(chunk.events.y) for chunk in chunks]),
        np.concatenate([chunk.events.weight for chunk in chunks]),
        np.concatenate([held_out_rows(seed, chunk.file, chunk.rows, fraction) for chunk in chunks]),
        np.concatenate([_keys(seed, chunk.file, chunk.rows) for chunk in chunks]),
        np.concatenate([(np.int64(chunk.file) << 40) + chunk.rows.astype(np.int64) for chunk in chunks]),
    )


def _keys(seed: int, file: int, rows: IntArray) -> AnyArray:
    """Random numbers of events, other ones than those that split them."""
    start = hash_rows(hash_rows(np.array([seed, _BINS]).astype(np.uint64))[:1] ^ hash_rows(np.array([file])))
    return hash_rows(hash_rows(rows) ^ start ^ np.uint64(_BINS))


def _rows(table: LocalTable, wanted: BoolArray) -> AnyArray:
    out = np.empty((np.count_nonzero(wanted), table.shape[1]), dtype=np.float32)
    if not out.size:
        return out
    start = filled = 0
    for chunk in table.chunks():
        rows = chunk[wanted[start : start + len(chunk)]]
        out[filled : filled + len(rows)] = rows
        start, filled = start + len(chunk), filled + len(rows)
    return out
