"""The derived columns of the 2014 challenge, as pure functions of its measured columns.

A particle is its transverse momentum (GeV), pseudorapidity and azimuth; a jet that an event does not have
is NaN, and so is every quantity that needs it.  Sums over "the jets there are" count a missing jet as zero.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fivesigma._types import Array


def _of(particle: str) -> list[str]:
    return [f"PRI_{particle}_{quantity}" for quantity in ("pt", "eta", "phi")]


#: The challenge's measured columns, in its order.
MEASURED = (
    *(*_of("tau"), *_of("lep"), "PRI_met", "PRI_met_phi", "PRI_met_sumet"),
    *("PRI_jet_num", *_of("jet_leading"), *_of("jet_subleading"), "PRI_jet_all_pt"),
)

#: The derived columns, in the challenge's order; `derive` gives all but the first, a likelihood fit.
DERIVED = (
    "DER_mass_MMC",
    "DER_mass_transverse_met_lep",
    "DER_mass_vis",
    "DER_pt_h",
    "DER_deltaeta_jet_jet",
    "DER_mass_jet_jet",
    "DER_prodeta_jet_jet",
    "DER_deltar_tau_lep",
    "DER_pt_tot",
    "DER_sum_pt",
    "DER_pt_ratio_lep_tau",
    "DER_met_phi_centrality",
    "DER_lep_eta_centrality",
)


def delta_phi(phi1: Array, phi2: Array) -> Array:
    """Angle from `phi2` to `phi1` around the beam, in [-pi, pi)."""
    return np.mod(phi1 - phi2 + np.pi, 2.0 * np.pi) - np.pi


def delta_r(eta1: Array, phi1: Array, eta2: Array, phi2: Array) -> Array:
    """Distance in pseudorapidity and azimuth."""
    return np.hypot(eta1 - eta2, delta_phi(phi1, phi2))


def transverse_mass(pt1: Array, phi1: Array, pt2: Array, phi2: Array) -> Array:
    """Transverse mass of two massless particles: ``sqrt(2 pt1 pt2 (1 - cos(phi1 - phi2)))``."""
    # 1 - cos x = 2 sin^2(x/2) does not cancel when the two point the same way.
    return 2.0 * np.sqrt(pt1 * pt2) * np.abs(np.sin(0.5 * (phi1 - phi2)))


def invariant_mass(
    one: tuple[Array, Array, Array],
    other: tuple[Array, Array, Array],
    mass1: Array | float = 0.0,
    mass2: Array | float = 0.0,
) -> Array:
    """Invariant mass of two particles, each ``(pt, eta, phi)`` and massless unless its mass is given."""
    (pt1, eta1, phi1), (pt2, eta2, phi2) = one, other
    p1, p2 = pt1 * np.cosh(eta1), pt2 * np.cosh(eta2)
    # E1 E2 - p1 p2 and p1 p2 (1 - cos angle), each in a form without cancellation.
    e1, e2 = np.hypot(p1, mass1), np.hypot(p2, mass2)
    energy_excess = e1 * mass2**2 / (e2 + p2) + p2 * mass1**2 / (e1 + p1)
    opening = 2.0 * pt1 * pt2 * (np.sinh(0.5 * (eta1 - eta2)) ** 2 + np.sin(0.5 * (phi1 - phi2)) ** 2)
    return np.asarray(np.sqrt(mass1**2 + mass2**2 + 2.0 * (energy_excess + opening)))


def vector_sum_pt(*pt_phi: tuple[Array, Array]) -> Array:
    """Size of the vector sum of transverse momenta, each given as ``(pt, phi)``."""
    x = sum(pt * np.cos(phi) for pt, phi in pt_phi)
    y = sum(pt * np.sin(phi) for pt, phi in pt_phi)
    return np.asarray(np.hypot(x, y))


def phi_centrality(phi: Array, phi1: Array, phi2: Array) -> Array:
    """Where `phi` lies between two directions: sqrt(2) in the middle, 1 along either, below 1 outside."""
    side = np.where(np.sin(phi2 - phi1) < 0.0, -1.0, 1.0)
    a, b = side * np.sin(phi - phi1), side * np.sin(phi2 - phi)
    return np.asarray((a + b) / np.hypot(a, b))


def eta_centrality(eta: Array, eta1: Array, eta2: Array) -> Array:
    """Where `eta` lies between two others: 1 in the middle, 1/e at either, less outside."""
    return np.exp(-((2.0 * eta - eta1 - eta2) ** 2) / (eta1 - eta2) ** 2)


def derive(columns: Mapping[str, Array], *, tau_mass: Array | float = 0.8) -> dict[str, Array]:
    """Compute every derived column but ``DER_mass_MMC`` from the measured ones, NaN where undefined.

    These have NaN where an event lacks a jet. The visible mass of the tau is in GeV; the challenge used 0.8 for one
    prong and 1.2 for three.
    """
    tau_pt, tau_eta, tau_phi, lep_pt, lep_eta, lep_phi, met, met_phi, _, _, *jets, all_pt = (
        columns[name] for name in MEASURED
    )
    pt1, eta1, phi1, pt2, eta2, phi2 = jets
    leading, subleading = (np.nan_to_num(pt1), np.nan_to_num(phi1)), (np.nan_to_num(pt2), np.nan_to_num(phi2))
    tau, lep, nu = (tau_pt, tau_phi), (lep_pt, lep_phi), (met, met_phi)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            "DER_mass_transverse_met_lep": transverse_mass(*lep, *nu),
            "DER_mass_vis": invariant_mass((tau_pt, tau_eta, tau_phi), (lep_pt, lep_eta, lep_phi), tau_mass),
            "DER_pt_h": vector_sum_pt(tau, lep, nu),
            "DER_deltaeta_jet_jet": np.abs(eta1 - eta2),
            "DER_mass_jet_jet": invariant_mass((pt1, eta1, phi1), (pt2, eta2, phi2)),
            "DER_prodeta_jet_jet": eta1 * eta2,
            "DER_deltar_tau_lep": delta_r(tau_eta, tau_phi, lep_eta, lep_phi),
            "DER_pt_tot": vector_sum_pt(tau, lep, nu, leading, subleading),
            "DER_sum_pt": tau_pt + lep_pt + all_pt,
            "DER_pt_ratio_lep_tau": lep_pt / tau_pt,
            "DER_met_phi_centrality": phi_centrality(met_phi, lep_phi, tau_phi),
            "DER_lep_eta_centrality": eta_centrality(lep_eta, eta1, eta2),
        }
