"""The six nuisances of the FAIR-Universe challenge, applied to measured columns; derived columns follow.

Scales of energies move the missing transverse momentum by the opposite of what they add, as in a real detector. The
selection is applied after them, because events enter and leave it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fivesigma._types import AnyArray, Array
from fivesigma.datasets.events import Events
from fivesigma.datasets.htautau.kinematics import DERIVED, MEASURED, derive
from fivesigma.errors import InputError, did_you_mean

__all__ = ["FEATURES", "NUISANCES", "Nuisances", "draw_nuisances", "from_higgsml", "move_events"]

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
    """What differs from the nominal simulation.

    Attributes
    ----------
    tes, jes : float
        Scales of the tau's and of the jets' energies.
    soft_met : float
        Width in GeV of a Gaussian that is added to both components of the missing transverse momentum.
    ttbar_scale, diboson_scale, bkg_scale : float
        Factors of the yields of top pairs, of dibosons and of all background.
    """

    tes: float = 1.0
    jes: float = 1.0
    soft_met: float = 0.0
    ttbar_scale: float = 1.0
    diboson_scale: float = 1.0
    bkg_scale: float = 1.0

    def factors(self, process: object) -> float:
        """Factor of the yield of one background process."""
        own = {"ttbar": self.ttbar_scale, "diboson": self.diboson_scale}
        return self.bkg_scale * own.get(str(process), 1.0)


#: Mean, width and bounds of the nuisances that are Gaussian; the logarithm of soft_met is a Gaussian of width one.
NUISANCES: Mapping[str, tuple[float, float, float, float]] = {
    "tes": (1.0, 0.01, 0.9, 1.1),
    "jes": (1.0, 0.01, 0.9, 1.1),
    "ttbar_scale": (1.0, 0.02, 0.8, 1.2),
    "diboson_scale": (1.0, 0.25, 0.0, 2.0),
    "bkg_scale": (1.0, 0.001, 0.99, 1.01),
}


def draw_nuisances(rng: np.random.Generator) -> Nuisances:
    """Draw all nuisances of one pseudo-experiment, as the challenge does.

    Examples
    --------
    >>> import numpy as np
    >>> from fivesigma.fair_universe import draw_nuisances
    >>> 0.9 <= draw_nuisances(np.random.default_rng(0)).tes <= 1.1
    True
    """
    drawn = {name: min(max(rng.normal(mean, width), low), high) for name, (mean, width, low, high) in NUISANCES.items()}
    return Nuisances(soft_met=min(rng.lognormal(0.0, 1.0), MAX_SOFT), **drawn)


def move_events(events: Events, nuisances: Nuisances, rng: np.random.Generator | None = None) -> Events:
    """Apply energy scales and soft momentum to events, select them, and derive columns again.

    Parameters
    ----------
    events : Events
        With `FEATURES`; weights as simulated.
    nuisances : Nuisances
        Factors of yields multiply the weights of the background.
    rng : numpy Generator, optional
        For the soft momentum; with ``soft_met=0`` it is not needed.

    Returns
    -------
    Events
        Those that pass the selection: tau above 26 GeV, lepton above 20 GeV; jets below 26 GeV are removed.

    Examples
    --------
    >>> from fivesigma.datasets import make_htautau
    >>> from fivesigma.fair_universe import Nuisances, from_higgsml, move_events
    >>> events = from_higgsml(make_htautau(2000))
    >>> louder = move_events(events, Nuisances(tes=1.05))
    >>> len(louder) > len(move_events(events, Nuisances()))
    True
    """
    columns = {name: events.column(name).astype(np.float64) for name in FEATURES}
    columns = _move(columns, nuisances, rng)
    selected = (columns["PRI_had_pt"] >= MIN_TAU) & (columns["PRI_lep_pt"] >= MIN_LEPTON)
    columns = _derive(_remove_soft_jets({name: values[selected] for name, values in columns.items()}))
    kept = events[selected]
    weight = kept.weight
    if kept.process is not None:
        names, codes = np.unique(kept.process.astype(str), return_inverse=True)
        factor = np.array([nuisances.factors(name) for name in names])[codes]
        weight = weight * np.where(kept.is_signal, 1.0, factor)
    return replace(kept, X=_table(columns), weight=weight, feature_names=FEATURES)


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
    """Bring events with the columns of 2014 into the challenge's form: its names and its processes.

    Parameters
    ----------
    events : Events
        With the measured columns of the 2014 challenge, as `make_htautau` and `fivesigma.higgsml.load` give them.

    Returns
    -------
    Events
        With `FEATURES`, before the selection, which `move_events` applies. Both production modes are called htautau.
        The likelihood mass and the sum of transverse energies are left out, because they cannot be computed again
        after an energy scale.

    Examples
    --------
    >>> from fivesigma.datasets import make_htautau
    >>> from fivesigma.fair_universe import from_higgsml
    >>> len(from_higgsml(make_htautau(200, random_state=0)).feature_names)
    28
    """
    known = dict.fromkeys(events.feature_names)
    for name in (name for name in MEASURED if name not in (*known, *_LEFT_OUT)):
        raise InputError(f"these events have no column {name!r}{did_you_mean(name, known)}")
    measured = {_renamed(name): events.column(name).astype(np.float64) for name in MEASURED if name not in _LEFT_OUT}
    process = events.process
    if process is not None:
        process = np.where(events.is_signal, "htautau", process.astype(str))
    return replace(events, X=_table(_derive(measured)), feature_names=FEATURES, process=process)
