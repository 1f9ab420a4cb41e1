"""``fivesigma export``: a saved model as a file for other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

import fivesigma
from fivesigma._tools.files import read_text
from fivesigma.cli.options import PATH, OutputFile, force_option, print_notes, tree_option, untrusted_option
from fivesigma.errors import InputError


@click.command(epilog="Example: fivesigma export model -o model.onnx --events test.parquet")
@click.argument("model", type=PATH)
@click.option("-o", "--output", required=True, type=OutputFile(), metavar="FILE", help="Write the model to this file.")
@click.option("--format", "kind", type=click.Choice(["onnx", "xgboost-json"]),
              help="Write an ONNX graph, or XGBoost's JSON if the model is one booster; by default as FILE "
              "ends.")  # fmt: skip
@click.option("--precision", type=click.Choice(["float64", "float32"]), default="float64",
              help="Give features and score of an ONNX graph this type.")  # fmt: skip
@click.option("--events", "files", multiple=True, metavar="FILE",
              help="Compare the file with the model on these events, on simulated ones by default; may be "
              "repeated.")  # fmt: skip
@click.option("--categories", type=PATH, metavar="FILE",
              help="Keep the edges of this output of fivesigma categorise --json as metadata.")  # fmt: skip
@tree_option
@untrusted_option
@force_option
def export(
    model: Path,
    output: Path,
    *,
    kind: str | None,
    files: tuple[str, ...],
    categories: Path | None,
    tree: str | None,
    untrusted: bool,
    **settings: Any,
) -> None:
    """Write a model for other programs.

    The scores of the file are compared with those of the model; above a difference of 1e-5 nothing is written.
    """
    from fivesigma.datasets.columns import Columns

    fitted = fivesigma.load(model, untrusted=untrusted)
    edges = None if categories is None else _edges(categories)
    trained = Columns.of_model(fitted)
    roles: dict[str, Any] = {"label": None, "weight": None, "missing": trained.missing}
    events = fivesigma.load_events(files, features=trained.features, tree=tree, **roles) if files else None
    written = fivesigma.export(fitted, output, kind, events, edges, **settings)
    click.echo(
        f"largest difference of a score {written.largest_difference:.2g} on {written.n_events:,} "
        f"{'simulated' if written.simulated else 'given'} events, {written.n_moved:,} of which change sides of the cut"
    )
    if written.format == "xgboost-json":
        print_notes(["RBDT of ROOT sends a missing value to the right, whatever the tree says"])
    click.echo(f"model in {output}")


def _edges(path: Path) -> list[float]:
    """Edges of categories; null is infinite."""
    try:
        edges = json.loads(read_text(path))["edges"]
        last = len(edges) - 1
        return [(float("inf") if k == last else -float("inf")) if e is None else float(e) for k, e in enumerate(edges)]
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as err:
        raise InputError(f"{path} is not the output of fivesigma categorise --json") from err
