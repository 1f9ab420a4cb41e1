"""An analysis, step by step: read, train, categorise, score, workspace, report."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.files import written_whole
from fivesigma._tools.progress import steps as bar
from fivesigma._types import Array
from fivesigma.analysis import all_regions, counting, edge_choice, workspace_checks
from fivesigma.analysis import cabinetry_workspace as cab
from fivesigma.analysis.analysis_file import read_analysis
from fivesigma.analysis.configuration import CUT, Analysis, holds, name_of_data
from fivesigma.analysis.histograms import (
    Filled,
    Histograms,
    fill_histogram,
    read_histograms,
    table_of,
    write_histograms,
)
from fivesigma.analysis.ntuple_reader import Reader
from fivesigma.analysis.region_model import (
    GivenScore,
    check_model,
    make_region_model,
    training_events,
    training_systematics,
)
from fivesigma.analysis.scoring import Scored, Scorer, ntuple_names
from fivesigma.analysis.step_lines import expectation_section, lines, waterfall_table, yields_table
from fivesigma.analysis.step_record import STEPS, Record, digest
from fivesigma.analysis.templates import Template, by_tree, templates_of
from fivesigma.cut.best_cut import scan
from fivesigma.datasets.columns import Columns
from fivesigma.datasets.events import Events
from fivesigma.datasets.stream import BACKGROUND, SIGNAL
from fivesigma.errors import InputError, did_you_mean
from fivesigma.estimators.make import MODELS
from fivesigma.estimators.profiled import ProfiledClassifier
from fivesigma.likelihood.shifts import YieldShifts
from fivesigma.reporting import report
from fivesigma.scored.scored_events import ScoredEvents
from fivesigma.store import load, save

__all__ = ["analyse"]

_Result = tuple[Iterable[Path], dict[str, Any]]
# Scores lie between 0 and 1, and cabinetry drops what lies at or above the last edge.
ABOVE = 1.01


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
                for line in lines(name, record, blind=run.hidden):
                    tell(line)
            if name == only:
                break
        record.write()
    return record


class _Run:
    """One run of an analysis; what several steps need is made once."""

    def __init__(
        self,
        analysis: Analysis,
        record: Record,
        *,
        unblind: bool,
        friends: bool,
        n_jobs: int | None,
        verbose: int,
    ) -> None:
        self.record, self.folder = record, record.folder
        self.saved: Any = None  # a model that exists already
        settings = analysis.settings
        if settings.score is None and settings.model not in MODELS:
            self.saved = load(settings.model)
            features = settings.features or tuple(Columns.of_model(self.saved).features or ())
            analysis = replace(analysis, settings=replace(settings, features=features))
        self.analysis = analysis
        self.unblind, self.friends, self.n_jobs, self.verbose = unblind, friends, n_jobs, verbose
        self.templates = templates_of(analysis)

    # What each step depends on.

    def inputs(self, name: str) -> str:
        """Digest of all that a step depends on."""
        settings, record = asdict(self.analysis.settings), self.record
        reading = {key: settings[key] for key in ("features", "event_number", "folds", "region")}
        normed = [self.analysis.signal, self.analysis.config["NormFactors"], self.analysis.fixed]
        if name == "read":
            return digest(reading, self._described(self.templates), self.analysis.regions, self.unblind, normed)
        if name == "train":
            model: dict[str, Any] = {key: settings[key] for key in ("options", "score")}
            model["model"] = settings["model"]
            if self.saved is not None:
                files = sorted(path for path in Path(settings["model"]).rglob("*") if path.is_file())
                model["model"] = [(path.name, self.record.file_digest(path)) for path in files]
            factors = [self.analysis.norm_factor(self.analysis.chosen, sample) for sample in self.analysis.simulated]
            known: list[Any] = [self._described(self.region_nominal)]
            if settings["model"] == "profiled":
                known = [self._described(self.region_templates), self.analysis.varied, record["read"]["norms"]]
            return digest(reading, model, known, self.analysis.signal, factors)
        if name == "score":
            trees = [(self.record.file_digest(file), list(own)) for file, own in by_tree(self.templates).items()]
            named = [] if self.friends else sorted({text for t in self.templates for text in _texts(t)})
            names = list(ntuple_names(self.templates).values())
            return digest(names, trees, reading, named, self.friends, settings["score"], record.outputs("train"))
        if name == "categorise":
            wanted = {key: settings[key] for key in ("categories", "edges", "min_effective", "min_background")}
            own = [template for template in self.templates if template.needs_score]
            chosen = [wanted, self.analysis.regions, self.analysis.systematics, self.unblind, normed]
            return digest(chosen, self._described(own), record.outputs("read", "score"))
        if name == "workspace":
            return digest(self.analysis.config, record.outputs("read", "categorise"), record["categorise"])
        outputs = record.outputs("train", "categorise", "workspace")
        return digest(outputs, record["categorise"], record["workspace"])

    def _described(self, templates: Sequence[Template]) -> list[Any]:
        """Templates with the contents of their files in place of the names."""
        return [
            asdict(template) | {"files": [self.record.file_digest(file) for file in template.files]}
            for template in templates
        ]

    def look_at_files(self) -> None:
        """Form the digests of all files, which are then known: large ones take a while."""
        files, folder = list(by_tree(self.templates)), self.folder.resolve()
        with bar(len(files), bool(self.verbose), "files") as advance:
            for file in files:
                if file.resolve().is_relative_to(folder):
                    raise InputError(f"{file} is an input within the folder of the results, {folder}; move one of them")
                advance(0, file.name)
                self.record.file_digest(file)
                advance(1, "")
        self.record.write()

    # What several steps need.

    @cached_property
    def region_templates(self) -> list[Template]:
        """Simulated templates of the chosen region."""
        return [t for t in self.templates if t.region == self.analysis.settings.region and not t.is_data]

    @cached_property
    def region_nominal(self) -> list[Template]:
        """Those of them that are nominal."""
        return [template for template in self.region_templates if template.systematic is None]

    @property
    def hidden(self) -> str | None:
        """Region whose data are not looked at."""
        data, chosen = self.analysis.data, self.analysis.chosen
        return None if self.unblind or data is None or not holds(chosen, data) else chosen["Name"]

    @cached_property
    def reader(self) -> Reader:
        """Reads trees."""
        return Reader(self.analysis.settings, self.region_nominal[0])

    @cached_property
    def model(self) -> Any:
        """The trained model, or what stands for it where the score exists already."""
        score = self.analysis.settings.score
        return load(self.folder / "model") if score is None else GivenScore(score, float(scan(self.nominal).cut))

    @property
    def scorer(self) -> Scorer:
        """Scores entries."""
        return Scorer(self.analysis, self.templates, self.reader, hidden=self.hidden)

    @cached_property
    def scored(self) -> Scored:
        """Events of the regions that are binned in the score, as the step left them or found in the ntuples."""
        with bar(len(self.trees), bool(self.verbose), "scores") as advance:
            return self.scorer.find(self.folder / "ntuples", ntuple_names(self.templates), advance=advance)

    @cached_property
    def nominal(self) -> ScoredEvents:
        """Simulated events of the chosen region."""
        return edge_choice.nominal_events(self.analysis, self.scored)

    @cached_property
    def variations(self) -> edge_choice.Variations:
        """The same under each systematic, and free norm factors with the widths that the control regions leave them."""
        norms = all_regions.normalisations(self.analysis, self.record["read"]["norms"])
        return {**edge_choice.variations_of(self.analysis, self.scored), **norms}

    @cached_property
    def chosen(self) -> Any:
        """Categories or the cut of the chosen region."""
        return edge_choice.choose_categories(self.nominal, self.variations, self.analysis.settings)

    @property
    def trees(self) -> list[Any]:
        """All trees."""
        return [tree for trees in by_tree(self.templates).values() for tree in trees]

    @property
    def binning(self) -> dict[str, Array]:
        """Edges of each region, all finite."""
        found = self.record["categorise"]
        return self._binning(np.array([float(edge) for edge in found["edges"]]), found["limits"])

    def _limits(self) -> list[float]:
        """Below and above every score."""
        if self.analysis.settings.score is None:
            return [0.0, ABOVE]
        scores = np.concatenate([events.score for events in self.scored.values()])
        low, high = float(scores.min()), float(scores.max())
        return [low, high + 0.01 * ((high - low) or 1.0)]

    def _binning(self, edges: Array, limits: Sequence[float]) -> dict[str, Array]:
        finite = edges.copy()
        for at, limit in zip((0, -1), limits, strict=True):
            finite[at] = limit if np.isinf(finite[at]) else finite[at]
        chosen = self.analysis.settings.region
        return {
            region["Name"]: finite if region["Name"] == chosen else np.array(region["Binning"], dtype=np.float64)
            for region in self.analysis.regions
        }

    # The steps.

    def read(self) -> _Result:
        """Check all input, count events, and fill the histograms that need no score."""
        # What later steps would refuse is refused before anything is trained.
        check_model(self.analysis.settings)
        if self.hidden is not None:
            self._check_blinding()
        with bar(2 * len(self.trees), bool(self.verbose), "read") as advance:
            for trees in by_tree(self.templates).values():
                for tree, users in trees.items():
                    self.reader.check(tree, users[0].owner, users)
                    advance(1, tree.file.name)
            found = counting.count(self.reader, self.analysis, self.templates, hidden=self.hidden, advance=advance)
        rows = found.rows(self.templates)
        norms = all_regions.norm_widths(self.analysis, found.filled)
        free = [name for name, width in norms.items() if width is None]
        if self.analysis.settings.categories == CUT and free:
            raise InputError(
                f"one cut cannot measure the NormFactor {free[0]!r}, which no other region constrains: choose "
                "categories, add a control region, or fix it in General"
            )
        files = [
            counting.write_csv(self.folder / "yields.csv", rows),
            write_histograms(self.folder / "control.npz", found.filled),
        ]
        normalised = dict.fromkeys(template.normalised for template in self.templates if template.normalised)
        notes = counting.notes_on(found, self.templates)
        return files, {"yields": rows, "normalisation": list(normalised), "norms": norms, "notes": notes}

    def _check_blinding(self) -> None:
        data = self.analysis.data
        if data is not None and "Filter" in data:
            raise InputError(
                f"sample {data['Name']!r} has a Filter, which replaces that of every region, so that no region can be "
                "blinded: leave it out, or unblind"
            )

    def train(self) -> _Result:
        """Train on the folds, unless the score or the model exists already."""
        settings = self.analysis.settings
        if settings.score is not None:
            return [], {"model": f"the score is {settings.score!r}: nothing is trained"}
        if self.saved is not None:
            self.model = self.saved
            return self._save(f"from {settings.model}")
        checkpoint = self.folder / f".train-{self.inputs('train')[:16]}"
        for other in self.folder.glob(".train-*"):
            if other != checkpoint:
                shutil.rmtree(other, ignore_errors=True)
        model = make_region_model(settings, checkpoint=checkpoint, n_jobs=self.n_jobs, verbose=self.verbose)
        events: Events = training_events(self.reader, self.analysis, self.region_nominal)
        with warnings.catch_warnings():
            # The file names the samples that a systematic changes.
            warnings.filterwarnings("ignore", ".* is taken as in the nominal events")
            self.model = model.fit(events, **self._known_to(model, events))
        found = self._save(f"of {settings.model}: {getattr(model, 'choice_', None) or f'{len(model.history_)} rounds'}")
        shutil.rmtree(checkpoint, ignore_errors=True)
        return found

    def _known_to(self, model: Any, events: Events) -> dict[str, Any]:
        """Systematics, for a model whose training knows them."""
        if not isinstance(model, ProfiledClassifier):
            return {}
        found = training_systematics(self.reader, self.analysis, self.region_templates, events)
        return {"systematics": {**found, **all_regions.normalisations(self.analysis, self.record["read"]["norms"])}}

    def _save(self, made: str) -> _Result:
        save(self.model, self.folder / "model", force=True)
        files = sorted(path for path in (self.folder / "model").rglob("*") if path.is_file())
        return files, {"model": f"{type(self.model).__name__} {made}"}

    def score(self) -> _Result:
        """Score every entry of every tree."""
        folder, names = self.folder / "ntuples", ntuple_names(self.templates)
        folder.mkdir(exist_ok=True)
        with bar(len(self.trees), bool(self.verbose), "score") as advance:
            model = None if self.analysis.settings.score is not None else self.model
            self.scored = self.scorer.write(folder, names, model, friends=self.friends, advance=advance)
        return [folder / name for name in names.values()], {}

    def categorise(self) -> _Result:
        """Choose the edges, evaluate edges that did not see the events, and fill the histograms of the score."""
        settings = self.analysis.settings
        with bar(settings.folds + 1, bool(self.verbose), "categorise") as advance:
            edges = edge_choice.edges_of(self.chosen) if settings.edges is None else np.array(settings.edges)
            advance(1, "")
            seen = quoted = edge_choice.shifts_in(edges, self.nominal, self.variations)
            if settings.edges is None:  # chosen on these events
                quoted = edge_choice.cross_fitted(self.nominal, self.variations, settings, edges, advance=advance)
        notes = list(seen.notes())
        outside = int((self.nominal.score >= edges[-1]).sum())
        if outside:
            notes.append(f"{outside:,} simulated events lie at or above the last edge and are in no category")
        limits, filled = self._limits(), Histograms()
        binning = self._binning(edges, limits)
        for template in self.templates:
            if template.needs_score and not (template.is_data and template.region == self.hidden):
                events = self.scored.get(template.key)
                empty = (np.empty(0), np.empty(0))
                score, weight = empty if events is None else (events.score, events.arrays()[2])
                filled[template.key] = fill_histogram(binning[template.region], score, weight)
        workspace_checks.check_relative(self.templates, filled)
        together = [self._with_others(shifts, filled) for shifts in (quoted, seen)]
        found = {
            "edges": list(map(repr, edges.tolist())),
            "limits": limits,
            "cross_fitted": {"significance": quoted.waterfall()[-1][1], "waterfall": quoted.waterfall()},
            "in_sample": {"significance": seen.waterfall()[-1][1], "waterfall": seen.waterfall()},
            "all_regions": dict(zip(("cross_fitted", "in_sample"), together, strict=True)),
            "systematics": list(self.variations),
            "s": seen.yields(signal=True).tolist(),
            "b": seen.yields(signal=False).tolist(),
            "notes": notes,
        }
        return [write_histograms(self.folder / "chosen.npz", filled)], found

    def _with_others(self, shifts: YieldShifts, filled: Histograms) -> float:
        """Significance of the chosen region together with the others, as the fit will have it."""
        histograms, chosen = read_histograms(self.folder / "control.npz") | filled, self.analysis.settings.region
        parts = {
            region["Name"]: shifts
            if region["Name"] == chosen
            else all_regions.shifts_of_region(self.analysis, region, histograms)
            for region in self.analysis.regions
        }
        return all_regions.combine(self.analysis, parts).waterfall()[-1][1]

    def workspace(self) -> _Result:
        """Let cabinetry build the workspace of our histograms, compare it with them, and fit it."""
        binning = self.binning
        config, names = cab.cabinetry_config(self.analysis, binning)
        histograms = self._all_histograms(binning)
        folder = self.folder / cab.HISTOGRAMS
        folder.mkdir(exist_ok=True)
        with bar(2, bool(self.verbose), "workspace") as advance:
            workspace, said = cab.build_workspace(config, names, histograms, folder)
            workspace_checks.check_workspace(workspace, self.analysis, names, histograms)
            files = [
                cab.write_config(config, self.folder / "cabinetry.yml"),
                cab.write_workspace_file(workspace, self.folder / "workspace.json"),
                counting.write_csv(self.folder / "templates.csv", table_of(histograms, binning)),
            ]
            advance(1, "fit")
            found = cab.fit_workspace(workspace)
            advance(1, "")
        notes = [*names.changed(), *workspace_checks.notes_on_bins(histograms, said)]
        notes += workspace_checks.notes_on_variations(histograms)
        ours = self.record["categorise"]["all_regions"]["in_sample"]
        if not 0.8 * ours - 0.1 < found["significance"] < 2 * ours + 1:
            notes.append(
                f"the fit expects a significance of {found['significance']:.3f} where we have {ours:.3f} for the same "
                "bins: quote neither before you know why"
            )
        expected = self._expected_regions()
        return [*files, *sorted(folder.glob("*.npz"))], {**found, "expected_data": expected, "notes": notes}

    def _expected_regions(self) -> list[str]:
        """Regions whose data are expected ones, not filled from real data."""
        data = self.analysis.data
        return [
            region["Name"]
            for region in self.analysis.regions
            if data is None or not holds(region, data) or region["Name"] == self.hidden
        ]

    def _all_histograms(self, binning: dict[str, Array]) -> Histograms:
        """All that were filled, and expected data where there are no real ones: all samples, at their nominal norms."""
        filled = read_histograms(self.folder / "control.npz") | read_histograms(self.folder / "chosen.npz")
        ordered = {template.key: filled[template.key] for template in self.templates if template.key in filled}
        data = self.analysis.data
        name = name_of_data([s["Name"] for s in self.analysis.simulated]) if data is None else data["Name"]
        for region_name in self._expected_regions():
            region = next(region for region in self.analysis.regions if region["Name"] == region_name)
            total = np.zeros(len(binning[region_name]) - 1)
            for sample in self.analysis.simulated:
                if holds(region, sample):
                    factor = self.analysis.norm_factor(region, sample) * self.analysis.poi_factor(region, sample)
                    total += factor * ordered[region_name, sample["Name"], None, None].yields
            ordered[region_name, name, None, None] = Filled(total, total, np.ones_like(total))
        return ordered

    def report(self) -> _Result:
        """Write the page."""
        settings, found, fit = self.analysis.settings, self.record["categorise"], self.record["workspace"]
        # One cut, which the page shows, cannot measure a free yield.
        known = {name: value for name, value in self.variations.items() if not getattr(value, "free", False)}
        shown: dict[str, Any] = {"systematics": edge_choice.systematics_of(known, (BACKGROUND, SIGNAL)) or None}
        if settings.categories == CUT:
            self.model.cut_ = float(found["edges"][0])
        elif settings.edges is None:
            shown |= {"categories": self.chosen, "cross_fitted": found["cross_fitted"]["significance"]}
        title = f"{self.analysis.config['General']['Measurement']}, region {settings.region}"
        shown["sections"] = [expectation_section(found, fit, blind=self.hidden is not None)]
        with bar(1, bool(self.verbose), "report") as advance:
            page = report(self.model, self.nominal, title=title, **shown)
            tables = {"yields.tex": yields_table(self.record["read"]["yields"])}
            tables["waterfall.tex"] = waterfall_table(found["cross_fitted"]["waterfall"])
            files = [page.write(self.folder / "report.html")]
            for name, text in tables.items():
                with written_whole(self.folder / name) as beside:
                    beside.write_text(text, encoding="utf-8")
                files.append(self.folder / name)
            advance(1, "")
        return files, {}


def _texts(template: Template) -> list[str]:
    """Expressions of a template."""
    return [text for text in (template.condition, template.weight, template.variable) if text is not None]
