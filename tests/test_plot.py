"""Figures for papers.

Images are compared by pytest-mpl with small baselines: the numbers behind them depend on no learner and no random
numbers, and the tolerance leaves room for another way of smoothing edges. To write them anew:
``pytest tests/test_plot.py --mpl-generate-path=tests/reporting/baselines``.
"""

from __future__ import annotations

import inspect
import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from fivesigma import Categories, ScoredEvents, categorise, plot, scan
from fivesigma._tools.drawing import poisson_interval
from fivesigma._types import Array
from fivesigma.errors import InputError
from fivesigma.reporting import Report, ReportData, report
from tests.reporting.synthetic import Oracle, overlaid, synthetic

plt = pytest.importorskip("matplotlib.pyplot")
BASELINES = str(Path(__file__).parent / "reporting" / "baselines")
DRAWN_WITH = "3.11."  # whose fonts the images with text have
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
    assert set(plot.__all__) == {*(f.__name__ for f in FIGURES), "overtraining", "style"}


def small_figure(**size: Any) -> tuple[Any, Any]:
    figure = plt.figure(figsize=size.pop("figsize", (4, 3)), dpi=60, **size)
    return figure, figure.subplots()


# Without text, images are the same wherever matplotlib draws alike, whatever the fonts.
@pytest.mark.parametrize("name", ["significance", "u_path", "rounds", "roc", "purity", "systematics", "waterfall"])
@pytest.mark.mpl_image_compare(baseline_dir=BASELINES, tolerance=5, style="default", remove_text=True)
def test_images(name: str, data: ReportData) -> Any:
    figure, ax = small_figure()
    getattr(plot, name)(data, ax)
    if ax.get_legend() is not None:
        ax.get_legend().remove()
    ax.set_xlabel("")
    ax.set_ylabel("")
    return figure


@pytest.mark.skipif(
    not plt.matplotlib.__version__.startswith(DRAWN_WITH),
    reason=f"the images with text were drawn with matplotlib {DRAWN_WITH} and its fonts",
)
@pytest.mark.parametrize("name", ["progress", "scores", "scores_data", "categories_data"])
@pytest.mark.mpl_image_compare(baseline_dir=BASELINES, tolerance=5, style="default")
def test_images_with_legend_label_and_ratio(name: str, data: ReportData) -> Any:
    pytest.importorskip("mplhep")
    figure, ax = small_figure(layout="constrained")
    if name == "progress":
        plot.progress(data, ax, experiment="ATLAS Internal", luminosity=20.3, energy=8)
    elif name == "scores":
        plot.scores(data, ax)
    elif name == "scores_data":
        plot.scores(data, ax, data=observed(data), experiment="CMS Preliminary", luminosity=138, energy=13)
    else:
        made_up_categories().plot(ax, data=[900, 40, 0], experiment="Toy", luminosity=20.3)
    return figure


def observed(data: ReportData) -> Array:
    """Scores in the middle of the bins, as many as expected and a few more at the end, and none in one bin."""
    h = data.scores
    counts = np.round(total(data)).astype(int)
    counts[-5:] += 3
    counts[7] = 0
    return np.repeat((h.edges[:-1] + h.edges[1:]) / 2, counts)


def total(data: ReportData) -> Array:
    return np.asarray(np.sum([p.values for p in data.scores.processes], axis=0))


def made_up_categories() -> Categories:
    score = np.repeat([0.1, 0.5, 0.9, 0.2, 0.6, 0.95], 200)
    y, weight = np.repeat([1, 0], 600), np.repeat([0.02, 0.03, 0.05, 4.0, 0.2, 0.05], 200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return categorise(score, y, weight, 3)


@pytest.mark.parametrize("size", [(4, 3), (3, 2.4), (8, 5)], ids=str)
@pytest.mark.parametrize("layout", [None, "constrained"])
@pytest.mark.parametrize("name", ["progress", "scores", "categories"])
def test_the_legend_leaves_the_curves_free(
    name: str, layout: str | None, size: tuple[float, float], data: ReportData
) -> None:
    with plt.style.context("default"):
        figure, ax = small_figure(figsize=size, layout=layout)
        if name == "categories":
            made_up_categories().plot(ax)
        else:
            getattr(plot, name)(data, ax)
    figure.draw_without_rendering()
    legend = ax.get_legend().get_window_extent()
    heights = [line.get_ydata() for line in ax.get_lines() if len(line.get_xdata()) > 2 or line.get_marker() == "o"]
    heights += [patch.get_data().values for patch in ax.patches if hasattr(patch, "get_data")]
    heights += [[patch.get_y() + patch.get_height()] for patch in ax.patches if hasattr(patch, "get_height")]
    highest = max(np.max(each) for each in heights)
    assert ax.transData.transform((0.5, highest))[1] < legend.y0
    assert legend.width <= ax.get_window_extent().width
    plt.close(figure)


@pytest.mark.parametrize("draw", FIGURES, ids=lambda f: str(f.__name__))
def test_every_figure_takes_an_experiment_and_a_luminosity(draw: Figure, data: ReportData, ax: Any) -> None:
    pytest.importorskip("mplhep")
    draw(data, ax, experiment="ATLAS Internal", luminosity=20.3, energy=8)
    said = [text.get_text() for text in ax.findobj(plt.Text)]
    for words in ("ATLAS", "Simulation Internal", "20.3"):
        assert any(words in text for text in said)
    with pytest.raises(TypeError, match="luminsity"):
        draw(data, ax, luminsity=3)


def test_labels_of_the_other_figures(ax: Any) -> None:
    pytest.importorskip("mplhep")
    rng = np.random.default_rng(0)
    y = np.repeat([1, 0], 1000)
    found = scan(rng.normal(2.0 * y), y, np.where(y == 1, 0.02, 2.0))
    assert found.plot(ax, experiment="MyLab", luminosity=3) is ax
    assert {"MyLab", "Simulation"} <= {text.get_text() for text in ax.findobj(plt.Text)}


@pytest.mark.parametrize("experiment", ["CMS Work in progress", "ATLAS Very Long Preliminary", "MyLab", None])
def test_labels_do_not_overlap(experiment: str | None, data: ReportData) -> None:
    pytest.importorskip("mplhep")
    figure, ax = small_figure(figsize=(3, 2.5))
    before = set(ax.findobj(plt.Text))
    plot.significance(data, ax, **({"experiment": experiment} if experiment else {}), luminosity=140, energy=13.6)
    figure.draw_without_rendering()
    whole = ax.get_window_extent()
    above = [t.get_window_extent() for t in set(ax.findobj(plt.Text)) - before if t.get_text()]
    boxes = sorted((box for box in above if box.y0 >= whole.y1 - 1), key=lambda box: box.x0)
    assert boxes[-1].x1 <= whole.x1 + 1
    for first, second in itertools.pairwise(boxes):
        assert first.x1 <= second.x0 + 1
    plt.close(figure)


def test_data_are_points_with_poisson_intervals_and_a_ratio_below(data: ReportData) -> None:
    figure, ax = small_figure()
    seen = observed(data)
    assert plot.scores(data, ax, data=seen) is ax
    upper, below = figure.axes
    assert upper is ax
    counts = np.histogram(seen, data.scores.edges)[0]
    points = next(c for c in ax.containers if c.get_label() == "data").lines[0]
    np.testing.assert_array_equal(points.get_ydata(), counts[counts > 0])
    ratio = below.containers[0].lines[0].get_xydata()
    full = total(data) > 0
    np.testing.assert_allclose(ratio[:, 1], counts[full] / total(data)[full])
    assert below.get_xlabel() == "score"
    assert ax.get_xlabel() == ""
    assert below.get_xlim() == ax.get_xlim()
    # As scored events, as a histogram, and on axes of one's own.
    own = plt.figure().subplots(2)
    assert plot.scores(data, own[0], data=ScoredEvents(seen), ratio=own[1]) is own[0]
    np.testing.assert_array_equal(own[1].containers[0].lines[0].get_xydata(), ratio)
    assert len(own[0].figure.axes) == 2
    plt.close("all")


def test_poisson_intervals_cover_as_they_should() -> None:
    from scipy.stats import poisson

    n = np.array([0, 1, 2, 7, 100])
    low, high = poisson_interval(n)
    np.testing.assert_allclose(poisson.cdf(n, high), 0.158655, atol=1e-6)
    np.testing.assert_allclose(poisson.sf(n[1:] - 1, low[1:]), 0.158655, atol=1e-6)
    assert low[0] == 0


def test_refused_data_and_labels(data: ReportData, ax: Any) -> None:
    hist = pytest.importorskip("hist")
    with pytest.raises(InputError, match="one score per event"):
        plot.scores(data, ax, data=[0.5, np.nan])
    with pytest.raises(InputError, match="other edges"):
        plot.scores(data, ax, data=hist.Hist(hist.axis.Regular(5, 0, 1)))
    with pytest.raises(InputError, match="one number per category, 3 in all, got the shape"):
        made_up_categories().plot(ax, data=[1, 2])
    with pytest.raises(InputError, match="luminosity must be a positive number, got -1"):
        plot.importance(data, plt.figure().subplots(), luminosity=-1)
    free = plt.figure().add_axes((0.1, 0.1, 0.8, 0.8))
    with pytest.raises(InputError, match="no subplot"):
        plot.scores(data, free, data=[0.5])
    plt.close("all")


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


@pytest.mark.parametrize("name", ["ATLAS", "ATLAS Work in Progress", "LHCb Preliminary", "Mine", "Mine Internal"])
@pytest.mark.parametrize("with_data", [False, True])
def test_an_experiment_needs_no_luminosity(name: str, with_data: bool, data: ReportData, ax: Any) -> None:
    plot.scores(data, ax, data=observed(data) if with_data else None, experiment=name)
    words = " ".join(text.get_text() for text in ax.texts)
    assert all(word in words.replace("\\,", " ") for word in name.split())


def test_data_above_a_cut_can_be_hidden(data: ReportData, ax: Any) -> None:
    """Neither points nor ratio tell of the bins beyond; the axes do not either."""
    seen, edges = observed(data), data.scores.edges
    ratio = plt.figure().subplots()
    plot.scores(data, ax, data=seen, blind=float(edges[30]), ratio=ratio)
    for axes in (ax, ratio):
        x = np.concatenate([line.get_xdata() for line in axes.containers[-1].get_children()[:1]])
        assert x.max() < edges[30]
    few = seen[seen < edges[30]]
    with plt.style.context("default"):
        _, other = small_figure()
    plot.scores(data, other, data=few, blind=float(edges[30]), ratio=plt.figure().subplots())
    assert other.get_ylim() == ax.get_ylim()
    for wrong in ({"blind": 0.5}, {"blind": np.nan, "data": seen}):
        with pytest.raises(InputError, match="blind hides data from a score on"):
            plot.scores(data, ax, **cast(Any, wrong))
    plt.close("all")


def test_training_events_are_drawn_over_others(ax: Any) -> None:
    with pytest.raises(InputError, match="this report does not know the training events"):
        plot.overtraining(synthetic(), ax)
    model, (events, other) = Oracle(), [overlaid(seed) for seed in (0, 1)]
    found = report(model, events, trained_on=other, n_boot=10)
    assert plot.overtraining(found, ax, experiment="ATLAS") is ax
    assert {text.get_text().partition(" (")[0] for text in ax.get_legend().get_texts()} == {
        "signal, training", "signal, here", "background, training", "background, here"
    }  # fmt: skip


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
