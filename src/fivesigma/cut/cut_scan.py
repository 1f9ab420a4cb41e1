"""Significance against the cut on a score: the whole curve, the chosen cut, and how sure it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, Unpack

import numpy as np

from fivesigma._tools.drawing import Label, axes_or_current, draw_label, draw_significance
from fivesigma._tools.summary import Summary, curve, digits
from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.cut.binned_search import Found, error_of
from fivesigma.cut.bootstrap import interval_ends, replica_intervals, replicas_above
from fivesigma.cut.ranking import Ranking, between_scores, rank_checked
from fivesigma.cut.rules import choose, choose_by_model
from fivesigma.errors import InputError
from fivesigma.likelihood.curve import equivalent_variance
from fivesigma.likelihood.terms import gaussian
from fivesigma.significance import Utility
from fivesigma.yields import significance_or_nan, valid_yields

MAX_BLOCKS = 4096  # cuts on which a bootstrap is resolved
MAX_MODELLED = 200  # replicas whose yields are modelled: enough for an interval that is known to a tenth of its width
Value = Callable[[Array, Array, BoolArray], Array]  # Z of s and b, NaN where a cut is not valid


class Curve(NamedTuple):
    """Significance against the cut, from the tightest cut to none; NaN where a cut is not valid."""

    cut: Array
    fraction: Array
    s: Array
    b: Array
    significance: Array


class Ranked(NamedTuple):
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
    _ranked: Ranked | None = None
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
    def _all(self) -> Ranked:
        """Every cut: the work that the choice of one need not do."""
        if self._ranked is not None:
            return self._ranked
        if self._events is None:
            raise InputError(
                "a scan of files does not rank all events, which this needs; read them into memory with "
                "ScoredEvents.read"
            )
        ranking = rank_checked(*self._events)
        return Ranked(ranking, significance_or_nan(self.utility, ranking.s, ranking.b, ranking.valid(self._floor)))

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
        error[valid] = errors_of(self._value(cuts[valid]), self.ranking, cuts[valid])
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

    def _value(self, points: IntArray) -> Value:
        """Z of other yields at some cuts; with systematics the background is as uncertain in proportion as here."""
        if self.known is None:
            return partial(significance_or_nan, self.utility)
        return uncertain_value(self.utility, self.ranking, self.values, points)


def _plain(value: float) -> str:
    """Digits without commas, which separate values in a repr."""
    return digits(value).replace(",", "")


def uncertain_value(utility: Utility, ranking: Ranking, z: Array, points: IntArray) -> Value:
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


def errors_of(value: Value, ranking: Ranking, cuts: IntArray) -> Array:
    """How far Z moves if s and b each move up by their own simulation error, in quadrature."""
    s, b = ranking.s[cuts], ranking.b[cuts]
    var_s, var_b = ranking.variances(cuts)
    every = np.ones(cuts.size, dtype=np.bool_)
    z = value(s, b, every)
    return np.hypot(value(s + np.sqrt(var_s), b, every) - z, value(s, b + np.sqrt(var_b), every) - z)
