"""Bootstrap replicas of the yields in categories, and how many categories they support."""

from __future__ import annotations

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.poisson import poisson_sums
from fivesigma.ranking import Ranking
from fivesigma.significance import Utility

AUTO_REPLICAS = 100


def replicas(ranking: Ranking, weight: Array, cuts: IntArray, n_boot: int, seed: int) -> tuple[Array, Array]:
    """Replicas of the running sums above each cut, and above none in the first column."""
    ends = ranking.last[cuts] + 1
    kept = slice(0, ends[-1])
    columns = poisson_sums(weight[kept], ranking.signal[kept], np.append(0, ends[:-1]), n_boot, seed)
    s, b = (np.pad(column, ((0, 0), (1, 0))) for column in columns)
    return s, b


def replica_significance(utility: Utility, s: Array, b: Array, at: IntArray) -> Array:
    """Z of each replica in the categories between the columns `at`, NaN where one does not count."""
    s, b = np.diff(s[:, at], axis=1), np.diff(b[:, at], axis=1)
    counts = ((s >= 0) & (b > 0)).all(axis=1)
    z = np.full(counts.size, np.nan)
    z[counts] = utility.from_objective(utility.objective(s[counts], b[counts]).sum(axis=1))
    return z


def worthwhile(
    ranking: Ranking, cuts: IntArray, trials: list[IntArray], utility: Utility, random_state: int
) -> IntArray:
    """Edges of the first trial after which one more category gains less than the bootstrap uncertainty of its gain."""
    used = np.unique(np.concatenate(trials))
    s, b = replicas(ranking, ranking.weight, cuts[used - 1], AUTO_REPLICAS, random_state)
    exact_s, exact_b = (np.append(0.0, v[cuts[used - 1]])[None] for v in (ranking.s, ranking.b))
    before: tuple[float, Array] | None = None
    for k, trial in enumerate(trials):
        at = np.append(0, np.searchsorted(used, trial) + 1)
        z = float(replica_significance(utility, exact_s, exact_b, at)[0])
        scatter = replica_significance(utility, s, b, at)
        if before is not None:
            gains = scatter - before[1]
            gains = gains[np.isfinite(gains)]
            if gains.size < AUTO_REPLICAS / 2 or z - before[0] < gains.std():
                return trials[k - 1]
        before = z, scatter
    return trials[-1]
