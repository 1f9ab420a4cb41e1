"""Groups of events with like weights, which a net learns to tell apart beside the two classes.

Simulated events of one process have like weights, so that the groups stand for the processes. A net that has to know
them by their features learns more of an event than one that is told signal and background alone.
"""

from __future__ import annotations

import numpy as np

from fivesigma._types import AnyArray, Array, IntArray


def groups_of_weight(target: AnyArray, weight: Array, n_groups: int) -> IntArray | None:
    """Number of the group of each event.

    Parameters
    ----------
    target : array of shape (n_events,)
        0 or 1.
    weight : array of shape (n_events,)
    n_groups : int
        Groups of a class, with as many events each as equal weights allow: those stay together.

    Returns
    -------
    array of shape (n_events,) or None
        None if no class has two groups.

    Examples
    --------
    >>> groups_of_weight(np.array([0, 0, 0, 0, 1, 1, 1, 1]), np.array([1, 2, 3, 4, 0.1, 0.3, 0.1, 0.3]), 4)
    array([0, 1, 2, 3, 4, 5, 4, 5])
    """
    out, n_before = np.empty(target.size, dtype=np.intp), 0
    for label in range(2):
        rows = target == label
        edges = np.unique(np.quantile(weight[rows], np.arange(1, n_groups) / n_groups, method="inverted_cdf"))
        groups = np.unique(np.searchsorted(edges, weight[rows]), return_inverse=True)[1]
        out[rows] = n_before + groups
        n_before += int(groups.max()) + 1
    return out if n_before > 2 else None
