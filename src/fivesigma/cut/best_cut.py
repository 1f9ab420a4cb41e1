"""The best cut on a score: in memory, from files, or with systematics."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.cut.binned_ranking import BinnedRanking
from fivesigma.cut.binned_search import RULES_OF_BINS, find_cut
from fivesigma.cut.cut_scan import Curve, CutInterval, CutScan, Ranked, Value, errors_of, uncertain_value
from fivesigma.cut.ranking import check_events, check_floor, rank_events
from fivesigma.cut.rules import DEFAULT_RULE, RULES, choose
from fivesigma.cut.yield_model import MIN_EVENTS
from fivesigma.errors import InputError, SmallSampleWarning
from fivesigma.likelihood.curve import profile_cuts
from fivesigma.likelihood.shifts import Systematics, running_shifts
from fivesigma.likelihood.shifts import check_size as check_shifts
from fivesigma.likelihood.terms import OwnUncertainty
from fivesigma.scored.score_bins import ArrayPartitions, Partitions, ScoreBins
from fivesigma.scored.scored_events import ScoredEvents, arrays_of
from fivesigma.scored.scored_files import ScoredFiles
from fivesigma.significance import AMS2, Utility, resolve_utility
from fivesigma.yields import check_size, significance_or_nan

__all__ = ["Curve", "CutInterval", "CutScan", "scan"]

MIN_EFFECTIVE = 10.0  # effective background events below which a cut is not valid
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
    process: ArrayLike | None = None,
    pos_label: Any = None,
) -> CutScan:
    """Scan all cuts on a score and choose one.

    Parameters
    ----------
    score : array-like of shape (n_events,), ScoredEvents or ScoredFiles
        Larger means more like signal. An event is selected if ``score >= cut``. `ScoredEvents` bring labels and
        weights with them: `y` and `sample_weight` are then left out. So do `ScoredFiles`, which are read part by part:
        all rules but "smooth" take the same cut from them, and the curve has at most 65,536 points.
    y : array-like of shape (n_events,)
        Labels of two classes.
    sample_weight : array-like of shape (n_events,)
        Physics weights: expected yields, scaled so that the sample stands for the whole experiment.
    utility : Utility or str, default=AMS2()
        What to maximise.
    rule : {"model", "plateau", "peak", "smooth"}, default="model"
        ``"model"`` takes the best cut for yields that are modelled by smooth curves, which loses least on other events
        (docs/cut.md); with too few events or distinct scores for that, and with systematics, it is ``"plateau"``.
        ``"peak"`` takes the highest point, which follows every fluctuation. ``"plateau"`` takes the middle of the
        widest stretch of cuts that lie within half a standard error of the peak. ``"smooth"`` takes the peak of a
        moving average over 2 % of the events.
    min_effective : float, optional
        Effective background count that a valid cut must keep. By default 10, or 1 with a warning if all background
        together has less than 100.
    systematics : mapping of str to (Varied, Varied or None), optional
        For each name the events one standard deviation up and down, as in `fivesigma.yield_shifts`. The significance of
        every cut is then profiled over them.
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
    if rule not in RULES:
        raise InputError(f"rule must be one of {', '.join(map(repr, RULES))}, got {rule!r}")
    if isinstance(score, ScoredFiles):
        given = {"y": y, "sample_weight": sample_weight, "process": process, "pos_label": pos_label}
        for name in (name for name, value in given.items() if value is not None):
            raise InputError(f"{name} is given beside ScoredFiles, which read it from their files; leave it out")
        why = "systematics need" if systematics is not None else f"rule={rule!r} needs"
        if systematics is not None or rule not in RULES_OF_BINS:
            raise InputError(
                f"{why} every cut, which a scan of files does not have; read them into memory with ScoredEvents.read"
            )
        return scan_partitions(score, utility, rule, min_effective=min_effective)
    if systematics is not None or rule not in RULES_OF_BINS:
        return _scan_all(score, y, sample_weight, utility, rule, min_effective, systematics, process, pos_label)
    score, y, sample_weight, _ = arrays_of(score, y, sample_weight, pos_label=pos_label)
    events = check_events(score, y, sample_weight, pos_label)
    events = (*events[:2], events[2].copy() if np.may_share_memory(events[2], sample_weight) else events[2])
    return scan_partitions(ArrayPartitions(*events), utility, rule, min_effective=min_effective, events=events)


def scan_partitions(
    parts: Partitions,
    utility: Utility,
    rule: str,
    *,
    min_effective: float | None = None,
    events: tuple[AnyArray, BoolArray, Array] | None = None,
    bins: ScoreBins | None = None,
) -> CutScan:
    """Scan checked events in two passes over partitions, of which none sorts all of them.

    Parameters
    ----------
    parts : Partitions
    utility, rule, min_effective
        As in `scan`; the rule is one of `RULES_OF_BINS`.
    events : (array, array, array), optional
        Score, signal and weight of all events, if they are in memory, for what needs them all.
    bins : ScoreBins, optional
        Bins of the score; any give the same scan.
    """
    ranking = BinnedRanking(parts, bins, keep=events is not None)
    return scan_ranking(ranking, utility, rule, min_effective=min_effective, events=events)


def scan_ranking(
    ranking: BinnedRanking,
    utility: Utility,
    rule: str,
    *,
    min_effective: float | None = None,
    events: tuple[AnyArray, BoolArray, Array] | None = None,
) -> CutScan:
    """Scan events whose first pass is done; parameters as in `scan_partitions`."""
    if largest := max(-ranking.sums.extremes[0], ranking.sums.extremes[1]):
        check_size(largest, "background weight")
    floor = _default_floor(ranking.effective_background) if min_effective is None else min_effective
    check_floor(floor)
    found = find_cut(ranking, utility, rule, floor)
    if rule == "model":
        _warn_if_not_modelled(ranking.totals, ranking.squares)
    cuts, at = found.cuts, found.chosen
    return CutScan(
        cut=cuts.threshold(at),
        fraction=float(cuts.last[at] + 1) / ranking.n_events,
        significance=float(found.z[at]),
        s=float(cuts.s[at]),
        b=float(cuts.b[at]),
        effective_background=cuts.effective(at),
        utility=utility,
        rule=rule,
        _n_events=ranking.n_events,
        _floor=floor,
        _events=events,
        _found=found if events is None else None,
    )


def _scan_all(  # noqa: PLR0917 - what `scan` was given
    score: ArrayLike | ScoredEvents,
    y: ArrayLike | None,
    sample_weight: ArrayLike | None,
    utility: Utility,
    rule: str,
    min_effective: float | None,
    systematics: Systematics | None,
    process: ArrayLike | None,
    pos_label: Any,
) -> CutScan:
    """Scan with what needs every cut: systematics, or a moving average."""
    score, y, sample_weight, process = arrays_of(score, y, sample_weight, process, pos_label)
    ranking = rank_events(score, y, sample_weight, pos_label)
    floor = _default_floor(ranking.effective_background) if min_effective is None else min_effective
    valid = ranking.valid(floor)
    known: Array | None = None
    notes: tuple[str, ...] = ()
    if systematics is None:
        z = significance_or_nan(utility, ranking.s, ranking.b, valid)
        value: Callable[[IntArray], Value] = lambda _: partial(significance_or_nan, utility)  # noqa: E731
    else:
        rule = "plateau" if rule == "model" else rule  # the model of the yields knows no systematics
        own = OwnUncertainty.of(utility)
        shifts = running_shifts(
            ranking.thresholds(), score, y, sample_weight, systematics, process=process, pos_label=pos_label
        )
        steps = [(np.diff(up, prepend=0.0), np.diff(down, prepend=0.0)) for up, down in shifts]
        notes = check_shifts(systematics, ranking.b[-1:], steps)
        known = significance_or_nan(AMS2(utility.b_reg), ranking.s, ranking.b, valid)
        z = np.full(known.size, np.nan)
        total = ranking.b[valid] + own.offset
        moved = [(up[valid], down[valid]) for up, down in shifts]
        if own.uncertain:
            size = own.fraction * ranking.b[valid] + own.constant
            moved.append((size, -size))
        z[valid] = np.sqrt(2 * np.maximum(profile_cuts(ranking.s[valid] + total, total, moved), 0.0))
        value = partial(uncertain_value, utility, ranking, z)

    def error_at(cut: int) -> float:
        return float(errors_of(value(np.array([cut])), ranking, np.array([cut]))[0])

    chosen = choose(rule, z, ranking.last, error_at)
    return CutScan(
        cut=float(ranking.thresholds([chosen])[0]),
        fraction=float(ranking.last[chosen] + 1) / ranking.score.size,
        significance=float(z[chosen]),
        s=float(ranking.s[chosen]),
        b=float(ranking.b[chosen]),
        effective_background=ranking.effective(chosen),
        utility=utility,
        rule=rule,
        systematics=() if systematics is None else tuple(systematics),
        notes=notes,
        _n_events=ranking.score.size,
        _floor=floor,
        _ranked=Ranked(ranking, z, known),
    )


def floor_for(available: float) -> float:
    """Effective background count that a cut must keep, where all background together has so much."""
    return MIN_EFFECTIVE if available >= SMALL_SAMPLE else 1.0


def _default_floor(available: float) -> float:
    floor = floor_for(available)
    if floor < MIN_EFFECTIVE:
        warnings.warn(
            f"the background has {available:.1f} effective events; cuts that keep as few as one of them are valid",
            SmallSampleWarning,
            stacklevel=4,
        )
    return floor


def _warn_if_not_modelled(totals: tuple[float, float], squares: tuple[float, float]) -> None:
    counts = [max(t, 0.0) ** 2 / q if q > 0 else 0.0 for t, q in zip(totals, squares, strict=True)]
    if min(counts) < MIN_EVENTS:
        warnings.warn(
            f"signal has {counts[0]:.1f} and background {counts[1]:.1f} effective events, too few to model yields "
            f"({MIN_EVENTS:g} of each are needed); the cut is the middle of the plateau",
            SmallSampleWarning,
            stacklevel=4,
        )
