"""Systematics of a whole ntuple, found by the names of its branches."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from fivesigma._types import Array
from fivesigma.datasets.columns import Columns, Source, can_be_read, some
from fivesigma.datasets.events import Events
from fivesigma.datasets.expression import Expression
from fivesigma.datasets.sources import Input, Paths, Renamed, find_inputs
from fivesigma.datasets.stream import EventStream
from fivesigma.errors import InputError

_SIDE = re.compile(r"(?P<stem>.+?)(?P<mark>__1|_)?(?P<side>up|down|Up|Down|UP|DOWN)")
_DOWN = {"up": "down", "Up": "Down", "UP": "DOWN"}
_NOMINAL = ("NOSYS", "NOMINAL", "Nominal", "nominal", "nom")
_CENTRAL = ("", "_nominal", "_nom", "_central")  # how the nominal weight is called beside a varied one


class Variation(NamedTuple):
    """A systematic: what is read otherwise for up and down, by the names of parameters of `load_events`."""

    name: str
    up: dict[str, Any]
    down: dict[str, Any] | None


def find_variations(names: Sequence[str], patterns: str | Sequence[str], weight: str | None = None) -> list[Variation]:
    """Find the systematics that the branches of an ntuple hold; see `load_variations` for what patterns mean.

    Each side is ``{"varied": {"*_NOSYS": "*_JES__1up"}}``, or ``{"weight": "w * w_pu_up"}``, a weight in place of the
    nominal one. `names` are all branches of a tree, and `weight` is the nominal weight.

    Examples
    --------
    >>> names = ["met_NOSYS", "met_JES__1up", "met_JES__1down", "w", "w_pu", "w_pu_up", "w_btag_up", "w_btag_down"]
    >>> for one in find_variations(names, ["*_NOSYS", "w_*_up"], "w * w_pu"):
    ...     print(one.name, one.up, one.down)
    JES {'varied': {'*_NOSYS': '*_JES__1up'}} {'varied': {'*_NOSYS': '*_JES__1down'}}
    pu {'weight': 'w * w_pu_up'} None
    btag {'weight': 'w_btag_up'} {'weight': 'w_btag_down'}
    """
    found: dict[str, Variation] = {}
    for pattern in (patterns,) if isinstance(patterns, str) else patterns:
        side = _SIDE.fullmatch(pattern)
        marker = next((word for word in _NOMINAL if word in pattern), None)
        if "*" not in pattern or (side is None and marker is None) or (side and side["side"] not in _DOWN):
            raise InputError(
                f"{pattern!r} is no pattern of systematics: write the nominal branches as '*_NOSYS', or those of "
                "weights as 'weight_*_up'"
            )
        own = _of_weights(names, pattern, weight) if side else _of_branches(names, pattern, str(marker))
        if not own:
            raise InputError(f"no branch holds a systematic that {pattern!r} finds; there are {some(names)}")
        known = [other.up for other in found.values()]
        twice = [one.name for one in own if one.name in found or one.up in known]
        if twice:
            raise InputError(f"the systematic {twice[0]!r} is found by several patterns; leave one of them out")
        found |= {one.name: one for one in own}
    return list(found.values())


def _of_branches(names: Sequence[str], pattern: str, marker: str) -> list[Variation]:
    """Systematics that varied copies of nominal branches are for."""
    regular = re.compile("".join(".*" if c == "*" else re.escape(c) for c in pattern))
    # What stands before and after the marker; the longest first, as jet_pt_up may be of jet_pt and of jet.
    ends = sorted({name.partition(marker)[::2] for name in names if regular.fullmatch(name)}, key=lambda e: -len(e[0]))
    sides: dict[str, dict[str, str]] = {}
    for name in names:
        fits = ((a, b) for a, b in ends if name.startswith(a) and name.endswith(b))
        before, after = next(fits, (name, ""))
        inside = name[len(before) : len(name) - len(after)]
        side = _SIDE.fullmatch(inside)
        if side is not None:
            sides.setdefault(side["stem"], {})[side["side"].lower()] = inside
    lone = [stem for stem, own in sides.items() if "up" not in own]
    if lone:
        raise InputError(f"the systematic {lone[0]!r} has branches for down and none for up")

    def change(inside: str | None) -> dict[str, Any] | None:
        return None if inside is None else {"varied": {pattern: pattern.replace(marker, inside)}}

    return [Variation(stem, change(own["up"]) or {}, change(own.get("down"))) for stem, own in sides.items()]


def _of_weights(names: Sequence[str], pattern: str, weight: str | None) -> list[Variation]:
    """Systematics that weight columns are for: they stand for a factor of the nominal weight, or for all of it."""
    regular = re.compile("".join("(.+?)" if c == "*" else re.escape(c) for c in pattern))
    there, used = frozenset(names), frozenset() if weight is None else Expression(weight, "weight").columns
    found = []
    for name in names:
        match, side = regular.fullmatch(name), _SIDE.fullmatch(name)
        if match is None or side is None:
            continue
        down = f"{side['stem']}{side['mark'] or ''}{_DOWN[side['side']]}"
        factor = next((f"{side['stem']}{word}" for word in _CENTRAL if f"{side['stem']}{word}" in used), None)
        up, other = (_exchange(weight, factor, each) for each in (name, down))
        found.append(Variation("_".join(match.groups()), {"weight": up}, {"weight": other} if down in there else None))
    return found


def _exchange(weight: str | None, factor: str | None, name: str) -> str:
    """A weight with one column in place of another, or of all of it."""
    if weight is None or factor is None or weight == factor:
        return name
    quoted = name if re.fullmatch(r"[A-Za-z_][\w.]*", name) else f"`{name}`"
    return re.sub(rf"`{re.escape(factor)}`|(?<![\w.`]){re.escape(factor)}(?![\w.`])", quoted, weight)


def load_variations(
    path: Paths | Mapping[str, Paths], nominal: Events, patterns: str | Sequence[str]
) -> dict[str, tuple[Events | Array, Events | Array | None]]:
    r"""Read the systematics of a whole ntuple, for ``fit(systematics=...)`` and `fivesigma.report`.

    Parameters
    ----------
    path
        The files, as in `load_events`.
    nominal : Events
        What `load_events` read of them.
    patterns : str or sequence of str
        Nominal branches as ``"*_NOSYS"`` (or nominal, nom): every ``*_NAME__1up`` is read in place of its ``*_NOSYS``,
        and the nominal branch where there is no varied one. Varied weights as ``"weight_*_up"``: each stands for the
        factor ``weight_NAME`` of the nominal weight, or for the whole weight if that has no such factor. Down is found
        by the same name with down; up, Up and UP are known.

    Returns
    -------
    dict of str to (up, down)
        By the names of the systematics: Events, or weights of the nominal events; None where there is no down. Events
        of files that lack a systematic are as the nominal ones.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from fivesigma.datasets import load_events, load_variations
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "events.csv"
    ...     _ = file.write_text("x,Weight,Weight_pu_up,Weight_pu_down,Label\n1,0.1,0.2,0.05,s\n2,2,2.2,1.9,b\n")
    ...     events = load_events(file)
    ...     load_variations(file, events, "Weight_*_up")
    {'pu': (array([0.2, 2.2]), array([0.05, 1.9 ]))}
    """
    asked = nominal.columns
    if asked is None:
        raise InputError("the nominal events were not read from files, so that no variations of them can be read")
    inputs, asked, _ = find_inputs(path, asked)
    nominals = [(item, item.open(), asked.of_process(item.process)) for item in inputs]
    names = list(dict.fromkeys(name for _, source, _ in nominals for name in source.names))
    # The same systematics for every weight: what differs is what stands for it.
    found = {own.weight: find_variations(names, patterns, own.weight) for _, _, own in nominals}

    def read(k: int, side: str) -> Events | Array:
        changes = {weight: getattr(variations[k], side) for weight, variations in found.items()}
        change = next(iter(changes.values()))
        if "weight" in change:
            varied = [replace(own, weight=changes[own.weight]["weight"]) for _, _, own in nominals]
            return _weights(nominals, varied, len(nominal))
        new = change["varied"]
        moved = [item._replace(varied=new if _varies(source, new) else {}) for item, source, _ in nominals]
        return EventStream.of_inputs(moved, asked).load()

    return {
        one.name: (read(k, "up"), None if one.down is None else read(k, "down"))
        for k, one in enumerate(next(iter(found.values())))
    }


def _varies(source: Source, varied: Mapping[str, str]) -> bool:
    """Whether a file has a branch that a variation changes."""
    try:
        Renamed(source, varied)
    except InputError:
        return False
    return True


def _weights(nominals: Sequence[tuple[Input, Source, Columns]], varied: Sequence[Columns], n: int) -> Array:
    """Varied weights of all events; nominal ones where files lack a column that the varied weight needs."""
    read = [
        (item, new if can_be_read(new.weight, source.names) else own)
        for (item, source, own), new in zip(nominals, varied, strict=True)
    ]
    parts = []
    for columns, group in groupby(read, key=itemgetter(1)):
        stream = EventStream.of_inputs([item for item, _ in group], columns)
        parts += [chunk.events.weight for chunk in stream.described()]
    weights = np.concatenate(parts)
    if weights.size != n:
        raise InputError(
            f"{weights.size:,} events have the weight {varied[0].weight!r}, and there are {n:,} nominal ones"
        )
    return weights
