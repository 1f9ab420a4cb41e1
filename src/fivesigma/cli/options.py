"""Options that several commands share, and checks of what they write."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from fivesigma._tools.files import refuse_special
from fivesigma.errors import InputError

INTERRUPTED = 130  # the exit code that shells expect after Ctrl-C

F = TypeVar("F", bound=Callable[..., Any])


def number_or_none(value: str) -> float | str:
    """Read a number, or the word none: None itself would mean that the option was not given."""
    return "none" if value.lower() == "none" else float(value)


def column_or_none(value: Any) -> Any:
    """What the library means by a column, or a number, that is not there."""
    return None if value == "none" else value


def several(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Apply options so that the help lists them in this order."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


where_option = click.option(
    "--where", metavar="CUT", help='Read only the events that pass this condition, such as "PRI_jet_num >= 2".'
)
model_where_option = click.option(
    "--where",
    metavar="CUT",
    help="Read only the events that pass this condition, by default that of the training; none reads all events.",
)
tree_option = click.option(
    "--tree", metavar="NAME", help="Read this TTree or RNTuple of ROOT files; needed if a file has several."
)
force_option = click.option("--force", is_flag=True, help="Replace the output if it is there.")
sample_option = click.option(
    "--sample", is_flag=True, help="Accept a part of the challenge's file, and split it into train and test if needed."
)
jobs_option = click.option(
    "--jobs",
    type=click.IntRange(1),
    metavar="N",
    callback=lambda _ctx, _option, value: -1 if value is None else value,
    help="Use this many threads; all cores by default.",
)

samples_options = several(
    click.option(
        "--sample",
        "samples",
        multiple=True,
        metavar="PROCESS=FILES",
        help="Read this process from these files, separated by commas, in place of FILE...; may be repeated. --signal "
        "then names the processes that are signal, separated by commas.",
    ),
    click.option(
        "--luminosity",
        type=number_or_none,
        metavar="L",
        help="Normalise processes to this luminosity, in 1/fb; none leaves weights as they stand.",
    ),
    click.option(
        "--cross-section",
        "cross_sections",
        multiple=True,
        metavar="PROCESS=PB",
        help="Scale the weights of this process to this cross section, in pb; none if its weights are expected yields "
        "already; may be repeated.",
    ),
    click.option(
        "--sum-of-weights",
        "sums_of_weights",
        multiple=True,
        metavar="PROCESS=SUM",
        help="Divide by this sum of weights, or by what ROOT files have as HISTOGRAM, HISTOGRAM[BIN] or TREE/BRANCH; "
        "may be repeated.",
    ),
)
keep_option = click.option(
    "--keep",
    multiple=True,
    metavar="COLUMN",
    help="Carry this column beside the features in its own type, such as an event number; may be repeated.",
)


def source_options(
    files: tuple[str, ...],
    *,
    samples: tuple[str, ...],
    signal: str | None,
    luminosity: float | str | None,
    cross_sections: tuple[str, ...],
    sums_of_weights: tuple[str, ...],
) -> dict[str, Any]:
    """What `load_events` is to read: files, or the files of each process with what is said of their normalisation."""
    if not samples:
        if not files:
            raise click.UsageError("Missing argument 'FILE...', or --sample PROCESS=FILES.")
        if luminosity is not None or cross_sections or sums_of_weights:
            raise click.UsageError("--luminosity, --cross-section and --sum-of-weights need --sample PROCESS=FILES.")
        return {"path": files} | ({} if signal is None else {"signal": signal})
    if files:
        raise click.UsageError("Give FILE... or --sample PROCESS=FILES, not both.")
    paths: dict[str, list[str]] = {}
    for name, text in _pairs("--sample", samples):
        paths.setdefault(name, []).extend(part for part in text.split(",") if part)
    found = {
        "signal": None if signal is None else [] if signal == "none" else signal.split(","),
        "luminosity": luminosity,
        "cross_section": {
            name: None if text == "none" else _number("--cross-section", text)
            for name, text in _pairs("--cross-section", cross_sections)
        },
        "sum_of_weights": {name: _number_or_name(text) for name, text in _pairs("--sum-of-weights", sums_of_weights)},
    }
    given = {name: column_or_none(value) for name, value in found.items() if value is not None and value != {}}
    return {"path": paths, **given}


def like_training(
    model: Any,
    source: dict[str, Any],
    *,
    label: str | None = None,
    process: str | None = None,
    where: str | None = None,
    rows: int | None = None,
    **reading: Any,
) -> Any:
    """Files as the training events of a model were read, but for the options that are given; in chunks of `rows`."""
    from fivesigma.datasets import EventStream

    if isinstance(source["path"], dict) and (label or process):
        raise InputError("--sample says what an event is; leave --label and --process out")
    asked = reading | {"label": label, "process": process, "cut": where}
    given = {name: column_or_none(value) for name, value in asked.items() if value is not None}
    return EventStream.like(model, **source, **given, rows=rows)


def _pairs(option: str, texts: tuple[str, ...]) -> list[tuple[str, str]]:
    for text in texts:
        if "=" not in text or not text.partition("=")[0]:
            raise click.UsageError(f"{option} {text!r} is not of the form PROCESS=VALUE.")
    return [(text.partition("=")[0], text.partition("=")[2]) for text in texts]


def _number_or_name(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _number(option: str, text: str) -> float:
    value = _number_or_name(text)
    if isinstance(value, str):
        raise click.UsageError(f"{option} {text!r} is not a number.")
    return value


signal_option = click.option(
    "--signal", metavar="LABEL", help="Take this label as signal; needed if it is not a known one such as s."
)

yields_option = click.option(
    "--yields",
    nargs=2,
    type=float,
    metavar="S B",
    help="Expected signal and background that all events together stand for; by default the sums of the weights.",
)
replicas_option = click.option(
    "--replicas", type=click.IntRange(1), default=1000, show_default=True, help="Replicas of the bootstrap."
)

untrusted_option = click.option(
    "--untrusted", is_flag=True, help="Try the model in a child process first, for a model of a stranger."
)


class _UtilityOption(click.Option):
    """Its help lists the registry of utilities, which is imported when the help is asked for."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        from fivesigma.significance import describe_utilities

        self.help = f"Form the significance as one of {describe_utilities()}."
        return super().get_help_record(ctx)


utility_options = several(
    click.option("--utility", default="ams2", show_default=True, cls=_UtilityOption),
    click.option("--b-reg", type=click.FloatRange(0), metavar="B", help="Add this constant to the background."),
)

stream_option = click.option(
    "--stream",
    is_flag=True,
    help="Read SCORES, which may be a pattern of several files, part by part; intervals are then standard errors.",
)

scores_options = several(
    signal_option,
    utility_options,
    yields_option,
    replicas_option,
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
)


def repeat_command() -> str:
    """The same call once more, quoted for a shell; what it wrote is there by then."""
    context = click.get_current_context()
    words = ["fivesigma", str(context.info_name)]
    for parameter in context.command.params:
        value, name = context.params[str(parameter.name)], parameter.name
        if context.get_parameter_source(str(name)) is not ParameterSource.COMMANDLINE or name == "force":
            continue
        flag = [parameter.opts[0]] if isinstance(parameter, click.Option) else []
        if isinstance(value, bool):
            words += flag
            continue
        for each in value if parameter.multiple or parameter.nargs == -1 else [value]:
            words += [*flag, *map(str, each if isinstance(each, tuple) else [each])]
    return shlex.join([*words, "--force"])


def check_output(path: Path, *, force: bool) -> None:
    """Refuse early what could not be written late."""
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to write {path.name} to")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file")
    refuse_special(path)
    if path.exists() and not force:
        raise InputError(f"{path} is there already; choose another name or add --force")
