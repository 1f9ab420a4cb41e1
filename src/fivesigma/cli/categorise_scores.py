"""``fivesigma categorise-scores``: categories for several signals, from files of class probabilities."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import fivesigma
from fivesigma.cli.options import (
    PATH,
    json_option,
    min_background_option,
    names,
    overwrite_option,
    pyhf_option,
    quote_option,
    utility_options,
)
from fivesigma.errors import InputError

if TYPE_CHECKING:
    from fivesigma._types import AnyArray, Array

PREFIX = "score_"


def read_class_scores(path: Path) -> tuple[list[str], tuple[Array, AnyArray, Array]]:
    """Names of the classes, and of each event the probabilities, process and weight."""
    import numpy as np

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
    scores = np.column_stack([read[c] for c in columns])
    return [name.removeprefix(PREFIX) for name in columns], (scores, read["process"], read["weight"])


@click.command(
    "categorise-scores",
    epilog="Example: fivesigma categorise-scores held_out.csv --signals ggF,VBF -k 8 --quote test.csv",
)
@click.argument("scores", type=PATH)
@click.option("--signals", type=names, required=True, metavar="NAMES",
              help="Take these processes as signals, separated by commas.")  # fmt: skip
@click.option("-k", "--categories", type=click.IntRange(1), required=True, metavar="K",
              help="Make this many categories.")  # fmt: skip
@quote_option
@click.option("--goal", type=click.Choice(["geometric", "sum", "minimum"]), default="geometric",
              help="Look for the largest geometric mean of the significances of the signals, root of their summed "
              "squares, or minimum.")  # fmt: skip
@min_background_option
@click.option("--min-effective", type=click.FloatRange(0), default=10.0, metavar="N",
              help="Keep this many effective background events in each category.")  # fmt: skip
@click.option("--floor-processes", type=names, metavar="NAMES",
              help="Count these backgrounds for the two floors, separated by commas; by default all.")  # fmt: skip
@click.option("--keep-all", is_flag=True, help="Put every event into a category; by default some are discarded.")
@utility_options
@pyhf_option
@json_option
@overwrite_option
def categorise_scores(
    scores: Path,
    *,
    categories: int,
    quote: Path | None,
    keep_all: bool,
    utility: str,
    b_reg: float | None,
    pyhf: Path | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Find the best categories for several signals.

    SCORES has the columns process, weight and, for every class of a classifier with several classes, its probability
    as score_NAME.
    """
    from fivesigma.significance import resolve_utility

    processes, tune = read_class_scores(scores)
    settings |= {"discard": not keep_all, "utility": resolve_utility(utility, b_reg)}
    found = fivesigma.categorise_scores(*tune, categories, processes=processes, **settings)
    if quote is not None:
        others, other = read_class_scores(quote)
        if others != processes:
            raise InputError(f"{quote.name} has other columns {PREFIX}NAME than {scores.name}, or another order")
        found = found.evaluate(*other)
    if pyhf is not None:
        fivesigma.write_workspace(found.to_pyhf(), pyhf)
    if not as_json:
        click.echo(repr(found))
        return
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
