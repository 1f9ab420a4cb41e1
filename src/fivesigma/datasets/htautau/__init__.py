"""The embedded events: a toy simulation of Higgs bosons decaying to taus, in the schema of the 2014 challenge."""

from __future__ import annotations

import operator

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fivesigma._types import Array
from fivesigma.challenge import YIELDS
from fivesigma.datasets.columns import Columns
from fivesigma.datasets.events import Events
from fivesigma.datasets.htautau.detector import observe
from fivesigma.datasets.htautau.kinematics import DERIVED, MEASURED
from fivesigma.datasets.htautau.simulation import PROCESSES, Process
from fivesigma.errors import InputError

__all__ = ["YIELDS", "make_htautau"]

_ROWS = {"s": 0.3427, "b": 1.0 - 0.3427}  # shares of the classes
_PIECE = 20_000
_FEATURES = (*DERIVED, *MEASURED)


def make_htautau(n_events: int = 100_000, random_state: int = 0) -> Events:
    """Simulate H → ττ and its backgrounds, with the columns of the 2014 challenge.

    A toy: it has the columns, the definitions, the missing pattern, the yields and about the difficulty of
    the 2014 challenge's events, but it is neither ATLAS data nor a full simulation.  Signal is gluon fusion
    and vector-boson fusion; background is Z bosons decaying to taus, top pairs, and W bosons with a jet that
    is taken for a tau.

    Parameters
    ----------
    n_events : int
        Number of events, at least 100.
    random_state : int
        Seed; the same seed gives the same events.

    Returns
    -------
    Events
        30 features in the challenge's order with NaN where undefined, labels "s" and "b", weights that sum to
        `YIELDS`, processes and identifiers.

    Examples
    --------
    >>> events = make_htautau(1000, random_state=1)
    >>> events.X.shape
    (1000, 30)
    >>> round(float(events.weight[events.is_signal].sum()), 3)
    691.989
    """
    n_events = operator.index(n_events)
    if n_events < 100:
        raise InputError(f"n_events must be at least 100, so that every process is there, got {n_events}")
    seeds = np.random.SeedSequence(random_state).spawn(len(PROCESSES) + 1)
    counts = [round(n_events * _ROWS[process.label] * process.rows) for process in PROCESSES]
    counts[-1] = n_events - sum(counts[:-1])
    parts = []
    for process, n, seed in zip(PROCESSES, counts, seeds, strict=False):
        X, importance = _simulate(process, n, np.random.default_rng(seed))
        weight = importance * (YIELDS[process.label] * process.yields / importance.sum())
        parts.append((X, weight, np.full(n, process.label), np.full(n, process.name)))
    order = np.random.default_rng(seeds[-1]).permutation(n_events)
    X, weight, y, name = (np.concatenate(columns)[order] for columns in zip(*parts, strict=True))
    return Events(
        X=X,
        y=y,
        weight=weight,
        signal="s",
        feature_names=_FEATURES,
        process=name,
        ids=np.arange(n_events),
        columns=Columns(features=_FEATURES, process="Process", ids="EventId"),  # as `write_events` names them
    )


def _simulate(process: Process, n: int, rng: Generator) -> tuple[NDArray[np.float32], Array]:
    """Collide until `n` events are selected."""
    X: list[NDArray[np.float32]] = []
    importance: list[Array] = []
    found = 0
    while found < n:
        columns, rarity = observe(rng, process.generate(rng, _PIECE))
        X.append(np.stack([columns[name] for name in _FEATURES], axis=1).astype(np.float32))
        importance.append(rarity * rng.lognormal(0.0, 0.15, len(rarity)))
        found += len(rarity)
    return np.concatenate(X)[:n], np.concatenate(importance)[:n]
