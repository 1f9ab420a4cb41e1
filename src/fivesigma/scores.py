"""Files of scores: id, score, selected, and label, weight, process where the events had them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._extras import need
from fivesigma._files import written_whole
from fivesigma._types import AnyArray, Array, BoolArray
from fivesigma.datasets.columns import Kind, known_signal, require
from fivesigma.datasets.load import source_of
from fivesigma.errors import InputError
from fivesigma.yields import check_weights, rescale

ENDINGS = (".csv", ".parquet")


@dataclass(frozen=True)
class Scores:
    """Scored events whose labels and weights are known."""

    score: Array
    signal: BoolArray
    weight: Array
    selected: BoolArray | None
    process: AnyArray | None


def check_ending(path: Path) -> None:
    """Refuse a file that is neither CSV nor Parquet."""
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"{path.name} ends in none of {', '.join(ENDINGS)}: scores are written to these.")


def write_scores(path: Path, columns: dict[str, Any]) -> None:
    """Write columns; the file appears whole or not at all."""
    frame = need("polars").DataFrame({name: column for name, column in columns.items() if column is not None})
    with written_whole(path) as beside:
        (frame.write_csv if path.suffix.lower() == ".csv" else frame.write_parquet)(beside)


def read_scores(path: Path, signal: str | None, yields: tuple[float, float] | None) -> Scores:
    """Read scores and scale their weights to the yields, if there are any."""
    check_ending(path)
    source = source_of(path)
    for name in ("score", "label", "weight"):
        require(name, source)
    extra = [name for name in ("selected", "process") if name in source.names]
    kinds: dict[str, Kind] = {"score": "float64", "weight": "float64", "label": "value"}
    read = source.read(kinds | dict.fromkeys(extra, "value"))
    score, labels, selected = read["score"], read["label"], read.get("selected")
    if score.size == 0:
        raise InputError(f"{path.name} holds no events.")
    if not np.isfinite(score).all():
        raise InputError(
            f"Column 'score' of {path.name} is not finite in row {int(np.argmin(np.isfinite(score))) + 1:,}."
        )
    seen = np.unique(labels).tolist() if labels.dtype.kind != "O" else sorted(set(map(str, labels)))
    if len(seen) != 2:
        raise InputError(f"Column 'label' of {path.name} must hold two labels; it holds {len(seen)}.")
    is_signal: BoolArray = np.asarray(labels == known_signal(seen, signal, path.name), dtype=bool)
    if selected is not None and selected.dtype.kind != "b":
        raise InputError(f"Column 'selected' of {path.name} must hold true or false.")
    weight = check_weights(read["weight"], score.size)
    weight = weight if yields is None else rescale(weight, is_signal, yields)
    return Scores(score, is_signal, weight, selected, read.get("process"))
