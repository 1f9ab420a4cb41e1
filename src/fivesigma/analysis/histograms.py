"""Histograms of the fit, as we fill them, read them and write them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._tools.files import written_whole
from fivesigma._types import Array
from fivesigma.analysis.configuration import Key
from fivesigma.errors import InputError


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
    counted = (weight, weight**2, np.ones_like(weight))
    # Where there are no entries, bincount counts in integers.
    return Filled(*(np.bincount(place, values, n_bins).astype(np.float64) for values in counted))


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
