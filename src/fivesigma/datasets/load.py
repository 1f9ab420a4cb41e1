"""Events from files."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fivesigma._tools.files import DIGEST, check_digest
from fivesigma.challenge import MISSING
from fivesigma.datasets.assemble import Processes, assemble
from fivesigma.datasets.columns import Columns
from fivesigma.datasets.root import RootTree, histogram_sum
from fivesigma.datasets.tables import CsvFile, ParquetFile
from fivesigma.errors import InputError, did_you_mean, is_number

if TYPE_CHECKING:
    from fivesigma.datasets.columns import Source
    from fivesigma.datasets.events import Events

__all__ = ["column_names", "load_events", "source_of"]

_ENDINGS = (".csv", ".csv.gz", ".csv.zst", ".parquet", ".root")


Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def load_events(
    path: Paths | Mapping[str, Paths],
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
    luminosity: float | None = None,
    cross_section: Mapping[str, float] | None = None,
    sum_of_weights: Mapping[str, float | str] | None = None,
) -> Events:
    r"""Read weighted events from CSV, Parquet or ROOT files.

    Parameters
    ----------
    path : path, glob pattern, a sequence of these, or a mapping of processes to these
        Files ending in .csv, .csv.gz, .csv.zst, .parquet or .root, read one after the other; ``file.root:tree`` names
        the tree as well. With a mapping, such as ``{"VH": "vh_*.root", "ttbar": ["a.root", "b.root"]}``, files say what
        an event is: no label or process column is read, and `signal` lists the processes that are signal.
    features : str or sequence of str, optional
        Names or glob patterns of feature columns, or definitions such as ``"HT = sum(jet_pt)"``; see
        `fivesigma.datasets.expression`. By default every number column but identifier, label, weight, process, kept
        columns, those that the weight or the cut use, and names that match `fivesigma.datasets.NEVER_FEATURES`
        (run and event numbers, weights, flags); the notes name what was taken.
    label : str, optional
        Column of the two labels; None for events without labels.
    signal : optional
        The label that means signal.  It must be given unless the labels are s/b, sig/bkg, signal/background
        (in any case), true/false, 1/0 or 1/-1. With a mapping of processes, one process or a list of them; an empty
        list if none is, as in a varied sample of some backgrounds.
    weight : str, optional
        Column of expected yields, or an expression such as ``"mcWeight * puWeight"``; None gives every event the weight
        one.
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
        Condition on columns that events must pass, such as ``"passSel && jet_pt[0] > 45"``, applied to the values as
        they stand in the file.
    luminosity : float, optional
        Integrated luminosity in inverse femtobarn.
    cross_section : mapping of str to float, optional
        Cross sections of processes in picobarn. The weights of such a process are multiplied by 1000 x luminosity x
        cross section / sum of weights; a process without a cross section keeps its weights.
    sum_of_weights : mapping of str to float or str, optional
        For each process with a cross section the sum of the weights of all generated events, or the name of a
        histogram that is summed over the process's ROOT files.

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
    opened = open_sources(
        path,
        columns,
        signal,
        tree=tree,
        luminosity=luminosity,
        cross_section=cross_section,
        sum_of_weights=sum_of_weights,
    )
    return assemble(
        (opened.source(at) for at in range(len(opened.targets))),
        opened.columns,
        opened.signal,
        processes=opened.processes,
    )


class Opened(NamedTuple):
    """Files that are to be read, and how.

    Attributes
    ----------
    targets : list of Target
    tree : str or None
    columns : Columns
        As asked for; without label and process where files say what an event is.
    signal : label, or list of processes
    processes : Processes or None
        Process and factor of each file, where files say what an event is.
    """

    targets: list[Target]
    tree: str | None
    columns: Columns
    signal: Any
    processes: Processes | None = None

    def source(self, at: int) -> Source:
        """Open one of the files."""
        if self.processes is None:
            return _source(self.targets[at], self.tree)
        try:
            return _source(self.targets[at], self.tree)
        except InputError as err:
            raise InputError(f"{err} (process {self.processes.names[at]!r})") from err


def open_sources(
    path: Paths | Mapping[str, Paths],
    columns: Columns,
    signal: Any,
    *,
    tree: str | None,
    luminosity: float | None,
    cross_section: Mapping[str, float] | None,
    sum_of_weights: Mapping[str, float | str] | None,
) -> Opened:
    """Find the files that a user means; none is read yet. The parameters are those of `load_events`."""
    if isinstance(path, Mapping):
        return _open_processes(
            path,
            columns,
            signal,
            tree=tree,
            luminosity=luminosity,
            cross_section=cross_section or {},
            sum_of_weights=sum_of_weights or {},
        )
    if luminosity is not None or cross_section or sum_of_weights:
        raise InputError("luminosity, cross_section and sum_of_weights belong to processes; give {process: files}")
    targets = _files(path)
    if tree is not None and not all(target.path.suffix.lower() == ".root" for target in targets):
        other = next(target.path.name for target in targets if target.path.suffix.lower() != ".root")
        raise InputError(f"a tree is chosen within ROOT files, but {other} is not one")
    return Opened(targets, tree, columns, signal)


def _open_processes(
    paths: Mapping[str, Paths],
    columns: Columns,
    signal: Any,
    *,
    tree: str | None,
    luminosity: float | None,
    cross_section: Mapping[str, float],
    sum_of_weights: Mapping[str, float | str],
) -> Opened:
    """Find files whose processes are known."""
    if not paths:
        raise InputError("there is no process to read")
    if signal is None:
        raise InputError("name the processes that are signal with signal= or --signal")
    signals = [signal] if isinstance(signal, str) else list(signal)
    for kind, names in (("signal", signals), ("cross_section", cross_section), ("sum_of_weights", sum_of_weights)):
        for name in names:
            if name not in paths:
                hint = did_you_mean(str(name), paths) or f"; there are {', '.join(map(repr, paths))}"
                raise InputError(f"{kind} names the process {name!r}, which has no files{hint}")
    targets: list[Target] = []
    found: list[str] = []
    factors: list[float] = []
    for process, path in paths.items():
        try:
            own = _files(path)
        except InputError as err:
            raise InputError(f"{err} (process {process!r})") from err
        targets += own
        found += [process] * len(own)
        factor = normalisation(process, own, luminosity, cross_section.get(process), sum_of_weights.get(process))
        factors += [factor] * len(own)
    return Opened(targets, tree, replace(columns, label=None, process=None), signals, Processes(found, factors))


def normalisation(
    process: str,
    files: Sequence[Target],
    luminosity: float | None,
    cross_section: float | None,
    sum_of_weights: float | str | None,
) -> float:
    """Factor of the weights of a process: 1000 x luminosity x cross section / sum of weights, or one."""
    if cross_section is None:
        if sum_of_weights is not None:
            raise InputError(f"process {process!r} has a sum of weights and no cross section; give both or neither")
        return 1.0
    if luminosity is None:
        raise InputError(f"process {process!r} has a cross section, which needs a luminosity (in 1/fb)")
    if sum_of_weights is None:
        raise InputError(f"process {process!r} has a cross section, which needs a sum of weights")
    total = sum_of_weights
    if isinstance(total, str):
        total = sum(histogram_sum(target.path, total, process) for target in files)
    for name, value in (("luminosity", luminosity), ("cross section", cross_section), ("sum of weights", total)):
        if not is_number(value) or not np.isfinite(value) or value <= 0:
            raise InputError(f"the {name} of process {process!r} must be a positive number, got {value!r}")
    return 1000.0 * float(luminosity) * float(cross_section) / float(total)


def column_names(path: str | os.PathLike[str], *, tree: str | None = None) -> tuple[str, ...]:
    r"""Return the column names of a file, or of the first file that a pattern matches.

    If a ROOT file has several trees and none is named, all columns of all trees are returned, as ``"tree:column"``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "events.csv"
    ...     _ = file.write_text("mass,Weight\n125,0.1\n")
    ...     column_names(file)
    ('mass', 'Weight')
    """
    target = _files(path)[0]
    if tree is None and target.tree is None and target.path.name.lower().endswith(".root"):
        trees = RootTree.trees_of(target.path)
        if len(trees) > 1:
            check_digest(target.path)
            return tuple(f"{each}:{name}" for each in trees for name in RootTree(target.path, each).names)
    return tuple(_source(target, tree).names)


def source_of(path: str | os.PathLike[str]) -> Source:
    """Open a file of columns that are not events, such as scores, with the same checks."""
    return _source(_files(path)[0], None)


class Target(NamedTuple):
    """A file, and the tree in it that its name asks for."""

    path: Path
    tree: str | None = None


def _source(target: Target, tree: str | None) -> Source:
    file, tree = target.path, target.tree or tree
    ending = next(ending for ending in _ENDINGS if file.name.lower().endswith(ending))
    check_digest(file)
    try:
        if ending == ".root":
            return RootTree(file, tree)
        if target.tree is not None:
            raise InputError(f"{file.name} is not a ROOT file, so it has no tree {target.tree!r}")
        return ParquetFile(file) if ending == ".parquet" else CsvFile(file)
    except PermissionError as err:
        raise InputError(f"{file} may not be read by this user") from err


def _files(path: Paths) -> list[Target]:
    """All files that a path, a pattern or a list of them means, each of a known kind."""
    if not isinstance(path, str | os.PathLike):
        return [target for item in path for target in _files(item)]
    name, _, tree = str(path).rpartition(".root:")
    if name:
        return [Target(item, tree) for item in _matching(Path(f"{name}.root"))]
    return [Target(item) for item in _matching(Path(path))]


def _matching(file: Path) -> list[Path]:
    """Files that a name or a pattern means."""
    try:
        file.exists()
    except OSError as err:  # a name that is too long, a folder that may not be entered
        raise InputError(f"{file} cannot be looked up: {err.strerror}") from err
    if file.is_dir():
        raise InputError(f"{file} is a folder: name its files, for example '{file / '*.parquet'}'")
    found = [file]
    if not file.exists():
        if not glob.has_magic(str(file)):
            nearby = [item.name for item in file.parent.glob("*")] if file.parent.is_dir() else []
            hint = did_you_mean(file.name, nearby)
            raise InputError(f"there is no file {file}{hint}")
        found = [Path(name) for name in sorted(glob.glob(str(file), recursive=True))]  # noqa: PTH207 - absolute too
        found = [item for item in found if item.is_file() and not item.name.endswith(DIGEST)]
    if not found:
        raise InputError(f"no file matches {str(file)!r}")
    for item in found:
        if not item.name.lower().endswith(_ENDINGS):
            raise InputError(f"{item.name} ends in none of {', '.join(_ENDINGS)}, so its format is unknown")
    return found
