"""What a library says of features that it cannot use, as one sentence that names the column."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fivesigma._types import AnyArray
from fivesigma.errors import FivesigmaError, InputError, shortened
from fivesigma.learners.libraries import LIBRARIES

_SINGLE = float(np.finfo(np.float32).max)
_SQUARABLE = 1e150  # of what is larger, no learner can form the variance
_NO_BINS = "window shape cannot be larger"  # what scikit-learn's binning says of a column without values


@contextmanager
def explain_errors(X: Any, names: AnyArray | None) -> Iterator[None]:
    """Turn an error of a boosting library into one of ours, at no cost while there is none."""
    try:
        yield
    except FivesigmaError:
        raise
    except Exception as err:
        library = type(err).__module__.partition(".")[0]
        empty = _NO_BINS in str(err)
        own = library not in LIBRARIES and not empty  # a learner of the user's, whose errors are the user's to see
        problem = _column(X, names, empty=empty, largest=_SQUARABLE if own else _SINGLE)
        if problem is None:
            if own:
                raise
            lines = [line for line in str(err).splitlines() if line.strip()] or [type(err).__name__]
            said = re.sub(r"^\[[\d:]+\] \S+ ", "", lines[0]).rstrip(".")
            problem = (
                "a feature has no value in the events of one split; leave it out"
                if empty
                else f"{library} cannot use these events: {shortened(said, 200)}"
            )
        raise InputError(problem) from err


def _column(X: Any, names: AnyArray | None, *, empty: bool, largest: float) -> str | None:
    """Say which column has no value, or one that is too large."""
    for k in range(X.shape[1]):
        try:
            column = np.asarray(X.iloc[:, k] if hasattr(X, "iloc") else X[:, k], dtype=np.float64)
        except (TypeError, ValueError):  # text, categories, a sparse column
            continue
        name = f"feature {k}" if names is None else f"feature {str(names[k])!r}"
        if empty and np.isnan(column).all():
            return f"{name} has no value in any event; leave it out"
        beyond = np.abs(column) > largest
        if not empty and beyond.any():
            row = int(np.argmax(beyond))
            return (
                f"{name} is {column[row]:g} in row {row}, and the learner takes at most {largest:.2g} in size: mark it "
                "as missing, or scale the feature"
            )
    return None
