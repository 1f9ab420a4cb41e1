"""A file in the format of the challenge made of simulated events, for those who do not have the real one."""

from __future__ import annotations

import gzip
import operator
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._tools.files import refuse_special, written_with_digest
from fivesigma._types import AnyArray, BoolArray, IntArray
from fivesigma.challenge import MISSING
from fivesigma.datasets.events import Events
from fivesigma.datasets.htautau import make_htautau
from fivesigma.errors import InputError
from fivesigma.higgsml.data import CERN, TOTALS, Census
from fivesigma.yields import rescale

_FIRST_ID = 100_000
_PIECE = 50_000  # rows that are text at the same time
_FEWEST = 1_000


def write_simulated(path: str | os.PathLike[str], n_events: int = CERN.total, *, random_state: int = 0) -> Path:
    """Write simulated events as the CERN file has them.

    The events are those of `fivesigma.datasets.make_htautau`: a toy, neither ATLAS data nor a full simulation. The
    sets have the challenge's proportions, and its exact numbers if there are as many events.

    Parameters
    ----------
    path : path
        A file ending in .csv or .csv.gz; one that is there is replaced.
    n_events : int, default=818_238
        Number of events, at least 1,000.
    random_state : int, default=0
        Seed; the same seed gives the same events.

    Returns
    -------
    pathlib.Path

    Examples
    --------
    >>> import tempfile
    >>> from fivesigma.datasets import column_names
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     names = column_names(write_simulated(f"{folder}/small.csv.gz", n_events=1000))
    >>> len(names), names[-4:]
    (35, ('Weight', 'Label', 'KaggleSet', 'KaggleWeight'))
    """
    path, n_events = Path(path), operator.index(n_events)
    if not path.name.lower().endswith((".csv", ".csv.gz")):
        raise InputError(f"{path.name} ends in neither .csv nor .csv.gz, the formats of the challenge")
    refuse_special(path)
    if n_events < _FEWEST:
        raise InputError(f"n_events must be at least {_FEWEST:,}, so that every set has both classes, got {n_events}")
    events = make_htautau(n_events, random_state)
    rng = np.random.default_rng([random_state, n_events])
    sets = _allot(events.is_signal, CERN.scaled(n_events), rng)
    # As in the CERN file: training events, then the test events of both sets mixed, then the unused.
    order = np.argsort(np.select([sets == "t", sets == "u"], [0, 2], 1), kind="stable")
    with written_with_digest(path) as beside, ExitStack() as opened:
        file: Any = opened.enter_context(beside.open("wb"))
        if path.suffix.lower() == ".gz":  # no time and no name inside, so that the same events are the same bytes
            file = opened.enter_context(gzip.GzipFile("", "wb", 6, file, mtime=0))
        _write(events, sets, order, file)
    return path


def _allot(signal: BoolArray, census: Census, rng: np.random.Generator) -> AnyArray:
    """A set for each event, each with the share of signal that the training set has."""
    rows = [rng.permutation(np.flatnonzero(members)) for members in (signal, ~signal)]
    sets = np.full(signal.size, "u")
    used = [0, 0]
    for name in "tbv":
        n_signal = round(census.events[name] * CERN.training_signal / CERN.events["t"])
        for k, count in enumerate((n_signal, census.events[name] - n_signal)):
            sets[rows[k][used[k] : used[k] + count]] = name
            used[k] += count
    return sets


def _write(events: Events, sets: AnyArray, order: IntArray, file: Any) -> None:
    pl, kaggle_weight, signal = need("polars"), events.weight.copy(), events.is_signal
    for name in CERN.events:
        members = sets == name
        kaggle_weight[members] = rescale(kaggle_weight[members], signal[members], TOTALS)
    for start in range(0, len(order), _PIECE):
        rows = order[start : start + _PIECE]
        X = np.where(np.isnan(events.X[rows]), np.float32(MISSING), events.X[rows]).round(3)
        columns: dict[str, AnyArray] = {"EventId": np.arange(start, start + len(rows)) + _FIRST_ID}
        for j, name in enumerate(events.feature_names):
            columns[name] = X[:, j].astype(np.int64) if name == "PRI_jet_num" else X[:, j]
        columns |= {"Weight": events.weight[rows], "Label": events.y[rows]}
        columns |= {"KaggleSet": sets[rows], "KaggleWeight": kaggle_weight[rows]}
        pl.DataFrame(columns).write_csv(file, include_header=start == 0)
