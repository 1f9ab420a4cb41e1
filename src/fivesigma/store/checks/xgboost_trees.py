"""The trees in a booster of XGBoost: read as it writes them, byte for byte, and checked all at once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct, error

import numpy as np

from fivesigma._types import AnyArray, BoolArray
from fivesigma.store.checks.refusal import UncheckedError, refuse_unless
from fivesigma.store.checks.ubjson import DTYPES, read_length
from fivesigma.store.checks.walks import check_depth

# The arrays of a tree and their types, in the order in which they are written. Where there is one item for each node,
# "n" says so; "c" is one for each category that is sent to the right, "s" one for each node that splits by category.
_ARRAYS = {
    "base_weights": ("d", "n"),
    "categories": ("l", "c"),
    "categories_nodes": ("l", "s"),
    "categories_segments": ("L", "s"),
    "categories_sizes": ("L", "s"),
    "default_left": ("U", "n"),
    "left_children": ("l", "n"),
    "loss_changes": ("d", "n"),
    "parents": ("l", "n"),
    "right_children": ("l", "n"),
    "split_conditions": ("d", "n"),
    "split_indices": ("l", "n"),
    "split_type": ("U", "n"),
    "sum_hessian": ("d", "n"),
}
_ID_SIZES = {b"i": 1, b"I": 2, b"l": 4, b"L": 8}
_DELETED = np.iinfo(np.int32).max  # split feature of nodes that pruning took away
_NO_PARENT = np.iinfo(np.int32).max
_MOST_CATEGORIES = 1 << 16  # each split holds a bit for each of them


def _key(name: str) -> bytes:
    return b"L" + len(name).to_bytes(8, "big") + name.encode()


def _text(name: str) -> bytes:
    return re.escape(_key(name)) + rb"SL\0{7}(.)(\d{1,10})"


_TAIL = re.compile(
    re.escape(_key("tree_param"))
    + rb"\{"
    + b"".join(map(_text, ("num_deleted", "num_feature", "num_nodes", "size_leaf_vector")))
    + rb"\}\}",
    re.DOTALL,
)
_HEADS = {name: _key(name) + b"[$" + marker.encode() + b"#L" for name, (marker, _) in _ARRAYS.items()}
_FIRST, _CATEGORIES, _NODES = (len(_HEADS[name]) for name in ("base_weights", "categories", "categories_nodes"))


@lru_cache(maxsize=4096)
def _layout(n: int, c: int, s: int, id_size: int) -> tuple[Struct, tuple[bytes, ...]]:
    """Give the parts of a tree with so many items: heads and arrays by turns; and what the heads must be."""
    counts, code, heads, between = {"n": n, "c": c, "s": s}, ">", [], b""
    for name, (marker, of) in _ARRAYS.items():
        head = between + _HEADS[name] + counts[of].to_bytes(8, "big")
        between = b""
        code += f"{len(head)}s{counts[of] * np.dtype(DTYPES[marker.encode()]).itemsize}s"
        heads.append(head)
        if name == "default_left":
            heads.append(_key("id"))
            code += f"{len(heads[-1])}s{1 + id_size}s"
    return Struct(code), tuple(heads)


@dataclass(frozen=True)
class Trees:
    """The trees of a booster, one after the other.

    Attributes
    ----------
    n_nodes : int array
        Nodes of each tree.
    n_features, n_deleted : int arrays
        What each tree says of itself.
    categories, splits : int arrays
        Categories of each tree, and nodes that split by them.
    arrays : dict of arrays
        By name, of all trees.
    """

    n_nodes: AnyArray
    n_features: AnyArray
    n_deleted: AnyArray
    categories: AnyArray
    splits: AnyArray
    arrays: dict[str, AnyArray]

    def __len__(self) -> int:
        return len(self.n_nodes)


def read_trees(text: bytes, at: int) -> tuple[Trees, int]:
    """Read an array of trees."""
    refuse_unless(text[at : at + 2] == b"[#", "its trees are no array")
    n_trees = read_length(text, at + 2)
    at += 11
    rows, parts = [], []
    for k in range(n_trees):
        row, part, at = _read_tree(text, at, k)
        rows.append(row)
        parts.append(part)
    names = [*list(_ARRAYS)[:6], "id", *list(_ARRAYS)[6:]]
    columns = dict(zip(names, zip(*parts, strict=True), strict=True)) if parts else {}
    arrays = {
        name: np.frombuffer(b"".join(columns.get(name, ())), dtype=DTYPES[marker.encode()])
        for name, (marker, _) in _ARRAYS.items()
    }
    table = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    return Trees(table[0], table[1], table[2], table[3], table[4], arrays), at


def _read_tree(text: bytes, at: int, number: int) -> tuple[tuple[int, ...], tuple[bytes, ...], int]:
    refuse_unless(text[at : at + 1] == b"{", f"tree {number} is no object")
    at += 1
    try:
        n = read_length(text, at + _FIRST - 1)
        c = read_length(text, place := at + _FIRST + 8 + 4 * n + _CATEGORIES - 1)
        s = read_length(text, place := place + 9 + 4 * c + _NODES - 1)
        # After the first four arrays and the flags of n nodes comes the number of the tree.
        skipped = 9 + 4 * s + sum(len(_HEADS[k]) + 8 for k in ("categories_segments", "categories_sizes")) + 16 * s
        marker = text[(end := place + skipped + len(_HEADS["default_left"]) + 8 + n + len(_key("id"))) : end + 1]
        layout, heads = _layout(n, c, s, _ID_SIZES.get(marker, 0))
        parts = layout.unpack_from(text, at)
    except error:
        raise UncheckedError(f"tree {number} is longer than the file") from None
    tail = _TAIL.match(text, at + layout.size)
    if parts[::2] != heads or tail is None:
        raise UncheckedError(f"tree {number} is not written as XGBoost 2.1 to 3.2 write it")
    arrays = parts[1::2]
    found = tail.groups()
    size, digits = found[::2], found[1::2]
    refuse_unless([x[0] for x in size] == [len(d) for d in digits], f"tree {number} has a string of a wrong length")
    deleted, n_features, n_nodes, leaf_size = map(int, digits)
    refuse_unless(n_nodes == n >= 1 and leaf_size == 1, f"tree {number} says that it has {n_nodes} nodes, not {n}")
    refuse_unless(int.from_bytes(arrays[6][1:], "big") == number, f"tree {number} has another number")
    return (n, n_features, deleted, c, s), arrays, tail.end()


def check_trees(trees: Trees, n_features: int) -> None:
    """Refuse trees that cannot be walked from the root to a leaf, whatever the features of an event are."""
    if not len(trees):
        return
    refuse_unless((trees.n_features == n_features).all(), f"a tree has not {n_features} features")
    a = trees.arrays
    first = np.repeat(np.cumsum(trees.n_nodes) - trees.n_nodes, trees.n_nodes)  # root of each node's tree
    node = np.arange(first.size) - first
    left, right = a["left_children"].astype(np.int64), a["right_children"].astype(np.int64)
    inner: BoolArray = left != -1
    size = np.repeat(trees.n_nodes, trees.n_nodes)
    refuse_unless(((right != -1) == inner).all(), "a node has one child only")
    deleted: BoolArray = a["split_indices"] == _DELETED
    for child in (left[inner], right[inner]):
        refuse_unless(
            ((child > node[inner]) & (child < size[inner])).all(),
            "a node's child does not come after the node within the tree",
        )
        # Each node has one parent, so none is reached twice.
        refuse_unless((a["parents"][first[inner] + child] == node[inner]).all(), "a child belongs to another node")
        refuse_unless(not deleted[first[inner] + child].any(), "a node leads to a deleted one")
    refuse_unless((left[inner] != right[inner]).all(), "both children of a node are one")
    parent = np.arange(first.size)
    parent[first[inner] + left[inner]] = parent[first[inner] + right[inner]] = np.flatnonzero(inner)
    check_depth(parent)
    refuse_unless((a["parents"][node == 0] == _NO_PARENT).all(), "a tree does not begin with its root")
    refuse_unless(not (deleted & (inner | (node == 0))).any(), "a deleted node leads on")
    counts = np.add.reduceat(deleted, first[node == 0], dtype=np.int64)
    refuse_unless((counts == trees.n_deleted).all(), "the number of deleted nodes is another")
    feature = a["split_indices"][inner]
    refuse_unless(((feature >= 0) & (feature < n_features)).all(), f"a split is not on one of {n_features} features")
    refuse_unless((a["default_left"] <= 1).all() and (a["split_type"] <= 1).all(), "a flag is neither 0 nor 1")
    by_category: BoolArray = a["split_type"] == 1
    refuse_unless(not by_category[~inner].any(), "a leaf splits by category")
    condition = a["split_conditions"]
    leaf = ~inner & ~deleted
    refuse_unless(np.isfinite(condition[leaf]).all(), "a leaf has a value that is not finite")
    refuse_unless(not np.isnan(condition[inner & ~by_category]).any(), "a split is at NaN")
    refuse_unless(not np.isnan(a["loss_changes"][inner]).any(), "a gain is NaN")
    _check_categories(trees, np.flatnonzero(by_category), first[node == 0])


def _check_categories(trees: Trees, by_category: AnyArray, roots: AnyArray) -> None:
    a = trees.arrays
    where = a["categories_nodes"] + np.repeat(roots, trees.splits)
    refuse_unless(np.array_equal(where, by_category), "the splits by category are others than those with categories")
    begin, length = a["categories_segments"].astype(np.int64), a["categories_sizes"].astype(np.int64)
    most = np.repeat(trees.categories, trees.splits)
    fits = (begin >= 0) & (length >= 1) & (length <= most) & (begin <= most - length)
    refuse_unless(fits.all(), "a split has categories beyond the last")
    refuse_unless(
        ((a["categories"] >= 0) & (a["categories"] < _MOST_CATEGORIES)).all(),
        f"a category is not between 0 and {_MOST_CATEGORIES - 1}",
    )
