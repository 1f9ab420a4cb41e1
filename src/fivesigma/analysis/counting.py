"""The first step, in which all trees are looked at once, before anything is trained.

Whatever can be refused is refused here: branches, weights, yields, regions. Yields are counted, and the histograms
that need no score are filled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np

from fivesigma._types import Array, BoolArray
from fivesigma.analysis.configuration import Analysis, Key, acts, find_named, name_of_data
from fivesigma.analysis.histograms import Filled, Histograms, fill_histogram, read_filled
from fivesigma.analysis.ntuple_reader import Entries, Reader
from fivesigma.analysis.settings import AnalysisSettings
from fivesigma.analysis.templates import Template, by_tree
from fivesigma.datasets.folds import fold_numbers
from fivesigma.errors import InputError, shortened


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
            if n and settings.trains and "negative_weights" not in settings.model_options:
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
    all_trees = [item for trees in by_tree(templates).values() for item in trees.items()]
    for tree, users in all_trees:
        reader.check(tree, users)
        advance(1, tree.file.name)
    for tree, users in all_trees:
        given = settings.score
        entries = reader.read_for(tree, users, features=given is None and any(t.needs_score for t in users))
        inside = entries.inside(users)
        if given is not None and not np.isfinite(entries.values[given][np.any(list(inside.values()), axis=0)]).all():
            raise InputError(f"the Score {given!r} is not finite in some events of {users[0].owner}; cut them")
        for template in [template for template in users if not template.hidden]:
            rows = inside[template.region, template.condition]
            out.add(settings, template, entries, rows, edges.get(template.region))
        nominal = [t for t in _nominal(users) if t.region not in settings.validation]
        for sample in {template.sample for template in nominal}:
            in_regions = [inside[t.region, t.condition] for t in nominal if t.sample == sample]
            out.shared += int(np.count_nonzero(np.sum(in_regions, axis=0) > 1))
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


def _check_counts(analysis: Analysis, templates: Sequence[Template], counts: RegionCounts) -> None:
    """Refuse samples, regions and folds without events, and variations without a relative size."""
    sums, settings = counts.sums, analysis.settings
    for template in templates:
        if template.key in sums and sums[template.key][3] == 0:
            raise InputError(f"{template.owner} has no entries at all; leave it out")
    for region in analysis.regions:
        own = [template for template in _nominal(templates) if template.region == region["Name"]]
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
    for first, second, sentence in _same_events(templates):
        if first.signal is not second.signal:
            raise InputError(f"{sentence}, and one of them is signal: check SamplePath and Tree, or filter each")
    check_relative(templates, {key: found[1] for key, found in sums.items()}, "")


def _same_events(templates: Sequence[Template]) -> Iterator[tuple[Template, Template, str]]:
    """Pairs of simulated samples of one region that are the same events."""
    for first, second in combinations([t for t in _nominal(templates) if t.histogram is None], 2):
        if (first.region, first.condition) == (second.region, second.condition) and {*first.trees} & {*second.trees}:
            both = f"{first.sample!r} and {second.sample!r} of region {first.region!r}"
            yield first, second, f"samples {both} are the same events of tree {first.tree!r}"


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


def with_expected_data(
    analysis: Analysis, templates: Sequence[Template], filled: Histograms
) -> tuple[Histograms, list[str]]:
    """Histograms in the order of the templates, with expected data in the regions that have no real ones: these too.

    Expected data are all samples, at their nominal norms.
    """
    ordered = {template.key: filled[template.key] for template in templates if template.key in filled}
    real = {template.region for template in templates if template.is_data and not template.hidden}
    expected = [region for region in analysis.regions if region["Name"] not in real]
    data = name_of_data(analysis.config["Samples"])
    for region in expected:
        parts = []
        for template in [t for t in _nominal(templates) if t.region == region["Name"]]:
            is_signal = acts(analysis.poi, region, find_named(analysis.simulated, template.sample))
            strength = analysis.poi.get("Nominal", 1.0) if is_signal else 1.0
            parts.append(template.norm * strength * ordered[template.key].yields)
        total = np.sum(parts, axis=0)
        ordered[region["Name"], data, None, None] = Filled(total, total, np.ones_like(total))
    return ordered, [region["Name"] for region in expected]


def _nominal(templates: Sequence[Template]) -> list[Template]:
    """Templates of simulated samples as they are."""
    return [template for template in templates if template.systematic is None and not template.is_data]


def notes_on(counts: RegionCounts, templates: Sequence[Template]) -> list[str]:
    """What is odd, and not refused; one line for each kind and systematic."""
    notes = []
    if counts.shared:
        notes.append(f"{counts.shared:,} simulated events are in several regions: a fit counts them twice")
    by_key = {template.key: template for template in templates}
    odd = [sentence for _, _, sentence in _same_events(templates)]
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
