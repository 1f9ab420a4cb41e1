"""Reading ntuples: features, event numbers and the values of expressions, tree by tree."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.analysis.settings import ENTRY, AnalysisSettings
from fivesigma.analysis.templates import Template, Tree
from fivesigma.datasets.blocks import Block, FeatureTable, read_blocks
from fivesigma.datasets.columns import Columns, Plan, Source, require
from fivesigma.datasets.events import Events
from fivesigma.datasets.expression import Expression
from fivesigma.datasets.sources import Input, Target
from fivesigma.datasets.stream import BACKGROUND, SIGNAL
from fivesigma.errors import InputError


@dataclass(frozen=True, eq=False)
class Entries:
    """What was read of a tree."""

    tree: Tree
    number: IntArray
    values: dict[str, Array]
    columns: dict[str, AnyArray]
    X: NDArray[np.float32]  # without columns if features were not read

    def __len__(self) -> int:
        return len(self.number)

    def weight(self, template: Template) -> Array:
        """Weights of a template, with the factor of the luminosity."""
        own = np.ones(len(self)) if template.weight is None else self.values[template.weight]
        return own if template.factor == 1.0 else template.factor * own

    def inside(self, users: Sequence[Template]) -> dict[tuple[str, str], BoolArray]:
        """Which entries each template takes, by its region and condition; hidden data are in no other region."""
        inside = {(t.region, t.condition): self.values[t.condition] != 0 for t in users}
        hidden = {t.region: inside[t.region, t.condition] for t in users if t.hidden}
        for template in [template for template in users if not template.hidden]:
            if any((inside[template.region, template.condition] & rows).any() for rows in hidden.values()):
                raise InputError(
                    f"data of the blinded region{'s' * (len(hidden) > 1)} {', '.join(map(repr, hidden))} are in region "
                    f"{template.region!r} too ({template.owner}): change a Filter so that they exclude each other, or "
                    "unblind"
                )
        return inside


class Reader:
    """Reads trees with the features of an analysis, which the first tree settles."""

    def __init__(self, settings: AnalysisSettings, first: Template) -> None:
        self.settings = settings
        self._sources: dict[Tree, Source] = {}
        self._number: tuple[str, ...] = () if settings.event_number == ENTRY else (settings.event_number,)
        # A score that exists already needs no features; one column stands for them, and is not read.
        asked = Columns(features=settings.features or None, label=None, weight=None, ids=None, keep=self._number)
        with _explained(first.trees[0], first.owner):
            self.columns = asked.settle(self._source(first.trees[0]))[0]

    def _source(self, tree: Tree) -> Source:
        """A tree, opened and checked once."""
        if tree not in self._sources:
            self._sources[tree] = Input(Target(tree.file), tree.name, dict(tree.replaced)).open()
        return self._sources[tree]

    def check(self, tree: Tree, users: Sequence[Template]) -> None:
        """Refuse a tree that lacks a branch, without reading it."""
        with _explained(tree, users[0].owner):
            self._plan(tree, texts_of(users), features=bool(self.settings.features))

    def _plan(
        self,
        tree: Tree,
        texts: Collection[str],
        columns: Collection[str] = (),
        *,
        features: bool,
        cut: str | None = None,
    ) -> Plan:
        """What is to be read of a tree; values of expressions go by their text."""
        source = self._source(tree)
        own = self.columns.features if features else ()
        plan = replace(self.columns, features=own, keep=(*self._number, *columns), cut=cut).reading(source)
        derived = {f"value {text}": Expression(text, "expression") for text in texts}
        for name in sorted(frozenset[str]().union(*(expression.columns for expression in derived.values()))):
            require(name, source)
        return plan._replace(derived=plan.derived | derived)

    def read_for(
        self, tree: Tree, users: Sequence[Template], columns: Collection[str] = (), *, features: bool
    ) -> Entries:
        """Read every entry of a tree with all that some templates need, and the score if it exists already."""
        texts = dict.fromkeys([*texts_of(users), *([self.settings.score] if self.settings.score else [])])
        used = {template.condition for template in users}
        return self.read(tree, users[0].owner, texts, columns, features=features, used=used)

    def read(
        self,
        tree: Tree,
        owner: str,
        texts: Collection[str] = (),
        columns: Collection[str] = (),
        *,
        cut: str | None = None,
        features: bool = True,
        used: Collection[str] | None = None,
    ) -> Entries:
        """Read a tree: every entry, or those that pass the cut.

        Features must be finite or missing, in all of them or where one of the conditions `used` holds.
        """
        table = FeatureTable(self.columns.feature_names if features else (), self.columns.missing)
        wanted = [*self._number, *columns, *(f"value {text}" for text in texts)]
        parts: list[tuple[AnyArray, ...]] = []
        with _explained(tree, owner):
            plan = self._plan(tree, texts, columns, features=features, cut=cut)
            for block in read_blocks(self._source(tree), plan):
                parts.append((block.rows(), *(block.columns[name] for name in wanted)))
                if features:
                    self._hide_infinite(block, used)
                    table.add(block.columns, block.where)
            if not parts:  # a part of a sample may have no entries
                parts.append((np.empty(0, dtype=np.intp),) * (1 + len(wanted)))
            entry, *read = map(np.concatenate, zip(*parts, strict=True))
            found = dict(zip(wanted, read, strict=True))
            # The number of an entry is that in the whole tree: one event has one fold wherever it is read.
            number = found[self._number[0]] if self._number else entry
            if number.dtype.kind not in "iu":
                raise InputError(f"EventNumber {self._number[0]!r} must hold integers, got {number.dtype}")
        values = {text: found[f"value {text}"].astype(np.float64) for text in texts}
        return Entries(tree, number, values, {name: found[name] for name in columns}, table.finish())

    def _hide_infinite(self, block: Block, used: Collection[str] | None) -> None:
        """Take infinite features for missing in entries that no template has, which the table would refuse."""
        if used is None:
            return
        unused = ~np.any([block.columns[f"value {text}"] != 0 for text in used], axis=0)
        for name in self.columns.feature_names:
            with np.errstate(over="ignore"):
                infinite = np.isinf(block.columns[name].astype(np.float32)) & unused
            if infinite.any():
                block.columns[name] = np.where(infinite, np.nan, block.columns[name])

    def flat(self, tree: Tree, names: Collection[str]) -> list[str]:
        """Those of these branches that have one number per event, and a name that every program can read."""
        numbers = frozenset(self._source(tree).numbers) - self.columns.expressions.keys()
        return [name for name in names if name in numbers and name.isidentifier()]

    def events(self, entries: Entries, template: Template | None = None) -> Events:
        """Entries as events that a model takes, with the weights that the fit expects, or without labels."""
        n = len(entries)
        label = SIGNAL if template is not None and template.signal else BACKGROUND
        return Events(
            X=entries.X,
            y=np.full(n, None, dtype=object) if template is None else np.full(n, label),
            weight=np.ones(n) if template is None else entries.weight(template) * template.norm,
            signal=None if template is None else SIGNAL,
            feature_names=self.columns.feature_names,
            process=None if template is None else np.full(n, template.sample),
            kept={self.settings.event_number: entries.number},
            columns=self.columns,
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
