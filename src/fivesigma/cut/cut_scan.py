"""Significance against the cut on a score: the whole curve, the chosen cut, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Unpack

import numpy as np

from fivesigma._tools.drawing import Label, axes_or_current, draw_label, draw_significance
from fivesigma._tools.summary import Summary, digits
from fivesigma._types import Array, IntArray
from fivesigma.cut.bootstrap import interval_ends
from fivesigma.cut.ranking import Cuts
from fivesigma.cut.rules import CutValue, choose
from fivesigma.errors import InputError
from fivesigma.significance import AMS2, Utility
from fivesigma.yields import significance_or_nan

MAX_BLOCKS = 4096  # cuts on which a bootstrap is resolved
MAX_PROFILED = 128  # the same with systematics
MAX_MODELLED = 200  # replicas whose yields are modelled: enough for an interval that is known to a tenth of its width


class Curve(NamedTuple):
    """Significance against the cut, from the tightest cut to none; NaN where a cut is not valid."""

    cut: Array
    fraction: Array
    s: Array
    b: Array
    significance: Array


class CutInterval(NamedTuple):
    """Intervals (low, high) of the significance at the cut and of the cut."""

    significance: tuple[float, float]
    cut: tuple[float, float]


@dataclass(frozen=True, repr=False, eq=False)
class CutScan:
    """A scan of all cuts ``score >= cut``, and the one that its rule chose.

    Attributes
    ----------
    rule : str
        The rule that was used: the plateau if yields could not be modelled.
    notes : tuple of str
        What there is to say of the systematics.
    ranking : Cuts
        The cuts; of events in memory it is a `Ranking`, which holds the events from the highest score to the lowest.
    values : array of shape (n_cuts,)
        Significance of every cut, NaN where a cut is not valid.
    chosen : int
        Which of them is `cut`.

    Examples
    --------
    >>> import numpy as np
    >>> from fivesigma import scan
    >>> y = np.repeat([1, 0], 500)
    >>> score = np.random.default_rng(0).normal(size=1000) + 2 * y
    >>> best = scan(score, y, np.where(y == 1, 0.1, 1.0), rule="plateau")
    >>> bool(best.s < 50 and best.b < 500 and best.significance == best.values[best.chosen])
    True
    """

    ranking: Cuts
    values: Array
    chosen: int
    utility: Utility
    rule: str
    by: CutValue
    systematics: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def cut(self) -> float:
        """Threshold on the score; it lies between two distinct scores of the sample."""
        return float(self.ranking.thresholds([self.chosen])[0])

    @property
    def fraction(self) -> float:
        """Unweighted share of the events that it selects."""
        return float(self.ranking.last[self.chosen] + 1) / self.ranking.n_events

    @property
    def significance(self) -> float:
        """Significance at the cut."""
        return float(self.values[self.chosen])

    @property
    def s(self) -> float:
        """Signal at the cut."""
        return float(self.ranking.s[self.chosen])

    @property
    def b(self) -> float:
        """Background at the cut, without b_reg."""
        return float(self.ranking.b[self.chosen])

    @property
    def effective_background(self) -> float:
        """Effective background count at the cut."""
        return self.ranking.effective(self.chosen)[1]

    @property
    def known_background(self) -> float:
        """Significance at the cut if there were no systematics."""
        return float(self.known[self.chosen])

    @cached_property
    def known(self) -> Array:
        """Significance of every cut without systematics."""
        if not self.systematics:
            return self.values
        valid = np.isfinite(self.values)
        return significance_or_nan(AMS2(self.utility.b_reg), self.ranking.s, self.ranking.b, valid)

    @property
    def error(self) -> float:
        """Standard error of the significance at the cut, from the statistics of the simulation."""
        return float(self.errors(np.array([self.chosen]))[0])

    @cached_property
    def curve(self) -> Curve:
        """All cuts, from the tightest to none.

        With systematics they are at most 4,096, and the significance is profiled; of files they are those among the
        million of highest scores, and at most 65,535 below.
        """
        cuts = self.ranking
        return Curve(cuts.thresholds(), cuts.fraction, cuts.s, cuts.b, self.values)

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
        about = f"chosen by the rule {self.rule!r} for {self.utility!r}"
        if self.systematics:
            rows.insert(1, ("if the background were known", f"{self.known_background:.4f}"))
            about += f", profiled over {', '.join(self.systematics)}"
        return Summary("CutScan", ("", "at the cut"), rows, (about, *self.notes)).html()

    def interval(self, level: float = 0.68, n_boot: int = 1000, random_state: int = 0) -> CutInterval:
        """Bootstrap intervals of the significance at the cut, and of the cut.

        Each replica gives every event a Poisson number of copies; for a scan of files, whose events are not in memory,
        the sums are drawn as Gaussians instead. The significance is that of the present cut; the cut is chosen anew by
        the same rule, on at most 4,096 cuts; the rule ``"model"``, and every rule with systematics, does so on the
        first 200 replicas. The intervals cover the statistics of the simulated events only: no scatter of data; with
        systematics the background moves by the same shares in all replicas, but for those of variations that are
        samples of their own, which scatter by their own statistics. Weights are taken as they are and replicas are not
        rescaled to fixed class yields, so the total yields scatter along with the efficiencies.

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
        points = self._grid(MAX_PROFILED if self.systematics else MAX_BLOCKS)
        at = int(np.searchsorted(points, self.chosen))
        s, b = self.ranking.replicas(points, n_boot, random_state)
        few = bool(self.systematics) or self.rule == "model"
        rows = s[:MAX_MODELLED] if few else s
        z = self.by.value_or_nan(points, rows, b[: len(rows)])
        z[:, ~np.isfinite(self.values[points])] = np.nan
        error, squares = self.errors(points), self.ranking.variances(points)
        seen = self.by.seen(self.ranking.at(points), self.values[points])._replace(
            error_at=lambda at: float(error[at]),
            variances=lambda at: (squares[0][at], squares[1][at]),
            value=lambda at, s, b: self.by.value(points[at], s, b),
        )
        best = [
            choose(self.rule, seen._replace(z=row, s=s[i], b=b[i]))[1]
            for i, row in enumerate(z)
            if np.isfinite(row).any()
        ]
        significance = self.by.replica_values(self.chosen, s[:, at], b[:, at], random_state) if few else z[:, at]
        if not (best and np.isfinite(significance).any()):
            raise InputError("no replica keeps any background at the cut; there are too few events for an interval")
        low, high = np.nanquantile(significance, quantiles).tolist()
        cuts = np.quantile(self.ranking.thresholds(points)[best], quantiles, method="nearest").tolist()
        return CutInterval((low, high), (cuts[0], cuts[1]))

    def plot(self, ax: Any = None, **label: Unpack[Label]) -> Any:
        """Draw the curve, its band of one standard error (simulation statistics), and the cut.

        With systematics, the curve that ignores them is drawn too.

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
        ax, points = axes_or_current(ax), self._grid(MAX_BLOCKS)
        fraction = self.ranking.fraction[points]
        if self.systematics:  # first, so that the axis has room for both
            ax.plot(fraction, self.known[points], color="0.5", linestyle=":", label="if the background were known")
        draw_significance(
            ax,
            fraction,
            self.values[points],
            self.errors(points),
            label="with systematics" if self.systematics else "significance",
            at=self.fraction,
            at_label=f"cut at {self.cut:.4g}: {self.significance:.3f}",
        )
        ax.set_xlabel("selected fraction of events")
        ax.set_ylabel(f"significance ({type(self.utility).__name__})")
        ax.set_xlim(0.0, 1.0)
        draw_label(ax, **label)
        return ax

    def errors(self, cuts: IntArray) -> Array:
        """Standard error of the significance (simulation statistics) at ascending rows of the curve, NaN if not valid.

        How far the significance moves if s and b each move up by their own simulation error, in quadrature.
        """
        error = np.full(cuts.size, np.nan)
        valid = np.isfinite(self.values[cuts])
        if valid.any():
            error[valid] = self.by.errors(self.ranking, cuts[valid])
        return error

    def _grid(self, most: int) -> IntArray:
        """A number of cuts, evenly spread over the events, the chosen one among them."""
        last = self.ranking.last
        if last.size <= most:
            return np.arange(last.size)
        even = np.linspace(0, last[-1], most - 1)
        return np.unique(np.append(np.searchsorted(last, even), self.chosen))


def _plain(value: float) -> str:
    """Digits without commas, which separate values in a repr."""
    return digits(value).replace(",", "")
