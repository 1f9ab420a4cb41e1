"""An analysis, step by step: read, train, categorise, score, workspace, report."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.files import remove, write_text
from fivesigma._tools.progress import steps as bar
from fivesigma._types import Array
from fivesigma.analysis import all_regions, edge_choice, figures, histograms, region_model, step_record
from fivesigma.analysis import cabinetry_workspace as cab
from fivesigma.analysis.analysis_file import read_analysis
from fivesigma.analysis.configuration import CUT, SCORE, acts, find_named, name_of_data
from fivesigma.analysis.edge_choice import RegionEvents
from fivesigma.analysis.histograms import Filled, Histograms, read_histograms, write_csv, write_histograms
from fivesigma.analysis.run_state import RunState
from fivesigma.analysis.step_record import STEPS, Record
from fivesigma.analysis.templates import by_tree
from fivesigma.categories.datacard import to_combine
from fivesigma.categories.review import prune, template_notes, write_hepdata
from fivesigma.cut.best_cut import scan
from fivesigma.datasets.events import Events
from fivesigma.datasets.stream import BACKGROUND, SIGNAL
from fivesigma.errors import InputError, did_you_mean
from fivesigma.likelihood.shifts import YieldShifts
from fivesigma.reporting import Section, report
from fivesigma.scored.scored_events import ScoredEvents
from fivesigma.store import save

__all__ = ["analyse"]

_Result = tuple[Iterable[Path], dict[str, Any]]
FIGURES, COMBINE, HEPDATA, PRUNED = "figures", "combine", "hepdata", "pruned.csv"
CONTROL, CHOSEN, SHOWN = "control.npz", "chosen.npz", "shown.npz"  # histograms
_BOTH = ("cross_fitted", "in_sample")


def analyse(
    config: str | os.PathLike[str] | Mapping[str, Any],
    output: str | os.PathLike[str],
    *,
    only: str | None = None,
    force: bool = False,
    unblind: bool = False,
    friends: bool = False,
    n_jobs: int | None = None,
    verbose: int = 0,
    say: Callable[[str], Any] | None = print,
) -> Record:
    """Go from ntuples to a fitted workspace.

    Parameters
    ----------
    config : path or mapping
        A cabinetry configuration with a block ``Fivesigma``; see docs/guide/analysis-file.md. Its paths are relative
        to the current folder, as in cabinetry.
    output : path
        Folder of the results. A step that was done with the same inputs is not done again.
    only : {"read", "train", "score", "categorise", "workspace", "report"}, optional
        Do this step alone; those before it must be done.
    force : bool, default=False
        Do the steps even if nothing changed.
    unblind : bool, default=False
        Look at the data of the chosen region.
    friends : bool, default=False
        Write the new branches alone to the ntuples.
    n_jobs : int, optional
        Threads of the training; all cores by default.
    verbose : int, default=0
        1 shows progress bars on stderr.
    say : callable, optional
        Gets what each step found, in lines; None for silence.

    Returns
    -------
    Record
        Of every step.

    Raises
    ------
    InputError
        For anything that cannot be used, in one sentence.

    Examples
    --------
    ``examples/ntuples_to_fit.py`` goes from ntuples to the fit.

    >>> import fivesigma
    >>> fivesigma.analyse({"Samples": []}, "out")
    Traceback (most recent call last):
        ...
    fivesigma.errors.InputError: the configuration has no block 'Fivesigma'
    """
    if only is not None and only not in STEPS:
        raise InputError(f"only must be one of {', '.join(STEPS)}, got {only!r}{did_you_mean(str(only), STEPS)}")
    analysis = read_analysis(config)
    record = Record.opened(Path(output))
    run = _Run(analysis, record, unblind=unblind, friends=friends, n_jobs=n_jobs, verbose=verbose)
    tell = say or (lambda _: None)
    with record.locked():
        run.look_at_files()
        for name in STEPS:
            inputs = run.inputs(name)
            done = record.is_done(name, inputs)
            wanted = only in (None, name)
            if not wanted and not done:
                raise InputError(f"step {name!r} comes before {only!r} and is not done with these inputs; run it first")
            if wanted and (force or not done):
                tell(f"{name} ...")
                record.run(name, inputs, getattr(run, name))
            elif wanted:
                tell(f"{name}: nothing changed")
            if wanted:
                for line in step_record.lines(name, record, run.quantity, run.hidden):
                    tell(line)
            if name == only:
                break
        record.write()
    return record


class _Run(RunState):
    """The steps."""

    def read(self) -> _Result:
        """Check all input, count events, and fill the histograms that need no score."""
        # What later steps would refuse is refused before anything is trained.
        region_model.check_model(self.analysis.settings)
        data = self.analysis.data
        if self.hidden and data is not None and "Filter" in data:
            raise InputError(
                f"sample {data['Name']!r} has a Filter, which replaces that of every region, so that no region can be "
                "blinded: leave it out, or unblind"
            )
        with bar(2 * len(self.trees), bool(self.verbose), "read") as advance:
            for trees in by_tree(self.templates).values():
                for tree, users in trees.items():
                    self.reader.check(tree, users[0].owner, users)
                    advance(1, tree.file.name)
            found = histograms.count(self.reader, self.analysis, self.templates, advance=advance)
        rows = found.rows(self.templates)
        norms = all_regions.norm_widths(self.analysis, found.filled)
        free = [name for name, width in norms.items() if width is None]
        if self.analysis.settings.number == CUT and free:
            raise InputError(
                f"one cut cannot measure the NormFactor {free[0]!r}, which no other region constrains: choose "
                "categories, add a control region, or fix it in General"
            )
        files = [write_csv(self.folder / "yields.csv", rows), write_histograms(self.folder / CONTROL, found.filled)]
        normalised = dict.fromkeys(template.normalised for template in self.templates if template.normalised)
        notes = [
            f"the categories of region {region['Name']!r} are those of the score, not of {region['Variable']!r}"
            for region in self.analysis.chosen
            if "Variable" in region
        ]
        notes += histograms.notes_on(found, self.templates) + histograms.notes_on_bins(found.filled)
        return files, {"yields": rows, "normalisation": list(normalised), "norms": norms, "notes": notes}

    def train(self) -> _Result:
        """Train on the folds, unless the score or the model exists already."""
        settings = self.analysis.settings
        if settings.score is not None:
            return [], {"model": [f"the score is {settings.score!r}: nothing is trained"]}
        checkpoint = self.folder / f".train-{self.inputs('train')[:16]}"
        for other in self.folder.glob(".train-*"):
            if other != checkpoint:
                remove(other)
        said, self.models = [], {}
        for branch, regions in self.analysis.models.items():
            model, how = self.saved, f"from {settings.model}"
            if model is None:
                model = self._train_model(regions, checkpoint / branch if settings.each else checkpoint)
                how = f"of {settings.model}: {getattr(model, 'choice_', None) or f'{len(model.history_)} rounds'}"
            self.models[branch] = model
            where = f"region {regions[0]['Name']!r}: " if settings.each else ""
            said.append(f"{where}{type(model).__name__} {how}")
        remove(self.folder / "model")
        for branch, model in self.models.items():
            self.model_folder(branch).parent.mkdir(exist_ok=True)
            save(model, self.model_folder(branch))
        remove(checkpoint)
        return sorted(path for path in (self.folder / "model").rglob("*") if path.is_file()), {"model": said}

    def _train_model(self, regions: Sequence[Mapping[str, Any]], checkpoint: Path) -> Any:
        """Train on the events of some regions, with their systematics if the model knows what to do with them."""
        checkpoint.parent.mkdir(exist_ok=True)
        options: dict[str, Any] = {"checkpoint": checkpoint, "n_jobs": self.n_jobs, "verbose": self.verbose}
        model = region_model.make_region_model(self.analysis.settings, **options)
        names = [region["Name"] for region in regions]
        events = self.read_events(*names)
        known: dict[str, Any] = {}
        if self.analysis.profiled:
            present = set(np.asarray(events.process).tolist())
            templates = [template for template in self.region_templates if template.region in names]
            known = region_model.training_systematics(self.reader, self.analysis, regions, templates, present)
            known |= all_regions.normalisations(self.analysis, self.record["read"]["norms"], regions)
            known = {"systematics": known}
        with warnings.catch_warnings():
            # The file names the samples that a systematic changes.
            warnings.filterwarnings("ignore", ".* is taken as in the nominal events")
            return model.fit(events, **known)

    def score(self) -> _Result:
        """Score every entry of every tree."""
        (self.folder / "ntuples").mkdir(exist_ok=True)
        self.scorer = self.new_scorer()
        with bar(len(self.trees), bool(self.verbose), "score") as advance:
            self.scorer.write(self.models, friends=self.friends, advance=advance)
        return self.scorer.files.values(), {}

    def categorise(self) -> _Result:
        """Choose the edges, evaluate edges that did not see the events, and fill the histograms of the score."""
        analysis, settings, plain = self.analysis, self.analysis.settings, self.scorer.plain
        norms, is_chosen = self.record["read"]["norms"], settings.edges is None
        with bar((settings.folds + 1) * (2 if plain else 1), bool(self.verbose), "categorise") as advance:
            edges = {name: np.array(own) for name, own in (settings.edges or {}).items()}
            if is_chosen:
                edges = {name: self.finite_edges(one) for name, one in self.chosen.items()}
            advance(1, "")
            seen, shown = self._fill_scores(edges)
            quoted, other = seen, None
            if is_chosen:  # on these events
                quoted = seen | edge_choice.cross_fitted(
                    list(seen), self.scorer.events, self.events, settings, edges, advance=advance
                )
            if is_chosen and plain:
                events = self.events_in(plain)
                chosen = edge_choice.choose_edges(events, settings)
                own = {name: edge_choice.edges_of(one) for name, one in chosen.items()}
                advance(1, "")
                found = edge_choice.cross_fitted(list(seen), plain, events, settings, own, advance=advance)
                other = self._quote(all_regions.shifts_of_regions(analysis, found, analysis.chosen, norms))
        totals = {key: filled.yields.sum() for key, filled in seen.items()}
        histograms.check_relative(self.templates, totals, "the categories of ")
        together = all_regions.shifts_of_regions(analysis, seen, analysis.chosen, norms)
        by_region = {r["Name"]: all_regions.shifts_of_regions(analysis, seen, [r], norms) for r in analysis.chosen}
        notes = list(together.notes())
        outside = sum(int((events.nominal.score >= edges[name][-1]).sum()) for name, events in self.events.items())
        if outside:
            notes.append(f"{outside:,} simulated events lie at or above the last edge and are in no category")
        control = read_histograms(self.folder / CONTROL)
        whole = [all_regions.shifts_of_regions(analysis, control | own, analysis.fitted) for own in (quoted, seen)]
        disabled = [sample["Name"] for sample in analysis.simulated if sample.get("DisableStaterror", False)]
        of_all = {name: self._quote(own)[self.quantity] for name, own in zip(_BOTH, whole, strict=True)}
        files = {CHOSEN: seen, SHOWN: shown}
        return [write_histograms(self.folder / name, made) for name, made in files.items()], {
            "edges": {name: own.tolist() for name, own in edges.items()},
            "cross_fitted": self._quote(all_regions.shifts_of_regions(analysis, quoted, analysis.chosen, norms)),
            "in_sample": self._quote(together),
            "plain": other,
            "all_regions": of_all | {"as_pyhf": all_regions.value_as_pyhf(whole[1], self.goal, disabled)},
            "systematics": list(together.up),
            "s": {name: part.yields(signal=True).tolist() for name, part in by_region.items()},
            "b": {name: part.yields(signal=False).tolist() for name, part in by_region.items()},
            "notes": notes,
        }

    def _fill_scores(self, edges: Mapping[str, Array]) -> tuple[Histograms, Histograms]:
        """Histograms of the scores; and those of data of blinded regions with low scores, which figures may show."""
        filled, shown, scorer, none = Histograms(), Histograms(), self.scorer, np.empty(0)
        for template in [template for template in self.templates if template.needs_score]:
            events = (scorer.shown if template.hidden else scorer.events).get(template.key)
            score, weight = (none, none) if events is None else (events.score, events.arrays()[2])
            binning = edges.get(template.region)
            if binning is None:
                binning = np.array(find_named(self.analysis.regions, template.region)["Binning"], dtype=np.float64)
            (shown if template.hidden else filled)[template.key] = histograms.fill_histogram(binning, score, weight)
        return filled, shown

    def _quote(self, shifts: YieldShifts) -> dict[str, Any]:
        """What is quoted, and how it comes about."""
        waterfall = shifts.waterfall(self.goal)
        if not np.isfinite(waterfall[-1][1]):
            raise InputError("the signal strength cannot be measured in these categories; allow more of them")
        return {self.quantity: waterfall[-1][1], "waterfall": waterfall}

    def workspace(self) -> _Result:
        """Let cabinetry build the workspace of our histograms, and fit it."""
        settings, binning = self.analysis.settings, self.binning
        config, names = cab.cabinetry_config(self.analysis, binning)
        filled = self._all_histograms()
        folder = self.folder / cab.HISTOGRAMS
        folder.mkdir(exist_ok=True)
        with bar(2, bool(self.verbose), "workspace") as advance:
            shown, said = cab.build_workspace(config, names, filled, folder)
            validation = [names.regions[name] for name in settings.validation]
            workspace, config = (cab.without_regions(whole, validation) for whole in (shown, config))
            pruned = prune(workspace, settings.prune or 0.0)
            workspace, shown = pruned.workspace, prune(shown, settings.prune or 0.0).workspace
            files = [
                write_text(self.folder / "cabinetry.yml", cab.config_text(config)),
                write_text(self.folder / "workspace.json", _as_json(workspace)),
                write_csv(self.folder / "templates.csv", histograms.table_of(filled, binning)),
            ]
            if validation:
                files.append(write_text(self.folder / "validation.json", _as_json(shown)))
            if pruned.dropped:
                said.append(
                    f"{len(pruned.dropped)} effects below {settings.prune:g} of every bin were dropped: {PRUNED}"
                )
                files.append(write_csv(self.folder / PRUNED, [row._asdict() for row in pruned.dropped]))
            if settings.combine:
                to_combine(cab.names_for_combine(workspace), self.folder / COMBINE, force=True)
                files += sorted((self.folder / COMBINE).iterdir())
            if settings.hepdata:
                title = self.analysis.config["General"]["Measurement"]
                write_hepdata(workspace, self.folder / HEPDATA, comment=title, force=True)
                files += sorted((self.folder / HEPDATA).iterdir())
            advance(1, "fit")
            found = cab.fit_workspace(workspace, self.goal)
            advance(1, "")
        # Those of the other regions were said before anything was trained.
        new = {key: own for key, own in filled.items() if key[0] in settings.region}
        notes = [*names.changed(), *histograms.notes_on_bins(new), *said, *template_notes(workspace)]
        ours, theirs = self.record["categorise"]["all_regions"]["as_pyhf"], found[self.quantity]
        if abs(theirs - ours) > 0.15 * ours + 0.05:
            notes.append(
                f"the fit expects {self.quantity} {theirs:.3f} where we have {ours:.3f} for the same bins: quote "
                "neither before you know why"
            )
        expected = {"expected_data": self._expected_regions(), "notes": notes}
        return [*files, *sorted(folder.glob("*.npz"))], found | expected

    def _expected_regions(self) -> list[str]:
        """Regions whose data are expected ones, not filled from real data."""
        filled = {template.region for template in self.templates if template.is_data and not template.hidden}
        return [region["Name"] for region in self.analysis.regions if region["Name"] not in filled]

    def _all_histograms(self) -> Histograms:
        """All that were filled, and expected data where there are no real ones: all samples, at their nominal norms."""
        filled = read_histograms(self.folder / CONTROL) | read_histograms(self.folder / CHOSEN)
        ordered = {template.key: filled[template.key] for template in self.templates if template.key in filled}
        poi, data = self.analysis.poi, name_of_data(self.analysis.config["Samples"])
        for name in self._expected_regions():
            region, parts = find_named(self.analysis.regions, name), []
            for template in self.nominal(name):
                is_signal = acts(poi, region, find_named(self.analysis.simulated, template.sample))
                strength = poi.get("Nominal", 1.0) if is_signal else 1.0
                parts.append(template.norm * strength * ordered[template.key].yields)
            total = np.sum(parts, axis=0)
            ordered[name, data, None, None] = Filled(total, total, np.ones_like(total))
        return ordered

    def report(self) -> _Result:
        """Draw the figures, and write a page for each chosen region, and tables."""
        found, fit = self.record["categorise"], self.record["workspace"]
        album = figures.Album(self.folder / FIGURES, self.analysis.settings.label)
        notes: list[str] = []
        with bar(2 * len(self.events) + 1, bool(self.verbose), "report") as advance:
            read = {name: self.read_events(name) for name in self.events} if self.models else {}
            if self.analysis.settings.figures:
                notes = self._draw_fit(album)
                advance(1, "figures")
                for branch, model in self.models.items():
                    own = Events.concatenate([read[region["Name"]] for region in self.analysis.models[branch]])
                    suffix, by = branch.removeprefix(SCORE), self.analysis.settings.event_number
                    notes += figures.draw_overtraining(album, suffix, model, own, by)
                for name, events in read.items():
                    self._draw_features(album, name, events)
                    advance(1, "features")
            section = step_record.expectation_section(found, fit, self.quantity, blind=bool(self.hidden))
            section = replace(section, notes=tuple(notes), figures=tuple(album.shown))
            files = [*album.files]
            for name, events_of in self.events.items():
                files.append(self._page(name, events_of, read.get(name, events_of.nominal), section))
                advance(1, name)
        if album.impacts:
            files.append(write_csv(self.folder / "impacts.csv", album.impacts))
        yields, waterfall = self.record["read"]["yields"], found["cross_fitted"]["waterfall"]
        tables = step_record.tables_for_note(yields, waterfall, album.impacts)
        files += [write_text(self.folder / f"{name}.tex", table.latex()) for name, table in tables.items()]
        return files, {"notes": notes}

    def _draw_fit(self, album: figures.Album) -> list[str]:
        """Draw all regions before and after the fit; of blinded ones those data that may be looked at."""
        names, binning, settings = self.safe_names.regions, self.binning, self.analysis.settings
        workspace = json.loads((self.folder / "workspace.json").read_text(encoding="utf-8"))
        shown = self.folder / "validation.json"
        shown = json.loads(shown.read_text(encoding="utf-8")) if settings.validation else workspace
        below = {key[0]: filled for key, filled in read_histograms(self.folder / SHOWN).items()}
        channels = {}
        for region in self.analysis.regions:
            name, edges, axis = region["Name"], binning[region["Name"]], region.get("Variable", "")
            observed = next(np.array(item["data"]) for item in shown["observations"] if item["name"] == names[name])
            if name in self.record["workspace"]["expected_data"]:
                observed = np.full(len(edges) - 1, np.nan)
            if name in below and settings.blind_above is not None:
                seen = edges[1:] <= settings.blind_above
                observed[seen] = below[name].yields[seen]
            if name in settings.region:
                edges, axis = np.arange(float(len(edges))), figures.CATEGORIES
            channels[names[name]] = edges, axis, observed
        signal = [self.safe_names.samples[name] for name in self.analysis.signal]
        return figures.draw_fit(album, workspace, shown, channels=channels, signal=signal)

    def _draw_features(self, album: figures.Album, name: str, events: Events) -> None:
        """Draw the features of a chosen region; where it is blinded, with data of low scores if that is asked for."""
        below, model = self.analysis.settings.blind_above, self.models[self.analysis.score_of(name)]
        data, text = None, self.safe_names.regions[name]
        if self.analysis.data is not None and (name not in self.hidden or below is not None):
            data = self.read_events(name, data=True)
        if data is not None and name in self.hidden:
            text += f", score < {below:g}"
            events, data = (one[np.flatnonzero(model.predict_proba(one)[:, 1] < below)] for one in (events, data))
        figures.draw_features(album, self.safe_names.regions[name], text, events, data, self.analysis.signal)

    def _page(self, name: str, events: RegionEvents, shown_events: Events | ScoredEvents, section: Section) -> Path:
        settings = self.analysis.settings
        # One cut, which the page shows, cannot measure a free yield.
        known = {key: value for key, value in events.variations.items() if not getattr(value, "free", False)}
        shown: dict[str, Any] = {"systematics": edge_choice.systematics_of(known, (BACKGROUND, SIGNAL)) or None}
        branch = self.analysis.score_of(name)
        model = self.models.get(branch)
        model = model or region_model.GivenScore(str(settings.score), float(scan(events.nominal).cut))
        if settings.number == CUT:
            model.cut_ = self.record["categorise"]["edges"][name][0]
        elif settings.edges is None:
            shown["categories"] = self.chosen[name]
            if len(self.events) == 1 and self.goal == "discovery":
                shown["cross_fitted"] = self.record["categorise"]["cross_fitted"]["significance"]
        title = f"{self.analysis.config['General']['Measurement']}, region {name}"
        page = report(model, shown_events, title=title, sections=[section], **shown)
        ending = "" if len(self.events) == 1 else f"_{self.safe_names.regions[name]}"
        return page.write(self.folder / f"report{ending}.html")


def _as_json(workspace: dict[str, Any]) -> str:
    """A workspace as cabinetry writes it."""
    return json.dumps(workspace, sort_keys=True, indent=4)
