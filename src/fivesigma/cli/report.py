"""``fivesigma report``: a saved model and events in, one HTML page out."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from fivesigma.cli.options import (
    check_output,
    column_or_none,
    force_option,
    model_samples,
    replicas_option,
    samples_options,
    source_options,
    tree_option,
    untrusted_option,
    where_option,
    yields_option,
)
from fivesigma.cli.systematics import parsed, systematic_option, variations
from fivesigma.cli.words import sentence
from fivesigma.errors import FivesigmaError, InputError

__all__ = ["report_command"]

_REPLICAS = 1000  # the default of the option
_SAMPLE_WORDS = {
    "samples": "sample",
    "signal": "signal",
    "luminosity": "luminosity",
    "cross_sections": "cross-section",
    "sums_of_weights": "sum-of-weights",
}


@click.command(
    "report",
    context_settings={"help_option_names": ["-h", "--help"]},  # click keeps those of whoever asks first
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
@where_option
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
    cascade, scores, efficiencies, features, yields, systematics, provenance. Files of --systematic hold events like
    EVENTS, with other values or other events.
    """
    import numpy as np

    from fivesigma import ScoredEvents, load
    from fivesigma.reporting import report

    asked = parsed(systematics)
    samples = {name: reading.pop(name) for name in _SAMPLE_WORDS}
    source = source_options(files, **samples)
    if samples["samples"] and any(one.files for one in asked):
        raise click.UsageError("files of --systematic need a column of labels, and --sample has none: write scores of "
                               "the samples with fivesigma predict, and use fivesigma scan or categorise.")  # fmt: skip
    try:
        check_output(output, force=force)
        fitted = load(model, untrusted=untrusted)
        events = _read_samples(fitted, source, **reading) if samples["samples"] else _read(fitted, files, **reading)
        for note in events.notes:
            click.echo(f"note: {note}", err=True)
        # Normalisations need no scores.
        nominal = ScoredEvents(np.zeros(len(events)), events.is_signal, events.weight, process=events.process)
        found = report(
            fitted,
            events,
            baseline=None if baseline is None else load(baseline, untrusted=untrusted),
            yields=yields,
            systematics=variations(asked, nominal, lambda file: _read(fitted, (file,), **reading)),
            title=title,
            trained_on=_read(fitted, trained_on, **reading) if trained_on else None,
            command=_command(
                model,
                files,
                output,
                yields=yields,
                untrusted=untrusted,
                baseline=baseline,
                trained_on=trained_on,
                systematic=systematics,
                **{word: samples[name] for name, word in _SAMPLE_WORDS.items()},
                **reading,
                title=title,
                replicas=None if replicas == _REPLICAS else replicas,
            ),
            n_boot=replicas,
        )
        found.write(output)
    except FivesigmaError as err:
        raise click.ClickException(sentence(err)) from err
    for finding in found.data.verdict.findings:
        click.echo(f"{finding.level}: {finding.text}", err=True)
    if found.data.systematics is not None:
        for note in found.data.systematics.notes:
            click.echo(f"note: {note}", err=True)
        for name, value in found.data.systematics.waterfall:
            click.echo(f"{value:8.4f}  {name}")
    low, high = found.data.verdict.interval
    click.echo(f"significance {found.data.verdict.significance:.4f} [{low:.4f}, {high:.4f}]; report in {output}")


def _read_samples(
    model: Any,
    source: dict[str, Any],
    *,
    label: str | None,
    weight: str | None,
    process: str | None,
    where: str | None,
    tree: str | None,
) -> Any:
    """Read the files of processes as the model was trained."""
    from fivesigma.datasets import load_events
    from fivesigma.datasets.columns import Columns

    if label or process:
        raise InputError("--sample says what an event is; leave --label and --process out")
    return model_samples(load_events, Columns.of_model(model), source, weight=weight, tree=tree, cut=where)


def _read(
    model: Any,
    files: tuple[str, ...],
    *,
    label: str | None,
    weight: str | None,
    process: str | None,
    where: str | None,
    tree: str | None,
) -> Any:
    """Read events with the columns that the model was trained with."""
    from fivesigma.datasets import column_names, load_events
    from fivesigma.datasets.columns import Columns

    trained = Columns.of_model(model)
    found = trained.there(column_names(files[0], tree=tree))
    roles = {
        "label": label or found.label or trained.label,
        "weight": weight or found.weight or trained.weight,
        "process": process or found.process,
    }
    return load_events(
        files,
        features=trained.features,
        **{role: column_or_none(column) for role, column in roles.items()},
        signal=model.classes_[1],
        missing=trained.missing,
        tree=tree,
        cut=where,
    )


def _command(
    model: Path,
    files: tuple[str, ...],
    output: Path,
    *,
    yields: tuple[float, float] | None,
    untrusted: bool,
    **options: Any,
) -> str:
    """The same call once more, quoted for a shell; options may be repeated, and the page that it replaces is there."""
    words = ["fivesigma", "report", str(model), *files, "-o", str(output)]
    if yields is not None:
        words += ["--yields", *(f"{v!r}" for v in yields)]
    for name, value in options.items():
        for each in value if isinstance(value, tuple) else (value,):
            words += [] if each is None else [f"--{name.replace('_', '-')}", str(each)]
    return shlex.join([*words, *["--untrusted"] * untrusted, "--force"])
