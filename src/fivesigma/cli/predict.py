"""``fivesigma predict``: a saved model and events in, scores out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from fivesigma.cli.options import (
    check_output,
    force_option,
    like_training,
    model_where_option,
    number_or_none,
    samples_options,
    source_options,
    untrusted_option,
)
from fivesigma.errors import InputError


@click.command(epilog="Example: fivesigma predict model test.root -o scores.parquet")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("files", nargs=-1, metavar="[FILE...]")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="SCORES",
              help="Write the scores to this file, which must end in .csv, .parquet or .root.")  # fmt: skip
@click.option("--in-place", is_flag=True,
              help="Add the branches score and selected to the trees of FILE... in place of -o; a copy gets them and "
              "then takes the name of the file, so that no file is ever half-written.")  # fmt: skip
@click.option("--branch", default="score", show_default=True, metavar="NAME",
              help="With --in-place: call the branch of the score so, and the other NAME_selected.")  # fmt: skip
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
@click.option("--tree", "trees", multiple=True, metavar="NAME",
              help="Read this TTree or RNTuple of ROOT files; needed if a file has several. May be repeated if SCORES "
              "ends in .root: each tree gets one of the same name.")  # fmt: skip
@click.option("--keep", multiple=True, metavar="COLUMN",
              help="Write this column beside the scores, in its own type; may be repeated.")  # fmt: skip
@samples_options
@click.option("--signal", metavar="PROCESSES",
              help="Take these processes of --sample as signal, separated by commas, or none of them with the word "
              "none; by default those of the training.")  # fmt: skip
@click.option("--friend", is_flag=True, help="Write to .root the new branches alone, score and selected.")
@model_where_option
@untrusted_option
@force_option
def predict(
    *,
    model: Path,
    files: tuple[str, ...],
    output: Path | None,
    in_place: bool,
    branch: str,
    label: str | None,
    weight: str | None,
    process: str | None,
    missing: Any,
    trees: tuple[str, ...],
    keep: tuple[str, ...],
    friend: bool,
    where: str | None,
    untrusted: bool,
    force: bool,
    **samples: Any,
) -> None:
    """Score events in FILE..., or those of --sample, with MODEL.

    SCORES gets the columns id (the row number if the events have none), score, selected (at the model's cut), and
    label, weight and process where the events have them. If it ends in .root it gets TTrees with score, selected and
    the kept columns, entry by entry in the order of the one file that is read. --in-place adds them to FILE...
    """
    from fivesigma import load
    from fivesigma.datasets.stream import ROWS
    from fivesigma.scored.scored_events import check_ending

    source = source_options(files, **samples)
    if (output is None) != in_place:
        raise click.UsageError("Give -o SCORES or --in-place, one of them.")
    if output is None or output.suffix.lower() == ".root":
        if samples["samples"]:
            raise InputError("scores in ROOT files belong to one file each; name it instead of --sample")
        if output is None:
            if friend or keep:
                raise InputError("--in-place adds to the file itself; leave --friend and --keep out")
            fitted = load(model, untrusted=untrusted)
            for file in files:
                _to_root(fitted, (file,), None, trees, keep, branch=branch, where=where)
            return
        check_output(output, force=force)
        _to_root(load(model, untrusted=untrusted), files, output, trees, keep, friend=friend, where=where)
        return
    if friend or len(trees) > 1 or keep:
        raise InputError("--friend, --keep and several --tree need an output that ends in .root")
    check_ending(output)
    check_output(output, force=force)
    fitted = load(model, untrusted=untrusted)
    roles = {"label": label, "weight": weight, "process": process, "missing": missing, "where": where}
    stream = like_training(fitted, source, **roles, tree=trees[0] if trees else None, rows=ROWS)
    _score(fitted, stream, output)


def _score(fitted: Any, stream: Any, output: Path) -> None:
    """Score events, write them, and say how many they are."""
    from fivesigma.scored.scored_files import write_scores

    written = write_scores(fitted, stream, output)
    for note in stream.notes:
        click.echo(f"note: {note}", err=True)
    click.echo(f"{written.events:,} events scored, {written.selected:,} selected by a model for {fitted.utility_!r}")
    click.echo(f"scores in {output}")


def _to_root(
    fitted: Any,
    files: tuple[str, ...],
    output: Path | None,
    trees: tuple[str, ...],
    keep: tuple[str, ...],
    *,
    friend: bool = False,
    branch: str = "score",
    where: str | None,
) -> None:
    """Score every entry of some trees of one ROOT file, in a file of its own or in place."""
    import numpy as np

    from fivesigma import ScoredEvents
    from fivesigma.datasets import load_events
    from fivesigma.datasets.columns import Columns
    from fivesigma.datasets.root import RootTree
    from fivesigma.datasets.sources import find_targets
    from fivesigma.datasets.write import add_branches, write_trees

    targets = find_targets(files)
    if len(targets) != 1 or not targets[0].name.lower().endswith(".root"):
        where_to = files[0] if output is None else output.name
        raise InputError(f"scores in {where_to} belong to one ROOT file; {len(targets)} files were given")
    if where is not None:
        raise InputError("every entry gets a score in a ROOT file; leave --where out, or write .csv or .parquet")
    names = trees or RootTree.trees_of(targets[0].path)
    trained = Columns.of_model(fitted)
    counts: list[int] = []

    def scored() -> Iterator[tuple[str, dict[str, Any]]]:
        for name in names:
            roles: dict[str, Any] = {"label": None, "weight": None, "ids": None, "missing": trained.missing}
            wanted = tuple(dict.fromkeys((*trained.keep, *keep)))
            events = load_events(files[0], features=trained.features, keep=wanted, tree=name, **roles)
            found = ScoredEvents.of(fitted, events)
            other = "selected" if branch == "score" else f"{branch}_selected"
            columns: dict[str, Any] = {branch: np.asarray(found.score, dtype=np.float64), other: found.selected}
            counts.append(len(events))
            yield name, columns if friend else columns | {key: events.kept[key] for key in keep}

    if output is None:
        add_branches(Path(files[0]), scored())
    else:
        write_trees(output, scored())
    for name, n in zip(names, counts, strict=True):
        click.echo(f"{n:,} entries of {name} scored")
    click.echo(f"scores in {output or files[0]}")
