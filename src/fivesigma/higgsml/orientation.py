"""The symmetries of an event, as a transform of it and as one orientation that all its images share.

Nothing in a collision depends on the azimuth at which the detector's axes were drawn, on left or right, or on
which beam came from which side.  So the azimuths can be rotated and mirrored and the beam's direction flipped.
A learner can be shown such images of its events (`transform`), or every event can be turned the same way first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fivesigma._types import Array, BoolArray
from fivesigma.datasets.events import Events
from fivesigma.datasets.htautau.kinematics import delta_phi
from fivesigma.errors import InputError, did_you_mean

__all__ = ["ANGLES", "MOMENTA", "Particle", "need_columns", "orient", "transform"]

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
    need_columns(events, ANGLES, "transform")
    X = events.X.copy()
    handed, along = np.where(mirror, -1.0, 1.0), np.where(flip, np.float32(-1.0), np.float32(1.0))
    for _, eta, phi in MOMENTA:
        column = X[:, events.feature_names.index(phi)]
        column[:] = delta_phi(handed * column.astype(np.float64) + angle, np.zeros(()))
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
    turned = [np.zeros(len(events)), *(delta_phi(p.phi, lep.phi) for p in (tau, jet1, jet2, met))]
    up = _first_side((np.sin(turned[k]) for k in (1, 4, 2, 3)), _ON_AXIS)
    along = _first_side((p.eta for p in (lep, tau, jet1, jet2)), 0.0)
    phis = [turned[0], np.abs(turned[1]), *(up * phi for phi in turned[2:])]
    particles = zip(("lep", "tau", "jet1", "jet2", "met"), (lep, tau, jet1, jet2, met), phis, strict=True)
    return {name: Particle(p.pt, along * p.eta, phi) for name, p, phi in particles}


def need_columns(events: Events, columns: Iterable[str], caller: str) -> None:
    """Raise InputError for the first column that the events lack."""
    missing = [name for name in columns if name not in events.feature_names]
    if missing:
        end = did_you_mean(missing[0], events.feature_names)
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(
            f"{caller} needs the challenge's column {missing[0]!r}{more}, which these events do not have{end}"
        )


def _first_side(values: Iterable[Array], tolerance: float) -> Array:
    """Sign of the first value that is further than the tolerance from zero; 1 if none is."""
    side: Array | float = 0.0
    for value in values:
        side = np.where((side == 0.0) & (np.abs(value) > tolerance), np.sign(value), side)
    return np.where(side == 0.0, 1.0, side)
