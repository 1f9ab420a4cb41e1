"""The whole benchmark on few events: three models, the same experiments, and a file of all intervals."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fivesigma.cli import main
from fivesigma.errors import InputError
from fivesigma.fair_universe import compare, load
from fivesigma.fair_universe.comparison import ARMS, SHARES, equal_edges, split_events, vary

pytest.importorskip("xgboost")


def test_nominal_and_varied_events_share_their_random_numbers() -> None:
    sample = vary(load("toy:1000"), seed=0)
    assert list(sample.systematics) == ["tes", "jes", "soft_met", "bkg_scale", "ttbar_scale"]
    soft = sample.systematics["soft_met"]
    assert isinstance(soft, tuple)
    up, down = soft
    for name in ("PRI_had_pt", "PRI_lep_pt"):  # soft momentum moves neither, so the same events are compared
        assert abs(np.median(up.column(name)) - np.median(down.column(name))) < 2.0
    assert (sample.nominal.column("DER_mass_transverse_met_lep") < 70).all()


def test_equal_edges_hold_equal_content() -> None:
    rng = np.random.default_rng(0)
    score, weight = rng.normal(size=10_000), rng.uniform(0.5, 1.5, 10_000)
    content = np.histogram(score, bins=equal_edges(score, weight, 8), weights=weight)[0]
    np.testing.assert_allclose(content, weight.sum() / 8, rtol=0.01)


def test_runs_writes_and_prints(tmp_path: Path) -> None:
    file = tmp_path / "intervals.json"
    command = ["fair-universe", "toy:30000", "--luminosity", "0.02", "--categories", "4", "--jobs", "1"]
    command += ["--sets", "2", "--experiments", "2", "-o", str(file)]
    result = CliRunner().invoke(main, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert all(name in result.stdout for name in ARMS)
    assert "give more events or a smaller luminosity" in result.stdout
    saved = json.loads(file.read_text())
    assert [len(one["plain"]["mu"]) for one in saved["found"]] == [2, 2]
    assert saved["found"][0]["plain"]["mu"] == saved["found"][0]["profiled"]["mu"]
    again = CliRunner().invoke(main, [*command, "--json"], catch_exceptions=False)
    assert json.loads(again.stdout)["scores"].keys() == set(ARMS)
    assert json.loads(file.read_text()) == saved


def test_parts_share_no_event_and_stand_for_the_whole() -> None:
    events = load("toy:2000")
    events = replace(events, ids=np.arange(len(events)))
    parts = split_events(events, 0)
    assert sorted(np.concatenate([np.asarray(part.ids) for part in parts]).tolist()) == list(range(2000))
    np.testing.assert_allclose([len(part) / 2000 for part in parts], SHARES, atol=0.005)
    for part in parts:
        assert part.weight[part.is_signal].sum() == pytest.approx(events.weight[events.is_signal].sum())
        assert part.weight.sum() == pytest.approx(events.weight.sum())


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="such as toy:400000"):
        load("toy:many")
    events = load("toy:4000", luminosity=0.02)
    with pytest.raises(InputError, match="there is no folder"):
        compare(events, tmp_path / "none" / "intervals.json")  # before anything is trained
