"""What can go wrong, and the builtin that a caller would catch for it."""

from __future__ import annotations

import difflib
from numbers import Real
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = [
    "DuplicatedEventsWarning",
    "FivesigmaError",
    "InputError",
    "MissingExtraError",
    "SmallSampleWarning",
    "StoreError",
    "TrainingEventsWarning",
]


class FivesigmaError(Exception):
    """Base of every error that fivesigma raises on purpose."""


class InputError(FivesigmaError, ValueError):
    """A value, a column or a file that cannot be used; the message says which and what to do."""


class MissingExtraError(FivesigmaError, ModuleNotFoundError):
    """An optional library is not installed; the message holds the install line."""


class StoreError(InputError):
    """A model that cannot be saved, or a saved model that cannot be loaded."""


class SmallSampleWarning(UserWarning):
    """Too few effective events for the number to be believed without care."""


class DuplicatedEventsWarning(UserWarning):
    """Held-out events have copies among the events that are trained on."""


class TrainingEventsWarning(UserWarning):
    """A significance is quoted on events that the model was trained on."""


def is_number(value: object) -> bool:
    """Whether a user's parameter is a number; True and False are not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest known names, or an empty string."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(shortened(repr(n)) for n in near)}?" if near else ""


def require_known(name: object, known: Collection[str], sentence: str) -> None:
    """Refuse a name that is not known, with the nearest ones or all."""
    if name not in known:
        hint = did_you_mean(str(name), known) or f"; there are {', '.join(map(repr, known))}"
        raise InputError(f"{sentence}{hint}")


def shortened(text: str, most: int = 80) -> str:
    """Text that fits into a message."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
