"""Events of the FAIR-Universe challenge: its six nuisances, applied to measured columns, and pseudo-experiments.

Scales of energies move the missing transverse momentum by the opposite of what they add, as in a real detector. The
selection is applied after them, because events enter and leave it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fivesigma._types import AnyArray, Array, BoolArray
from fivesigma.datasets.events import Events
from fivesigma.datasets.htautau import make_htautau
from fivesigma.datasets.htautau.kinematics import DERIVED, MEASURED, derive
from fivesigma.datasets.load import column_names, load_events
from fivesigma.errors import InputError

MISSING = -25.0  # what the challenge's file has in place of NaN
MU_RANGE = (0.1, 3.0)
SCALES = {"ttbar_scale": "ttbar", "diboson_scale": "diboson"}  # nuisances that scale one process
TAU_MASS = 0.8  # GeV, visible
MIN_TAU, MIN_LEPTON, MIN_JET = 26.0, 20.0, 26.0  # GeV, after the energy scales
MAX_SOFT = 5.0  # GeV

_LEFT_OUT = ("DER_mass_MMC", "PRI_met_sumet")  # the 2014 columns that the challenge does not have


def _renamed(column: str) -> str:
    """The challenge's name of a column of 2014."""
    return column.replace("PRI_jet_num", "PRI_n_jets").replace("tau", "had")


#: The 28 features: measured columns, then derived ones.
FEATURES = tuple(_renamed(name) for name in (*MEASURED, *DERIVED) if name not in _LEFT_OUT)


class Nuisances(NamedTuple):
    """What differs from the nominal simulation."""

    tes: float = 1.0  # scales of the tau's and of the jets' energies
    jes: float = 1.0
    soft_met: float = 0.0  # GeV, the width of a Gaussian that is added to both components of the missing momentum
    ttbar_scale: float = 1.0  # factors of the yields of top pairs, of dibosons and of all background
    diboson_scale: float = 1.0
    bkg_scale: float = 1.0


#: Mean, width and bounds of the nuisances that are Gaussian; the logarithm of soft_met is a Gaussian of width one.
NUISANCES: Mapping[str, tuple[float, float, float, float]] = {
    "tes": (1.0, 0.01, 0.9, 1.1),
    "jes": (1.0, 0.01, 0.9, 1.1),
    "ttbar_scale": (1.0, 0.02, 0.8, 1.2),
    "diboson_scale": (1.0, 0.25, 0.0, 2.0),
    "bkg_scale": (1.0, 0.001, 0.99, 1.01),
}


def draw_nuisances(rng: np.random.Generator) -> Nuisances:
    """Draw all nuisances of one pseudo-experiment, as the challenge does."""
    drawn = {name: min(max(rng.normal(mean, width), low), high) for name, (mean, width, low, high) in NUISANCES.items()}
    return Nuisances(soft_met=min(rng.lognormal(0.0, 1.0), MAX_SOFT), **drawn)


def move_events(events: Events, nuisances: Nuisances, rng: np.random.Generator | None = None) -> Events:
    """Apply energy scales and soft momentum to events with `FEATURES`, select them, and derive columns again.

    Factors of yields multiply the weights of the background. What passes has a tau above 26 GeV and a lepton above
    20 GeV; jets below 26 GeV are removed.
    """
    columns = {name: events.column(name).astype(np.float64) for name in FEATURES}
    columns = _move(columns, nuisances, rng)
    selected = (columns["PRI_had_pt"] >= MIN_TAU) & (columns["PRI_lep_pt"] >= MIN_LEPTON)
    columns = _derive(_remove_soft_jets({name: values[selected] for name, values in columns.items()}))
    kept = events[selected]
    weight = kept.weight * _yield_factor(nuisances, _scaled_rows(kept), len(kept))
    return replace(kept, X=_table(columns), weight=weight, feature_names=FEATURES)


def _scaled_rows(events: Events) -> dict[str, BoolArray]:
    """Rows that each nuisance of a yield scales."""
    process = np.asarray(events.process)  # of no process if there are none
    return {"bkg_scale": ~events.is_signal} | {name: process == own for name, own in SCALES.items()}


def _yield_factor(nuisances: Nuisances, rows: Mapping[str, BoolArray], n: int) -> Array:
    factor = np.ones(n)
    for name, members in rows.items():
        factor[members] *= getattr(nuisances, name)
    return factor


def _table(columns: Mapping[str, Array]) -> AnyArray:
    return np.stack([columns[name] for name in FEATURES], axis=1).astype(np.float32)


def _move(columns: Mapping[str, Array], nuisances: Nuisances, rng: np.random.Generator | None) -> dict[str, Array]:
    """Scaled momenta, and the missing momentum that balances them."""
    out = dict(columns)
    x, y = (columns["PRI_met"] * f(columns["PRI_met_phi"]) for f in (np.cos, np.sin))
    scales = {"had": nuisances.tes, "jet_leading": nuisances.jes, "jet_subleading": nuisances.jes}
    for particle, scale in scales.items():
        pt, phi = columns[f"PRI_{particle}_pt"], columns[f"PRI_{particle}_phi"]
        added = np.nan_to_num((scale - 1.0) * pt)
        x, y = x - added * np.cos(np.nan_to_num(phi)), y - added * np.sin(np.nan_to_num(phi))
        out[f"PRI_{particle}_pt"] = scale * pt
    out["PRI_jet_all_pt"] = nuisances.jes * columns["PRI_jet_all_pt"]
    if nuisances.soft_met > 0:
        if rng is None:
            raise InputError("soft_met adds random momenta: give move_events a numpy Generator as rng")
        x, y = x + rng.normal(0.0, nuisances.soft_met, x.size), y + rng.normal(0.0, nuisances.soft_met, y.size)
    out["PRI_met"], out["PRI_met_phi"] = np.hypot(x, y), np.arctan2(y, x)
    return out


def _remove_soft_jets(columns: dict[str, Array]) -> dict[str, Array]:
    """Jets below the threshold go, with all that are softer."""
    one, two = (~(columns[f"PRI_jet_{which}_pt"] >= MIN_JET) for which in ("leading", "subleading"))
    for particle, gone in (("jet_leading", one), ("jet_subleading", one | two)):
        for part in ("pt", "eta", "phi"):
            columns[f"PRI_{particle}_{part}"] = np.where(gone, np.nan, columns[f"PRI_{particle}_{part}"])
    # Jets are ordered, so those beyond a second one that is too soft are too soft as well.
    all_pt = np.where(two, np.nan_to_num(columns["PRI_jet_leading_pt"]), columns["PRI_jet_all_pt"])
    columns["PRI_jet_all_pt"] = np.where(one, 0.0, all_pt)
    columns["PRI_n_jets"] = np.where(one, 0.0, np.where(two, 1.0, columns["PRI_n_jets"]))
    return columns


def _derive(columns: dict[str, Array]) -> dict[str, Array]:
    """Compute every derived column from the measured ones."""
    zero = np.zeros(columns["PRI_met"].size)
    measured = {name: zero if name in _LEFT_OUT else columns[_renamed(name)] for name in MEASURED}
    derived = derive(measured, tau_mass=TAU_MASS)
    return columns | {_renamed(name): values for name, values in derived.items()}


def from_higgsml(events: Events) -> Events:
    """Bring events with the columns of 2014 into the challenge's form: its names and its processes, before a selection.

    Both production modes are called htautau. The likelihood mass and the sum of transverse energies are left out: they
    cannot be computed again after an energy scale.
    """
    measured = {_renamed(name): events.column(name).astype(np.float64) for name in MEASURED if name not in _LEFT_OUT}
    process = events.process
    if process is not None:
        process = np.where(events.is_signal, "htautau", process.astype(str))
    return replace(events, X=_table(_derive(measured)), feature_names=FEATURES, process=process)


def load(data: str | os.PathLike[str], *, luminosity: float = 1.0, random_state: int = 0) -> Events:
    """Read events of the challenge, or of its look-alikes.

    Parameters
    ----------
    data : path or str
        The challenge's Parquet file, FAIR_Universe_HiggsML_data.parquet (28 features, weights, labels,
        detailed_labels); a Parquet or CSV file with the columns of 2014 and processes; or ``"toy:N"`` for N events of
        `make_htautau`.
    luminosity : float, default=1.0
        Factor of all weights.
    random_state : int, default=0
        Seed of the toy.

    Returns
    -------
    Events
        With the challenge's 28 features and its processes: htautau is the signal; ztautau, ttbar and diboson, or wjets
        in the toy.

    Examples
    --------
    >>> from fivesigma.fair_universe import load
    >>> len(load("toy:500"))
    500
    """
    name = str(data)
    if name.startswith("toy:"):
        number = name.removeprefix("toy:")
        if not number.isdecimal():
            raise InputError(f"a toy needs a number of events, such as toy:400000; got {name!r}")
        events = from_higgsml(make_htautau(int(number), random_state=random_state))
    elif "PRI_had_pt" in column_names(data):
        events = load_events(
            data,
            features=list(FEATURES),
            label="labels",
            signal=1,
            weight="weights",
            process="detailed_labels",
            ids=None,
            missing=MISSING,
        )
    else:
        events = from_higgsml(load_events(data, signal="s", weight="Weight", process="Process"))
    return replace(events, weight=luminosity * events.weight)


def make_experiments(
    events: Events, mu: float, n: int, random_state: int | np.random.Generator = 0
) -> Iterator[tuple[Events, Nuisances]]:
    """Draw pseudo-experiments from test events whose weights are the expected counts at mu = 1.

    Each event is taken as often as a Poisson number with its expected count, then moved by nuisances that are drawn
    anew and come with the events; all weights are one.
    """
    if not mu >= 0:
        raise InputError(f"mu must be >= 0, got {mu!r}")
    if events.process is None:
        raise InputError("these events have no processes, which the scales of yields need")
    rng = np.random.default_rng(random_state)
    rows = _scaled_rows(events)
    for _ in range(n):
        nuisances = draw_nuisances(rng)
        expected = events.weight * np.where(events.is_signal, mu, _yield_factor(nuisances, rows, len(events)))
        drawn = events[np.repeat(np.arange(len(events)), rng.poisson(np.maximum(expected, 0.0)))]
        # Yields have their factors already; what is left moves momenta.
        moved = nuisances._replace(ttbar_scale=1.0, diboson_scale=1.0, bkg_scale=1.0)
        yield move_events(replace(drawn, weight=np.ones(len(drawn))), moved, rng), nuisances
