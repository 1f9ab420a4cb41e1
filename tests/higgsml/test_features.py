"""Engineered features: the symmetries of an event, the challenge's own columns as an oracle, and what is refused."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fivesigma.datasets import Events
from fivesigma.datasets.kinematics import DERIVED, MEASURED, derive
from fivesigma.higgsml.features import engineer
from fivesigma.higgsml.orientation import MOMENTA, transform

#: Angles as they are measured, to three decimals; zeros come often, so that ties do.
_phi = st.integers(-3142, 3141).map(lambda k: k / 1000) | st.just(0.0)
_eta = st.integers(-4500, 4500).map(lambda k: k / 1000) | st.just(0.0)
_pt = st.integers(20_000, 500_000).map(lambda k: k / 1000)


@st.composite
def _event(draw: st.DrawFn) -> Events:
    """One event with any number of jets and any angles."""
    n_jets = draw(st.integers(0, 3))
    row = dict.fromkeys(MEASURED, np.nan)
    for k, (pt, eta, phi) in enumerate(MOMENTA):
        if k in {2, 3} and n_jets < k - 1:
            continue
        row |= {pt: draw(_pt), phi: draw(_phi)} | ({eta: draw(_eta)} if eta else {})
    row |= {"PRI_jet_num": n_jets, "PRI_met_sumet": draw(_pt), "PRI_jet_all_pt": draw(_pt) if n_jets else 0.0}
    columns = {name: np.array([value], dtype=np.float64) for name, value in row.items()}
    columns |= derive(columns) | {"DER_mass_MMC": np.array([draw(_pt)])}
    names = (*DERIVED, *MEASURED)
    X = np.stack([columns[name] for name in names], axis=1).astype(np.float32)
    return Events(X=X, y=np.array(["s"]), weight=np.ones(1), signal="s", feature_names=names)


@given(_event(), st.floats(-10.0, 10.0), st.booleans(), st.booleans())
def test_turning_an_event_changes_nothing(event: Events, angle: float, mirror: bool, flip: bool) -> None:
    before = engineer(event)
    after = engineer(transform(event, angle=angle, mirror=mirror, flip=flip))
    # An angle in float32 is off by 2e-7, and a momentum component by that share of the momentum.
    scale = np.maximum(1.0, np.nanmax(np.abs(before.X)))
    np.testing.assert_allclose(after.X, before.X, rtol=2e-6, atol=2e-6 * scale)
