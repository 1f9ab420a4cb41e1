"""Events summed up in cells, so that a search costs as much for ten million events as for ten thousand."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.ratios.sample import Sample, added

CHUNK = 1 << 16  # events at a time, so that what is computed on the way stays small
_GROWERS = 1 << 16  # events that grow the tree of cells, if there are more
_SAMPLE = 256  # events of a node that choose its split


@dataclass(frozen=True)
class Points:
    """Points of the space of ratios with what is there: cells of events, or the events themselves.

    Attributes
    ----------
    ratios : array of shape (n_points, n_signals)
        Logarithm of signal over background density, from the calibration.
    density : array of shape (n_points, n_signals + 1)
        The same as relative densities of (signals..., background), each row with sum one.
    yields : array of shape (n_points, n_signals + 1)
        Sums of weights of the events by class.
    floor : array of shape (n_points, 2)
        Sums of weights and of squared weights of the events that count for the floors.
    """

    ratios: Array
    density: Array
    yields: Array
    floor: Array


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
    """Cell of each event: leaves of a k-d tree whose nodes are split near the median of their widest axis.

    Parameters
    ----------
    coordinates : array of shape (n_events, n_axes)
    max_cells : int
        Each event has a cell of its own if there are no more events than this.
    mass : array of shape (n_events,), optional
        What the median halves; without it, the number of events.

    Returns
    -------
    int array of shape (n_events,)
        From 0; no number is left out.
    """
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
    """Axis and threshold of each node, and its children: up to the threshold and above it; -1 for a leaf."""
    axes, thresholds, children = [0], [np.inf], [[-1, -1]]
    nodes = [(0, np.arange(columns.shape[1]), max_leaves)]
    while nodes:
        node, members, leaves = nodes.pop()
        if leaves < 2 or members.size < 2:
            continue
        some = members[:: max(1, members.size // _SAMPLE)]  # they show the widths and the median well enough
        known = columns[:, some]
        orders = known.argsort(axis=1)
        low, high = (known[np.arange(len(known)), orders[:, i]] for i in (some.size // 10, -1 - some.size // 10))
        axis = int((high - low).argmax())
        order = orders[axis]
        running = np.arange(1.0, some.size + 1) if mass is None else np.cumsum(mass[some[order]])
        middle = min(int(np.searchsorted(running, running[-1] / 2)), some.size - 2)
        threshold = known[axis, order[middle]]
        values = columns[axis][members]
        below = values <= threshold
        if below.all():  # ties
            threshold = np.nextafter(threshold, -np.inf)
            below = values <= threshold
            if not below.any():
                continue
        axes[node], thresholds[node], children[node] = axis, threshold, [len(axes), len(axes) + 1]
        axes += [0, 0]
        thresholds += [np.inf, np.inf]
        children += [[-1, -1], [-1, -1]]
        nodes += [(children[node][0], members[below], leaves // 2), (children[node][1], members[~below], leaves // 2)]
    return np.array(axes), np.array(thresholds), np.array(children).T.copy()


def information(ratios: Array, sample: Sample) -> Array:
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


def sums(cell: IntArray, n_cells: int, sample: Sample) -> tuple[Array, Array]:
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


def summed(ratios: Array, sample: Sample, cell: IntArray) -> Points:
    """Events as cells."""
    n_cells = int(cell.max()) + 1
    centre = means(cell, n_cells, ratios)
    return Points(centre, densities(centre), *sums(cell, n_cells, sample))


def as_points(density: Array, sample: Sample) -> Points:
    """Events as points of their own; where no splits are asked for, their ratios are not needed."""
    empty = np.empty((sample.size, 0))
    return Points(empty, density, *sums(np.arange(sample.size), sample.size, sample))
