"""The header of an array in NumPy's format against its length; nothing is allocated on the word of the header alone."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fivesigma.store.checks.refusal import UncheckedError, refuse_unless


def read_header(content: bytes, may_be: Callable[[str], Any] = bool) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Return shape, order, type and start of the values of an array, which must be as many as the header says.

    Parameters
    ----------
    content : bytes
    may_be : callable
        Whether an array may be of a type, by the text that NumPy has for it.
    """
    stream = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):
            raise UncheckedError(f"it has NumPy's format {version}, which no model needs")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    except ValueError as err:
        raise UncheckedError(f"it is no array of NumPy: {str(err).splitlines()[0][:100]}") from None
    start, count = stream.tell(), math.prod(shape)
    refuse_unless(not dtype.hasobject and may_be(dtype.str), f"it is of {str(dtype)[:40]}, which no model needs")
    refuse_unless(all(n >= 0 for n in shape) and len(shape) <= 8, f"it does not hold an array of shape {shape}")
    refuse_unless(dtype.itemsize > 0 or count == 0, f"it holds {count} values of no size")
    refuse_unless(
        count * dtype.itemsize == len(content) - start, f"it does not hold the {count} values that its header says"
    )
    return shape, fortran, dtype, start
