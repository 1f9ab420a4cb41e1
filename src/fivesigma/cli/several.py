"""``fivesigma categorise --signals``: categories for several signals, from files of class probabilities."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import numpy as np

from fivesigma.errors import InputError

if TYPE_CHECKING:
    from fivesigma._types import AnyArray, Array
    from fivesigma.significance import Utility

PREFIX = "score_"


class ClassScores(NamedTuple):
    """Events of a file with one probability column per class."""

    processes: list[str]
    scores: Array
    process: AnyArray
    weight: Array


def read_class_scores(path: Path) -> ClassScores:
    """Read the columns process, weight and score_NAME of every class."""
    from fivesigma.datasets.blocks import read_columns
    from fivesigma.datasets.columns import Kind, require
    from fivesigma.datasets.load import source_of

    source = source_of(path)
    for name in ("process", "weight"):
        require(name, source)
    columns = [name for name in source.names if name.startswith(PREFIX)]
    if len(columns) < 2:
        raise InputError(
            f"{path.name} has {len(columns)} columns that start with {PREFIX!r}; several signals need one per class"
        )
    wanted: dict[str, Kind] = {**dict.fromkeys(columns, "float64"), "weight": "float64", "process": "value"}
    read = read_columns(source, wanted)
    processes = [name.removeprefix(PREFIX) for name in columns]
    return ClassScores(processes, np.column_stack([read[c] for c in columns]), read["process"], read["weight"])


class Asked(NamedTuple):
    """What `categorise_scores` is asked for, by its names."""

    signals: list[str]
    goal: str
    min_effective: float
    min_background: float
    floor_processes: list[str] | None
    discard: bool
    utility: Utility


def names(text: str) -> list[str]:
    """Names that commas divide."""
    return [name.strip() for name in text.split(",") if name.strip()]


def categorise_file(
    path: Path,
    n_categories: str,
    asked: Asked,
    quote: Path | None,
    pyhf: Path | None,
    *,
    as_json: bool,
) -> None:
    """Find categories for the signals, quote them on other events, and write a workspace."""
    import fivesigma

    if not n_categories.isdigit():
        raise click.BadParameter(f"{n_categories!r} is not a number; several signals need one", param_hint="-k")
    tune = read_class_scores(path)
    found = fivesigma.categorise_scores(*tune[1:], int(n_categories), processes=tune.processes, **asked._asdict())
    if quote is not None:
        other = read_class_scores(quote)
        if other.processes != tune.processes:
            raise InputError(f"{quote.name} has other columns {PREFIX}NAME than {path.name}, or another order")
        found = found.evaluate(*other[1:])
    if pyhf is not None:
        fivesigma.write_workspace(found.to_pyhf(), pyhf)
    if as_json:
        result = {
            "z": dict(found.z),
            "goal": found.value,
            "way": found.way,
            "judged": found.judged._asdict(),
            "bound": found.bound.value,
            "s": {name: values.tolist() for name, values in found.s.items()},
            "b": found.b.tolist(),
            "effective_b": found.effective_b.tolist(),
            "held_out": found.held_out,
        }
        click.echo(json.dumps(result))
        return
    click.echo(repr(found))
