"""A strict reader of UBJSON, of those markers only that XGBoost writes.

Typed arrays are not copied: a `Span` says where their bytes are. A text has one reading only: no key twice, nothing
after the end, no length beyond the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from fivesigma._types import AnyArray
from fivesigma.store.checks.refusal import UncheckedError

Reader = Callable[[bytes, int], tuple[Any, int]]  # of a value at a place; returns it and the place after it

_DEEPEST = 12
_LENGTH = Struct(">q")
_NUMBERS = {
    marker: Struct(code)
    for marker, code in ((b"i", ">b"), (b"U", ">B"), (b"I", ">h"), (b"l", ">i"), (b"L", ">q"), (b"d", ">f"))
}
_CONSTANTS = {b"T": ("true",), b"F": ("false",), b"Z": ("null",)}  # in settings only; equal to no number
DTYPES = {b"i": ">i1", b"U": ">u1", b"l": ">i4", b"L": ">i8", b"d": ">f4"}


class Span(NamedTuple):
    """A typed array in the bytes of a text."""

    marker: bytes
    start: int
    stop: int

    def of(self, text: bytes) -> AnyArray:
        """Its values."""
        return np.frombuffer(text[self.start : self.stop], dtype=DTYPES[self.marker])


def read_ubjson(text: bytes, special: Mapping[bytes, Reader]) -> Any:
    """Read a whole text: objects as dicts by bytes, strings as str, typed arrays as `Span`.

    Parameters
    ----------
    text : bytes
    special : mapping of bytes to callable
        Readers of the values of some keys.
    """
    value, stop = read_value(text, 0, special)
    if stop != len(text):
        raise UncheckedError(f"{len(text) - stop} bytes stand after its end")
    return value


def read_length(text: bytes, at: int) -> int:
    """Read the marker "L" and the length after it; as many bytes must be left."""
    if text[at : at + 1] != b"L" or at + 9 > len(text):
        raise UncheckedError(f"no length is at byte {at}")
    (n,) = _LENGTH.unpack_from(text, at + 1)
    if not 0 <= n <= len(text) - at - 9:
        raise UncheckedError(f"the length at byte {at} is {n}, beyond its end")
    return int(n)


def read_value(text: bytes, at: int, special: Mapping[bytes, Reader], depth: int = 0) -> tuple[Any, int]:
    """Read the value at a place; return it and the place after it."""
    if depth > _DEEPEST:
        raise UncheckedError(f"it is nested deeper than {_DEEPEST}")
    marker = text[at : at + 1]
    if marker == b"{":
        return _object(text, at + 1, special, depth + 1)
    if text[at : at + 2] == b"[$":
        return _typed_array(text, at + 2)
    if text[at : at + 2] == b"[#":
        return _array(text, at + 2, special, depth + 1)
    if marker == b"S":
        n = read_length(text, at + 1)
        return _decoded(text[at + 10 : at + 10 + n]), at + 10 + n
    if marker in _CONSTANTS:
        return _CONSTANTS[marker], at + 1
    number = _NUMBERS.get(marker)
    if number is None or at + 1 + number.size > len(text):
        raise UncheckedError(f"the marker at byte {at} is {marker!r}, which XGBoost does not write")
    return number.unpack_from(text, at + 1)[0], at + 1 + number.size


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise UncheckedError("a string in it is not UTF-8") from None


def _object(text: bytes, at: int, special: Mapping[bytes, Reader], depth: int) -> tuple[dict[bytes, Any], int]:
    found: dict[bytes, Any] = {}
    while text[at : at + 1] != b"}":
        n = read_length(text, at)
        key = text[at + 9 : at + 9 + n]
        if key in found:
            raise UncheckedError(f"the key {key[:40]!r} stands in it twice")
        at += 9 + n
        found[key], at = special[key](text, at) if key in special else read_value(text, at, special, depth)
    return found, at + 1


def _array(text: bytes, at: int, special: Mapping[bytes, Reader], depth: int) -> tuple[list[Any], int]:
    n = read_length(text, at)
    at += 9
    items = []
    for _ in range(n):
        item, at = read_value(text, at, special, depth)
        items.append(item)
    return items, at


def _typed_array(text: bytes, at: int) -> tuple[Span, int]:
    marker = text[at : at + 1]
    if marker not in DTYPES or text[at + 1 : at + 2] != b"#":
        raise UncheckedError(f"the array at byte {at} has a type that XGBoost does not write")
    n, start = read_length(text, at + 2), at + 11
    stop = start + n * np.dtype(DTYPES[marker]).itemsize
    if stop > len(text):
        raise UncheckedError(f"the array at byte {at} has {n} items, beyond its end")
    return Span(marker, start, stop), stop
