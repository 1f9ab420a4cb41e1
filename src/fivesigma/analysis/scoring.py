"""Scoring every entry once: ntuples with their scores, and the events of regions that are binned in the score."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._types import AnyArray, Array
from fivesigma.analysis.configuration import Analysis
from fivesigma.analysis.counting import regions_inside
from fivesigma.analysis.histograms import Key
from fivesigma.analysis.ntuple_reader import Entries, Reader, texts_of
from fivesigma.analysis.templates import FOLD, SCORE, Template, Tree, by_tree
from fivesigma.datasets.expression import Expression
from fivesigma.datasets.write import write_trees
from fivesigma.errors import InputError
from fivesigma.scored.scored_events import ScoredEvents

__all__ = ["Scorer", "ntuple_names"]

#: Events of each template that is binned in the score; a template without events has none.
Scored = dict[Key, ScoredEvents]


class Scorer:
    """Scores entries, or finds their scores in ntuples that are written.

    Parameters
    ----------
    analysis : Analysis
    templates : sequence of Template
        All of the analysis.
    reader : Reader
    hidden : str or None
        Region whose data are not looked at.
    """

    def __init__(
        self, analysis: Analysis, templates: Sequence[Template], reader: Reader, *, hidden: str | None
    ) -> None:
        self.analysis, self.reader, self.hidden = analysis, reader, hidden
        self.trees = by_tree(templates)
        self._parts: dict[Key, list[tuple[Array, Array, AnyArray]]] = {}
        self._templates = templates

    def write(
        self, folder: Path, names: Mapping[Path, str], model: Any, *, friends: bool, advance: Callable[[int, str], None]
    ) -> Scored:
        """Score every entry and write an ntuple for each input, with its trees in their order.

        Parameters
        ----------
        folder : Path
        names : mapping of Path to str
            Output by input.
        model : estimator
        friends : bool
            Whether to write the new branches alone.
        advance : callable
            Gets one step for each tree.
        """

        def made(tree: Tree, wanted: Sequence[Template]) -> tuple[str, dict[str, AnyArray]]:
            advance(0, f"{tree.file.name} {tree.name}")
            given = self.analysis.settings.score
            texts = [*texts_of(wanted), *([] if given is None else [given])]
            kept = [] if friends else self.reader.flat(tree, _names_of(self.reader, texts))
            entries = self.reader.read(tree, wanted[0].owner, dict.fromkeys(texts), kept, features=given is None)
            if entries.X is not None:  # events that no template has need no features
                used = np.any([entries.truth(template.condition) for template in wanted], axis=0)
                entries.X[np.isinf(entries.X) & ~used[:, None]] = np.nan
            score = _score(model, self.reader, entries, wanted[0].owner) if given is None else entries.values[given]
            self._collect(entries, wanted, score)
            advance(1, "")
            new: dict[str, AnyArray] = {SCORE: score, FOLD: self.reader.folds(entries.number).astype(np.int32)}
            return tree_name(tree), {**entries.columns, **new}

        for file, trees in self.trees.items():
            write_trees(folder / names[file], (made(tree, wanted) for tree, wanted in trees.items()))
        return self._joined()

    def find(self, folder: Path, names: Mapping[Path, str], *, advance: Callable[[int, str], None]) -> Scored:
        """Find the scores in ntuples that `write` has written; features are not read."""
        for file, trees in self.trees.items():
            for tree, wanted in trees.items():
                own = [template for template in wanted if template.needs_score]
                if own:
                    entries = self.reader.read(tree, own[0].owner, texts_of(own), features=False)
                    with need("uproot").open(folder / names[file]) as written:
                        score = np.asarray(written[tree_name(tree)][SCORE].array(library="np"))
                    if len(score) != len(entries):
                        raise InputError(f"{folder / names[file]} does not fit {file}; remove it to score anew")
                    self._collect(entries, own, score)
                advance(1, file.name)
        return self._joined()

    def _collect(self, entries: Entries, wanted: Sequence[Template], score: Array) -> None:
        inside = regions_inside(entries, wanted, self.hidden)
        for template in wanted:
            if template.needs_score and not (template.is_data and template.region == self.hidden):
                rows = inside[template.region, template.condition]
                part = score[rows], entries.weight(template)[rows], entries.number[rows]
                self._parts.setdefault(template.key, []).append(part)

    def _joined(self) -> Scored:
        out = {}
        for template in self._templates:
            parts = [part for part in self._parts.pop(template.key, []) if len(part[0])]
            if parts:
                score, weight, number = (np.concatenate([part[i] for part in parts]) for i in range(3))
                is_signal = template.sample in self.analysis.signal
                out[template.key] = ScoredEvents(
                    score, np.full(len(score), is_signal), weight, None, np.full(len(score), template.sample), number
                )
        return out


def ntuple_names(templates: Sequence[Template]) -> dict[Path, str]:
    """Names of the outputs: those of the inputs, with a number where folders hold files of one name."""
    found: dict[Path, str] = {}
    for file in dict.fromkeys(file for template in templates for file in template.files):
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
    names = [*([] if own is None else [own]), *(reader.feature_names if reader.settings.features else ())]
    for expression in (*reader.columns.expressions.values(), *(Expression(text, "expression") for text in texts)):
        names += sorted(expression.columns)
    return list(dict.fromkeys(names))


def _score(model: Any, reader: Reader, entries: Entries, owner: str) -> Array:
    if not len(entries):
        return np.empty(0)
    events = reader.events(entries, np.ones(len(entries)), signal=None, sample=owner)
    return np.asarray(model.predict_proba(events)[:, 1], dtype=np.float64)
