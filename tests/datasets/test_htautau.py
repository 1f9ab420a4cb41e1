"""The toy simulation: schema, definitions, yields, difficulty."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ks_2samp

from fivesigma.datasets import Events, load_events, make_htautau
from fivesigma.datasets.htautau import kinematics as kin
from fivesigma.datasets.htautau.simulation import hadronic_share, lepton_share, polar, resonance, two_body
from fivesigma.errors import InputError


@pytest.fixture(scope="module")
def toy() -> Events:
    return make_htautau(40_000, random_state=3)


def test_yields_and_rows(toy: Events) -> None:
    signal = toy.is_signal
    assert toy.weight[signal].sum() == pytest.approx(691.98861, rel=1e-9)
    assert toy.weight[~signal].sum() == pytest.approx(410_999.84732, rel=1e-9)
    assert signal.mean() == pytest.approx(0.34, abs=0.005)
    assert (toy.weight > 0).all()


def test_processes_and_their_weights(toy: Events) -> None:
    assert toy.process is not None
    labels = {(p, y) for p, y in zip(toy.process.tolist(), toy.y.tolist(), strict=True)}
    assert labels == {
        ("htautau_ggF", "s"),
        ("htautau_VBF", "s"),
        ("ztautau", "b"),
        ("ttbar", "b"),
        ("wjets", "b"),
    }
    mean = {name: toy.weight[toy.process == name].mean() for name in set(toy.process.tolist())}
    # As in the real events: the rare process is simulated most generously.
    assert mean["htautau_ggF"] > 5 * mean["htautau_VBF"]
    assert mean["wjets"] > 2 * mean["ztautau"]
    for name, average in mean.items():
        spread = toy.weight[toy.process == name].std() / average
        assert 0.05 < spread < 1.0, name


def test_schema_is_the_challenges(toy: Events, real_file: Path) -> None:
    assert toy.feature_names == load_events(real_file).feature_names


def test_derived_columns_follow_from_the_measured_ones(toy: Events) -> None:
    columns = {name: toy.column(name).astype(float) for name in toy.feature_names}
    for name, value in kin.derive(columns).items():
        np.testing.assert_array_equal(np.isnan(value), np.isnan(columns[name]))
        if name not in ("DER_mass_vis", "DER_met_phi_centrality"):  # the tau's mass; a sign at back-to-back
            np.testing.assert_allclose(columns[name], value, rtol=2e-4, atol=2e-4, equal_nan=True)
    masses = [kin.derive(columns, tau_mass=m)["DER_mass_vis"] for m in (0.8, 1.2)]
    off = np.minimum(*(np.abs(m - columns["DER_mass_vis"]) for m in masses))
    assert off.max() < 1e-3


def test_missing_pattern(toy: Events) -> None:
    n_jets = toy.column("PRI_jet_num")
    assert set(n_jets.tolist()) == {0.0, 1.0, 2.0, 3.0}
    for name in toy.feature_names:
        missing = np.isnan(toy.column(name))
        if name == "DER_mass_MMC":
            assert missing.mean() == pytest.approx(0.15, abs=0.02)
            assert missing[toy.is_signal].mean() < 0.05
        elif "subleading" in name or "jet_jet" in name or name == "DER_lep_eta_centrality":
            np.testing.assert_array_equal(missing, n_jets < 2)
        elif "leading" in name:
            np.testing.assert_array_equal(missing, n_jets == 0)
        else:
            assert not missing.any(), name
    np.testing.assert_array_equal(toy.column("PRI_jet_all_pt") == 0.0, n_jets == 0)


def test_selection(toy: Events) -> None:
    assert toy.column("PRI_lep_pt").min() >= 26.0
    assert toy.column("PRI_tau_pt").min() >= 20.0
    assert np.nanmin(toy.column("PRI_jet_subleading_pt")) >= 30.0
    assert np.abs(toy.column("PRI_tau_eta")).max() <= 2.5
    pt1, pt2 = toy.column("PRI_jet_leading_pt"), toy.column("PRI_jet_subleading_pt")
    both = ~np.isnan(pt2)
    assert (pt1[both] >= pt2[both]).all()
    for name in toy.feature_names:
        if name.endswith("_phi"):
            assert np.nanmax(np.abs(toy.column(name))) <= np.pi + 1e-6


def test_likelihood_mass_peaks_where_it_should(toy: Events) -> None:
    assert toy.process is not None
    mass = toy.column("DER_mass_MMC")
    for process, peak in (("htautau_ggF", 125.0), ("htautau_VBF", 125.0), ("ztautau", 91.2)):
        low, middle, high = np.nanquantile(mass[toy.process == process], [0.16, 0.5, 0.84])
        assert middle == pytest.approx(peak, rel=0.05)
        assert 0.10 < (high - low) / 2 / middle < 0.20


def test_same_seed_same_events_other_seed_others() -> None:
    one, again, other = (make_htautau(2000, random_state=seed) for seed in (5, 5, 6))
    assert one.X.tobytes() == again.X.tobytes()
    assert one.weight.tobytes() == again.weight.tobytes()
    assert one.y.tolist() == again.y.tolist()
    assert one.X.tobytes() != other.X.tobytes()


@pytest.mark.parametrize("n", [100, 101, 1237])
def test_any_number_of_events(n: int) -> None:
    events = make_htautau(n)
    assert len(events) == n
    assert events.weight[events.is_signal].sum() == pytest.approx(691.98861)
    assert events.ids is not None
    assert len(set(events.ids.tolist())) == n


@pytest.mark.parametrize("n", [0, 99, -5])
def test_too_few_events_are_refused(n: int) -> None:
    with pytest.raises(InputError, match="n_events"):
        make_htautau(n)


@pytest.mark.parametrize("label", ["s", "b"])
def test_columns_look_like_those_of_the_real_events(toy: Events, real_file: Path, label: str) -> None:
    real = load_events(real_file)
    for name in toy.feature_names:
        ours, theirs = (e.column(name)[e.y == label].round(3) for e in (toy, real))
        assert np.isnan(ours).mean() == pytest.approx(np.isnan(theirs).mean(), abs=0.05), name
        # The largest distance between the two cumulative distributions; 0.02 would be chance.
        distance = ks_2samp(ours[~np.isnan(ours)], theirs[~np.isnan(theirs)]).statistic
        assert distance < 0.15, name


def test_difficulty_is_that_of_the_challenge(toy: Events) -> None:
    pytest.importorskip("xgboost")
    from benchmarks.studies.simulation_difficulty import difficulty

    found = difficulty(toy, n_trees=100, eta=0.1)  # a cheaper version of the one in docs/validation/simulation.md
    assert 2.9 < found.smoothed <= found.ams < 4.5
    assert found.weighted_auc == pytest.approx(0.93, abs=0.015)


def test_two_body_decay_conserves_energy_and_momentum() -> None:
    rng = np.random.default_rng(0)
    n = 1000
    mass = np.full(n, 172.5)
    parent = resonance(mass, rng.normal(0, 50, (2, n)), rng.normal(0, 1, n))
    boson = two_body(rng, parent, mass, 80.4, 4.7)
    bottom = parent - boson
    energy = sum(np.sqrt(m**2 + np.square(p).sum(axis=0)) for m, p in ((80.4, boson), (4.7, bottom)))
    total = np.sqrt(mass**2 + np.square(parent).sum(axis=0))
    np.testing.assert_allclose(energy, total, rtol=1e-9)
    assert polar(parent)[0].mean() > 0


def test_shares_are_those_of_tau_decays() -> None:
    steps = (np.arange(100_000) + 0.5) / 100_000
    assert lepton_share(steps).mean() == pytest.approx(0.35, abs=1e-3)  # the integral of x (5 - 9x^2 + 4x^3) / 3
    assert hadronic_share(steps).mean() == pytest.approx(0.65, abs=0.01)
    assert hadronic_share(np.array([0.0, 1.0])).tolist() == [0.2, 1.0]
