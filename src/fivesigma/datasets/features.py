"""The table of features, filled while files are read: no column is held twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fivesigma.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["FeatureTable"]

# Rows copied from columns to the table at a time: a piece that stays in the processor's cache.
_PIECE = 1_024
_GROWTH = 1.25


class FeatureTable:
    """Rows of float32 features that grow at the end.

    Parameters
    ----------
    names : sequence of str
    missing : float, optional
        Code that becomes NaN.

    Attributes
    ----------
    n_rows, n_empty : int
        Rows so far, and how many of their values were NaN in the source.
    """

    def __init__(self, names: Sequence[str], missing: float | None) -> None:
        self.names = tuple(names)
        self.missing = missing
        self.n_rows = self.n_empty = 0
        self._rows = np.empty((0, len(self.names)), dtype=np.float32)

    def add(self, columns: Mapping[str, NDArray[Any]], where: Callable[[int], str]) -> None:
        """Append rows; `where` names a row of these columns in an error."""
        n = len(columns[self.names[0]])
        if self.n_rows + n > len(self._rows):
            self._resize(max(self.n_rows + n, int(_GROWTH * self.n_rows)))
        for first in range(0, n, _PIECE):
            last = min(first + _PIECE, n)
            piece = self._rows[self.n_rows + first : self.n_rows + last]
            with np.errstate(over="ignore"):  # too large for float32 is infinite, and refused below
                for j, name in enumerate(self.names):
                    piece[:, j] = _numbers(columns[name][first:last])
            self.n_empty += int(np.isnan(piece).sum())
            if self.missing is not None:
                piece[piece == np.float32(self.missing)] = np.nan
            infinite = np.isinf(piece)
            if infinite.any():
                i, j = np.argwhere(infinite)[0]
                raise InputError(
                    f"column {self.names[j]!r} is infinite (or too large for float32) in {where(first + int(i))}: mark "
                    "it as missing, or leave the column out"
                )
        self.n_rows += n

    def finished(self) -> NDArray[np.float32]:
        """All rows; nothing can be added any more."""
        self._resize(self.n_rows)
        return self._rows

    def _resize(self, n_rows: int) -> None:
        # The memory is moved by the system, not copied; nobody else refers to it yet.
        self._rows.resize((n_rows, len(self.names)), refcheck=False)


def _numbers(column: NDArray[Any]) -> NDArray[Any]:
    """A column that is kept as well may hold anything; what is no number is refused when it is checked as a whole."""
    if column.dtype.kind in "biuf":
        return column
    return np.full(len(column), np.nan)
