"""Scoring every entry once: ntuples with their scores, and the events of regions that are binned in the score."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._types import AnyArray, Array
from fivesigma.analysis.configuration import FOLD, PLAIN, SCORE, Analysis, Key, find_named
from fivesigma.analysis.edge_choice import join
from fivesigma.analysis.histograms import Histograms, fill_histogram
from fivesigma.analysis.ntuple_reader import Entries, Reader, texts_of
from fivesigma.analysis.settings import ENTRY
from fivesigma.analysis.templates import Template, Tree, by_tree
from fivesigma.datasets.expression import Expression
from fivesigma.datasets.folds import fold_numbers
from fivesigma.datasets.remote import File
from fivesigma.datasets.write import write_trees
from fivesigma.errors import InputError
from fivesigma.estimators.profiled import ProfiledClassifier
from fivesigma.scored.scored_events import ScoredEvents

#: Events of each template that is binned in a score; a template without events has none.
Scored = dict[Key, ScoredEvents]


class Scorer:
    """Scores entries, or finds their scores in ntuples that are written; `events` and the others are then filled."""

    def __init__(self, analysis: Analysis, templates: Sequence[Template], reader: Reader, folder: Path) -> None:
        self.analysis, self.templates, self.reader = analysis, templates, reader
        self.trees = by_tree(templates)
        self.files = {file: folder / name for file, name in ntuple_names(templates).items()}
        self._parts: dict[tuple[str, Key], list[ScoredEvents]] = {}
        self.events: Scored = {}
        self.plain: Scored = {}  # the same with the plain scores of models that know the systematics
        self.shown: Scored = {}  # data of blinded regions, below the score from which on they are hidden

    def write(self, models: Mapping[str, Any], *, friends: bool, advance: Callable[[int, str], None]) -> None:
        """Score every entry by every model and write an ntuple for each input, with its trees in their order."""
        given, settings = self.analysis.settings.score, self.analysis.settings
        profiled = {branch: model for branch, model in models.items() if isinstance(model, ProfiledClassifier)}
        models = {**models, **{_plain_branch(branch): plain_model(model) for branch, model in profiled.items()}}

        def scored(tree: Tree, wanted: Sequence[Template]) -> tuple[str, dict[str, AnyArray]]:
            advance(0, f"{tree.file.name} {tree.name}")
            own = [template for template in wanted if template.region in settings.region]
            kept = [] if friends else self.reader.flat(tree, _names_of(self.reader, texts_of(own)))
            entries = self.reader.read_for(tree, wanted, kept, features=given is None)
            scores: dict[str, Array] = {} if given is None else {SCORE: entries.values[given]}
            scores |= dict.fromkeys(models, np.empty(0))
            if len(entries):
                events = self.reader.events(entries)
                scores |= {branch: model.predict_proba(events)[:, 1].astype(float) for branch, model in models.items()}
            self._collect(entries, wanted, scores)
            advance(1, "")
            fold = fold_numbers(settings.folds, entries.number).astype(np.int32)
            return tree_name(tree), {**entries.columns, **scores, FOLD: fold}

        for file, trees in self.trees.items():
            write_trees(self.files[file], (scored(tree, wanted) for tree, wanted in trees.items()))
        self._join()

    def find(self, *, advance: Callable[[int, str], None]) -> None:
        """Find the scores in ntuples that `write` has written; features are not read."""
        branches = [*self.analysis.models]
        if self.analysis.profiled:
            branches += map(_plain_branch, self.analysis.models)
        for file, trees in self.trees.items():
            for tree, wanted in trees.items():
                own = [template for template in wanted if template.needs_score]
                if own:
                    entries = self.reader.read(tree, own[0].owner, texts_of(own), features=False)
                    with need("uproot").open(self.files[file]) as written:
                        found = written[tree_name(tree)].arrays(branches, library="np")
                    if len(found[branches[0]]) != len(entries):
                        raise InputError(f"{self.files[file]} does not fit {file}; remove it to score anew")
                    self._collect(entries, own, found)
                advance(1, file.name)
        self._join()

    def _collect(self, entries: Entries, wanted: Sequence[Template], scores: Mapping[str, Array]) -> None:
        """Add the events of a tree to those of each template that is binned in a score."""
        inside, below = entries.inside(wanted), self.analysis.settings.blind_above
        for template in [template for template in wanted if template.needs_score]:
            rows = inside[template.region, template.condition]
            if template.hidden:
                rows = rows & (scores[template.variable] < (-np.inf if below is None else below))
            if rows.any():
                plain = scores.get(_plain_branch(template.variable))
                n, weight = int(rows.sum()), entries.weight(template)[rows]
                of = (np.full(n, template.signal), weight, None, np.full(n, template.sample), entries.number[rows])
                found = {"shown" if template.hidden else "events": scores[template.variable][rows]}
                found |= {} if plain is None else {"plain": plain[rows]}
                for kind, score in found.items():
                    self._parts.setdefault((kind, template.key), []).append(ScoredEvents(score, *of))

    def _join(self) -> None:
        for (kind, key), parts in self._parts.items():
            getattr(self, kind)[key] = join(parts)
        self._parts.clear()

    def fill(self, edges: Mapping[str, Array]) -> tuple[Histograms, Histograms]:
        """Histograms of the scores; and those of data of blinded regions with low scores, which figures may show."""
        filled, shown, none = Histograms(), Histograms(), np.empty(0)
        for template in [template for template in self.templates if template.needs_score]:
            events = (self.shown if template.hidden else self.events).get(template.key)
            score, weight = (none, none) if events is None else (events.score, events.arrays()[2])
            binning = edges.get(template.region)
            if binning is None:
                binning = np.array(find_named(self.analysis.regions, template.region)["Binning"], dtype=np.float64)
            (shown if template.hidden else filled)[template.key] = fill_histogram(binning, score, weight)
        return filled, shown


def plain_model(model: ProfiledClassifier) -> ProfiledClassifier:
    """The same model without its systematics: the order of its scores is that of s/b."""
    out = copy(model)
    out.shift_models_, out.shift_terms_, out.pulls_ = [{} for _ in model.models_], {}, {}
    return out


def _plain_branch(branch: str) -> str:
    return branch.replace(SCORE, PLAIN)


def ntuple_names(templates: Sequence[Template]) -> dict[File, str]:
    """Names of the outputs: those of the inputs, with a number where folders hold files of one name."""
    found: dict[File, str] = {}
    for file in by_tree(templates):
        taken = {name.casefold() for name in found.values()}
        stem, dot, ending = file.name.lstrip(".").partition(".")
        numbered = (f"{stem}_{k}{dot}{ending}" for k in range(2, len(taken) + 3))
        found[file] = next(n for n in (f"{stem}{dot}{ending}", *numbered) if n.casefold() not in taken)
    return found


def tree_name(tree: Tree) -> str:
    """Tree in the ntuples; replaced branches make a tree of their own."""
    return "__".join([*tree.name.split(" + "), *(f"{old}_{new}" for old, new in tree.replaced)])


def _names_of(reader: Reader, texts: Iterable[str]) -> list[str]:
    """Branches that the configuration names: the event number, those of features and of expressions."""
    own = reader.settings.event_number
    names = [*([] if own == ENTRY else [own]), *(reader.columns.feature_names if reader.settings.features else ())]
    for expression in (*reader.columns.expressions.values(), *(Expression(text, "expression") for text in texts)):
        names += sorted(expression.columns)
    return list(dict.fromkeys(names))
