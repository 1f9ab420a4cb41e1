"""Events ranked by their score, with the yields that every cut would keep: the work that scans and categories share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._tools.sort import CHUNK, sort_descending
from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.errors import InputError
from fivesigma.yields import check_size, check_weights, name_rows, split_labels, valid_yields


@dataclass(frozen=True, eq=False)
class Ranking:
    """Events from the highest score to the lowest.

    Attributes
    ----------
    score : array of shape (n_events,)
        In the order of the input.
    order : int array of shape (n_events,)
        Ranks to indices of the input.
    weight, signal : arrays of shape (n_events,)
        By rank.
    last : int array of shape (n_cuts,)
        Rank of the last event that each cut keeps: cuts are possible only between distinct scores.
    s, b : arrays of shape (n_cuts,)
        Yields of each cut.
    lightest, heaviest : float
        Extreme background weights.
    squares : float
        Sum of the squared background weights.
    """

    score: AnyArray
    order: IntArray
    weight: Array
    signal: BoolArray
    last: IntArray
    s: Array
    b: Array
    lightest: float
    heaviest: float
    squares: float

    @property
    def effective_background(self) -> float:
        """Effective count of all background."""
        return float(self.b[-1]) ** 2 / self.squares if self.squares > 0 else 0.0

    def effective(self, cut: int) -> float:
        """Effective background count that one cut keeps."""
        squares = float(self.variances(np.array([cut]))[1][0])
        return float(self.b[cut]) ** 2 / squares if squares > 0 else 0.0

    def thresholds(self, cuts: Any = slice(None)) -> Array:
        """Scores that ``score >= threshold`` needs for each cut: midway to the next, or the last score itself."""
        last: IntArray = self.last[cuts]
        here = self.score[self.order[last]]
        after = self.score[self.order[np.minimum(last + 1, self.score.size - 1)]]
        return between_scores(here, after)

    def variances(self, cuts: IntArray) -> tuple[Array, Array]:
        """Sums of the squared weights of signal and of background that each of the ascending `cuts` keeps."""
        ends = self.last[cuts] + 1
        starts = np.append(0, ends[:-1])
        squares, signal = np.square(self.weight[: ends[-1]]), self.signal[: ends[-1]]
        var_s = np.cumsum(np.add.reduceat(np.where(signal, squares, 0.0), starts))
        var_b = np.cumsum(np.add.reduceat(np.where(signal, 0.0, squares), starts))
        return var_s, var_b

    def valid(self, min_effective: float) -> BoolArray:
        """Cuts with s >= 0, b > 0 and an effective background count of at least `min_effective`.

        Raises
        ------
        InputError
            If no cut is valid.
        """
        check_floor(min_effective)
        valid = valid_yields(self.s, self.b)
        # Without negative weights sum w^2 <= max w * sum w, so beyond some b every cut keeps enough.
        k = int(np.searchsorted(self.b, min_effective * self.heaviest)) if self.lightest >= 0 else self.b.size
        if k:
            b2 = self.variances(np.arange(k))[1]
            valid[:k] &= (np.square(self.b[:k]) >= min_effective * (1 - 1e-9) * b2) & (b2 > 0)  # too small to square
        if not valid.any():
            refuse_all_cuts(self.s, self.b, self.variances(np.arange(self.b.size))[1], min_effective)
        return valid


def check_floor(min_effective: float) -> None:
    """Refuse a floor that is negative or NaN."""
    if not min_effective >= 0:
        raise InputError(f"min_effective must be >= 0, got {min_effective!r}")


def refuse_all_cuts(s: Array, b: Array, b2: Array, min_effective: float) -> NoReturn:
    """Say what the cuts reach, of which none is valid."""
    most = float(np.max(np.divide(np.square(b), b2, out=np.zeros(b2.size), where=b2 > 0)))
    raise InputError(
        f"no cut is valid: each needs s >= 0, b > 0 and an effective background count of at least {min_effective:g}, "
        f"but over all cuts s reaches {s.max():g}, b {b.max():g} and the effective background count {most:.3g}"
    )


def between_scores(here: AnyArray, after: AnyArray) -> Array:
    """Thresholds that keep the scores `here` and not those `after` them: the middle, or `here` if there is none."""
    with np.errstate(invalid="ignore"):  # between infinities there is no middle
        middle = here / 2 + after / 2  # in the score's own precision, in which it will be compared
    return np.where(middle > after, middle, here).astype(np.float64)  # nor between neighbouring floats


def rank_events(score: ArrayLike, y: ArrayLike, sample_weight: ArrayLike, pos_label: Any = None) -> Ranking:
    """Check and rank events.

    Parameters
    ----------
    score, y, sample_weight : array-like of shape (n_events,)
        Scores, labels and physics weights.
    pos_label : label, optional
        The signal; see `fivesigma.yields.split_labels`.
    """
    return rank_checked(*check_events(score, y, sample_weight, pos_label))


def check_events(
    score: ArrayLike, y: ArrayLike, sample_weight: ArrayLike, pos_label: Any = None
) -> tuple[AnyArray, BoolArray, Array]:
    """Scores as a copy, so that nothing changes with the caller's array; which events are signal; and weights."""
    signal, _ = split_labels(y, pos_label)
    weight = check_weights(sample_weight, signal.size)
    return _check_score(score, signal.size), signal, weight


def rank_checked(values: AnyArray, signal: BoolArray, weight: Array) -> Ranking:
    """Rank checked events."""
    order, last, is_signal = sort_descending(values, signal)
    w, s, b, extremes = _running_yields(order, weight, is_signal)
    if largest := max(-extremes[0], extremes[1]):
        check_size(largest, "background weight")
    if last.size < values.size:
        s, b = s[last], b[last]
    return Ranking(values, order, w, is_signal, last, s, b, *extremes)


def _check_score(score: ArrayLike, n_events: int) -> AnyArray:
    given = np.asarray(score)
    if given.dtype.kind not in "biuf":
        raise InputError(f"score must be numbers, got {given.dtype}")
    if given.shape != (n_events,):
        raise InputError(f"score has shape {given.shape} for {n_events} events")
    if given.size and np.isnan(given.min()):  # one pass, and no array of flags unless there is something to say
        raise InputError(f"score is NaN in {name_rows(np.isnan(given))}")
    return given.astype(given.dtype if given.dtype in (np.float16, np.float32) else np.float64)


def _running_yields(
    order: IntArray, weight: Array, is_signal: BoolArray
) -> tuple[Array, Array, Array, tuple[float, float, float]]:
    """Weights by rank, the running yields, and what `Ranking` keeps of the background weights."""
    n = order.size
    w, s, b = np.empty((3, n))  # one block costs the system fewer pages than three
    carry_s = carry_b = lightest = heaviest = squares = 0.0
    for start in range(0, n, CHUNK):
        part = slice(start, start + CHUNK)
        np.take(weight, order[part], out=w[part], mode="clip")  # no index is outside, so nothing is clipped or checked
        w_b = np.where(is_signal[part], 0.0, w[part])
        lightest, heaviest = min(lightest, w_b.min()), max(heaviest, w_b.max())
        squares += np.square(w_b).sum()
        w_s = w[part] - w_b
        w_s[0] += carry_s
        w_b[0] += carry_b
        carry_s = np.cumsum(w_s, out=s[part])[-1]
        carry_b = np.cumsum(w_b, out=b[part])[-1]
    return w, s, b, (float(lightest), float(heaviest), float(squares))
