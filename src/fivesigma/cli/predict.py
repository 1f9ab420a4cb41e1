"""``fivesigma predict``: a saved model and events in, scores out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import fivesigma
from fivesigma.cli.options import (
    PATH,
    OutputFile,
    event_files,
    like_training,
    overwrite_option,
    print_notes,
    reading_options,
    untrusted_option,
)
from fivesigma.errors import InputError


@click.command(epilog="Example: fivesigma predict model test.root -o scores.parquet")
@click.argument("model", type=PATH)
@click.option("-o", "--output", type=OutputFile(), metavar="SCORES",
              help="Write the scores to this file, which must end in .csv, .parquet or .root.")  # fmt: skip
@click.option("--in-place", is_flag=True,
              help="Add the branches score and selected to the trees of FILE... in place of -o; a copy gets them and "
              "then takes the name of the file, so that no file is ever half-written.")  # fmt: skip
@click.option("--branch", default="score", metavar="NAME",
              help="With --in-place: name the branch of the score so, and the other NAME_selected.")  # fmt: skip
@reading_options
@click.option("--tree", "trees", multiple=True, metavar="NAME",
              help="Read this TTree or RNTuple of ROOT files; needed if a file has several. May be repeated if SCORES "
              "ends in .root: each tree gets one of the same name.")  # fmt: skip
@click.option("--keep", multiple=True, metavar="COLUMN",
              help="Write this column too, in its own type; may be repeated.")  # fmt: skip
@event_files("[FILE...]", "Take these processes of --sample as signal, separated by commas, or none of them with the "
             "word none; by default those of the training.")  # fmt: skip
@click.option("--friend", is_flag=True, help="Write to .root the new branches alone, score and selected.")
@untrusted_option
@overwrite_option
def predict(
    *,
    model: Path,
    source: dict[str, Any],
    output: Path | None,
    in_place: bool,
    branch: str,
    trees: tuple[str, ...],
    keep: tuple[str, ...],
    friend: bool,
    reading: dict[str, Any],
    untrusted: bool,
) -> None:
    """Score events with a model.

    The events are in FILE..., or in those of --sample. SCORES gets the columns id (the row number if the events have
    none), score, selected (at the model's cut), and label, weight and process where the events have them. If it ends in
    .root it gets TTrees with score, selected and the kept columns, entry by entry in the order of the one file that is
    read. --in-place adds them to FILE...
    """
    from fivesigma.datasets.stream import ROWS
    from fivesigma.scored.scored_events import check_ending
    from fivesigma.scored.scored_files import write_scores

    if (output is None) != in_place:
        raise click.UsageError("Give -o SCORES or --in-place, one of them.")
    if output is None or output.suffix.lower() == ".root":
        if isinstance(source["path"], dict):
            raise InputError("scores in ROOT files belong to one file each; name it instead of --sample")
        if reading["cut"] is not None:
            raise InputError("every entry gets a score in a ROOT file; leave --where out, or write .csv or .parquet")
        if output is None and (friend or keep):
            raise InputError("--in-place adds to the file itself; leave --friend and --keep out")
        fitted = fivesigma.load(model, untrusted=untrusted)
        for files in [source["path"]] if output else [(file,) for file in source["path"]]:
            _to_root(fitted, files, output, trees, () if friend else keep, branch)
        return
    if friend or len(trees) > 1 or keep:
        raise InputError("--friend, --keep and several --tree need an output that ends in .root")
    check_ending(output)
    fitted = fivesigma.load(model, untrusted=untrusted)
    stream = like_training(fitted, source, reading, tree=trees[0] if trees else None, rows=ROWS)
    written = write_scores(fitted, stream, output)
    print_notes(stream.notes)
    click.echo(f"{written.events:,} events scored, {written.selected:,} selected by a model for {fitted.utility_!r}")
    click.echo(f"scores in {output}")


def _to_root(  # noqa: PLR0917 - as the command was called
    fitted: Any, files: tuple[str, ...], output: Path | None, trees: tuple[str, ...], keep: tuple[str, ...], branch: str
) -> None:
    """Score every entry of some trees of one ROOT file, in a file of its own or in place."""
    import numpy as np

    from fivesigma.datasets.columns import Columns
    from fivesigma.datasets.root import find_trees
    from fivesigma.datasets.sources import find_targets
    from fivesigma.datasets.write import add_branches, write_trees

    targets = find_targets(files)
    if len(targets) != 1 or not targets[0].name.lower().endswith(".root"):
        where_to = files[0] if output is None else output.name
        raise InputError(f"scores in {where_to} belong to one ROOT file; {len(targets)} files were given")
    trained = Columns.of_model(fitted)
    wanted = tuple(dict.fromkeys((*trained.keep, *keep)))
    said: list[str] = []
    roles: dict[str, Any] = {"label": None, "weight": None, "ids": None, "missing": trained.missing}

    def scored() -> Iterator[tuple[str, dict[str, Any]]]:
        for name in trees or find_trees(targets[0].path):
            events = fivesigma.load_events(files[0], features=trained.features, keep=wanted, tree=name, **roles)
            found = fivesigma.ScoredEvents.of(fitted, events)
            said.append(f"{len(events):,} entries of {name} scored")
            selected = "selected" if branch == "score" else f"{branch}_selected"
            columns: dict[str, Any] = {branch: np.asarray(found.score, dtype=np.float64), selected: found.selected}
            yield name.split(" + ")[0], columns | {key: events.kept[key] for key in keep}

    if output is None:
        add_branches(Path(files[0]), scored())
    else:
        write_trees(output, scored())
    click.echo("\n".join([*said, f"scores in {output or files[0]}"]))
