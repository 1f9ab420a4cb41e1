"""Events from files, and from frames and arrays that are already in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fivesigma._tools.extras import need
from fivesigma._types import AnyArray
from fivesigma.challenge import MISSING
from fivesigma.datasets.columns import Columns, Kind, Source, asks
from fivesigma.datasets.events import Events
from fivesigma.datasets.root import RootTree, find_trees
from fivesigma.datasets.sources import Input, Paths, find_inputs, find_targets
from fivesigma.datasets.stream import EventStream
from fivesigma.errors import InputError


@asks(Columns)
def load_events(path: Paths | Mapping[str, Paths], columns: Columns) -> Events:
    r"""Read weighted events from CSV, Parquet or ROOT files.

    Parameters
    ----------
    path : path, glob pattern, a sequence of these, or a mapping of processes to these
        Files ending in .csv, .csv.gz, .csv.zst, .parquet or .root, read one after the other; ``file.root:tree`` names
        the tree as well. With a mapping, such as ``{"VH": "vh_*.root", "ttbar": ["a.root", "b.root"]}``, files say what
        an event is: no label or process column is read, and `signal` lists the processes that are signal.
    features : str or sequence of str, optional
        Names or glob patterns of feature columns, expressions such as ``"jet_pt[0]"`` (called ``jet_pt_0``), or
        definitions such as ``"HT = sum(jet_pt)"``; see `fivesigma.datasets.expression`. By default every number column
        but identifier, label, weight, process, kept columns, those that the weight or the cut use, and names that match
        `fivesigma.datasets.NEVER_FEATURES` (run and event numbers, weights, flags, truth, varied copies); the notes
        name what was taken.
    label : str, optional
        Column of the two labels, or a condition such as ``"genTtbarId > 0"``, true for signal; None for events without
        labels.
    signal : optional
        The label that means signal.  It must be given unless the labels are s/b, sg/bg, sig/bkg, signal/background
        (in any case), true/false, 1/0 or 1/-1. With a mapping of processes, one process or a list of them; an empty
        list if none is, as in a varied sample of some backgrounds.
    weight : str or mapping of str to str, optional
        Column of expected yields, or an expression such as ``"mcWeight * puWeight"``; None gives every event the weight
        one. With a mapping of processes it may be a mapping too: ``{"VH": "w * sf", "QCD": None}``.
    process : str, optional
        Column that names what each event was simulated as.
    ids : str, optional
        Column of unique identifiers; "auto" takes ``EventId`` if there is one, None reads none.
    keep : str or sequence of str
        Names or glob patterns of columns, or definitions, that are carried beside the features in their own type, such
        as an event number by which folds are made; `Events.kept` holds them.
    missing : float, optional
        Code that means missing in feature columns and becomes NaN; None if there is no such code.
    tree : str, optional
        TTree or RNTuple of a ROOT file; needed only if a file has more than one. ``"nominal + scores"`` reads friend
        trees of one file together, entry by entry.
    cut : str or mapping of str to str, optional
        Condition on columns that events must pass, such as ``"passSel && jet_pt[0] > 45"``, applied to the values as
        they stand in the file; or one for each process, as with `weight`.
    varied : mapping of str to str, optional
        Columns to read in place of others, such as ``{"jet_pt": "jet_pt_up"}``. A pattern such as ``{"*_NOSYS":
        "*_JET_up"}`` stands for all names that match it and have such a counterpart; others are read as they are.
    luminosity : float, optional
        Integrated luminosity in inverse femtobarn.
    cross_section : mapping of str to float, optional
        Cross sections of processes in picobarn. The weights of such a process are multiplied by 1000 x luminosity x
        cross section / sum of weights. If one process has a cross section, all need one, or None where weights are
        expected yields already.
    sum_of_weights : mapping of str to float or str, optional
        For each process with a cross section the sum of the weights of all generated events, or where the process's
        ROOT files have it: a histogram of one bin (``"h_sumw"``), one bin of a histogram by its number, from 0, or its
        label (``"CutBookkeeper_*_NOSYS[1]"``), or a branch of another tree (``"Runs/genEventSumw"``).

    Returns
    -------
    Events
        Its ``notes`` say what was left out, and by what the weights of each process were multiplied.

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
    return EventStream.of_inputs(*find_inputs(path, columns)).load()


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
    target = find_targets(path)[0]
    if tree is None and target.tree is None and target.path.name.lower().endswith(".root"):
        trees = find_trees(target.path)
        if len(trees) > 1:
            return tuple(f"{each}:{name}" for each in trees for name in RootTree(target.path, each).names)
    return tuple(target.open(tree).names)


def source_of(path: str | os.PathLike[str]) -> Source:
    """Open a file of columns that are not events, such as scores, with the same checks."""
    return find_targets(path)[0].open()


@asks(Columns)
def from_frame(frame: Any, columns: Columns) -> Events:
    """Take events from a pandas, polars or pyarrow table, from records of awkward or dask-awkward, or a dict of arrays.

    The parameters and checks are those of `load_events`. What is in a record has a name with a dot: ``"Jet.pt[0]"``.

    Examples
    --------
    >>> from_frame({"mass": [125.0, 91.0], "Label": ["s", "b"], "Weight": [0.1, 5.0]})
    Events: 2 rows, 1 feature, signal 's'
       rows  sum of weights  effective
    s     1             0.1        1.0
    b     1               5        1.0
    """
    for name in ("tree", "luminosity", "cross_section", "sum_of_weights"):
        if getattr(columns, name):
            raise InputError(f"{name} is for files, and this is a frame; leave it out")
    return EventStream.of_inputs([Input(place, varied=columns.varied) for place in _places(frame)], columns).load()


def from_arrays(
    X: ArrayLike,
    y: ArrayLike | None,
    weight: ArrayLike | None = None,
    *,
    signal: Any = None,
    feature_names: Sequence[str] | None = None,
    process: ArrayLike | None = None,
    ids: ArrayLike | None = None,
    keep: Mapping[str, ArrayLike] | None = None,
    missing: float | None = MISSING,
) -> Events:
    """Take events from arrays, with the checks of `load_events`; the arrays are not changed.

    Features are called x0, x1, ... unless `feature_names` says otherwise. `keep` holds columns that are carried
    beside the features in their own type.

    Examples
    --------
    >>> events = from_arrays([[1.0, 2.0], [3.0, -999.0]], [1, 0], [0.2, 7.0], keep={"eventNumber": [7, 8]})
    >>> events.X
    array([[ 1.,  2.],
           [ 3., nan]], dtype=float32)
    >>> events.kept["eventNumber"]
    array([7, 8])
    """
    table = np.asarray(X)
    if table.ndim != 2:
        raise InputError(f"X must have two dimensions, events and features, got {table.ndim}")
    names = tuple(feature_names) if feature_names is not None else tuple(f"x{i}" for i in range(table.shape[1]))
    if len(names) != table.shape[1]:
        raise InputError(f"X has {table.shape[1]} columns, but there are {len(names)} feature names")
    columns = dict(zip(names, table.T, strict=True))
    if len(columns) < len(names):
        raise InputError("feature names must differ from one another")
    kept = {name: np.asarray(values) for name, values in ({} if keep is None else keep).items()}
    for name in kept:
        if name in columns:
            raise InputError(f"{name!r} is a feature already and cannot be kept under the same name")
    roles = {"label": y, "weight": weight, "process": process, "ids": ids}
    given = {role: np.asarray(values) for role, values in roles.items() if values is not None}
    for role, column in (given | kept).items():
        if column.shape != (len(table),):
            called = "y" if role == "label" else role
            shape = f"{called} has the shape {column.shape}"
            raise InputError(f"X has {len(table):,} events, but {shape}; give one value per event")
    # A feature or a kept column may be called like a role; then the role's key is another.
    key: dict[str, Any] = dict.fromkeys(roles)
    for role in given:
        name = "y" if role == "label" else role
        while name in columns or name in kept:
            name += "'"
        key[role] = name
    data = columns | kept | {str(key[role]): column for role, column in given.items()}
    asked = Columns(features=names, keep=tuple(kept), missing=missing, signal=signal, **key)
    # What the arrays are called here is nothing to read a file by.
    return replace(EventStream.of_inputs([Input(_Frame(data, "the arrays"))], asked).load(), columns=None)


class _Frame:
    """A pandas, polars or pyarrow table, or a mapping of arrays; none of these libraries is imported."""

    def __init__(self, frame: Any, name: str | None = None) -> None:
        self.name = name or f"the {type(frame).__name__}"
        self.frame = frame
        # pyarrow has both attributes, and its columns are not names.
        names = getattr(frame, "column_names", None) or getattr(frame, "columns", None)
        names = list(frame) if names is None and isinstance(frame, dict) else names
        if names is None:
            raise InputError(f"{self.name} is not a frame: give pandas, polars, pyarrow, or a dict of arrays")
        self.names = tuple(names)
        if len(set(self.names)) < len(self.names) or not all(isinstance(n, str) for n in self.names):
            raise InputError(f"{self.name} needs column names that are text, each once")
        self.columns = {name: self._array(name) for name in self.names}
        self.numbers = tuple(name for name, column in self.columns.items() if column.dtype.kind in "biuf")

    def _array(self, name: str) -> AnyArray:
        column = self.frame[name]
        if hasattr(getattr(column, "type", None), "index_type"):
            return np.array(column.to_pylist(), dtype=object)  # pyarrow's categories have no NumPy form
        if str(getattr(column, "dtype", "")) in ("Int128", "UInt128"):
            return np.array(column.to_list(), dtype=object)  # nor have polars' longest integers
        array = np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)
        if array.dtype.kind == "O" and str(getattr(column, "dtype", "")).startswith(("Int", "UInt", "Float")):
            array = np.asarray(column.to_numpy(dtype=float, na_value=np.nan))  # pandas' nullable numbers
        return array

    def chunks(self, kinds: Mapping[str, Kind], rows: int | None = None) -> Iterator[dict[str, Any]]:  # noqa: ARG002
        """Hand over the columns at once, lists as awkward has them."""
        chunk: dict[str, Any] = {}
        for name, kind in kinds.items():
            column, given = self.columns[name], self.frame[name]
            type_name = str(getattr(given, "dtype", getattr(given, "type", ""))).lower()
            if kind == "value" and column.dtype.kind == "f" and type_name.startswith(("int", "uint")):
                column = column.astype(object)  # of which gaps are refused, also where floats may have them
            lists = column.dtype.kind == "O" and isinstance(next(iter(column), None), list | tuple | np.ndarray)
            chunk[name] = need("awkward").from_iter(column) if lists else column
        yield chunk


class _Records:
    """Records of awkward, or a partition of dask-awkward; a field of a field has a name such as ``Jet.pt``."""

    def __init__(self, array: Any, name: str) -> None:
        self.array, self.name = array, name
        types = getattr(array, "_meta", array)  # dask-awkward has types before it has values
        self._paths = {".".join(path): path for path in _leaves(types)}
        if not self._paths:
            raise InputError(f"{name} has no fields: give an array of records")
        kinds = {name: str(types[path].type).partition("* ")[2] for name, path in self._paths.items()}
        self.names = tuple(self._paths)
        self.numbers = tuple(n for n, kind in kinds.items() if re.fullmatch(r"\??(bool|u?int\d+|float\d+)", kind))

    def chunks(self, kinds: Mapping[str, Kind], rows: int | None = None) -> Iterator[dict[str, Any]]:  # noqa: ARG002
        """Hand over the columns at once; of dask-awkward they are computed now, and no others."""
        columns = {name: self.array[self._paths[name]] for name in kinds}
        if hasattr(self.array, "compute"):
            (columns,) = need("dask").compute(columns)
        yield columns


def _leaves(array: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths to all that is no record."""
    for field in array.fields:
        inner = array[field]
        yield from _leaves(inner, (*path, field)) if inner.fields else [(*path, field)]


def _places(frame: Any) -> list[_Frame | _Records]:
    """What a frame is to the reader: partitions, records, or columns."""
    library, name = type(frame).__module__.partition(".")[0], f"the {type(frame).__name__}"
    if library == "dask_awkward":
        return [_Records(frame.partitions[k], f"partition {k} of {name}") for k in range(frame.npartitions)]
    if library == "polars" and any(dtype.is_nested() for dtype in frame.dtypes):
        frame, library = frame.to_arrow(), "pyarrow"
    if library == "pyarrow" and any(field.type.num_fields for field in frame.schema):
        return [_Records(need("awkward").from_arrow(frame), name)]
    if hasattr(frame, "layout") and hasattr(frame, "fields"):  # of awkward, or of a library that builds on it
        return [_Records(need("awkward").Array(frame.layout), name)]
    return [_Frame(frame)]
