"""Engineered features: the symmetries of an event, the challenge's own columns as an oracle, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier

from fivesigma import AMS2, scan
from fivesigma._types import AnyArray, Array
from fivesigma.datasets import Events, load_events, make_htautau
from fivesigma.datasets.htautau.kinematics import DERIVED, MEASURED, derive
from fivesigma.errors import InputError
from fivesigma.higgsml.features import ALL_SETS, ANGLES, MOMENTA, engineer, orient, transform

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


@given(st.lists(_event(), min_size=1, max_size=5), st.integers(0, 2**32 - 1))
def test_a_turned_event_keeps_every_derived_column(events: list[Events], seed: int) -> None:
    # The oracle is the measured columns themselves: what the challenge derives does not depend on the orientation.
    X = np.concatenate([event.X for event in events])
    many = replace(events[0], X=X, y=np.repeat("s", len(X)), weight=np.ones(len(X)))
    rng = np.random.default_rng(seed)
    angle, mirror, flip = rng.uniform(-9.0, 9.0, len(X)), rng.random(len(X)) < 0.5, rng.random(len(X)) < 0.5
    turned = transform(many, angle=angle, mirror=mirror, flip=flip)
    assert not any(np.any(np.abs(turned.column(phi)) > np.float32(np.pi)) for _, _, phi in MOMENTA)
    before, after = (derive({name: e.column(name).astype(np.float64) for name in MEASURED}) for e in (many, turned))
    for name in set(before) - {"DER_met_phi_centrality"}:  # which jumps where tau and lepton are in line
        np.testing.assert_allclose(after[name], before[name], rtol=1e-5, atol=2e-3, err_msg=name)


def test_turning_the_test_events_leaves_the_significance_as_it_is() -> None:
    events = make_htautau(6000)
    train, test = events[:3000], events[3000:]
    rng = np.random.default_rng(0)
    angle, mirror, flip = (
        rng.uniform(-9, 9, len(test)),
        rng.random(len(test)) < 0.5,
        rng.random(len(test)) < 0.5,
    )
    turned = transform(test, angle=angle, mirror=mirror, flip=flip)
    found = {}
    for sets in (ALL_SETS, (*ALL_SETS, "raw")):
        model = HistGradientBoostingClassifier(max_iter=20, random_state=0).fit(engineer(train, sets).X, train.y)
        signal = list(model.classes_).index("s")
        scores = (model.predict_proba(engineer(part, sets).X)[:, signal] for part in (test, turned))
        found[sets] = [scan(score, test.is_signal, test.weight, AMS2(b_reg=10.0)).significance for score in scores]
    same, other = found.values()
    assert same[1] == pytest.approx(same[0], rel=1e-3)  # one event may cross a split by a rounding
    assert other[1] != pytest.approx(other[0], rel=1e-3)


def test_each_event_is_turned_on_its_own() -> None:
    events = make_htautau(200)
    some = np.arange(200) % 2 == 0
    turned = transform(events, angle=np.where(some, 1.0, 0.0), mirror=some, flip=some)
    np.testing.assert_array_equal(turned[~some].X, transform(events[~some]).X)
    np.testing.assert_array_equal(turned[some].X, transform(events[some], angle=1.0, mirror=True, flip=True).X)
    assert not np.array_equal(turned.column("PRI_lep_phi")[some], events.column("PRI_lep_phi")[some])


def test_orientation() -> None:
    events = make_htautau(2000)
    particles = orient(events)
    assert np.all(particles["lep"].phi == 0.0)
    assert np.all(particles["lep"].eta >= 0.0)
    assert np.all((particles["tau"].phi >= 0.0) & (particles["tau"].phi <= np.pi))
    up = np.sin(events.column("PRI_tau_phi") - events.column("PRI_lep_phi")) > 0
    distance = np.where(up, 1, -1) * (events.column("PRI_met_phi") - events.column("PRI_lep_phi"))
    np.testing.assert_allclose(np.exp(1j * particles["met"].phi), np.exp(1j * distance.astype(float)), atol=1e-5)


@pytest.mark.parametrize("apart", [0.0, np.pi])
def test_ties_are_left_to_the_next_particle(apart: float) -> None:
    events = make_htautau(1000)
    X = events.X.copy()
    at = {name: events.feature_names.index(name) for name in events.feature_names}
    X[:, at["PRI_lep_eta"]] = 0.0
    X[:, at["PRI_tau_phi"]] = X[:, at["PRI_lep_phi"]] + apart
    tied = replace(events, X=X)
    particles = orient(tied)
    assert np.all(particles["tau"].eta > 0.0)
    assert np.all(particles["met"].phi > 0.0)
    # Whichever side of the lepton the rounding of a rotation leaves the tau on.
    turned = transform(tied, angle=np.linspace(-3.0, 3.0, len(X)), mirror=np.arange(len(X)) % 2 == 0)
    np.testing.assert_allclose(engineer(turned).X, engineer(tied).X, rtol=1e-5, atol=1e-3)


def test_the_raw_angles_break_the_symmetry() -> None:
    # The control of the tests above: with "raw" the columns do depend on the orientation.
    events = make_htautau(100)
    turned = transform(events, angle=0.5, flip=True)
    kept = engineer(turned, (*ALL_SETS, "raw"))
    assert set(ANGLES) <= set(kept.feature_names)
    for name in ANGLES:
        np.testing.assert_array_equal(kept.column(name), turned.column(name))
    assert not set(ANGLES) & set(engineer(events).feature_names)


def test_every_set_adds_its_own_columns() -> None:
    events = make_htautau(300)
    whole = engineer(events)
    assert len(set(whole.feature_names)) == len(whole.feature_names)
    base = engineer(events, []).feature_names
    assert base == tuple(name for name in events.feature_names if name not in ANGLES)
    seen = list(base)
    for name in ALL_SETS:
        part = engineer(events, name)
        added = part.feature_names[len(base) :]
        seen += added
        for column in (base[0], *added):
            np.testing.assert_array_equal(part.column(column), whole.column(column))
    assert tuple(seen) == whole.feature_names


def test_the_order_of_sets_does_not_matter() -> None:
    events = make_htautau(100)
    assert engineer(events, ["ratios", "masses", "ratios"]).feature_names == (
        engineer(events, ("masses", "ratios")).feature_names
    )


def test_missing_jets_are_nan_and_nothing_is_infinite() -> None:
    events = engineer(make_htautau(5000))
    n_jets = events.column("PRI_jet_num")
    for name in events.feature_names[21:]:
        values = events.column(name)
        assert not np.isinf(values).any(), name
        if name.startswith("DER"):
            continue
        needed = 2 if "jet2" in name or "centrality" in name else 1 if "jet1" in name else 0
        undefined = (n_jets < needed) | (np.isnan(events.column("DER_mass_MMC")) & name.endswith("MMC"))
        np.testing.assert_array_equal(np.isnan(values), undefined, err_msg=name)


def test_what_is_undefined_is_nan() -> None:
    events = make_htautau(100)
    X = events.X.copy()
    X[:, events.feature_names.index("PRI_met_sumet")] = 0.0
    X[:, events.feature_names.index("PRI_lep_eta")] = 800.0  # its momentum overflows
    made = engineer(replace(events, X=X))
    assert not np.isinf(made.X).any()
    assert np.isnan(made.column("met_over_root_sumet")).all()


def test_projections() -> None:
    events = engineer(make_htautau(2000), ("projections", "raw"))
    tau, lep, met = (np.exp(1j * events.column(f"PRI_{a}_phi").astype(np.float64)) for a in ("tau", "lep", "met"))
    tau_pt, lep_pt, met_pt = (
        events.column(name).astype(np.float64) for name in ("PRI_tau_pt", "PRI_lep_pt", "PRI_met")
    )
    zeta = (tau + lep) / np.abs(tau + lep)
    expected = {
        "met_along_tau": met_pt * (met * tau.conj()).real,
        "met_along_lep": met_pt * (met * lep.conj()).real,
        "met_along_zeta": met_pt * (met * zeta.conj()).real,
        "visible_along_zeta": ((tau_pt * tau + lep_pt * lep) * zeta.conj()).real,
    }
    for name, values in expected.items():
        np.testing.assert_allclose(events.column(name), values, rtol=1e-5, atol=2e-3, err_msg=name)


def test_blocks_leave_no_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    events = make_htautau(1000)
    whole = engineer(events)
    monkeypatch.setattr("fivesigma.higgsml.features._BLOCK", 77)
    np.testing.assert_array_equal(engineer(events).X, whole.X)
    assert len(engineer(events[:0])) == 0


def test_masses_are_those_of_summed_four_momenta() -> None:
    events = engineer(make_htautau(3000), (*ALL_SETS, "raw"))
    names = dict(zip(("lep", "tau", "jet1", "jet2", "met"), MOMENTA, strict=True))

    def momentum(name: str) -> Array:
        pt, eta, phi = (None if c is None else events.column(c).astype(np.float64) for c in names[name])
        assert pt is not None
        assert phi is not None
        pz = np.zeros_like(pt) if eta is None else pt * np.sinh(eta)
        return np.stack([np.sqrt(pt**2 + pz**2), pt * np.cos(phi), pt * np.sin(phi), pz])

    checked = 0
    for column in events.feature_names:
        quantity, *system = column.split("_")
        if quantity not in {"mass", "mT", "pt", "p"} or not set(system) <= set(names):
            continue
        e, x, y, z = np.sum([momentum(a) for a in system], axis=0)
        et = sum(np.hypot(*momentum(a)[1:3]) for a in system)
        square = {
            "mass": e**2 - x**2 - y**2 - z**2,
            "mT": et**2 - x**2 - y**2,
            "pt": x**2 + y**2,
            "p": x**2 + y**2 + z**2,
        }[quantity]
        # Squares cancel in this form, so it is exact to 1e-6 of the energy at best.
        scale = np.nanmax(np.square(e))
        np.testing.assert_allclose(np.square(events.column(column).astype(np.float64)), square, atol=1e-6 * scale)
        checked += 1
    assert checked > 25


def test_the_challenges_own_columns_come_out_again(real_file: Path) -> None:
    events = load_events(real_file, weight="KaggleWeight")
    made = engineer(events)

    def agree(ours: AnyArray, theirs: str, atol: float, share: float = 1.0) -> None:
        difference = np.abs(ours - events.column(theirs))
        assert np.mean(difference[~np.isnan(difference)] <= atol) >= share, theirs
        np.testing.assert_array_equal(np.isnan(ours), np.isnan(events.column(theirs)))

    particles = orient(events)
    deta, dphi = made.column("deta_tau_lep"), made.column("dphi_tau_lep")
    agree(np.hypot(deta, dphi), "DER_deltar_tau_lep", 2e-3)
    agree(np.abs(particles["jet1"].eta - particles["jet2"].eta), "DER_deltaeta_jet_jet", 2e-3)
    agree(particles["jet1"].eta * particles["jet2"].eta, "DER_prodeta_jet_jet", 1e-2)
    lep, met = events.column("PRI_lep_pt"), events.column("PRI_met")
    agree(np.sqrt(2 * lep * met * (1 - np.cos(made.column("dphi_lep_met")))), "DER_mass_transverse_met_lep", 0.3)
    # The transverse mass of all is that of its parts: E_T^2 = m_T^2 + p_T^2 holds with the challenge's own p_T.
    scalar = made.column("sum_pt_tau_lep_met").astype(np.float64)
    transverse = made.column("mT_tau_lep_met").astype(np.float64)
    agree(np.sqrt(np.maximum(scalar**2 - transverse**2, 0.0)), "DER_pt_h", 0.3, share=0.999)
    agree(made.column("sum_pt_all") - met, "DER_sum_pt", 0.02)
    # The visible mass with massless tau and jets bounds the real one from below.
    whole, candidate = made.column("mass_tau_lep_jet1_jet2"), made.column("DER_mass_vis")
    two = ~np.isnan(whole)
    assert np.all(whole[two] >= candidate[two] - 0.5)


@dataclass(frozen=True, eq=False, repr=False, slots=True, kw_only=True)
class _Tagged(Events):
    tag: str = "t"


def test_a_subclass_stays_itself() -> None:
    events = make_htautau(100)
    tagged = _Tagged(
        X=events.X, y=events.y, weight=events.weight, signal="s", feature_names=events.feature_names, tag="b"
    )
    for made in (engineer(tagged), transform(tagged, angle=1.0)):
        assert isinstance(made, _Tagged)
        assert made.tag == "b"
        assert made.weight is events.weight
        assert made.X.dtype == np.float32


def test_the_given_events_are_not_changed() -> None:
    events = make_htautau(100)
    before = events.X.copy()
    engineer(transform(events, angle=2.0, mirror=True, flip=True))
    np.testing.assert_array_equal(events.X, before)


def test_what_is_refused() -> None:
    events = make_htautau(100)
    with pytest.raises(InputError, match=r"no feature set 'mases'\; did you mean 'masses'"):
        engineer(events, ["mases"])
    renamed = replace(events, feature_names=tuple(n.replace("lep_phi", "lepton_phi") for n in events.feature_names))
    for turn in (engineer, transform):
        with pytest.raises(InputError, match=r"no feature 'PRI_lep_phi' among .* did you mean 'PRI_lepton_phi'"):
            turn(renamed)
    with pytest.raises(InputError, match=r"no feature 'PRI_lep_eta' among"):
        engineer(engineer(events))
    with pytest.raises(InputError, match=r"already have engineered columns, such as 'mass_tau_jet1'"):
        engineer(engineer(events, ("masses", "raw")), ("masses", "raw"))
