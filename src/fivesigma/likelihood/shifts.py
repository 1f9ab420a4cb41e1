"""Systematic variations: how far yields move, and the significance when the background may move with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._tools.summary import Shown, Summary
from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.errors import InputError, did_you_mean, require_known
from fivesigma.likelihood.profile import CONSTRAINED, Counts, Derivatives, Freedom, OwnUncertainty
from fivesigma.scored.scored_events import ScoredEvents, as_scored
from fivesigma.significance import AMS2, Utility
from fivesigma.yields import (
    Processes,
    ProcessYields,
    check_weights,
    class_sums,
    number_processes,
    process_sums,
    process_yields,
)

_CERTAIN = 5.0  # standard errors by which scores tell signal from background beyond doubt
_LARGE = 0.5  # share of the yield of a process by which one standard deviation hardly moves it


@dataclass(frozen=True)
class Varied:
    """Events one standard deviation up or down: other scores, other weights, or both, or another sample.

    Attributes
    ----------
    score, weight : array-like of shape (n_events,), optional
        Of the same events in the same order; what is not given is as in the nominal events.
    y : array-like, optional
        Labels. If they are given, this is a sample of its own with other events, and score and weight are theirs. A
        process that it does not contain is as in the nominal events.
    process : array-like, optional
        Name of the process of each event of a sample of its own, if the nominal events have processes.

    Examples
    --------
    >>> import numpy as np
    >>> from fivesigma import Varied
    >>> score = np.array([0.2, 0.9])
    >>> systematics = {"energy": (Varied(score=score + 0.01), Varied(score=score - 0.01))}
    """

    score: ArrayLike | None = None
    weight: ArrayLike | None = None
    y: ArrayLike | None = None
    process: ArrayLike | None = None


@dataclass(frozen=True)
class Normalisation:
    """An uncertain yield: the named processes move together, in all categories by the same fraction.

    Attributes
    ----------
    process : str or sequence of str
        Names of the processes.
    fraction : float or None
        One standard deviation, as a share of the yield. None: the yield is free, and only the data measure it, as
        pyhf's ``normfactor``.

    Examples
    --------
    >>> from fivesigma.likelihood.shifts import Normalisation
    >>> Normalisation("ttbar", 0.06)
    Normalisation(process=('ttbar',), fraction=0.06)
    >>> Normalisation(["W", "Z"], None).free
    True
    """

    process: str | Sequence[str]
    fraction: float | None

    def __post_init__(self) -> None:
        names = (self.process,) if isinstance(self.process, str) else tuple(map(str, self.process))
        if not names:
            raise InputError("a Normalisation must name at least one process, got none")
        object.__setattr__(self, "process", names)  # the dataclass is frozen
        if self.fraction is not None and not 0 < self.fraction <= 1:
            raise InputError(
                f"the fraction of a Normalisation must be > 0 and at most 1, got {self.fraction!r}; a yield that is "
                "less certain than that is free: give None"
            )

    @property
    def free(self) -> bool:
        """Whether it has no constraint."""
        return self.fraction is None

    def check(self, name: str, processes: Mapping[str, bool]) -> None:
        """Refuse processes that there are not, and a free signal; `processes` says which ones are signal."""
        for process in self.process:
            what = f"systematic {name!r} scales the process {process!r}, of which there are no events"
            require_known(process, processes, what)
            if self.free and processes[process]:
                raise InputError(
                    f"systematic {name!r} leaves the signal {process!r} free, which the strength of the signal does "
                    "already; name backgrounds, or give a fraction"
                )


#: The events one standard deviation up and down, where without the latter yields mirror those of the former; or an
#: uncertain yield of some processes.
Systematic = tuple[Varied, Varied | None] | Normalisation
Systematics = Mapping[str, Systematic]


@dataclass(frozen=True, repr=False, eq=False)
class YieldShifts(Shown):
    """Yields by process and category, nominal and under each systematic uncertainty.

    Attributes
    ----------
    edges : array of shape (n_categories + 1,)
        As in `Categories`; a cut is one category.
    nominal : mapping of str to ProcessYields
        By process.
    up, down : mapping of str to mapping of str to array of shape (n_categories,)
        Yields by systematic and process.
    free : mapping of str to tuple of str
        Systematics without a constraint: the processes that a free normalisation scales; none for other variations.
    noise : array of shape (n_categories,) or None
        Variance of the background shifts of all systematics from the statistics of the varied events, which no fit
        knows of; None where nothing is varied but yields.

    Examples
    --------
    >>> import numpy as np
    >>> from fivesigma import Normalisation, yield_shifts
    >>> shifts = yield_shifts([0, 1, np.inf], [1.5, 1.5, 0.5], [1, 0, 0], [5.0, 10.0, 900.0],
    ...                       {"b": Normalisation("b", 0.2)}, process=["s", "b", "b"])
    >>> [(name, round(z, 3)) for name, z in shifts.waterfall()][:2]
    [('known background', 1.471), ('b', 1.462)]
    """

    edges: Array
    nominal: Mapping[str, ProcessYields]
    up: Mapping[str, Mapping[str, Array]]
    down: Mapping[str, Mapping[str, Array]]
    free: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    noise: Array | None = None

    def _summary(self) -> Summary:
        """How far each systematic moves signal and background in all, as `repr` and notebooks show it."""
        shares = []
        for signal in (True, False):
            total = float(self.yields(signal=signal).sum())
            moved = self.shifts_of(signal=signal).sum(axis=2)
            shares.append(100 * moved / total if total else np.full(moved.shape, np.nan))
        columns = np.concatenate(shares, axis=1)
        rows = [
            (name, *("-" if np.isnan(share) else f"{share:+.2f}%" for share in row))
            for name, row in zip(self.up, columns, strict=True)
        ]
        n = self.edges.size - 1
        return Summary(
            f"YieldShifts: {len(rows)} systematic{'s' * (len(rows) != 1)}, {n} categor{'y' if n == 1 else 'ies'}",
            ("systematic", "s up", "s down", "b up", "b down"),
            rows,
            [f"significance {self.significance:.4f}, {self.known_background:.4f} if the background were known"],
        )

    def yields(self, *, signal: bool, of: Mapping[str, Array] | None = None) -> Array:
        """Signal or background of each category, nominal or of one variation."""
        if of is None:
            return class_sums(self.nominal, signal=signal)[0]
        return np.asarray(np.sum([of[name] for name, rows in self.nominal.items() if rows.signal is signal], axis=0))

    def restrict(self, names: Iterable[str]) -> YieldShifts:
        """The same with some of the systematics."""
        return replace(self, up={name: self.up[name] for name in names})

    def moves(self, processes: Iterable[str]) -> Array:
        """How far each systematic, up and down, moves the sum of processes: (n_systematics, 2, n_categories)."""
        keys, zero = list(processes), np.zeros(self.edges.size - 1)
        nominal = np.sum([zero, *(self.nominal[key].sum_of_weights for key in keys)], axis=0)
        moved = [
            [np.sum([zero, *(side[name][key] for key in keys)], axis=0) - nominal for side in (self.up, self.down)]
            for name in self.up
        ]
        return np.array(moved).reshape(-1, 2, zero.size)

    def shifts_of(self, *, signal: bool) -> Array:
        """How far each systematic moves signal or background of each category, as `moves` has it."""
        return self.moves(name for name, rows in self.nominal.items() if rows.signal is signal)

    def background_shifts(self) -> Array:
        """How far each systematic moves the background of each category, as `moves` has it."""
        return self.shifts_of(signal=False)

    def constraints(self) -> dict[str, float]:
        """Width of each pull after the fit, over the width of its constraint: what the data add to what was known.

        From the Hessian of the likelihood in the strength of the signal and all pulls, at a strength of one. The width
        of a free systematic is in units of its variation. Less than a half means that the data measure the systematic
        better than its constraint, so that one pull for all processes and categories must be right.

        Examples
        --------
        >>> import numpy as np
        >>> from fivesigma import Normalisation
        >>> from fivesigma.likelihood.shifts import yield_shifts
        >>> y, score = np.array([1, 0, 0]), np.array([1.0, 1.0, 0.0])
        >>> shifts = yield_shifts([0, 0.5, np.inf], score, y, [10.0, 100.0, 10_000.0],
        ...                       {"b": Normalisation("b", 0.1)}, process=["s", "b", "b"])
        >>> round(shifts.constraints()["b"], 4)
        0.0995
        """
        at = derivatives_of(AMS2(), self.yields(signal=True), self.yields(signal=False), self)
        rows = np.vstack([at.s, at.delta])
        hessian = (rows / at.n) @ rows.T + np.diag(np.append(0.0, at.constraint))
        return dict(zip(self.up, np.sqrt(np.diag(np.linalg.pinv(hessian))[1:]).tolist(), strict=True))

    def freedom(self, others: int = 0) -> Freedom:
        """Which pulls have no constraint, with `others` constrained rows at the end."""
        scales = np.array([k for k, name in enumerate(self.up) if self.free.get(name)], dtype=np.intp)
        return Freedom(np.array([float(name not in self.free) for name in self.up] + [1.0] * others), scales)

    def scaled_shifts(self, others: int = 0) -> Array | None:
        """Background shifts of the processes that free normalisations scale, with `others` rows of zeros at the end.

        Of shape (2, n_scales, n_systematics, n_categories); None if nothing is scaled.
        """
        scales = [name for name in self.up if self.free.get(name)]
        if not scales:
            return None
        parts = np.array([self.moves(self.free[scale]) for scale in scales])
        for k, scale in enumerate(scales):
            parts[k, list(self.up).index(scale)] = 0.0
        return np.pad(np.moveaxis(parts, 2, 0), ((0, 0), (0, 0), (0, others), (0, 0)))

    def vary_in_shape(self) -> bool:
        """Whether a variation moves the categories of a process by different shares, as varied events do."""
        for key, rows in self.nominal.items():
            filled = rows.sum_of_weights > 0
            share = self.moves([key])[..., filled] / rows.sum_of_weights[filled]
            if share.size and np.ptp(share, axis=-1).max() > 1e-9:
                return True
        return False

    def check(self) -> tuple[str, ...]:
        """Refuse variations that move the background by more than itself; return notes on the others."""
        b, notes = self.yields(signal=False), []
        for name, sides in zip(self.up, self.background_shifts(), strict=True):
            for side, shift in zip(("up", "down"), sides, strict=True):
                if abs(shift.sum()) > b.sum():
                    raise InputError(
                        f"{name} {side} moves the background from {b.sum():g} to {b.sum() + shift.sum():g}, by more "
                        "than itself; one standard deviation cannot be that large: check the weights of the variation"
                    )
            notes += _notes_of(name, *sides)
        return tuple(notes)

    def notes(self) -> tuple[str, ...]:
        """Return a sentence for each variation that says little or looks odd."""
        b, notes = self.yields(signal=False), []
        of_all = np.array([self.moves([key]) for key in self.nominal])
        for k, (name, sides) in enumerate(zip(self.up, self.background_shifts(), strict=True)):
            if not of_all[:, k].any():
                notes.append(f"systematic {name!r} is identical to the nominal events: it changes nothing")
                continue
            notes += _notes_of(name, *sides)
            if name not in self.free:
                notes += self.large_moves(name)
            for side, shift in zip(("up", "down"), sides, strict=True):
                negative = np.flatnonzero((b > 0) & (b + shift < 0))
                if negative.size:
                    at = int(negative[0])
                    notes.append(
                        f"{name} {side} makes the background of category {at} negative, {b[at] + shift[at]:.3g} of "
                        f"{b[at]:.3g}: too few events for this variation"
                    )
        return tuple(notes)

    def large_moves(self, name: str) -> list[str]:
        """Return a sentence for each process whose yield moves by more than half."""
        out = []
        for key, rows in self.nominal.items():
            total = float(rows.sum_of_weights.sum())
            for side, moved in (("up", self.up), ("down", self.down)):
                to = float(moved[name][key].sum())
                if total > 0 and abs(to - total) > _LARGE * total:
                    out.append(
                        f"{name} {side} moves the yield of {key!r} from {total:.4g} to {to:.4g}: check that no events "
                        "of the variation are missing"
                    )
        return out

    def waterfall(self, goal: str = "discovery") -> list[tuple[str, float]]:
        """From the significance of a known background to the one that a fit will find, one uncertainty after the other.

        Parameters
        ----------
        goal : {"discovery", "measurement"}, default="discovery"
            The significance, or the uncertainty of the signal strength mu at mu = 1.

        Returns
        -------
        list of (str, float)
            The significance or uncertainty after each step: ``"known background"``, every systematic, the one that
            costs most by itself first, and ``"simulation"``, the statistics of the simulated background as pyhf's
            ``staterror``.
        """
        variance = class_sums(self.nominal, signal=False)[1]
        alone = {name: self.restrict([name]).value(goal) for name in self.up}
        order = sorted(self.up, key=alone.__getitem__, reverse=goal == "measurement")
        steps = [self.restrict(order[:k]).value(goal) for k in range(len(order) + 1)]
        names = ["known background", *order, "simulation"]
        return list(zip(names, [*steps, self.restrict(order).value(goal, variance)], strict=True))

    @property
    def known_background(self) -> float:
        """Significance without the systematic uncertainties."""
        return self.restrict([]).value()

    @property
    def significance(self) -> float:
        """Significance with them; see `profiled_significance`."""
        return self.value()

    def value(self, goal: str = "discovery", variance: Array | None = None) -> float:
        """Significance or uncertainty of mu, with the statistics of the simulation if their `variance` is given."""
        yields = self.yields(signal=True), self.yields(signal=False)
        if goal == "measurement":
            return derivatives_of(AMS2(), *yields, self, variance).uncertainty
        return counts_of(AMS2(), *yields, self, variance).significance


def counts_of(
    utility: Utility, s: Array, b: Array, shifts: YieldShifts | None, variance: Array | None = None
) -> Counts:
    """What the likelihood needs of the valid categories; `variance` are squared weights, if these are profiled too."""
    own = OwnUncertainty.of(utility)
    valid = (s >= 0) & (b > 0)
    moved, freedom, scaled = np.zeros((0, 2, b.size)), CONSTRAINED, None
    if shifts is not None:
        moved, others = shifts.background_shifts(), int(own.uncertain)
        freedom, scaled = shifts.freedom(others), shifts.scaled_shifts(others)
    if own.uncertain:
        size = own.fraction * b + own.constant
        moved = np.concatenate([moved, [[size, -size]]])
    up, down = moved[:, 0, valid], moved[:, 1, valid]
    total = b[valid] + own.offset
    relative = None if variance is None else variance[valid] / total**2
    scaled = None if scaled is None else scaled[..., valid]
    return Counts(s[valid] + total, total, up, down, relative, freedom, scaled)


def derivatives_of(
    utility: Utility, s: Array, b: Array, shifts: YieldShifts | None, variance: Array | None = None
) -> Derivatives:
    """What the uncertainty of the signal strength needs of the valid categories; parameters as in `counts_of`."""
    own = OwnUncertainty.beside(utility)
    valid = (s >= 0) & (b > 0)
    moved = np.zeros((0, 2, b.size)) if shifts is None else shifts.moves(shifts.nominal)
    delta = (moved[:, 0] - moved[:, 1]) / 2
    if own.uncertain:
        delta = np.concatenate([delta, [own.fraction * b + own.constant]])
    constraint = 1.0 if shifts is None else shifts.freedom(int(own.uncertain)).constraint
    n = (s + b)[valid] + own.offset + (0.0 if variance is None else variance[valid])
    return Derivatives(s[valid], n, delta[:, valid], np.broadcast_to(constraint, len(delta)))


def yield_shifts(
    edges: ArrayLike,
    score: ArrayLike | ScoredEvents,
    y: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    systematics: Systematics | None = None,
    *,
    free: Iterable[str] = (),
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
    systematics : mapping of str to (Varied, Varied or None) or Normalisation
        For each name the events one standard deviation up and down, where without the latter yields move down by as
        much as they move up; or an uncertain yield of some processes.
    free : iterable of str, default=()
        Names of systematics that have no constraint: only the categories measure them.
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
    scored = as_scored(score, y, sample_weight, process, pos_label)
    events = _Nominal(scored, number_processes(scored.arrays()[1], scored.process))
    n_categories = limits.size - 1

    def assign(values: AnyArray) -> IntArray:
        category = np.searchsorted(limits, values, side="right") - 1
        category[(category == n_categories) & (limits[-1] < np.inf)] = -1
        return np.minimum(category, n_categories - 1)

    values, weight, processes = events.resolve("nominal", Varied())
    unmoved = assign(values)
    nominal = process_yields(unmoved, n_categories, weight, processes)

    noise: list[Array] = []

    def summed(category: IntArray, values: Array) -> Array:
        return np.bincount(category + 1, values, minlength=n_categories + 1)[1:].astype(np.float64, copy=False)

    def moved(name: str, varied: Varied, share: float = 0.5) -> dict[str, Array]:
        values, other, of = events.resolve(name, varied)
        category = unmoved if varied.score is None else assign(values)
        sums = process_sums(category, n_categories, other, of)
        before = ~processes.signal[processes.codes] & np.isin(processes.codes, np.unique(of.codes))
        after = ~of.signal[of.codes]
        variance = summed(unmoved[before], weight[before] ** 2) + summed(category[after], other[after] ** 2)
        if varied.y is None:  # what cancels in the same events has none
            stay = after & (category == unmoved)
            variance -= 2 * summed(category[stay], (weight * other)[stay])
        noise.append(share * variance.clip(0.0))
        # A sample of its own need not have all processes.
        events_of = np.bincount(of.codes, minlength=len(nominal))
        return {
            key: sums[i] if events_of[i] or varied.y is None else rows.sum_of_weights
            for i, (key, rows) in enumerate(nominal.items())
        }

    up: dict[str, dict[str, Array]] = {}
    down: dict[str, dict[str, Array]] = {}
    unconstrained: dict[str, tuple[str, ...]] = {}
    free = (free,) if isinstance(free, str) else tuple(free)
    for name, value in check_systematics(systematics, free).items():
        if isinstance(value, Normalisation):
            value.check(name, {key: rows.signal for key, rows in nominal.items()})
            size = 1.0 if value.fraction is None else value.fraction
            up[name], down[name] = (
                {
                    key: rows.sum_of_weights * (1 + sign * size if key in value.process else 1.0)
                    for key, rows in nominal.items()
                }
                for sign in (1, -1)
            )
            if value.free:
                for other, taken in unconstrained.items():
                    twice = [process for process in value.process if process in taken]
                    if twice:
                        raise InputError(
                            f"systematics {other!r} and {name!r} both leave the yield of {twice[0]!r} free; no data "
                            "can tell them apart: name each process once"
                        )
                unconstrained[name] = tuple(value.process)
            continue
        above, below = value
        up[name] = moved(f"{name} up", above, 1.0 if below is None else 0.5)
        if below is None:
            down[name] = {key: 2 * rows.sum_of_weights - up[name][key] for key, rows in nominal.items()}
        else:
            down[name] = moved(f"{name} down", below)
        if name in free:
            unconstrained[name] = ()
    return YieldShifts(limits, nominal, up, down, unconstrained, np.sum(noise, axis=0) if noise else None)


def check_systematics(given: Any, free: Iterable[str], *, scored: bool = True) -> dict[str, Any]:
    """Refuse what are no systematics, `scored` or not; a normalisation that `free` names loses its fraction."""
    if not isinstance(given, Mapping):
        raise InputError(f"systematics must map names to (up, down), got {type(given).__name__}")
    out: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, Normalisation):
            out[name] = replace(value, fraction=None) if name in free else value
            continue
        if not isinstance(value, tuple | list) or len(value) != 2 or value[0] is None:
            raise InputError(
                f"systematic {name!r} must be a Normalisation or two variations, (up, down), got {type(value).__name__}"
            )
        for side, varied in zip(("up", "down"), value, strict=True):
            if scored and not isinstance(varied, Varied | None):
                raise InputError(f"{name} {side} must be Varied(score=..., weight=...), got {type(varied).__name__}")
        out[name] = (value[0], value[1])
    for name in free:
        if name not in out:
            hint = did_you_mean(str(name), list(out)) or f"; there are {', '.join(map(repr, out)) or 'none'}"
            raise InputError(f"free names {name!r}, which is no systematic{hint}")
    return out


def _notes_of(name: str, up: Array, down: Array) -> list[str]:
    """A sentence for a variation that moves no background, or the same up and down."""
    if not (up.any() or down.any()):
        return [f"systematic {name!r} moves no background: it does not change the discovery significance"]
    if np.array_equal(up, down):
        same = "moves the background up and down by the same: check that up and down were not the same file"
        return [f"systematic {name!r} {same}"]
    return []


def scaled(systematics: Systematics, signal: BoolArray, before: Array, after: Array) -> Systematics:
    """Scale the weights of variations of the same events, class by class as the nominal ones were."""
    factors = [float(after[members].sum() / before[members].sum()) for members in (signal, ~signal)]

    def scale(_: str, varied: Varied) -> Varied:
        if varied.weight is None:
            return varied  # as in the nominal events, which are scaled
        if varied.y is not None:
            raise InputError("yields cannot scale a sample of its own; scale its weights like the nominal ones before")
        weight = np.asarray(varied.weight, dtype=np.float64)
        fits = weight.shape == signal.shape  # else it is refused where it is used
        return replace(varied, weight=weight * np.where(signal, *factors) if fits else weight)

    return with_variations(systematics, scale)


def with_variations(
    systematics: Mapping[str, tuple[Any, Any] | Normalisation], change: Callable[[str, Any], Varied]
) -> dict[str, Systematic]:
    """Change every variation, given its name and what stands there; normalisations stay as they are."""
    out: dict[str, Systematic] = {}
    for name, value in systematics.items():
        if isinstance(value, Normalisation):
            out[name] = value
        else:
            up, down = value
            out[name] = change(name, up), None if down is None else change(name, down)
    return out


class _Nominal(NamedTuple):
    """The nominal events, which say what a variation leaves out."""

    scored: ScoredEvents
    processes: Processes

    def resolve(self, name: str, varied: Varied) -> tuple[AnyArray, Array, Processes]:
        """Scores, weights and processes of a variation."""
        own = varied.y is not None
        if own and (varied.score is None or varied.weight is None):
            raise InputError(f"{name} has y, so it is a sample of its own: give its score and its weight too")
        if varied.process is not None and not own:
            raise InputError(f"{name} has process but no y: give y for a sample of its own, or leave process out")
        processes = self._own(name, varied) if own else self.processes
        n_events = processes.codes.size
        score, _, nominal = self.scored.arrays()
        values = np.asarray(score if varied.score is None else varied.score)
        if values.shape != (n_events,) or np.isnan(values).any():
            raise InputError(f"{name} score must be {n_events} numbers, got shape {values.shape} or NaN")
        try:
            weight = check_weights(nominal if varied.weight is None else varied.weight, n_events)
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
        if own and _separation(score, self.processes) * _separation(values, processes) <= -(_CERTAIN**2):
            raise InputError(
                f"the signal of {name} has lower scores than its background where that of the nominal events has "
                "higher ones, or the reverse: its labels are swapped"
            )
        return values, weight, processes

    def _own(self, name: str, varied: Varied) -> Processes:
        """Processes of a sample of its own, by the numbers that they have in the nominal events."""
        labels = np.asarray(varied.y)
        if labels.ndim != 1 or labels.size == 0:
            raise InputError(f"{name} y must be one label per event, got shape {labels.shape}")
        classes = [False, True] if labels.dtype == np.bool_ else list(self.scored.classes)
        unknown = ~np.isin(labels, classes)
        if unknown.any():
            raise InputError(
                f"{name} y has the label {labels[unknown].tolist()[0]!r}; the nominal events have {classes}"
            )
        signal: BoolArray = labels == classes[1]
        named = self.scored.process is not None
        if named is (varied.process is None):
            which = "no process, which the nominal events have" if named else "process, which the nominal lack"
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
            if named and is_signal != self.processes.signal[code]:
                raise InputError(
                    f"{name} has the process {key!r} as signal or background where the nominal events do not"
                )
        return self.processes._replace(codes=codes[found.codes])


def _separation(score: AnyArray, processes: Processes) -> float:
    """How far signal has higher scores than background, in standard errors, at most `_CERTAIN`; zero without both."""
    signal = processes.signal[processes.codes]
    if not 1 < np.count_nonzero(signal) < signal.size - 1:
        return 0.0
    sides = score[signal].astype(np.float64), score[~signal].astype(np.float64)
    error = float(np.sqrt(sum(side.var() / side.size for side in sides)))
    difference = float(sides[0].mean() - sides[1].mean())
    return float(np.clip(difference / error, -_CERTAIN, _CERTAIN)) if np.isfinite(error) and error > 0 else 0.0


def profiled_significance(
    s: ArrayLike,
    b: ArrayLike,
    up: ArrayLike,
    down: ArrayLike | None = None,
    variance: ArrayLike | None = None,
    *,
    free: Iterable[int] = (),
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
    free : iterable of int, default=()
        Rows of `up` that have no constraint.

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
    rows, constraint = list(free), np.ones(len(high))
    if not all(0 <= row < len(high) for row in rows):
        raise InputError(f"free must hold rows of up, from 0 to {len(high) - 1}, got {rows!r}")
    constraint[rows] = 0.0
    return Counts((s + b)[valid], b[valid], high, low, relative, Freedom(constraint)).significance
