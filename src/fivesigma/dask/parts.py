"""Events in the memory of a worker, in numbered parts: what a partition of a Dask collection becomes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fivesigma._types import AnyArray
from fivesigma.datasets.events import Events
from fivesigma.datasets.stream import Chunk
from fivesigma.errors import InputError
from fivesigma.yields import check_weights, split_labels


class Part(NamedTuple):
    """One partition, with its number among all."""

    number: int
    X: AnyArray
    y: AnyArray
    weight: AnyArray


class EventParts:
    """Parts of the events, as `fivesigma.dask.share.LocalEvents`.

    Parameters
    ----------
    parts : sequence of Part
        This worker's own; there may be none.
    feature_names : tuple of str
    named : bool, default=True
        Whether these names are the user's.
    """

    def __init__(self, parts: Sequence[Part], feature_names: tuple[str, ...], named: bool = True) -> None:
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
            n = len(part.X)
            for name, values in (("y", part.y), ("sample_weight", part.weight)):
                if values.shape != (n,):
                    raise InputError(
                        f"partition {part.number} has {n} events and {name} of shape {values.shape}; split all alike"
                    )
            self.add_labels(np.unique(part.y).tolist())
            weight = check_weights(part.weight, n) if n else np.empty(0)
            events = Events(
                X=np.empty((n, 0), dtype=np.float32), y=part.y, weight=weight, signal=None, feature_names=()
            )
            yield Chunk(events, part.number, np.arange(n))

    def tables(self) -> Iterator[AnyArray]:
        """The features alone, in the same order."""
        for part in self._parts:
            yield part.X


def as_part(number: int, X: Any, y: Any, weight: Any) -> Part:
    """Take a partition as arrays; run on the worker that has it."""
    table = np.asarray(X)
    if table.ndim != 2:
        raise InputError(f"partition {number} of X has shape {table.shape}; it must have events and features")
    if table.dtype.kind not in "biuf":
        raise InputError(f"partition {number} of X holds {table.dtype}; features must be numbers")
    given = np.ones(len(table)) if weight is None else np.asarray(weight, dtype=np.float64)
    return Part(number, np.ascontiguousarray(table, dtype=np.float32), np.asarray(y), given)
