"""Columns to TTrees of a ROOT file, entry by entry, for scores beside the ntuples that they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fivesigma._tools.extras import need
from fivesigma._tools.files import written_with_digest
from fivesigma._types import AnyArray
from fivesigma.datasets.root import RootTree

__all__ = ["tree_names", "write_trees"]


def tree_names(path: str | Path) -> tuple[str, ...]:
    """All TTrees and RNTuples of a ROOT file."""
    return RootTree.trees_of(Path(path))


def write_trees(path: str | Path, trees: Iterable[tuple[str, Mapping[str, AnyArray]]]) -> Path:
    """Write TTrees; the file appears whole or not at all, with its digest beside it.

    Parameters
    ----------
    path : path
        Ends in .root; what is there is replaced.
    trees : iterable of (str, mapping of str to array)
        Name and columns of each tree, made when it is its turn.
    """
    path = Path(path)
    with written_with_digest(path) as beside, need("uproot").recreate(beside) as file:
        for name, columns in trees:
            kinds: dict[str, Any] = {key: values.dtype for key, values in columns.items()}
            file.mktree(name, kinds)
            file[name].extend(dict(columns))
    return path
