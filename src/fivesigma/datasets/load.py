"""Events from files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fivesigma.datasets.columns import Columns, asks
from fivesigma.datasets.root import RootTree
from fivesigma.datasets.sources import Paths, find_inputs, find_targets
from fivesigma.datasets.stream import EventStream

if TYPE_CHECKING:
    from fivesigma.datasets.columns import Source
    from fivesigma.datasets.events import Events


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
        Names or glob patterns of columns, or definitions, that are carried beside the features in their own type, such
        as an event number by which folds are made; `Events.kept` holds them.
    missing : float, optional
        Code that means missing in feature columns and becomes NaN; None if there is no such code.
    tree : str, optional
        TTree or RNTuple of a ROOT file; needed only if a file has more than one.
    cut : str, optional
        Condition on columns that events must pass, such as ``"passSel && jet_pt[0] > 45"``, applied to the values as
        they stand in the file.
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
        trees = RootTree.trees_of(target.path)
        if len(trees) > 1:
            return tuple(f"{each}:{name}" for each in trees for name in RootTree(target.path, each).names)
    return tuple(target.open(tree).names)


def source_of(path: str | os.PathLike[str]) -> Source:
    """Open a file of columns that are not events, such as scores, with the same checks."""
    return find_targets(path)[0].open()
