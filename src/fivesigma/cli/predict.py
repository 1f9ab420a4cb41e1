"""``fivesigma predict``: a saved model and events in, scores out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fivesigma.challenge import MISSING
from fivesigma.cli.options import check_output, column_or_none, force_option, number_or_none, tree_option, where_option


@click.command(epilog="Example: fivesigma predict model test.root -o scores.parquet")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="SCORES",
              help="Write the scores to this file, which must end in .csv or .parquet.")  # fmt: skip
@click.option("--label", metavar="COLUMN",
              help="Read labels from this column, or no labels with the word none; by default from the column of the "
              "training, if it is there.")  # fmt: skip
@click.option("--weight", metavar="COLUMN",
              help="Read weights from this column, or no weights with the word none; by default from the column of the "
              "training, if it is there.")  # fmt: skip
@click.option("--process", metavar="COLUMN",
              help="Read processes from this column, or no processes with the word none; by default from the column of "
              "the training, if it is there.")  # fmt: skip
@click.option("--missing", type=number_or_none, metavar="CODE",
              help="Read this number as a missing value; by default the code of the training; none if no number means "
              "that.")  # fmt: skip
@tree_option
@where_option
@force_option
def predict(
    *,
    model: Path,
    files: tuple[str, ...],
    output: Path,
    label: str | None,
    weight: str | None,
    process: str | None,
    missing: Any,
    tree: str | None,
    where: str | None,
    force: bool,
) -> None:
    """Score events in FILE... with MODEL.

    SCORES gets the columns id (the row number if the events have none), score, selected (at the model's cut), and
    label, weight and process where the events have them.
    """
    import numpy as np

    from fivesigma import load
    from fivesigma._extras import need
    from fivesigma.datasets import column_names, load_events
    from fivesigma.scores import check_ending, write_scores

    check_ending(output)
    check_output(output, force=force)
    fitted = load(model)
    trained: dict[str, Any] = getattr(fitted, "columns_", {})
    names = getattr(fitted, "feature_names_in_", None)
    features = trained.get("features") or (None if names is None else list(names))
    there = column_names(files[0], tree=tree)
    roles: dict[str, Any] = {}
    for role, asked, usual in (
        ("label", label, "Label"),
        ("weight", weight, "Weight"),
        ("process", process, "Process"),
    ):
        default = trained.get(role) or usual
        roles[role] = column_or_none(asked) if asked is not None else default if default in there else None
    events = load_events(
        files,
        features=features,
        **roles,
        signal=fitted.classes_[1] if roles["label"] else None,
        missing=trained.get("missing", MISSING) if missing is None else column_or_none(missing),
        tree=tree,
        cut=where,
    )
    for note in events.notes:
        click.echo(f"note: {note}", err=True)
    table = events.X if names is None else need("polars").DataFrame(events.X, schema=list(names))
    probability = fitted.predict_proba(table)[:, 1]
    selected = probability >= fitted.cut_
    write_scores(
        output,
        {
            "id": np.arange(len(events)) if events.ids is None else events.ids,
            "score": probability,
            "selected": selected,
            "label": events.y if events.labelled else None,
            "weight": events.weight if roles["weight"] else None,
            "process": events.process,
        },
    )
    click.echo(f"{len(events):,} events scored, {int(selected.sum()):,} selected by a model for {fitted.utility_!r}")
    click.echo(f"scores in {output}")
