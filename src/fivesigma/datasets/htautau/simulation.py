"""What collides and decays in the toy simulation: one function per process, from four-vectors.

Every process gives the same `Truth`: a lepton, something that looks like a hadronic tau, up to three hard
jets and at most one soft jet.  Neutrinos are what balances the rest, so they need not be kept. A momentum has the shape
(3, n_events).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from fivesigma._types import Array, IntArray

# Transverse momentum in GeV, per direction, that leaves no trace in the detector.
_UNSEEN = 16.0
# The lepton's energy share in tau -> l nu nu follows (5 - 9 x^2 + 4 x^3) / 3; this is its integral.
_X = np.linspace(0.0, 1.0, 2049)
_LEPTON_CDF = (5.0 * _X - 3.0 * _X**3 + _X**4) / 3.0


def lepton_share(quantile: Array) -> Array:
    """Share of the tau's energy that the lepton has, at a quantile of its distribution."""
    return np.interp(quantile, _LEPTON_CDF, _X)


def hadronic_share(quantile: Array) -> Array:
    """Share of the tau's energy that its hadrons have, at a quantile: from 0.2 to 1, mean 0.65."""
    return 0.2 + 0.8 * quantile**0.77


def momentum(pt: Array, eta: Array, phi: Array) -> Array:
    """Cartesian momentum."""
    return np.stack([pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta)])


def polar(p: Array) -> tuple[Array, Array, Array]:
    """Transverse momentum, pseudorapidity and azimuth of a Cartesian momentum."""
    pt = np.hypot(p[0], p[1])
    return pt, np.arcsinh(p[2] / pt), np.arctan2(p[1], p[0])


def resonance(mass: Array, p_transverse: Array, rapidity: Array) -> Array:
    """Momentum of a particle of given mass, transverse momentum (2, n) and rapidity."""
    transverse_energy = np.sqrt(mass**2 + np.square(p_transverse).sum(axis=0))
    return np.vstack([p_transverse, transverse_energy * np.sinh(rapidity)])


def breit_wigner(rng: Generator, n: int, mass: float, width: float) -> Array:
    """Masses from a Breit-Wigner, no further than ten widths from the peak."""
    edge = np.arctan(20.0)
    return mass + 0.5 * width * np.tan(rng.uniform(-edge, edge, n))


def two_body(
    rng: Generator, parent: Array, mass: Array | float, daughter: Array | float = 0.0, other: float = 0.0
) -> Array:
    """Momentum of one daughter of an isotropic two-body decay, from the masses; the other one has the rest."""
    n = parent.shape[1]
    energy_star = (mass**2 + daughter**2 - other**2) / (2.0 * mass)
    p_star = np.sqrt(energy_star**2 - daughter**2)
    cos_theta, phi = rng.uniform(-1.0, 1.0, n), rng.uniform(-np.pi, np.pi, n)
    sin_theta = np.sqrt(1.0 - cos_theta**2)
    p = p_star * np.stack([sin_theta * np.cos(phi), sin_theta * np.sin(phi), cos_theta])
    # The boost from the rest frame of the parent.
    energy = np.sqrt(mass**2 + np.square(parent).sum(axis=0))
    along = (p * parent).sum(axis=0)
    return np.asarray(p + parent * ((along / (energy + mass) + energy_star) / mass))


class Jets(NamedTuple):
    """Jets as arrays of shape (4, n): three hard ones and a soft one; pt is zero where there is none."""

    pt: Array
    eta: Array
    phi: Array

    def transverse(self) -> Array:
        """Vector sum of their transverse momenta, shape (2, n)."""
        return np.stack([(self.pt * np.cos(self.phi)).sum(axis=0), (self.pt * np.sin(self.phi)).sum(axis=0)])


class Truth(NamedTuple):
    """Momenta before the detector."""

    lep: Array  # (3, n)
    tau: Array  # (3, n), the visible part
    jets: Jets
    importance: Array  # (n,), how much commoner such events are in nature than here


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the simulation: its share of the rows and of the yield of its class."""

    name: str
    label: str
    rows: float
    yields: float
    generate: Callable[[Generator, int], Truth]


def _make_jets(
    rng: Generator, odds: Sequence[float], scale: tuple[float, float, float], centre: Array
) -> tuple[Jets, IntArray]:
    """Draw 0 to 3 hard jets with `odds` around the rapidity `centre`; `scale` is the hardness of each."""
    n = len(centre)
    number = np.searchsorted(np.cumsum(odds)[:-1], rng.random(n))
    pt = np.empty((4, n))
    hardness = 0.9 * rng.lognormal(0.0, 0.35, n)
    pt[:3] = 27.0 + rng.standard_exponential((3, n)) * np.array(scale)[:, None] * hardness
    pt[:3][number <= np.arange(3)[:, None]] = 0.0
    soft = rng.random(n)
    pt[3] = np.where(soft < 0.45, 19.0 + 11.0 * soft / 0.45, 0.0)
    eta = np.clip(0.5 * centre + rng.normal(0.0, 1.75, (4, n)), -4.9, 4.9)
    phi = rng.uniform(-np.pi, np.pi, (4, n))
    # The second and third jets come from the same recoil more often than not.
    phi[1:3] = phi[0] + rng.normal(0.0, 1.8, (2, n))
    return Jets(pt, eta, phi), number


def _balance(rng: Generator, jets: Jets) -> Array:
    """Transverse momentum that balances the jets and what is not seen, shape (2, n)."""
    return -jets.transverse() + rng.normal(0.0, _UNSEEN, (2, jets.pt.shape[1]))


def _to_tau_pair(rng: Generator, parent: Array, mass: Array | float) -> tuple[Array, Array]:
    """Decay a resonance to two taus, one to a lepton, one to hadrons; decay products fly along their tau."""
    first = two_body(rng, parent, mass)
    lep_quantile, tau_quantile = rng.random((2, parent.shape[1]))
    return first * lepton_share(lep_quantile), (parent - first) * hadronic_share(tau_quantile)


def _gluon_fusion(rng: Generator, n: int) -> Truth:
    y = rng.normal(0.0, 1.35, n)
    jets, _ = _make_jets(rng, (0.58, 0.29, 0.10, 0.03), (40.0, 28.0, 22.0), y)
    lep, tau = _to_tau_pair(rng, resonance(np.full(n, 125.0), _balance(rng, jets), y), 125.0)
    return Truth(lep, tau, jets, np.ones(n))


def _vector_boson_fusion(rng: Generator, n: int) -> Truth:
    y = rng.normal(0.0, 1.1, n)
    jets, _ = _make_jets(rng, (0.0, 0.0, 0.86, 0.14), (1.0, 1.0, 20.0), y)
    # The two quarks that radiated the bosons go forward and backward, and either may be too soft.
    jets.pt[:2] = rng.gamma(((2.0,), (1.7,)), ((30.0,), (29.0,)), (2, n)) * rng.lognormal(-0.05, 0.3, n)
    side = np.where(rng.random(n) < 0.5, -1.0, 1.0)
    eta = 0.3 * y + np.stack([side, -side]) * rng.normal(2.0, 1.2, (2, n))
    jets.eta[:2] = np.clip(eta, -4.9, 4.9)
    lep, tau = _to_tau_pair(rng, resonance(np.full(n, 125.0), _balance(rng, jets), y), 125.0)
    return Truth(lep, tau, jets, np.ones(n))


def _z_boson(rng: Generator, n: int) -> Truth:
    y = rng.normal(0.0, 1.4, n)
    # More jets than in nature, where the hard part of the background is; `importance` undoes it.
    jets, number = _make_jets(rng, (0.42, 0.34, 0.16, 0.08), (40.0, 36.0, 30.0), y)
    mass = breit_wigner(rng, n, 91.19, 2.5)
    lep, tau = _to_tau_pair(rng, resonance(mass, _balance(rng, jets), y), mass)
    return Truth(lep, tau, jets, np.array([2.4, 0.9, 0.45, 0.25])[number])


def _w_boson(rng: Generator, n: int) -> Truth:
    y = rng.normal(0.0, 2.1, n)
    jets, number = _make_jets(rng, (0.61, 0.28, 0.08, 0.03), (26.0, 26.0, 26.0), y)
    # One more jet, narrow and with few tracks, is taken for a tau.
    fake = 18.0 + rng.standard_exponential(n) * np.where(rng.random(n) < 0.8, 9.0, 25.0)
    tau = momentum(fake, 0.5 * y + rng.normal(0.0, 1.6, n), rng.uniform(-np.pi, np.pi, n))
    mass = breit_wigner(rng, n, 80.38, 2.1)
    lep = two_body(rng, resonance(mass, _balance(rng, jets) - tau[:2], y), mass)
    return Truth(lep, tau, jets, np.array([1.25, 0.70, 0.45, 0.35])[number])


def _top_pair(rng: Generator, n: int) -> Truth:
    top, w_boson = 172.5, 80.38
    y = rng.normal(0.0, 0.8, n)
    jets, _ = _make_jets(rng, (0.0, 0.0, 0.6, 0.4), (1.0, 1.0, 40.0), y)
    jets.pt[:2] = 0.0
    pair = _balance(rng, jets)
    kick, phi = rng.gamma(2.0, 45.0, n), rng.uniform(-np.pi, np.pi, n)
    apart = kick * np.stack([np.cos(phi), np.sin(phi)])
    spread = rng.normal(0.0, 0.6, n)
    decays = []
    for i, sign in enumerate((1.0, -1.0)):
        parent = resonance(np.full(n, top), 0.5 * pair + sign * apart, y + sign * spread)
        boson = two_body(rng, parent, top, w_boson)
        jets.pt[i], jets.eta[i], jets.phi[i] = polar(parent - boson)
        decays.append(two_body(rng, boson, w_boson))
    return Truth(decays[0], decays[1] * hadronic_share(rng.random(n)), jets, np.ones(n))


#: Signal first, then background.
PROCESSES = (
    Process("htautau_ggF", "s", rows=0.43, yields=0.917, generate=_gluon_fusion),
    Process("htautau_VBF", "s", rows=0.57, yields=0.083, generate=_vector_boson_fusion),
    Process("ztautau", "b", rows=0.31, yields=0.12, generate=_z_boson),
    Process("ttbar", "b", rows=0.06, yields=0.02, generate=_top_pair),
    Process("wjets", "b", rows=0.63, yields=0.86, generate=_w_boson),
)
