"""Blending scores of several models into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls
from scipy.special import expit, logit

from fivesigma._types import Array, BoolArray

BLENDS = ("rank", "margin", "probability")
KNOTS = 2049  # quantiles that stand for a distribution of scores
_SHARES = np.linspace(0.0, 1.0, KNOTS)
TINY = 1e-7  # keeps margins finite


@dataclass(frozen=True)
class Blend:
    """A weighted mean of members' scores on a common scale: score(x) = sum over members m of w_m c_m(x)."""

    kind: str  # of `BLENDS`; a rank is the share of held-out events below a score, so that one event can be ranked
    weights: Array  # of the members; they sum to one
    knots: Sequence[Array]  # quantiles of each member's held-out scores

    @classmethod
    def fitted(cls, kind: str, scores: Sequence[Array], weights: Array | None = None) -> Blend:
        """Make a blend of members with these held-out scores; even weights by default."""
        knots = [quantiles(p, _SHARES) for p in scores]
        even = np.full(len(scores), 1.0 / len(scores))
        return cls(kind, even if weights is None else weights / weights.sum(), knots)

    def __call__(self, probabilities: Sequence[Array]) -> Array:
        """Blend members' P(signal) into a score between 0 and 1."""
        columns = self.columns(probabilities)
        mean = sum(w * c for w, c in zip(self.weights, columns, strict=True))
        return np.asarray(expit(mean) if self.kind == "margin" else mean)

    def columns(self, probabilities: Sequence[Array]) -> list[Array]:
        """Members' scores on the common scale."""
        if self.kind == "rank":
            return [_rank(p, knots, _SHARES) for p, knots in zip(probabilities, self.knots, strict=True)]
        if self.kind == "margin":
            return [np.asarray(logit(np.clip(p, TINY, 1 - TINY))) for p in probabilities]
        return list(probabilities)

    def reweighted(self, probabilities: Sequence[Array], signal: BoolArray, learner_weight: Array) -> Blend:
        """Blend with the non-negative weights that fit held-out labels best, by weighted least squares."""
        root = np.sqrt(learner_weight)
        columns = np.column_stack([*self.columns(probabilities), np.ones(signal.size), -np.ones(signal.size)])
        target = np.where(signal, 1.0, -1.0) if self.kind == "margin" else signal.astype(np.float64)
        solution, _ = nnls(columns * root[:, None], target * root)
        weights = np.asarray(solution[:-2])  # the last two are an intercept of either sign
        if not weights.sum() > 0:
            return self
        return Blend(self.kind, weights / weights.sum(), self.knots)


def quantiles(values: Array, q: Array) -> Array:
    """What ``np.quantile(values, q)`` is, faster where q are many: it sorts once."""
    ordered = np.sort(values)
    position = (ordered.size - 1) * q
    below = np.floor(position).astype(np.intp).clip(0, ordered.size - 1)
    low, high, t = ordered[below], ordered[np.minimum(below + 1, ordered.size - 1)], position - below
    # From the nearer side, so that a quantile between two equal values is that value.
    return np.asarray(np.where(t < 0.5, low + (high - low) * t, high - (high - low) * (1 - t)))


def _rank(p: Array, knots: Array, q: Array) -> Array:
    """Share of held-out events below a score, c(x) = P(p_held_out < p(x)); ties lie in the middle of their step."""
    below, above = np.searchsorted(knots, p, "left"), np.searchsorted(knots, p, "right")
    tied = above > below
    out = np.interp(p, knots, q)
    out[tied] = (q[below[tied]] + q[above[tied] - 1]) / 2
    return out
