"""Scoring every entry once: ntuples with their scores, and the events of regions that are binned in the score."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._types import AnyArray, Array
from fivesigma.analysis.configuration import ENTRY, FOLD, PLAIN, SCORE, Analysis, Key
from fivesigma.analysis.ntuple_reader import Entries, Reader, texts_of
from fivesigma.analysis.templates import Template, Tree, by_tree
from fivesigma.datasets.expression import Expression
from fivesigma.datasets.remote import File
from fivesigma.datasets.write import write_trees
from fivesigma.errors import InputError
from fivesigma.estimators.profiled import ProfiledClassifier
from fivesigma.scored.scored_events import ScoredEvents

__all__ = ["Scorer", "ntuple_names"]

#: Events of each template that is binned in a score; a template without events has none.
Scored = dict[Key, ScoredEvents]


class Scorer:
    """Scores entries, or finds their scores in ntuples that are written; `events` and `plain` are then filled."""

    events: Scored
    plain: Scored  # the same with the plain scores of models that know the systematics
    shown: Scored  # data of blinded regions, below the score from which on they are hidden

    def __init__(
        self, analysis: Analysis, templates: Sequence[Template], reader: Reader, *, hidden: Collection[str]
    ) -> None:
        self.analysis, self.reader, self.hidden = analysis, reader, hidden
        self.trees = by_tree(templates)
        self._parts: dict[Key, list[dict[str, AnyArray]]] = {}
        self._templates = templates

    def write(
        self,
        folder: Path,
        names: Mapping[File, str],
        models: Mapping[str, Any],
        *,
        friends: bool,
        advance: Callable[[int, str], None],
    ) -> None:
        """Score every entry by every model and write an ntuple for each input, with its trees in their order."""
        models = dict(models)
        for branch, model in list(models.items()):
            if isinstance(model, ProfiledClassifier):
                models[_plain_branch(branch)] = plain_model(model)

        def made(tree: Tree, wanted: Sequence[Template]) -> tuple[str, dict[str, AnyArray]]:
            advance(0, f"{tree.file.name} {tree.name}")
            given = self.analysis.settings.score
            texts = dict.fromkeys([*texts_of(wanted), *([] if given is None else [given])])
            own = [template for template in wanted if template.region in self.analysis.settings.region]
            kept = [] if friends else self.reader.flat(tree, _names_of(self.reader, texts_of(own)))
            used = {template.condition for template in wanted}
            entries = self.reader.read(tree, wanted[0].owner, texts, kept, features=given is None, used=used)
            scores: dict[str, Array] = {} if given is None else {SCORE: entries.values[given]}
            scores |= _scores(models, self.reader, entries, wanted[0].owner)
            self._collect(entries, wanted, scores)
            advance(1, "")
            fold = self.reader.folds(entries.number).astype(np.int32)
            return tree_name(tree), {**entries.columns, **scores, FOLD: fold}

        for file, trees in self.trees.items():
            write_trees(folder / names[file], (made(tree, wanted) for tree, wanted in trees.items()))
        self._join()

    def find(self, folder: Path, names: Mapping[File, str], *, advance: Callable[[int, str], None]) -> None:
        """Find the scores in ntuples that `write` has written; features are not read."""
        branches = [*self.analysis.models]
        if self.analysis.profiled:
            branches += map(_plain_branch, self.analysis.models)
        for file, trees in self.trees.items():
            for tree, wanted in trees.items():
                own = [template for template in wanted if template.needs_score]
                if own:
                    entries = self.reader.read(tree, own[0].owner, texts_of(own), features=False)
                    with need("uproot").open(folder / names[file]) as written:
                        found = written[tree_name(tree)].arrays(branches, library="np")
                    if len(found[branches[0]]) != len(entries):
                        raise InputError(f"{folder / names[file]} does not fit {file}; remove it to score anew")
                    self._collect(entries, own, found)
                advance(1, file.name)
        self._join()

    def _collect(self, entries: Entries, wanted: Sequence[Template], scores: Mapping[str, Array]) -> None:
        inside = entries.inside(wanted, self.hidden)
        for template in wanted:
            if template.needs_score:
                rows = inside[template.region, template.condition]
                if self._is_hidden(template):
                    below = self.analysis.settings.blind_above
                    rows = rows & (scores[template.variable] < (-np.inf if below is None else below))
                part = {"score": scores[template.variable][rows], "weight": entries.weight(template)[rows]}
                plain = scores.get(_plain_branch(template.variable))
                if plain is not None:
                    part["plain"] = plain[rows]
                self._parts.setdefault(template.key, []).append({**part, "ids": entries.number[rows]})

    def _is_hidden(self, template: Template) -> bool:
        return template.is_data and template.region in self.hidden

    def _join(self) -> None:
        self.events, self.plain, self.shown = {}, {}, {}
        for template in self._templates:
            parts = [part for part in self._parts.pop(template.key, []) if len(part["score"])]
            if parts:
                of = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
                n, is_signal = len(of["score"]), template.sample in self.analysis.signal
                named = np.full(n, template.sample)
                found = ScoredEvents(of["score"], np.full(n, is_signal), of["weight"], None, named, of["ids"])
                (self.shown if self._is_hidden(template) else self.events)[template.key] = found
                if "plain" in of:
                    self.plain[template.key] = replace(found, score=of["plain"])


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
    return "__".join([tree.name, *(f"{old}_{new}" for old, new in tree.replaced)])


def _names_of(reader: Reader, texts: Iterable[str]) -> list[str]:
    """Branches that the configuration names: the event number, those of features and of expressions."""
    own = reader.settings.event_number
    names = [*([] if own == ENTRY else [own]), *(reader.feature_names if reader.settings.features else ())]
    for expression in (*reader.columns.expressions.values(), *(Expression(text, "expression") for text in texts)):
        names += sorted(expression.columns)
    return list(dict.fromkeys(names))


def _scores(models: Mapping[str, Any], reader: Reader, entries: Entries, owner: str) -> dict[str, Array]:
    if not models or not len(entries):
        return {branch: np.empty(0) for branch in models}
    events = reader.events(entries, np.ones(len(entries)), signal=None, sample=owner)
    return {branch: np.asarray(model.predict_proba(events)[:, 1], dtype=np.float64) for branch, model in models.items()}
