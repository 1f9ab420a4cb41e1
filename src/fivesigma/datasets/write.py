"""Events to files, so that reading them back gives the same numbers to the last bit; and scores to TTrees."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._tools.files import digest_path, written_whole, written_with_digest
from fivesigma._types import AnyArray
from fivesigma.challenge import MISSING
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError, shortened

NamedArrays = Mapping[str, AnyArray]


def write_events(events: Events, path: str | os.PathLike[str], *, missing: float | None = MISSING) -> Path:
    """Write events as .csv, .parquet or .root (a TTree called ``events``).

    The columns are EventId, the features, Weight, Label and Process, those that the events have, and what is kept
    (`load_events` reads that back with ``keep=``).  The file appears complete or not at all; one that is there already
    is replaced. Its SHA-256 is written next to it, in a file of the same name with ``.sha256`` added, and `load_events`
    checks it.

    Parameters
    ----------
    events : Events
    path : path
        Its ending chooses the format.
    missing : float, optional
        What stands for a missing feature; None writes NaN.

    Returns
    -------
    pathlib.Path

    Examples
    --------
    >>> import tempfile
    >>> from fivesigma.datasets import from_arrays, load_events
    >>> events = from_arrays([[0.1], [0.2]], ["s", "b"], [0.3, 4.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = load_events(write_events(events, f"{folder}/events.parquet"))
    >>> bool((again.X == events.X).all())
    True
    """
    path = Path(path)
    write = _WRITERS.get(path.suffix.lower())
    if write is None:
        raise InputError(f"{path.name} ends in none of {', '.join(_WRITERS)}: choose one of these formats")
    columns = _columns(events, missing)
    with written_with_digest(path) as beside:
        write(columns, beside)
    return path


def _columns(events: Events, missing: float | None) -> dict[str, AnyArray]:
    columns: dict[str, AnyArray] = {} if events.ids is None else {"EventId": events.ids}
    for j, name in enumerate(events.feature_names):
        column = np.ascontiguousarray(events.X[:, j])
        columns[name] = column if missing is None else np.where(np.isnan(column), np.float32(missing), column)
    others = {
        "Weight": events.weight,
        "Label": events.y if events.labelled else None,
        "Process": events.process,
    }
    for name, values in others.items():
        if name in columns:
            raise InputError(f"a feature is called {name!r}, which the file needs for itself; rename the feature")
        if values is not None:
            columns[name] = values
    for name, values in events.kept.items():
        if name in columns and not _alike(values, columns[name]):
            raise InputError(f"the kept column {name!r} holds other values than the file's own column of that name")
        columns[name] = values
    return columns


def _alike(kept: AnyArray, column: AnyArray) -> bool:
    """Whether a kept column, in the type of the file's own, has the same values."""
    if (kept.dtype.kind == "U") != (column.dtype.kind == "U"):
        return False
    return np.array_equal(kept.astype(column.dtype), column, equal_nan=column.dtype.kind == "f")


def _write_root(columns: NamedArrays, path: Path) -> None:
    uproot = need("uproot")
    awkward = need("awkward")
    text = {name for name, column in columns.items() if column.dtype.kind == "U"}
    types = {name: "string" if name in text else column.dtype for name, column in columns.items()}
    with uproot.recreate(path) as file:
        tree = file.mktree("events", types)
        tree.extend(
            {name: awkward.from_iter(column.tolist()) if name in text else column for name, column in columns.items()}
        )


_WRITERS: dict[str, Callable[[NamedArrays, Path], None]] = {
    ".csv": lambda columns, path: need("polars").DataFrame(columns).write_csv(path),
    ".parquet": lambda columns, path: need("polars").DataFrame(columns).write_parquet(path),
    ".root": _write_root,
}


def write_trees(path: str | Path, trees: Iterable[tuple[str, NamedArrays]]) -> Path:
    """Write TTrees, each made when it is its turn; the file appears whole or not at all, with its digest beside it."""
    path = Path(path)
    with written_with_digest(path) as beside, need("uproot").recreate(beside) as file:
        for name, columns in trees:
            file.mktree(name, {key: values.dtype for key, values in columns.items()})
            file[name].extend(dict(columns))
    return path


def add_branches(path: Path, trees: Iterable[tuple[str, NamedArrays]]) -> None:
    """Add branches to TTrees of a ROOT file: a copy beside it gets them, is checked, and takes the file's name."""
    uproot = need("uproot")
    if not path.is_file():
        raise InputError(f"{path} is no file of this machine, so that nothing can be added to it; write a friend tree")
    write = written_with_digest if digest_path(path).exists() else written_whole
    with write(path) as beside:
        shutil.copyfile(path, beside)
        shutil.copymode(path, beside)
        before, new = _contents(path), {}
        for name, columns in trees:
            there = [column for column in columns if column in before[name]]
            if there:
                raise InputError(f"{name} in {path.name} has a branch {there[0]!r} already; choose another name")
            try:
                with uproot.update(beside) as file:
                    file[name].add_branches(dict(columns))
            except OSError:
                raise
            except Exception as err:  # RNTuples, split objects, baskets of different sizes, and what else it cannot
                why = shortened(str(err).splitlines()[0], 120) if str(err) else type(err).__name__
                raise InputError(
                    f"uproot cannot add branches to {name} in {path.name} ({why}); write a friend tree"
                ) from err
            new[name] = {column: len(values) for column, values in columns.items()}
        if _contents(beside) != {name: found | new.get(name, {}) for name, found in before.items()}:
            raise InputError(f"the branches that were there would be lost from {path.name}; write a friend tree")


def _contents(path: Path) -> dict[str, dict[str, int]]:
    """Objects of a ROOT file, trees with the entries of their branches."""
    found: dict[str, dict[str, int]] = {}
    with need("uproot").open({path: None}) as file:
        for name, kind in file.classnames(recursive=True, cycle=False).items():
            branches = file[name].branches if kind.startswith(("TTree", "TNtuple")) else ()
            found[name] = {branch.name: int(branch.num_entries) for branch in branches}
    return found
