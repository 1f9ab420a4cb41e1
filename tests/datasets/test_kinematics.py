"""The derived columns of the real events must follow from their measured columns."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fivesigma.datasets.htautau import kinematics as kin
from fivesigma.datasets.load import load_events

HALF = 0.0005  # the file rounds to three decimals
Columns = dict[str, NDArray[np.float64]]


@pytest.fixture(scope="module")
def real(real_file: Path) -> Columns:
    events = load_events(real_file)
    # float64 by way of text: three decimals, not float32's neighbours of them.
    return {name: events.column(name).astype(float).round(3) for name in events.feature_names}


def derived_with_error(real: Columns, tau_mass: float) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Each derived column and how far rounding of every input can move it, one input at a time, added up."""
    base = kin.derive(real, tau_mass=tau_mass)
    error = {name: np.full(len(column), HALF + 1e-9) for name, column in base.items()}
    for name in kin.MEASURED:
        if name == "PRI_jet_num":
            continue  # a count, exact
        moved = [kin.derive(real | {name: real[name] + step}, tau_mass=tau_mass) for step in (HALF, -HALF)]
        for column, value in base.items():
            reach = np.maximum(*(np.abs(other[column] - value) for other in moved))
            error[column] += np.nan_to_num(reach)
    return {name: (base[name], error[name]) for name in base}


@pytest.fixture(scope="module")
def one_prong(real: Columns) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    return derived_with_error(real, 0.8)


EXACT = sorted(set(kin.DERIVED[1:]) - {"DER_mass_vis", "DER_mass_jet_jet", "DER_met_phi_centrality"})


@pytest.mark.parametrize("name", EXACT)
def test_column_follows_from_the_measured_ones(real: Columns, one_prong: Any, name: str) -> None:
    value, error = one_prong[name]
    np.testing.assert_array_equal(np.isnan(value), np.isnan(real[name]))
    there = ~np.isnan(value)
    assert (np.abs(value - real[name])[there] <= error[there]).all()
    # The bound is a real one: typical events are known far better than the worst.
    assert np.median(error[there]) < 0.06


def test_visible_mass_needs_one_of_two_tau_masses(real: Columns, one_prong: Any) -> None:
    fits = []
    for value, error in (one_prong["DER_mass_vis"], derived_with_error(real, 1.2)["DER_mass_vis"]):
        fits.append(np.abs(value - real["DER_mass_vis"]) <= error)
    assert (fits[0] | fits[1]).all()
    assert not fits[0].all()
    assert not fits[1].all()


def test_jet_jet_mass_without_jet_masses_is_a_lower_bound(real: Columns, one_prong: Any) -> None:
    value, error = one_prong["DER_mass_jet_jet"]
    there = ~np.isnan(real["DER_mass_jet_jet"])
    np.testing.assert_array_equal(np.isnan(value), ~there)
    massless, full = value[there], real["DER_mass_jet_jet"][there]
    assert (massless <= full + error[there]).all()
    assert np.median(full / massless - 1.0) == pytest.approx(0.0065, abs=0.0005)


def test_met_centrality_differs_in_one_back_to_back_event(real: Columns, one_prong: Any) -> None:
    value, error = one_prong["DER_met_phi_centrality"]
    away = np.flatnonzero(np.abs(value - real["DER_met_phi_centrality"]) > error)
    assert len(away) == 1
    assert value[away] == pytest.approx(-real["DER_met_phi_centrality"][away], abs=1e-3)
    apart = kin.delta_phi(real["PRI_tau_phi"][away], real["PRI_lep_phi"][away])
    assert np.abs(apart) == pytest.approx(np.pi, abs=1e-3)


def test_missing_pattern_follows_the_number_of_jets(real: Columns) -> None:
    n_jets = real["PRI_jet_num"]
    for name in ("PRI_jet_leading_pt", "PRI_jet_leading_eta", "PRI_jet_leading_phi"):
        np.testing.assert_array_equal(np.isnan(real[name]), n_jets == 0)
    for name in ("PRI_jet_subleading_pt", "DER_mass_jet_jet", "DER_lep_eta_centrality"):
        np.testing.assert_array_equal(np.isnan(real[name]), n_jets < 2)


def four_vector(pt: float, eta: float, phi: float, mass: float) -> NDArray[np.float64]:
    p = pt * np.array([np.cos(phi), np.sin(phi), np.sinh(eta)])
    return np.array([np.sqrt(p @ p + mass**2), *p])


@pytest.mark.parametrize("masses", [(0.0, 0.0), (1.2, 0.0), (0.8, 30.0)])
def test_invariant_mass_is_that_of_the_summed_four_vectors(masses: tuple[float, float]) -> None:
    a, b = (35.0, 0.7, 1.1), (61.0, -1.9, -2.7)
    total = four_vector(*a, masses[0]) + four_vector(*b, masses[1])
    mass = np.sqrt(total[0] ** 2 - total[1:] @ total[1:])
    one, other = ((np.array(p[0]), np.array(p[1]), np.array(p[2])) for p in (a, b))
    assert kin.invariant_mass(one, other, *masses) == pytest.approx(mass, rel=1e-12)


def test_nearly_parallel_particles_keep_their_small_mass() -> None:
    pt, eta, phi = np.array(500.0), np.array(2.0), np.array(0.3)
    mass = kin.invariant_mass((pt, eta, phi), (pt, eta, phi + 1e-7))
    assert mass == pytest.approx(500.0 * 1e-7, rel=1e-6)
    assert kin.transverse_mass(pt, phi, pt, phi + 1e-7) == pytest.approx(500.0 * 1e-7, rel=1e-6)


def test_centralities_at_their_landmarks() -> None:
    lep, tau = np.array(0.2), np.array(1.4)
    assert kin.phi_centrality(np.array(0.8), lep, tau) == pytest.approx(np.sqrt(2))
    assert kin.phi_centrality(lep, lep, tau) == pytest.approx(1.0)
    assert kin.phi_centrality(np.array(0.8 + np.pi), lep, tau) == pytest.approx(-np.sqrt(2))
    assert kin.eta_centrality(np.array(1.0), np.array(0.0), np.array(2.0)) == 1.0
    assert kin.eta_centrality(np.array(2.0), np.array(0.0), np.array(2.0)) == pytest.approx(np.exp(-1))
