"""What the steps of an analysis share: inputs and their digests, templates, models, scored events and edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.progress import steps as bar
from fivesigma._types import Array
from fivesigma.analysis import all_regions, edge_choice
from fivesigma.analysis.configuration import Analysis
from fivesigma.analysis.edge_choice import RegionEvents
from fivesigma.analysis.histograms import read_filled
from fivesigma.analysis.ntuple_reader import Reader, texts_of
from fivesigma.analysis.region_model import training_events
from fivesigma.analysis.scoring import Scored, Scorer, ntuple_names
from fivesigma.analysis.settings import ENTRY, AnalysisSettings
from fivesigma.analysis.step_record import Record, digest
from fivesigma.analysis.templates import Template, by_tree, templates_of
from fivesigma.datasets.columns import Columns
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError
from fivesigma.store import load

_ABOVE = 1.01  # all scores of models, which lie between 0 and 1


@dataclass(eq=False)
class RunState:
    """One run of an analysis; what several steps need is made once."""

    analysis: Analysis
    record: Record
    unblind: bool
    friends: bool
    n_jobs: int | None
    verbose: int

    def __post_init__(self) -> None:
        self.folder, settings = self.record.folder, self.analysis.settings
        self.saved: dict[str, Any] = {}  # models that exist already
        features, number = settings.features, settings.event_number
        for branch in self.analysis.models if settings.saved is not None else ():
            model = self.saved[branch] = load(self.model_folder(branch, Path(str(settings.saved))))
            features, by = features or tuple(Columns.of_model(model).features or ()), getattr(model, "by", None)
            if by not in (None, number or by):
                raise InputError(f"the Model has folds by {by!r}: leave out EventNumber, which is {number!r}")
            number = by or number
        settings = replace(settings, features=features, event_number=number or ENTRY)
        self.analysis = replace(self.analysis, settings=settings)
        self.settings: AnalysisSettings = settings
        self.templates = templates_of(self.analysis, unblind=self.unblind)
        self.hidden = [template.region for template in self.templates if template.hidden]  # data are not looked at
        self.n_trees = sum(map(len, by_tree(self.templates).values()))
        # Simulated ones of the chosen regions.
        self.region_templates = [t for t in self.templates if t.region in self.settings.region and not t.is_data]
        for region in self.analysis.regions:  # whose bins are those of their histograms
            if self.analysis.is_filled(region):
                first = next(template for template in self.templates if template.region == region["Name"])
                edges, _ = read_filled(first.files[0], str(first.histogram), first.owner)
                region |= {"Binning": edges.tolist(), "Variable": region.get("Variable", region["Name"])}

    def bar(self, n: int, what: str) -> AbstractContextManager[Callable[[int, str], None]]:
        """Show progress in so many parts, if that was asked for."""
        return bar(n, bool(self.verbose), what)

    # What each step depends on.

    def inputs(self, name: str) -> str:
        """Digest of all that a step depends on."""
        analysis, record, settings = self.analysis, self.record, asdict(self.settings)

        def of(*keys: str) -> dict[str, Any]:
            return {key: settings[key] for key in keys}

        reading = of("features", "event_number", "folds", "region", "train")
        normed = [analysis.signal, analysis.config["NormFactors"], analysis.fixed]
        if name == "read":
            shown = [analysis.regions, settings["validation"], self.unblind, normed]
            return digest(reading, self._described(self.templates), shown)
        if name == "train":
            model = of("model_options", "score", "goal", "model")
            if self.saved:
                files = sorted(path for path in Path(settings["model"]).rglob("*") if path.is_file())
                model["model"] = [(path.name, record.file_digest(path)) for path in files]
            known: list[Any] = [self._described(self.nominal(*settings["region"]))]
            if analysis.profiled:
                # The widths of norm factors change with every control region: that is noted, and not trained again.
                places = [t.key[:2] for t in self.region_templates if t.systematic is None]
                known = [self._described(self.region_templates), analysis.variations(analysis.chosen, places)]
            return digest(reading, model, known)
        if name == "score":
            trees = [(record.file_digest(file), list(own)) for file, own in by_tree(self.templates).items()]
            named = [] if self.friends else sorted(texts_of(self.region_templates))
            names = list(ntuple_names(self.templates).values())
            return digest(names, trees, reading, named, self.friends, settings["score"], record.outputs("train"))
        if name == "categorise":
            wanted = of("goal", "number", "edges", "min_effective", "min_background", "blind_above")
            own = [template for template in self.templates if template.needs_score]
            chosen = [wanted, analysis.regions, analysis.systematics, self.unblind, normed]
            return digest(chosen, self._described(own), record.outputs("read", "score"), record["train"].get("norms"))
        if name == "workspace":
            shown = [of("validation", "combine", "prune", "hepdata"), record["categorise"]]
            return digest(analysis.config, record.outputs("read", "categorise"), shown)
        found = [record["categorise"], record["workspace"], record.outputs("train", "categorise", "workspace")]
        return digest(found, of("figures", "label", "blind_above"), self.unblind)

    def _described(self, templates: Sequence[Template]) -> list[Any]:
        """Templates with the contents of their files in place of the names."""
        return [
            asdict(template) | {"files": [self.record.file_digest(file) for file in template.files]}
            for template in templates
        ]

    def look_at_files(self) -> None:
        """Form the digests of all files, which are then known: large ones take a while."""
        files = list(dict.fromkeys(file for template in self.templates for file in template.files))
        folder = self.folder.resolve()
        with self.bar(len(files), "files") as advance:
            for file in files:
                if isinstance(file, Path) and file.resolve().is_relative_to(folder):
                    raise InputError(f"{file} is an input within the folder of the results, {folder}; move one of them")
                advance(0, file.name)
                self.record.file_digest(file)
                advance(1, "")
        self.record.write()

    # What several steps need.

    def nominal(self, *regions: str, data: bool = False) -> list[Template]:
        """Nominal templates of some regions, simulated ones or data."""
        return [t for t in self.templates if t.region in regions and t.systematic is None and t.is_data is data]

    def read_events(self, *regions: str, data: bool = False) -> Events:
        """Simulated events, or data, of some regions with their features and the weights that the fit expects."""
        return Events.concatenate(training_events(self.reader, self.nominal(*regions, data=data)))

    @cached_property
    def reader(self) -> Reader:
        """Reads trees."""
        return Reader(self.settings, self.nominal(*self.settings.region)[0])

    @cached_property
    def models(self) -> dict[str, Any]:
        """The trained models by the branches of their scores; none where the score exists already."""
        if self.settings.score is not None:
            return {}
        return {branch: load(self.model_folder(branch)) for branch in self.analysis.models}

    def model_folder(self, branch: str, folder: Path | None = None) -> Path:
        """Where a model is saved."""
        folder = folder or self.folder / "model"
        return folder / branch if self.analysis.settings.each else folder

    @cached_property
    def scorer(self) -> Scorer:
        """Events of the regions that are binned in a score, found in the ntuples unless they were scored just now."""
        scorer = self.new_scorer()
        with self.bar(self.n_trees, "scores") as advance:
            scorer.find(advance=advance)
        return scorer

    def new_scorer(self) -> Scorer:
        """A scorer that has seen nothing yet."""
        return Scorer(self.analysis, self.templates, self.reader, self.folder / "ntuples")

    def events_in(self, scored: Scored) -> dict[str, RegionEvents]:
        """Events of each chosen region, with free norm factors as wide as the control regions leave them."""
        widths = self.record["read"]["norms"]
        return {
            region["Name"]: edge_choice.events_of_region(
                self.analysis, region, scored, all_regions.normalisations(self.analysis, widths, [region])
            )
            for region in self.analysis.chosen
        }

    @cached_property
    def events(self) -> dict[str, RegionEvents]:
        """Simulated events of each chosen region."""
        return self.events_in(self.scorer.events)

    @cached_property
    def chosen(self) -> dict[str, Any]:
        """Categories or the cut of each chosen region."""
        return edge_choice.choose_edges(self.events, self.settings)

    @property
    def binning(self) -> dict[str, Array]:
        """Edges of each region."""
        edges = self.record["categorise"]["edges"]
        named = {region["Name"]: region for region in self.analysis.regions}
        return {name: np.array(edges.get(name) or region["Binning"], dtype=float) for name, region in named.items()}

    def finite_edges(self, found: Any) -> Array:
        """Edges of what was chosen; cabinetry has no infinite ones, and drops what lies at or above the last."""
        low, high = 0.0, _ABOVE
        if self.settings.score is not None:
            scores = np.concatenate([events.score for events in self.scorer.events.values()])
            low, high = float(scores.min()), float(scores.max())
            high += 0.01 * ((high - low) or 1.0)
        return np.clip(edge_choice.edges_of(found), low, high)
