"""How a check says no."""

from __future__ import annotations

from typing import Any


class UncheckedError(Exception):
    """Content that a check does not know or that cannot be right; the store makes a sentence of it."""


def refuse_unless(condition: Any, why: str) -> None:
    """Raise `UncheckedError` with a reason unless a condition holds."""
    if not condition:
        raise UncheckedError(why)
