"""Calibration: from the class probabilities of any classifier to the ratios of signal to background density.

A classifier that was trained with class shares ``prior`` gives p_c(x) proportional to prior_c f_c(x), if it is right.
The ratio of signal m to background is then ``Y_m (p_m / prior_m) / sum_b Y_b (p_b / prior_b)`` with the yields Y. Where
it is not quite right, a multinomial logit with that ratio as its offset corrects it by a quadratic function of all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import Array, IntArray
from fivesigma.categories.class_sample import CHUNK, ClassSample, Roles, cells_of, means, sums
from fivesigma.errors import InputError

_SMALLEST = 1e-15  # probabilities below it are rounding
_RIDGE = 0.1  # over the effective events; keeps a correction that they do not ask for near zero
_NEWTON_STEPS = 30
_CELLS = 1024
_EVENTS = 1 << 16  # of a class; more would not change the correction within its use


@dataclass(frozen=True)
class Ratios:
    """A fitted calibration; `of` gives the logarithms of signal over background density."""

    signals: IntArray  # columns of the scores
    backgrounds: IntArray
    log_prior: Array  # (n_columns,): logarithm of the class shares of the training
    log_share: Array  # (n_backgrounds,): logarithm of the share of each background column in the background's yield
    log_yield: Array  # (n_signals,): logarithm of the yield of each signal over that of the background
    # (n_columns - 1,): standardisation of the coordinates, and the range of the events that they were fitted on
    centre: Array
    scale: Array
    low: Array
    high: Array
    # (n_signals, n_terms): of the correction; one term is a constant, n_terms = 1 is no more than a prior
    coefficients: Array

    def of(self, scores: Array) -> Array:
        """Logarithm of signal over background density, yields included, of shape (n_events, n_signals)."""
        out = np.empty((scores.shape[0], self.signals.size))
        for start in range(0, scores.shape[0], CHUNK):
            part = slice(start, start + CHUNK)
            t = _coordinates(scores[part], self.signals, self.backgrounds, self.log_prior, self.log_share)
            # The correction is constant beyond the range of the events that it was fitted on.
            terms = _terms((t.clip(self.low, self.high) - self.centre) / self.scale, self.coefficients.shape[1])
            out[part] = t[:, : self.signals.size] + terms @ self.coefficients.T + self.log_yield
        return out


def _coordinates(scores: Array, signals: IntArray, backgrounds: IntArray, log_prior: Array, log_share: Array) -> Array:
    """Logarithms of p_m over the background's p, then of each further background column over the first."""
    logs = np.log(np.maximum(scores.T, _SMALLEST)) - log_prior[:, None]
    b = logs[backgrounds] + log_share[:, None]
    top = b.max(axis=0)
    background = top + np.log(np.exp(b - top).sum(axis=0))
    return np.concatenate([logs[signals] - background, b[1:] - b[0]]).T


def _terms(z: Array, n_terms: int) -> Array:
    """The terms 1, z_i, z_i z_j of the correction, or the first of them alone."""
    one = np.ones((z.shape[0], 1))
    if n_terms == 1:
        return one
    i, j = np.triu_indices(z.shape[1])
    return np.concatenate([one, z, z[:, i] * z[:, j]], axis=1)


def fit_ratios(sample: ClassSample, roles: Roles, prior: ArrayLike | None = None, *, calibrate: bool = True) -> Ratios:
    """Fit the calibration to events."""
    signals, backgrounds = roles.signal_columns, roles.background_columns
    n_signals = signals.size
    log_prior = np.zeros(len(roles.columns)) if prior is None else np.log(check_prior(prior, len(roles.columns)))
    by_name = dict(zip(sample.names, np.maximum(sample.process_yields, 0.0), strict=True))
    unnamed = sum(total for name, total in by_name.items() if name not in roles.columns)
    share = np.array([by_name.get(roles.columns[i], unnamed) for i in backgrounds])
    log_share = np.log(np.maximum(share, _SMALLEST * share.sum()) / share.sum())
    totals = sample.class_yields
    log_yield = np.log(totals[:-1] / totals[-1])
    sample = sample.thinned(_EVENTS)
    t = _coordinates(sample.scores, signals, backgrounds, log_prior, log_share)
    low, high = t.min(axis=0), t.max(axis=0)
    cell = cells_of(t, _CELLS)
    n_cells = int(cell.max()) + 1
    t_cell = means(cell, n_cells, t)
    yields = np.maximum(sums(cell, n_cells, sample)[0], 0.0)
    weight = yields / yields.sum(axis=0)  # every class counts alike
    centre = weight.sum(axis=1) @ t_cell / (n_signals + 1)
    spread = np.sqrt(weight.sum(axis=1) @ np.square(t_cell - centre) / (n_signals + 1))
    scale = np.where(spread > 0, spread, 1.0)
    squares = np.bincount(sample.classes, np.square(sample.weight), minlength=n_signals + 1)
    effective = float((np.square(sample.class_yields) / squares).min())
    n_terms = 1 + t.shape[1] + t.shape[1] * (t.shape[1] + 1) // 2 if calibrate else 1
    if calibrate or prior is None:
        coefficients = _logit(
            _terms((t_cell - centre) / scale, n_terms), t_cell[:, :n_signals], weight, _RIDGE / effective
        )
    else:
        coefficients = np.zeros((n_signals, 1))
    return Ratios(signals, backgrounds, log_prior, log_share, log_yield, centre, scale, low, high, coefficients)


def check_prior(prior: ArrayLike, n_columns: int) -> Array:
    """Return class shares, or say what is wrong with them."""
    try:
        given = np.asarray(prior, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"prior must be numbers, got {prior!r}") from None
    if given.shape != (n_columns,):
        raise InputError(f"prior has shape {given.shape}; it needs one share for each of {n_columns} processes")
    if not (np.isfinite(given).all() and (given > 0).all()):
        raise InputError(f"prior must be finite and > 0, got {given.tolist()}")
    return np.asarray(given / given.sum())


def _logit(terms: Array, offset: Array, weight: Array, ridge: float) -> Array:
    """Coefficients of a multinomial logit with an offset, by Newton's method; the last class has the logit zero."""
    n_signals, n_terms = offset.shape[1], terms.shape[1]
    beta = np.zeros((n_signals, n_terms))
    penalty = np.full(n_terms, ridge)
    penalty[0] = 1e-9
    rows = weight.sum(axis=1)

    def loss(b: Array) -> tuple[float, Array]:
        logits = np.concatenate([offset + terms @ b.T, np.zeros((offset.shape[0], 1))], axis=1)
        logits -= logits.max(axis=1, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return float((penalty * b * b).sum() / 2 - (weight * log_p).sum()), np.exp(log_p)

    value, p = loss(beta)
    for _ in range(_NEWTON_STEPS):
        gradient = (rows[:, None] * p - weight)[:, :-1].T @ terms + penalty * beta
        hessian = np.empty((n_signals, n_terms, n_signals, n_terms))
        for i in range(n_signals):
            for j in range(n_signals):
                curvature = rows * p[:, i] * ((i == j) - p[:, j])
                hessian[i, :, j] = (terms * curvature[:, None]).T @ terms
        matrix = hessian.reshape(beta.size, beta.size) + np.diag(np.tile(penalty, n_signals))
        direction = np.linalg.solve(matrix, gradient.ravel()).reshape(beta.shape)
        step = 1.0
        while step > 1e-4:
            new_value, new_p = loss(beta - step * direction)
            if new_value <= value:
                break
            step /= 2
        else:
            break
        gain = value - new_value
        beta, value, p = beta - step * direction, new_value, new_p
        if gain < 1e-10 * (1 + abs(value)):
            break
    return beta
