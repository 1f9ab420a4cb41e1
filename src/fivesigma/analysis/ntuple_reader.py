"""Reading ntuples: features, event numbers and the values of expressions, tree by tree."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.analysis.configuration import ENTRY, AnalysisSettings
from fivesigma.analysis.templates import Template, Tree
from fivesigma.datasets.blocks import read_blocks
from fivesigma.datasets.columns import Columns, Kind, Plan, Source, require
from fivesigma.datasets.events import Events
from fivesigma.datasets.expression import Expression, split_definition
from fivesigma.datasets.folds import fold_numbers
from fivesigma.datasets.sources import Input, Target
from fivesigma.datasets.stream import BACKGROUND, SIGNAL
from fivesigma.errors import InputError

__all__ = ["Entries", "Reader", "check_finite", "texts_of"]


@dataclass(frozen=True, eq=False)
class Entries:
    """What was read of a tree."""

    tree: Tree
    number: IntArray
    values: dict[str, Array]
    columns: dict[str, AnyArray]
    X: NDArray[np.float32] | None

    def __len__(self) -> int:
        return len(self.number)

    def truth(self, condition: str) -> BoolArray:
        """Where a condition holds."""
        return np.asarray(self.values[condition] != 0, dtype=bool)

    def weight(self, template: Template) -> Array:
        """Weights of a template, with the factor of the luminosity."""
        own = np.ones(len(self)) if template.weight is None else self.values[template.weight]
        return own if template.factor == 1.0 else template.factor * own


class Reader:
    """Reads trees with the features of an analysis, which the first tree settles."""

    def __init__(self, settings: AnalysisSettings, first: Template) -> None:
        self.settings = settings
        self._sources: dict[Tree, Source] = {}
        self._number = [] if settings.event_number == ENTRY else [settings.event_number]
        # A score that exists already needs no features; one column stands for them, and is not read.
        asked = Columns(features=list(settings.features) or None, label=None, weight=None, ids=None, keep=self._number)
        with _explained(first.trees[0], first.owner):
            self.columns = asked.settle(self._source(first.trees[0]))[0]

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""
        return self.columns.feature_names

    def _source(self, tree: Tree) -> Source:
        """A tree, opened and checked once."""
        if tree not in self._sources:
            self._sources[tree] = Input(Target(tree.file), tree.name, dict(tree.replaced)).open()
        return self._sources[tree]

    def check(self, tree: Tree, owner: str, templates: Collection[Template]) -> None:
        """Refuse a tree that lacks a branch, without reading it."""
        with _explained(tree, owner):
            source = self._source(tree)
            if self.settings.features:
                self.columns.reading(source)
            for text in texts_of(templates):
                for name in sorted(Expression(text, "expression").columns):
                    require(name, source)

    def read(
        self,
        tree: Tree,
        owner: str,
        texts: Collection[str] = (),
        columns: Collection[str] = (),
        *,
        cut: str | None = None,
        features: bool = True,
    ) -> Entries:
        """Read a tree: every entry, or those that pass the cut."""
        derived = {f"value {text}": Expression(text, "expression") for text in texts}
        kinds: dict[str, Kind] = dict.fromkeys((*self._number, *columns), "value")
        defined: dict[str, Expression] = {}
        if features:
            texts_of_features = map(split_definition, self.columns.features or ())
            definitions = dict(text for text in texts_of_features if text is not None)
            defined = {f"feature {n}": Expression(text, f"feature {n!r}") for n, text in definitions.items()}
            kinds |= dict.fromkeys([n for n in self.feature_names if f"feature {n}" not in defined], "value")
        with _explained(tree, owner):
            source = self._source(tree)
            for name in sorted({*kinds}.union(*(e.columns for e in (*derived.values(), *defined.values())))):
                require(name, source)
            plan = Plan(kinds, derived | defined, None if cut is None else Expression(cut, "Filter"))
            blocks = [block.columns for block in read_blocks(source, plan)]
            if not blocks:  # a part of a sample may have no entries
                blocks = [dict.fromkeys((*kinds, *derived, *defined), np.empty(0, dtype=np.intp))]
            read = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
            number = read[self._number[0]] if self._number else np.arange(len(next(iter(read.values()))))
            if number.dtype.kind not in "iu":
                raise InputError(f"EventNumber {self._number[0]!r} must hold integers, got {number.dtype}")
            X = None
            if features:
                X = np.empty((len(number), len(self.feature_names)), dtype=np.float32)
                with np.errstate(over="ignore"):
                    for j, name in enumerate(self.feature_names):
                        X[:, j] = read[f"feature {name}" if f"feature {name}" in defined else name]
                if self.columns.missing is not None:
                    X[np.float32(self.columns.missing) == X] = np.nan
        values = {text: read[f"value {text}"].astype(np.float64) for text in texts}
        return Entries(tree, number, values, {name: read[name] for name in columns}, X)

    def flat(self, tree: Tree, names: Collection[str]) -> list[str]:
        """Those of these branches that have one number per event, and a name that every program can read."""
        numbers = frozenset(self._source(tree).numbers)
        return [name for name in names if name in numbers and name.isidentifier()]

    def events(self, entries: Entries, weight: Array, *, signal: bool | None, sample: str) -> Events:
        """Entries as events that a model takes."""
        if entries.X is None:
            raise InputError("these entries were read without features")
        self.refuse_infinite(entries, np.ones(len(entries), dtype=bool), sample)
        n = len(entries)
        return Events(
            X=entries.X,
            y=np.full(n, None, dtype=object) if signal is None else np.full(n, SIGNAL if signal else BACKGROUND),
            weight=weight,
            signal=None if signal is None else SIGNAL,
            feature_names=self.feature_names,
            process=np.full(n, sample),
            kept={self.settings.event_number: entries.number},
            columns=self.columns,
        )

    def refuse_infinite(self, entries: Entries, rows: BoolArray, sample: str) -> None:
        """Refuse an infinite feature in some of the entries."""
        bad = np.argwhere(np.isinf(entries.X) & rows[:, None]).tolist() if entries.X is not None else []
        if bad:
            i, j = bad[0]
            raise InputError(
                f"feature {self.feature_names[j]!r} is infinite (or too large for float32) in an event of sample "
                f"{sample!r} with {self.settings.event_number} {entries.number[i]} in {entries.tree.file.name}: cut "
                "such events in the Preselection, or leave the feature out"
            )

    def folds(self, number: IntArray) -> IntArray:
        """Fold of each event: its number modulo the number of folds."""
        return fold_numbers(self.settings.folds, number)


def check_finite(weight: Array, entries: Entries, template: Template) -> None:
    """Refuse a weight that is not finite."""
    if not np.isfinite(weight).all():
        at = int(np.argmin(np.isfinite(weight)))
        raise InputError(
            f"the weight {template.weight!r} of {template.owner} is {weight[at]} for event {entries.number[at]} of "
            f"{entries.tree.file.name}; every event of region {template.region!r} needs a finite one"
        )


def texts_of(templates: Collection[Template]) -> list[str]:
    """Expressions of some templates: conditions, weights and variables, each once; the score is none."""
    named = ((t.condition, t.weight, None if t.needs_score else t.variable) for t in templates)
    return list(dict.fromkeys(text for texts in named for text in texts if text is not None))


@contextmanager
def _explained(tree: Tree, owner: str) -> Iterator[None]:
    """Add to an error which tree it was, and who wanted it."""
    try:
        yield
    except InputError as err:
        raise InputError(f"{err} (tree {tree.name!r}, {owner})") from err
