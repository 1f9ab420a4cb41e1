"""Numbers in a text of LightGBM: all characters are looked at at once."""

from __future__ import annotations

import re

import numpy as np

from fivesigma._types import AnyArray
from fivesigma.store.checks.refusal import refuse_unless

_LONGEST, _LONGEST_WHOLE = 32, 18  # characters; so many digits fit in 64 bits
_TOO_LARGE = re.compile(rb"e\+?(30[1-9]|3[1-9]\d|[4-9]\d\d)|e[-+]?\d{4}")
# The lower four bits of a character say what it is: 1 a digit, 2 what follows a digit, 4 a minus, 8 a plus. The upper
# four say which of these may follow it. What is no part of a number is 0, and nothing may follow it or come before it.
_SPACE = 0x52
_CODES = {b"0123456789": 0x31, b" ": _SPACE, b"e": 0xD2, b".": 0x12, b"-": 0x14, b"+": 0x18}
_CODE = bytes(next((code for those, code in _CODES.items() if k in those), 0) for k in range(256))
_ALL_BUT_ORDER = bytes(set(range(256)) - set(b" .e"))
_WRONG_ORDER = (b"..", b"e.", b"ee")  # where digits and signs are left out


def check_numbers(tokens: bytes) -> AnyArray:
    """Refuse what is not numbers of few characters between single spaces.

    Parameters
    ----------
    tokens : bytes
        Text.

    Returns
    -------
    int array
        Where the spaces are, and the end of the text.
    """
    if not tokens:
        return np.zeros(0, dtype=np.int64)
    codes = np.frombuffer(b" ".join((b"", tokens, b"")).translate(_CODE), dtype=np.uint8)
    refuse_unless(((codes[:-1] >> 4) & codes[1:]).min(), "a line of numbers holds something else")
    if b"." in tokens or b"e" in tokens:
        marks = tokens.translate(None, _ALL_BUT_ORDER)
        wrong = _WRONG_ORDER if b"e" in marks else _WRONG_ORDER[:1]
        refuse_unless(not any(order in marks for order in wrong), "a line of numbers holds something else")
        refuse_unless(b"e" not in marks or not _TOO_LARGE.search(tokens), "a number is too large")
    spaces = np.flatnonzero(codes[1:] == _SPACE)
    refuse_unless(np.diff(spaces, prepend=-1).max() <= _LONGEST + 1, "a number is too large")
    return spaces


def whole_numbers(tokens: bytes, spaces: AnyArray, what: str) -> AnyArray:
    """Read whole numbers between single spaces, or refuse them.

    Parameters
    ----------
    tokens : bytes
        Text that `check_numbers` let pass.
    spaces : int array
        What it gave.
    what : str
        Name of the numbers, for the error.

    Returns
    -------
    int array
    """
    refuse_unless(b"." not in tokens and b"e" not in tokens, f"{what} is not made of whole numbers")
    lengths = np.diff(spaces, prepend=-1) - 1
    refuse_unless(lengths.max(initial=0) <= _LONGEST_WHOLE, f"a number in {what} is too large")
    return np.fromstring(tokens.decode(), dtype=np.int64, sep=" ") if tokens else np.zeros(0, dtype=np.int64)


def infinities_replaced(tokens: bytes) -> bytes:
    """Give numbers of the same length for infinities, which as a threshold part missing values from all others.

    Parameters
    ----------
    tokens : bytes
        Text.

    Returns
    -------
    bytes
    """
    padded = b" " + tokens + b" "
    at = padded.find(b"inf")
    while at >= 0:
        whole = (padded[at - 1 : at] == b" " or padded[at - 2 : at] == b" -") and padded[at + 3 : at + 4] == b" "
        refuse_unless(whole, "a line of numbers holds something else")
        at = padded.find(b"inf", at + 3)
    return tokens.replace(b"inf", b"111")
