"""The best cut on modelled yields: the rule "model".

The highest point of a measured curve follows its noise. Here the yields are modelled by smooth curves instead, in two
views of the same ranked sample that fail in different ways:

* Signal and background against the logarithm of the selected fraction of events. Both are smooth, so the view needs
  few background events; but a smooth curve over all events can be wrong at the cut.
* Signal against the background's efficiency. For two Gaussians the logarithm of its density is quadratic, whatever
  monotone function of them the score is; but the background is read off, with its noise.

Each differential yield is the width of a cell times the exponential of a penalised spline, fitted as the mean of a
Poisson count times the weight of one event there, since weights can change by orders of magnitude along the score. The
cut keeps the geometric mean of the fractions that are best in the two views: the more effective
background events it keeps, the more the second view is trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from fivesigma._types import Array, BoolArray, IntArray
from fivesigma.significance import Utility

MIN_EVENTS = 30.0  # effective events of each class below which nothing is modelled
MIN_CELLS = 12  # cells below which nothing is modelled: the score has few distinct values
_CELLS = 256
_FIRST = 10  # events in the tightest cell of the first view
_FIRST_SCALE = 10.0  # effective events whose mean weight is believed
_FIRST_BACKGROUND = 3.0  # effective background events in the tightest cell of the second view
_TRUST = 50.0  # effective background events at the cut with which both views have the same weight
_STEPS = 50  # of Newton's method; about ten are needed


Variances = Callable[[IntArray], tuple[Array, Array]]


class _Smoothness(NamedTuple):
    """A cubic spline: distance of its knots, the derivative that is penalised, and how much."""

    knots: float
    derivative: int
    penalty: float


_BY_FRACTION = _Smoothness(0.5, 4, 30.0)  # without data a cubic in the logarithm of the fraction
_BY_BACKGROUND = _Smoothness(0.4, 3, 100.0)  # without data a quadratic: two Gaussians


class ModelledCurve(NamedTuple):
    """Modelled significance at some of the cuts, and the one that the rule takes.

    Attributes
    ----------
    cuts : int array
        Indices of the cuts, ascending.
    by_fraction, by_background : arrays
        Significance in the two views; NaN where a cut is not valid. They are equal if there is only the first.
    best : int
        Index of the cut that the rule takes; it is valid.
    """

    cuts: IntArray
    by_fraction: Array
    by_background: Array
    best: int


def model_curve(  # noqa: PLR0917 - the ranked sample, in the order of its columns
    s: Array, b: Array, last: IntArray, variances: Variances, valid: BoolArray, utility: Utility
) -> ModelledCurve | None:
    """Model the yields of a ranked sample, and find the best of its valid cuts.

    Parameters
    ----------
    s, b : arrays of shape (n_cuts,)
        Yields that each cut keeps, from the tightest cut to none.
    last : int array of shape (n_cuts,)
        Rank of the last event that each cut keeps.
    variances : callable
        Sums of the squared weights of signal and of background that some of the cuts keep, by their ascending indices.
    valid : bool array of shape (n_cuts,)
        Cuts that may be chosen; at least one.
    utility : Utility
        The significance.

    Returns
    -------
    ModelledCurve or None
        None if there are too few events or too few distinct scores to model.
    """
    cuts = _grid(last, valid)
    if cuts.size < MIN_CELLS:
        return None
    measured, squares = (s[cuts], b[cuts]), variances(cuts)
    if not all(t[-1] > 0 and t[-1] ** 2 >= MIN_EVENTS * q[-1] > 0 for t, q in zip(measured, squares, strict=True)):
        return None
    scales = _mean_weights(measured[0], squares[0]), _mean_weights(measured[1], squares[1])
    fraction = (last[cuts] + 1.0) / (last[-1] + 1.0)
    allowed = valid[cuts]
    first = _values(utility, *_by_fraction(fraction, measured, scales), allowed)
    signal = _by_background(measured, scales)
    second = first if signal is None else _values(utility, signal, measured[1], allowed)
    found = [int(np.nanargmax(first)), int(np.nanargmax(second))]
    count = float(np.sqrt(np.prod(measured[1][found] / scales[1][found])))
    trust = count / (count + _TRUST)
    wanted = np.log(fraction[found]) @ [1 - trust, trust]
    distance = np.where(allowed, np.abs(np.log(fraction) - wanted), np.inf)
    return ModelledCurve(cuts, first, second, int(cuts[np.argmin(distance)]))


def _grid(last: IntArray, valid: BoolArray) -> IntArray:
    """A few hundred cuts, even in the logarithm of the fraction, with the tightest and the loosest valid one."""
    cuts = np.searchsorted(last, grid_ranks(int(last[-1]) + 1)).clip(0, last.size - 1)
    first, end = int(np.argmax(valid)), valid.size - 1 - int(np.argmax(valid[::-1]))
    return np.unique(np.concatenate([cuts, [first, end, last.size - 1]]))


def _mean_weights(total: Array, squares: Array) -> Array:
    """Weight of one event at each cut: the mean, itself weighted, of those that it keeps, or of all if that is less.

    The tightest cuts have that of the first ten effective events. Where events are heavier than on average they are too
    few to be followed more closely, which was worse when tried.
    """
    least = np.sqrt(_FIRST_SCALE * squares)
    first = int(np.argmax((total >= least) & (squares > 0)))  # the last cut keeps enough
    scale = squares[first:] / np.maximum(total, least)[first:]  # negative weights may make a total small again
    return np.asarray(np.minimum(np.append(np.full(first, scale[0]), scale), scale[-1]))


def grid_ranks(n_events: int) -> IntArray:
    """Ranks of the last events of the cells, even in the logarithm of the fraction."""
    ends = np.geomspace(min(_FIRST, n_events), n_events, _CELLS) - 1
    return np.floor(ends).astype(np.intp)


def _by_fraction(fraction: Array, measured: tuple[Array, Array], scales: tuple[Array, Array]) -> tuple[Array, Array]:
    """Both yields, each a smooth function of the logarithm of the selected fraction."""
    width = np.diff(fraction, prepend=0.0)
    integral = fraction * np.log(fraction) - fraction
    mean = np.diff(integral, prepend=0.0) / width  # of the logarithm over a cell; the first one reaches down to zero
    basis, penalty = _spline(mean, _BY_FRACTION)
    s, b = (
        np.cumsum(_poisson_means(basis, penalty, np.diff(total, prepend=0.0), width, scale))
        for total, scale in zip(measured, scales, strict=True)
    )
    return s, b


def _by_background(measured: tuple[Array, Array], scales: tuple[Array, Array]) -> Array | None:
    """Signal as a smooth function of the background's efficiency, in units in which the background is Gaussian."""
    s, b = measured
    efficiency = b / b[-1]
    before = np.maximum.accumulate(np.append(_FIRST_BACKGROUND * scales[1][0] / b[-1], efficiency[:-1]))
    edges = np.append(np.flatnonzero((efficiency > before) & (efficiency < 1.0)), b.size - 1)  # cells with background
    if edges.size < MIN_CELLS:
        return None
    width = np.diff(efficiency[edges], prepend=0.0)
    height = np.exp(-0.5 * ndtri(efficiency[edges]) ** 2) / np.sqrt(2 * np.pi)
    mean = -np.diff(height, prepend=0.0) / width  # of a standard Gaussian over a cell
    basis, penalty = _spline(mean, _BY_BACKGROUND)
    rates = _poisson_means(basis, penalty, np.diff(s[edges], prepend=0.0), width, scales[0][edges])
    # A grid point between two edges keeps no more background than the edge before it, so no more signal is modelled.
    totals = np.append(0.0, np.cumsum(rates))
    signal: Array = totals[np.searchsorted(edges, np.arange(b.size), side="right")]
    return signal


def _values(utility: Utility, s: Array, b: Array, allowed: BoolArray) -> Array:
    z = np.full(s.size, np.nan)
    z[allowed] = utility.value(s[allowed], b[allowed])
    return z


def _spline(x: Array, smoothness: _Smoothness) -> tuple[Array, Array]:
    """Cubic B-splines at ascending points, and the matrix of their penalty: the integral of a squared derivative."""
    step, derivative, penalty = smoothness
    n = max(1, int(np.ceil((x[-1] - x[0]) / step)))
    position = (x - x[0]) / step
    piece = np.minimum(position.astype(np.intp), n - 1)
    t = position - piece
    pieces = ((1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, -3 * t**3 + 3 * t**2 + 3 * t + 1, t**3)
    basis = np.zeros((x.size, n + 3))
    for i, values in enumerate(pieces):
        basis[np.arange(x.size), piece + i] = values / 6
    differences = np.diff(np.eye(basis.shape[1]), n=min(derivative, basis.shape[1] - 1), axis=0)
    return basis, penalty * differences.T @ differences / step ** (2 * derivative - 1)


def _poisson_means(basis: Array, penalty: Array, yields: Array, exposure: Array, scale: Array) -> Array:
    """Means exposure * exp(spline) of yields, each a Poisson count times its scale, by Newton's method.

    The penalised likelihood is convex, also where negative weights make single yields negative: they add only to its
    linear part.
    """
    flat = exposure / scale * (yields.sum() / exposure.sum())
    pull = basis.T @ (yields / scale)

    def loss(c: Array) -> tuple[float, Array]:
        means = flat * np.exp(np.clip(basis @ c, -500.0, 500.0))
        return float(means.sum() - pull @ c + 0.5 * c @ penalty @ c), means

    c = np.zeros(basis.shape[1])
    now, means = loss(c)
    for _ in range(_STEPS):
        curvature = basis.T @ (means[:, None] * basis) + penalty
        curvature[np.diag_indices_from(curvature)] += 1e-10 * np.trace(curvature)
        step = np.linalg.solve(curvature, basis.T @ means - pull + penalty @ c)
        size = 1.0
        while (new := loss(c - size * step))[0] > now and size > 1e-9:
            size /= 2
        if now - new[0] < 1e-9 * abs(now):
            break
        c, (now, means) = c - size * step, new
    return means * scale
