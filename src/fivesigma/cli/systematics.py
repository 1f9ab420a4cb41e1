"""``--systematic``: variations from files of events, and normalisations of processes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

import fivesigma
from fivesigma.errors import InputError

if TYPE_CHECKING:
    from fivesigma.likelihood.shifts import Normalisation
    from fivesigma.scored.scored_events import ScoredEvents

_SIZE = re.compile(r"\s*(?:([0-9.]+(?:e-?[0-9]+)?)\s*%|(free))\s*(?:@(.+))?", re.IGNORECASE)
_FILES = re.compile(r"(.+?)@([^@/.]+)")  # whose events they hold; names of files may have @ as well


class Size(NamedTuple):
    """Relative uncertainty of the yield of a process, of all if its name is empty; None if it is free."""

    share: float | None
    process: str


Files = dict[str, tuple[str, ...]]  # up, and down, by process; one entry without a name if a file holds all processes
Asked = dict[str, Size | Files | None]  # by name; None for a pattern of branches
Found = dict[str, "tuple[Any, Any] | Normalisation"]


def _parse(_: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> Asked:
    """Read the options; wrong usage is answered before any file is opened."""
    flag = option.opts[0]
    found: Asked = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if "*" in name and not equals:
            found[name] = None
            continue
        if not (name and value):
            raise click.UsageError(f"{flag} {text!r} is not of the form NAME=UP,DOWN or NAME=SIZE%@PROCESS.")
        known, size, of = found.get(name), _SIZE.fullmatch(value), _FILES.fullmatch(value)
        process = of[2] if of else ""
        # Only files of one process each may share a name.
        alone = size is not None or not process or isinstance(known, Size)
        if known is not None and (alone or not {"", process}.isdisjoint(known)):
            raise click.UsageError(f"{flag} names {name!r} twice.")
        if size is not None:
            found[name] = _size(flag, text, *size.groups())
            continue
        files = tuple(part for part in (of[1] if of else value).split(",") if part)
        if not 1 <= len(files) <= 2:
            raise click.UsageError(f"{flag} {text!r} has {len(files)} files; give one for up, and one for down.")
        group = known if isinstance(known, dict) else {}
        if any(len(others) != len(files) for others in group.values()):
            raise click.UsageError(f"{flag} {name!r} has files for down of some processes only.")
        found[name] = {**group, process: files}
    return found


def _size(flag: str, text: str, number: str | None, free: str | None, process: str | None) -> Size:
    if free and not process:
        raise click.UsageError(f"{flag} {text!r} names no process; write {text}@PROCESS.")
    try:
        return Size(None if number is None else float(number) / 100, (process or "").strip())
    except ValueError:
        raise click.UsageError(f"{flag} {text!r}: {number!r} is not a number.") from None


systematic_option = click.option(
    "--systematic",
    "systematics",
    multiple=True,
    callback=_parse,
    metavar="NAME=UP[,DOWN]",
    help="Let the background move along this systematic: files of the events one standard deviation up and down, or "
    "SIZE%@PROCESS for the normalisation of one process, such as ttbar=6%@ttbar, SIZE% for that of all, or "
    "free@PROCESS for one without a constraint; may be repeated. Without DOWN yields move down by as much as up. A "
    "process that a file lacks is as in the nominal events. Of events, a pattern finds all systematics of an ntuple: "
    "'*_NOSYS' for varied branches, 'weight_*_up' for weights.",
)
quote_systematic_option = click.option(
    "--quote-systematic",
    "quote_systematics",
    multiple=True,
    callback=_parse,
    metavar="NAME=UP[,DOWN]",
    help="Take these variations of the events of --quote, for every --systematic that has files.",
)


def check_processes(asked: Asked, source: dict[str, Any]) -> None:
    """Refuse files that name a process where the events do not come from samples of processes, or the reverse."""
    from_samples = isinstance(source["path"], dict)
    for name, one in asked.items():
        for process, files in one.items() if isinstance(one, dict) else ():
            form = f"{name}={','.join(files)}"
            if bool(process) != from_samples:
                raise click.UsageError(
                    f"--sample reads processes from files of their own: write --systematic {form}@PROCESS."
                    if from_samples
                    else f"--systematic {form}@{process} needs --sample; the files hold a column of processes."
                )


def narrow_source(source: dict[str, Any], path: Any) -> dict[str, Any]:
    """What was said of processes, for those of other files."""
    if not isinstance(path, dict):
        return {"path": path, **{name: value for name, value in source.items() if name == "signal"}}
    out = dict(source) | {"path": path}
    for key in ("cross_section", "sum_of_weights", "weight", "cut"):
        if key in out:
            out[key] = {name: value for name, value in out[key].items() if name in path}
    if "signal" in out:
        out["signal"] = [name for name in out["signal"] if name in path]
    return out


def of_events(asked: Asked, source: dict[str, Any], events: Any, read: Callable[[dict[str, Any]], Any]) -> Found:
    """Variations of events, from files and from the branches of the nominal files; `read` makes events of a source."""
    from fivesigma.datasets import load_variations

    found: dict[str, Any] = {}
    patterns = [name for name, one in asked.items() if one is None]
    if patterns:
        found |= load_variations(source["path"], events, patterns)
        said = [
            f"{name} ({'branches' if hasattr(up, 'X') else 'weight'}{', up only' * (down is None)})"
            for name, (up, down) in found.items()
        ]
        click.echo(f"note: Systematics found by {', '.join(patterns)}: {', '.join(said)}.", err=True)

    def of_file(file: str, process: str) -> Any:
        return read(narrow_source(source, {process: (file,)} if process else (file,)))

    return found | _variations(asked, events, of_file)


def of_scores(asked: Asked, nominal: ScoredEvents, yields: tuple[float, float] | None) -> Found | None:
    """Variations of scored events, from files of scores; None if none was asked for."""
    if yields is not None and any(isinstance(one, dict) for one in asked.values()):
        raise InputError(
            "--yields cannot scale the events of --systematic files, of which it is not known what share they are; "
            "scale the weights in all files before"
        )
    for name in (name for name, one in asked.items() if one is None):
        raise InputError(f"{name!r} is a pattern of branches, which files of scores do not have; write NAME=UP,DOWN")

    def read(file: str, process: str) -> Any:
        if process:
            raise InputError(f"a file of scores knows its processes; leave @{process} out")
        found = fivesigma.ScoredEvents.read(Path(file), like=nominal)
        score, signal, weight = found.arrays()
        return fivesigma.Varied(score, weight, signal, found.process)

    return _variations(asked, nominal, read) or None


def _variations(asked: Asked, nominal: Any, read: Callable[[str, str], Any]) -> Found:
    """Variations of nominal events, which know their weights and processes; `read` takes a file and a process."""
    out: Found = {}
    for name, one in asked.items():
        if isinstance(one, Size):
            out[name] = _normalisation(name, one, nominal)
        if not isinstance(one, dict):
            continue
        try:
            read_files = [[read(file, process) for file in files] for process, files in one.items()]
        except InputError as err:
            raise InputError(f"{err} (systematic {name!r})") from err
        up, *down = (
            side[0] if len(side) == 1 else fivesigma.Events.concatenate(side) for side in zip(*read_files, strict=True)
        )
        out[name] = (up, down[0] if down else None)
    return out


def _normalisation(name: str, one: Size, nominal: Any) -> Any:
    import numpy as np

    if one.process:
        if nominal.process is None:
            raise InputError(f"{name} scales the process {one.process!r}, and the events have no column process")
        return fivesigma.Normalisation(one.process, one.share)
    if nominal.process is None:
        return fivesigma.Varied(weight=(1.0 + (one.share or 0.0)) * nominal.weight), None
    return fivesigma.Normalisation(np.unique(np.asarray(nominal.process).astype(str)).tolist(), one.share)


def needed_for_quote(asked: Asked, quoted: Asked) -> Asked:
    """Variations of the events to quote: sizes are the same, files are others."""
    for name in quoted:
        if name not in asked:
            raise click.UsageError(f"--quote-systematic names {name!r}, which no --systematic does.")
    for name, one in asked.items():
        if isinstance(one, dict) and name not in quoted:
            raise click.UsageError(
                f"--systematic {name} has files of the events that choose the edges; give those of the events to "
                f"quote with --quote-systematic {name}=UP,DOWN."
            )
    return asked | quoted
