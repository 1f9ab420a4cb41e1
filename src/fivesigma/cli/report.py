"""``fivesigma report``: a saved model and events in, one HTML page out."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

import fivesigma
from fivesigma.cli.options import (
    PATH,
    WORDS,
    OutputFile,
    event_files,
    like_training,
    overwrite_option,
    print_notes,
    reading_options,
    replicas_option,
    tree_option,
    untrusted_option,
    yields_option,
)
from fivesigma.cli.systematics import Asked, check_processes, narrow_source, of_events, of_scores, systematic_option
from fivesigma.errors import InputError


@click.command("report", epilog="Example: fivesigma report model test.parquet -o report.html --baseline plain")
@click.argument("model", type=PATH)
@click.option("-o", "--output", required=True, type=OutputFile(), metavar="HTML", help="Write the page to this file.")
@click.option("--baseline", type=PATH, metavar="MODEL", help="Compare with this saved model.")
@click.option("--trained-on", multiple=True, metavar="FILE",
              help="Read the training events from this file, for a check of overtraining; those that are also among "
              "EVENTS lead to a warning; may be repeated.")  # fmt: skip
@reading_options
@event_files("[EVENTS...]", "Take these processes of --sample as signal, separated by commas; by default those of the "
             "training.")  # fmt: skip
@systematic_option
@yields_option
@tree_option
@click.option("--title", metavar="TEXT", help="Give the page this title.")
@replicas_option
@untrusted_option
@overwrite_option
def report_command(
    *,
    model: Path,
    source: dict[str, Any],
    output: Path,
    baseline: Path | None,
    trained_on: tuple[str, ...],
    systematics: Asked,
    yields: tuple[float, float] | None,
    reading: dict[str, Any],
    tree: str | None,
    untrusted: bool,
    **settings: Any,
) -> None:
    """Write a report on a model.

    EVENTS are labelled, and were used for nothing else. The page is one file that works offline: verdict, significance
    against the cut with a slider, progress of the cascade, scores, efficiencies, features, yields, systematics,
    provenance. EVENTS may be the scores that fivesigma predict wrote. Files of --systematic hold events like EVENTS,
    with other values or other events; with --sample they are those of one process, as in JES=UP,DOWN@ttbar, and may be
    repeated for others.
    """
    check_processes(systematics, source)
    fitted = fivesigma.load(model, untrusted=untrusted)
    other = None if baseline is None else fivesigma.load(baseline, untrusted=untrusted)
    features = None if other is None else _features_of(fitted, other)

    def read(files: dict[str, Any]) -> Any:
        return like_training(fitted, files, reading, tree=tree, features=features).load()

    events: Any
    if _are_scores(fitted, source["path"]):
        events = fivesigma.ScoredEvents.read(Path(source["path"][0]), signal=source.get("signal"))
        varied = of_scores(systematics, events, yields)
    else:
        events = read(source)
        print_notes(events.notes)
        varied = of_events(systematics, source, events, read) or None
    words = [word for word in click.get_current_context().meta[WORDS] if word != "--force"]
    found = fivesigma.report(
        fitted,
        events,
        baseline=other,
        yields=yields,
        systematics=varied,
        trained_on=read(narrow_source(source, trained_on)) if trained_on else None,
        command=shlex.join(["fivesigma", *words, "--force"]),  # what it wrote is there by then
        **settings,
    )
    found.write(output)
    for finding in found.data.verdict.findings:
        click.echo(f"{finding.level}: {finding.text}", err=True)
    if found.data.systematics is not None:
        print_notes(found.data.systematics.notes)
        for name, value in found.data.systematics.waterfall:
            click.echo(f"{value:8.4f}  {name}")
    low, high = found.data.verdict.interval
    click.echo(f"significance {found.data.verdict.significance:.4f} [{low:.4f}, {high:.4f}]; report in {output}")


def _are_scores(model: Any, files: Any) -> bool:
    """Whether there is one file, of scores in place of features."""
    from fivesigma.datasets import column_names
    from fivesigma.datasets.columns import Columns
    from fivesigma.scored.scored_events import ENDINGS

    if isinstance(files, dict) or len(files) != 1 or not files[0].lower().endswith(ENDINGS):
        return False
    names, known = set(column_names(files[0])), set(Columns.of_model(model).feature_names)
    return {"score", "label", "weight"} <= names and not (known and known <= names)


def _features_of(model: Any, baseline: Any) -> list[str] | None:
    """Features of two models, each once; definitions stay as they were in training. None where they have no names."""
    from fivesigma.datasets.columns import Columns

    first, second = (Columns.of_model(each) for each in (model, baseline))
    known = dict(zip(first.feature_names, first.features or (), strict=True))
    for name, text in zip(second.feature_names, second.features or (), strict=True):
        if known.setdefault(name, text) != text:
            raise InputError(f"the feature {name!r} is {known[name]!r} in the model and {text!r} in the baseline")
    return list(known.values()) if first.features and second.features else None
