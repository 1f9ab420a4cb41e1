"""Momenta, two-body decays and tau decays for the toy simulation; a momentum has the shape (3, n_events)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

__all__ = ["breit_wigner", "hadronic_share", "lepton_share", "momentum", "polar", "resonance", "two_body"]

# The lepton's energy share in tau -> l nu nu follows (5 - 9 x^2 + 4 x^3) / 3; this is its integral.
_X = np.linspace(0.0, 1.0, 2049)
_LEPTON_CDF = (5.0 * _X - 3.0 * _X**3 + _X**4) / 3.0


def lepton_share(quantile: Array) -> Array:
    """Share of the tau's energy that the lepton has, at a quantile of its distribution.

    Examples
    --------
    >>> lepton_share(np.array([0.0, 0.5, 1.0])).round(3)
    array([0.   , 0.317, 1.   ])
    """
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
    """Momentum of one daughter of an isotropic two-body decay; the other one has the rest.

    Parameters
    ----------
    rng : numpy Generator
    parent : array of shape (3, n)
        Momentum of the decaying particle.
    mass, daughter, other : array or float
        Masses of the parent, of the daughter that is returned, and of the other one.
    """
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
