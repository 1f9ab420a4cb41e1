"""The trees in a booster of LightGBM: their text, line by line, and where they lead, all at once."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from fivesigma._types import AnyArray, BoolArray
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
_INFINITE = re.compile(rb"(?<![^ ])-?inf(?![^ ])")  # as a threshold it parts missing values from all others
_START = re.compile(rb"Tree=(\d{1,9})\nnum_leaves=(\d{1,9})\nnum_cat=(\d{1,9})\n")
_NUMBERS = re.compile(b"".join(rb"%s=([^\n]*)\n" % name.encode() for name in _LINES))
_END = re.compile(rb"is_linear=0\nshrinkage=([^\n ]+)\n\n\n")
_TOO_LARGE = re.compile(rb"e\+?(30[1-9]|3[1-9]\d|[4-9]\d\d)|e[-+]?\d{4}")


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
    at = 0
    counts, found = [], []
    for number, size in enumerate(sizes):
        count, lines = _read_tree(text[at : at + size], number)
        counts.append(count)
        found.append(lines)
        at += size
    columns = dict(zip((*_LINES, "shrinkage"), zip(*found, strict=True), strict=True)) if found else {}
    for name, tokens in columns.items():
        if name not in _WHOLE:
            joined = b" ".join(filter(None, tokens))
            _check_numbers(_INFINITE.sub(b"1", joined) if name == "threshold" and b"inf" in joined else joined)
    whole = {name: _whole(b" ".join(filter(None, columns.get(name, ()))), name) for name in _WHOLE}
    n_leaves, n_categorical = np.array(counts, dtype=np.int64).reshape(-1, 2).T
    _check_walks(whole, n_leaves, n_features)
    by_category = (whole["decision_type"] & 1) == 1
    refuse_unless(np.repeat(n_categorical > 0, n_leaves - 1)[by_category].all(), "a split is by categories without any")


def _read_tree(text: bytes, number: int) -> tuple[tuple[int, int], tuple[bytes, ...]]:
    """Read a tree; return its leaves and sets of categories, and its lines of numbers."""
    start = _START.match(text)
    if start is None or int(start[1]) != number:
        raise UncheckedError(f"tree {number} does not begin where tree_sizes says")
    n, n_categorical = int(start[2]), int(start[3])
    lines = _NUMBERS.match(text, start.end())
    if lines is None:
        raise UncheckedError(f"tree {number} has not the lines of a tree")
    values = lines.groups()
    # Tokens are split by single spaces; LightGBM counts them in the same way.
    counts = {"inner": n - 1, "leaf": n}
    for (name, of), value in zip(_LINES.items(), values, strict=True):
        count = value.count(b" ") + 1 if value else 0
        if not (count == counts[of] or (n == 1 and count == 0 and name != "leaf_value")):
            raise UncheckedError(f"tree {number} has {count} items in {name}, not {counts[of]}")
    rest = text[lines.end() :]
    if n_categorical:
        rest = _check_categories(rest, n_categorical, values, number)
    end = _END.fullmatch(rest)
    if n < 1 or end is None:
        raise UncheckedError(f"tree {number} does not end as a tree without linear leaves")
    return (n, n_categorical), (*values, end[1])


def _check_categories(rest: bytes, n: int, values: tuple[bytes, ...], number: int) -> bytes:
    """Check the sets of categories and the splits that point to them; return what follows."""
    lines = rest.split(b"\n", 2)
    keys = (b"cat_boundaries=", b"cat_threshold=")
    if len(lines) != 3 or not (lines[0].startswith(keys[0]) and lines[1].startswith(keys[1])):
        raise UncheckedError(f"tree {number} has no categories, though it splits by them")
    bounds = _whole(lines[0][len(keys[0]) :], "cat_boundaries")
    sets = _whole(lines[1][len(keys[1]) :], "cat_threshold")
    fits = bounds.size == n + 1 and bounds[0] == 0 and bounds[-1] == sets.size and (np.diff(bounds) >= 1).all()
    refuse_unless(fits, f"tree {number} has categories beyond the last")
    refuse_unless(((sets >= 0) & (sets < 1 << 32)).all(), f"tree {number} has a set of categories that is none")
    names = list(_LINES)
    decision = _whole(values[names.index("decision_type")], "decision_type")
    tokens = values[names.index("threshold")]
    _check_numbers(tokens)
    which = np.array(tokens.split(b" "), dtype=np.float64)[(decision & 1) == 1]
    refuse_unless(np.isin(which, np.arange(n)).all(), f"tree {number} splits by categories that are not there")
    return lines[2]


def _check_numbers(tokens: bytes, longest: int = 32) -> None:
    """Refuse what is not numbers of few characters between single spaces; all characters are looked at at once."""
    if not tokens:
        return
    kinds = np.frombuffer(b" ".join((b"", tokens, b"")).translate(_KIND), dtype=np.uint8)
    pairs = (kinds[:-1] * 8 + kinds[1:]).tobytes().translate(_MAY_FOLLOW)
    refuse_unless(b"\0" not in pairs, "a line of numbers holds something else")
    spaces = np.flatnonzero(kinds == _SPACE)
    refuse_unless(np.diff(spaces).max() <= longest + 1 and not _TOO_LARGE.search(tokens), "a number is too large")


def _whole(tokens: bytes, what: str) -> AnyArray:
    """Whole numbers between single spaces."""
    _check_numbers(tokens, longest=18)  # which fits in 64 bits
    refuse_unless(b"." not in tokens and b"e" not in tokens, f"{what} is not made of whole numbers")
    return np.fromstring(tokens.decode(), dtype=np.int64, sep=" ") if tokens else np.zeros(0, dtype=np.int64)


_SPACE, _DIGIT, _SIGN, _POINT, _EXPONENT, _OTHER = range(6)
_KIND = bytes(
    dict(zip(b" +-.e0123456789", (_SPACE, _SIGN, _SIGN, _POINT, _EXPONENT, *[_DIGIT] * 10), strict=True)).get(k, _OTHER)
    for k in range(256)
)
_FOLLOWS = {
    *((_SPACE, _DIGIT), (_SPACE, _SIGN), (_SIGN, _DIGIT), (_DIGIT, _DIGIT), (_DIGIT, _POINT), (_POINT, _DIGIT)),
    *((_DIGIT, _EXPONENT), (_EXPONENT, _SIGN), (_EXPONENT, _DIGIT), (_DIGIT, _SPACE)),
}
_MAY_FOLLOW = bytes(divmod(k, 8) in _FOLLOWS for k in range(256))  # a table for bytes.translate


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
