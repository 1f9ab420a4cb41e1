"""What systematics are made of when a model learns them: samples that are told apart, and bins that judge a score."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing

from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError
from fivesigma.learners.density_ratios import ONE_SIDED, OPPOSITE, SHARE, stack_tables
from fivesigma.likelihood.least_favourable import Solution
from fivesigma.likelihood.profile import root_of, uncertainty_of
from fivesigma.likelihood.shifts import Normalisation, Varied, YieldShifts, counts_of, derivatives_of, yield_shifts
from fivesigma.significance import AMS2
from fivesigma.yields import check_weights, class_sums

N_BINS = 30
MIN_EFFECTIVE = 25.0  # background events of a bin: the noise of fewer events' shifts would look like a constraint
BENT = 0.5  # mean of a shift up and down, over half of their difference, that needs a classifier for each side
WIDE = 5  # bins that are one where that is decided
NOMINAL = "nominal"


@dataclass(frozen=True)
class FoldedEvents:
    """Events of which each is held out by one split."""

    X: Any
    signal: BoolArray
    weight: Array  # physics weights
    process: AnyArray | None
    home: IntArray  # number of the split that holds the event out; -1 if none does
    # Rows whose features are not those of the nominal event in the same place; None where places do not correspond.
    moved: IntArray | None = None

    def where(self, mask: BoolArray) -> FoldedEvents:
        """Some of the events."""
        if mask.all():
            return self
        rows = np.flatnonzero(mask)
        return FoldedEvents(
            _safe_indexing(self.X, rows),
            self.signal[rows],
            self.weight[rows],
            None if self.process is None else self.process[rows],
            self.home[rows],
            None if self.moved is None else np.flatnonzero(np.isin(rows, self.moved)),
        )

    @property
    def kinds(self) -> AnyArray:
        """Process of each event or, where processes have no names, whether it is signal."""
        return self.signal if self.process is None else self.process

    @property
    def is_elsewhere(self) -> bool:
        """Whether events have other features than the nominal ones, and so scores of their own."""
        return self.moved is None or bool(self.moved.size)

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


@dataclass(frozen=True, eq=False)
class Contrast:
    """Two samples whose ratio of densities is wanted, as two weights of each event.

    An event that both samples share is one row, and whatever changes weights alone shares the nominal table.
    """

    X: Any
    home: IntArray
    first: Array  # weights in the two samples; zero where an event is not there
    second: Array
    kind: str  # how their ratio becomes a relative shift; see `relative_shift`
    size: float = 1.0

    @classmethod
    def of_members(cls, events: FoldedEvents, members: BoolArray, size: float = 1.0) -> Contrast:
        """Some events against the others."""
        first, second = (np.where(side, events.weight, 0.0) for side in (members, ~members))
        return cls(events.X, events.home, first, second, SHARE, size)

    @classmethod
    def of_sides(cls, nominal: FoldedEvents, one: FoldedEvents, other: FoldedEvents, kind: str) -> Contrast:
        """One variation against another; a process that one does not have is as in the nominal events."""
        sides = (one, other)
        own = [np.arange(side.signal.size) if side.moved is None else side.moved for side in sides]
        kept = []
        for side, rows in zip(sides, own, strict=True):
            if side.moved is None:
                kept.append(np.where(np.isin(nominal.kinds, side.kinds), 0.0, nominal.weight))
            else:
                kept.append(side.weight.copy())
                kept[-1][rows] = 0.0
        if not any(rows.size for rows in own):
            return cls(nominal.X, nominal.home, kept[0], kept[1], kind)
        there = np.flatnonzero((kept[0] != 0) | (kept[1] != 0))
        parts = [(nominal, there), *zip(sides, own, strict=True)]
        absent = [np.zeros(rows.size) for rows in own]
        return cls(
            stack_tables([_safe_indexing(side.X, rows) for side, rows in parts]),
            np.concatenate([side.home[rows] for side, rows in parts]),
            np.concatenate([kept[0][there], one.weight[own[0]], absent[1]]),
            np.concatenate([kept[1][there], absent[0], other.weight[own[1]]]),
            kind,
        )

    @property
    def log_prior(self) -> float:
        """Log of the ratio of their sums of weights; infinite where one of them is empty."""
        with np.errstate(divide="ignore"):
            return float(np.log(self.first.sum()) - np.log(self.second.sum()))


@dataclass(frozen=True)
class TrainingSystematic:
    """A systematic as it was given, with its events."""

    name: str
    normalisation: Normalisation | None = None
    up: FoldedEvents | None = None
    down: FoldedEvents | None = None

    def contrasts(self, nominal: FoldedEvents, *, opposite: bool) -> list[Contrast]:
        """What tells how it moves some nominal events: one contrast, or one for each side that is not opposite."""
        if self.normalisation is not None:
            moves = np.isin(nominal.kinds, self.normalisation.process)
            return [Contrast.of_members(nominal, moves, self.normalisation.fraction or 1.0)]
        assert self.up is not None  # where there is no normalisation
        sides = [side if nominal.signal.any() else side.where(~side.signal) for side in (self.up, self.down) if side]
        if len(sides) == 2 and opposite:
            return [Contrast.of_sides(nominal, sides[0], sides[1], OPPOSITE)]
        unmoved = replace(nominal, moved=np.empty(0, dtype=np.intp))
        return [Contrast.of_sides(nominal, side, unmoved, ONE_SIDED) for side in sides]


@dataclass(frozen=True)
class SystematicsReader:
    """Turns what `fit` is given into events that belong to splits."""

    nominal: FoldedEvents
    classes: AnyArray  # labels of background and signal
    ids: AnyArray | None  # of the nominal events; a varied event with the same one belongs to the same split
    # Turns varied events or a table into a checked table; takes a name for messages.
    features: Callable[[str, Any], Any]
    folds: Callable[[Events], IntArray] | None  # splits of varied `Events`, where the events themselves decide them
    seed: int  # of the splits of events that nothing decides

    def read(self, name: str, value: Any) -> TrainingSystematic:
        """Read one systematic, of a form that `check_systematics` takes."""
        if isinstance(value, Normalisation):
            if self.nominal.process is None:
                named = ", ".join(map(repr, value.process))
                raise InputError(f"systematic {name!r} scales {named}, and the events have no process")
            names, at = np.unique(self.nominal.process, return_index=True)
            value.check(name, dict(zip(names.tolist(), self.nominal.signal[at].tolist(), strict=True)))
            return TrainingSystematic(name, value)
        up = self._side(f"{name} up", value[0])
        down = None if value[1] is None else self._side(f"{name} down", value[1])
        if _same(up, self.nominal if down is None else down):
            what = "the nominal events" if down is None else "down"
            raise InputError(f"systematic {name!r} is the same up as {what}: it moves nothing; leave it out")
        return TrainingSystematic(name, up=up, down=down)

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
                weight = check_weights(moved, self.nominal.signal.size)
                return replace(self.nominal, weight=weight, moved=np.empty(0, dtype=np.intp))
            except InputError as err:
                raise InputError(f"{label}: {err}") from None
        table = self.features(label, moved)
        if table.shape[0] != self.nominal.signal.size:
            raise InputError(f"{label} has {table.shape[0]} events for {self.nominal.signal.size} nominal ones")
        return replace(self.nominal, X=table, moved=_moved_rows(table, self.nominal.X))

    def _own(self, label: str, events: Events) -> FoldedEvents:
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
        table = self.features(label, events)
        if self._corresponds(events, signal, process):
            return replace(self.nominal, X=table, weight=weight, moved=_moved_rows(table, self.nominal.X))
        return FoldedEvents(table, signal, weight, process, self._home(events))

    def _corresponds(self, events: Events, signal: BoolArray, process: AnyArray | None) -> bool:
        """Whether these are the nominal events in the same order, as far as one can see."""
        if len(events) != self.nominal.signal.size or (process is None) != (self.nominal.process is None):
            return False
        if self.folds is not None and not np.array_equal(self.folds(events), self.nominal.home):
            return False
        if self.ids is not None and events.ids is not None and not np.array_equal(self.ids, events.ids):
            return False
        kinds = signal if process is None else process
        return np.array_equal(signal, self.nominal.signal) and np.array_equal(kinds, self.nominal.kinds)

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


def _moved_rows(table: Any, nominal: Any) -> IntArray:
    """Rows of a table that differ from those of the nominal one; all of them if it is no array."""
    if not isinstance(table, np.ndarray):
        return np.arange(table.shape[0])
    differs = table != nominal
    if table.dtype.kind == "f":
        differs &= ~(np.isnan(table) & np.isnan(nominal))
    return np.flatnonzero(differs.any(axis=1))


def _same(one: FoldedEvents, other: FoldedEvents) -> bool:
    """Whether two samples hold the same events with the same weights."""
    if one.signal.size != other.signal.size or not np.array_equal(one.weight, other.weight):
        return False
    if one.X is other.X:
        return True
    return isinstance(one.X, np.ndarray) and not _moved_rows(one.X, other.X).size


@dataclass(frozen=True)
class HeldOutBins:
    """Held-out events, nominal and varied."""

    nominal: FoldedEvents
    systematics: Sequence[TrainingSystematic]
    free: Sequence[str]
    goal: str

    def samples(self) -> dict[str, FoldedEvents]:
        """Every sample that needs scores of its own, by a name."""
        out = {NOMINAL: self.nominal}
        for one in self.systematics:
            for side, events in (("up", one.up), ("down", one.down)):
                if events is not None and events.is_elsewhere:
                    out[f"{one.name} {side}"] = events
        return out

    def fill(self, scores: Mapping[str, Array]) -> YieldShifts:
        """Fill bins of a score."""
        held, weight = self.nominal.home >= 0, self.nominal.representative
        score, signal, weight = scores[NOMINAL][held], self.nominal.signal[held], weight[held]
        process = None if self.nominal.process is None else self.nominal.process[held]
        edges = bin_edges(score, signal, weight)
        variations = {one.name: self._variation(one, scores, held) for one in self.systematics}
        return yield_shifts(edges, score, signal, weight, variations, process=process, free=self.free)

    def _variation(
        self, one: TrainingSystematic, scores: Mapping[str, Array], held: BoolArray
    ) -> tuple[Varied, Varied | None] | Normalisation:
        if one.normalisation is not None:
            return one.normalisation

        def side(name: str, events: FoldedEvents) -> Varied:
            if not events.is_elsewhere:
                return Varied(weight=events.representative[held])
            there = events.home >= 0
            process = None if events.process is None else events.process[there]
            return Varied(scores[name][there], events.representative[there], events.signal[there], process)

        assert one.up is not None  # where there is no normalisation
        up = side(f"{one.name} up", one.up)
        return up, None if one.down is None else side(f"{one.name} down", one.down)

    def judge(self, shifts: YieldShifts, names: Sequence[str] | None = None) -> Solution:
        """Pulls and significance, or coefficients and uncertainty, of filled bins."""
        used = shifts if names is None else shifts.restrict(names)
        s, b = shifts.yields(signal=True), shifts.yields(signal=False)
        of, figure = (counts_of, root_of) if self.goal == "discovery" else (derivatives_of, uncertainty_of)
        found = of(AMS2(), s, b, used).lowest()
        return Solution(found.theta, figure(float(found.objective)))

    def bent(self, shifts: YieldShifts) -> set[str]:
        """Systematics that do not move the background of filled bins as much down as up, by more than noise."""
        wide = np.arange(0, shifts.edges.size - 1, WIDE)  # events that cross an edge of a narrow bin are noise

        def add(values: Array) -> Array:
            return np.asarray(np.add.reduceat(values, wide))

        b, variance = (add(values) for values in class_sums(shifts.nominal, signal=False)[:2])
        out = set()
        for name, (up, down) in zip(shifts.up, shifts.background_shifts(), strict=True):
            even, odd = np.square(add(up + down)), np.square(add(up - down))
            # Samples of their own have the variance of up and of down, and four times that of the nominal background.
            if (even / b).sum() > BENT**2 * (odd / b).sum() and (even / (6 * variance)).sum() > 2 * b.size:
                out.add(name)
        return out


def bin_edges(score: Array, signal: BoolArray, weight: Array) -> Array:
    """Edges between which signal and background, each as one, are spread evenly; bins with little background merge."""
    order = np.argsort(score, kind="stable")
    ranked, positive = score[order], np.maximum(weight, 0.0)[order]
    mixture = np.zeros(score.size)
    for members in (signal[order], ~signal[order]):
        mixture[members] = positive[members] / positive[members].sum()
    at = np.searchsorted(np.cumsum(mixture), np.linspace(0, 2, N_BINS + 1)[1:-1])
    edges = np.unique(ranked[np.minimum(at, score.size - 1)])
    edges = edges[edges > ranked[0]]  # no bin is empty
    cell = np.searchsorted(edges, score[~signal], side="right")
    first, second = (np.bincount(cell, weight[~signal] ** p, minlength=edges.size + 1) for p in (1, 2))
    kept: list[float] = []
    sums = np.zeros(2)
    for k in range(edges.size, -1, -1):  # from the highest scores down, where background is rare
        sums += first[k], second[k]
        if k and sums[0] > 0 and sums[0] ** 2 >= MIN_EFFECTIVE * sums[1]:
            kept.append(float(edges[k - 1]))
            sums[:] = 0
    return np.array([-np.inf, *kept[::-1], np.inf])
