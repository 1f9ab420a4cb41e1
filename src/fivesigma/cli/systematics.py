"""``--systematic``: variations from files of events, and normalisations of one process."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fivesigma.errors import InputError

if TYPE_CHECKING:
    from fivesigma.likelihood.shifts import Normalisation, Varied
    from fivesigma.scored.scored_events import ScoredEvents

_SIZE = re.compile(r"\s*(?:([0-9.]+(?:e-?[0-9]+)?)\s*%|(free))\s*@(.+)", re.IGNORECASE)

systematic_option = click.option(
    "--systematic",
    "systematics",
    multiple=True,
    metavar="NAME=UP[,DOWN]",
    help="Let the background move along this systematic: files of the events one standard deviation up and down, or "
    "SIZE%@PROCESS for the normalisation of one process, such as ttbar=6%@ttbar, or free@PROCESS for one without a "
    "constraint; may be repeated. Without DOWN yields move down by as much as up. A process that a file lacks is as in "
    "the nominal events.",
)


class Asked(NamedTuple):
    """What one option says: a process whose normalisation moves by a share or freely, or files up and down."""

    name: str
    size: float | None
    process: str
    files: tuple[str, ...]


def parsed(texts: tuple[str, ...], option: str = "--systematic") -> list[Asked]:
    """Read the options; wrong usage is answered before any file is opened."""
    found: dict[str, Asked] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise click.UsageError(f"{option} {text!r} is not of the form NAME=UP,DOWN or NAME=SIZE%@PROCESS.")
        if name in found:
            raise click.UsageError(f"{option} names {name!r} twice.")
        size = _SIZE.fullmatch(value)
        if size is not None:
            share = None if size[2] else _share(option, text, size[1])
            found[name] = Asked(name, share, size[3].strip(), ())
            continue
        if value.strip().endswith("%"):
            raise click.UsageError(f"{option} {text!r} names no process; write NAME=SIZE%@PROCESS.")
        files = tuple(part for part in value.split(",") if part)
        if not 1 <= len(files) <= 2:
            raise click.UsageError(f"{option} {text!r} has {len(files)} files; give one for up, and one for down.")
        found[name] = Asked(name, None, "", files)
    return list(found.values())


def _share(option: str, text: str, size: str) -> float:
    try:
        return float(size) / 100
    except ValueError:
        raise click.UsageError(f"{option} {text!r}: {size!r} is not a number.") from None


def variations(
    asked: list[Asked], nominal: ScoredEvents, read: Callable[[str], Any]
) -> dict[str, tuple[Any, Any] | Normalisation] | None:
    """Variations of the nominal events; None if none was asked for.

    Parameters
    ----------
    asked : list of Asked
    nominal : ScoredEvents
        With the weights that are used.
    read : callable
        Turns the name of a file into a varied sample.
    """
    from fivesigma.likelihood.shifts import Normalisation

    if not asked:
        return None
    out: dict[str, tuple[Any, Any] | Normalisation] = {}
    for one in asked:
        if one.process:
            if nominal.process is None:
                raise InputError(
                    f"{one.name} scales the process {one.process!r}, and the events have no column process"
                )
            out[one.name] = Normalisation(one.process, one.size)
        else:
            try:
                up, *down = map(read, one.files)
            except InputError as err:
                raise InputError(f"{err} (systematic {one.name!r})") from err
            out[one.name] = (up, down[0] if down else None)
    return out


def of_scores(
    asked: list[Asked], nominal: ScoredEvents, yields: tuple[float, float] | None
) -> dict[str, tuple[Any, Any] | Normalisation] | None:
    """Variations from files of scores."""
    from fivesigma.likelihood.shifts import Varied
    from fivesigma.scored.scored_events import ScoredEvents

    if yields is not None and any(one.files for one in asked):
        raise InputError(
            "--yields cannot scale the events of --systematic files, of which it is not known what share they are; "
            "scale the weights in all files before"
        )

    def read(file: str) -> Varied:
        found = ScoredEvents.read(Path(file), like=nominal)
        score, signal, weight = found.arrays()
        return Varied(score, weight, signal, found.process)

    return variations(asked, nominal, read)


def needed_for_quote(asked: list[Asked], quoted: list[Asked]) -> list[Asked]:
    """Variations of the events to quote: sizes are the same, files are others."""
    by_name: Mapping[str, Asked] = {one.name: one for one in quoted}
    for one in quoted:
        if one.name not in {other.name for other in asked}:
            raise click.UsageError(f"--quote-systematic names {one.name!r}, which no --systematic does.")
    for one in asked:
        if one.files and one.name not in by_name:
            raise click.UsageError(
                f"--systematic {one.name} has files of the events that choose the edges; give those of the events to "
                f"quote with --quote-systematic {one.name}=UP,DOWN."
            )
    return [by_name.get(one.name, one) for one in asked]
