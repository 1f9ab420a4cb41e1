"""How the best cut moves as the background becomes uncertain: a figure of docs/guide/significances.md."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from fivesigma import AMS2, GaussianBackground, OnOff, RelativeBackground, Utility, scan
from fivesigma._types import Array, IntArray

UNCERTAINTIES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2)
YIELDS = (100.0, 10_000.0)


class Row(NamedTuple):
    """The best cut at one uncertainty, for each utility, and what the cut for a known background has left."""

    uncertainty: float
    cut: tuple[float, float, float]
    significance: tuple[float, float, float]
    s: float
    b: float
    unmoved: float


def expected_events(n_cells: int = 3_000) -> tuple[Array, IntArray, Array]:
    """Two Gaussians 2 apart as one signal and one background event in each narrow cell of the score: no noise."""
    edges = np.linspace(-5.0, 7.0, n_cells + 1)
    signal, background = (np.diff(ndtr(edges - mean)) * y for mean, y in zip((2.0, 0.0), YIELDS, strict=True))
    score = np.tile(edges[:-1], 2)
    return score, np.repeat([1, 0], n_cells), np.concatenate([signal, background])


def utilities(uncertainty: float, b: float) -> tuple[Utility, Utility, Utility]:
    """Utilities whose background is uncertain by the same fraction where it is `b`."""
    if uncertainty == 0:
        return AMS2(), AMS2(), AMS2()
    sigma = uncertainty * b
    return RelativeBackground(uncertainty), GaussianBackground(sigma), OnOff(tau=b / sigma**2)


def rows() -> list[Row]:
    """One row for each uncertainty."""
    sample = expected_events()
    known = scan(*sample, AMS2(), rule="peak", min_effective=0)
    out = []
    for uncertainty in UNCERTAINTIES:
        found = [scan(*sample, u, rule="peak", min_effective=0) for u in utilities(uncertainty, known.b)]
        cuts, values = zip(*((f.cut, f.significance) for f in found), strict=True)
        unmoved = float(utilities(uncertainty, known.b)[0].value(known.s, known.b))
        out.append(Row(uncertainty, cuts, values, found[0].s, found[0].b, unmoved))
    return out
