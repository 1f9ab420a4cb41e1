"""Smooth curves for the yields of a ranked sample.

Each differential yield is the width of a cell times the exponential of a penalised spline, fitted as the mean of a
Poisson count times the weight of one event there, since weights can change by orders of magnitude along the score.
What such a curve is smooth along is a choice, and each choice is wrong somewhere:

* The selected fraction of events, along its logarithm and along its Gaussian quantile. The logarithm resolves the
  purest events, but squeezes all others into its end, where the signal vanishes. The quantile resolves both ends, and a
  Gaussian of each class is almost straight; but the purest events get little of it. The geometric mean of the two fits
  is as good as the better one.
* The background's efficiency, for the signal. For two Gaussians the logarithm of its density is quadratic, whatever
  monotone function of them the score is; but the background is read off, with its noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh
from scipy.ndimage import gaussian_filter1d
from scipy.special import ndtri

from fivesigma._types import Array

MIN_EVENTS = 30.0  # effective events of each class below which nothing is modelled
MIN_CELLS = 12  # cells below which nothing is modelled: the score has few distinct values
_CONTRADICTION = 4.0  # standard errors of the running yields beyond which a model is wrong
_FIRST_SCALE = 10.0  # effective events whose mean weight is believed
_FIRST_BACKGROUND = 3.0  # effective background events in the tightest cell along the background's efficiency
_STEPS = 50  # of Newton's method; about ten are needed
_WIDTH = 0.045  # of the kernel, as a share of the range of the coordinate
NOISE = 0.3  # share of the noise that averages keep, so that they give little away in sample
_POINTS = 1024
_SMALLEST_RATIO = 0.05  # of a varied background to the nominal one, where it is averaged


class _Smoothness(NamedTuple):
    """A cubic spline: distance of its knots, the derivative that is penalised, and how much."""

    knots: float
    derivative: int
    penalty: float


_BY_LOGARITHM = _Smoothness(0.5, 4, 30.0)  # without data a cubic in the logarithm of the fraction
_BY_QUANTILE = _Smoothness(0.4, 3, 30.0)  # without data a quadratic
_BY_BACKGROUND = _Smoothness(0.4, 3, 100.0)  # without data a quadratic: two Gaussians
_OF_SHARES = _Smoothness(0.3, 3, 1.0)  # without data a quadratic: a Gaussian that moves and widens


@dataclass(frozen=True, eq=False)
class RankedYields:
    """Yields of a ranked sample at some cuts, from the tightest to the one that keeps all events."""

    fraction: Array  # (n_cuts,): share of all events that each cut keeps; the last is one
    s: Array  # (n_cuts,): signal, background, and the sums of their squared weights
    b: Array
    s2: Array
    b2: Array

    @property
    def can_be_modelled(self) -> bool:
        """Whether there are enough cells, and enough effective events of each class."""
        totals = ((self.s[-1], self.s2[-1]), (self.b[-1], self.b2[-1]))
        return self.fraction.size >= MIN_CELLS and all(t > 0 and t**2 >= MIN_EVENTS * q > 0 for t, q in totals)

    @cached_property
    def signal_weight(self) -> Array:
        """Weight of one signal event at each cut."""
        return _mean_weights(self.s, self.s2)

    @cached_property
    def background_weight(self) -> Array:
        """Weight of one background event at each cut."""
        return _mean_weights(self.b, self.b2)

    def by_fraction(self) -> tuple[Array, Array]:
        """Both yields, each a smooth function of the selected fraction."""
        return self._along_fraction(self.s, self.signal_weight), self.background_by_fraction()

    def background_by_fraction(self) -> Array:
        """The background alone."""
        return self._along_fraction(self.b, self.background_weight)

    @cached_property
    def _splines(self) -> list[tuple[Array, Array]]:
        width = np.diff(self.fraction, prepend=0.0)
        logarithm = np.diff(self.fraction * np.log(self.fraction) - self.fraction, prepend=0.0) / width
        return [_spline(logarithm, _BY_LOGARITHM), _spline(_mean_quantiles(self.fraction), _BY_QUANTILE)]

    def _along_fraction(self, total: Array, weight: Array) -> Array:
        width = np.diff(self.fraction, prepend=0.0)
        fits = [_running_fit(*spline, total, width, weight) for spline in self._splines]
        return np.asarray(np.sqrt(np.prod(fits, axis=0)))

    def contradict(self, s: Array, b: Array) -> bool:
        """Whether modelled yields are wrong by four standard errors somewhere, where 30 effective events are kept."""
        for total, squares, modelled in ((self.s, self.s2, s), (self.b, self.b2, b)):
            enough = (total > 0) & (total**2 >= MIN_EVENTS * squares)
            if ((total - modelled) ** 2 > _CONTRADICTION**2 * squares)[enough].any():
                return True
        return False

    def by_background(self) -> Array | None:
        """Signal as a smooth function of the background's efficiency; None if few cells have background."""
        efficiency = self.b / self.b[-1]
        least = _FIRST_BACKGROUND * self.background_weight[0] / self.b[-1]
        before = np.maximum.accumulate(np.append(least, efficiency[:-1]))
        edges = np.append(np.flatnonzero((efficiency > before) & (efficiency < 1.0)), self.b.size - 1)
        if edges.size < MIN_CELLS:
            return None
        basis, penalty = _spline(_mean_quantiles(efficiency[edges]), _BY_BACKGROUND)
        width = np.diff(efficiency[edges], prepend=0.0)
        totals = _running_fit(basis, penalty, self.s[edges], width, self.signal_weight[edges])
        # A cut between two edges keeps no more background than the edge before it, so no more signal is modelled.
        return np.asarray(np.append(0.0, totals)[np.searchsorted(edges, np.arange(self.b.size), side="right")])


def smooth_shares(measured: RankedYields, shifts: Array) -> tuple[Array, Array]:
    """Running shifts of the background as shares of it, with as much of their noise taken out as there is.

    The share of each cell is a penalised spline of the Gaussian quantile of the background's efficiency, by weighted
    least squares. How smooth it is, each systematic decides by itself, by generalised cross-validation: other weights
    of the same events have hardly any noise and are followed closely, while scores that move carry events across a cut
    both ways.
    """
    total = measured.background_by_fraction()
    b = np.diff(total, prepend=0.0)
    weight = b / measured.background_weight
    basis, penalty = _spline(_mean_quantiles(total / total[-1]), _OF_SHARES)
    root = np.sqrt(weight)[:, None]
    gram = basis.T @ (weight[:, None] * basis)
    gram[np.diag_indices_from(gram)] += 1e-9 * np.trace(gram) / len(gram)
    # In the basis of Demmler and Reinsch both matrices are diagonal, whatever the strength of the penalty.
    values, vectors = eigh(penalty, gram)
    values = values.clip(0.0)
    own = basis @ vectors
    share = np.diff(shifts, axis=0, prepend=0.0) / b[:, None]
    coefficients = own.T @ (weight[:, None] * share)
    best = np.full(shifts.shape[1], np.inf)
    smooth, variance = np.zeros((2, *share.shape))
    running = np.cumsum(b[:, None] * own, axis=0) / total[:, None]
    for strength in np.geomspace(1e-9, 1e6, 46) / float(np.median(values)):
        shrunk = 1 / (1 + strength * values)
        fitted = own @ (shrunk[:, None] * coefficients)
        freedom = b.size - shrunk.sum()
        noise = np.square(root * (share - fitted)).sum(axis=0) / freedom
        better = noise / freedom < best
        best[better] = noise[better] / freedom
        smooth[:, better] = running @ (shrunk[:, None] * coefficients[:, better])
        variance[:, better] = (np.square(running) @ shrunk)[:, None] * noise[better]
    return smooth, variance


def _mean_weights(total: Array, squares: Array) -> Array:
    """Weight of one event at each cut: the mean, itself weighted, of those that it keeps, or of all if that is less.

    The tightest cuts have that of the first ten effective events. Where events are heavier than on average they are too
    few to be followed more closely, which was worse when tried.
    """
    least = np.sqrt(_FIRST_SCALE * squares)
    first = int(np.argmax((total >= least) & (squares > 0)))  # the last cut keeps enough
    scale = squares[first:] / np.maximum(total, least)[first:]  # negative weights may make a total small again
    return np.asarray(np.minimum(np.append(np.full(first, scale[0]), scale), scale[-1]))


def _mean_quantiles(share: Array) -> Array:
    """Mean of a standard Gaussian over the cells between ascending shares; the first one reaches down to zero."""
    height = np.exp(-0.5 * ndtri(share) ** 2) / np.sqrt(2 * np.pi)
    return np.asarray(-np.diff(height, prepend=0.0) / np.diff(share, prepend=0.0))


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


def _running_fit(basis: Array, penalty: Array, total: Array, width: Array, weight: Array) -> Array:
    """Running sums of the means that fit those of the yields."""
    return np.asarray(np.cumsum(_poisson_means(basis, penalty, np.diff(total, prepend=0.0), width, weight)))


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


class MovingAverage(NamedTuple):
    """Takes most of the noise out of running sums.

    Their logarithms are smoothed along the share of all yields that they are. The coordinate is even in the share and
    in its logarithm, as the candidate edges are: the kernel averages over a few per cent of the events in the bulk and
    over less than an e-fold where few are left.
    """

    first: int  # edge from which there is signal and background
    coordinate: Array

    @classmethod
    def of(cls, s: Array, b: Array) -> MovingAverage | None:
        """Along running yields, of which the first are zero; None if one step holds everything."""
        s, b = np.maximum.accumulate(s), np.maximum.accumulate(b)
        first = int(np.argmax((s > 0) & (b > 0)))
        share = s[first:] / s[-1] / 2 + b[first:] / b[-1] / 2 if s[first] > 0 and b[first] > 0 else np.ones(1)
        return None if share[0] == 1 else cls(first, share - np.log(share) / np.log(share[0]))

    def __call__(self, running: Array, noise: float = NOISE) -> Array:
        """Running sums with a part of their noise."""
        return noise * running + (1 - noise) * self._without_noise(running)

    def shift(self, running: Array, shift: Array, noise: float = NOISE) -> Array:
        """Running shift of such sums with a part of its noise: log(1 + shift / running) is smoothed in the same way."""
        rising = np.maximum.accumulate(running)[self.first :]
        ratio = np.maximum(1.0 + shift[self.first :] / rising, _SMALLEST_RATIO)
        smooth = shift.copy()
        smooth[self.first :] = self._without_noise(running)[self.first :] * np.expm1(self._filter(np.log(ratio)))
        return noise * shift + (1 - noise) * smooth

    def _without_noise(self, running: Array) -> Array:
        rising = np.maximum.accumulate(running)
        rising[self.first :] = np.exp(self._filter(np.log(rising[self.first :])))
        np.maximum.accumulate(rising, out=rising)  # rounding must not make them fall
        return rising

    def _filter(self, logs: Array) -> Array:
        even = np.linspace(self.coordinate[0], self.coordinate[-1], _POINTS)
        on_even = np.interp(even, self.coordinate, logs)
        filtered: Array = gaussian_filter1d(on_even, _WIDTH * even.size, mode="nearest")
        return np.interp(self.coordinate, even, filtered)
