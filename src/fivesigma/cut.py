"""Significance against the cut on a score: the whole curve, the best cut, and how sure it is."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._drawing import Label, axes_or_current, draw_label, draw_significance
from fivesigma._summary import Summary, curve, digits
from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.binned_ranking import BinnedRanking
from fivesigma.bootstrap import interval_ends, replica_intervals, replicas_above
from fivesigma.cut_model import MIN_EVENTS
from fivesigma.cut_rule import DEFAULT_RULE, RULES, choose, choose_by_model
from fivesigma.cut_search import RULES_OF_BINS, Found, error_of, find_cut
from fivesigma.errors import InputError, SmallSampleWarning
from fivesigma.profiled.curve import equivalent_variance, profile_cuts
from fivesigma.profiled.likelihood import gaussian
from fivesigma.profiled.own import OwnUncertainty
from fivesigma.ranking import Ranking, between_scores, check_events, check_floor, rank_checked, rank_events
from fivesigma.score_bins import ArrayPartitions, Partitions, ScoreBins
from fivesigma.scored import ScoredEvents, arrays_of
from fivesigma.scored_files import ScoredFiles
from fivesigma.significance import AMS2, Utility, resolve_utility
from fivesigma.systematics import Systematics, running_shifts
from fivesigma.systematics import check_size as check_shifts
from fivesigma.yields import check_size, significance_or_nan, valid_yields

__all__ = ["Curve", "CutInterval", "CutScan", "scan"]

MIN_EFFECTIVE = 10.0  # effective background events below which a cut is not valid
SMALL_SAMPLE = 100.0  # effective background events in all below which one is enough, with a warning
MAX_BLOCKS = 4096  # cuts on which a bootstrap is resolved
MAX_MODELLED = 200  # replicas whose yields are modelled: enough for an interval that is known to a tenth of its width
_Value = Callable[[Array, Array, BoolArray], Array]  # Z of s and b, NaN where a cut is not valid


class Curve(NamedTuple):
    """Significance against the cut, from the tightest cut to none; NaN where a cut is not valid."""

    cut: Array
    fraction: Array
    s: Array
    b: Array
    significance: Array


class _Ranked(NamedTuple):
    """All events in order, the significance of every cut, and with systematics the one without them."""

    ranking: Ranking
    values: Array
    known: Array | None = None


class CutInterval(NamedTuple):
    """Intervals (low, high) of the significance at the cut and of the cut."""

    significance: tuple[float, float]
    cut: tuple[float, float]


@dataclass(frozen=True, repr=False, eq=False)
class CutScan:
    """A scan of all cuts ``score >= cut``, and the one that its rule chose.

    Attributes
    ----------
    cut : float
        Threshold on the score; it lies between two distinct scores of the sample.
    fraction : float
        Unweighted share of the events that it selects.
    significance, s, b : float
        At the cut; b holds no b_reg.
    effective_background : float
        Effective background count at the cut.
    curve : Curve
        All cuts. With systematics the significance is profiled over them.
    known_background : float
        Significance at the cut if there were no systematics.
    notes : tuple of str
        Systematics that move nothing.
    ranking : Ranking
        The events from the highest score to the lowest, and the yields of every cut; sorted when first asked for.
    values : array of shape (n_cuts,)
        Significance of every cut of the ranking, NaN where a cut is not valid.
    chosen : int
        Which of them is `cut`.
    known : array of shape (n_cuts,) or None
        With systematics, the significance of every cut without them.

    Notes
    -----
    A scan of files has neither ranking nor values, and its curve has at most 65,536 points: the ends of bins of the
    score, and the cut.
    """

    cut: float
    fraction: float
    significance: float
    s: float
    b: float
    effective_background: float
    utility: Utility
    rule: str
    systematics: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    _n_events: int = 0
    _floor: float = 0.0
    _events: tuple[AnyArray, BoolArray, Array] | None = None
    _ranked: _Ranked | None = None
    _found: Found | None = None

    def __repr__(self) -> str:
        return (
            f"CutScan(significance={self.significance:.4f} at cut={self.cut:.6g}, fraction={self.fraction:.4f}, "
            f"s={_plain(self.s)}, b={_plain(self.b)}, effective_background={_plain(self.effective_background)}, "
            f"rule={self.rule!r}, utility={self.utility!r}"
            + (f", systematics={list(self.systematics)!r})" if self.systematics else ")")
        )

    def _repr_html_(self) -> str:
        rows = [
            ("significance", f"{self.significance:.4f}"),
            ("cut on the score", f"{self.cut:.6g}"),
            ("selected fraction", f"{self.fraction:.4f}"),
            ("signal s", digits(self.s)),
            ("background b", digits(self.b)),
            ("effective background", f"{self.effective_background:,.1f}"),
        ]
        if self.known is not None:
            rows.insert(1, ("if the background were known", f"{self.known_background:.4f}"))
        about = f"chosen by the rule {self.rule!r} for {self.utility!r}"
        if self.systematics:
            about += f", profiled over {', '.join(self.systematics)}"
        return Summary("CutScan", ("", "at the cut"), rows, (about, *self.notes), self._drawn()).html()

    def _drawn(self) -> str:
        """The curve as a small picture, where all cuts are known."""
        if self._found is not None:
            return ""
        points = self._grid()
        return curve(
            self._fraction(points),
            self.values[points],
            at=self.fraction,
            x_name="selected fraction of events",
            y_name="significance",
        )

    @cached_property
    def _all(self) -> _Ranked:
        """Every cut: the work that the choice of one need not do."""
        if self._ranked is not None:
            return self._ranked
        if self._events is None:
            raise InputError(
                "a scan of files does not rank all events, which this needs; read them into memory with "
                "ScoredEvents.read"
            )
        ranking = rank_checked(*self._events)
        return _Ranked(ranking, significance_or_nan(self.utility, ranking.s, ranking.b, ranking.valid(self._floor)))

    @property
    def error(self) -> float:
        """Standard error of the significance at the cut, from the statistics of the simulation; also of files."""
        if self._found is not None:
            return error_of(self.utility, self._found.cuts, self._found.chosen)
        return float(self.errors(np.array([self.chosen]))[0])

    @property
    def ranking(self) -> Ranking:
        """The events from the highest score to the lowest."""
        return self._all.ranking

    @property
    def values(self) -> Array:
        """Significance of every cut, NaN where it is not valid."""
        return self._all.values

    @property
    def known(self) -> Array | None:
        """With systematics, the significance of every cut without them."""
        return None if self._ranked is None else self._ranked.known

    @cached_property
    def chosen(self) -> int:
        """Which cut of the ranking is taken."""
        return int(np.searchsorted(self.ranking.last, round(self.fraction * self._n_events) - 1))

    @property
    def known_background(self) -> float:
        """Significance at the cut if there were no systematics."""
        return self.significance if self.known is None else float(self.known[self.chosen])

    @cached_property
    def curve(self) -> Curve:
        """All cuts, from the tightest to none; of files the ends of bins of the score."""
        if self._found is not None and self._events is None:
            return self._curve_of_bins(self._found)
        ranking = self.ranking
        return Curve(ranking.thresholds(), self._fraction(slice(None)), ranking.s, ranking.b, self.values)

    def _curve_of_bins(self, found: Found) -> Curve:
        cuts = found.cuts
        at = np.unique(np.append(np.flatnonzero(np.diff(cuts.place, append=-1)), found.chosen))
        threshold = between_scores(cuts.score[at], cuts.below[at])
        return Curve(threshold, (cuts.last[at] + 1.0) / self._n_events, cuts.s[at], cuts.b[at], found.z[at])

    def interval(self, level: float = 0.68, n_boot: int = 1000, random_state: int = 0) -> CutInterval:
        """Bootstrap intervals of the significance at the cut, and of the cut.

        Each replica gives every event a Poisson number of copies. The significance is that of the present cut; the cut
        is chosen anew by the same rule, on at most 4,096 cuts; the rule ``"model"`` does so on the first 200 replicas,
        since every choice is a fit. The intervals cover the statistics of the simulated
        events only: no systematic uncertainty, and no scatter of data. Weights are taken as they are and replicas are
        not rescaled to fixed class yields, so the total yields scatter along with the efficiencies.

        Parameters
        ----------
        level : float, default=0.68
            Central probability.
        n_boot : int, default=1000
            Replicas.
        random_state : int, default=0
            Seed; the same seed gives the same intervals.

        Returns
        -------
        CutInterval
            ``significance`` and ``cut``, each (low, high). Replicas in which a cut keeps no background are excluded.
        """
        quantiles = interval_ends(level, n_boot)
        points = self._grid()
        s, b = replicas_above(self.ranking, points, n_boot, random_state)
        z = self._value(points)(s, b, np.isfinite(self.values[points]) & valid_yields(s, b))
        last, error = self.ranking.last[points], self.errors(points)
        squares = self.ranking.variances(points)

        def variances(cuts: IntArray) -> tuple[Array, Array]:
            return squares[0][cuts], squares[1][cuts]

        best = []
        for i, row in enumerate(z if self.rule != "model" else z[:MAX_MODELLED]):
            if np.isfinite(row).any():
                at = None
                if self.rule == "model":
                    at = choose_by_model(self.utility, s[i], b[i], variances, row, last, error.__getitem__)
                rule = "plateau" if self.rule == "model" else self.rule
                best.append(choose(rule, row, last, error.__getitem__) if at is None else at)
        significance, (low, high) = replica_intervals(
            z[:, np.searchsorted(points, self.chosen)],
            self.ranking.thresholds(points)[best],
            quantiles,
            "no replica keeps any background at the cut",
        )
        return CutInterval(significance, (float(low), float(high)))

    def plot(self, ax: Any = None, **label: Unpack[Label]) -> Any:
        """Draw the curve, its band of one standard error (simulation statistics), and the cut.

        With systematics the curve that ignores them is beside it.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; the current axes if not given.
        **label
            ``experiment``, ``luminosity`` in 1/fb and ``energy`` in TeV, written above the axes; see `fivesigma.plot`.

        Returns
        -------
        matplotlib axes
        """
        ax, points = axes_or_current(ax), self._grid()
        if self.known is not None:  # first, so that the axis has room for both
            known = self.known[points]
            ax.plot(self._fraction(points), known, color="0.5", linestyle=":", label="if the background were known")
        draw_significance(
            ax,
            self._fraction(points),
            self.values[points],
            self.errors(points),
            label="significance" if self.known is None else "with systematics",
            at=self.fraction,
            at_label=f"cut at {self.cut:.4g}: {self.significance:.3f}",
        )
        ax.set_xlabel("selected fraction of events")
        ax.set_ylabel(f"significance ({type(self.utility).__name__})")
        ax.set_xlim(0.0, 1.0)
        draw_label(ax, **label)
        return ax

    def errors(self, cuts: IntArray) -> Array:
        """Standard error of the significance (simulation statistics) at some cuts.

        How far the significance moves if s and b each move up by their own simulation error, in quadrature.

        Parameters
        ----------
        cuts : int array
            Ascending rows of the curve.

        Returns
        -------
        array
            NaN where a cut is not valid.
        """
        error = np.full(cuts.size, np.nan)
        valid = np.isfinite(self.values[cuts])
        error[valid] = _errors_of(self._value(cuts[valid]), self.ranking, cuts[valid])
        return error

    def _fraction(self, cuts: Any) -> Array:
        fraction: Array = (self.ranking.last[cuts] + 1.0) / self.ranking.score.size
        return fraction

    def _grid(self) -> IntArray:
        """At most 4,096 cuts, evenly spread over the events, the chosen one among them."""
        last = self.ranking.last
        if last.size <= MAX_BLOCKS:
            return np.arange(last.size)
        even = np.linspace(0, last[-1], MAX_BLOCKS - 1)
        return np.unique(np.append(np.searchsorted(last, even), self.chosen))

    def _value(self, points: IntArray) -> _Value:
        """Z of other yields at some cuts; with systematics the background is as uncertain in proportion as here."""
        if self.known is None:
            return partial(significance_or_nan, self.utility)
        return _uncertain(self.utility, self.ranking, self.values, points)


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
        value: Callable[[IntArray], _Value] = lambda _: partial(significance_or_nan, utility)  # noqa: E731
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
        z[valid] = np.sqrt(2 * profile_cuts(ranking.s[valid] + total, total, moved))
        value = partial(_uncertain, utility, ranking, z)

    def error_at(cut: int) -> float:
        return float(_errors_of(value(np.array([cut])), ranking, np.array([cut]))[0])

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
        _ranked=_Ranked(ranking, z, known),
    )


def _plain(value: float) -> str:
    """Digits without commas, which separate values in a repr."""
    return digits(value).replace(",", "")


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


def _uncertain(utility: Utility, ranking: Ranking, z: Array, points: IntArray) -> _Value:
    """Z of other yields at some cuts, whose backgrounds are uncertain in proportion as where Z is `z`."""
    s, b = ranking.s[points], ranking.b[points] + utility.b_reg
    finite = np.isfinite(z[points])
    relative = np.zeros(points.size)
    s, b = s[finite], b[finite]
    relative[finite] = equivalent_variance(s + b, b, z[points][finite] ** 2 / 2) / b**2

    def value(s: Array, b: Array, valid: BoolArray) -> Array:
        total = np.where(valid, b, 1.0) + utility.b_reg
        found = gaussian(np.where(valid, s, 0.0) + total, total, relative * total**2).value
        return np.where(valid, np.sqrt(2 * found), np.nan)

    return value


def _errors_of(value: _Value, ranking: Ranking, cuts: IntArray) -> Array:
    """How far Z moves if s and b each move up by their own simulation error, in quadrature."""
    s, b = ranking.s[cuts], ranking.b[cuts]
    var_s, var_b = ranking.variances(cuts)
    every = np.ones(cuts.size, dtype=np.bool_)
    z = value(s, b, every)
    return np.hypot(value(s + np.sqrt(var_s), b, every) - z, value(s, b + np.sqrt(var_b), every) - z)


def _warn_if_not_modelled(totals: tuple[float, float], squares: tuple[float, float]) -> None:
    counts = [max(t, 0.0) ** 2 / q if q > 0 else 0.0 for t, q in zip(totals, squares, strict=True)]
    if min(counts) < MIN_EVENTS:
        warnings.warn(
            f"signal has {counts[0]:.1f} and background {counts[1]:.1f} effective events, too few to model yields "
            f"({MIN_EVENTS:g} of each are needed); the cut is the middle of the plateau",
            SmallSampleWarning,
            stacklevel=4,
        )
