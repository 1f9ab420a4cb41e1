"""What a Parquet file says about its pages, looked at before polars, which a wrong number of values can kill.

The footer and the head of every page are structures of Thrift in its compact form; the fields are those of Parquet's
own definition (``parquet.thrift``). Sizes and counts must fit each other and the file; values are not looked at.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

from fivesigma.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["check_pages"]

_MARK = b"PAR1"
_DEEPEST = 30
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_VALUES = {_DATA_PAGE: 5, _DICTIONARY_PAGE: 7, _DATA_PAGE_V2: 8}  # field of the head that has the number of values
_REPEATED = 2

Struct = dict[int, Any]


class _DamagedError(Exception):
    """Content that cannot be right."""


def check_pages(path: Path) -> None:
    """Refuse a Parquet file whose footer or heads of pages cannot be right.

    Parameters
    ----------
    path : Path
        File; one without the marks of Parquet is left to the reader.

    Raises
    ------
    InputError
        If counts or sizes do not fit.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        length = int.from_bytes(content[-8:-4], "little")
        if len(content) < 12 or content[:4] != _MARK or content[-4:] != _MARK or length > len(content) - 12:
            return  # the reader says what is wrong
        try:
            _check(content, len(content) - 8 - length)
        except (_DamagedError, IndexError) as err:
            why = str(err) if isinstance(err, _DamagedError) else "a part of it ends too early"
            raise InputError(f"cannot read {path.name}: {why}; the file may be damaged or truncated") from err


def _check(content: mmap.mmap, footer: int) -> None:
    meta = _Thrift(content, footer).struct()
    repeated = _repeated_columns(_list(meta, 2))
    groups = _list(meta, 4)
    if sum(_count(group, 3) for group in groups) != _count(meta, 3):
        raise _DamagedError("its row groups have not the rows that its footer says")
    walked = 0
    for group in groups:
        chunks = _list(group, 1)
        if len(chunks) != len(repeated):
            raise _DamagedError("a row group has not all columns")
        for chunk, several in zip(chunks, repeated, strict=True):
            column = _struct(chunk, 3)
            n = _count(column, 5)
            if not several and n != _count(group, 3):
                raise _DamagedError("a column has not one value for each row")
            if n:  # else there are no pages
                start = min((_count(column, key) for key in (9, 11) if column.get(key)), default=0)
                walked += _check_chunk(content, start, footer, n) - start
                if walked > footer:  # or a small file could ask for very many steps
                    raise _DamagedError("several columns have the same pages")


def _check_chunk(content: mmap.mmap, at: int, end: int, n_values: int) -> int:
    """Walk from page to page until all values of a column were there; return where the last one ends."""
    left = n_values
    while left > 0:
        if not 4 <= at < end:
            raise _DamagedError("a page is not within the file")
        reader = _Thrift(content, at)
        head = reader.struct()
        kind, unpacked, size = _count(head, 1), _count(head, 2), _count(head, 3)
        at = reader.at + size
        if kind in _VALUES:
            page = _struct(head, _VALUES[kind])
            n = _count(page, 1)
            if kind == _DATA_PAGE_V2 and _count(page, 5) + _count(page, 6) > size:
                raise _DamagedError("the levels of a page are longer than the page")
            if kind != _DICTIONARY_PAGE:
                left -= n
            elif n > unpacked:
                raise _DamagedError("a dictionary has more values than bytes")
    if left < 0 or at > end:
        raise _DamagedError("a page has more values or bytes than its column")
    return at


def _repeated_columns(schema: list[Struct]) -> list[bool]:
    """Whether each column may have several values per row; elements come depth first, parents with their children."""
    found: list[bool] = []
    open_parents = [(1, False)]  # children that are still to come, and whether the parent is repeated
    for element in schema:
        while open_parents and open_parents[-1][0] == 0:
            open_parents.pop()
        if not open_parents:
            raise _DamagedError("its schema has elements without a parent")
        left, above = open_parents.pop()
        open_parents.append((left - 1, above))
        repeated = above or element.get(3) == _REPEATED
        children = _count(element, 5) if 5 in element else 0
        if children:
            open_parents.append((children, repeated))
        else:
            found.append(repeated)
    return found if schema and _count(schema[0], 5) else []


def _count(fields: Struct, key: int) -> int:
    value = fields.get(key)
    if type(value) is not int or value < 0:
        raise _DamagedError("a count or a size in it is missing or negative")
    return value


def _struct(fields: Struct, key: int) -> Struct:
    value = fields.get(key)
    if not isinstance(value, dict):
        raise _DamagedError("a part of its footer or of a page is missing")
    return value


def _list(fields: Struct, key: int) -> list[Struct]:
    value = fields.get(key)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise _DamagedError("a part of its footer is missing")
    return value


class _Thrift:
    """Reads structures of Thrift's compact protocol."""

    def __init__(self, content: mmap.mmap, at: int) -> None:
        self._content = content
        self.at = at

    def struct(self, depth: int = 0) -> Struct:
        """Read the fields of a structure by their numbers."""
        fields: Struct = {}
        key = 0
        while True:
            head = self._content[self.at]
            self.at += 1
            if head == 0:
                return fields
            key = key + (head >> 4) if head >> 4 else self._number()
            kind = head & 15
            fields[key] = kind == 1 if kind in (1, 2) else self._value(kind, depth)

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (4, 5, 6):
            return self._number()
        if depth > _DEEPEST:
            raise _DamagedError("its footer is nested too deeply")
        if kind == 12:
            return self.struct(depth + 1)
        if kind in (1, 2, 3, 7):
            return self._bytes(8 if kind == 7 else 1)
        if kind == 8:
            return self._bytes(self._varint())
        if kind in (9, 10):
            head = self._bytes(1)[0]
            n = head >> 4 if head >> 4 < 15 else self._varint()
            self._demand(n)
            return [self._value(head & 15, depth + 1) for _ in range(n)]
        raise _DamagedError("its footer or the head of a page holds a type that Parquet does not use")

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._content[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise _DamagedError("a number in it is too long")

    def _number(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _bytes(self, n: int) -> bytes:
        self._demand(n)
        self.at += n
        return self._content[self.at - n : self.at]

    def _demand(self, n: int) -> None:
        """Whatever it is, it takes a byte at least."""
        if n > len(self._content) - self.at:
            raise _DamagedError("a part of it is longer than the file")
