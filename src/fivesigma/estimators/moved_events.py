"""What systematics are made of when a model learns them: samples of events that are told apart."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing

from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError
from fivesigma.learners.density_ratios import ONE_SIDED, OPPOSITE, SHARE, stack_tables
from fivesigma.likelihood.shifts import Normalisation, Varied
from fivesigma.yields import check_weights


@dataclass(frozen=True)
class FoldedEvents:
    """Events of which each is held out by one split.

    Attributes
    ----------
    X : table
    signal : bool array
    weight : array
        Physics weights.
    process : array or None
    home : int array
        Number of the split that holds the event out; -1 if none does.
    """

    X: Any
    signal: BoolArray
    weight: Array
    process: AnyArray | None
    home: IntArray

    def where(self, mask: BoolArray) -> FoldedEvents:
        """Some of the events."""
        if mask.all():
            return self
        process = None if self.process is None else self.process[mask]
        rows = np.flatnonzero(mask)
        return FoldedEvents(
            _safe_indexing(self.X, rows), self.signal[mask], self.weight[mask], process, self.home[mask]
        )

    def joined(self, other: FoldedEvents) -> FoldedEvents:
        """These events and others."""
        if not other.signal.size:
            return self
        process = None if self.process is None or other.process is None else np.append(self.process, other.process)
        return FoldedEvents(
            stack_tables([self.X, other.X]),
            np.append(self.signal, other.signal),
            np.append(self.weight, other.weight),
            process,
            np.append(self.home, other.home),
        )

    def among(self, processes: str | Sequence[str]) -> BoolArray:
        """Which events belong to some processes."""
        return np.isin(self.kinds, processes)

    @property
    def kinds(self) -> AnyArray:
        """Process of each event or, where processes have no names, whether it is signal."""
        return self.signal if self.process is None else self.process

    @property
    def representative(self) -> Array:
        """Weights of the held-out events, each class scaled to what all of its events sum to; zero for the others."""
        held = self.home >= 0
        out = np.where(held, self.weight, 0.0)
        for members in (self.signal, ~self.signal):
            part = out[members].sum()
            if part > 0:
                out[members] *= self.weight[members].sum() / part
        return out


@dataclass(frozen=True)
class Contrast:
    """Two samples whose ratio of densities is wanted.

    Attributes
    ----------
    first, second : FoldedEvents
    kind : str
        How their ratio becomes a relative shift; see `relative_shift`.
    size : float
    """

    first: FoldedEvents
    second: FoldedEvents
    kind: str
    size: float = 1.0

    @property
    def log_prior(self) -> float:
        """Log of the ratio of their sums of weights; infinite where one of them is empty."""
        with np.errstate(divide="ignore"):
            return float(np.log(self.first.weight.sum()) - np.log(self.second.weight.sum()))

    def training(self, split: int) -> tuple[Any, BoolArray, Array]:
        """Table, membership of the first sample and weights of the events that a split trains on."""
        both = [sample.where((sample.home != split) & (sample.weight != 0)) for sample in (self.first, self.second)]
        first = np.repeat([True, False], [sample.signal.size for sample in both])
        return stack_tables([sample.X for sample in both]), first, np.concatenate([sample.weight for sample in both])


@dataclass(frozen=True)
class TrainingSystematic:
    """A systematic as it was given, with its events.

    Attributes
    ----------
    name : str
    normalisation : Normalisation or None
    up, down : FoldedEvents or None
        Events one standard deviation away.
    """

    name: str
    normalisation: Normalisation | None = None
    up: FoldedEvents | None = None
    down: FoldedEvents | None = None

    def contrast(self, nominal: FoldedEvents, *, with_signal: bool) -> Contrast:
        """Samples that tell how it moves the background or, with signal, all events."""
        counts = np.ones(nominal.signal.size, dtype=np.bool_) if with_signal else ~nominal.signal
        if self.normalisation is not None:
            moves = nominal.among(self.normalisation.process)
            first, second = (nominal.where(counts & side) for side in (moves, ~moves))
            return Contrast(first, second, SHARE, self.normalisation.fraction or 1.0)

        def completed(side: FoldedEvents) -> FoldedEvents:
            there = side.where(np.ones(side.signal.size, dtype=np.bool_) if with_signal else ~side.signal)
            return there.joined(nominal.where(counts & ~np.isin(nominal.kinds, side.kinds)))

        assert self.up is not None  # where there is no normalisation
        if self.down is None:
            return Contrast(completed(self.up), nominal.where(counts), ONE_SIDED)
        return Contrast(completed(self.up), completed(self.down), OPPOSITE)


def home_of(splits: list[tuple[IntArray, IntArray]], n_events: int) -> IntArray:
    """Split by which each event is held out; each may be held out once only."""
    home = np.full(n_events, -1, dtype=np.intp)
    for number, (_, held_out) in enumerate(splits):
        if (home[held_out] >= 0).any():
            raise InputError("cv holds some events out twice; ProfiledClassifier needs folds, or one split")
        home[held_out] = number
    return home


@dataclass(frozen=True)
class SystematicsReader:
    """Turns what `fit` is given into events that belong to splits.

    Attributes
    ----------
    nominal : FoldedEvents
    classes : array of shape (2,)
        Labels of background and signal.
    ids : array or None
        Identifiers of the nominal events; a varied event with the same one belongs to the same split.
    features : callable
        Turns varied events or a table into a checked table; called with a name for messages.
    folds : callable or None
        Split of varied `Events`, where the events themselves decide it.
    seed : int
        Of the splits of events that nothing decides.
    """

    nominal: FoldedEvents
    classes: AnyArray
    ids: AnyArray | None
    features: Callable[[str, Any], Any]
    folds: Callable[[Events], IntArray] | None
    seed: int

    def read(self, name: str, value: Any) -> TrainingSystematic:
        """Check one systematic."""
        if isinstance(value, Normalisation):
            return self._normalisation(name, value)
        if not isinstance(value, tuple | list) or len(value) != 2 or value[0] is None:
            raise InputError(
                f"systematic {name!r} must be a Normalisation or two variations, (up, down), got {type(value).__name__}"
            )
        up, down = (
            None if moved is None else self._side(f"{name} {side}", moved)
            for side, moved in zip(("up", "down"), value, strict=True)
        )
        if up is not None and _same(up, self.nominal if down is None else down):
            what = "the nominal events" if down is None else "down"
            raise InputError(f"systematic {name!r} is the same up as {what}: it moves nothing; leave it out")
        return TrainingSystematic(name, up=up, down=down)

    def _normalisation(self, name: str, value: Normalisation) -> TrainingSystematic:
        if self.nominal.process is None:
            raise InputError(
                f"systematic {name!r} scales {', '.join(map(repr, value.process))}, and the events have no process"
            )
        names, at = np.unique(self.nominal.process, return_index=True)
        value.check(name, dict(zip(names.tolist(), self.nominal.signal[at].tolist(), strict=True)))
        return TrainingSystematic(name, value)

    def _side(self, label: str, moved: Any) -> FoldedEvents:
        if isinstance(moved, Varied):
            if moved.score is not None or moved.y is not None or moved.weight is None:
                raise InputError(
                    f"{label} has scores, and a model learns from features: give Events, a table or weights"
                )
            moved = moved.weight
        if isinstance(moved, Events):
            return self._own(label, moved)
        if np.ndim(moved) == 1:
            try:
                return replace(self.nominal, weight=check_weights(moved, self.nominal.signal.size))
            except InputError as err:
                raise InputError(f"{label}: {err}") from None
        table = self.features(label, moved)
        if table.shape[0] != self.nominal.signal.size:
            raise InputError(f"{label} has {table.shape[0]} events for {self.nominal.signal.size} nominal ones")
        return replace(self.nominal, X=table)

    def _own(self, label: str, events: Events) -> FoldedEvents:
        """A sample of its own."""
        if not events.labelled:
            raise InputError(f"{label} has no labels: load it with the column that holds them")
        unknown = ~np.isin(events.y, self.classes)
        if unknown.any():
            seen = events.y[unknown].tolist()[0]
            raise InputError(f"{label} has the label {seen!r}; the nominal events have {self.classes.tolist()}")
        process = None if events.process is None else np.asarray(events.process).astype(str)
        signal = events.y == self.classes[1]
        if not signal.any():
            warnings.warn(f"{label} has no signal: it is taken as in the nominal events", stacklevel=2)
        try:
            weight = check_weights(events.weight, len(events))
        except InputError as err:
            raise InputError(f"{label}: {err}") from None
        return FoldedEvents(self.features(label, events), signal, weight, process, self._home(events))

    def _home(self, events: Events) -> IntArray:
        """Split of each varied event: by its number, by the nominal event with the same identifier, or by chance."""
        if self.folds is not None:
            return self.folds(events)
        home = np.random.default_rng(self.seed).choice(self.nominal.home, len(events))
        if self.ids is not None and events.ids is not None and self.ids.dtype.kind == events.ids.dtype.kind:
            order = np.argsort(self.ids)
            at = np.minimum(np.searchsorted(self.ids, events.ids, sorter=order), self.ids.size - 1)
            home = np.where(self.ids[order[at]] == events.ids, self.nominal.home[order[at]], home)
        return home


def _same(one: FoldedEvents, other: FoldedEvents) -> bool:
    """Whether two samples hold the same events with the same weights."""
    if one.signal.size != other.signal.size or not np.array_equal(one.weight, other.weight):
        return False
    if one.X is other.X:
        return True
    return bool(isinstance(one.X, np.ndarray) and np.array_equal(one.X, other.X, equal_nan=one.X.dtype.kind == "f"))
