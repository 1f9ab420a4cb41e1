"""Events summed up in cells, so that a search costs as much for ten million events as for ten thousand."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.categories.ratios.class_sample import ClassSample, added

CHUNK = 1 << 16  # events at a time, so that what is computed on the way stays small
_GROWERS = 1 << 16  # events that grow the tree of cells, if there are more
_SAMPLE = 256  # events of a node that choose its split


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
    axis, threshold, children = _grown_tree(
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


def _grown_tree(columns: Array, max_leaves: int, mass: Array | None) -> tuple[IntArray, Array, IntArray]:
    """Axis and threshold of each node, and its children: up to the threshold and above it; -1 for a leaf.

    All nodes of a level are split at once. Their events are kept node by node, in the order of the input.
    """
    events = columns if mass is None else np.concatenate([columns, mass[None]])
    n_axes, sizes, n_nodes = len(columns), np.array([columns.shape[1]]), 1
    axes, thresholds, children = [], [], []
    for _ in range(int(np.log2(max_leaves))):
        axis, threshold = _halved(events, n_axes, sizes)
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


def _halved(events: Array, n_axes: int, sizes: IntArray) -> tuple[IntArray, Array]:
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
    yields = added(cell * n_classes + sample.classes, sample.weight, n_cells * n_classes)
    counts = np.where(sample.floor[sample.process], sample.weight, 0.0)
    floor = np.stack([added(cell, w, n_cells) for w in (counts, np.square(counts))], axis=1)
    return yields.reshape(n_cells, n_classes), floor


def means(cell: IntArray, n_cells: int, values: Array) -> Array:
    """Mean of each column of the values over the events of each cell."""
    count = np.bincount(cell, minlength=n_cells)
    return np.stack([np.bincount(cell, column, minlength=n_cells) / count for column in values.T], axis=1)


def summed(ratios: Array, sample: ClassSample, cell: IntArray) -> Points:
    """Events as cells."""
    n_cells = int(cell.max()) + 1
    centre = means(cell, n_cells, ratios)
    return Points(centre, densities(centre), *sums(cell, n_cells, sample))


def floor_points(density: Array, sample: ClassSample, counting: IntArray) -> Points:
    """Events that count for the floors as points of their own, without what the floors do not need."""
    weight = sample.weight[counting]
    empty = np.empty((counting.size, 0))
    return Points(empty, density.T.take(counting, axis=1).T, empty, np.stack([weight, np.square(weight)]).T)
