"""The trees in a booster of LightGBM: their text, line by line, and where they lead, all at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat

import numpy as np

from fivesigma._types import AnyArray, BoolArray
from fivesigma.store.checks.lightgbm_numbers import check_numbers, infinities_replaced, whole_numbers
from fivesigma.store.checks.refusal import UncheckedError, refuse_unless
from fivesigma.store.checks.walks import check_depth

# The lines of a tree in their order, and of what there is one number: inner nodes, leaves.
_LINES = {
    **dict.fromkeys(
        ("split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child"), "inner"
    ),
    **dict.fromkeys(("leaf_value", "leaf_weight", "leaf_count"), "leaf"),
    **dict.fromkeys(("internal_value", "internal_weight", "internal_count"), "inner"),
}
_WHOLE = ("split_feature", "decision_type", "left_child", "right_child")
_BEFORE = ("Tree", "num_leaves", "num_cat")
_CATEGORIES = ("cat_boundaries", "cat_threshold")  # only in trees that split by categories
_AFTER = ("is_linear", "shrinkage")  # and two empty lines


def check_trees(text: bytes, sizes: Sequence[int], n_features: int) -> None:
    """Refuse trees that are not written as LightGBM writes them or that cannot be walked to a leaf.

    Parameters
    ----------
    text : bytes
        All trees.
    sizes : sequence of int
        Length of each.
    n_features : int
    """
    if not sizes:
        return
    lines = _Lines(text, sizes)
    numbers, n_leaves, n_sets = (_counts(lines.values(k, name)[0]) for k, name in enumerate(_BEFORE))
    refuse_unless(np.array_equal(numbers, np.arange(len(sizes))), "its trees are not in their order")
    refuse_unless((n_leaves >= 1).all(), "a tree has no leaf")
    end = len(_BEFORE) + len(_LINES) + len(_CATEGORIES) * (n_sets > 0)
    refuse_unless((lines.counts == end + len(_AFTER) + 2).all(), "a tree has not the lines of a tree")
    columns, whole = {}, {}
    for k, (name, of) in enumerate(_LINES.items()):
        columns[name], lengths = lines.values(len(_BEFORE) + k, name)
        tokens = b" ".join(filter(None, columns[name]))
        spaces = check_numbers(infinities_replaced(tokens) if name == "threshold" else tokens)
        _check_count(name, spaces, lengths, n_leaves, n_leaves if of == "leaf" else n_leaves - 1)
        if name in _WHOLE:
            whole[name] = whole_numbers(tokens, spaces, name)
    _check_ends(lines, end, len(sizes))
    _check_walks(whole, n_leaves, n_features)
    by_category: BoolArray = (whole["decision_type"] & 1) == 1
    refuse_unless(np.repeat(n_sets > 0, n_leaves - 1)[by_category].all(), "a split is by categories without any")
    last = np.cumsum(n_leaves - 1)
    for tree in np.flatnonzero(n_sets).tolist():
        bounds, sets = (lines.of_tree(tree, end[tree] - 2 + k, name) for k, name in enumerate(_CATEGORIES))
        here = by_category[last[tree] - n_leaves[tree] + 1 : last[tree]]
        # These are numbers, which was checked, or infinities.
        which = np.array(columns["threshold"][tree].split(b" "), dtype=np.float64)[here]
        _check_categories(bounds, sets, n_sets[tree], which)


class _Lines:
    """The text of all trees, line by line."""

    def __init__(self, text: bytes, sizes: Sequence[int]) -> None:
        self._lines = text.split(b"\n")
        self._lengths = np.fromiter(map(len, self._lines), dtype=np.int64, count=len(self._lines))
        begins, trees = np.cumsum(self._lengths + 1) - self._lengths - 1, np.cumsum(sizes) - sizes
        self._starts = np.searchsorted(begins, trees)  # that these lines begin a tree is seen when they are read
        fits = self._starts[-1] < begins.size and np.array_equal(begins[self._starts], trees) and text.endswith(b"\n")
        refuse_unless(fits, "its trees do not begin where tree_sizes says")
        self.counts = np.diff(self._starts, append=len(self._lines) - 1)
        refuse_unless((self.counts >= len(_BEFORE)).all(), "a tree has not the lines of a tree")

    def values(self, place: AnyArray | int, name: str) -> tuple[list[bytes], AnyArray]:
        """Give what follows a name in the line at some place of each tree, and the lengths of that."""
        key = name.encode() + b"="
        at = self._starts + place
        found = [self._lines[k] for k in at.tolist()]
        refuse_unless(all(map(bytes.startswith, found, repeat(key))), f"a tree has no {name} in its place")
        return [line[len(key) :] for line in found], self._lengths[at] - len(key)

    def of_tree(self, tree: int, place: int, name: str) -> bytes:
        """Give what follows a name in one tree."""
        found: bytes = self._lines[self._starts[tree] + place]
        key = name.encode() + b"="
        refuse_unless(found.startswith(key), f"tree {tree} has no {name} in its place")
        return found[len(key) :]

    def are_empty(self, place: AnyArray) -> bool:
        """Whether the line at some place of each tree is empty."""
        return not self._lengths[self._starts + place].any()


def _counts(values: Sequence[bytes]) -> AnyArray:
    """Numbers of nine digits at most, one of each tree."""
    refuse_unless(all(map(bytes.isdigit, values)) and max(map(len, values)) <= 9, "a tree does not begin as a tree")
    return np.array(values).astype(np.int64)


def _check_count(name: str, spaces: AnyArray, lengths: AnyArray, n_leaves: AnyArray, right: AnyArray) -> None:
    """Refuse a line with more or fewer numbers than nodes; they stand between spaces, as LightGBM counts them."""
    counts = np.zeros(lengths.size, dtype=np.int64)
    ends = np.cumsum(lengths[lengths > 0] + 1) - 1
    counts[lengths > 0] = np.diff(np.searchsorted(spaces, ends, side="right"), prepend=0)
    fits: BoolArray = counts == right
    if name != "leaf_value":  # a tree of one leaf has little else
        fits |= (n_leaves == 1) & (counts == 0)
    if not fits.all():
        tree = np.argmin(fits)
        raise UncheckedError(f"tree {tree} has {counts[tree]} items in {name}, not {right[tree]}")


def _check_ends(lines: _Lines, end: AnyArray, n_trees: int) -> None:
    (linear, _), (shrinkage, _) = (lines.values(end + k, name) for k, name in enumerate(_AFTER))
    refuse_unless(set(linear) == {b"0"}, "a tree has linear leaves")
    refuse_unless(check_numbers(b" ".join(shrinkage)).size == n_trees, "a tree has not one shrinkage")
    refuse_unless(lines.are_empty(end + 2) and lines.are_empty(end + 3), "a tree does not end as a tree")


def _check_categories(bounds: bytes, sets: bytes, n: int, which: AnyArray) -> None:
    """Check the sets of categories of a tree, and which of them its splits point to."""
    limits, words = (whole_numbers(line, check_numbers(line), "a line of categories") for line in (bounds, sets))
    fits = limits.size == n + 1 and limits[0] == 0 and limits[-1] == words.size and (np.diff(limits) >= 1).all()
    refuse_unless(fits, "a tree has categories beyond the last")
    refuse_unless(((words >= 0) & (words < 1 << 32)).all(), "a tree has a set of categories that is none")
    refuse_unless(np.isin(which, np.arange(n)).all(), "a tree splits by categories that are not there")


def _check_walks(a: dict[str, AnyArray], n_leaves: AnyArray, n_features: int) -> None:
    """Refuse a node that leads out of its tree or back, or a split on a feature that is not there."""
    n_inner = n_leaves - 1
    first = np.repeat(np.cumsum(n_inner) - n_inner, n_inner)
    node, size = np.arange(first.size) - first, np.repeat(n_inner, n_inner)
    first_leaf = np.repeat(np.cumsum(n_leaves) - n_leaves, n_inner)
    refuse_unless(
        ((a["split_feature"] >= 0) & (a["split_feature"] < n_features)).all(),
        f"a split is not on one of {n_features} features",
    )
    refuse_unless(((a["decision_type"] >= 0) & (a["decision_type"] < 12)).all(), "a kind of split is not known")
    inner, leaf, parent = [], [], np.arange(first.size)
    for child in (a["left_child"], a["right_child"]):
        down: BoolArray = child >= 0
        after = (child > node) & (child < size)
        refuse_unless(after[down].all(), "a node's child does not come after the node within the tree")
        refuse_unless((~child <= size)[~down].all(), "a node leads to a leaf that is not there")
        inner.append((first + child)[down])
        leaf.append((first_leaf + ~child)[~down])
        parent[inner[-1]] = np.arange(first.size)[down]
    for reached in (np.concatenate(inner), np.concatenate(leaf)):
        refuse_unless(np.bincount(reached).max(initial=0) <= 1, "a node is reached in two ways")
    check_depth(parent)
