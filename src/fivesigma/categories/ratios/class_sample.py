"""Events with the class probabilities of a classifier, checked, and the roles of their columns and processes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.errors import InputError, did_you_mean
from fivesigma.yields import check_size, check_weights, name_rows

_SUM_TOLERANCE = 0.01  # half-precision probabilities of a few classes still pass


@dataclass(frozen=True)
class Roles:
    """What the columns of the scores and the processes of the events mean."""

    columns: tuple[str, ...]  # names of the columns of the scores
    # columns that are signals, each with a strength of its own. Every other process is background
    signals: tuple[str, ...]
    floor: tuple[str, ...] | None = None  # processes that count for the floors; by default every background

    def __post_init__(self) -> None:
        for what, names in (("processes", self.columns), ("signals", self.signals)):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise InputError(f"{what} has {twice[0]!r} twice")
        if not self.signals:
            raise InputError("signals is empty; name at least one of the processes")
        for name in self.signals:
            if name not in self.columns:
                raise InputError(
                    f"signal {name!r} is not a process; processes are {', '.join(map(repr, self.columns))}"
                    f"{did_you_mean(name, self.columns)}"
                )
        if len(self.signals) == len(self.columns):
            raise InputError("every process is a signal; at least one column must be background")
        if self.floor == ():
            raise InputError("floor_processes is empty; name at least one background, or leave it out")
        for name in self.floor or ():
            if name in self.signals:
                raise InputError(f"floor_processes has the signal {name!r}; only background can count for a floor")

    @property
    def signal_columns(self) -> IntArray:
        """Columns of the signals, in the order of `signals`."""
        return np.array([self.columns.index(name) for name in self.signals], dtype=np.intp)

    @property
    def background_columns(self) -> IntArray:
        """All other columns."""
        return np.array([i for i, name in enumerate(self.columns) if name not in self.signals], dtype=np.intp)


def added(index: IntArray, values: Array, n: int) -> Array:
    """Sums of the values with each index from 0 to n - 1."""
    return np.asarray(np.bincount(index, values, minlength=n), dtype=np.float64)


def added_rows(index: IntArray, rows: Array, n: int) -> Array:
    """Sums of the rows with each index from 0 to n - 1; one count of all columns is faster than one of each."""
    width = rows.shape[1]
    cell = index[:, None] * width + np.arange(width)
    return added(cell.ravel(), rows.ravel(), n * width).reshape(n, width)


@dataclass(frozen=True)
class ClassSample:
    """Checked events."""

    scores: Array  # (n_events, n_columns)
    weight: Array  # (n_events,)
    names: tuple[str, ...]  # processes of the events: the signals first, in the order of the roles
    process: IntArray  # (n_events,): position in `names`
    n_signals: int
    floor: BoolArray  # (n_processes,): which processes count for the floors

    @property
    def size(self) -> int:
        """Number of events."""
        return self.weight.size

    @property
    def classes(self) -> IntArray:
        """Class of each event: the number of its signal, or `n_signals` for background."""
        return np.minimum(self.process, self.n_signals)

    @property
    def class_yields(self) -> Array:
        """Sums of weights of the signals and of all background."""
        return added(self.classes, self.weight, self.n_signals + 1)

    @property
    def process_yields(self) -> Array:
        """Sums of weights by process."""
        return added(self.process, self.weight, len(self.names))

    def scaled(self, factor: Array) -> ClassSample:
        """Multiply the weights of each process."""
        return replace(self, weight=self.weight * factor[self.process])

    def part(self, members: IntArray | BoolArray) -> ClassSample:
        """Some of the events, with their weights as they are."""
        return replace(self, scores=self.scores[members], weight=self.weight[members], process=self.process[members])

    @property
    def floor_count(self) -> float:
        """Effective count of the events that count for the floors."""
        counts = self.weight[self.floor[self.process]]
        return float(counts.sum() ** 2 / np.square(counts).sum()) if counts.any() else 0.0

    def scaled_to(self, full: Array) -> ClassSample:
        """Scale each process to its full yield."""
        have = self.process_yields
        return self.scaled(np.divide(full, have, out=np.ones_like(full), where=have != 0))

    def thinned(self, most: int) -> ClassSample:
        """Every so many-th event of each class, so that no class has more than `most`; weights as they are."""
        classes = self.classes
        if np.bincount(classes).max() <= most:
            return self
        each = [np.flatnonzero(classes == c) for c in range(self.n_signals + 1)]
        return self.part(np.concatenate([events[:: -(-events.size // most)] for events in each]))

    def halves(self) -> tuple[ClassSample, ClassSample]:
        """Every second event of each process and the rest, both scaled to the full yields of the processes.

        Two events that follow each other in the input never depend on a seed for their half.
        """
        second = np.zeros(self.size, dtype=np.bool_)
        for number in range(len(self.names)):
            second[np.flatnonzero(self.process == number)[1::2]] = True
        full = self.process_yields
        return self.part(~second).scaled_to(full), self.part(second).scaled_to(full)


def check_scores(scores: ArrayLike, n_columns: int) -> Array:
    """Return class probabilities as float64, or say what is wrong with them."""
    try:
        given = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("scores must be numbers") from None
    if given.ndim != 2 or given.shape[1] != n_columns:
        raise InputError(f"scores has shape {given.shape}; {n_columns} processes need shape (n_events, {n_columns})")
    if given.shape[0] == 0:
        raise InputError("scores is empty: there are no events")
    total = given @ np.ones(n_columns)  # faster than a sum over a short axis
    bad = ~np.isfinite(total)
    if bad.any():
        raise InputError(f"scores is NaN or infinite in {name_rows(bad)}")
    if given.min() < 0:
        bad = np.asarray((given < 0).any(axis=1))
        raise InputError(f"scores is negative in {name_rows(bad)}; class probabilities are needed")
    bad = np.abs(total - 1.0) > _SUM_TOLERANCE
    if bad.any():
        raise InputError(
            f"scores does not sum to one in {name_rows(bad)}, where the first sums to {total[bad.argmax()]:.4g}; give "
            "the probabilities of all classes"
        )
    return given


def _numbered(labels: AnyArray) -> tuple[list[str], IntArray]:
    """Distinct labels as text, and the number of that of each event; a few comparisons are faster than a sort."""
    seen: list[str] = []
    codes = np.full(labels.size, -1, dtype=np.intp)
    at = 0
    while True:
        codes[labels == labels[at]] = len(seen)
        if codes[at] < 0:
            raise InputError(f"process is not a name in row {at}, where it is {labels.tolist()[at]!r}")
        seen.append(str(labels[at]))
        left = codes < 0
        at = int(left.argmax())
        if not left[at]:
            return seen, codes


def check_sample(scores: ArrayLike, process: ArrayLike, sample_weight: ArrayLike, roles: Roles) -> ClassSample:
    """Check events against their roles.

    Every column needs events of its name. One background column without any may stand for all processes that no column
    names, as for a classifier that was trained with all backgrounds in one class.
    """
    given = check_scores(scores, len(roles.columns))
    weight = check_weights(sample_weight, given.shape[0])
    labels: AnyArray = np.asarray(process)
    if labels.shape != weight.shape:
        raise InputError(f"process has shape {labels.shape} for {weight.size} events")
    seen, codes = _numbered(labels)
    unnamed = [name for name in seen if name not in roles.columns]
    absent = [name for name in roles.columns if name not in seen]
    for name in absent:
        if name in roles.signals or len(absent) > 1 or not unnamed:
            raise InputError(
                f"process {name!r} has no events; the events are of {', '.join(map(repr, seen[:8]))}"
                f"{did_you_mean(name, unnamed)}"
            )
    names = (*roles.signals, *(name for name in seen if name not in roles.signals))
    code = np.array([names.index(name) for name in seen], dtype=np.intp)[codes]
    totals = np.bincount(code, weight, minlength=len(names))
    for name, total in zip(roles.signals, totals, strict=False):
        if not total > 0:
            raise InputError(f"the weights of signal {name!r} sum to {total:g}; they must sum to more than zero")
    if not totals[len(roles.signals) :].sum() > 0:
        raise InputError("the weights of the background sum to zero or less; they must sum to more than zero")
    for k, what in enumerate((*(f"weight of signal {name!r}" for name in roles.signals), "background weight")):
        these = weight[code == k] if k < len(roles.signals) else weight[code >= k]
        check_size(max(-float(these.min()), float(these.max())), what)
    for name in roles.floor or ():
        if name not in names:
            raise InputError(f"floor_processes has {name!r}, of which there are no events{did_you_mean(name, names)}")
    floor = np.array([name not in roles.signals and (roles.floor is None or name in roles.floor) for name in names])
    return ClassSample(given, weight, names, code, len(roles.signals), floor)
