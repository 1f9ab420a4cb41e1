"""The cut that a rule takes, found without sorting all events.

A rule is applied to some of the cuts: all of those in bins that could matter to it, and one of each other bin. It takes
the same cut from these as from all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fivesigma._types import Array, BoolArray, IntArray
from fivesigma.cut.binned_ranking import SLACK, BinnedRanking, Cuts
from fivesigma.cut.cut_model import grid_ranks
from fivesigma.cut.ranking import refuse_all_cuts
from fivesigma.cut.rules import PLATEAU, PLAUSIBLE, choose, choose_by_model
from fivesigma.significance import Utility
from fivesigma.yields import significance_or_nan, standard_errors

RULES_OF_BINS = ("model", "plateau", "peak")  # "smooth" averages over all cuts
_GUESS = 0.2  # standard errors by which the first guess may be off


class Found(NamedTuple):
    """Some cuts with their significance, and the one that was chosen."""

    cuts: Cuts
    z: Array
    chosen: int


def find_cut(ranking: BinnedRanking, utility: Utility, rule: str, floor: float) -> Found:
    """Choose a cut by one of `RULES_OF_BINS`.

    Parameters
    ----------
    ranking : BinnedRanking
        More of its bins are resolved on the way, most often in one pass.
    utility : Utility
    rule : str
    floor : float
        Effective background count that a valid cut must keep.
    """
    bound = ranking.upper_bounds(utility, floor)
    guess = _GUESS
    while True:
        cuts = ranking.cuts()
        z = significance_or_nan(utility, cuts.s, cuts.b, cuts.valid(floor))
        if not np.isfinite(z).any():
            if not ranking.resolve(bound > -np.inf):
                ranking.resolve(np.ones(bound.size, dtype=np.bool_))
                cuts = ranking.cuts()
                refuse_all_cuts(cuts.s, cuts.b, cuts.b2, floor)
            continue
        if ranking.resolve(_wanted(ranking, cuts, z, bound, utility, rule, guess)):
            guess = 0.0
            continue
        if guess:
            guess = 0.0
            continue

        def error_at(at: int, cuts: Cuts = cuts) -> float:
            return error_of(utility, cuts, at)

        def variances(at: IntArray, cuts: Cuts = cuts) -> tuple[Array, Array]:
            return cuts.s2[at], cuts.b2[at]

        if rule == "model":
            chosen = choose_by_model(utility, cuts.s, cuts.b, variances, z, cuts.last, error_at)
            if chosen is None:  # too few events or scores for a model
                rule = "plateau"
                continue
        else:
            chosen = choose(rule, z, cuts.last, error_at)
        if np.isnan(cuts.below[chosen]):
            ranking.resolve(ranking.bins_of(cuts.last[chosen : chosen + 1] + 1))
            continue
        return Found(cuts, z, chosen)


def error_of(utility: Utility, cuts: Cuts, at: int) -> float:
    """Standard error of the significance at one cut."""
    one = slice(at, at + 1)
    return float(standard_errors(utility, cuts.s[one], cuts.b[one], cuts.s2[one], cuts.b2[one])[0])


def _wanted(  # noqa: PLR0917 - what is known so far
    ranking: BinnedRanking, cuts: Cuts, z: Array, bound: Array, utility: Utility, rule: str, guess: float
) -> BoolArray:
    """Bins whose cuts the rule must see, given those that it has seen."""
    top = int(np.nanargmax(z))
    peak, error = float(z[top]), error_of(utility, cuts, top)
    slack = SLACK * abs(peak)
    if rule != "model":
        depth = (PLATEAU + guess) * error if rule == "plateau" else 0.0
        return np.asarray(bound >= peak - depth - slack)
    wanted = (bound >= peak - slack) | ranking.bins_of(grid_ranks(ranking.n_events))
    # Of the plausible cuts, the first and the last matter.
    least = peak - PLAUSIBLE * error
    plausible = np.flatnonzero(z >= min(least + guess * error, peak))
    first, end = cuts.place[plausible[0]], cuts.place[plausible[-1]]
    outside = np.arange(bound.size)
    unclear = (outside <= first) | (outside >= end)
    return np.asarray(wanted | unclear & (bound >= least - guess * error - slack))
