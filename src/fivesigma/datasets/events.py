"""Weighted events in memory: one small record that everything else reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fivesigma._tools.summary import Shown, Summary, digits
from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.datasets.columns import Columns, join_parts, some
from fivesigma.datasets.folds import fold_numbers, hash_rows, stratified_part
from fivesigma.errors import InputError, did_you_mean, is_number
from fivesigma.yields import effective_count


@dataclass(frozen=True, eq=False, repr=False, slots=True, kw_only=True)
class Events(Shown):
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
        Expected yield of each event; indexing never rescales it, `split` and `scaled_to` do.
    signal : object
        The label that means signal, None without labels.
    feature_names : tuple of str
        One name per column of `X`.
    process : array of shape (n_events,), optional
        What each event was simulated as.
    ids : array of shape (n_events,), optional
        Unique identifiers.
    kept : mapping of str to array of shape (n_events,)
        Columns that are kept in their own type, not as features.
    columns : Columns, optional
        How the events were read; None if they were not read from columns.
    notes : tuple of str
        What was left out or changed on the way in, one sentence each.

    Examples
    --------
    >>> from fivesigma.datasets import from_arrays
    >>> events = from_arrays([[1.0], [2.0], [-999.0]], ["s", "b", "b"], [0.5, 2.0, 4.0])
    >>> events
    Events: 3 rows, 1 feature, signal 's'
       rows  sum of weights  effective
    s     1             0.5        1.0
    b     2               6        1.8
    >>> events[events.is_signal].weight
    array([0.5])
    """

    X: NDArray[np.float32]
    y: AnyArray
    weight: Array
    signal: Any
    feature_names: tuple[str, ...]
    process: AnyArray | None = None
    ids: AnyArray | None = None
    kept: Mapping[str, AnyArray] = field(default_factory=dict)
    columns: Columns | None = None
    notes: tuple[str, ...] = ()

    #: Fields with one row per event, beside the kept columns.
    PER_EVENT: ClassVar[tuple[str, ...]] = ("X", "y", "weight", "process", "ids")

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, rows: int | slice | Sequence[int] | AnyArray) -> Self:
        """Select the events of a mask, a slice or row numbers, with their weights as they are."""
        if isinstance(rows, int | np.integer):
            rows = [int(rows)]
        there = {name: getattr(self, name) for name in self.PER_EVENT}
        chosen = {name: values[rows] for name, values in there.items() if values is not None}
        return replace(self, **chosen, kept={name: values[rows] for name, values in self.kept.items()})

    @property
    def labelled(self) -> bool:
        """Whether the events have labels."""
        return self.signal is not None

    @property
    def is_signal(self) -> BoolArray:
        """True where an event is signal."""
        if not self.labelled:
            raise InputError("these events have no labels: name their column with label= or --label when reading")
        return np.asarray(self.y == self.signal, dtype=bool)

    def column(self, name: str) -> NDArray[np.float32]:
        """Return one feature by name."""
        return self.table([name])[:, 0]

    def table(self, names: Sequence[str] | AnyArray | None = None) -> NDArray[np.float32]:
        """Return the features in a given order.

        Parameters
        ----------
        names : sequence of str, optional
            Feature names, such as those that a model was trained with; without them, `X` as it is.

        Returns
        -------
        float32 array of shape (n_events, n_names)
        """
        if names is None or tuple(names) == self.feature_names:
            return self.X
        place = {name: j for j, name in enumerate(self.feature_names)}
        for name in names:
            if name not in place:
                known = did_you_mean(str(name), place) or f"; there are {some(self.feature_names)}"
                raise InputError(f"no feature {str(name)!r} among the {len(place)} of these events{known}")
        return self.X[:, [place[name] for name in names]]

    def split(self, fraction: float, *, random_state: Any = None, scale: bool = True) -> tuple[Self, Self]:
        """Split into two parts that share no event, each standing for the whole.

        Parameters
        ----------
        fraction : float
            Share of the events of the second part; of each class and each process as near as whole events allow.
        random_state : int, numpy Generator or None, default=None
            Seed; the same seed gives the same parts.
        scale : bool, default=True
            Whether the weights of each class of each part are scaled to the yield that the class has in the whole,
            as significance needs it. Events without labels are scaled in total.

        Returns
        -------
        rest, part : Events
            Rows in the order that they had.

        Examples
        --------
        >>> from fivesigma.datasets import make_htautau
        >>> train, test = make_htautau(1000, random_state=1).split(0.25, random_state=0)
        >>> len(train), len(test), round(float(test.weight[test.is_signal].sum()), 3)
        (749, 251, 691.989)
        """
        mask = stratified_part(self._classes(), self.process, fraction, random_state)
        rest, part = self[~mask], self[mask]
        if not scale:
            return rest, part
        totals = [float(self.weight[members].sum()) for _, members in self._classes()]
        return rest._scale(totals), part._scale(totals)

    def folds(self, k: int, by: str | ArrayLike | None = None) -> IntArray:
        """Return a fold number from 0 to k - 1 for each event.

        Parameters
        ----------
        k : int
            Number of folds.
        by : str or array-like of int of shape (n_events,), optional
            A kept column, or integers, whose remainder modulo `k` is the fold: it belongs to the event, in whatever
            file and order. Without it, the fold is the remainder of a hash (SplitMix64) of the row number.

        Examples
        --------
        >>> from fivesigma.datasets import from_arrays
        >>> events = from_arrays([[1.0], [2.0], [3.0]], [1, 0, 0], keep={"eventNumber": [7, 8, -2]})
        >>> events.folds(5, by="eventNumber")
        array([2, 3, 3])
        """
        if by is None:
            return fold_numbers(k, hash_rows(np.arange(len(self))))
        if isinstance(by, str):
            if by not in self.kept:
                known = did_you_mean(by, self.kept) or f"; load the events with keep=[{by!r}]"
                raise InputError(f"no column {by!r} is kept beside the features{known}")
            numbers, what = self.kept[by], f"column {by!r}"
        else:
            numbers, what = np.asarray(by), "by"
        if numbers.shape != (len(self),):
            raise InputError(f"{what} must hold one integer per event, got the shape {numbers.shape}")
        if numbers.dtype.kind not in "iu":
            raise InputError(f"{what} must hold integers to make folds, got {numbers.dtype}")
        return fold_numbers(k, numbers)

    def scaled_to(self, s: float | None = None, b: float | None = None) -> Self:
        """Scale the weights of each class to a yield.

        Parameters
        ----------
        s, b : float, optional
            Expected signal and background that the events are to stand for; a class without one is left as it is.

        Examples
        --------
        >>> from fivesigma.datasets import from_arrays
        >>> events = from_arrays([[1.0], [2.0], [3.0]], [1, 0, 0], [0.5, 2.0, 4.0])
        >>> events.scaled_to(s=10.0, b=60.0).weight
        array([10., 20., 40.])
        """
        for name, total in (("s", s), ("b", b)):
            if total is not None and not (is_number(total) and 0 <= total < np.inf):
                raise InputError(f"{name} must be a finite number of at least 0, got {total!r}")
        _ = self.is_signal  # refuses events without labels
        return self._scale([s, b])

    @staticmethod
    def concatenate(parts: Iterable[Events]) -> Events:
        """Join events one after the other, with their weights as they are: yields add up.

        Parameters
        ----------
        parts : iterable of Events
            They must have the same features, in any order, and the same labels. Processes, identifiers and kept
            columns are joined where all parts have them, identifiers only if they are still unique; a note says
            what was dropped.

        Returns
        -------
        Events
            Features in the order of the first part.

        Examples
        --------
        >>> from fivesigma.datasets import make_htautau
        >>> first, second = make_htautau(1000, random_state=1), make_htautau(500, random_state=2)
        >>> len(Events.concatenate([first, second])), len(first + second)
        (1500, 1500)
        """
        return _join(list(parts))

    def __add__(self, other: object) -> Events:
        return _join([self, other]) if isinstance(other, Events) else NotImplemented

    def _classes(self) -> list[tuple[str, BoolArray]]:
        """Signal and background, or all events if they have no labels."""
        if not self.labelled:
            return [("events", np.ones(len(self), dtype=bool))]
        return [("signal", self.is_signal), ("background", ~self.is_signal)]

    def _scale(self, totals: Sequence[float | None]) -> Self:
        """Scale each class that has a total to it."""
        weight = self.weight.copy()
        for (name, members), total in zip(self._classes(), totals, strict=True):
            if total is None or not members.any():
                continue
            present = float(weight[members].sum())
            if not present > 0:
                raise InputError(f"the weights of the {name} sum to {present:g}; what is scaled to a yield must be > 0")
            weight[members] *= total / present
        return replace(self, weight=weight)

    def _summary(self) -> Summary:
        """Yields by class and process, as `repr` and notebooks show them."""
        n_features = len(self.feature_names)
        head = f"{type(self).__name__}: {len(self):,} rows, {n_features} feature{'s' * (n_features != 1)}"
        head += f", signal {self.signal!r}" if self.labelled else ", no labels"
        head += f", kept: {', '.join(self.kept)}" if self.kept else ""
        return Summary(
            head,
            ("", "rows", "sum of weights", "effective"),
            [(name, f"{w.size:,}", digits(w.sum(), 6), f"{effective_count(w):,.1f}") for name, w in self._yields()],
            [f"note: {note}" for note in self.notes],
            more=("features", ", ".join(self.feature_names)),
        )

    def _yields(self) -> Iterator[tuple[str, Array]]:
        """Each line of the table: signal, its processes, background, its processes."""
        classes: list[tuple[str, AnyArray]] = [("all", np.ones(len(self), dtype=bool))]
        if self.labelled:
            signal = self.is_signal
            others = [label for label in np.unique(self.y).tolist() if label != self.signal]
            classes = [(str(self.signal), signal), (str(others[0]) if len(others) == 1 else "other", ~signal)]
        for name, mask in classes:
            yield name, self.weight[mask]
            if self.process is not None:
                for process in np.unique(self.process[mask]).tolist():
                    yield f"  {process}", self.weight[mask & (self.process == process)]


def _join(parts: list[Events]) -> Events:
    if not parts:
        raise InputError("there are no events to join")
    first, notes = parts[0], list[str]()
    for number, part in enumerate(parts, start=1):
        _refuse_unlike(first, part, number)
    values: dict[str, Any] = {"X": np.concatenate([part.table(first.feature_names) for part in parts])}
    for name in first.PER_EVENT[1:]:
        columns = [getattr(part, name) for part in parts]
        if all(column is not None for column in columns):
            values[name] = _stack(name, columns)
        elif any(column is not None for column in columns):
            values[name] = None
            notes.append(f"The column {name} is dropped, because not all of the joined events have it.")
    ids = values.get("ids")
    if ids is not None and np.unique(ids).size < ids.size:
        values["ids"] = None
        notes.append("The identifiers are dropped, because they are not unique in the joined events.")
    if first.labelled:
        others = values["y"][values["y"] != first.signal]
        if others.size and (others != others[0]).any():
            raise InputError(
                f"the joined events have the background labels {some(np.unique(others).tolist())}; one is needed"
            )
    names = dict.fromkeys(name for part in parts for name in part.kept)
    kept = [name for name in names if all(name in part.kept for part in parts)]
    dropped = [name for name in names if name not in kept]
    notes += [f"The kept column {name} is dropped, because not all of the joined events have it." for name in dropped]
    same = all(part.columns == first.columns for part in parts)
    return replace(
        first,
        **values,
        kept={name: _stack(name, [part.kept[name] for part in parts]) for name in kept},
        columns=first.columns if same else None,
        notes=tuple(dict.fromkeys([*(note for part in parts for note in part.notes), *notes])),
    )


def _stack(name: str, columns: list[AnyArray]) -> AnyArray:
    return join_parts(name, [(f"part {number}", column) for number, column in enumerate(columns, start=1)])


def _refuse_unlike(first: Events, part: Events, number: int) -> None:
    """Say why a part cannot be joined to the first."""
    if not isinstance(part, Events):
        raise InputError(f"part {number} must be Events, got {type(part).__name__}")
    if type(part) is not type(first):
        raise InputError(f"part {number} must be {type(first).__name__} like the first, got {type(part).__name__}")
    unlike = set(first.feature_names) ^ set(part.feature_names)
    if unlike:
        raise InputError(
            f"part {number} and the first have other features: only one of them has {some(sorted(unlike))}"
        )
    if first.labelled != part.labelled:
        raise InputError(f"part {number} has {'no ' * (not part.labelled)}labels, unlike the first")
    if first.labelled and not first.signal == part.signal:
        raise InputError(f"part {number} has the signal label {part.signal!r}, but the first has {first.signal!r}")
