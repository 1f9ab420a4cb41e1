"""Yields so far apart that no digits are left: one sentence instead of NaN."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from fivesigma.errors import InputError


@contextmanager
def enough_digits() -> Iterator[None]:
    """Refuse what cannot be computed; used as a decorator of the functions that profile.

    Examples
    --------
    >>> import numpy as np
    >>> from fivesigma.likelihood.digits import enough_digits
    >>> with enough_digits():
    ...     np.log(np.zeros(1))
    Traceback (most recent call last):
    fivesigma.errors.InputError: the uncertainties of the background cannot be profiled with these weights: ...
    """
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            yield
    except (FloatingPointError, np.linalg.LinAlgError) as err:
        raise InputError(
            "the uncertainties of the background cannot be profiled with these weights: yields that differ by many "
            "orders of magnitude leave no digits; check the units of the weights"
        ) from err
