"""What a cascade asks of a learner."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from sklearn.utils import _safe_indexing

from fivesigma._types import AnyArray, Array, IntArray

BATCH = 100_000  # rows that a library sees at a time where it does not see all
_FORBIDDEN = re.compile(r'[\[\]<>{}",:]')


class Model(Protocol):
    """A trained classifier."""

    def signal_probability(self, X: Any) -> Array:
        """P(signal) of each row, float64."""


class Trainer(Protocol):
    """A learner bound to its training events."""

    def fit(self, weight: Array) -> Model:
        """Train anew with learner weights of the training rows."""


class Grower(Protocol):
    """A booster bound to its events that gains one tree at a time."""

    def set_weights(self, weight: Array) -> None:
        """Set the learner weights of the training rows for the trees to come."""

    def grow(self) -> None:
        """Add a tree."""

    def score(self, *, held_out: bool = True) -> Array:
        """P(signal) of the held-out or of the training rows, from the library's cache."""

    def model(self, n_trees: int) -> Model:
        """Return the first trees as a model."""

    def dump(self) -> bytes:
        """Return the trees in the library's own format."""

    def restore(self, dumped: bytes, seed: int) -> int:
        """Resume from dumped trees with a new seed, on which alone depends what follows; return their number."""


@runtime_checkable
class ChunkedTable(Protocol):
    """Features that are read chunk by chunk whenever they are needed."""

    @property
    def shape(self) -> tuple[int, int]:
        """Events and features."""

    def chunks(self) -> Iterator[AnyArray]:
        """Read all of them once, in the same order every time."""


@dataclass(frozen=True)
class Binding:
    """Events of one split."""

    X: Any  # array, sparse matrix or frame of all events
    target: AnyArray  # 1 for signal, 0 for background, of all events
    train: IntArray  # rows to train on
    held_out: IntArray  # rows to judge on
    seed: int
    n_threads: int
    memory: str = "all"  # or batch by batch, with the "bins" in memory or on "disk"
    cache: Path | None = None  # folder for what is on disk
    bins: AnyArray | None = None  # rows that decide the bins of batches; by default the training rows do

    def batches(self, which: IntArray) -> Callable[[], Iterator[tuple[Any, AnyArray]]]:
        """Rows of X and their targets, batch by batch, as often as wanted; of a chunked table in the table's order."""
        X, target = self.X, self.target
        if isinstance(X, ChunkedTable):
            wanted = np.zeros(X.shape[0], dtype=np.bool_)
            wanted[which] = True

            def chunks() -> Iterator[tuple[Any, AnyArray]]:
                if not wanted.any():  # of a part of the events that are elsewhere
                    yield np.empty((0, X.shape[1]), dtype=np.float32), target[:0]
                    return
                start = 0
                for table in X.chunks():
                    rows = wanted[start : start + len(table)]
                    if rows.any():
                        yield table[rows], target[start : start + len(table)][rows]
                    start += len(table)

            return chunks

        def slices() -> Iterator[tuple[Any, AnyArray]]:
            for start in range(0, which.size, BATCH):
                rows = which[start : start + BATCH]
                yield _safe_indexing(X, rows), target[rows]

        return slices

    def rows(self, which: IntArray) -> Any:
        """Rows of X, of the same type as X."""
        return _safe_indexing(self.X, which)


@dataclass(frozen=True)
class Library:
    """A boosting library: all that the rest of fivesigma knows of it."""

    name: str  # of the module that is imported
    grower: Callable[[dict[str, Any], Binding], Grower]  # binds a booster to its parameters and events
    model: type[Any]  # what its boosters become when they are trained
    can_bin_once: Callable[[Any], bool]  # whether an estimator trains by `trainer` on events that are binned once
    trainer: Callable[[Any, Binding], Trainer]
    learners: tuple[str, str]  # its classifier and its regressor, which the store keeps by their parameters
    settings: Mapping[str, Any]  # that both are always given
    gamma: Callable[[int], dict[str, Any]]  # parameters of a regressor with gamma loss and trees of some depth
    parameters: Callable[[], Iterator[str]]  # names of all that a tree booster takes; none if the library is silent
    dump: Callable[[Any, Callable[[bytes, str], str]], dict[str, Any]]  # a model as values and files
    load: Callable[[Callable[[str, Any], Any], Callable[[str], bytes]], Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of a grown booster
    aliases: Mapping[str, str] = field(default_factory=dict)  # other names of parameters that have a default
    refused: Mapping[str, str] = field(default_factory=dict)  # parameters that are not taken, and why
    dump_learner: Callable[[Any], bytes] | None = None  # the file of a fitted estimator; without it skops keeps it
    load_learner: Callable[[Any, bytes], None] | None = None
    ending: str = ""  # of that file
    size: str = "n_estimators"  # parameter of the learners that is the number of trees
    memory: tuple[str, ...] = ("all",)  # kinds of `Binding.memory` that the grower takes
    always_grows: bool = True  # else rounds in which no split is found give no tree


def library_names(X: Any) -> list[str] | None:
    """Column names of a frame as boosting libraries take them: without brackets and the like, and distinct."""
    if not hasattr(X, "columns"):
        return None
    names = [_FORBIDDEN.sub("_", str(c)) for c in X.columns]
    return names if len(set(names)) == len(names) else [f"{name}_{k}" for k, name in enumerate(names)]


def is_categorical(X: Any) -> bool:
    """Whether a frame has categorical columns."""
    return any(str(t).partition("(")[0] in ("category", "Categorical", "Enum") for t in getattr(X, "dtypes", ()))
