"""Figures for the note: regions before and after the fit, features, pulls, ranking, and the check of overtraining."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from fivesigma._tools.drawing import draw_data, draw_label, legend_above
from fivesigma._tools.extras import need
from fivesigma._tools.files import written_whole
from fivesigma._types import Array
from fivesigma.analysis.cabinetry_workspace import listening
from fivesigma.datasets.events import Events
from fivesigma.errors import shortened
from fivesigma.plot import draw_overlay, draw_stack
from fivesigma.reporting.histogram import overtraining_of
from fivesigma.scored.scored_events import ScoredEvents

__all__ = ["CATEGORIES", "Album", "draw_features", "draw_fit", "draw_overtraining"]

CATEGORIES = "category of the score"
_IMPACTS = ("prefit_up", "prefit_down", "postfit_up", "postfit_down")
_BINS = 20  # of a feature
_MOST_FEATURES = 30
_MOST_RANKED = 20
_REPLICAS = 50
_MOST_EVENTS = 50_000  # of the check of overtraining


class Album:
    """Figures as PDF in a folder, and as PNG for the report."""

    def __init__(self, folder: Path, label: str) -> None:
        self.folder, self.label = folder, label
        self.files: list[Path] = []
        self.shown: list[tuple[str, bytes]] = []
        self.impacts: list[dict[str, Any]] = []  # of each parameter on the signal strength
        self.fitted: dict[str, tuple[dict[str, Array], Array]] = {}  # of the bins of channels, as `_after_fit` says
        folder.mkdir(exist_ok=True)

    def axes(self) -> Any:
        """New axes on a figure of their own."""
        figure = need("matplotlib.figure").Figure(figsize=(6.0, 5.0), layout="constrained")
        need("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)  # mplhep 1.0 asks the canvas for a renderer
        return figure.subplots()

    def add(self, figure: Any, name: str, caption: str) -> None:
        """Write a figure; the file appears whole or not at all."""
        path, png = self.folder / f"{name}.pdf", io.BytesIO()
        figure.savefig(png, format="png", dpi=80)
        figure.set_layout_engine("none")  # the layout, which takes a third of the time, is settled now
        with written_whole(path) as beside:
            figure.savefig(beside, format="pdf", metadata={"CreationDate": None})
        self.files.append(path)
        self.shown.append((caption, png.getvalue()))

    def stack(
        self,
        edges: Array,
        yields: Mapping[str, Array],
        signal: Collection[str],
        *,
        error: Array,
        data: Array | None,
        axis: str,
        text: str,
    ) -> Any:
        """Draw yields of samples upon each other, the signal on top, with data; a count that is NaN is hidden."""
        ax, names = self.axes(), sorted(yields, key=lambda name: (name in signal, float(yields[name].sum())))
        bottom = draw_stack(ax, edges, [(name, name in signal, yields[name]) for name in names], error, "uncertainty")
        ax.set(ylabel="events", xlabel=axis, xlim=(edges[0], edges[-1]))
        ax.set_ylim(bottom=0.0)
        highest = float((bottom + error).max())
        if axis == CATEGORIES:
            centre = (edges[:-1] + edges[1:]) / 2
            ax.set_xticks(centre, [str(k) for k in range(centre.size)])
            if bottom.min() > 0:  # the purest categories are the smallest, and what the fit lives on
                ax.set_yscale("log")
                ax.set_ylim(bottom=bottom.min() / 10)
        if data is not None and not np.isnan(data).all():
            lower = draw_data(ax, edges, data, bottom, error=error)
            lower.set_xlabel(axis)
            highest = max(highest, float(np.nanmax(data + np.sqrt(data))))
        if self.label:
            draw_label(ax, experiment=self.label, data=data is not None)
        legend_above(ax, 1.03 * highest, title=text)
        return ax.figure


def draw_fit(
    album: Album,
    workspace: dict[str, Any],
    shown: dict[str, Any],
    *,
    channels: Mapping[str, tuple[Array, str, Array]],
    signal: Collection[str],
) -> list[str]:
    """Rank the parameters of a workspace, and draw that, its pulls, and the regions of another one before and after.

    `channels` have their edges, the name of their axis and their data, NaN where these are hidden; without any nothing
    is drawn.
    """
    cabinetry = need("cabinetry")
    with listening():
        model, data = cabinetry.model_utils.model_and_data(workspace)
        found = cabinetry.fit.fit(model, data)
        ranked, notes = _rank(model, data, found)
        album.impacts = [
            dict(zip(("parameter", *_IMPACTS), (label, *map(float, values)), strict=True))
            for label, *values in zip(ranked.labels, *(getattr(ranked, side) for side in _IMPACTS), strict=True)
        ]
        if not channels:
            return notes
        all_regions, _ = cabinetry.model_utils.model_and_data(shown)
        after = cabinetry.model_utils.match_fit_results(all_regions, found)
        before: dict[str, dict[str, Array]] = {}
        for text, results in (("before the fit", None), ("after the fit", after)):
            prediction = cabinetry.model_utils.prediction(all_regions, fit_results=results)
            drawn_yields = prediction.model_yields, prediction.total_stdev_model_bins
            for channel, rows, errors in zip(all_regions.config.channels, *drawn_yields, strict=True):
                (edges, axis, seen), error = channels[channel], np.array(errors[-1])
                samples = dict(zip(all_regions.config.samples, np.array(rows), strict=True))
                if results:
                    album.fitted[channel] = _after_fit(before[channel], samples, error)
                else:
                    before[channel] = samples
                title = f"{channel}, {text}"
                drawn = album.stack(edges, samples, signal, error=error, data=seen, axis=axis, text=title)
                when = "postfit" if results else "prefit"
                album.add(drawn, f"{channel}_{when}", f"Region {channel} {text}")
        options = {"figure_folder": album.folder, "save_figure": False, "close_figure": True}
        # A free factor such as the signal strength has no pull, and factors of the simulation are too many to show.
        free = [name for name in model.config.parameters if not model.config.param_set(name).constrained]
        if all(name in free or name.startswith("staterror") for name in found.labels):
            free = []
        album.add(cabinetry.visualize.pulls(found, exclude=free, **options), "pulls", "Pulls of the fit")
        if ranked.labels:
            drawn = cabinetry.visualize.ranking(ranked, max_pars=_MOST_RANKED, **options)
            album.add(drawn, "ranking", "Impact of the parameters on the signal strength")
        return notes


def _rank(model: Any, data: Any, found: Any) -> tuple[Any, list[str]]:
    """The ranking of cabinetry, without those parameters of which a shifted fit fails; these are noted."""
    cabinetry, poi = need("cabinetry"), model.config.poi_index
    before, rows, notes = cabinetry.model_utils.prefit_uncertainties(model), [], []
    for i, label in enumerate(found.labels):
        impacts = []
        try:
            for shift in (before[i], -before[i], found.uncertainty[i], -found.uncertainty[i]) if i != poi else ():
                start, fixed = model.config.suggested_init(), model.config.suggested_fixed()  # as cabinetry
                start[i], fixed[i] = found.bestfit[i] + shift, True
                moved = cabinetry.fit.fit(model, data, init_pars=start, fix_pars=fixed) if shift else found
                impacts.append(moved.bestfit[poi] - found.bestfit[poi])
        except Exception as err:  # of pyhf, where a parameter is at the edge of its range
            why = shortened(" ".join(str(err).split()), 200)
            notes.append(f"{label!r} is not ranked: a fit with it shifted failed ({type(err).__name__}: {why})")
        if len(impacts) == len(_IMPACTS):
            rows.append((found.bestfit[i], found.uncertainty[i], label, *impacts))
    value, error, labels, *sides = list(zip(*rows, strict=True)) or [()] * 7
    columns = np.array(value), np.array(error), list(labels), *map(np.array, sides)
    return cabinetry.fit.results_containers.RankingResults(*columns), notes


def _after_fit(before: Mapping[str, Array], after: Mapping[str, Array], error: Array) -> tuple[dict[str, Array], Array]:
    """Factors of each sample in each bin, and the relative errors of the bins."""

    def ratio(above: Array, below: Array) -> Array:
        return np.divide(above, below, out=np.ones_like(above), where=below != 0)

    total = np.sum([*after.values()], axis=0)
    return {name: ratio(after[name], yields) for name, yields in before.items()}, ratio(error, total)


def draw_features(
    album: Album,
    region: str,
    text: str,
    events: Events,
    data: Events | None = None,
    *,
    signal: Collection[str],
    relative: Array | None = None,
) -> None:
    """Draw features of simulated events, and of those data events that may be looked at.

    After a fit the events have their weights of then, and the relative errors of their categories.
    """
    for name in events.feature_names[:_MOST_FEATURES]:
        values = events.column(name).astype(np.float64)
        known = np.isfinite(values)
        low, high = np.quantile(values[known], [0.005, 0.995]) if known.any() else (0.0, 0.0)
        if not low < high:
            continue
        edges = np.linspace(low, high, _BINS + 1)
        process = np.asarray(events.process)
        filled = {
            sample: np.histogram(values[process == sample], edges, weights=events.weight[process == sample])[0]
            for sample in dict.fromkeys(process.tolist())
        }
        error = np.sqrt(np.histogram(values, edges, weights=events.weight**2)[0])
        if relative is not None:  # as if the categories moved together
            error = np.hypot(error, np.histogram(values, edges, weights=events.weight * relative)[0])
        seen = None if data is None else np.histogram(data.column(name), edges)[0].astype(np.float64)
        drawn = album.stack(edges, filled, signal, error=error, data=seen, axis=name, text=text)
        safe = "".join(letter if letter.isalnum() else "_" for letter in name)
        ending = "prefit" if relative is None else "postfit"
        album.add(drawn, f"{region}_feature_{safe}_{ending}", f"Feature {name} in region {text}")


def draw_overtraining(album: Album, name: str, model: Any, events: Events, by: str) -> list[str]:
    """Compare the scores of events by a fit that has seen them with those by the fit that has not.

    Both are scores of one fit for each event, so that they differ by nothing but what the fit has seen. The error is
    that of the paired difference, by a bootstrap of the events. A model without folds of its own has no such check.
    """
    if getattr(model, "by", None) != by:
        return []
    if len(events) > _MOST_EVENTS:
        events = events[np.random.default_rng(0).permutation(len(events))[:_MOST_EVENTS]]
    seen = replace(events, kept={by: events.kept[by] + 1})  # the next fold's fit, which was trained on this fold
    unseen = ScoredEvents.of(model, events)
    found = overtraining_of(model, model, unseen, seen)
    scores = [np.asarray(model.predict_proba(one)[:, 1]) for one in (seen, events)]
    weight, signal = np.maximum(events.weight, 0.0), events.is_signal
    rng = np.random.default_rng(0)
    drawn = [np.ones(len(events)), *rng.poisson(1.0, (_REPLICAS, len(events))).astype(np.float64)]
    areas = np.array(
        [[roc_auc_score(signal, score, sample_weight=weight * replica) for replica in drawn] for score in scores]
    )
    difference, error = areas[0, 0] - areas[1, 0], float((areas[0, 1:] - areas[1, 1:]).std(ddof=1))
    ax = album.axes()
    highest = draw_overlay(ax, found, "in fold", "out of fold")
    ax.set(xlabel="score", ylabel="density", xlim=(found.edges[0], found.edges[-1]))
    legend_above(ax, highest, title=f"area {areas[0, 0]:.3f} in fold, {areas[1, 0]:.3f} out of fold")
    album.add(ax.figure, f"overtraining{name}", "Overtraining: scores by fits that have seen the events, and have not")
    area = f"area under the ROC curve {areas[0, 0]:.4f} in fold and {areas[1, 0]:.4f} out of fold"
    return [f"overtraining{name.replace('_', ' of ', 1)}: {area}, a difference of {difference:.4f} ± {error:.4f}"]
