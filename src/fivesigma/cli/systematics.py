"""``--systematic``: variations from files of events, and normalisations of processes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fivesigma.errors import InputError

if TYPE_CHECKING:
    from fivesigma.likelihood.shifts import Normalisation, Varied
    from fivesigma.scored.scored_events import ScoredEvents

_SIZE = re.compile(r"\s*(?:([0-9.]+(?:e-?[0-9]+)?)\s*%|(free))\s*(?:@(.+))?", re.IGNORECASE)
_FILES = re.compile(r"(.+?)@([^@/.]+)")  # whose events they hold; names of files may have @ as well

systematic_option = click.option(
    "--systematic",
    "systematics",
    multiple=True,
    metavar="NAME=UP[,DOWN]",
    help="Let the background move along this systematic: files of the events one standard deviation up and down, or "
    "SIZE%@PROCESS for the normalisation of one process, such as ttbar=6%@ttbar, SIZE% for that of all, or "
    "free@PROCESS for one without a constraint; may be repeated. Without DOWN yields move down by as much as up. A "
    "process that a file lacks is as in the nominal events. Of events, a pattern finds all systematics of an ntuple: "
    "'*_NOSYS' for varied branches, 'weight_*_up' for weights.",
)


class Asked(NamedTuple):
    """What one option says: the normalisation of a process (of all if empty), or files up and down (of a process)."""

    name: str
    size: float | None
    process: str
    files: tuple[str, ...]


def parsed(texts: tuple[str, ...], option: str = "--systematic") -> list[Asked]:
    """Read the options; wrong usage is answered before any file is opened."""
    found: dict[tuple[str, str], Asked] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise click.UsageError(f"{option} {text!r} is not of the form NAME=UP,DOWN or NAME=SIZE%@PROCESS.")
        size, of = _SIZE.fullmatch(value), _FILES.fullmatch(value)
        if size is not None:
            if size[2] and not size[3]:
                raise click.UsageError(f"{option} {text!r} names no process; write {name}=free@PROCESS.")
            share = None if size[2] else _share(option, text, size[1])
            one = Asked(name, share, (size[3] or "").strip(), ())
        else:
            files = tuple(part for part in (of[1] if of else value).split(",") if part)
            if not 1 <= len(files) <= 2:
                raise click.UsageError(f"{option} {text!r} has {len(files)} files; give one for up, and one for down.")
            one = Asked(name, None, of[2] if of else "", files)
        alike = [other for other in found.values() if other.name == name]
        if any(other.process == one.process or not (other.process and other.files and one.files) for other in alike):
            raise click.UsageError(f"{option} names {name!r} twice.")
        if any(len(other.files) != len(one.files) for other in alike):
            raise click.UsageError(f"{option} {name!r} has files for down of some processes only.")
        found[name, one.process] = one
    return list(found.values())


def split_patterns(texts: tuple[str, ...]) -> tuple[list[str], tuple[str, ...]]:
    """Patterns of branches among the options, such as ``weight_*_up``, and the others."""
    return [t for t in texts if "=" not in t and "*" in t], tuple(t for t in texts if "=" in t or "*" not in t)


def of_patterns(patterns: list[str], path: Any, events: Any) -> dict[str, Any]:
    """Variations that the branches of the nominal files hold; what was found is said."""
    if not patterns:
        return {}
    from fivesigma.datasets import load_variations

    found = load_variations(path, events, patterns)
    said = [
        f"{name} ({'branches' if hasattr(up, 'X') else 'weight'}{', up only' * (down is None)})"
        for name, (up, down) in found.items()
    ]
    click.echo(f"note: Systematics found by {', '.join(patterns)}: {', '.join(said)}.", err=True)
    return dict(found)


def _share(option: str, text: str, size: str) -> float:
    try:
        return float(size) / 100
    except ValueError:
        raise click.UsageError(f"{option} {text!r}: {size!r} is not a number.") from None


def check_processes(asked: list[Asked], *, from_samples: bool) -> None:
    """Refuse files that name a process where the events do not come from samples of processes, or the reverse."""
    for one in asked:
        if one.files and bool(one.process) != from_samples:
            form = f"{one.name}={','.join(one.files)}"
            raise click.UsageError(
                f"--sample reads processes from files of their own: write --systematic {form}@PROCESS."
                if from_samples
                else f"--systematic {form}@{one.process} needs --sample; the files hold a column of processes."
            )


def narrow_source(source: dict[str, Any], path: Any) -> dict[str, Any]:
    """What was said of processes, for those of other files."""
    if not isinstance(path, dict):
        return {"path": path, **{name: value for name, value in source.items() if name == "signal" and path}}
    out = dict(source) | {"path": path}
    if source.get("signal") is not None:
        out["signal"] = [name for name in source["signal"] if name in path]
    for key in ("cross_section", "sum_of_weights"):
        if key in out:
            out[key] = {name: value for name, value in out[key].items() if name in path}
    return out


def variations(
    asked: list[Asked], nominal: ScoredEvents, read: Callable[[str, str], Any]
) -> dict[str, tuple[Any, Any] | Normalisation] | None:
    """Variations of the nominal events; `read` makes a sample of a file and a process. None if none was asked for."""
    out: dict[str, tuple[Any, Any] | Normalisation] = {}
    for name, alike in groupby(sorted(asked, key=lambda one: one.name), key=lambda one: one.name):
        group = list(alike)
        if not group[0].files:
            out[name] = _normalisation(group[0], nominal)
            continue
        try:
            sides = [[read(file, one.process) for one in group for file in one.files[k : k + 1]] for k in (0, 1)]
        except InputError as err:
            raise InputError(f"{err} (systematic {name!r})") from err
        up, down = (None if not side else side[0] if len(side) == 1 else concatenate(side) for side in sides)
        out[name] = (up, down)
    return {one.name: out[one.name] for one in asked} or None


def _normalisation(one: Asked, nominal: ScoredEvents) -> Any:
    import numpy as np

    from fivesigma.likelihood.shifts import Normalisation, Varied

    if one.process:
        if nominal.process is None:
            raise InputError(f"{one.name} scales the process {one.process!r}, and the events have no column process")
        return Normalisation(one.process, one.size)
    if nominal.process is None:
        return Varied(weight=(1.0 + (one.size or 0.0)) * nominal.arrays()[2]), None
    return Normalisation(np.unique(np.asarray(nominal.process).astype(str)).tolist(), one.size)


def concatenate(samples: list[Any]) -> Any:
    """Events of several processes as one sample."""
    from fivesigma.datasets import Events

    return Events.concatenate(samples)


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

    def read(file: str, process: str) -> Varied:
        if process:
            raise InputError(f"a file of scores knows its processes; leave @{process} out")
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
