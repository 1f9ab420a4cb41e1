"""Training events in files: what is held of them, and how they are split."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fivesigma._types import AnyArray
from fivesigma.datasets.digest import canonical, rows_to_know_again
from fivesigma.datasets.stream import EventStream, held_out_rows
from fivesigma.errors import InputError
from fivesigma.estimators.split_steps import Splits
from fivesigma.estimators.training_sample import TrainingSample


class StreamedTable:
    """The features of a stream, whose number of events is known; each pass reads the files again."""

    def __init__(self, stream: EventStream, n_events: int) -> None:
        self._stream = stream
        self.shape = (n_events, len(stream.feature_names))
        self._digest = ""
        self.rows: AnyArray = np.zeros(0, dtype=np.uint64)  # of all chunks that were read

    def chunks(self) -> Iterator[AnyArray]:
        """Read all features once; the first whole pass also finds their digest."""
        found = None if self._digest else hashlib.sha256(repr(self.shape).encode())
        for table in self._stream.tables():
            if found is not None:
                found.update(canonical(table).data)
                self.rows = rows_to_know_again(table, self.rows)
            yield table
        if found is not None:
            self._found, self._digest = found, found.hexdigest()

    def digest(self, sample: TrainingSample) -> str:
        """The digest that `fivesigma.datasets.digest.events_digest` finds of the same events."""
        found = self._found.copy()
        for values in (sample.weight, sample.signal):
            found.update(np.ascontiguousarray(values).data)
        return found.hexdigest()

    def fingerprint(self) -> str:
        """What a run on these files depends on, beside labels and weights."""
        return repr((self._stream.state(), self._stream.columns, self.shape))


def read_stream(
    stream: EventStream, fraction: float, seed: int, *, pos_label: Any, negative: str
) -> tuple[TrainingSample, Splits]:
    """Read labels and weights once; return them with a `StreamedTable`, and a split by where the events stand."""
    if not 0 < fraction < 1:
        raise InputError(f"cv={fraction!r} is not between 0 and 1, the fraction of events held out")
    if not stream.labelled:
        raise InputError("the events of the stream have no labels; name their column with label= or --label")
    first: Any = None
    same, weights, held = [], [], []
    for chunk in stream.described():
        y = chunk.events.y
        if first is None and y.size:
            first = y[0]
        same.append(np.asarray(y == first, dtype=np.bool_))
        weights.append(chunk.events.weight)
        held.append(held_out_rows(seed, chunk.file, chunk.rows, fraction))
    weight, is_first, mask = np.concatenate(weights), np.concatenate(same), np.concatenate(held)
    del weights, same, held
    stream.check_all_read()
    classes = stream.classes
    if pos_label is not None:
        if pos_label not in classes:
            raise InputError(f"pos_label={pos_label!r} is not among the labels {list(classes)}")
        classes = classes if classes[1] == pos_label else classes[::-1]
    sample = TrainingSample.checked(
        StreamedTable(stream, weight.size),
        is_first if first == classes[1] else ~is_first,
        weight,
        None,
        pos_label=True,
        negative=negative,
        feature_names=np.array(stream.feature_names, dtype=object),
    )
    small = np.int32 if mask.size < 2**31 else np.int64  # rows of all events are the largest that is held for a while
    rows = (np.flatnonzero(~mask).astype(small), np.flatnonzero(mask).astype(small))
    splits = sample.splits([rows], seed)
    return replace(sample, classes=np.array(classes)), splits
