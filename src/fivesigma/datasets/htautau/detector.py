"""What a detector makes of the toy's true events: resolutions, selection, missing momentum, di-tau mass."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from fivesigma._types import Array
from fivesigma.datasets.htautau.kinematics import DERIVED, MEASURED, derive
from fivesigma.datasets.htautau.simulation import Jets, Truth, hadronic_share, lepton_share, polar

# Selection: transverse momenta in GeV, pseudorapidities, and the distance of lepton and tau.
_LEP_PT, _TAU_PT, _JET_PT = 26.0, 20.0, 30.0
_LEP_ETA, _TAU_ETA, _JET_ETA = 2.47, 2.5, 4.5
_APART = 0.5
# Relative resolutions of transverse momenta.
_LEP_SMEAR, _TAU_SMEAR, _JET_SMEAR = 0.02, 0.07, 0.12
# The likelihood mass: scan points per tau, prior power of the mass, worst fit that still gives a mass, and
# how often the fit fails for no reason at all.
_GRID, _POWER, _WORST_FIT, _FAILURES = 10, 2.0, 10.0, 0.02


def observe(rng: Generator, truth: Truth) -> tuple[dict[str, Array], Array]:
    """Columns of the selected events, with one lepton and one hadronic tau, NaN where undefined; and their weights."""
    n = truth.lep.shape[1]
    lep = truth.lep * rng.normal(1.0, _LEP_SMEAR, n)
    tau = truth.tau * rng.normal(1.0, _TAU_SMEAR, n)
    keep = np.flatnonzero((np.hypot(lep[0], lep[1]) > _LEP_PT) & (np.hypot(tau[0], tau[1]) > _TAU_PT))
    jets = Jets(*(column[:, keep] for column in truth.jets))
    columns = _measure(rng, lep[:, keep], tau[:, keep], jets)
    central = (np.abs(columns["PRI_lep_eta"]) < _LEP_ETA) & (np.abs(columns["PRI_tau_eta"]) < _TAU_ETA)
    chosen = np.flatnonzero(central & (columns["DER_deltar_tau_lep"] > _APART))
    return {name: columns[name][chosen] for name in (*DERIVED, *MEASURED)}, truth.importance[keep][chosen]


def _measure(rng: Generator, lep: Array, tau: Array, true_jets: Jets) -> dict[str, Array]:
    n = lep.shape[1]
    jets = true_jets._replace(pt=true_jets.pt * rng.normal(1.0, _JET_SMEAR, (4, n)))
    # All jets count for the balance, even those too soft to be listed; the softer rest is hardly seen.
    met = -(lep[:2] + tau[:2] + jets.transverse()) + rng.normal(0.0, 1.8, (2, n))
    pt, eta, phi = _listed(jets)
    all_pt = np.nansum(pt, axis=0)
    tau_columns, lep_columns = polar(tau), polar(lep)
    visible = tau_columns[0] + lep_columns[0] + all_pt
    sum_et = np.maximum(visible + rng.normal(48.0, 48.0, n), 0.35 * visible)
    values = [*tau_columns, *lep_columns, np.hypot(met[0], met[1]), np.arctan2(met[1], met[0]), sum_et]
    values += [np.isfinite(pt).sum(axis=0).astype(float), *(c[k] for k in (0, 1) for c in (pt, eta, phi)), all_pt]
    columns = dict(zip(MEASURED, values, strict=True))
    columns |= derive(columns, tau_mass=np.where(rng.random(n) < 0.75, 0.8, 1.2))
    sigma = np.hypot(16.0, 0.10 * all_pt)
    factor = np.where(rng.random(n) < _FAILURES, np.nan, _mass_factor(lep / sigma, tau / sigma, met / sigma))
    columns["DER_mass_MMC"] = columns["DER_mass_vis"] * factor
    return columns


def _listed(jets: Jets) -> tuple[Array, Array, Array]:
    """List the jets above threshold, hardest first, NaN where there is none; a fourth one is not listed."""
    seen = (jets.pt > _JET_PT) & (np.abs(jets.eta) < _JET_ETA)
    order = np.argsort(np.where(seen, -jets.pt, 0.0), axis=0)[:3]
    pt, eta, phi = (np.take_along_axis(np.where(seen, column, np.nan), order, axis=0) for column in jets)
    return pt, eta, np.mod(phi + np.pi, 2.0 * np.pi) - np.pi


def _mass_factor(lep: Array, tau: Array, met: Array) -> Array:
    """How much heavier than its visible part the di-tau system is, on average over the unseen neutrinos.

    The taus' visible shares are scanned at equal steps of their distributions, which so need no further
    weight; a point counts as it explains `met`, in units of its resolution, and less the heavier it is.  NaN
    where no point explains it.
    """
    steps = (np.arange(_GRID) + 0.5) / _GRID
    # In single precision, because this is the costly part.
    (lep_x, lep_y), (tau_x, tau_y), (met_x, met_y) = (p[:2].astype(np.float32) for p in (lep, tau, met))
    total, moment = np.full((2, len(lep_x)), 1e-30, dtype=np.float32)
    best = np.full(len(lep_x), np.inf, dtype=np.float32)
    for x_lep in lepton_share(steps):
        unseen = np.float32(1.0 / x_lep - 1.0)
        rest_x, rest_y = met_x - unseen * lep_x, met_y - unseen * lep_y
        for x_tau in hadronic_share(steps):
            unseen = np.float32(1.0 / x_tau - 1.0)
            chi2 = np.square(rest_x - unseen * tau_x) + np.square(rest_y - unseen * tau_y)
            np.minimum(best, chi2, out=best)
            factor = (x_lep * x_tau) ** -0.5
            likelihood = np.exp(np.float32(-0.5) * chi2) * np.float32(factor**-_POWER)
            total += likelihood
            moment += likelihood * np.float32(factor)
    return np.where(best < _WORST_FIT, moment / total, np.nan)
