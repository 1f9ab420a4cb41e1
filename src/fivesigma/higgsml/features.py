"""The symmetries of a challenge event, and features that do not depend on how it is turned.

Nothing in a collision depends on the azimuth at which the detector's axes were drawn, on left or right, or on
which beam came from which side.  So the azimuths can be rotated and mirrored and the beam's direction flipped.
A learner can be shown such images of its events (`transform`), or every event can be turned the same way first.

Each set is one function from the oriented particles to named columns.  A name is the quantity and the particles
it is made of: ``mass_tau_jet1``, ``dR_lep_jet1``, ``mT_tau_met``.  What the challenge's own DER columns already
hold is not made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from fivesigma._types import Array, BoolArray
from fivesigma.datasets.events import Events
from fivesigma.datasets.htautau import kinematics as kin
from fivesigma.errors import InputError, did_you_mean

#: Columns of transverse momentum, pseudorapidity and azimuth: lepton, tau, two jets and missing momentum.
MOMENTA = (
    ("PRI_lep_pt", "PRI_lep_eta", "PRI_lep_phi"),
    ("PRI_tau_pt", "PRI_tau_eta", "PRI_tau_phi"),
    ("PRI_jet_leading_pt", "PRI_jet_leading_eta", "PRI_jet_leading_phi"),
    ("PRI_jet_subleading_pt", "PRI_jet_subleading_eta", "PRI_jet_subleading_phi"),
    ("PRI_met", None, "PRI_met_phi"),
)

#: The columns that depend on how the event is turned.
ANGLES = tuple(name for _, eta, phi in MOMENTA for name in (eta, phi) if name is not None)

# Measured angles have three decimals and no multiple of 0.001 is nearer to a multiple of pi than 1e-4, but
# float32 moves an angle by 1e-7: closer than this to the axis is on the axis.
_ON_AXIS = 1e-5


class Particle(NamedTuple):
    """Transverse momentum, pseudorapidity (NaN for missing momentum) and azimuth."""

    pt: Array
    eta: Array
    phi: Array


def transform(
    events: Events, *, angle: Array | float = 0.0, mirror: BoolArray | bool = False, flip: BoolArray | bool = False
) -> Events:
    """Turn events without changing their physics.

    Parameters
    ----------
    events : Events
        Events with the columns of `MOMENTA`.
    angle : array or float
        Angle, one for all or one per event, by which every azimuth is rotated.
    mirror : array or bool
        Whether to mirror the azimuths (phi to -phi), before the rotation.
    flip : array or bool
        Whether to exchange the beams (eta to -eta).

    Returns
    -------
    Events
        The same events with new angles; no other column depends on them.

    Examples
    --------
    >>> from fivesigma.datasets import make_htautau
    >>> events = make_htautau(100)
    >>> turned = transform(events, angle=np.pi / 2, flip=True)
    >>> bool(np.all(turned.column("PRI_tau_eta") == -events.column("PRI_tau_eta")))
    True
    """
    events[:0].table(ANGLES)  # refuses events that lack one
    X = events.X.copy()
    handed, along = np.where(mirror, -1.0, 1.0), np.where(flip, np.float32(-1.0), np.float32(1.0))
    for _, eta, phi in MOMENTA:
        column = X[:, events.feature_names.index(phi)]
        column[:] = kin.delta_phi(handed * column.astype(np.float64) + angle, np.zeros(()))
        if eta is not None:
            X[:, events.feature_names.index(eta)] *= along
    return replace(events, X=X)


def orient(events: Events) -> dict[str, Particle]:
    """Turn every event so that its lepton is at azimuth 0 and positive eta, and its tau at positive azimuth.

    A lepton at eta 0, or a tau in line with the lepton, leaves it to the next particle to decide.
    """
    lep, tau, jet1, jet2, met = (
        Particle(*(np.full(len(events), np.nan) if c is None else events.column(c).astype(np.float64) for c in columns))
        for columns in MOMENTA
    )
    turned = [np.zeros(len(events)), *(kin.delta_phi(p.phi, lep.phi) for p in (tau, jet1, jet2, met))]
    up = _first_side((np.sin(turned[k]) for k in (1, 4, 2, 3)), _ON_AXIS)
    along = _first_side((p.eta for p in (lep, tau, jet1, jet2)), 0.0)
    phis = [turned[0], np.abs(turned[1]), *(up * phi for phi in turned[2:])]
    particles = zip(("lep", "tau", "jet1", "jet2", "met"), (lep, tau, jet1, jet2, met), phis, strict=True)
    return {name: Particle(p.pt, along * p.eta, phi) for name, p, phi in particles}


def _first_side(values: Iterable[Array], tolerance: float) -> Array:
    """Sign of the first value that is further than the tolerance from zero; 1 if none is."""
    side: Array | float = 0.0
    for value in values:
        side = np.where((side == 0.0) & (np.abs(value) > tolerance), np.sign(value), side)
    return np.where(side == 0.0, 1.0, side)


Particles = Mapping[str, Particle]
Columns = dict[str, Array]
_Squares = dict[tuple[str, ...], Array]

_VISIBLE = ("tau", "lep", "jet1", "jet2")
_EVERY = (*_VISIBLE, "met")
_IN_CHALLENGE = {("tau", "lep"), ("jet1", "jet2")}  # pairs whose mass and delta R or eta are DER columns
_SCALARS = ("PRI_met_sumet", "PRI_jet_all_pt", "DER_mass_MMC", "DER_mass_vis", "DER_pt_h", "DER_sum_pt")
_BLOCK = 1 << 15  # events at a time: float64 work arrays stay in the cache


def _oriented(p: Particles, _: Columns) -> Columns:
    """Momentum components of the turned event; the lepton's transverse ones are its pt and 0."""
    out = {"pz_lep": p["lep"].pt * np.sinh(p["lep"].eta)}
    for a in ("tau", "jet1", "jet2"):
        pt, eta, phi = p[a]
        out |= {f"px_{a}": pt * np.cos(phi), f"py_{a}": pt * np.sin(phi), f"pz_{a}": pt * np.sinh(eta)}
    pt, _eta, phi = p["met"]
    return out | {"px_met": pt * np.cos(phi), "py_met": pt * np.sin(phi)}


def _masses(p: Particles, _: Columns) -> Columns:
    """Invariant masses of two, three and four particles."""
    squares: _Squares = {(a, b): np.square(kin.invariant_mass(p[a], p[b])) for a, b in combinations(_VISIBLE, 2)}
    systems = [s for size in (2, 3, 4) for s in combinations(_VISIBLE, size) if s not in _IN_CHALLENGE]
    return {"_".join(("mass", *system)): _of_pairs(squares, system) for system in systems}


def _transverse(p: Particles, _: Columns) -> Columns:
    """Transverse masses of pairs, and of the Higgs candidate alone and with the jets."""
    pairs = list(combinations(_EVERY, 2))
    squares: _Squares = {(a, b): np.square(kin.transverse_mass(p[a].pt, p[a].phi, p[b].pt, p[b].phi)) for a, b in pairs}
    systems: list[tuple[str, ...]] = [pair for pair in pairs if pair != ("lep", "met")]  # that one is a DER column
    systems += [("tau", "lep", "met"), ("tau", "lep", "jet1", "met"), _EVERY]
    return {"_".join(("mT", *system)): _of_pairs(squares, system) for system in systems}


def _of_pairs(squares: _Squares, system: Sequence[str]) -> Array:
    """Mass of several massless particles: its square is the sum of those of the pairs, so nothing cancels."""
    return np.asarray(np.sqrt(sum(squares[pair] for pair in combinations(system, 2))))


def _angles(p: Particles, _: Columns) -> Columns:
    """Distances between two particles."""
    pairs = list(combinations(_VISIBLE, 2))
    deta = {f"deta_{a}_{b}": np.abs(p[a].eta - p[b].eta) for a, b in pairs if (a, b) != ("jet1", "jet2")}
    dphi = {f"dphi_{a}_{b}": np.abs(kin.delta_phi(p[a].phi, p[b].phi)) for a, b in combinations(_EVERY, 2)}
    separation = {f"dR_{a}_{b}": kin.delta_r(*p[a][1:], *p[b][1:]) for a, b in pairs if (a, b) != ("tau", "lep")}
    return deta | dphi | separation


def _sums(p: Particles, scalar: Columns) -> Columns:
    """Transverse and full momenta of systems, and scalar sums."""
    systems = [pair for pair in combinations(_EVERY, 2) if "jet2" not in pair] + [("tau", "lep", "jet1", "met")]
    out = {"_".join(("pt", *system)): kin.vector_sum_pt(*((p[a].pt, p[a].phi) for a in system)) for system in systems}
    pz = {a: p[a].pt * np.sinh(p[a].eta) for a in _VISIBLE}
    for system in (("tau", "lep"), ("tau", "jet1"), ("lep", "jet1")):
        out["_".join(("p", *system))] = np.hypot(out["_".join(("pt", *system))], sum(pz[a] for a in system))
    there = {a: np.nan_to_num(pz[a]) for a in _VISIBLE}
    pt = kin.vector_sum_pt(*((np.nan_to_num(p[a].pt), np.nan_to_num(p[a].phi)) for a in _VISIBLE))
    out["p_visible"] = np.hypot(pt, sum(there.values()))
    out["sum_pt_tau_lep_met"] = p["tau"].pt + p["lep"].pt + p["met"].pt
    out["sum_pt_all"] = out["sum_pt_tau_lep_met"] + scalar["PRI_jet_all_pt"]
    return out


def _centralities(p: Particles, _: Columns) -> Columns:
    """Where the tau, and the tau and lepton together, lie between the jets."""
    energy, along = (sum(p[a].pt * f(p[a].eta) for a in ("tau", "lep")) for f in (np.cosh, np.sinh))
    rapidity = np.arctanh(along / energy)
    return {
        "eta_centrality_tau": kin.eta_centrality(p["tau"].eta, p["jet1"].eta, p["jet2"].eta),
        "eta_centrality_tau_lep": kin.eta_centrality(rapidity, p["jet1"].eta, p["jet2"].eta),
    }


def _ratios(p: Particles, scalar: Columns) -> Columns:
    """Shares and balances."""
    candidate = p["tau"].pt + p["lep"].pt + p["met"].pt
    return {
        "met_over_root_sumet": p["met"].pt / np.sqrt(scalar["PRI_met_sumet"]),
        "share_tau": p["tau"].pt / candidate,
        "share_lep": p["lep"].pt / candidate,
        "share_jet1": p["jet1"].pt / scalar["PRI_jet_all_pt"],
        "mass_vis_over_MMC": scalar["DER_mass_vis"] / scalar["DER_mass_MMC"],
        "pt_h_over_MMC": scalar["DER_pt_h"] / scalar["DER_mass_MMC"],
        "pt_h_over_sum_pt": scalar["DER_pt_h"] / scalar["DER_sum_pt"],
    }


def _projections(p: Particles, _: Columns) -> Columns:
    """Missing and visible momentum along the tau, the lepton and the line between the two (zeta)."""
    (_pt, _eta, phi), met = p["tau"], p["met"]
    return {
        "met_along_tau": met.pt * np.cos(met.phi - phi),
        "met_along_lep": met.pt * np.cos(met.phi),
        "met_along_zeta": met.pt * np.cos(met.phi - 0.5 * phi),
        "visible_along_zeta": (p["tau"].pt + p["lep"].pt) * np.cos(0.5 * phi),
    }


_SETS: dict[str, Callable[[Particles, Columns], Columns]] = {
    make.__name__.strip("_"): make
    for make in (_oriented, _masses, _transverse, _angles, _sums, _centralities, _ratios, _projections)
}

#: Names of the feature sets.
ALL_SETS = tuple(_SETS)


def engineer(events: Events, sets: Sequence[str] = ALL_SETS) -> Events:
    """Replace the raw angles of challenge events by features that do not depend on the event's orientation.

    Parameters
    ----------
    events : Events
        Events with the challenge's 30 columns, NaN where missing.
    sets : sequence of str
        Which sets of features to add, by default all.  ``"raw"`` keeps the raw angles as well, for a
        learner that turns its events itself.

    Returns
    -------
    Events
        The same events: every column but the raw angles, then those of each set, NaN where undefined.

    Examples
    --------
    >>> from fivesigma.datasets import make_htautau
    >>> events = engineer(make_htautau(100), sets=["centralities"])
    >>> events.feature_names[-2:]
    ('eta_centrality_tau', 'eta_centrality_tau_lep')
    >>> "PRI_tau_phi" in events.feature_names
    False
    """
    chosen = _chosen(sets)
    kept = [k for k, name in enumerate(events.feature_names) if "raw" in chosen or name not in ANGLES]
    made = tuple(_columns(events[:0], chosen))
    names = (*(events.feature_names[k] for k in kept), *made)
    if len(set(names)) < len(names):
        again = next(name for k, name in enumerate(names) if name in names[:k])
        raise InputError(f"these events already have engineered columns, such as {again!r}")
    X = np.empty((len(events), len(names)), dtype=np.float32)
    for start in range(0, len(events), _BLOCK):
        rows = slice(start, start + _BLOCK)
        X[rows, : len(kept)] = events.X[rows][:, kept]
        block = X[rows, len(kept) :]
        with np.errstate(all="ignore"):  # what is undefined becomes NaN
            for k, values in enumerate(_columns(events[rows], chosen).values()):
                block[:, k] = values
        block[~np.isfinite(block)] = np.nan
    return replace(events, X=X, feature_names=names)


def _chosen(sets: Sequence[str]) -> tuple[str, ...]:
    """The sets by name, each once and in the order of `ALL_SETS`."""
    sets = (sets,) if isinstance(sets, str) else tuple(sets)
    known = (*ALL_SETS, "raw")
    for name in sets:
        if name not in known:
            hint = did_you_mean(str(name), known) or f"; there are {', '.join(known)}"
            raise InputError(f"no feature set {name!r}{hint}")
    return tuple(name for name in known if name in sets)


def _columns(events: Events, sets: Iterable[str]) -> Columns:
    particles = orient(events)
    scalars = {name: events.column(name).astype(np.float64) for name in _SCALARS}
    return {name: values for key in sets if key in _SETS for name, values in _SETS[key](particles, scalars).items()}
