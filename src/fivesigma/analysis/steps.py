"""An analysis, step by step: read, train, categorise, score, workspace, report."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.files import remove, write_text
from fivesigma.analysis import all_regions, counting, edge_choice, pages, region_model, step_record
from fivesigma.analysis import cabinetry_workspace as cab
from fivesigma.analysis.analysis_file import read_analysis
from fivesigma.analysis.histograms import notes_on_bins, read_histograms, table_of, write_csv, write_histograms
from fivesigma.analysis.run_state import RunState
from fivesigma.analysis.settings import CUT
from fivesigma.analysis.step_record import STEPS, Record
from fivesigma.categories.datacard import to_combine
from fivesigma.categories.review import prune, template_notes, write_hepdata
from fivesigma.errors import InputError, did_you_mean
from fivesigma.estimators.significance_classifier import warn_of_training_events
from fivesigma.likelihood.shifts import YieldShifts
from fivesigma.store import save

_Result = tuple[Iterable[Path], dict[str, Any]]
COMBINE, HEPDATA, PRUNED = "combine", "hepdata", "pruned.csv"
CONTROL, CHOSEN = "control.npz", "chosen.npz"  # histograms


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
            if wanted:
                if force or not done:
                    tell(f"{name} ...")
                    record.run(name, inputs, getattr(run, name))
                else:
                    tell(f"{name}: nothing changed")
                for line in step_record.lines(name, record, run.settings.quantity, run.hidden):
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
        region_model.check_model(self.settings)
        data = self.analysis.data
        if self.hidden and data is not None and "Filter" in data:
            raise InputError(
                f"sample {data['Name']!r} has a Filter, which replaces that of every region, so that no region can be "
                "blinded: leave it out, or unblind"
            )
        with self.bar(2 * self.n_trees, "read") as advance:
            found = counting.count(self.reader, self.analysis, self.templates, advance=advance)
        norms = all_regions.norm_widths(self.analysis, found.filled)
        free = [name for name, width in norms.items() if width is None]
        if self.settings.number == CUT and free:
            raise InputError(
                f"one cut cannot measure the NormFactor {free[0]!r}, which no other region constrains: choose "
                "categories, add a control region, or fix it in General"
            )
        rows = found.rows(self.templates)
        files = [write_csv(self.folder / "yields.csv", rows), write_histograms(self.folder / CONTROL, found.filled)]
        normalised = dict.fromkeys(template.normalised for template in self.templates if template.normalised)
        notes = [
            f"the categories of region {region['Name']!r} are those of the score, not of {region['Variable']!r}"
            for region in self.analysis.chosen
            if "Variable" in region
        ]
        if norms and self.settings.trains and self.settings.model == "auto":
            notes.append(f"the training knows nothing of the NormFactors {', '.join(norms)}: Model: profiled does")
        notes += counting.notes_on(found, self.templates) + notes_on_bins(found.filled)
        return files, {"yields": rows, "normalisation": list(normalised), "norms": norms, "notes": notes}

    def train(self) -> _Result:
        """Train on the folds, unless the score or the model exists already."""
        settings = self.settings
        if settings.score is not None:
            return [], {"model": [f"the score is {settings.score!r}: nothing is trained"]}
        checkpoint = self.folder / f".train-{self.inputs('train')[:16]}"
        for other in self.folder.glob(".train-*"):
            if other != checkpoint:
                remove(other)
        said, self.models, notes, norms = [], {}, list[str](), self.record["read"]["norms"]
        for branch, regions in self.analysis.models.items():
            model, how, names = self.saved.get(branch), f"from {settings.model}", [region["Name"] for region in regions]
            if model is not None:
                notes += step_record.warned(warn_of_training_events, model, self.read_events(*names))
            else:
                own = checkpoint / branch if settings.each else checkpoint
                own.parent.mkdir(exist_ok=True)
                templates = [template for template in self.region_templates if template.region in names]
                options = {"checkpoint": own, "n_jobs": self.n_jobs, "verbose": self.verbose}
                model = region_model.train_model(self.reader, self.analysis, regions, templates, norms, **options)
                how = f"of {settings.model}: {getattr(model, 'choice_', None) or f'{len(model.history_)} rounds'}"
            self.models[branch] = model
            where = f"region {regions[0]['Name']!r}: " if settings.each else ""
            said.append(f"{where}{type(model).__name__} {how}")
        remove(self.folder / "model")
        for branch, model in self.models.items():
            self.model_folder(branch).parent.mkdir(exist_ok=True)
            save(model, self.model_folder(branch))
        remove(checkpoint)
        files = sorted(path for path in (self.folder / "model").rglob("*") if path.is_file())
        return files, {"model": said, "notes": notes, "norms": norms}

    def score(self) -> _Result:
        (self.folder / "ntuples").mkdir(exist_ok=True)
        self.scorer = self.new_scorer()
        with self.bar(self.n_trees, "score") as advance:
            self.scorer.write(self.models, friends=self.friends, advance=advance)
        return self.scorer.files.values(), {}

    def categorise(self) -> _Result:
        """Choose the edges, evaluate edges that did not see the events, and fill the histograms of the score."""
        analysis, settings, plain, other = self.analysis, self.settings, self.scorer.plain, None
        worth = partial(all_regions.shifts_of_regions, analysis, widths=self.record["read"]["norms"])
        with self.bar((settings.folds + 1) * (2 if plain else 1), "categorise") as advance:
            edges = {name: np.array(own) for name, own in (settings.edges or {}).items()}
            if settings.edges is None:
                edges = {name: self.finite_edges(one) for name, one in self.chosen.items()}
            advance(1, "")
            seen, shown = self.scorer.fill(edges)
            quoted = seen
            if settings.edges is None:  # they were chosen on these events
                cross_fit = partial(edge_choice.cross_fitted, list(seen), settings=settings, advance=advance)
                quoted = seen | cross_fit(self.scorer.events, self.events, edges=edges)
                if plain:
                    events = self.events_in(plain)
                    chosen = edge_choice.choose_edges(events, settings)
                    own = {name: edge_choice.edges_of(one) for name, one in chosen.items()}
                    advance(1, "")
                    other = self._quote(worth(cross_fit(plain, events, edges=own), analysis.chosen))
        totals = {key: filled.yields.sum() for key, filled in seen.items()}
        counting.check_relative(self.templates, totals, "the categories of ")
        together = worth(seen, analysis.chosen)
        by_region = {region["Name"]: worth(seen, [region]) for region in analysis.chosen}
        notes = list(together.notes())
        now, then = (
            ", ".join(f"{name} {'free' if size is None else f'{size:.2g}'}" for name, size in norms.items()) or "none"
            for norms in (self.record["read"]["norms"], self.record["train"].get("norms", {}))
        )
        if analysis.profiled and now != then:
            notes.append(
                f"the model was trained with the NormFactors {then}, and their widths are now {now}: to train again, "
                "use --only train --force"
            )
        outside = sum(int((events.nominal.score >= edges[name][-1]).sum()) for name, events in self.events.items())
        if outside:
            notes.append(f"{outside:,} simulated events lie at or above the last edge and are in no category")
        control = read_histograms(self.folder / CONTROL)
        whole = [all_regions.shifts_of_regions(analysis, control | own, analysis.fitted) for own in (quoted, seen)]
        values = [self._quote(own)[settings.quantity] for own in whole]
        files = {CHOSEN: seen, pages.SHOWN: shown}
        return [write_histograms(self.folder / name, made) for name, made in files.items()], {
            "edges": {name: own.tolist() for name, own in edges.items()},
            "cross_fitted": self._quote(worth(quoted, analysis.chosen)),
            "in_sample": self._quote(together),
            "plain": other,
            "all_regions": {
                "cross_fitted": values[0],
                "in_sample": values[1],
                "as_pyhf": all_regions.value_as_pyhf(whole[1], analysis),
            },
            "systematics": list(together.up),
            "s": {name: part.yields(signal=True).tolist() for name, part in by_region.items()},
            "b": {name: part.yields(signal=False).tolist() for name, part in by_region.items()},
            "notes": notes,
        }

    def _quote(self, shifts: YieldShifts) -> dict[str, Any]:
        """What is quoted, and how it comes about."""
        waterfall = shifts.waterfall(self.settings.goal)
        if not np.isfinite(waterfall[-1][1]):
            raise InputError("the signal strength cannot be measured in these categories; allow more of them")
        return {self.settings.quantity: waterfall[-1][1], "waterfall": waterfall}

    def workspace(self) -> _Result:
        """Let cabinetry build the workspace of our histograms, and fit it."""
        settings, binning, folder = self.settings, self.binning, self.folder / cab.HISTOGRAMS
        config, names = cab.cabinetry_config(self.analysis, binning)
        filled = read_histograms(self.folder / CONTROL) | read_histograms(self.folder / CHOSEN)
        filled, expected = counting.with_expected_data(self.analysis, self.templates, filled)
        folder.mkdir(exist_ok=True)
        as_json = partial(json.dumps, sort_keys=True, indent=4)  # as cabinetry writes it
        with self.bar(2, "workspace") as advance:
            shown, said = cab.build_workspace(config, names.of_histograms(filled), folder)
            validation = [names.regions[name] for name in settings.validation]
            workspace, config = (cab.without_regions(whole, validation) for whole in (shown, config))
            pruned = prune(workspace, settings.prune or 0.0)
            workspace, shown = pruned.workspace, prune(shown, settings.prune or 0.0).workspace
            files = [
                write_text(self.folder / "cabinetry.yml", cab.config_text(config)),
                write_text(self.folder / pages.FITTED, as_json(workspace)),
                write_csv(self.folder / "templates.csv", table_of(filled, binning)),
            ]
            if validation:
                files.append(write_text(self.folder / pages.VALIDATION, as_json(shown)))
            if pruned.dropped:
                said.append(
                    f"{len(pruned.dropped)} effects below {settings.prune:g} of every bin were dropped: {PRUNED}"
                )
                files.append(write_csv(self.folder / PRUNED, [row._asdict() for row in pruned.dropped]))
            if settings.combine:
                card = cab.names_for_combine(workspace)
                said += step_record.warned(to_combine, card, self.folder / COMBINE, force=True)
                files += sorted((self.folder / COMBINE).iterdir())
            if settings.hepdata:
                title = self.analysis.config["General"]["Measurement"]
                write_hepdata(workspace, self.folder / HEPDATA, comment=title, force=True)
                files += sorted((self.folder / HEPDATA).iterdir())
            advance(1, "fit")
            found = cab.fit_workspace(workspace, settings.goal)
            advance(1, "")
        # Those of the other regions were said before anything was trained.
        new = {key: own for key, own in filled.items() if key[0] in settings.region}
        notes = [*names.changed(), *notes_on_bins(new), *said, *template_notes(workspace)]
        ours, theirs = self.record["categorise"]["all_regions"]["as_pyhf"], found[settings.quantity]
        if abs(theirs - ours) > 0.15 * ours + 0.05:
            notes.append(
                f"the fit expects {settings.quantity} {theirs:.3f} where we have {ours:.3f} for the same bins: quote "
                "neither before you know why"
            )
        return [*files, *sorted(folder.glob("*.npz"))], found | {"expected_data": expected, "notes": notes}

    def report(self) -> _Result:
        """Draw the figures, and write a page for each chosen region, and tables."""
        return pages.write_pages(self)
