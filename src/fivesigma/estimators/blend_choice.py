"""Which members to blend: every even blend beside the first member on held-out events, with a paired error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.blend import Blend
from fivesigma.cut.bootstrap import PoissonCounts
from fivesigma.estimators.gauge import Gauge
from fivesigma.yields import significance_or_nan, valid_yields

N_BOOT = 100
WINDOW = np.geomspace(0.7, 1.4, 9)  # cuts over which blends are compared, as multiples of the first member's share


class Choice(NamedTuple):
    """What was chosen, and what it was compared with.

    Attributes
    ----------
    members : tuple of str
        Blended evenly.
    comparisons : dict of str to (float, float)
        Gain of each blend over the first member alone, and its standard error.
    """

    members: tuple[str, ...]
    comparisons: dict[str, tuple[float, float]]


def name_of(members: Sequence[str]) -> str:
    """Name of a blend."""
    return " + ".join(members)


def choose_blend(scores: Mapping[str, Array], gauge: Gauge, random_state: int = 0) -> Choice:
    """Take the even blend of all members, unless another blend is better by more than a standard error.

    A blend of many is the safe choice: it loses little where members are alike, and single members differ from sample
    to sample more than held-out events can tell. Significance is the mean over nine cuts around the best one of the
    first member, which is less noisy than that of one cut. The error is that of the difference of two blends, from a
    Poisson bootstrap in which both have the same events.

    Parameters
    ----------
    scores : mapping of str to array of shape (n_events,)
        Held-out scores of each member, the simplest first.
    gauge : Gauge
        Labels and weights of the same events.
    random_state : int
        Seed of the bootstrap.
    """
    blends, z = compare_blends(scores, gauge, random_state)
    with np.errstate(invalid="ignore"):
        over_all, over_first = gains(z - z[:, -1:]), gains(z - z[:, :1])
    comparisons = {name_of(m): pair for m, pair in zip(blends, over_first, strict=True)}
    better = [k for k, (gain, error) in enumerate(over_all) if gain > error]
    chosen = max(better, key=lambda k: over_all[k][0], default=len(blends) - 1)
    return Choice(blends[chosen], comparisons)


def compare_blends(
    scores: Mapping[str, Array], gauge: Gauge, random_state: int = 0
) -> tuple[list[tuple[str, ...]], Array]:
    """Measure every even blend, from single members to all of them.

    Parameters
    ----------
    scores, gauge, random_state
        As in `choose_blend`.

    Returns
    -------
    list of tuple of str, array of shape (1 + n_replicas, n_blends)
        Members of each blend, and its mean significance over the window: of the sample, then of its replicas.
    """
    names = tuple(scores)
    blends = [m for size in range(1, len(names) + 1) for m in combinations(names, size)]
    share = gauge.scan(scores[names[0]], "model").fraction
    return blends, _replicas([_cells(_blended(scores, m), share) for m in blends], gauge, random_state)


def gains(differences: Array) -> list[tuple[float, float]]:
    """Difference on the sample, and its standard deviation over those replicas in which it is defined."""
    out = []
    for column in differences.T:
        replicas = column[1:][np.isfinite(column[1:])]
        out.append((float(column[0]), float(np.std(replicas)) if replicas.size > 1 else float("nan")))
    return out


def _blended(scores: Mapping[str, Array], members: tuple[str, ...]) -> Array:
    chosen = [scores[name] for name in members]
    return chosen[0] if len(chosen) == 1 else Blend.fitted("rank", chosen)(chosen)


def _cells(score: Array, share: float) -> IntArray:
    """Number of the cell of each event: k if it is kept by the cut k of the window and by no tighter one."""
    ends = np.clip(np.round(WINDOW * share * score.size), 1, score.size).astype(np.intp)
    cell = np.empty(score.size, dtype=np.intp)
    cell[np.argsort(-score, kind="stable")] = np.searchsorted(ends, np.arange(score.size), side="right")
    return cell


def _replicas(cells: list[IntArray], gauge: Gauge, random_state: int) -> Array:
    """Mean significance over the window of each blend: of the sample, then of its replicas."""
    loosest = WINDOW.size
    used = np.flatnonzero(np.min(cells, axis=0) < loosest)
    signal, weight = gauge.signal[used], gauge.weight[used]
    # Cells of signal and background in one count.
    places = [c[used] + np.where(signal, 0, loosest + 1) for c in cells]
    source = PoissonCounts(random_state, used.size)
    sums = np.empty((N_BOOT + 1, len(cells), 2 * loosest + 2))
    for i in range(N_BOOT + 1):
        w = weight if i == 0 else weight * source.draw(used.size)
        for k, place in enumerate(places):
            sums[i, k] = np.bincount(place, w, 2 * loosest + 2)
    s, b = (np.cumsum(part[..., :-1], axis=-1) for part in np.split(sums, 2, axis=-1))
    # A blend has a value only where all cuts of the window have.
    return np.asarray(np.mean(significance_or_nan(gauge.utility, s, b, valid_yields(s, b)), axis=-1))
