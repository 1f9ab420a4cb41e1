"""What an analysis leaves to read: figures, a page for each chosen region, and tables for a note."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.files import write_text
from fivesigma._tools.summary import Summary
from fivesigma.analysis import edge_choice, figures, region_model
from fivesigma.analysis.cabinetry_workspace import SafeNames, cabinetry_config
from fivesigma.analysis.configuration import SCORE
from fivesigma.analysis.histograms import read_histograms, write_csv
from fivesigma.analysis.run_state import RunState
from fivesigma.analysis.settings import CUT
from fivesigma.analysis.step_record import same_bins
from fivesigma.cut.best_cut import scan
from fivesigma.datasets.events import Events
from fivesigma.datasets.stream import BACKGROUND, SIGNAL
from fivesigma.plot import importance
from fivesigma.reporting import Section, report
from fivesigma.scored.scored_events import ScoredEvents

__all__ = ["FITTED", "SHOWN", "VALIDATION", "tables_for_note", "write_pages"]

FITTED, VALIDATION = "workspace.json", "validation.json"  # workspaces; the second with the regions that are not fitted
SHOWN = "shown.npz"  # histograms of data of blinded regions, of low scores
_AID = (
    "The first number is from edges that were chosen without the fold of the events that fill them. The number in "
    "sample is from the edges of the fit on the events that chose them, and tends to be too high. "
)


def write_pages(run: RunState) -> tuple[list[Path], dict[str, Any]]:
    """Draw the figures, and write the pages and the tables: their files, and what is to be noted."""
    names = cabinetry_config(run.analysis, run.binning)[1]
    album = figures.Album(run.folder / "figures", run.settings.label)
    with run.bar(2 * len(run.events) + 1, "report") as advance:
        read = {name: run.read_events(name) for name in run.events} if run.models else {}
        notes = _draw_fit(run, album, names)
        advance(1, "figures")
        if run.settings.figures:
            for branch, model in run.models.items():
                own = Events.concatenate([read[region["Name"]] for region in run.analysis.models[branch]])
                suffix, by = branch.removeprefix(SCORE), run.settings.event_number
                notes += figures.draw_overtraining(album, suffix, model, own, by)
            for name, events in read.items():
                _draw_features(run, album, name, names, events)
                advance(1, "features")
        said = (*run.record["train"].get("notes", ()), *notes)
        section = replace(_expectation(run), notes=said, figures=tuple(album.shown))
        files: list[Path] = []
        for name, region_events in run.events.items():
            ending = "" if len(run.events) == 1 else f"_{names.regions[name]}"
            page = _page(run, name, read.get(name, region_events.nominal), section)
            files.append(page.write(run.folder / f"report{ending}.html"))
            if run.settings.figures and page.data.importance is not None:
                drawn = importance(page, album.axes()).figure
                album.add(drawn, f"importance{ending}", "Importance")  # the page has its own
            advance(1, name)
    files += album.files
    if album.impacts:
        files.append(write_csv(run.folder / "impacts.csv", album.impacts))
    waterfall = run.record["categorise"]["cross_fitted"]["waterfall"]
    tables = tables_for_note(run.record["read"]["yields"], waterfall, album.impacts)
    files += [write_text(run.folder / f"{name}.tex", table.latex()) for name, table in tables.items()]
    return files, {"notes": notes}


def _draw_fit(run: RunState, album: figures.Album, names: SafeNames) -> list[str]:
    """Rank parameters, and draw all regions before and after the fit; of blinded ones data that may be looked at."""
    settings = run.settings
    workspace, shown = (
        json.loads((run.folder / name).read_text(encoding="utf-8"))
        for name in (FITTED, VALIDATION if settings.validation else FITTED)
    )
    observed = {item["name"]: np.array(item["data"]) for item in shown["observations"]}
    below = {key[0]: filled for key, filled in read_histograms(run.folder / SHOWN).items()}
    channels = {}
    for region in run.analysis.regions if settings.figures else ():
        name, edges, axis = region["Name"], run.binning[region["Name"]], region.get("Variable", "")
        data = observed[names.regions[name]]
        if name in run.record["workspace"]["expected_data"]:
            data = np.full(len(edges) - 1, np.nan)
        if name in below and settings.blind_above is not None:
            seen = edges[1:] <= settings.blind_above
            data[seen] = below[name].yields[seen]
        if name in settings.region:
            edges, axis = np.arange(float(len(edges))), figures.CATEGORIES
        channels[names.regions[name]] = edges, axis, data
    signal = [names.samples[name] for name in run.analysis.signal]
    return figures.draw_fit(album, workspace, shown, channels=channels, signal=signal)


def _draw_features(run: RunState, album: figures.Album, name: str, names: SafeNames, events: Events) -> None:
    """Draw the features of a chosen region; where it is blinded, with data of low scores if that is asked for.

    The fit gives each sample a yield in each category, so that after the fit features have the events in categories.
    """
    below, model, region = run.settings.blind_above, run.models[run.analysis.score_of(name)], names.regions[name]
    text, edges, signal = region, run.binning[name], run.analysis.signal
    with_data = run.analysis.data is not None and (name not in run.hidden or below is not None)
    sets = [events, run.read_events(name, data=True)] if with_data else [events]
    shown = [(one, model.predict_proba(one)[:, 1]) for one in sets]
    if with_data and name in run.hidden:
        text += f", score < {below:g}"
        shown = [(one[score < below], score[score < below]) for one, score in shown]
    figures.draw_features(album, region, f"{text}, before the fit", *(one for one, _ in shown), signal=signal)
    inside = [(score >= edges[0]) & (score < edges[-1]) for _, score in shown]
    if not all(rows.all() for rows in inside):
        text += ", in categories"
    (fitted, score), *data = [(one[rows], score[rows]) for (one, score), rows in zip(shown, inside, strict=True)]
    if not len(fitted):
        return
    category = np.searchsorted(edges, score, side="right") - 1
    factors, errors = album.fitted[region]
    samples, sample = np.unique(np.asarray(fitted.process), return_inverse=True)
    factor = np.stack([factors[names.samples[str(each)]] for each in samples])[sample, category]
    sets = [replace(fitted, weight=fitted.weight * factor), *(one for one, _ in data)]
    figures.draw_features(album, region, f"{text}, after the fit", *sets, signal=signal, relative=errors[category])


def _page(run: RunState, name: str, shown_events: Events | ScoredEvents, section: Section) -> Any:
    """The report on a chosen region."""
    settings, events, found = run.settings, run.events[name], run.record["categorise"]
    # One cut, which the page shows, cannot measure a free yield.
    known = {key: value for key, value in events.variations.items() if not getattr(value, "free", False)}
    shown: dict[str, Any] = {"systematics": edge_choice.systematics_of(known, (BACKGROUND, SIGNAL)) or None}
    model = run.models.get(run.analysis.score_of(name))
    model = model or region_model.GivenScore(str(settings.score), float(scan(events.nominal).cut))
    if settings.number == CUT:
        model.cut_ = found["edges"][name][0]
    elif settings.edges is None:
        shown["categories"] = run.chosen[name]
        # The significance of events on which a model was trained is not to be quoted.
        if len(run.events) == 1 and settings.goal == "discovery" and not run.record["train"].get("notes"):
            shown["cross_fitted"] = found["cross_fitted"]["significance"]
    title = f"{run.analysis.config['General']['Measurement']}, region {name}"
    return report(model, shown_events, title=title, sections=[section], **shown)


def _expectation(run: RunState) -> Section:
    """What is expected, before the verdict of a report."""
    found, fit, what = run.record["categorise"], run.record["workspace"], run.settings.quantity
    quoted, seen = (found[which][what] for which in ("cross_fitted", "in_sample"))
    n = sum(map(len, found["s"].values()))
    many = "1 category" if n == 1 else f"{n} categories"
    data = "expected data in the chosen regions" if run.hidden else "data"
    other = found["plain"]
    plain = () if other is None else (f"The plain score has {other[what]:.3f}, by cross-fitted edges of its own.",)
    aid, in_sample = (_AID, f", in sample {seen:.3f}") if run.settings.edges is None else ("", "")
    profiled = "Systematic uncertainties and the statistics of the simulation are profiled."
    unit, of_mu = ("σ ", "") if what == "significance" else ("", " of the signal strength")
    return Section(
        "expectation",
        "Expectation",
        headline=(f"{quoted:.3f}", f"{unit}expected {what}{of_mu} of {many}{in_sample}"),
        text=(
            f"{profiled} {aid}The sections below show the model at one cut.",
            *plain,
            f"The workspace of all regions has an expected {what} of {fit[what]:.3f}; {same_bins(found)}.",
            f"Fit to {data}: signal strength {fit['mu']:.3f} ± {fit['error']:.3f}.",
        ),
        waterfall=[(name, value) for name, value in found["cross_fitted"]["waterfall"]],
    )


def tables_for_note(
    yields: Sequence[dict[str, Any]], waterfall: Sequence[Sequence[Any]], impacts: Sequence[dict[str, Any]]
) -> dict[str, Summary]:
    r"""Tables for a note: yields with their statistical errors, what each uncertainty costs, impacts by their size.

    Examples
    --------
    >>> row = {"region": "SR_1", "sample": "V+jets", "entries": 100, "yield": 50.0, "effective": 25.0}
    >>> print(tables_for_note([row], [("known background", 2.0)], [])["yields"].latex().splitlines()[4])
    V+jets & 50.0 $\pm$ 10.0 \\
    """
    regions = list(dict.fromkeys(row["region"] for row in yields))
    cells: dict[str, dict[str, str]] = {}
    for row in yields:
        error = abs(row["yield"]) / row["effective"] ** 0.5 if row["effective"] > 0 else 0.0
        cells.setdefault(row["sample"], {})[row["region"]] = f"{row['yield']:.1f} ± {error:.1f}"
    of_samples = [(name, *(own.get(region, "--") for region in regions)) for name, own in cells.items()]
    changes = ["", *(f"{after[1] - before[1]:+.3f}" for before, after in pairwise(waterfall))]
    steps = [(name, change, f"{z:.3f}") for (name, z), change in zip(waterfall, changes, strict=True)]
    found = {
        "yields": Summary("", ("sample", *regions), of_samples),
        "waterfall": Summary("", ("source", "change", "after it"), steps),
    }
    if impacts:
        ordered = sorted(impacts, key=lambda row: -max(abs(row["postfit_up"]), abs(row["postfit_down"])))
        rows = [(name, *(f"{value:+.4f}" for value in values)) for name, *values in map(dict.values, ordered)]
        found["impacts"] = Summary("", tuple(impacts[0]), rows)
    return found
