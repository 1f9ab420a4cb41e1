"""The first step: all trees are looked at once.

Whatever can be refused is refused here, before anything is trained: branches, weights, yields, regions. Yields are
counted, and the histograms that need no score are filled.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.files import written_whole
from fivesigma._types import Array, BoolArray
from fivesigma.analysis.configuration import Analysis
from fivesigma.analysis.histograms import Histograms, Key, fill_histogram, read_filled
from fivesigma.analysis.ntuple_reader import Entries, Reader, check_finite, texts_of
from fivesigma.analysis.templates import Template, by_tree
from fivesigma.errors import InputError, shortened

__all__ = ["RegionCounts", "count", "notes_on", "regions_inside", "table", "write_csv"]


@dataclass(eq=False)
class RegionCounts:
    """What was counted."""

    sums: dict[Key, Array] = field(default_factory=dict)  # entries, weights and their squares, and all entries of trees
    filled: Histograms = field(default_factory=dict)  # of regions whose variable is not the score
    shared: int = 0  # simulated events that are in several regions of the fit
    folds: dict[tuple[str, bool], Array] = field(default_factory=dict)  # events by model, signal and fold

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
    hidden: Collection[str],
    advance: Callable[[int, str], None],
) -> RegionCounts:
    """Look at every tree."""
    out, n_folds = RegionCounts(), analysis.settings.folds
    out.folds = {(model, is_signal): np.zeros(n_folds) for model in analysis.models for is_signal in (True, False)}
    edges = {r["Name"]: np.array(r["Binning"], dtype=np.float64) for r in analysis.regions if "Binning" in r}
    for trees in by_tree(templates).values():
        for tree, users in trees.items():
            given = analysis.settings.score
            scored = given is None and any(template.needs_score for template in users)
            texts = dict.fromkeys([*texts_of(users), *([] if given is None else [given])])
            entries = reader.read(tree, users[0].owner, texts, features=scored)
            inside = regions_inside(entries, users, hidden)
            used = np.any(list(inside.values()), axis=0)
            reader.refuse_infinite(entries, used, users[0].sample)
            if given is not None and not np.isfinite(entries.values[given][used]).all():
                raise InputError(f"the Score {given!r} is not finite in some events of {users[0].owner}; cut them")
            for template in users:
                rows = inside[template.region, template.condition]
                if template.is_data and template.region in hidden:
                    continue
                weight = np.where(rows, entries.weight(template), 0.0)
                check_finite(weight, entries, template)
                found = np.array([rows.sum(), weight.sum(), (weight**2).sum(), len(entries)])
                out.sums[template.key] = out.sums.get(template.key, np.zeros(4)) + found
                if not template.needs_score:
                    filled = fill_histogram(
                        edges[template.region], entries.values[template.variable][rows], weight[rows]
                    )
                    before = out.filled.get(template.key)
                    out.filled[template.key] = filled if before is None else before + filled
                if (
                    template.region in analysis.settings.regions
                    and template.systematic is None
                    and not template.is_data
                ):
                    _check_signs(analysis, template, weight)
                    numbers = reader.folds(entries.number)[rows]
                    key = (template.variable, template.sample in analysis.signal)
                    out.folds[key] += np.bincount(numbers, minlength=n_folds)
            out.shared += _shared([t for t in users if t.region not in analysis.settings.validation], inside)
            advance(1, tree.file.name)
    for template in [template for template in templates if template.histogram is not None]:
        found_edges, filled = read_filled(template.files[0], str(template.histogram), template.owner)
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


def regions_inside(
    entries: Entries, users: Sequence[Template], hidden: Collection[str]
) -> dict[tuple[str, str], BoolArray]:
    """Which entries each template takes, by its region and condition; hidden data are in no other."""
    inside = {(t.region, t.condition): entries.truth(t.condition) for t in users}
    blind = np.zeros(len(entries), dtype=bool)
    for template in users:
        if template.is_data and template.region in hidden:
            blind |= inside[template.region, template.condition]
    for template in users:
        own = template.is_data and template.region in hidden
        if not own and (inside[template.region, template.condition] & blind).any():
            raise InputError(
                f"data of the blinded region{'s' * (len(hidden) > 1)} {', '.join(map(repr, hidden))} are in region "
                f"{template.region!r} too ({template.owner}): change a Filter so that they exclude each other, or "
                "unblind"
            )
    return inside


def _shared(users: Sequence[Template], inside: dict[tuple[str, str], BoolArray]) -> int:
    """Simulated events of a tree that one sample has in several regions."""
    nominal = [t for t in users if t.systematic is None and not t.is_data]
    found = 0
    for sample in dict.fromkeys(template.sample for template in nominal):
        rows = [inside[t.region, t.condition] for t in nominal if t.sample == sample]
        found += int(np.sum(np.sum(rows, axis=0) > 1))
    return found


def _check_signs(analysis: Analysis, template: Template, weight: Array) -> None:
    n = int(np.sum(weight < 0))
    if n and "negative_weights" not in analysis.settings.options:
        raise InputError(
            f"{n:,} events of sample {template.sample!r} in region {template.region!r} have negative weights: say in "
            "ModelOptions what the learner sees of them, such as negative_weights: zero (yields keep the sign)"
        )


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
    for template in templates:
        if template.systematic is None:
            continue
        for key in ((*template.key[:2], None, None), template.key):
            n, total = sums[key][:2]
            if not total > 0:
                what = template.owner if key == template.key else f"sample {template.sample!r}"
                has = "no events" if n == 0 else f"a yield of {total:g}"
                raise InputError(
                    f"{what} has {has} in region {template.region!r}, so that systematic {template.systematic!r} has "
                    "no relative size there: leave it out with Samples or Regions"
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


def table(rows: Sequence[dict[str, Any]]) -> str:
    """RegionCounts for a terminal."""
    a, b = (max(len(key), *(len(row[key]) for row in rows)) for key in ("region", "sample"))
    lines = [f"{'region':<{a}} {'sample':<{b}} {'entries':>12} {'yield':>14} {'effective':>12}"]
    lines += [
        f"{r['region']:<{a}} {r['sample']:<{b}} {r['entries']:>12,} {r['yield']:>14,.6g} {r['effective']:>12,.1f}"
        for r in rows
    ]
    return "\n".join(lines)


def write_csv(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """Write rows as CSV; the file appears whole or not at all."""
    rows = list(rows)
    with written_whole(path) as beside, beside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path
