"""Systematic variations: how far yields move, and the significance when the background may move with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._tools.summary import Summary
from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.errors import InputError
from fivesigma.likelihood.profile import Counts, lowest
from fivesigma.scored.scored_events import ScoredEvents, arrays_of
from fivesigma.yields import (
    Processes,
    ProcessYields,
    check_weights,
    class_sums,
    number_processes,
    process_sums,
    process_yields,
    split_labels,
)

__all__ = ["Varied", "YieldShifts", "profiled_significance", "yield_shifts"]


@dataclass(frozen=True)
class Varied:
    """The events one standard deviation away: other scores, other weights, or both, or a sample of its own.

    Attributes
    ----------
    score, weight : array-like of shape (n_events,), optional
        Of the same events in the same order; what is not given is as in the nominal events.
    y : array-like, optional
        Labels. If they are given, this is a sample of its own with other events, and score and weight are theirs. A
        process that it does not contain is as in the nominal events.
    process : array-like, optional
        Name of the process of each event of a sample of its own, if the nominal events have processes.
    """

    score: ArrayLike | None = None
    weight: ArrayLike | None = None
    y: ArrayLike | None = None
    process: ArrayLike | None = None


#: For each name the events one standard deviation up and down; without the latter, yields mirror those of the former.
Systematics = Mapping[str, tuple[Varied, Varied | None]]


@dataclass(frozen=True, repr=False, eq=False)
class YieldShifts:
    """Yields by process and category, nominal and under each systematic uncertainty.

    Attributes
    ----------
    edges : array of shape (n_categories + 1,)
        As in `Categories`; a cut is one category.
    nominal : mapping of str to ProcessYields
        By process.
    up, down : mapping of str to mapping of str to array of shape (n_categories,)
        Yields by systematic and process.
    """

    edges: Array
    nominal: Mapping[str, ProcessYields]
    up: Mapping[str, Mapping[str, Array]]
    down: Mapping[str, Mapping[str, Array]]

    def _summary(self) -> Summary:
        """How far each systematic moves signal and background in all, as `repr` and notebooks show it."""
        totals = {signal: float(self.yields(signal=signal).sum()) for signal in (True, False)}
        rows = []
        for name in self.up:
            moved = [
                (float(self.yields(signal=signal, of=side[name]).sum()), totals[signal])
                for signal in (True, False)
                for side in (self.up, self.down)
            ]
            rows.append((name, *(f"{100 * (to / of - 1):+.2f}%" if of else "-" for to, of in moved)))
        n = self.edges.size - 1
        return Summary(
            f"YieldShifts: {len(rows)} systematic{'s' * (len(rows) != 1)}, {n} categor{'y' if n == 1 else 'ies'}",
            ("systematic", "s up", "s down", "b up", "b down"),
            rows,
            [f"significance {self.significance:.4f}, {self.known_background:.4f} if the background were known"],
        )

    def __repr__(self) -> str:
        return self._summary().text()

    def _repr_html_(self) -> str:
        return self._summary().html()

    def yields(self, *, signal: bool, of: Mapping[str, Array] | None = None) -> Array:
        """Signal or background of each category, nominal or of one variation."""
        if of is None:
            return class_sums(self.nominal, signal=signal)[0]
        total: Array = np.sum([of[name] for name, rows in self.nominal.items() if rows.signal is signal], axis=0)
        return total

    def background_shifts(self) -> list[tuple[Array, Array]]:
        """How far one standard deviation up and down moves the background of each category, for every systematic."""
        b = self.yields(signal=False)
        return [
            (self.yields(signal=False, of=self.up[name]) - b, self.yields(signal=False, of=self.down[name]) - b)
            for name in self.up
        ]

    @property
    def known_background(self) -> float:
        """Significance without the systematic uncertainties."""
        return profiled_significance(self.yields(signal=True), self.yields(signal=False), [])

    def waterfall(self) -> list[tuple[str, float]]:
        """From the significance of a known background to the one that a fit will find, one uncertainty after the other.

        Returns
        -------
        list of (str, float)
            The significance after each step: ``"known background"``, every systematic, the one that costs most by
            itself first, and ``"simulation"``, the statistics of the simulated background as pyhf's ``staterror``.
        """
        s, (b, variance) = self.yields(signal=True), class_sums(self.nominal, signal=False)
        shifts = dict(zip(self.up, self.background_shifts(), strict=True))
        alone = {name: profiled_significance(s, b, up, down) for name, (up, down) in shifts.items()}
        order = sorted(shifts, key=alone.__getitem__)
        up, down = ([shifts[name][i] for name in order] for i in (0, 1))
        steps = [profiled_significance(s, b, up[:k], down[:k]) for k in range(1, len(order) + 1)]
        simulation = profiled_significance(s, b, up, down, variance)
        return [
            ("known background", self.known_background),
            *zip(order, steps, strict=True),
            ("simulation", simulation),
        ]

    @property
    def significance(self) -> float:
        """Significance with them; see `profiled_significance`."""
        up, down = ([shift[i] for shift in self.background_shifts()] for i in (0, 1))
        return profiled_significance(self.yields(signal=True), self.yields(signal=False), up, down)


def yield_shifts(
    edges: ArrayLike,
    score: ArrayLike | ScoredEvents,
    y: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    systematics: Systematics | None = None,
    *,
    process: ArrayLike | None = None,
    pos_label: Any = None,
) -> YieldShifts:
    """Fill categories with the nominal and the varied events.

    Parameters
    ----------
    edges : array-like of shape (n_categories + 1,)
        Ascending, as in `Categories`; ``[cut, inf]`` for a cut.
    score, y, sample_weight : array-like of shape (n_events,)
        Nominal scores, labels and physics weights; `ScoredEvents` as `score` stand for all three.
    systematics : mapping of str to (Varied, Varied or None)
        For each name the events one standard deviation up and down. Without the latter, yields move down by as much
        as they move up.
    process : array-like of shape (n_events,), optional
        Name of the process of each event.
    pos_label : label, optional
        The signal; see `fivesigma.yields.split_labels`.

    Examples
    --------
    A cut whose background rises by 10 %:

    >>> import numpy as np
    >>> from fivesigma.likelihood.shifts import Varied, yield_shifts
    >>> y = np.repeat([1, 0], [10, 100])
    >>> weight = np.ones(110)
    >>> more = Varied(weight=np.where(y == 0, 1.1, 1.0))
    >>> shifts = yield_shifts([0.5, np.inf], np.ones(110), y, weight, {"normalisation": (more, None)})
    >>> round(shifts.known_background, 3), round(shifts.significance, 3)
    (0.984, 0.696)
    """
    limits = np.asarray(edges, dtype=np.float64)
    if limits.ndim != 1 or limits.size < 2 or not (np.diff(limits) > 0).all():
        raise InputError(f"edges must be at least two ascending numbers, got {edges!r}")
    if systematics is None:
        raise InputError("systematics is None; yield_shifts needs a mapping of names to varied events")
    score, y, sample_weight, process = arrays_of(score, y, sample_weight, process, pos_label)
    signal, classes = split_labels(y, pos_label)
    events = _Nominal(score, sample_weight, signal, classes, number_processes(signal, process), process is not None)

    n_categories = limits.size - 1

    def assign(values: AnyArray) -> IntArray:
        category = np.searchsorted(limits, values, side="right") - 1
        category[(category == n_categories) & (limits[-1] < np.inf)] = -1
        return np.minimum(category, n_categories - 1)

    values, weight, processes = events.resolve("nominal", Varied())
    unmoved = assign(values)
    nominal = process_yields(unmoved, n_categories, weight, processes)

    def moved(name: str, varied: Varied) -> dict[str, Array]:
        values, weight, processes = events.resolve(name, varied)
        sums = process_sums(unmoved if varied.score is None else assign(values), n_categories, weight, processes)
        # A sample of its own need not have all processes.
        events_of = np.bincount(processes.codes, minlength=len(nominal))
        return {
            key: sums[i] if events_of[i] or varied.y is None else rows.sum_of_weights
            for i, (key, rows) in enumerate(nominal.items())
        }

    up: dict[str, dict[str, Array]] = {}
    down: dict[str, dict[str, Array]] = {}
    for name, (above, below) in pairs_of(systematics):
        up[name] = moved(f"{name} up", above)
        if below is None:
            down[name] = {key: 2 * rows.sum_of_weights - up[name][key] for key, rows in nominal.items()}
        else:
            down[name] = moved(f"{name} down", below)
    return YieldShifts(limits, nominal, up, down)


def pairs_of(systematics: Systematics) -> Iterator[tuple[str, tuple[Varied, Varied | None]]]:
    """Names and variations, or one sentence about what stands there instead."""
    given: Any = systematics  # whatever a user has put there
    if not isinstance(given, Mapping):
        raise InputError(f"systematics must map names to (up, down), got {type(given).__name__}")
    for name, pair in given.items():
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InputError(f"systematic {name!r} must be two variations, (up, down), got {type(pair).__name__}")
        for side, varied in zip(("up", "down"), pair, strict=True):
            if not isinstance(varied, Varied) and (side == "up" or varied is not None):
                raise InputError(f"{name} {side} must be Varied(score=..., weight=...), got {type(varied).__name__}")
        yield name, (pair[0], pair[1])


def check_size(names: Iterable[str], b: Array, shifts: list[tuple[Array, Array]]) -> tuple[str, ...]:
    """Refuse variations that move the background by more than itself; return a sentence for each that moves none."""
    notes = []
    for name, (up, down) in zip(names, shifts, strict=True):
        for side, shift in (("up", up), ("down", down)):
            if abs(shift.sum()) > b.sum():
                raise InputError(
                    f"{name} {side} moves the background from {b.sum():g} to {b.sum() + shift.sum():g}, by more than "
                    "itself; one standard deviation cannot be that large: check the weights of the variation"
                )
        if not (up.any() or down.any()):
            notes.append(f"systematic {name!r} moves no background: it changes nothing")
    return tuple(notes)


def scaled(systematics: Systematics, signal: BoolArray, factor_s: float, factor_b: float) -> Systematics:
    """Scale the weights of variations of the same events by a factor for each class."""

    def scale(varied: Varied) -> Varied:
        if varied.weight is None:
            return varied  # as in the nominal events, which are scaled
        weight = np.asarray(varied.weight, dtype=np.float64)
        if varied.y is not None:
            raise InputError("yields cannot scale a sample of its own; scale its weights like the nominal ones before")
        return replace(
            varied, weight=weight * np.where(signal, factor_s, factor_b) if weight.size == signal.size else weight
        )

    return {name: (scale(up), None if down is None else scale(down)) for name, (up, down) in systematics.items()}


class _Nominal(NamedTuple):
    """The nominal events, which say what a variation leaves out."""

    score: ArrayLike
    weight: ArrayLike
    signal: BoolArray
    classes: AnyArray
    processes: Processes
    named: bool  # whether processes were given

    def resolve(self, name: str, varied: Varied) -> tuple[AnyArray, Array, Processes]:
        """Scores, weights and processes of a variation."""
        own = varied.y is not None
        if own and (varied.score is None or varied.weight is None):
            raise InputError(f"{name} has y, so it is a sample of its own: give its score and its weight too")
        if varied.process is not None and not own:
            raise InputError(f"{name} has process but no y: give y for a sample of its own, or leave process out")
        processes = self._own(name, varied) if own else self.processes
        n_events = processes.codes.size
        values = np.asarray(self.score if varied.score is None else varied.score)
        if values.shape != (n_events,) or np.isnan(values).any():
            raise InputError(f"{name} score must be {n_events} numbers, got shape {values.shape} or NaN")
        try:
            weight = check_weights(self.weight if varied.weight is None else varied.weight, n_events)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
        return values, weight, processes

    def _own(self, name: str, varied: Varied) -> Processes:
        """Processes of a sample of its own, by the numbers that they have in the nominal events."""
        labels = np.asarray(varied.y)
        if labels.ndim != 1 or labels.size == 0:
            raise InputError(f"{name} y must be one label per event, got shape {labels.shape}")
        unknown = ~np.isin(labels, self.classes)
        if unknown.any():
            seen = labels[unknown].tolist()[0]
            raise InputError(f"{name} y has the label {seen!r}; the nominal events have {self.classes.tolist()}")
        signal: BoolArray = labels == self.classes[1]
        if self.named is (varied.process is None):
            which = "no process, which the nominal events have" if self.named else "process, which the nominal lack"
            raise InputError(f"{name} has {which}: give process for both samples or for none")
        try:
            found = number_processes(signal, varied.process)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
        known = self.processes.names
        missing = [key for key in found.names if key not in known]
        if missing:
            raise InputError(
                f"{name} has the process {missing[0]!r}, which the nominal events lack: {', '.join(known)}"
            )
        codes = np.array([known.index(key) for key in found.names])
        for key, code, is_signal in zip(found.names, codes, found.signal, strict=True):
            if self.named and is_signal != self.processes.signal[code]:
                raise InputError(
                    f"{name} has the process {key!r} as signal or background where the nominal events do not"
                )
        return self.processes._replace(codes=codes[found.codes])


def profiled_significance(
    s: ArrayLike, b: ArrayLike, up: ArrayLike, down: ArrayLike | None = None, variance: ArrayLike | None = None
) -> float:
    """Median discovery significance in categories whose backgrounds share Gaussian uncertainties.

    The likelihood of the Asimov counts n = s + b is maximised without signal over the pulls theta of
    m = b + sum of shift_k(theta_k), each with a Gaussian constraint of width one. With one category and one symmetric
    shift this is `GaussianBackground`, with no shift it is the sum of `AMS2`, and in general it is what pyhf finds if
    all shifts are ``histosys``: shifts are linear beyond one standard deviation and joined by a polynomial between.

    Parameters
    ----------
    s, b : array-like of shape (n_categories,)
        Yields; categories with s < 0 or b <= 0 do not count.
    up, down : array-like of shape (n_systematics, n_categories)
        How far one standard deviation of each uncertainty moves the backgrounds; by default down is the opposite of up.
    variance : array-like of shape (n_categories,), optional
        Sum of the squared weights of the background. If it is given, the statistics of the simulation are profiled as
        well, as pyhf does with a ``staterror``.

    Examples
    --------
    >>> from fivesigma import GaussianBackground
    >>> from fivesigma.likelihood.shifts import profiled_significance
    >>> round(profiled_significance([10.0], [100.0], [[10.0]]), 6)
    0.695787
    >>> round(float(GaussianBackground(sigma=10.0).value(10.0, 100.0)), 6)
    0.695787
    """
    s, b = np.atleast_1d(np.asarray(s, dtype=np.float64)), np.atleast_1d(np.asarray(b, dtype=np.float64))
    valid = (b > 0) & (s >= 0)
    high = np.asarray(up, dtype=np.float64).reshape(-1, s.size)[:, valid]
    low = -high if down is None else np.asarray(down, dtype=np.float64).reshape(-1, s.size)[:, valid]
    relative = (
        None if variance is None else np.asarray(variance, dtype=np.float64).reshape(s.size)[valid] / b[valid] ** 2
    )
    found = lowest(Counts((s + b)[valid], b[valid], high, low, relative))
    return float(np.sqrt(2 * max(float(found.objective), 0.0)))
