"""The first step: yields, raw and effective counts of every sample in every region; bad input is found here."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.files import written_whole
from fivesigma._types import Array
from fivesigma.analysis.configuration import Analysis
from fivesigma.analysis.layout import by_tree
from fivesigma.analysis.reading import Reader, check_finite, texts_of
from fivesigma.analysis.settings import Settings
from fivesigma.analysis.templates import Template
from fivesigma.errors import InputError

__all__ = ["check_trees", "check_varied", "count", "table", "write_csv"]


def check_trees(reader: Reader, templates: Sequence[Template], advance: Callable[[int, str], None]) -> None:
    """Refuse a tree that is not there or lacks a branch, before anything is trained."""
    for trees in by_tree(templates).values():
        for tree, users in trees.items():
            reader.check(tree, users[0].owner, texts_of(users))
            advance(1, tree.file.name)


def count(
    reader: Reader,
    analysis: Analysis,
    templates: Sequence[Template],
    *,
    hidden: str | None,
    advance: Callable[[int, str], None],
) -> tuple[list[dict[str, Any]], list[str]]:
    """Count the nominal events.

    Parameters
    ----------
    reader, analysis
    templates : sequence of Template
        Nominal ones.
    hidden : str or None
        Region whose data are not looked at.

    Returns
    -------
    rows : list of dict
        For each region and sample the entries, the yield and the effective count.
    notes : list of str
    """
    settings = analysis.settings
    sums: dict[tuple[str, str], Array] = {}
    sizes: dict[str, int] = {}
    folds = np.zeros((2, settings.folds))
    shared = 0
    for trees in by_tree(templates).values():
        for tree, users in trees.items():
            entries = reader.read(tree, users[0].owner, texts_of(users), features=False)
            numbers = reader.folds(entries.number)
            for template in users:
                sizes[template.sample] = sizes.get(template.sample, 0) + len(entries)
                if template.is_data and template.region == hidden:
                    continue
                rows = entries.truth(template.condition)
                weight = np.where(rows, entries.weight(template), 0.0)
                check_finite(weight, entries, template)
                key = (template.region, template.sample)
                sums[key] = sums.get(key, np.zeros(3)) + np.array([rows.sum(), weight.sum(), (weight**2).sum()])
                if template.region == settings.region and not template.is_data:
                    _check_signs(settings, template, weight)
                    is_signal = int(template.sample in analysis.signal)
                    folds[is_signal] += np.bincount(numbers[rows], minlength=settings.folds)
            for sample in {template.sample for template in users if not template.is_data}:
                inside = [entries.truth(template.condition) for template in users if template.sample == sample]
                shared += int(np.sum(np.sum(inside, axis=0) > 1))
            advance(1, tree.file.name)
    for sample, size in sizes.items():
        if size == 0:
            raise InputError(f"sample {sample!r} has no entries at all; leave it out")
    _check_regions(analysis, templates, sums)
    _check_folds(analysis, folds)
    found = [
        {
            "region": region,
            "sample": sample,
            "entries": int(n),
            "yield": float(w),
            "effective": float(w**2 / w2) if w2 > 0 else 0.0,
        }
        for (region, sample), (n, w, w2) in ((t.key[:2], sums[t.key[:2]]) for t in templates if t.key[:2] in sums)
    ]
    notes = [] if not shared else [f"{shared:,} simulated events are in several regions: a fit counts them twice"]
    return found, notes


def _check_signs(settings: Settings, template: Template, weight: Array) -> None:
    n = int(np.sum(weight < 0))
    if n and "negative_weights" not in settings.options:
        raise InputError(
            f"{n:,} events of sample {template.sample!r} in region {settings.region!r} have negative weights: say in "
            "ModelOptions what the learner sees of them, such as negative_weights: zero (yields keep the sign)"
        )


def _check_regions(analysis: Analysis, templates: Sequence[Template], sums: dict[tuple[str, str], Array]) -> None:
    for region in analysis.regions:
        name = region["Name"]
        own = [template for template in templates if template.region == name and not template.is_data]
        if not any(sums[name, template.sample][0] for template in own):
            text = next((template.condition for template in own), "none of the samples is in it")
            raise InputError(f"no simulated event is in region {name!r}: {text}")


def _check_folds(analysis: Analysis, folds: Array) -> None:
    settings = analysis.settings
    for is_signal, what in ((1, "signal"), (0, "background")):
        for k in np.flatnonzero(folds[is_signal] == 0):
            raise InputError(
                f"fold {k} of {settings.folds} ({settings.event_number} modulo {settings.folds}) has no {what} in "
                f"region {settings.region!r}: check EventNumber, or change Folds"
            )


def check_varied(templates: Sequence[Template], rows: Iterable[dict[str, Any]]) -> None:
    """Refuse a systematic of a sample that has no events in a region: cabinetry would divide by its yield."""
    entries = {(row["region"], row["sample"]): row["entries"] for row in rows}
    for template in templates:
        if template.systematic is not None and entries[template.region, template.sample] == 0:
            raise InputError(
                f"sample {template.sample!r} has no events in region {template.region!r}, so that systematic "
                f"{template.systematic!r} has no relative size there: leave the sample out with Regions"
            )


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Counts for a terminal."""
    a, b = (max(len(key), *(len(row[key]) for row in rows)) for key in ("region", "sample"))
    lines = [f"{'region':<{a}} {'sample':<{b}} {'entries':>12} {'yield':>14} {'effective':>12}"]
    lines += [
        f"{r['region']:<{a}} {r['sample']:<{b}} {r['entries']:>12,} {r['yield']:>14,.6g} {r['effective']:>12,.1f}"
        for r in rows
    ]
    return "\n".join(lines)


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Write rows as CSV; the file appears whole or not at all."""
    with written_whole(path) as beside, beside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path
