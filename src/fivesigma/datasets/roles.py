"""Which column plays which part: features, label, weight, process, identifier."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from fivesigma.errors import InputError, did_you_mean
from fivesigma.yields.labels import KNOWN_PAIRS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from fivesigma.datasets.cutstring import Cut

__all__ = ["NEVER_FEATURES", "Kind", "Roles", "Source", "choose_roles", "known_signal", "matches", "require"]

#: How a column is read: a feature, a weight, or as it stands in the source (labels, ids, processes).
Kind = Literal["float32", "float64", "value"]

#: Patterns that are no features unless they are asked for by name.
NEVER_FEATURES = ("EventId", "Label", "Weight", "Process", "Kaggle*")


class Source(Protocol):
    """One file or one object in memory: its columns, and a way to read some of them."""

    @property
    def name(self) -> str:
        """What error messages call it."""

    @property
    def names(self) -> Sequence[str]:
        """All columns, in order."""

    @property
    def numbers(self) -> Sequence[str]:
        """The columns that hold one number an event, in order."""

    def read(self, kinds: Mapping[str, Kind]) -> dict[str, NDArray[Any]]:
        """Read columns; numbers get NaN for empty cells, values may not be empty."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The columns to read."""

    features: tuple[str, ...]
    label: str | None
    weight: str | None
    process: str | None
    ids: str | None
    left_out: tuple[str, ...] = ()

    @property
    def others(self) -> tuple[str, ...]:
        """Label, process and identifier, those that there are."""
        return tuple(name for name in (self.label, self.process, self.ids) if name is not None)

    def kinds(self, source: Source, cut: Cut | None) -> dict[str, Kind]:
        """How each column of `source` is to be read; every one must be there."""
        kinds: dict[str, Kind] = dict.fromkeys(self.features, "float32")
        for name in () if cut is None else cut.columns:
            require(name, source)
            kinds[name] = "float64" if name in source.numbers else "value"
        kinds |= dict.fromkeys(self.others, "value")
        if self.weight is not None:
            kinds[self.weight] = "float64"
        for name in kinds:
            require(name, source)
        return kinds


def require(name: str, source: Source) -> None:
    """Refuse a column that `source` does not have, with the nearest names."""
    if name not in source.names:
        hint = did_you_mean(name, source.names) or f" It has {_listed(source.names)}."
        raise InputError(f"No column {name!r} in {source.name}.{hint}")


def choose_roles(
    source: Source,
    *,
    features: str | Sequence[str] | None,
    label: str | None,
    weight: str | None,
    process: str | None,
    ids: str | None,
) -> Roles:
    """Settle which column is what, from the first source."""
    if ids == "auto":
        ids = "EventId" if "EventId" in source.names else None
    taken = {name: role for role, name in _named(label=label, weight=weight, process=process, id=ids)}
    for name in taken:
        require(name, source)
    left_out: tuple[str, ...] = ()
    if features is None:
        free = [name for name in source.names if name not in taken and not matches(name, NEVER_FEATURES)]
        chosen = [name for name in free if name in source.numbers]
        left_out = tuple(name for name in free if name not in source.numbers)
    else:
        chosen = _expand([features] if isinstance(features, str) else list(features), source, taken)
    if not chosen:
        msg = f"No feature is left in {source.name}: name number columns with features=."
        raise InputError(msg)
    return Roles(tuple(chosen), label, weight, process, ids, left_out)


def _expand(patterns: list[str], source: Source, taken: Mapping[str, str]) -> list[str]:
    """Turn names and glob patterns into names, each once, in the order asked for."""
    chosen: dict[str, None] = {}
    for pattern in patterns:
        if pattern in taken:
            msg = f"Column {pattern!r} is the {taken[pattern]} and cannot be a feature as well."
            raise InputError(msg)
        if pattern in source.names or not any(mark in pattern for mark in "*?["):
            require(pattern, source)
            chosen[pattern] = None
            continue
        found = [name for name in source.numbers if name not in taken and fnmatch.fnmatchcase(name, pattern)]
        if not found:
            msg = f"No number column of {source.name} matches {pattern!r}; it has {_listed(source.numbers)}."
            raise InputError(msg)
        chosen |= dict.fromkeys(found)
    return list(chosen)


def known_signal(labels: Sequence[Any], signal: Any, where: str) -> Any:
    """Return the label of `labels` that means signal, or refuse to guess."""
    if signal is not None:
        # The command line has text only, so '1' finds the number 1.
        for match in (lambda label: label == signal, lambda label: str(label) == str(signal)):
            found = [label for label in labels if match(label)]
            if found:
                return found[0]
        msg = f"No event in {where} has the signal label {signal!r}; the labels are {_listed(labels)}."
        raise InputError(msg)
    plain = {label.casefold() if isinstance(label, str) else label: label for label in labels}
    for first, second in KNOWN_PAIRS:
        if set(plain) == {first, second}:
            return plain[first]
    msg = f"Which of the labels {_listed(labels)} in {where} is signal? Say it with signal=."
    raise InputError(msg)


def _named(**roles: str | None) -> list[tuple[str, str]]:
    return [(role, name) for role, name in roles.items() if name is not None]


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of the glob patterns matches."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _listed(items: Sequence[Any], most: int = 12) -> str:
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(map(repr, items[:most])) + more
