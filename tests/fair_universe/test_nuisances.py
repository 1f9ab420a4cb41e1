"""Energy scales move momenta, balance the missing momentum, and let events enter and leave the selection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fivesigma.datasets import Events, make_htautau
from fivesigma.datasets.htautau.kinematics import MEASURED
from fivesigma.errors import InputError
from fivesigma.fair_universe import load
from fivesigma.fair_universe.nuisances import (
    FEATURES,
    NUISANCES,
    Nuisances,
    draw_nuisances,
    from_higgsml,
    make_experiments,
    move_events,
)

pl = pytest.importorskip("polars")


@pytest.fixture(scope="module")
def toy() -> Events:
    return make_htautau(3000, random_state=3)


@pytest.fixture(scope="module")
def events(toy: Events) -> Events:
    return from_higgsml(toy)


def total(events: Events) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Vector sum of everything measured, which no energy scale may change."""
    out = np.zeros((2, len(events)))
    for pt, phi in (("PRI_met", "PRI_met_phi"), *((f"PRI_{p}_pt", f"PRI_{p}_phi") for p in PARTICLES)):
        size, angle = (np.nan_to_num(events.column(name).astype(np.float64)) for name in (pt, phi))
        out += size * np.stack([np.cos(angle), np.sin(angle)])
    return out


PARTICLES = ("had", "lep", "jet_leading", "jet_subleading")


def test_has_the_28_features_of_the_challenge(events: Events) -> None:
    assert len(FEATURES) == 28
    assert "DER_deltar_had_lep" in FEATURES
    assert "PRI_n_jets" in FEATURES
    assert set(np.unique(np.asarray(events.process))) == {"htautau", "ztautau", "ttbar", "wjets"}


def test_derived_columns_are_those_of_2014(toy: Events, events: Events) -> None:
    for name in FEATURES:
        old = name.replace("PRI_n_jets", "PRI_jet_num").replace("had", "tau")
        if name == "DER_mass_vis":  # the toy's visible mass has other decays too
            continue
        np.testing.assert_allclose(events.column(name), toy.column(old), rtol=2e-4, atol=2e-3, err_msg=name)


def test_nothing_moves_without_nuisances(events: Events) -> None:
    same = move_events(events, Nuisances())
    kept = events.column("PRI_had_pt") >= 26
    np.testing.assert_allclose(same.X, events[kept & (events.column("PRI_lep_pt") >= 20)].X, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("nuisances", [Nuisances(tes=1.04), Nuisances(jes=0.97), Nuisances(tes=0.95, jes=1.05)])
def test_scales_leave_the_total_momentum(events: Events, nuisances: Nuisances) -> None:
    hard = events[(events.column("PRI_had_pt") > 30) & ~(events.column("PRI_jet_subleading_pt") < 35)]
    hard = hard[~(hard.column("PRI_jet_leading_pt") < 35)]
    moved = move_events(hard, nuisances)
    assert len(moved) == len(hard)
    np.testing.assert_allclose(total(moved), total(hard), atol=1e-3)
    np.testing.assert_allclose(moved.column("PRI_had_pt"), nuisances.tes * hard.column("PRI_had_pt"), rtol=1e-6)


def test_events_enter_and_leave_the_selection(events: Events) -> None:
    sizes = [len(move_events(events, Nuisances(tes=tes))) for tes in (0.95, 1.0, 1.05)]
    assert sizes[0] < sizes[1] < sizes[2]


def test_soft_jets_are_removed(events: Events) -> None:
    moved = move_events(events, Nuisances(jes=0.8))
    one, two = moved.column("PRI_jet_leading_pt"), moved.column("PRI_jet_subleading_pt")
    assert not (one < 26).any()
    assert not (two < 26).any()
    jets = moved.column("PRI_n_jets")
    np.testing.assert_array_equal(jets == 0, np.isnan(one))
    np.testing.assert_array_equal(jets <= 1, np.isnan(two))
    np.testing.assert_allclose(moved.column("PRI_jet_all_pt")[jets == 1], one[jets == 1], rtol=1e-6)
    assert (jets == 0).mean() > (move_events(events, Nuisances()).column("PRI_n_jets") == 0).mean()


def test_soft_momentum_has_the_width_that_was_asked_for(events: Events) -> None:
    with pytest.raises(InputError, match="give move_events a numpy Generator"):
        move_events(events, Nuisances(soft_met=2.0))
    moved = move_events(events, Nuisances(soft_met=2.0), np.random.default_rng(0))
    still = move_events(events, Nuisances())
    difference = total(moved) - total(still)
    assert difference.std() == pytest.approx(2.0, rel=0.05)


def test_yields_follow_their_scales(events: Events) -> None:
    moved = move_events(events, Nuisances(ttbar_scale=1.1, bkg_scale=0.99))
    still = move_events(events, Nuisances())
    ratio = moved.weight / still.weight
    process = np.asarray(still.process)
    assert np.allclose(ratio[process == "htautau"], 1.0)
    assert np.allclose(ratio[process == "ttbar"], 1.1 * 0.99)
    assert np.allclose(ratio[process == "ztautau"], 0.99)


def test_draws_stay_in_their_bounds() -> None:
    rng = np.random.default_rng(0)
    drawn = [draw_nuisances(rng) for _ in range(2000)]
    for name, (mean, width, low, high) in NUISANCES.items():
        values = np.array([getattr(n, name) for n in drawn])
        assert low <= values.min()
        assert values.max() <= high
        assert values.mean() == pytest.approx(mean, abs=4 * width / 2000**0.5)
        assert values.std() == pytest.approx(width, rel=0.1)
    soft = np.array([n.soft_met for n in drawn])
    assert soft.min() >= 0
    assert soft.max() == 5.0
    assert np.median(soft) == pytest.approx(1.0, rel=0.1)


def test_an_experiment_has_the_expected_number_of_events(events: Events) -> None:
    small = move_events(events, Nuisances()).scaled_to(s=100.0, b=900.0)
    counts = [len(e) for e, _ in make_experiments(small, mu=3.0, n=30, random_state=0)]
    assert np.mean(counts) == pytest.approx(1200, rel=0.05)
    assert all((e.weight == 1).all() for e, _ in make_experiments(small, mu=0.5, n=2, random_state=0))
    with pytest.raises(InputError, match="mu must be >= 0"):
        next(make_experiments(small, mu=-1.0, n=1))


def test_reads_a_file_of_the_challenge(events: Events, tmp_path: Path) -> None:
    """A small file as the challenge writes it: -25 is missing, the process has a column of its own."""
    columns: dict[str, Any] = {name: np.nan_to_num(events.column(name), nan=-25.0) for name in FEATURES}
    columns |= {"weights": events.weight, "labels": events.is_signal.astype(int)}
    frame = pl.DataFrame(columns | {"detailed_labels": np.asarray(events.process).tolist()})
    frame.write_parquet(tmp_path / "data.parquet")
    found = load(tmp_path / "data.parquet")
    np.testing.assert_array_equal(np.isnan(found.X), np.isnan(events.X))
    assert found.feature_names == FEATURES
    np.testing.assert_allclose(found.weight, events.weight)
    np.testing.assert_array_equal(found.is_signal, events.is_signal)
    assert set(np.unique(np.asarray(found.process))) == {"htautau", "ztautau", "ttbar", "wjets"}
    again = load(str(tmp_path / "data.parquet"), luminosity=0.5)
    np.testing.assert_allclose(again.weight, 0.5 * events.weight)


def test_a_missing_column_is_named(toy: Events) -> None:
    with pytest.raises(InputError, match="no feature 'PRI_tau_pt'"):
        from_higgsml(events_without(toy, "PRI_tau_pt"))
    assert "PRI_tau_pt" in MEASURED


def events_without(events: Events, name: str) -> Events:
    from dataclasses import replace

    names = tuple(n for n in events.feature_names if n != name)
    return replace(events, X=events.table(names), feature_names=names)
