"""The best cut on a score: in memory, from files, or with systematics."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fivesigma.cut.binned import RULES_OF_BINS, BinnedRanking
from fivesigma.cut.cut_scan import CutScan
from fivesigma.cut.profiled_cuts import ProfiledCuts, few_cuts
from fivesigma.cut.ranking import Cuts, effective_of, rank_events
from fivesigma.cut.rules import DEFAULT_RULE, RULES, CutValue, KnownBackground, choose
from fivesigma.cut.yield_model import MIN_EVENTS
from fivesigma.errors import InputError, SmallSampleWarning
from fivesigma.likelihood.shifts import Systematics, yield_shifts
from fivesigma.scored.scored_events import ScoredEvents, as_scored
from fivesigma.scored.scored_files import ScoredFiles
from fivesigma.significance import AMS2, Utility, resolve_utility

__all__ = ["CutScan", "scan"]

MIN_EFFECTIVE = 10.0  # effective background events below which a cut is not valid
DOMINATED = 2.0  # effective signal events at the cut below which one event has most of the weight
SMALL_SAMPLE = 100.0  # effective background events in all below which one is enough, with a warning


def scan(
    score: ArrayLike | ScoredEvents | ScoredFiles,
    y: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    utility: Utility | str = AMS2(),
    rule: str = DEFAULT_RULE,
    *,
    min_effective: float | None = None,
    systematics: Systematics | None = None,
    free: Iterable[str] = (),
    mc_statistics: bool = True,
    process: ArrayLike | None = None,
    pos_label: Any = None,
) -> CutScan:
    """Scan all cuts on a score and choose one.

    Parameters
    ----------
    score : array-like of shape (n_events,), ScoredEvents or ScoredFiles
        Larger means more like signal. An event is selected if ``score >= cut``. `ScoredEvents` bring labels and
        weights with them: `y` and `sample_weight` are then left out. So do `ScoredFiles`, which are read part by part:
        among their million of highest scores every cut is tried, and below them 65,535 cuts.
    y : array-like of shape (n_events,)
        Labels of two classes.
    sample_weight : array-like of shape (n_events,)
        Physics weights: expected yields, scaled so that the sample stands for the whole experiment.
    utility : Utility or str, default=AMS2()
        What to maximise.
    rule : {"model", "plateau", "peak", "smooth"}, default="model"
        ``"model"`` takes the best cut for yields that are modelled by smooth curves, which loses least on other events
        (docs/guide/cut.md); with too few events or distinct scores for that it is ``"plateau"``.
        ``"peak"`` takes the highest point, which follows every fluctuation. ``"plateau"`` takes the middle of the
        widest stretch of cuts that lie within half a standard error of the peak. ``"smooth"`` takes the peak of a
        moving average over 2 % of the events.
    min_effective : float, optional
        Effective background count that a valid cut must keep. By default 10, or 1 with a warning if all background
        together has less than 100.
    systematics : mapping of str to (Varied, Varied or None) or Normalisation, optional
        For each name the events one standard deviation up and down, as in `fivesigma.yield_shifts`. The significance of
        at most 4,096 cuts is then profiled over them. For the rule ``"model"`` variations are averaged along the score:
        their own sums jump from cut to cut, and the best of them is a fluctuation, which the other rules may follow.
    free : iterable of str, default=()
        Names of systematics without a constraint, as in `fivesigma.categorise`. One count cannot measure a free
        background, so that there is nothing left to find with a cut: they are refused with that advice.
    mc_statistics : bool, default=True
        With systematics, whether the statistics of the simulated background are profiled as well.
    process : array-like of shape (n_events,), optional
        Name of the process of each event, if variations have samples of their own.
    pos_label : label, optional
        The signal; see `fivesigma.yields.split_labels`.

    Returns
    -------
    CutScan

    Examples
    --------
    >>> import numpy as np
    >>> from fivesigma import scan
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([1, 0], 5000)
    >>> score = rng.normal(2.0 * y)
    >>> weight = np.where(y == 1, 0.02, 2.0)
    >>> best = scan(score, y, weight)
    >>> 2.0 < best.cut < 3.5 and best.significance > 1.5
    True
    """
    utility = resolve_utility(utility)
    check_rule(rule)
    if isinstance(score, ScoredFiles):
        given = {"y": y, "sample_weight": sample_weight, "process": process, "pos_label": pos_label}
        for name in (name for name, value in given.items() if value is not None):
            raise InputError(f"{name} is given with ScoredFiles, which read it from their files; leave it out")
        if systematics is not None:
            raise InputError("systematics need all events in memory; read the files with ScoredEvents.read")
        return scan_binned(BinnedRanking(score), utility, rule, min_effective)
    scored = as_scored(score, y, sample_weight, process, pos_label)
    ranking = rank_events(*scored.arrays())
    by: CutValue = KnownBackground(utility)
    notes: tuple[str, ...] = ()
    if systematics is not None:
        ranking = few_cuts(ranking)
        edges = np.append(ranking.thresholds()[::-1], np.inf)
        shifts = yield_shifts(edges, scored, systematics=systematics, free=free)
        if shifts.free:
            raise InputError(
                f"a cut cannot measure what systematic {next(iter(shifts.free))!r} leaves free, and finds no signal "
                "beside it; use categorise, or give it a constraint"
            )
        notes = shifts.check()
        notes += tuple(said for name in shifts.up for said in shifts.large_moves(name))
        by = ProfiledCuts.of(ranking, shifts, utility, systematics, smooth=rule == "model", mc=mc_statistics)
    return _choose_cut(ranking, by, utility, rule, min_effective, tuple(systematics or ()), notes)


def check_rule(rule: str, *, binned: bool = False) -> None:
    """Refuse a rule that there is not, or that events in bins do not allow."""
    if rule not in RULES:
        raise InputError(f"rule must be one of {', '.join(map(repr, RULES))}, got {rule!r}")
    if binned and rule not in RULES_OF_BINS:
        raise InputError(
            f"rule={rule!r} needs every cut, which a scan of files or of a cluster does not have; use one of "
            f"{', '.join(map(repr, RULES_OF_BINS))}, or read the events into memory with ScoredEvents.read"
        )


def scan_binned(ranking: BinnedRanking, utility: Utility, rule: str, min_effective: float | None = None) -> CutScan:
    """Scan events that are not in memory all at once."""
    check_rule(rule, binned=True)
    return _choose_cut(ranking.cuts(), KnownBackground(utility), utility, rule, min_effective)


def _choose_cut(  # noqa: PLR0917 - what `scan` was asked for
    cuts: Cuts,
    by: CutValue,
    utility: Utility,
    rule: str,
    min_effective: float | None,
    systematics: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
) -> CutScan:
    available = cuts.effective_background
    floor = floor_for(available) if min_effective is None else min_effective
    if min_effective is None and floor < MIN_EFFECTIVE:
        warnings.warn(
            f"the background has {available:.1f} effective events; cuts that keep as few as one of them are valid",
            SmallSampleWarning,
            stacklevel=3,
        )
    z = by.curve(cuts, cuts.valid(floor))
    used, chosen = choose(rule, by.seen(cuts, z))
    return _warn_of_few(CutScan(cuts, z, chosen, utility, used, by, systematics, notes), rule, floor)


def floor_for(available: float) -> float:
    """Effective background count that a cut must keep, where all background together has so much."""
    return MIN_EFFECTIVE if available >= SMALL_SAMPLE else 1.0


def _warn_of_few(found: CutScan, rule: str, floor: float) -> CutScan:
    """Say so if few events decide: in all if they were to be modelled, and at the cut."""
    cuts = found.ranking
    signal, background = effective_of(cuts.s[-1], cuts.squares[0]), cuts.effective_background
    kept_signal, kept_background = cuts.effective(found.chosen)
    if rule == "model" and min(signal, background) < MIN_EVENTS:
        said = (
            f"signal has {signal:.1f} and background {background:.1f} effective events, too few to model yields "
            f"({MIN_EVENTS:g} of each are needed); the cut is the middle of the plateau"
        )
    elif kept_signal < DOMINATED or (floor < 1 and kept_background < MIN_EFFECTIVE):
        said = (
            f"the cut keeps {kept_signal:.1f} effective signal events and {kept_background:.1f} of background; its "
            "significance hangs on single events"
        )
    else:
        return found
    warnings.warn(said, SmallSampleWarning, stacklevel=4)
    return found
