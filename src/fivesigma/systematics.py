"""Systematic variations: how far yields move, and the significance when the background may move with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import Array
from fivesigma.errors import InputError
from fivesigma.scored import ScoredEvents, arrays_of
from fivesigma.significance.numerics import poisson_f
from fivesigma.yields import (
    ProcessYields,
    check_weights,
    class_sums,
    number_processes,
    process_yields,
    split_labels,
    valid_yields,
)

__all__ = ["Varied", "YieldShifts", "profiled_significance", "yield_shifts"]


@dataclass(frozen=True)
class Varied:
    """The events one standard deviation away: other scores, other weights, or both.

    Attributes
    ----------
    score, weight : array-like of shape (n_events,), optional
        Of the same events in the same order; what is not given is as in the nominal events.
    """

    score: ArrayLike | None = None
    weight: ArrayLike | None = None


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

    def __repr__(self) -> str:
        lines = [f"{'systematic':<20} {'s up':>8} {'s down':>8} {'b up':>8} {'b down':>8}"]
        for name in self.up:
            shifts = [
                100 * (self.yields(signal=signal, of=side[name]).sum() / self.yields(signal=signal).sum() - 1)
                for signal in (True, False)
                for side in (self.up, self.down)
            ]
            lines.append(f"{name:<20} " + " ".join(f"{shift:+7.2f}%" for shift in shifts))
        lines.append(f"significance {self.significance:.4f}, {self.known_background:.4f} if the background were known")
        return "\n".join(lines)

    def yields(self, *, signal: bool, of: Mapping[str, Array] | None = None) -> Array:
        """Signal or background of each category, nominal or of one variation."""
        if of is None:
            return class_sums(self.nominal, signal=signal)[0]
        total: Array = np.sum([of[name] for name, rows in self.nominal.items() if rows.signal is signal], axis=0)
        return total

    @property
    def known_background(self) -> float:
        """Significance without the systematic uncertainties."""
        return profiled_significance(self.yields(signal=True), self.yields(signal=False), [])

    @property
    def significance(self) -> float:
        """Significance with them; see `profiled_significance`."""
        b = self.yields(signal=False)
        up, down = ([self.yields(signal=False, of=side[name]) - b for name in side] for side in (self.up, self.down))
        return profiled_significance(self.yields(signal=True), b, up, down)


def yield_shifts(
    edges: ArrayLike,
    score: ArrayLike | ScoredEvents,
    y: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    systematics: Mapping[str, tuple[Varied, Varied | None]] | None = None,
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
    >>> from fivesigma.systematics import Varied, yield_shifts
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
    signal, _ = split_labels(y, pos_label)
    processes = number_processes(signal, process)

    def fill(name: str, varied: Varied) -> dict[str, ProcessYields]:
        values = np.asarray(score if varied.score is None else varied.score)
        if values.shape != signal.shape or np.isnan(values).any():
            raise InputError(f"{name} score must be {signal.size} numbers, got shape {values.shape} or NaN")
        weight = check_weights(sample_weight if varied.weight is None else varied.weight, signal.size)
        category = np.searchsorted(limits, values, side="right") - 1
        category[(category == limits.size - 1) & (limits[-1] < np.inf)] = -1
        return process_yields(np.minimum(category, limits.size - 2), limits.size - 1, weight, processes)

    nominal = fill("nominal", Varied())
    up: dict[str, dict[str, Array]] = {}
    down: dict[str, dict[str, Array]] = {}
    for name, (above, below) in systematics.items():
        up[name] = {key: rows.sum_of_weights for key, rows in fill(f"{name} up", above).items()}
        if below is None:
            down[name] = {key: 2 * rows.sum_of_weights - up[name][key] for key, rows in nominal.items()}
        else:
            down[name] = {key: rows.sum_of_weights for key, rows in fill(f"{name} down", below).items()}
    return YieldShifts(limits, nominal, up, down)


def profiled_significance(s: ArrayLike, b: ArrayLike, up: ArrayLike, down: ArrayLike | None = None) -> float:
    """Median discovery significance in categories whose backgrounds share Gaussian uncertainties.

    The likelihood of the Asimov counts n = s + b is maximised without signal over the pulls theta of
    m = b + sum of shift_k(theta_k), each with a Gaussian constraint of width one. With one category and one symmetric
    shift this is `GaussianBackground`, with no shift it is the sum of `AMS2`, and in general it is what pyhf finds if
    all shifts are ``histosys``: shifts are linear beyond one standard deviation and joined by a polynomial between.

    Parameters
    ----------
    s, b : array-like of shape (n_categories,)
        Yields; categories with s < 0 or b <= 0 are excluded.
    up, down : array-like of shape (n_systematics, n_categories)
        How far one standard deviation of each uncertainty moves the backgrounds; by default down is the opposite of up.

    Examples
    --------
    >>> from fivesigma import GaussianBackground
    >>> from fivesigma.systematics import profiled_significance
    >>> round(profiled_significance([10.0], [100.0], [[10.0]]), 6)
    0.695787
    >>> round(float(GaussianBackground(sigma=10.0).value(10.0, 100.0)), 6)
    0.695787
    """
    s, b = np.atleast_1d(np.asarray(s, dtype=np.float64)), np.atleast_1d(np.asarray(b, dtype=np.float64))
    valid = valid_yields(s, b)
    n, b = (s + b)[valid], b[valid]
    high = np.asarray(up, dtype=np.float64).reshape(-1, s.size)[:, valid]
    low = -high if down is None else np.asarray(down, dtype=np.float64).reshape(-1, s.size)[:, valid]

    def background(theta: Array) -> tuple[Array, Array]:
        """Shifted background, and its slope in every pull."""
        shift, slope = _interpolate(theta[:, None], high, low)
        return b + shift.sum(axis=0), slope

    def cost(theta: Array) -> float:
        m = background(theta)[0]
        return float((m * poisson_f((n - m) / m)).sum() + theta @ theta / 2) if (m > 0).all() else np.inf

    # Gauss-Newton steps always descend; halving them keeps m > 0.
    theta = np.zeros(high.shape[0])
    for _ in range(200):
        m, slope = background(theta)
        gradient = slope @ (1 - n / m) + theta
        step = np.linalg.solve((slope * (n / m**2)) @ slope.T + np.eye(theta.size), gradient)
        decrease, now, length = float(gradient @ step), cost(theta), 1.0
        if decrease <= 1e-13 * (1 + now):
            break
        while cost(theta - length * step) > now - 0.1 * length * decrease:
            length /= 2
        theta = theta - length * step
    return float(np.sqrt(2 * cost(theta)))


def _interpolate(theta: Array, up: Array, down: Array) -> tuple[Array, Array]:
    """HistFactory's additive interpolation ("code 4p") and its slope."""
    half, bend = (up - down) / 2, (up + down) / 16
    square = theta * theta
    inside = theta * (half + theta * bend * (15 + square * (-10 + 3 * square)))
    slope = half + theta * bend * (30 + square * (-40 + 18 * square))
    beyond = np.where(theta > 0, up, -down)
    within = np.abs(theta) <= 1
    return np.where(within, inside, theta * beyond), np.where(within, slope, beyond)
