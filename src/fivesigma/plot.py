"""The figures of a report for papers, with matplotlib.

Every function takes what `fivesigma.report` made and the axes to draw on, returns the axes, and shows nothing. The
keywords ``experiment`` (such as ``"ATLAS Internal"``), ``luminosity`` (in 1/fb) and ``energy`` (in TeV) of each are
written above the axes as mplhep does it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from fivesigma._tools.drawing import (
    CUT_LINE,
    Label,
    axes_or_current,
    draw_data,
    draw_label,
    draw_significance,
    legend_above,
)
from fivesigma._tools.extras import need
from fivesigma._types import Array
from fivesigma.errors import InputError

if TYPE_CHECKING:
    from fivesigma.reporting import Report, ReportData
    from fivesigma.reporting.histogram import Overtraining

__all__ = [
    "importance",
    "overtraining",
    "progress",
    "purity",
    "roc",
    "rounds",
    "scores",
    "significance",
    "style",
    "systematics",
    "u_path",
    "waterfall",
]

# Petroff's sequence for backgrounds, which survives colour blindness and grey print; warm colours for signal.
BACKGROUNDS = ("#3f90da", "#ffa90e", "#94a4a2", "#832db6", "#a96b59", "#b9ac70", "#717581")
SIGNALS = ("#bd1f01", "#e76300", "#d65db1", "#92304f", "#f08a7a", "#7a1f1f", "#caa0a0")
_TOO_HIGH = 50.0  # ratio of the largest to the smallest density from which on the latter would lie on the axis
_CHOSEN = {"color": "black", "marker": "o", "linestyle": "", "label": "the model's cut"}
STYLES = ("ALICE", "ATLAS", "CMS", "LHCb", "DUNE")


def style(name: str = "CMS") -> AbstractContextManager[None]:
    """Return an experiment's style from mplhep, as a context; without it figures look as matplotlib is set.

    Parameters
    ----------
    name : {"ALICE", "ATLAS", "CMS", "LHCb", "DUNE"}, default="CMS"

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import fivesigma
    >>> with fivesigma.plot.style("ATLAS"):
    ...     fig, ax = plt.subplots()
    >>> plt.close(fig)
    """
    if name not in STYLES:
        raise InputError(f"style must be one of {', '.join(map(repr, STYLES))}, got {name!r}")
    sheet = getattr(need("mplhep").style, name)
    context: AbstractContextManager[None] = need("matplotlib.style").context(sheet)
    return context


def significance(report: Report | ReportData, ax: Any = None, **label: Unpack[Label]) -> Any:
    """Draw significance against the cut, with its band of one standard error (simulation) and the model's cut.

    Parameters
    ----------
    report : Report or ReportData
    ax : matplotlib axes, optional
        The current axes if not given.
    **label
        ``experiment``, ``luminosity`` in 1/fb and ``energy`` in TeV, written above the axes.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import fivesigma
    >>> from fivesigma.datasets import make_htautau
    >>> events = make_htautau(2000)
    >>> model = fivesigma.GrownCascadeClassifier(n_trees=5, b_reg=10.0, random_state=0, n_jobs=1)
    >>> report = fivesigma.report(model.fit(events.X, events.y, events.weight), events, n_boot=10)
    >>> fig, ax = plt.subplots()
    >>> fivesigma.plot.significance(report, ax, experiment="ATLAS", luminosity=20.3).get_xlabel()
    'cut on the score'
    >>> plt.close(fig)
    """
    data, ax = _data(report), axes_or_current(ax)
    cuts, verdict = data.cuts, data.verdict
    chosen = f"cut at {verdict.cut:.4g}: {verdict.significance:.3f}"
    curve = cuts.cut, cuts.significance, cuts.error
    draw_significance(ax, *curve, label=verdict.utility, at=verdict.cut, at_label=chosen)
    return _frame(ax, label, "cut on the score", "significance (σ)", cuts.cut[np.isfinite(cuts.significance)])


def progress(report: Report | ReportData, ax: Any = None, **label: Unpack[Label]) -> Any:
    """Draw Z²/2 against the cut, and the minorants -R(., u_t) of some rounds of a cascade that touch it from below.

    Parameters as in `significance`.
    """
    data, ax = _data(report), axes_or_current(ax)
    found = data.progress
    if not found.minorants:
        raise InputError(found.note)
    colours = need("matplotlib").colormaps["viridis"](np.linspace(0.0, 0.9, len(found.minorants)))
    for m, colour in zip(found.minorants, colours, strict=True):
        ax.plot(found.cut, m.value, color=colour, linewidth=1, label=f"round {m.round}, $u$ = {m.u:.4f}")
        if m.touch is not None:
            at = (found.cut[m.touch], found.objective[m.touch])
            ax.plot(*at, "o", color=colour, markeredgecolor="black", zorder=3)
    ax.plot(found.cut, found.objective, color="black", linewidth=2, label=found.name)
    ax.axvline(data.verdict.cut, label="the model's cut", **CUT_LINE)
    top = float(found.objective.max())
    visible, y = found.cut[found.objective > 0.15 * top], rf"{found.name} and $-R(\cdot, u_t)$"
    return _frame(ax, label, "cut on the score", y, visible, from_zero=True, highest=1.03 * top)


def u_path(report: Report | ReportData, ax: Any = None, **label: Unpack[Label]) -> Any:
    """Draw u by round, a line for each cascade; parameters as in `significance`."""
    data, ax = _data(report), axes_or_current(ax)
    for series in data.progress.series:
        if np.isfinite(series.u).any():
            ax.plot(series.round, series.u, label=series.name)
    return _frame(ax, label, "round", "$u$, weight of signal", from_zero=True)


def rounds(report: Report | ReportData, ax: Any = None, **label: Unpack[Label]) -> Any:
    """Draw held-out significance by round, and that of training events dashed; parameters as in `significance`."""
    data, ax = _data(report), axes_or_current(ax)
    for series in data.progress.series:
        (line,) = ax.plot(series.round, series.significance, label=f"{series.name}, held-out events")
        looked = np.isfinite(series.train)
        if looked.any():
            where = np.asarray(series.round)[looked]
            ax.plot(where, series.train[looked], "--", color=line.get_color(), label=f"{series.name}, training events")
    return _frame(ax, label, "round", "significance (σ)")


def scores(
    report: Report | ReportData | Mapping[str, Any],
    ax: Any = None,
    *,
    signal: Sequence[str] = (),
    cut: Any = None,
    data: Any = None,
    blind: float | None = None,
    ratio: Any = None,
    **label: Unpack[Label],
) -> Any:
    """Draw the score by process: weighted, stacked, on a logarithmic scale, with the signal once more on its own.

    With `data` the observed events are drawn as points with Poisson intervals, and their ratio to the expectation in a
    panel below.

    Parameters
    ----------
    report : Report, ReportData or mapping of str to histogram
        Or histograms of one axis by process, from any library that speaks UHI (hist, boost-histogram); they are
        stacked in this order.
    ax : matplotlib axes, optional
        The current axes if not given.
    signal : sequence of str, optional
        Which of the histograms are signal; a report knows.
    cut : float, optional
        Where to draw the cut; by default the model's.
    data : array of shape (n_events,), ScoredEvents or histogram, optional
        Scores of observed events, or a histogram of them with the same bins.
    blind : float, optional
        Score from which on data are hidden: bins that reach beyond it have no point.
    ratio : matplotlib axes, optional
        For the ratio; by default the axes are divided into two panels.
    **label
        As in `significance`.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> import hist, numpy as np
    >>> import matplotlib.pyplot as plt
    >>> import fivesigma
    >>> rng = np.random.default_rng(0)
    >>> axis = hist.axis.Regular(10, 0, 1, name="score")
    >>> filled = {name: hist.Hist(axis, storage="weight").fill(rng.random(100)) for name in ("Z", "H")}
    >>> fig, ax = plt.subplots()
    >>> fivesigma.plot.scores(filled, ax, signal=["H"], cut=0.8).get_yscale()
    'log'
    >>> plt.close(fig)
    """
    ax = axes_or_current(ax)
    if isinstance(report, Mapping):
        edges, stack, error = _from_histograms(report, set(signal))
    else:
        found = _data(report)
        edges, error = found.scores.edges, found.scores.error
        stack = [(p.name, p.signal, p.values) for p in found.scores.processes]
        cut = found.verdict.cut if cut is None else cut
    floor = draw_stack(ax, edges, stack, error, "±1 standard error of the sum")
    alone = [values for _, is_signal, values in stack if is_signal]
    if alone:
        ax.stairs(np.sum(alone, axis=0), edges, color="black", linewidth=1.5, label="signal alone")
    if cut is not None:
        ax.axvline(cut, **CUT_LINE)
    if blind is not None and (data is None or np.isnan(blind)):
        raise InputError(f"blind hides data from a score on; give data and a number, got blind={blind!r}")
    counts = None if data is None else _counts(data, edges)
    if counts is not None and blind is not None:
        counts[edges[1:] > blind] = np.nan
    highest = max(float(floor.max()), 0.0 if counts is None else float(np.nanmax(counts, initial=0.0)))
    positive = floor[floor > 0]
    if positive.size:
        ax.set_yscale("log")
        ax.set_ylim(bottom=max(positive.min() / 10, positive.max() / 1e6))
    y = "events per bin" if counts is not None else "expected events per bin"
    ax.set(xlabel="score", ylabel=y, xlim=(edges[0], edges[-1]))
    if counts is not None:
        draw_data(ax, edges, counts, floor, error=error, ratio=ratio)
    draw_label(ax, **label, data=counts is not None)
    if positive.size:
        legend_above(ax, 1.5 * highest)
    return ax


def draw_stack(
    ax: Any, edges: Array, stack: Sequence[tuple[str, bool, Array]], error: Array | None, band: str
) -> Array:
    """Draw yields by name and class upon each other, and a band of their error; return their sum."""
    palettes, floor = {True: cycle(SIGNALS), False: cycle(BACKGROUNDS)}, np.zeros(len(edges) - 1)
    for name, is_signal, values in stack:
        ax.stairs(floor + values, edges, baseline=floor, fill=True, color=next(palettes[is_signal]), label=name)
        floor = floor + values
    if error is not None:
        look = {"hatch": "////", "fill": False, "linewidth": 0, "alpha": 0.5, "label": band}
        ax.stairs(floor + error, edges, baseline=floor - error, **look)
    return floor


def roc(report: Report | ReportData, ax: Any = None, **label: Unpack[Label]) -> Any:
    """Draw signal efficiency against background efficiency, weighted; parameters as in `significance`."""
    data, ax = _data(report), axes_or_current(ax)
    cuts = data.cuts
    some = cuts.background_efficiency > 0
    ax.plot(cuts.background_efficiency[some], cuts.efficiency[some], label=f"area {cuts.auc:.4f}")
    ax.plot(cuts.background_efficiency[cuts.chosen], cuts.efficiency[cuts.chosen], **_CHOSEN)
    ax.set_xscale("log")
    ax.set_ylim(0.0, 1.0)
    return _frame(ax, label, "background efficiency", "signal efficiency")


def purity(report: Report | ReportData, ax: Any = None, **label: Unpack[Label]) -> Any:
    """Draw purity s / (s + b) against signal efficiency, weighted; parameters as in `significance`."""
    data, ax = _data(report), axes_or_current(ax)
    cuts = data.cuts
    valid = np.isfinite(cuts.significance)
    ax.plot(cuts.efficiency[valid], cuts.purity[valid])
    ax.plot(cuts.efficiency[cuts.chosen], cuts.purity[cuts.chosen], **_CHOSEN)
    return _frame(ax, label, "signal efficiency", "purity, s / (s + b)", (0.0, 1.0), from_zero=True)


def importance(report: Report | ReportData, ax: Any = None, **label: Unpack[Label]) -> Any:
    """Draw the share of each feature, the largest on top; parameters as in `significance`."""
    data, ax = _data(report), axes_or_current(ax)
    found = data.importance
    if found is None:
        raise InputError(f"a {data.provenance.model} of these learners does not say which features it uses")
    ax.barh(found.names[::-1], found.share[::-1])
    return _frame(ax, label, "share of the gain" if found.kind == "gain" else "share of the loss in ROC area", "")


def overtraining(report: Report | ReportData, ax: Any = None, **label: Unpack[Label]) -> Any:
    """Draw the score of training events as areas and of the report's events as points, each class with area one.

    The report must be made with ``trained_on``; parameters as in `significance`.
    """
    data, ax = _data(report), axes_or_current(ax)
    found = data.overtraining
    if found is None:
        raise InputError("this report does not know the training events; give fivesigma.report(..., trained_on=events)")
    highest = draw_overlay(ax, found, "training", "here (KS {:.2g})")
    ax.axvline(data.verdict.cut, **CUT_LINE)
    return _frame(ax, label, "score", "density", found.edges, highest=highest)


def draw_overlay(ax: Any, found: Overtraining, seen: str, unseen: str) -> float:
    """Draw the scores of events that a model has seen and of others, by these names; return how high they reach.

    The second name may have a place for the probability of Kolmogorov and Smirnov.
    """
    centre = (found.edges[:-1] + found.edges[1:]) / 2
    for one, colour in zip(found.classes, (SIGNALS[0], BACKGROUNDS[0]), strict=True):
        ax.stairs(one.training, found.edges, fill=True, alpha=0.3, color=colour, label=f"{one.name}, {seen}")
        shown, name = one.here > 0, f"{one.name}, {unseen.format(one.probability)}"
        bars = {"fmt": "o", "color": colour, "markersize": 3, "label": name}
        ax.errorbar(centre[shown], one.here[shown], one.here_error[shown], **bars)
    density = np.array([[one.training, one.here] for one in found.classes])
    least, top = float(density[density > 0].min()), float(density.max())
    if top > _TOO_HIGH * least:
        ax.set_yscale("log")
        ax.set_ylim(bottom=least / 2)
        return 2 * top
    ax.set_ylim(bottom=0.0)
    return 1.1 * top


def systematics(report: Report | ReportData, ax: Any = None, **label: Unpack[Label]) -> Any:
    """Draw significance against the cut, with all systematics and without any."""
    data, ax = _data(report), axes_or_current(ax)
    cuts = data.cuts
    if cuts.profiled is None or cuts.known is None:
        raise InputError("this report has no systematics; give fivesigma.report systematics=")
    ax.plot(cuts.cut, cuts.known, color="0.5", linestyle=":", label="if the background were known")
    ax.plot(cuts.cut, cuts.profiled, label="with all systematics")
    ax.axvline(data.verdict.cut, label=f"cut at {data.verdict.cut:.4g}", **CUT_LINE)
    return _frame(ax, label, "cut on the score", "significance (σ)", cuts.cut[np.isfinite(cuts.known)], from_zero=True)


def waterfall(report: Report | ReportData, ax: Any = None, **label: Unpack[Label]) -> Any:
    """Draw what each systematic and the statistics of the simulation cost, from a known background to a fit."""
    data, ax = _data(report), axes_or_current(ax)
    if data.systematics is None:
        raise InputError("this report has no systematics; give fivesigma.report systematics=")
    steps = data.systematics.waterfall
    values = [value for _, value in steps]
    labels = ["statistics alone", *(name for name, _ in steps[1:-1]), "statistics of\nthe simulation", "fit"]
    left = [0.0, *values[1:], 0.0]
    width = [values[0], *(before - after for before, after in pairwise(values)), values[-1]]
    colours = [BACKGROUNDS[0], *[SIGNALS[0]] * (len(steps) - 1), BACKGROUNDS[0]]
    ax.barh(np.arange(len(labels)), width, left=left, color=colours)
    ax.set_yticks(np.arange(len(labels)), labels)
    ax.invert_yaxis()
    return _frame(ax, label, "significance (σ)", "")


def _data(report: Any) -> ReportData:
    data: ReportData = getattr(report, "data", report)
    if not hasattr(data, "verdict"):
        raise InputError(f"expected what fivesigma.report made, got {type(report).__name__}")
    return data


def _counts(data: Any, edges: Array) -> Array:
    """Observed events of each bin, from their scores or from a histogram."""
    if hasattr(data, "axes") and hasattr(data, "values"):
        if len(data.axes) != 1 or not np.array_equal(np.asarray(data.axes[0].edges), edges):
            raise InputError("the histogram of the data has other edges than that of the simulation")
        return np.asarray(data.values(), dtype=np.float64)
    score = np.asarray(getattr(data, "score", data), dtype=np.float64)
    if score.ndim != 1 or np.isnan(score).any():
        raise InputError(f"data must hold one score per event and no NaN, got the shape {score.shape}")
    return np.histogram(np.clip(score, edges[0], edges[-1]), edges)[0].astype(np.float64)


def _frame(
    ax: Any,
    label: Label,
    x: str,
    y: str,
    shown: Sequence[float] | Array | None = None,
    *,
    from_zero: bool = False,
    highest: float | None = None,
) -> Any:
    """Label the axes and what is above them, and add a legend: above curves that reach so high, or where it fits.

    The horizontal axis extends between the smallest and the largest of the values `shown`.
    """
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    if shown is not None:
        ax.set_xlim(np.min(shown), np.max(shown))
    if from_zero:
        ax.set_ylim(bottom=0.0)
    draw_label(ax, **label)
    if highest is not None:
        legend_above(ax, highest)
    elif ax.get_legend() is None and len(ax.get_lines()) > 1:
        ax.legend(fontsize="small")
    return ax


def _from_histograms(
    histograms: Mapping[str, Any], signal: set[str]
) -> tuple[Array, list[tuple[str, bool, Array]], Array | None]:
    """Edges, values and error of the sum of histograms that speak UHI."""
    unknown = sorted(signal - set(histograms))
    if unknown:
        raise InputError(f"signal {unknown[0]!r} is not among the histograms {', '.join(map(repr, histograms))}")
    edges: Array | None = None
    stack: list[tuple[str, bool, Array]] = []
    variance: Any = 0.0
    for name, histogram in histograms.items():
        if len(histogram.axes) != 1:
            raise InputError(f"the histogram {name!r} has {len(histogram.axes)} axes; project it to the score")
        here = np.asarray(histogram.axes[0].edges, dtype=np.float64)
        if edges is not None and not np.array_equal(edges, here):
            raise InputError(f"the histogram {name!r} has other edges than those before it")
        edges = here
        stack.append((str(name), name in signal, np.asarray(histogram.values(), dtype=np.float64)))
        spread = histogram.variances()
        variance = None if spread is None or variance is None else variance + np.asarray(spread)
    if edges is None:
        raise InputError("there are no histograms to draw")
    return edges, stack, None if variance is None else np.sqrt(variance)
