"""Exact categories: the intervals of one score that maximise the combined significance."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fivesigma.categories.record import Categories
    from fivesigma.categories.search import categorise

__all__ = ["Categories", "categorise"]

_HOME = {"Categories": "record", "categorise": "search"}


def __getattr__(name: str) -> Any:
    # Lazily, because systematics use the tally of this package and are used by its search.
    if name in _HOME:
        return getattr(importlib.import_module(f"fivesigma.categories.{_HOME[name]}"), name)
    msg = f"module 'fivesigma.categories' has no attribute {name!r}"
    raise AttributeError(msg)
