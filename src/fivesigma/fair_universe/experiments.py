"""Pseudo-experiments of the FAIR-Universe challenge, and its score: interval width and coverage."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fivesigma.datasets.events import Events
from fivesigma.errors import InputError
from fivesigma.fair_universe.nuisances import FEATURES, Nuisances, draw_nuisances, from_higgsml, move_events

__all__ = ["Experiment", "Score", "load", "make_experiments", "read_events", "score_intervals"]

MISSING = -25.0
LEVEL = 0.6827
MU_RANGE = (0.1, 3.0)
_OFFSET = 0.001  # of the width, in the challenge's score


def load(path: str | os.PathLike[str]) -> Events:
    """Read the challenge's Parquet file.

    Parameters
    ----------
    path : path
        FAIR_Universe_HiggsML_data.parquet: 28 features, weights, labels, detailed_labels.

    Returns
    -------
    Events
        Signal is the label 1; processes are htautau, ztautau, ttbar and diboson.
    """
    from fivesigma.datasets.load import load_events

    return load_events(
        path,
        features=list(FEATURES),
        label="labels",
        signal=1,
        weight="weights",
        process="detailed_labels",
        ids=None,
        missing=MISSING,
    )


def read_events(data: str, *, luminosity: float = 1.0, random_state: int = 0) -> Events:
    """Read what ``fivesigma fair-universe`` is given.

    Parameters
    ----------
    data : str
        The challenge's Parquet file, a Parquet or CSV file with the columns of 2014 and processes, or ``"toy:N"`` for N
        events of `make_htautau`.
    luminosity : float, default=1.0
        Factor of all weights.
    random_state : int, default=0
        Seed of the toy.

    Examples
    --------
    >>> from fivesigma.fair_universe import read_events
    >>> len(read_events("toy:500"))
    500
    """
    from fivesigma.datasets.htautau import make_htautau
    from fivesigma.datasets.load import column_names, load_events

    if data.startswith("toy:"):
        number = data.removeprefix("toy:")
        if not number.isdecimal():
            raise InputError(f"a toy needs a number of events, such as toy:400000; got {data!r}")
        events = from_higgsml(make_htautau(int(number), random_state=random_state))
    elif "PRI_had_pt" in column_names(data):
        events = load(data)
    else:
        events = from_higgsml(load_events(data, signal="s", weight="Weight", process="Process"))
    return replace(events, weight=luminosity * events.weight)


class Experiment(NamedTuple):
    """Events of one pseudo-experiment, each of which counts once, with the truth behind them."""

    events: Events
    mu: float
    nuisances: Nuisances


def make_experiments(
    events: Events, mu: float, n: int, random_state: int | np.random.Generator = 0
) -> Iterator[Experiment]:
    """Draw pseudo-experiments from simulated events.

    Parameters
    ----------
    events : Events
        Test events with `FEATURES` and processes; weights are the expected counts at mu = 1.
    mu : float
        Signal strength.
    n : int
        How many.
    random_state : int or numpy Generator, default=0
        Seed.

    Yields
    ------
    Experiment
        Each event is taken as often as a Poisson number with its expected count, then moved by nuisances that are drawn
        anew.

    Examples
    --------
    >>> from fivesigma.datasets import make_htautau
    >>> from fivesigma.fair_universe import from_higgsml, make_experiments
    >>> events = from_higgsml(make_htautau(2000)).scaled_to(s=20.0, b=200.0)
    >>> one = next(make_experiments(events, mu=1.0, n=1, random_state=1))
    >>> 150 < len(one.events) < 300
    True
    """
    if not mu >= 0:
        raise InputError(f"mu must be >= 0, got {mu!r}")
    if events.process is None:
        raise InputError("these events have no processes, which the scales of yields need")
    rng = np.random.default_rng(random_state)
    names, codes = np.unique(events.process.astype(str), return_inverse=True)
    for _ in range(n):
        nuisances = draw_nuisances(rng)
        factor = np.array([nuisances.factors(name) for name in names])[codes]
        expected = events.weight * np.where(events.is_signal, mu, factor)
        copies = np.repeat(np.arange(len(events)), rng.poisson(np.maximum(expected, 0.0)))
        drawn = events[copies]
        # Yields have their factors already; what is left moves momenta.
        moved = nuisances._replace(ttbar_scale=1.0, diboson_scale=1.0, bkg_scale=1.0)
        drawn = move_events(replace(drawn, weight=np.ones(len(drawn))), moved, rng)
        yield Experiment(drawn, mu, nuisances)


class Score(NamedTuple):
    """Mean width of the intervals, their coverage, and the challenge's score (larger is better)."""

    width: float
    coverage: float
    score: float
    n: int


def score_intervals(mu: ArrayLike, low: ArrayLike, high: ArrayLike) -> Score:
    """Judge 68 % intervals as the challenge does.

    The score is -log((width + 0.001) f(coverage)). The penalty f is one within two standard errors of 68.27 %; beyond
    it grows with the fourth power of the distance below, and with the third above.

    Parameters
    ----------
    mu, low, high : array-like of shape (n_experiments,)
        The truth, and the ends of each interval.

    Examples
    --------
    >>> from fivesigma.fair_universe import score_intervals
    >>> found = score_intervals([1.0, 1.0, 1.0], [0.5, 0.8, 1.1], [1.5, 1.2, 2.0])
    >>> round(found.width, 3), round(found.coverage, 3), round(found.score, 3)
    (0.767, 0.667, 0.264)
    """
    truth, left, right = (np.asarray(values, dtype=np.float64) for values in (mu, low, high))
    if not truth.shape == left.shape == right.shape or truth.size == 0:
        raise InputError(f"mu, low and high must be alike, got shapes {truth.shape}, {left.shape}, {right.shape}")
    width = float(np.mean(right - left))
    coverage = float(np.mean((left <= truth) & (truth <= right)))
    error = float(np.sqrt(LEVEL * (1 - LEVEL) / truth.size))
    beyond = max(abs(coverage - LEVEL) / error - 2, 0.0)  # in standard errors
    penalty = 1 + beyond ** (4 if coverage < LEVEL else 3)
    return Score(width, coverage, -float(np.log((width + _OFFSET) * penalty)), truth.size)
