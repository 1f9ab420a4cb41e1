"""``fivesigma report``: a saved model and events in, one HTML page out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fivesigma.cli.options import (
    check_output,
    force_option,
    like_training,
    model_where_option,
    repeat_command,
    replicas_option,
    samples_options,
    source_options,
    tree_option,
    untrusted_option,
    yields_option,
)
from fivesigma.cli.systematics import (
    check_processes,
    narrow_source,
    of_patterns,
    of_scores,
    parsed,
    split_patterns,
    systematic_option,
    variations,
)
from fivesigma.errors import InputError

__all__ = ["report_command"]

_SAMPLES = ("samples", "signal", "luminosity", "cross_sections", "sums_of_weights")


@click.command(
    "report",
    epilog="Example: fivesigma report model test.parquet -o report.html --baseline plain",
)
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("files", nargs=-1, metavar="[EVENTS...]")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="HTML", help="File to write.")
@click.option("--baseline", type=click.Path(path_type=Path), metavar="MODEL", help="Saved model to compare with.")
@click.option("--trained-on", "trained_on", multiple=True, metavar="FILE",
              help="Training events: those that are also among EVENTS lead to a warning; may be repeated.")  # fmt: skip
@click.option("--label", metavar="COLUMN", help="By default as in training.")
@click.option("--weight", metavar="COLUMN", help="By default as in training; none gives every event the weight one.")
@click.option("--process", metavar="COLUMN", help="By default as in training, if it is there; none leaves it out.")
@samples_options
@click.option("--signal", metavar="PROCESSES", help="Take these processes of --sample as signal, separated by commas.")
@systematic_option
@yields_option
@model_where_option
@tree_option
@click.option("--title", metavar="TEXT", help="Title of the page.")
@replicas_option
@untrusted_option
@force_option
def report_command(
    *,
    model: Path,
    files: tuple[str, ...],
    output: Path,
    baseline: Path | None,
    trained_on: tuple[str, ...],
    systematics: tuple[str, ...],
    yields: tuple[float, float] | None,
    title: str | None,
    replicas: int,
    untrusted: bool,
    force: bool,
    **reading: Any,
) -> None:
    """Write a page on MODEL from labelled EVENTS that were used for nothing else.

    The page is one file that works offline: verdict, significance against the cut with a slider, progress of the
    cascade, scores, efficiencies, features, yields, systematics, provenance. EVENTS may be the scores that fivesigma
    predict wrote. Files of --systematic hold events like EVENTS, with other values or other events; with --sample they
    are those of one process, as in JES=UP,DOWN@ttbar, and may be repeated for others.
    """
    import numpy as np

    from fivesigma import ScoredEvents, load
    from fivesigma.reporting import report

    patterns, texts = split_patterns(systematics)
    asked = parsed(texts)
    samples = {name: reading.pop(name) for name in _SAMPLES}
    source = source_options(files, **samples)
    check_processes(asked, from_samples=bool(samples["samples"]))
    check_output(output, force=force)
    fitted = load(model, untrusted=untrusted)
    other = None if baseline is None else load(baseline, untrusted=untrusted)
    features = None if other is None else _features_of(fitted, other)

    def read(path: Any) -> Any:
        return like_training(fitted, narrow_source(source, path), **reading, features=features).load()

    events: Any
    if _are_scores(fitted, files):
        events = ScoredEvents.read(Path(files[0]), signal=source.get("signal"))
        varied = of_scores(asked, events, yields)
    else:
        events = read(source["path"])
        for note in events.notes:
            click.echo(f"note: {note}", err=True)
        # Normalisations need no scores.
        nominal = ScoredEvents(np.zeros(len(events)), events.is_signal, events.weight, process=events.process)
        varied = variations(asked, nominal, lambda file, of: read({of: (file,)} if of else (file,)))
        varied = (of_patterns(patterns, source["path"], events) | (varied or {})) or None
    found = report(
        fitted,
        events,
        baseline=other,
        yields=yields,
        systematics=varied,
        title=title,
        trained_on=read(trained_on) if trained_on else None,
        command=repeat_command(),
        n_boot=replicas,
    )
    found.write(output)
    for finding in found.data.verdict.findings:
        click.echo(f"{finding.level}: {finding.text}", err=True)
    if found.data.systematics is not None:
        for note in found.data.systematics.notes:
            click.echo(f"note: {note}", err=True)
        for name, value in found.data.systematics.waterfall:
            click.echo(f"{value:8.4f}  {name}")
    low, high = found.data.verdict.interval
    click.echo(f"significance {found.data.verdict.significance:.4f} [{low:.4f}, {high:.4f}]; report in {output}")


def _are_scores(model: Any, files: tuple[str, ...]) -> bool:
    """Whether there is one file, of scores in place of features."""
    from fivesigma.datasets import column_names
    from fivesigma.datasets.columns import Columns
    from fivesigma.scored.scored_events import ENDINGS

    if len(files) != 1 or not files[0].lower().endswith(ENDINGS):
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
