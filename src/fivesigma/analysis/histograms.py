"""Histograms of the fit, as we fill them, and the first step, in which all trees are looked at once.

Whatever can be refused is refused there, before anything is trained: branches, weights, yields, regions. Yields are
counted, and the histograms that need no score are filled.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._tools.files import written_whole
from fivesigma._types import Array, BoolArray
from fivesigma.analysis.configuration import Analysis, AnalysisSettings, Key
from fivesigma.analysis.ntuple_reader import Entries, Reader, texts_of
from fivesigma.analysis.templates import Template, by_tree
from fivesigma.datasets.folds import fold_numbers
from fivesigma.errors import InputError, shortened

__all__ = ["Filled", "Histograms", "RegionCounts", "count", "fill_histogram", "read_histograms", "write_histograms"]


class Filled(NamedTuple):
    """Sums of weights and of their squares, and entries, bin by bin."""

    yields: Array
    squares: Array
    entries: Array

    def __add__(self, other: Filled) -> Filled:  # type: ignore[override]  # sums, where tuples are joined
        return Filled(*(a + b for a, b in zip(self, other, strict=True)))


Histograms = dict[Key, Filled]


def fill_histogram(edges: Array, values: Array, weight: Array) -> Filled:
    """A histogram of half-open bins, as cabinetry fills it: what lies outside is dropped."""
    place = np.searchsorted(edges, values, side="right") - 1
    n_bins = len(edges) - 1
    rows = (place >= 0) & (place < n_bins)  # NaN is sorted to the end
    place, weight = place[rows], weight[rows].astype(np.float64)
    sums: list[Any] = [
        np.bincount(place, w, n_bins).astype(np.float64) for w in (weight, weight**2, np.ones_like(weight))
    ]
    return Filled(*sums)


def read_filled(file: Any, name: str | None, owner: str) -> tuple[Array, Filled]:
    """Edges and contents of a histogram that exists already."""
    uproot = need("uproot")
    try:
        with uproot.open(str(file)) as opened:
            found = opened[name]
            edges, values, squares = found.axis().edges(), found.values(), found.variances()
    except (OSError, ValueError, TypeError, AttributeError, uproot.exceptions.KeyInFileError) as err:
        raise InputError(f"there is no histogram {name!r} in {file} ({owner})") from err
    if values.ndim != 1 or squares is None or not (np.isfinite(values).all() and np.isfinite(squares).all()):
        raise InputError(f"{name!r} in {file} is not a histogram of one axis with finite contents and errors ({owner})")
    entries = np.divide(values**2, squares, out=np.zeros(len(values)), where=squares > 0)
    return edges, Filled(values.astype(np.float64), squares.astype(np.float64), np.round(entries))


def write_histograms(path: Path, histograms: Histograms) -> Path:
    """Write histograms as one file of arrays; it appears whole or not at all."""
    arrays: dict[str, Any] = {f"h{k}": np.stack(filled) for k, filled in enumerate(histograms.values())}
    with written_whole(path) as beside, beside.open("wb") as file:
        np.savez(file, keys=np.array(json.dumps(list(histograms))), **arrays)
    return path


def read_histograms(path: Path) -> Histograms:
    """Read what `write_histograms` wrote."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            keys = json.loads(str(arrays["keys"]))
            return {(r, s, name, side): Filled(*arrays[f"h{k}"]) for k, (r, s, name, side) in enumerate(keys)}
    except (OSError, ValueError, TypeError, KeyError, BadZipFile) as err:
        raise InputError(f"{path} cannot be read as histograms; remove it, and it is made again") from err


def table_of(histograms: Histograms, binning: Mapping[str, Array]) -> Iterator[dict[str, Any]]:
    """Bins of all histograms as rows of a table."""
    for (region, sample, systematic, direction), filled in histograms.items():
        edges = binning[region].tolist()
        for i, (value, square, n) in enumerate(zip(*filled, strict=True)):
            names = {"region": region, "sample": sample, "systematic": systematic or "", "direction": direction or ""}
            place = {"bin": i, "from": edges[i], "to": edges[i + 1], "entries": int(n)}
            yield names | place | {"yield": float(value), "error": float(square) ** 0.5}


def write_csv(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """Write rows as CSV; the file appears whole or not at all."""
    rows = list(rows)
    with written_whole(path) as beside, beside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


@dataclass(eq=False)
class RegionCounts:
    """What was counted."""

    sums: dict[Key, Array] = field(default_factory=dict)  # entries, weights and their squares, and all entries of trees
    filled: Histograms = field(default_factory=dict)  # of regions whose variable is not the score
    shared: int = 0  # simulated events that are in several regions of the fit
    folds: dict[tuple[str, bool], Array] = field(default_factory=dict)  # events by model, signal and fold

    def add(
        self, settings: AnalysisSettings, template: Template, entries: Entries, rows: BoolArray, edges: Array | None
    ) -> None:
        """Count those entries of a tree that a template has."""
        weight = np.where(rows, entries.weight(template), 0.0)
        if not np.isfinite(weight).all():
            at = int(np.argmin(np.isfinite(weight)))
            raise InputError(
                f"the weight {template.weight!r} of {template.owner} is {weight[at]} for event {entries.number[at]} of "
                f"{entries.tree.file.name}; every event of region {template.region!r} needs a finite one"
            )
        sums = np.array([rows.sum(), weight.sum(), (weight**2).sum(), len(entries)])
        self.sums[template.key] = self.sums.get(template.key, np.zeros(4)) + sums
        if not template.needs_score and edges is not None:
            filled = fill_histogram(edges, entries.values[template.variable][rows], weight[rows])
            before = self.filled.get(template.key)
            self.filled[template.key] = filled if before is None else before + filled
        if template.region in settings.region and template.systematic is None and not template.is_data:
            n = int(np.sum(weight < 0))
            if n and "negative_weights" not in settings.model_options:
                raise InputError(
                    f"{n:,} events of sample {template.sample!r} in region {template.region!r} have negative weights: "
                    "say in ModelOptions what the learner sees of them, such as negative_weights: zero (yields keep "
                    "the sign)"
                )
            fold = fold_numbers(settings.folds, entries.number[rows])
            counted = self.folds[template.variable, template.signal]
            counted += np.bincount(fold, minlength=counted.size)

    def rows(self, templates: Sequence[Template]) -> list[dict[str, Any]]:
        """For each region and sample the entries, the yield and the effective count."""
        found = []
        for template in templates:
            if template.systematic is None and template.key in self.sums:
                n, w, w2, _ = self.sums[template.key].tolist()
                values = (template.region, template.sample, int(n), w, w**2 / w2 if w2 > 0 else 0.0)
                found.append(dict(zip(("region", "sample", "entries", "yield", "effective"), values, strict=True)))
        return found


def count(
    reader: Reader,
    analysis: Analysis,
    templates: Sequence[Template],
    *,
    advance: Callable[[int, str], None],
) -> RegionCounts:
    """Look at every tree."""
    out, settings = RegionCounts(), analysis.settings
    out.folds = {(model, signal): np.zeros(settings.folds) for model in analysis.models for signal in (True, False)}
    edges = {r["Name"]: np.array(r["Binning"], dtype=np.float64) for r in analysis.regions if "Binning" in r}
    for trees in by_tree(templates).values():
        for tree, users in trees.items():
            given = settings.score
            scored = given is None and any(template.needs_score for template in users)
            texts = dict.fromkeys([*texts_of(users), *([] if given is None else [given])])
            used = {template.condition for template in users}
            entries = reader.read(tree, users[0].owner, texts, features=scored, used=used)
            inside = entries.inside(users)
            if (
                given is not None
                and not np.isfinite(entries.values[given][np.any(list(inside.values()), axis=0)]).all()
            ):
                raise InputError(f"the Score {given!r} is not finite in some events of {users[0].owner}; cut them")
            for template in [template for template in users if not template.hidden]:
                rows = inside[template.region, template.condition]
                out.add(analysis.settings, template, entries, rows, edges.get(template.region))
            out.shared += _shared([t for t in users if t.region not in settings.validation], inside)
            advance(1, tree.file.name)
    for template in [template for template in templates if template.histogram is not None]:
        found_edges, filled = read_filled(template.files[0], template.histogram, template.owner)
        if not np.array_equal(found_edges, edges[template.region]):
            raise InputError(
                f"{template.histogram!r} in {template.files[0]} has other bins than the nominal histograms of region "
                f"{template.region!r} ({template.owner})"
            )
        n = filled.entries.sum()
        out.filled[template.key] = filled
        out.sums[template.key] = np.array([n, filled.yields.sum(), filled.squares.sum(), n])
    _check_counts(analysis, templates, out)
    return out


def _shared(users: Sequence[Template], inside: dict[tuple[str, str], BoolArray]) -> int:
    """Simulated events of a tree that one sample has in several regions."""
    nominal = [t for t in users if t.systematic is None and not t.is_data]
    found = 0
    for sample in dict.fromkeys(template.sample for template in nominal):
        rows = [inside[t.region, t.condition] for t in nominal if t.sample == sample]
        found += int(np.sum(np.sum(rows, axis=0) > 1))
    return found


def _check_counts(analysis: Analysis, templates: Sequence[Template], counts: RegionCounts) -> None:
    """Refuse samples, regions and folds without events, and variations without a relative size."""
    sums, settings = counts.sums, analysis.settings
    for template in templates:
        if template.key in sums and sums[template.key][3] == 0:
            raise InputError(f"{template.owner} has no entries at all; leave it out")
    for region in analysis.regions:
        own = [t for t in templates if t.region == region["Name"] and t.systematic is None and not t.is_data]
        if not any(sums[template.key][0] for template in own):
            text = next((template.condition for template in own), "none of the samples is in it")
            raise InputError(f"no simulated event is in region {region['Name']!r}: {shortened(text, 200)}")
    for (model, is_signal), numbers in counts.folds.items():
        for k in np.flatnonzero(numbers == 0):
            inside = " and ".join(repr(region["Name"]) for region in analysis.models[model])
            raise InputError(
                f"fold {k} of {settings.folds} ({settings.event_number} modulo {settings.folds}) has no "
                f"{'signal' if is_signal else 'background'} in region {inside}: check EventNumber, or change Folds"
            )
    check_relative(templates, {key: found[1] for key, found in sums.items()}, "")


def check_relative(templates: Sequence[Template], totals: Mapping[Key, float], within: str) -> None:
    """Refuse what cabinetry would divide by: a varied sample without a yield."""
    for template in [t for t in templates if t.systematic is not None and t.key in totals]:
        for key in ((*template.key[:2], None, None), template.key):
            if not totals[key] > 0:
                what = template.owner if key == template.key else f"sample {template.sample!r}"
                raise InputError(
                    f"{what} has a yield of {totals[key]:g} in {within}region {template.region!r}, so that systematic "
                    f"{template.systematic!r} has no relative size there: leave it out with Samples or Regions"
                )


def notes_on(counts: RegionCounts, templates: Sequence[Template]) -> list[str]:
    """What is odd, and not refused; one line for each kind and systematic."""
    notes = []
    if counts.shared:
        notes.append(f"{counts.shared:,} simulated events are in several regions: a fit counts them twice")
    by_key = {template.key: template for template in templates}
    odd: list[str] = []
    for template in templates:
        if template.systematic is None:
            continue
        nominal = by_key[*template.key[:2], None, None]
        n, n_nominal = (counts.sums[t.key][3] for t in (template, nominal))
        if n < 0.5 * n_nominal:
            odd.append(f"{template.owner} has {n:,.0f} entries for {n_nominal:,.0f} nominal ones: are files missing?")
        if replace(nominal, systematic=template.systematic, direction=template.direction) == template:
            odd.append(f"{template.owner} is the nominal sample: it changes nothing")
    return [*notes, *dict.fromkeys(odd)]


def notes_on_bins(histograms: Histograms) -> list[str]:
    """Bins without events and with negative yields, one line for each region and sample."""
    notes = []
    for what, wrong in (("no yield", np.equal), ("a negative yield", np.less)):
        found: dict[tuple[str, str], list[Any]] = {}
        for key, filled in histograms.items():
            if wrong(filled.yields, 0.0).any():
                found.setdefault(key[:2], []).append(np.flatnonzero(wrong(filled.yields, 0.0)))
        for (region, sample), templates in found.items():
            bins, n = np.unique(np.concatenate(templates)).tolist(), len(templates)
            notes.append(
                f"{sample!r} has {what} in bin{'s' * (len(bins) > 1)} {', '.join(map(str, bins))} of region {region!r}"
                f"{f' ({n} templates)' * (n > 1)}"
            )
    return notes
