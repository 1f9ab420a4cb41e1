"""Edges, the sums between them, and the one score that they are on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import Array, IntArray
from fivesigma.categories.ratios import OneRatio
from fivesigma.cut.ranking import Cuts, Ranking
from fivesigma.errors import InputError
from fivesigma.likelihood.shifts import Systematics, Varied, with_variations
from fivesigma.significance import Utility
from fivesigma.yields import valid_yields


def edges_at(ranking: Cuts, cuts: IntArray) -> Array:
    """Ascending edges for cuts from the tightest to the loosest; the cut that keeps all events is minus infinity."""
    lower = np.where(cuts == ranking.last.size - 1, -np.inf, ranking.thresholds(cuts))
    return np.append(lower[::-1], np.inf)


def events_above(ranking: Ranking, edges: Array) -> IntArray:
    """Numbers of events at or above each edge, from the highest edge, which has none, to the lowest."""
    ascending = ranking.score[ranking.order[::-1]]
    above: IntArray = ascending.size - np.searchsorted(ascending, edges[:-1])
    return np.append(0, above[::-1])


def from_zero(running: Array) -> Array:
    """Running sums with a first column of zeros: what lies above the edge that keeps nothing."""
    return np.pad(running, ((0, 0), (1, 0)))


def combined_significance(utility: Utility, s: Array, b: Array, at: IntArray) -> Array:
    """Z of all categories between the columns `at` of running sums, row by row; NaN where one is not valid."""
    s, b = np.diff(s[:, at], axis=1), np.diff(b[:, at], axis=1)
    valid = valid_yields(s, b).all(axis=1)
    z = np.full(valid.size, np.nan)
    z[valid] = utility.from_objective(utility.objective(s[valid], b[valid]).sum(axis=1))
    return z


def one_score(score: ArrayLike, ratio: OneRatio | None) -> ArrayLike:
    """Scores as they are, or the ratio of class probabilities."""
    if np.ndim(score) == 2 and ratio is None:
        raise InputError(
            f"score has shape {np.shape(score)}, and the edges were chosen on one score per event; give that one"
        )
    if ratio is not None and np.ndim(score) != 2:
        raise InputError(
            f"score has shape {np.shape(score)}; the edges were chosen on class probabilities of "
            f"{', '.join(map(repr, ratio.processes))}: give these"
        )
    return score if ratio is None else ratio.of(score)


def as_one_score(systematics: Systematics | None, ratio: OneRatio | None) -> Systematics | None:
    """The same for varied events."""
    if systematics is None or ratio is None:
        return systematics

    def of(_: str, varied: Varied) -> Varied:
        return varied if varied.score is None else replace(varied, score=one_score(varied.score, ratio))

    return with_variations(systematics, of)


def valid_objective(utility: Utility, s: Array, b: Array) -> Array:
    """F of each category, zero where it is not valid."""
    valid = valid_yields(s, b)
    F = np.zeros(s.shape)
    F[valid] = utility.objective(s[valid], b[valid])
    return F
