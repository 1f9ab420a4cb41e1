"""``fivesigma predict``: a saved model and events in, scores out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

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
    from dataclasses import replace

    from fivesigma import ScoredEvents, load
    from fivesigma.datasets import column_names, load_events
    from fivesigma.datasets.columns import Columns
    from fivesigma.scored import check_ending

    check_ending(output)
    check_output(output, force=force)
    fitted = load(model)
    trained = Columns.of_model(fitted)
    found = trained.there(column_names(files[0], tree=tree))
    asked = {"label": label, "weight": weight, "process": process}
    roles = {role: getattr(found, role) if name is None else column_or_none(name) for role, name in asked.items()}
    events = load_events(
        files,
        features=trained.features,
        **roles,
        signal=fitted.classes_[1] if roles["label"] else None,
        missing=trained.missing if missing is None else column_or_none(missing),
        tree=tree,
        cut=where,
    )
    for note in events.notes:
        click.echo(f"note: {note}", err=True)
    scored = ScoredEvents.of(fitted, events)
    if roles["weight"] is None:
        scored = replace(scored, weight=None)
    scored.write(output)
    selected = 0 if scored.selected is None else int(scored.selected.sum())
    click.echo(f"{len(events):,} events scored, {selected:,} selected by a model for {fitted.utility_!r}")
    click.echo(f"scores in {output}")
