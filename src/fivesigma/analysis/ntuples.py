"""Scoring every entry: the ntuples that cabinetry reads, and the histograms that it will find in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fivesigma._types import AnyArray, Array, BoolArray
from fivesigma.analysis.configuration import Analysis, acts, holds, named
from fivesigma.analysis.layout import Layout, by_tree
from fivesigma.analysis.reading import Entries, Reader, check_finite, texts_of
from fivesigma.analysis.templates import FOLD, SCORE, Template, Tree
from fivesigma.datasets.expression import Expression
from fivesigma.datasets.write_root import write_trees
from fivesigma.errors import InputError

__all__ = ["Histogram", "Histograms", "expected_data", "write_ntuples"]


class Histogram(NamedTuple):
    """Sums of weights and of their squares, and entries, bin by bin."""

    yields: Array
    squares: Array
    entries: Array

    def __add__(self, other: Histogram) -> Histogram:  # type: ignore[override]  # sums, where tuples are joined
        return Histogram(*(a + b for a, b in zip(self, other, strict=True)))


#: By region, sample, systematic and direction.
Histograms = dict[tuple[str, str, str | None, str | None], Histogram]


def write_ntuples(
    folder: Path,
    layout: Layout,
    templates: Sequence[Template],
    reader: Reader,
    model: Any,
    *,
    advance: Callable[[int, str], None],
) -> Histograms:
    """Write an ntuple for each input, with the score of every entry, and fill all histograms on the way."""
    found: Histograms = {}

    def written(tree: Tree, wanted: Sequence[Template]) -> tuple[str, dict[str, AnyArray]]:
        advance(0, f"{tree.file.name} {tree.name}")
        columns = _columns(tree, wanted, layout, reader, model, found=found)
        advance(1, "")
        return layout.tree_name(wanted[0]), columns

    for file, trees in by_tree(templates).items():
        write_trees(folder / layout.files[file], (written(tree, wanted) for tree, wanted in trees.items()))
    return found


def _columns(
    tree: Tree, templates: Sequence[Template], layout: Layout, reader: Reader, model: Any, *, found: Histograms
) -> dict[str, AnyArray]:
    """Branches of one tree of the ntuples; its events are added to the histograms."""
    owner = templates[0].owner
    texts, columns = texts_of(templates), layout.branches.used(templates)
    if not layout.friends:
        columns = list(dict.fromkeys((*columns, *reader.flat(tree, _names_of(reader, texts)))))
    entries = reader.read(tree, owner, texts, columns)
    inside: dict[str, BoolArray] = {text: entries.truth(text) for text in {t.condition for t in templates}}
    if len(entries) and entries.X is not None:  # events that no template has need no features
        entries.X[np.isinf(entries.X) & ~np.any(list(inside.values()), axis=0)[:, None]] = np.nan
    score = _scored(model, reader, entries, owner)
    is_data = templates[0].is_data
    if is_data and layout.blind is not None:
        hidden = inside[layout.conditions[layout.blind]]
        inside = {text: truth & ~hidden for text, truth in inside.items()}
    values = {SCORE: score, **entries.values}
    for template in templates:
        if template.region == layout.blind and template.is_data:
            continue
        rows = inside[template.condition]
        weight = entries.weight(template)
        check_finite(np.where(rows, weight, 0.0), entries, template)
        filled = fill(layout.binning[template.region], values[template.variable][rows], weight[rows])
        found[template.key] = found[template.key] + filled if template.key in found else filled
    out: dict[str, AnyArray] = {column: _wide(entries.columns[column]) for column in columns}
    out |= {layout.branches.conditions[text]: truth for text, truth in inside.items()}
    out |= {branch: entries.values[text] for branch, text in layout.branches.evaluated(templates).items()}
    if is_data and layout.expected:
        out[layout.data_weight] = entries.weight(templates[0])
    return out | {SCORE: score, FOLD: reader.folds(entries.number).astype(np.int32)}


def _names_of(reader: Reader, texts: Sequence[str]) -> list[str]:
    """Branches that the configuration names: the event number, those of features and of expressions."""
    names = [reader.settings.event_number, *reader.feature_names]
    for expression in (*reader.columns.expressions.values(), *(Expression(text, "expression") for text in texts)):
        names += sorted(expression.columns)
    return list(dict.fromkeys(names))


def _scored(model: Any, reader: Reader, entries: Entries, owner: str) -> Array:
    if not len(entries):
        return np.empty(0)
    events = reader.events(entries, np.ones(len(entries)), signal=None, sample=owner)
    return np.asarray(model.predict_proba(events)[:, 1], dtype=np.float64)


def _wide(column: AnyArray) -> AnyArray:
    """Products of single-precision branches would lose digits that ours have."""
    return column.astype(np.float64) if column.dtype.kind == "f" else column


def fill(edges: Array, values: Array, weight: Array) -> Histogram:
    """A histogram of half-open bins, as cabinetry fills it: what lies outside is dropped."""
    place = np.searchsorted(edges, values, side="right") - 1
    n_bins = len(edges) - 1
    rows = (place >= 0) & (place < n_bins)  # NaN is sorted to the end
    place, weight = place[rows], weight[rows]
    sums: list[Any] = [np.bincount(place, w, n_bins) for w in (weight, weight**2, np.ones_like(weight))]
    return Histogram(*sums)


def expected_data(analysis: Analysis, layout: Layout, histograms: Histograms) -> dict[str, Array]:
    """Expected events of the regions whose data are not filled: all samples, scaled by their norm factors."""
    out = {}
    for name in layout.expected:
        region = named(analysis.regions, name)
        total = np.zeros(len(layout.binning[name]) - 1)
        for sample in analysis.simulated:
            if holds(region, sample):
                factors = [f.get("Nominal", 1.0) for f in analysis.config["NormFactors"] if acts(f, region, sample)]
                total += float(np.prod(factors)) * histograms[name, sample["Name"], None, None].yields
        out[name] = total
    return out


def write_expected(folder: Path, layout: Layout, variables: Mapping[str, str], expected: Mapping[str, Array]) -> None:
    """Write expected data as an ntuple: one entry per bin, in its middle, with the yield as its weight.

    Parameters
    ----------
    folder : Path
    layout : Layout
    variables : mapping of str to str
        Branch that each region is binned in.
    expected : mapping of str to array
        Yields by region.
    """
    sizes = [len(yields) for yields in expected.values()]
    middles = [(layout.binning[name][1:] + layout.binning[name][:-1]) / 2 for name in expected]
    columns: dict[str, AnyArray] = {}
    for branch in dict.fromkeys(variables.values()):
        parts = [
            m if variables[name] == branch else np.zeros(len(m)) for name, m in zip(expected, middles, strict=True)
        ]
        columns[branch] = np.concatenate(parts)
    for region, text in layout.conditions.items():
        parts = [np.full(size, name == region) for name, size in zip(expected, sizes, strict=True)]
        columns[layout.branches.conditions[text]] = np.concatenate(parts)
    columns[layout.data_weight] = np.concatenate(list(expected.values()))
    write_trees(folder / layout.data_file, [(layout.data_tree, columns)])


def check_histograms(templates: Sequence[Template], histograms: Histograms) -> None:
    """Refuse what cabinetry would divide by: a varied sample without events."""
    for template in templates:
        if template.systematic is None:
            continue
        for key in ((*template.key[:2], None, None), template.key):
            if not histograms[key].yields.sum() > 0:
                what = template.owner if key == template.key else f"sample {template.sample!r}"
                raise InputError(
                    f"{what} has a yield of {histograms[key].yields.sum():g} in region {template.region!r}, so that "
                    f"systematic {template.systematic!r} has no relative size there: leave it out with Samples or "
                    "Regions"
                )


def rows_of(histograms: Histograms, layout: Layout) -> Iterator[dict[str, Any]]:
    """Bins of all histograms as rows of a table."""
    for (region, sample, systematic, direction), histogram in histograms.items():
        edges = layout.binning[region]
        for i, (value, square, n) in enumerate(zip(*histogram, strict=True)):
            yield {
                "region": region,
                "sample": sample,
                "systematic": systematic or "",
                "direction": direction or "",
                "bin": i,
                "from": float(edges[i]),
                "to": float(edges[i + 1]),
                "entries": int(n),
                "yield": float(value),
                "error": float(square) ** 0.5,
            }
