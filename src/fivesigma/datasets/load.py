"""Events from files."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fivesigma._files import DIGEST, check_digest
from fivesigma.challenge import MISSING
from fivesigma.datasets.assemble import assemble
from fivesigma.datasets.columns import Columns
from fivesigma.datasets.root import RootTree
from fivesigma.datasets.tables import CsvFile, ParquetFile
from fivesigma.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fivesigma.datasets.columns import Source
    from fivesigma.datasets.events import Events

__all__ = ["column_names", "load_events", "source_of"]

_ENDINGS = (".csv", ".csv.gz", ".csv.zst", ".parquet", ".root")


def load_events(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    features: str | Sequence[str] | None = None,
    label: str | None = "Label",
    signal: Any = None,
    weight: str | None = "Weight",
    process: str | None = None,
    ids: str | None = "auto",
    keep: str | Sequence[str] = (),
    missing: float | None = MISSING,
    tree: str | None = None,
    cut: str | None = None,
) -> Events:
    r"""Read weighted events from CSV, Parquet or ROOT files.

    Parameters
    ----------
    path : path, glob pattern, or a sequence of these
        Files ending in .csv, .csv.gz, .csv.zst, .parquet or .root, read one after the other.
    features : str or sequence of str, optional
        Names or glob patterns of feature columns; by default every number column but identifier, label,
        weight, process, kept columns and ``Kaggle*``.
    label : str, optional
        Column of the two labels; None for events without labels.
    signal : optional
        The label that means signal.  It must be given unless the labels are s/b, sig/bkg, signal/background
        (in any case), true/false, 1/0 or 1/-1.
    weight : str, optional
        Column of expected yields; None gives every event the weight one.
    process : str, optional
        Column that names what each event was simulated as.
    ids : str, optional
        Column of unique identifiers; "auto" takes ``EventId`` if there is one, None reads none.
    keep : str or sequence of str
        Names or glob patterns of columns that are carried beside the features in their own type, such as an
        event number by which folds are made; `Events.kept` holds them.
    missing : float, optional
        Code that means missing in feature columns and becomes NaN; None if there is no such code.
    tree : str, optional
        TTree or RNTuple of a ROOT file; needed only if a file has more than one.
    cut : str, optional
        Condition on columns that events must pass, such as ``"PRI_jet_num >= 2 && KaggleSet == 't'"``,
        applied to the values as they stand in the file.

    Returns
    -------
    Events
        Its ``notes`` say what was left out.

    Raises
    ------
    InputError
        For anything that cannot be used; the message names file, column and row (counted from 1, after the
        header).

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "events.csv"
    ...     _ = file.write_text("EventId,mass,Weight,Label\n7,125,0.1,s\n8,-999,2.5,b\n")
    ...     events = load_events(file)
    >>> events.feature_names, events.X[:, 0], events.ids
    (('mass',), array([125.,  nan], dtype=float32), array([7, 8]))
    """
    columns = Columns.asked(
        features=features,
        label=label,
        weight=weight,
        process=process,
        ids=ids,
        keep=keep,
        missing=missing,
        cut=cut,
    )
    return assemble((_source(file, tree) for file in _files(path)), columns, signal)


def column_names(path: str | os.PathLike[str], *, tree: str | None = None) -> tuple[str, ...]:
    r"""Return the column names of a file, or of the first file that a pattern matches.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "events.csv"
    ...     _ = file.write_text("mass,Weight\n125,0.1\n")
    ...     column_names(file)
    ('mass', 'Weight')
    """
    return tuple(_source(_files(path)[0], tree).names)


def source_of(path: str | os.PathLike[str]) -> Source:
    """Open a file of columns that are not events, such as scores, with the same checks."""
    return _source(_files(path)[0], None)


def _source(file: Path, tree: str | None) -> Source:
    ending = next(ending for ending in _ENDINGS if file.name.lower().endswith(ending))
    check_digest(file)
    try:
        if ending == ".root":
            return RootTree(file, tree)
        if tree is not None:
            raise InputError(f"tree= chooses within ROOT files, but {file.name} is not one")
        return ParquetFile(file) if ending == ".parquet" else CsvFile(file)
    except PermissionError as err:
        raise InputError(f"{file} may not be read by this user") from err


def _files(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """All files that a path, a pattern or a list of them means, each of a known kind."""
    if not isinstance(path, str | os.PathLike):
        return [file for item in path for file in _files(item)]
    file = Path(path)
    try:
        file.exists()
    except OSError as err:  # a name that is too long, a folder that may not be entered
        raise InputError(f"{file} cannot be looked up: {err.strerror}") from err
    if file.is_dir():
        raise InputError(f"{file} is a folder: name its files, for example '{file / '*.parquet'}'")
    found = [file]
    if not file.exists():
        if not glob.has_magic(str(path)):
            nearby = [item.name for item in file.parent.glob("*")] if file.parent.is_dir() else []
            hint = did_you_mean(file.name, nearby)
            raise InputError(f"there is no file {file}{hint}")
        found = [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207 - absolute too
        found = [item for item in found if item.is_file() and not item.name.endswith(DIGEST)]
    if not found:
        raise InputError(f"no file matches {str(path)!r}")
    for item in found:
        if not item.name.lower().endswith(_ENDINGS):
            raise InputError(f"{item.name} ends in none of {', '.join(_ENDINGS)}, so its format is unknown")
    return found
