"""Events with the class probabilities of a classifier: checked, with roles of columns and processes, and in cells.

Events are summed up in cells, so that a search costs as much for ten million events as for ten thousand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.errors import InputError, did_you_mean
from fivesigma.yields import check_size, check_weights, name_rows, number_names

_SUM_TOLERANCE = 0.01  # half-precision probabilities of a few classes still pass
CHUNK = 1 << 16  # events at a time, so that what is computed on the way stays small
_GROWERS = 1 << 16  # events that grow the tree of cells, if there are more
_SAMPLE = 256  # events of a node that choose its split


@dataclass(frozen=True)
class Roles:
    """What the columns of the scores and the processes of the events mean."""

    columns: tuple[str, ...]  # names of the columns of the scores
    # columns that are signals, each with a strength of its own. Every other process is background
    signals: tuple[str, ...]
    floor: tuple[str, ...] | None = None  # processes that count for the floors; by default every background

    def __post_init__(self) -> None:
        for what, names in (("processes", self.columns), ("signals", self.signals)):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise InputError(f"{what} has {twice[0]!r} twice")
        if not self.signals:
            raise InputError("signals is empty; name at least one of the processes")
        for name in self.signals:
            if name not in self.columns:
                raise InputError(
                    f"signal {name!r} is not a process; processes are {', '.join(map(repr, self.columns))}"
                    f"{did_you_mean(name, self.columns)}"
                )
        if len(self.signals) == len(self.columns):
            raise InputError("every process is a signal; at least one column must be background")
        if self.floor == ():
            raise InputError("floor_processes is empty; name at least one background, or leave it out")
        for name in self.floor or ():
            if name in self.signals:
                raise InputError(f"floor_processes has the signal {name!r}; only background can count for a floor")

    @property
    def signal_columns(self) -> IntArray:
        """Columns of the signals, in the order of `signals`."""
        return np.array([self.columns.index(name) for name in self.signals], dtype=np.intp)

    @property
    def background_columns(self) -> IntArray:
        """All other columns."""
        return np.array([i for i, name in enumerate(self.columns) if name not in self.signals], dtype=np.intp)


def add_up(index: IntArray, values: Array, n: int) -> Array:
    """Sums of the values with each index from 0 to n - 1."""
    return np.asarray(np.bincount(index, values, minlength=n), dtype=np.float64)


def add_up_rows(index: IntArray, rows: Array, n: int) -> Array:
    """Sums of the rows with each index from 0 to n - 1; one count of all columns is faster than one of each."""
    width = rows.shape[1]
    cell = index[:, None] * width + np.arange(width)
    return add_up(cell.ravel(), rows.ravel(), n * width).reshape(n, width)


@dataclass(frozen=True)
class ClassSample:
    """Checked events."""

    scores: Array  # (n_events, n_columns)
    weight: Array  # (n_events,)
    names: tuple[str, ...]  # processes of the events: the signals first, in the order of the roles
    process: IntArray  # (n_events,): position in `names`
    n_signals: int
    floor: BoolArray  # (n_processes,): which processes count for the floors

    @property
    def size(self) -> int:
        """Number of events."""
        return self.weight.size

    @property
    def classes(self) -> IntArray:
        """Class of each event: the number of its signal, or `n_signals` for background."""
        return np.minimum(self.process, self.n_signals)

    @property
    def class_yields(self) -> Array:
        """Sums of weights of the signals and of all background."""
        return add_up(self.classes, self.weight, self.n_signals + 1)

    @property
    def process_yields(self) -> Array:
        """Sums of weights by process."""
        return add_up(self.process, self.weight, len(self.names))

    def part(self, members: IntArray | BoolArray) -> ClassSample:
        """Some of the events, with their weights as they are."""
        return replace(self, scores=self.scores[members], weight=self.weight[members], process=self.process[members])

    @property
    def floor_count(self) -> float:
        """Effective count of the events that count for the floors."""
        counts = self.weight[self.floor[self.process]]
        return float(counts.sum() ** 2 / np.square(counts).sum()) if counts.any() else 0.0

    def scaled_to(self, full: Array) -> ClassSample:
        """Scale each process to its full yield."""
        have = self.process_yields
        factor = np.divide(full, have, out=np.ones_like(full), where=have != 0)
        return replace(self, weight=self.weight * factor[self.process])

    def thinned(self, most: int) -> ClassSample:
        """Every so many-th event of each class, so that no class has more than `most`; weights as they are."""
        classes = self.classes
        if np.bincount(classes).max() <= most:
            return self
        each = [np.flatnonzero(classes == c) for c in range(self.n_signals + 1)]
        return self.part(np.concatenate([events[:: -(-events.size // most)] for events in each]))

    def halves(self) -> tuple[ClassSample, ClassSample]:
        """Every second event of each process and the rest, both scaled to the full yields of the processes.

        Two events that follow each other in the input never depend on a seed for their half.
        """
        second = np.zeros(self.size, dtype=np.bool_)
        for number in range(len(self.names)):
            second[np.flatnonzero(self.process == number)[1::2]] = True
        full = self.process_yields
        return self.part(~second).scaled_to(full), self.part(second).scaled_to(full)


def check_scores(scores: ArrayLike, n_columns: int) -> Array:
    """Return class probabilities as float64, or say what is wrong with them."""
    try:
        given = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("scores must be numbers") from None
    if given.ndim != 2 or given.shape[1] != n_columns:
        raise InputError(f"scores has shape {given.shape}; {n_columns} processes need shape (n_events, {n_columns})")
    if given.shape[0] == 0:
        raise InputError("scores is empty: there are no events")
    total = given @ np.ones(n_columns)  # faster than a sum over a short axis
    bad = ~np.isfinite(total)
    if bad.any():
        raise InputError(f"scores is NaN or infinite in {name_rows(bad)}")
    if given.min() < 0:
        bad = np.asarray((given < 0).any(axis=1))
        raise InputError(f"scores is negative in {name_rows(bad)}; class probabilities are needed")
    bad = np.abs(total - 1.0) > _SUM_TOLERANCE
    if bad.any():
        raise InputError(
            f"scores does not sum to one in {name_rows(bad)}, where the first sums to {total[bad.argmax()]:.4g}; give "
            "the probabilities of all classes"
        )
    return given


def check_sample(scores: ArrayLike, process: ArrayLike, sample_weight: ArrayLike, roles: Roles) -> ClassSample:
    """Check events against their roles.

    Every column needs events of its name. One background column without any may stand for all processes that no column
    names, as for a classifier that was trained with all backgrounds in one class.
    """
    given = check_scores(scores, len(roles.columns))
    weight = check_weights(sample_weight, given.shape[0])
    labels: AnyArray = np.asarray(process)
    if labels.shape != weight.shape:
        raise InputError(f"process has shape {labels.shape} for {weight.size} events")
    seen, codes = number_names(labels)
    unnamed = [name for name in seen if name not in roles.columns]
    absent = [name for name in roles.columns if name not in seen]
    for name in absent:
        if name in roles.signals or len(absent) > 1 or not unnamed:
            raise InputError(
                f"process {name!r} has no events; the events are of {', '.join(map(repr, seen[:8]))}"
                f"{did_you_mean(name, unnamed)}"
            )
    names = (*roles.signals, *(name for name in seen if name not in roles.signals))
    code = np.array([names.index(name) for name in seen], dtype=np.intp)[codes]
    totals = np.bincount(code, weight, minlength=len(names))
    for name, total in zip(roles.signals, totals, strict=False):
        if not total > 0:
            raise InputError(f"the weights of signal {name!r} sum to {total:g}; they must sum to more than zero")
    if not totals[len(roles.signals) :].sum() > 0:
        raise InputError("the weights of the background sum to zero or less; they must sum to more than zero")
    for k, what in enumerate((*(f"weight of signal {name!r}" for name in roles.signals), "background weight")):
        these = weight[code == k] if k < len(roles.signals) else weight[code >= k]
        check_size(max(-float(these.min()), float(these.max())), what)
    for name in roles.floor or ():
        if name not in names:
            raise InputError(f"floor_processes has {name!r}, of which there are no events{did_you_mean(name, names)}")
    floor = np.array([name not in roles.signals and (roles.floor is None or name in roles.floor) for name in names])
    return ClassSample(given, weight, names, code, len(roles.signals), floor)


@dataclass(frozen=True)
class Points:
    """Points of the space of ratios with what is there: cells of events, or the events themselves."""

    ratios: Array  # (n_points, n_signals): logarithm of signal over background density, from the calibration
    # (n_points, n_signals + 1): the same as relative densities of (signals..., background), each row with sum one
    density: Array
    yields: Array  # (n_points, n_signals + 1): sums of weights of the events by class
    floor: Array  # (n_points, 2): sums of weights and of squared weights of the events that count for the floors

    @cached_property
    def content(self) -> Array:
        """Yields and floor sums side by side, of shape (n_points, n_signals + 3)."""
        return np.concatenate([self.yields, self.floor], axis=1)


def densities(ratios: Array) -> Array:
    """Relative densities of (signals..., background) from the logarithms of their ratios."""
    n, n_signals = ratios.shape
    out = np.empty((n_signals + 1, n))  # column by column, as reductions over a short axis are slow
    top = np.zeros(n)
    for column in ratios.T:
        np.maximum(top, column, out=top)
    for m in range(n_signals):
        np.subtract(ratios[:, m], top, out=out[m])
    np.negative(top, out=out[-1])
    np.exp(out, out=out)
    out /= out.sum(axis=0)
    return out.T


def cells_of(coordinates: Array, max_cells: int, mass: Array | None = None) -> IntArray:
    """Cell of each event: leaves of a k-d tree whose nodes are split near the median of their widest axis."""
    n = coordinates.shape[0]
    if n <= max_cells:
        return np.arange(n)
    step = max(1, n // _GROWERS)  # some of the events grow the tree, and all of them then walk down
    axis, threshold, children = _grow_tree(
        np.ascontiguousarray(coordinates[::step].T), max_cells, None if mass is None else mass[::step]
    )
    leaf = children[0] < 0
    number = np.cumsum(leaf) - 1
    children[:, leaf] = np.flatnonzero(leaf)
    flat = children.ravel()
    cell = np.empty(n, dtype=np.intp)
    for start in range(0, n, CHUNK):
        part = np.ascontiguousarray(coordinates[start : start + CHUNK])
        first = np.arange(len(part)) * part.shape[1]
        node = np.zeros(len(part), dtype=np.intp)
        while True:
            values = part.ravel().take(first + axis.take(node))
            after = flat.take(node + leaf.size * (values > threshold.take(node)))
            if np.array_equal(after, node):
                break
            node = after
        cell[start : start + CHUNK] = number.take(node)
    return cell


def _grow_tree(columns: Array, max_leaves: int, mass: Array | None) -> tuple[IntArray, Array, IntArray]:
    """Axis and threshold of each node, and its children: up to the threshold and above it; -1 for a leaf.

    All nodes of a level are split at once. Their events are kept node by node, in the order of the input.
    """
    events = columns if mass is None else np.concatenate([columns, mass[None]])
    n_axes, sizes, n_nodes = len(columns), np.array([columns.shape[1]]), 1
    axes, thresholds, children = [], [], []
    for _ in range(int(np.log2(max_leaves))):
        axis, threshold = _halve(events, n_axes, sizes)
        node = np.repeat(np.arange(sizes.size), sizes)
        values = events.ravel().take(axis[node] * node.size + np.arange(node.size))
        below = values <= threshold[node]
        low = np.bincount(node, below, minlength=sizes.size)
        tied = low == sizes
        if tied.any():
            threshold = np.where(tied, np.nextafter(threshold, -np.inf), threshold)
            below = values <= threshold[node]
            low = np.bincount(node, below, minlength=sizes.size)
        split = (low > 0) & (low < sizes)
        position = 2 * (np.cumsum(split) - 1)
        axes.append(np.where(split, axis, 0))
        thresholds.append(np.where(split, threshold, np.inf))
        children.append(np.where(split, n_nodes + position + [[0], [1]], -1))
        inside = np.flatnonzero(split[node])
        number = (position[node] + ~below)[inside]
        sizes = np.bincount(number)
        n_nodes += sizes.size
        if sizes.size == 0:
            break
        small = number.astype(np.min_scalar_type(sizes.size))  # of two bytes almost always, which are sorted at once
        events = events.take(inside[np.argsort(small, kind="stable")], axis=1)
    axes.append(np.zeros(sizes.size, dtype=np.intp))
    thresholds.append(np.full(sizes.size, np.inf))
    children.append(np.full((2, sizes.size), -1))
    return np.concatenate(axes), np.concatenate(thresholds), np.concatenate(children, axis=1)


def _halve(events: Array, n_axes: int, sizes: IntArray) -> tuple[IntArray, Array]:
    """Widest axis of each node and the value there that halves its mass, as far as some of its events show."""
    step = np.maximum(1, sizes // _SAMPLE)
    count = -(-sizes // step)
    rank = np.arange(count.max())
    known = rank < count[:, None]
    some = np.where(known, (np.cumsum(sizes) - sizes)[:, None] + rank * step[:, None], 0)
    values = np.where(known, events[:n_axes].take(some, axis=1), np.inf)  # by axis, node and rank; unknown ones last
    ascending = np.sort(values, axis=2)
    nodes = np.arange(sizes.size)
    axis = (ascending[:, nodes, count - 1 - count // 10] - ascending[:, nodes, count // 10]).argmax(axis=0)
    if n_axes < len(events):
        mass = np.where(known, events[-1].take(some), 0.0)
        running = np.cumsum(np.take_along_axis(mass, values[axis, nodes].argsort(axis=1), axis=1), axis=1)
        middle = (running < running[:, -1:] / 2).sum(axis=1)
    else:
        middle = (count + 1) // 2 - 1
    return axis, ascending[axis, nodes, np.clip(middle, 0, np.maximum(count - 2, 0))]


def information(ratios: Array, sample: ClassSample) -> Array:
    """Mass by which cells are halved: in equal parts the number of events and what each signal gains from them.

    Few events of high purity carry much of F; cells that hold the same number of events would be too coarse there.
    """
    classes = sample.classes
    mass = np.full(sample.size, 1.0 / sample.size)
    for m in range(sample.n_signals):
        own = np.flatnonzero(classes == m)
        gain = np.abs(sample.weight[own]) * np.log1p(np.exp(np.minimum(ratios[own, m], 50.0)))
        mass[own] += gain / gain.sum()
    return mass


def sums(cell: IntArray, n_cells: int, sample: ClassSample) -> tuple[Array, Array]:
    """Sums of weights by cell and class, and the sums that the floors need."""
    n_classes = sample.n_signals + 1
    yields = add_up(cell * n_classes + sample.classes, sample.weight, n_cells * n_classes)
    counts = np.where(sample.floor[sample.process], sample.weight, 0.0)
    floor = np.stack([add_up(cell, w, n_cells) for w in (counts, np.square(counts))], axis=1)
    return yields.reshape(n_cells, n_classes), floor


def means(cell: IntArray, n_cells: int, values: Array) -> Array:
    """Mean of each column of the values over the events of each cell."""
    count = np.bincount(cell, minlength=n_cells)
    return np.stack([np.bincount(cell, column, minlength=n_cells) / count for column in values.T], axis=1)


def sum_cells(ratios: Array, sample: ClassSample, cell: IntArray) -> Points:
    """Events as cells."""
    n_cells = int(cell.max()) + 1
    centre = means(cell, n_cells, ratios)
    return Points(centre, densities(centre), *sums(cell, n_cells, sample))


def floor_points(density: Array, sample: ClassSample) -> Points:
    """Events that count for the floors as points of their own, without what the floors do not need."""
    counting = np.flatnonzero(sample.floor[sample.process])
    weight = sample.weight[counting]
    empty = np.empty((counting.size, 0))
    return Points(empty, density.T.take(counting, axis=1).T, empty, np.stack([weight, np.square(weight)]).T)
