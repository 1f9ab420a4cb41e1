"""An analysis, step by step: read, train, categorise, score, workspace, report."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.files import written_whole
from fivesigma._tools.progress import steps as bar
from fivesigma._types import Array
from fivesigma.analysis import choosing, counting, ntuples
from fivesigma.analysis.configuration import Analysis, read_analysis
from fivesigma.analysis.layout import Layout, by_tree, layout_of
from fivesigma.analysis.page import expectation_section
from fivesigma.analysis.reading import Reader
from fivesigma.analysis.record import STEPS, Record, digest
from fivesigma.analysis.rewriting import NTUPLES, cabinetry_config
from fivesigma.analysis.settings import CUT
from fivesigma.analysis.summary import lines
from fivesigma.analysis.templates import Template, templates_of
from fivesigma.analysis.training import make_model, training_events
from fivesigma.analysis.workspace import build_workspace, fitted, write_config
from fivesigma.datasets.assemble import BACKGROUND, SIGNAL
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError, did_you_mean
from fivesigma.reporting import report
from fivesigma.scored.scored_events import ScoredEvents
from fivesigma.store import load, save

__all__ = ["analyse"]

_Result = tuple[Iterable[Path], dict[str, Any]]


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
        A cabinetry configuration with a block ``Fivesigma``; see docs/analyse.md. Its paths are relative to the current
        folder, as in cabinetry.
    output : path
        Folder of the results. A step that was done with the same inputs is not done again.
    only : {"read", "train", "categorise", "score", "workspace", "report"}, optional
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
    record.folder.mkdir(parents=True, exist_ok=True)
    run.look_at_files()
    tell = say or (lambda _: None)
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
        self.analysis, self.record, self.folder = analysis, record, record.folder
        self.unblind, self.friends, self.n_jobs, self.verbose = unblind, friends, n_jobs, verbose
        self.templates = templates_of(analysis)

    # What each step depends on.

    def inputs(self, name: str) -> str:
        """Digest of all that a step depends on."""
        settings, record = asdict(self.analysis.settings), self.record
        reading = {key: settings[key] for key in ("features", "event_number", "folds", "region")}
        if name == "read":
            return digest(reading, self._described(self.templates), self.unblind, self.analysis.signal)
        if name == "train":
            model = {key: settings[key] for key in ("model", "options")}
            return digest(reading, model, self._described(self.region_nominal), self.analysis.signal)
        if name == "categorise":
            wanted = {key: settings[key] for key in ("categories", "min_effective", "min_background")}
            own = [template for template in self.templates if template.region == settings["region"]]
            return digest(wanted, self._described(own), self.analysis.systematics, record.outputs("train"))
        if name == "score":
            layout = self.layout
            chosen: list[Any] = [
                {name: edges.tolist() for name, edges in layout.binning.items()},
                list(layout.files.values()),
            ]
            chosen += [self.unblind, self.friends, self.analysis.config["NormFactors"]]
            return digest(chosen, reading, self._described(self.templates), record.outputs("train"))
        if name == "workspace":
            return digest(self.analysis.config, record.outputs("score"), self.unblind)
        outputs = record.outputs("train", "score", "workspace")
        return digest(outputs, record["categorise"], record["workspace"], self.unblind)

    def _described(self, templates: Sequence[Template]) -> list[Any]:
        """Templates with the contents of their files in place of the names."""
        return [
            asdict(template) | {"files": [self.record.file_digest(file) for file in template.files]}
            for template in templates
        ]

    def look_at_files(self) -> None:
        """Form the digests of all files, which are then known: large ones take a while."""
        files = list(by_tree(self.templates))
        with bar(len(files), bool(self.verbose), "files") as advance:
            for file in files:
                advance(0, file.name)
                self.record.file_digest(file)
                advance(1, "")
        self.record.write()

    # What several steps need.

    @cached_property
    def region_nominal(self) -> list[Template]:
        """Nominal templates of the chosen region."""
        chosen = self.analysis.settings.region
        return [t for t in self.templates if t.region == chosen and t.systematic is None and not t.is_data]

    @property
    def hidden(self) -> str | None:
        """Region whose data are not looked at."""
        return None if self.unblind or self.analysis.data is None else self.analysis.settings.region

    @cached_property
    def reader(self) -> Reader:
        """Reads trees."""
        return Reader(self.analysis.settings, self.region_nominal[0])

    @cached_property
    def events(self) -> Events:
        """Simulated events of the chosen region."""
        return training_events(self.reader, self.region_nominal, self.analysis.signal)

    @cached_property
    def model(self) -> Any:
        """The trained model."""
        return load(self.folder / "model")

    @cached_property
    def scores(self) -> choosing.RegionScores:
        """Scores of the simulated events of the chosen region, whose features are then no longer needed."""
        found = choosing.scores_of(self.model, self.reader, self.events)
        del self.events
        return found

    @cached_property
    def variations(self) -> choosing.Variations:
        """The same under each systematic."""
        own = [template for template in self.templates if template.region == self.analysis.settings.region]
        total = sum(template.systematic is not None for template in own)
        with bar(total, bool(self.verbose), "variations") as advance:
            return choosing.variations_of(self.model, self.reader, self.analysis, own, self.scores, advance=advance)

    @property
    def edges(self) -> Array:
        """Edges that were chosen."""
        return np.array([float(edge) for edge in self.record["categorise"]["edges"]])

    @property
    def layout(self) -> Layout:
        """What the ntuples look like."""
        return layout_of(self.analysis, self.templates, self.edges, blind=not self.unblind, friends=self.friends)

    # The steps.

    def read(self) -> _Result:
        """Check all input, and count events."""
        nominal = [template for template in self.templates if template.systematic is None]
        n_trees = sum(map(len, by_tree(self.templates).values())) + sum(map(len, by_tree(nominal).values()))
        with bar(n_trees, bool(self.verbose), "read") as advance:
            counting.check_trees(self.reader, self.templates, advance)
            rows, notes = counting.count(self.reader, self.analysis, nominal, hidden=self.hidden, advance=advance)
        counting.check_varied(self.templates, rows)
        # What later steps would refuse is refused before anything is trained.
        make_model(self.analysis.settings, checkpoint=None, n_jobs=None, verbose=0)
        layout_of(self.analysis, self.templates, np.array([0.0, 1.0]), blind=not self.unblind, friends=self.friends)
        return [counting.write_csv(self.folder / "yields.csv", rows)], {"yields": rows, "notes": notes}

    def train(self) -> _Result:
        """Train on the folds."""
        inputs = self.inputs("train")
        checkpoint = self.folder / f".train-{inputs[:16]}"
        for other in self.folder.glob(".train-*"):
            if other != checkpoint:
                shutil.rmtree(other)
        model = make_model(self.analysis.settings, checkpoint=checkpoint, n_jobs=self.n_jobs, verbose=self.verbose)
        model.fit(self.events)
        for name in ("model", "scores", "variations"):
            self.__dict__.pop(name, None)
        save(model, self.folder / "model", force=True)
        shutil.rmtree(checkpoint, ignore_errors=True)
        made = getattr(model, "choice_", None) or f"{len(model.history_)} rounds"
        files = [path for path in (self.folder / "model").rglob("*") if path.is_file()]
        return sorted(files), {"model": f"{type(model).__name__} of {self.analysis.settings.model}: {made}"}

    def categorise(self) -> _Result:
        """Choose the edges, and evaluate edges that were chosen without the events."""
        settings = self.analysis.settings
        variations = self.variations
        with bar(settings.folds + 1, bool(self.verbose), "categorise") as advance:
            edges = choosing.choose(self.scores, variations, settings)
            advance(1, "")
            quoted = choosing.cross_fitted(self.scores, variations, settings, edges, advance=advance)
        seen = choosing.shifts_in(edges, self.scores, variations)
        found = {
            "edges": list(map(repr, edges.tolist())),
            "cross_fitted": {"significance": quoted.waterfall()[-1][1], "waterfall": quoted.waterfall()},
            "in_sample": {"significance": seen.waterfall()[-1][1], "waterfall": seen.waterfall()},
            "systematics": list(variations),
            "s": seen.yields(signal=True).tolist(),
            "b": seen.yields(signal=False).tolist(),
        }
        return [], found

    def score(self) -> _Result:
        """Score every entry of every tree."""
        folder, layout = self.folder / NTUPLES, self.layout
        folder.mkdir(exist_ok=True)
        with bar(sum(map(len, by_tree(self.templates).values())), bool(self.verbose), "score") as advance:
            histograms = ntuples.write_ntuples(folder, layout, self.templates, self.reader, self.model, advance=advance)
        ntuples.check_histograms(self.templates, histograms)
        files = [folder / name for name in layout.files.values()]
        if layout.expected:
            expected = ntuples.expected_data(self.analysis, layout, histograms)
            variables = {
                t.region: layout.branches.variables[t.variable] for t in self.templates if t.systematic is None
            }
            ntuples.write_expected(folder, layout, variables, expected)
            files.append(folder / layout.data_file)
            for name, yields in expected.items():
                histograms[name, layout.data_name, None, None] = ntuples.Histogram(yields, yields, np.ones_like(yields))
        table = counting.write_csv(self.folder / "templates.csv", list(ntuples.rows_of(histograms, layout)))
        return [*files, table], {"expected_data": list(layout.expected)}

    def workspace(self) -> _Result:
        """Let cabinetry build the workspace, and fit it."""
        config = cabinetry_config(self.analysis, self.templates, self.layout)
        path = self.folder / "cabinetry.yml"
        write_config(config, path)
        with bar(len(self.templates) + 1, bool(self.verbose), "workspace") as advance:
            workspace, notes = build_workspace(config, self.folder, advance)
            advance(0, "fit")
            found = fitted(workspace)
            advance(1, "")
        return [path, workspace], {**found, "notes": list(dict.fromkeys(notes))}

    def report(self) -> _Result:
        """Write the page."""
        scores = self.scores
        scored = ScoredEvents(scores.score, scores.signal, scores.weight, None, scores.process)
        title = f"{self.analysis.config['General']['Measurement']}, region {self.analysis.settings.region}"
        settings, path, found = self.analysis.settings, self.folder / "report.html", self.record
        shown: dict[str, Any] = {"systematics": choosing.systematics_of(self.variations, (BACKGROUND, SIGNAL)) or None}
        with bar(1, bool(self.verbose), "report") as advance, written_whole(path) as beside:
            if settings.categories == CUT:
                self.model.cut_ = float(self.edges[0])
            else:
                shown["categories"] = choosing.best_categories(scores, self.variations, settings, len(self.edges) - 1)
                shown["cross_fitted"] = found["categorise"]["cross_fitted"]["significance"]
            blind = self.layout.blind is not None
            shown["sections"] = [expectation_section(found["categorise"], found["workspace"], blind=blind)]
            beside.write_text(report(self.model, scored, title=title, **shown).html, encoding="utf-8")
            advance(1, "")
        return [path], {}
