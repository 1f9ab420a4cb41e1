"""Options that several commands share, and checks of what they write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

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
tree_option = click.option(
    "--tree", metavar="NAME", help="Read this TTree or RNTuple of ROOT files; needed if a file has several."
)
force_option = click.option("--force", is_flag=True, help="Replace the output if it is there.")
sample_option = click.option(
    "--sample", is_flag=True, help="Accept a part of the challenge's file, and split it into train and test if needed."
)
jobs_option = click.option(
    "--jobs", type=click.IntRange(1), metavar="N", help="Use this many threads; all cores by default."
)

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

utility_options = several(
    click.option(
        "--utility",
        default="ams2",
        show_default=True,
        help="Form the significance as one of ams2, ams3, s_over_root_sb, on_off(TAU), gaussian_background(SIGMA) or "
        "relative_background(FRACTION).",
    ),
    click.option("--b-reg", type=click.FloatRange(0), metavar="B", help="Add this constant to the background."),
)

scores_options = several(
    signal_option,
    utility_options,
    yields_option,
    replicas_option,
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
)


def check_output(path: Path, *, force: bool) -> None:
    """Refuse early what could not be written late."""
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to write {path.name} to")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file")
    if path.exists() and not force:
        raise InputError(f"{path} is there already; choose another name or add --force")
