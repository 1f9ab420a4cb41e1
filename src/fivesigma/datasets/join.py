"""Events of several sources as one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fivesigma.datasets.columns import join_parts, some
from fivesigma.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fivesigma.datasets.events import Events

__all__ = ["joined"]


def joined(parts: list[Events]) -> Events:
    """Join events as `Events.concatenate` says."""
    if not parts:
        raise InputError("there are no events to join")
    first, notes = parts[0], []
    for number, part in enumerate(parts, start=1):
        _refuse_unlike(first, part, number)
    values: dict[str, Any] = {"X": np.concatenate([part.table(first.feature_names) for part in parts])}
    for name in first.PER_EVENT[1:]:
        columns = [getattr(part, name) for part in parts]
        if all(column is not None for column in columns):
            values[name] = _stacked(name, columns)
        elif any(column is not None for column in columns):
            values[name] = None
            notes.append(f"The column {name} is dropped, because not all of the joined events have it.")
    ids = values.get("ids")
    if ids is not None and np.unique(ids).size < ids.size:
        values["ids"] = None
        notes.append("The identifiers are dropped, because they are not unique in the joined events.")
    if first.labelled:
        others = values["y"][values["y"] != first.signal]
        if others.size and (others != others[0]).any():
            raise InputError(
                f"the joined events have the background labels {some(np.unique(others).tolist())}; one is needed"
            )
    names = dict.fromkeys(name for part in parts for name in part.kept)
    kept = [name for name in names if all(name in part.kept for part in parts)]
    notes += [
        f"The kept column {name} is dropped, because not all of the joined events have it."
        for name in names
        if name not in kept
    ]
    same = all(part.columns == first.columns for part in parts)
    return replace(
        first,
        **values,
        kept={name: _stacked(name, [part.kept[name] for part in parts]) for name in kept},
        columns=first.columns if same else None,
        notes=tuple(dict.fromkeys([*(note for part in parts for note in part.notes), *notes])),
    )


def _stacked(name: str, columns: list[NDArray[Any]]) -> NDArray[Any]:
    return join_parts(name, [(f"part {number}", column) for number, column in enumerate(columns, start=1)])


def _refuse_unlike(first: Events, part: Events, number: int) -> None:
    """Say why a part cannot be joined to the first."""
    if type(part) is not type(first):
        raise InputError(f"part {number} must be {type(first).__name__} like the first, got {type(part).__name__}")
    unlike = set(first.feature_names) ^ set(part.feature_names)
    if unlike:
        raise InputError(
            f"part {number} and the first have other features: only one of them has {some(sorted(unlike))}"
        )
    if first.labelled != part.labelled:
        raise InputError(f"part {number} has {'no ' * (not part.labelled)}labels, unlike the first")
    if first.labelled and not first.signal == part.signal:
        raise InputError(f"part {number} has the signal label {part.signal!r}, but the first has {first.signal!r}")
