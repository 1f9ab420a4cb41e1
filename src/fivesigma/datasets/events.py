"""Weighted events in memory: one small record that everything else reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fivesigma.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

__all__ = ["Events"]


@dataclass(frozen=True, eq=False, repr=False, slots=True, kw_only=True)
class Events:
    """Events with their labels and expected yields.

    Make them with `load_events`, `from_frame`, `from_arrays` or `make_htautau`, which check what they are
    given; the constructor does not.

    Parameters
    ----------
    X : float32 array of shape (n_events, n_features)
        Features, NaN where missing.
    y : array of shape (n_events,)
        Labels as they stand in the source; None throughout if the source had no labels.
    weight : float64 array of shape (n_events,)
        Expected yield of each event, never rescaled.
    signal : object
        The label that means signal, None without labels.
    feature_names : tuple of str
        One name a column of `X`.
    process : array of shape (n_events,), optional
        What each event was simulated as.
    ids : array of shape (n_events,), optional
        Unique identifiers.
    notes : tuple of str
        What was left out or changed on the way in, a sentence each.

    Examples
    --------
    >>> from fivesigma.datasets import from_arrays
    >>> events = from_arrays([[1.0], [2.0], [-999.0]], ["s", "b", "b"], [0.5, 2.0, 4.0])
    >>> events
    Events: 3 rows, 1 feature, signal 's'
                   rows     sum of weights    effective
    s                 1                0.5          1.0
    b                 2                  6          1.8
    >>> events[events.is_signal].weight
    array([0.5])
    """

    X: NDArray[np.float32]
    y: NDArray[Any]
    weight: NDArray[np.float64]
    signal: Any
    feature_names: tuple[str, ...]
    process: NDArray[Any] | None = None
    ids: NDArray[Any] | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, rows: int | slice | Sequence[int] | NDArray[Any]) -> Events:
        """Select the events of a mask, a slice or row numbers, with their weights as they are."""
        if isinstance(rows, int | np.integer):
            rows = [int(rows)]
        return replace(
            self,
            X=self.X[rows],
            y=self.y[rows],
            weight=self.weight[rows],
            process=None if self.process is None else self.process[rows],
            ids=None if self.ids is None else self.ids[rows],
        )

    @property
    def labelled(self) -> bool:
        """Whether the events have labels."""
        return self.signal is not None

    @property
    def is_signal(self) -> NDArray[np.bool_]:
        """True where an event is signal."""
        if not self.labelled:
            msg = "These events have no labels: load them with label= set to the column that holds them."
            raise InputError(msg)
        return np.asarray(self.y == self.signal, dtype=bool)

    def column(self, name: str) -> NDArray[np.float32]:
        """Return one feature by name."""
        if name not in self.feature_names:
            hint = did_you_mean(name, self.feature_names)
            raise InputError(f"No feature {name!r} among {len(self.feature_names)}.{hint}")
        return self.X[:, self.feature_names.index(name)]

    def table(self, names: Sequence[str] | None = None) -> NDArray[np.float32]:
        """Features in the order of `names`, as they are without."""
        if names is None or tuple(names) == self.feature_names:
            return self.X
        place = {name: j for j, name in enumerate(self.feature_names)}
        for name in names:
            if name not in place:
                raise InputError(f"the events have no feature {name!r}.{did_you_mean(name, self.feature_names)}")
        return self.X[:, [place[name] for name in names]]

    def __repr__(self) -> str:
        n_features = len(self.feature_names)
        head = f"Events: {len(self):,} rows, {n_features} feature{'s' * (n_features != 1)}"
        head += f", signal {self.signal!r}" if self.labelled else ", no labels"
        rows = list(self._yields())
        width = max(8, *(len(name) for name, _ in rows))
        table = [f"{'':{width}} {'rows':>10} {'sum of weights':>18} {'effective':>12}"]
        for name, w in rows:
            table.append(f"{name:{width}} {len(w):>10,} {w.sum():>18,.8g} {_effective_count(w):>12,.1f}")
        return "\n".join([head, *table, *(f"note: {note}" for note in self.notes)])

    def _yields(self) -> Iterator[tuple[str, NDArray[np.float64]]]:
        """Each line of the table: signal, its processes, background, its processes."""
        classes: list[tuple[str, NDArray[Any]]] = [("all", np.ones(len(self), dtype=bool))]
        if self.labelled:
            signal = self.is_signal
            others = [label for label in np.unique(self.y).tolist() if label != self.signal]
            classes = [(str(self.signal), signal), (str(others[0]) if len(others) == 1 else "other", ~signal)]
        for name, mask in classes:
            yield name, self.weight[mask]
            if self.process is not None:
                for process in np.unique(self.process[mask]).tolist():
                    yield f"  {process}", self.weight[mask & (self.process == process)]


def _effective_count(weight: NDArray[np.float64]) -> float:
    """How many events of equal weight are as good as these: (sum w)^2 / sum w^2."""
    if not weight.any():
        return 0.0
    scaled = weight / np.abs(weight).max()  # so that no square overflows
    return float(scaled.sum() ** 2 / np.square(scaled).sum())
