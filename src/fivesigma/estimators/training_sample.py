"""Training events as the estimators see them, in memory or in files, and how they are split."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import joblib
import numpy as np
from sklearn.model_selection import (
    GroupShuffleSplit,
    PredefinedSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    StratifiedShuffleSplit,
)
from sklearn.utils import _safe_indexing

from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.cascade.rounds import ClassWeights
from fivesigma.datasets.digest import canonical, row_digests, rows_to_know_again
from fivesigma.datasets.events import Events
from fivesigma.datasets.stream import EventStream, held_out_rows
from fivesigma.errors import DuplicatedEventsWarning, InputError
from fivesigma.yields import (
    balanced_class_weights,
    check_size,
    check_weights,
    learner_weights,
    rescale,
    signal_and_background,
    split_labels,
)

_MOST_COPIES = 10  # of an event, on average, that are looked for
_FEW = 0.2  # share of held-out events that may be among the others by chance; of copies most are
_TOO_FEW = 100  # events, of which nothing can be told

Splits = list[tuple[IntArray, IntArray]]
"""Rows to train on and rows to hold out, of each split."""


@dataclass(frozen=True)
class TrainingSample:
    """Checked training events."""

    X: Any  # array, sparse matrix or frame
    signal: BoolArray
    classes: AnyArray  # (background, signal)
    weight: Array  # physics weights
    process: AnyArray | None
    feature_names: AnyArray | None
    totals: tuple[float, float]  # full yields of signal and background
    negative: str  # what a learner sees of negative weights
    data_hash: str | None = None  # digest of the table, if it is known
    groups: AnyArray | None = None  # group of each event, which no split may part
    # Of a ProfiledClassifier: its systematics as they were given, those without a constraint, and the nominal `Events`.
    systematics: Mapping[str, Any] = field(default_factory=dict)
    free: tuple[str, ...] = ()
    events: Events | None = None

    @classmethod
    def checked(
        cls,
        X: Any,
        y: Any,
        sample_weight: Any,
        process: Any,
        *,
        pos_label: Any,
        negative: str,
        feature_names: AnyArray | None = None,
        data_hash: str | None = None,
        groups: Any = None,
    ) -> TrainingSample:
        """Check labels and weights."""
        signal, classes = split_labels(y, pos_label)
        weight = np.ones(signal.size) if sample_weight is None else check_weights(sample_weight, signal.size)
        for name, members in (("signal", signal), ("background", ~signal)):
            if not weight[members].any():
                raise InputError(f"every sample_weight of the class {name} is zero, which leaves one class only")
            total = weight[members].sum()
            if not total > 0:
                raise InputError(f"the sample_weight of the class {name} sum to {total:g}; a yield must be > 0")
            check_size(float(np.abs(weight[members]).max()), f"sample_weight of the class {name}")
        learner_weights(weight, signal, negative=negative)  # refuses what no learner could take
        names = None if process is None else np.asarray(process).astype(str)
        if names is not None and names.shape != signal.shape:
            raise InputError(f"process has {names.size} entries for {signal.size} events")
        of_events = None if groups is None else np.asarray(groups)
        if of_events is not None and of_events.shape != signal.shape:
            raise InputError(f"groups has the shape {of_events.shape} for {signal.size} events")
        totals = signal_and_background(weight, signal)
        return cls(X, signal, classes, weight, names, feature_names, totals, negative, data_hash, of_events)

    def __sizeof__(self) -> int:
        """Bytes of the arrays, by which Dask knows that it is large."""
        return int(getattr(self.X, "nbytes", 4 * self.n_cells)) + 9 * self.signal.size

    @cached_property
    def digest(self) -> str:
        """Digest of the events; all fits of a pool have one sample, so that the table is hashed once."""
        table = self.X if self.data_hash is None else self.data_hash
        moved = (dict(self.systematics), self.free) if self.systematics else ()
        return str(joblib.hash((table, self.signal, self.weight, self.process, *moved), hash_name="sha1"))

    @property
    def n_cells(self) -> int:
        """Rows times columns: the size of the work."""
        return int(self.X.shape[0] * self.X.shape[1])

    @property
    def target(self) -> IntArray:
        """1 for signal, 0 for background."""
        return self.signal.astype(np.intp)

    def rows(self, which: IntArray) -> Any:
        """Rows of X, of the same type as X."""
        return _safe_indexing(self.X, which)

    def rescaled(self, rows: IntArray) -> Array:
        """Physics weights of some rows that stand for all events."""
        return rescale(self.weight[rows], self.signal[rows], self.totals)

    def learner_weights(self, rows: IntArray, weights: ClassWeights) -> Array:
        """Weights for a learner on some rows."""
        factors = (weights.signal, weights.background)
        return learner_weights(self.rescaled(rows), self.signal[rows], factors, self.negative)

    def balanced(self, rows: IntArray) -> ClassWeights:
        """Class weights at which both classes weigh the same in training."""
        return ClassWeights(*balanced_class_weights(self.rescaled(rows), self.signal[rows], self.negative))

    def splits(self, cv: Any, seed: int) -> Splits:
        """Rows to train on and rows to hold out; rows of zero weight belong to neither."""
        name = (
            repr(cv) if isinstance(cv, (int, float)) else "folds" if isinstance(cv, np.ndarray) else type(cv).__name__
        )
        out = []
        for number, (train, held_out) in enumerate(self._pairs(cv, seed)):
            pair = self._rows(train, name), self._rows(held_out, name)
            shared = np.intersect1d(*pair).size
            if shared:
                raise InputError(f"cv={name} has {shared} events of split {number} both in training and held out")
            for part, rows in zip(("training", "held-out"), pair, strict=True):
                for kind, members in (("signal", self.signal[rows]), ("background", ~self.signal[rows])):
                    if not members.any():
                        raise InputError(
                            f"cv={name} leaves split {number} without {kind} among its {rows.size} {part} events; "
                            "every split needs both classes"
                        )
                    total = self.weight[rows][members].sum()
                    if not total > 0:
                        raise InputError(
                            f"cv={name} leaves split {number} with a sum of weights of {total:g} for the {kind} of its "
                            f"{part} events; a yield must be > 0"
                        )
            self._warn_of_copies(*pair)
            out.append(pair)
        if not out:
            raise InputError("cv gave no splits")
        return out

    @cached_property
    def _row_digests(self) -> AnyArray:
        """Digests of the rows; none of tables that are not numbers in memory."""
        try:
            return row_digests(self.X)
        except (TypeError, ValueError):
            return np.empty(0, dtype=np.uint64)

    def _warn_of_copies(self, train: IntArray, held_out: IntArray) -> None:
        """Say so if events that judge are among those that are fitted: what they tell is then too good.

        Where features have few values, equal rows are no copies; so most rows must be unlike all others, or nearly.
        """
        digests = self._row_digests
        if (
            digests.size != self.signal.size
            or digests.size < _TOO_FEW
            or np.unique(digests).size * _MOST_COPIES < digests.size
        ):
            return
        n_seen = np.count_nonzero(np.isin(digests[held_out], digests[train]))
        if n_seen > _FEW * held_out.size:
            warnings.warn(
                f"{n_seen} of {held_out.size} held-out events have the same features as events that are trained on, so "
                "that their significance is too high; give all copies one group with groups=",
                DuplicatedEventsWarning,
                stacklevel=2,
            )

    def _rows(self, given: Any, name: str) -> IntArray:
        """Rows of a split, without those of zero weight."""
        rows = np.asarray(given)
        if rows.dtype == np.bool_ and rows.shape == self.signal.shape:
            rows = np.flatnonzero(rows)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise InputError(f"cv={name} must give row numbers, got {rows.dtype} of shape {rows.shape}")
        if rows.size and not (rows.min() >= 0 and rows.max() < self.signal.size):
            raise InputError(f"cv={name} gives row {int(rows.max())}, and there are {self.signal.size} events")
        return np.asarray(rows[self.weight[rows] != 0])

    def _pairs(self, cv: Any, seed: int) -> Iterable[tuple[Any, Any]]:
        n_least, strata = int(min(self.signal.sum(), (~self.signal).sum())), self.target
        if isinstance(cv, (bool, str)) or cv is None:
            raise InputError(f"cv must be a fraction, a number of folds, a splitter or splits, got {cv!r}")
        splitter = cv
        if isinstance(cv, (float, np.floating)):
            if not 0 < cv < 1:
                raise InputError(f"cv={cv!r} is not between 0 and 1, the fraction of events held out")
            if n_least < 2:
                raise InputError(f"one class has {n_least} events; a held-out split needs at least 2 of each class")
            splitter = GroupShuffleSplit(1, test_size=cv, random_state=seed)
            if self.groups is None:
                strata = self._strata(2)
                n_strata = int(strata.max()) + 1
                n_held = min(max(round(cv * strata.size), n_strata), strata.size - n_strata)
                splitter = StratifiedShuffleSplit(1, test_size=n_held, random_state=seed)
        elif isinstance(cv, (int, np.integer)):
            if cv < 2:
                raise InputError(f"cv={cv!r} folds are too few; at least 2 are needed")
            if n_least < cv:
                raise InputError(f"cv={cv} folds need at least {cv} events of each class, and one class has {n_least}")
            strata = self._strata(int(cv))
            kind = StratifiedKFold if self.groups is None else StratifiedGroupKFold
            splitter = kind(int(cv), shuffle=True, random_state=seed)
        elif isinstance(cv, np.ndarray) and cv.ndim == 1 and cv.dtype.kind in "iu":  # the fold of each event
            if cv.size != self.signal.size:
                raise InputError(f"cv has {cv.size} fold numbers for {self.signal.size} events")
            numbers, folds = np.unique(cv, return_inverse=True)
            if numbers.size < 2:
                raise InputError(f"cv has one fold number only ({numbers.tolist()}); at least 2 are needed")
            splitter = PredefinedSplit(folds)
        elif not hasattr(cv, "split"):
            try:
                return [(train, held_out) for train, held_out in cv]
            except (TypeError, ValueError):
                raise InputError(f"cv must give (train, held-out) pairs of rows, got {cv!r}") from None
        try:
            return list(splitter.split(np.zeros((strata.size, 1)), strata, self.groups))
        except ValueError as err:
            raise InputError(f"cv={cv!r} cannot split these events: {err}") from err

    def _strata(self, at_least: int) -> IntArray:
        """Number the classes, and within them the processes that have `at_least` so many events."""
        strata = self.target
        if self.process is None:
            return strata
        for name in np.unique(self.process):
            for is_signal in (True, False):
                members = (self.process == name) & (self.signal == is_signal)
                remaining = (strata == int(is_signal)) & ~members
                if min(np.count_nonzero(members), np.count_nonzero(remaining)) >= at_least:
                    strata[members] = strata.max() + 1
        return strata


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
