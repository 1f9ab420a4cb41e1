"""Figures for papers.

Images are compared with small baselines: the numbers behind them depend on no learner and no random numbers, text is
removed because fonts differ between machines, and the tolerance leaves room for another way of smoothing edges. The
environment variable FIVESIGMA_WRITE_BASELINES=1 writes them anew.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from fivesigma import plot
from fivesigma.errors import InputError
from fivesigma.reporting import Report
from fivesigma.reporting.data import ReportData
from tests.report.synthetic import synthetic

plt = pytest.importorskip("matplotlib.pyplot")
BASELINES = Path(__file__).parent / "report" / "baselines"
FIGURES = [
    plot.significance,
    plot.progress,
    plot.u_path,
    plot.rounds,
    plot.scores,
    plot.roc,
    plot.purity,
    plot.systematics,
    plot.waterfall,
    plot.importance,
]
Figure = Callable[..., Any]


@pytest.fixture(scope="module")
def data() -> ReportData:
    return synthetic()


@pytest.fixture
def ax() -> Iterator[Any]:
    with plt.style.context("default"):
        figure, axes = plt.subplots(figsize=(4, 3), dpi=60)
        yield axes
        plt.close(figure)


@pytest.mark.parametrize("draw", FIGURES, ids=lambda f: str(f.__name__))
def test_figures_take_axes_return_them_and_never_show(
    draw: Figure, data: ReportData, ax: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plt, "show", lambda *_, **__: pytest.fail("a figure was shown"))
    other = plt.figure()
    try:
        assert draw(data, ax) is ax
        assert not other.axes  # nothing was drawn elsewhere
        assert draw(Report(data)) is other.axes[0]  # without axes, the current ones
    finally:
        plt.close(other)
    assert ax.get_xlabel()
    assert ax.get_ylabel() or draw in (plot.importance, plot.waterfall)
    assert set(plot.__all__) == {*(f.__name__ for f in FIGURES), "style"}


@pytest.mark.parametrize("draw", FIGURES[:9], ids=lambda f: str(f.__name__))
def test_images(draw: Figure, data: ReportData, ax: Any, tmp_path: Path) -> None:
    compare = pytest.importorskip("matplotlib.testing.compare").compare_images
    from matplotlib.testing.decorators import remove_ticks_and_titles

    draw(data, ax)
    if ax.get_legend() is not None:
        ax.get_legend().remove()
    remove_ticks_and_titles(ax.figure)
    ax.set_xlabel("")
    ax.set_ylabel("")
    expected = BASELINES / f"{draw.__name__}.png"
    if os.environ.get("FIVESIGMA_WRITE_BASELINES"):
        BASELINES.mkdir(exist_ok=True)
        ax.figure.savefig(expected)
    actual = tmp_path / expected.name
    ax.figure.savefig(actual)
    difference = compare(str(expected), str(actual), tol=5)
    assert difference is None, difference


def test_lines_hold_the_numbers_of_the_report(data: ReportData, ax: Any) -> None:
    plot.significance(data, ax)
    np.testing.assert_array_equal(
        ax.get_lines()[0].get_xydata(), np.column_stack([data.cuts.cut, data.cuts.significance])
    )
    assert ax.get_lines()[1].get_xdata()[0] == data.verdict.cut


def test_minorants_are_drawn_below_the_curve(data: ReportData, ax: Any) -> None:
    plot.progress(data, ax)
    curves = {line.get_label(): line.get_ydata() for line in ax.get_lines() if len(line.get_xdata()) > 2}
    objective = curves.pop("Z²/2")
    assert len(curves) == len(data.progress.minorants) >= 3
    for values in curves.values():
        assert (values <= objective + 1e-12).all()


def test_stack_ends_at_the_sum(data: ReportData, ax: Any) -> None:
    plot.scores(data, ax)
    stairs = {patch.get_label(): patch.get_data() for patch in ax.patches}
    np.testing.assert_allclose(stairs["Higgs"].values, np.sum([p.values for p in data.scores.processes], axis=0))
    np.testing.assert_allclose(stairs["signal alone"].values, data.scores.processes[-1].values)


def test_histograms_of_any_library(data: ReportData, ax: Any) -> None:
    hist = pytest.importorskip("hist")
    h = data.scores
    filled = {}
    for p in h.processes:
        filled[p.name] = hist.Hist(hist.axis.Variable(h.edges), storage=hist.storage.Weight())
        filled[p.name].view().value = p.values
        filled[p.name].view().variance = p.values
    plot.scores(filled, ax, signal=["Higgs"], cut=data.verdict.cut)
    ours = {patch.get_label(): patch.get_data().values for patch in ax.patches}
    ax.clear()
    plot.scores(data, ax)
    for patch in ax.patches:
        if not str(patch.get_label()).startswith("±"):
            np.testing.assert_allclose(ours[patch.get_label()], patch.get_data().values)
    with pytest.raises(InputError, match="signal 'Higs' is not among the histograms 'top', 'Z', 'Higgs'"):
        plot.scores(filled, ax, signal=["Higs"])
    with pytest.raises(InputError, match="has other edges"):
        plot.scores({**filled, "x": hist.Hist(hist.axis.Regular(50, 0, 2))}, ax)
    with pytest.raises(InputError, match="has 2 axes"):
        plot.scores({"x": hist.Hist(hist.axis.Regular(5, 0, 1), hist.axis.Regular(5, 0, 1))}, ax)
    with pytest.raises(InputError, match="no histograms"):
        plot.scores({}, ax)


def test_style_is_mplheps_only_if_asked_for(data: ReportData) -> None:
    pytest.importorskip("mplhep")
    before = plt.rcParams["xtick.direction"]
    with plot.style("CMS"):
        assert plt.rcParams["xtick.direction"] == "in"
    assert plt.rcParams["xtick.direction"] == before
    with pytest.raises(InputError, match=r"style must be one of .*, got 'ATLSA'"):
        plot.style("ATLSA")


def test_refusals_are_one_sentence(data: ReportData, ax: Any) -> None:
    with pytest.raises(InputError, match=r"expected what fivesigma\.report made, got int"):
        plot.roc(cast(Any, 3), ax)
    with pytest.raises(InputError, match="does not say which features"):
        plot.importance(replace(data, importance=None), ax)
    plain = replace(data.progress, minorants=[], note="This is a plain model.")
    with pytest.raises(InputError, match="This is a plain model"):
        plot.progress(replace(data, progress=plain), ax)


def test_every_figure_is_documented() -> None:
    for name in plot.__all__:
        assert inspect.getdoc(getattr(plot, name))


@pytest.mark.parametrize("draw", [plot.systematics, plot.waterfall])
def test_a_report_without_systematics_has_no_figure_of_them(draw: Figure, data: ReportData, ax: Any) -> None:
    without = replace(data, systematics=None, cuts=replace(data.cuts, known=None, profiled=None))
    with pytest.raises(InputError, match=r"this report has no systematics; give fivesigma\.report systematics="):
        draw(without, ax)
