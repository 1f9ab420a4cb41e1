"""The simulated file in the CERN format."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fivesigma.datasets import column_names
from fivesigma.errors import InputError
from fivesigma.higgsml.data import CERN
from fivesigma.higgsml.simulate import _allot, write_simulated


def test_schema_is_the_cern_files(toy_file: Path, real_file: Path) -> None:
    assert column_names(toy_file) == column_names(real_file)


def test_text_looks_like_the_cern_files(toy_frame: pl.DataFrame, toy_file: Path) -> None:
    assert toy_frame["EventId"].to_list() == list(range(100_000, 104_000))
    assert toy_frame["PRI_jet_num"].dtype == pl.Int64
    assert toy_frame["DER_mass_jet_jet"].min() == -999.0
    assert toy_frame["PRI_met"].min() > 0  # type: ignore[operator]
    values = toy_frame["PRI_tau_pt"].to_numpy()
    np.testing.assert_allclose(values, values.round(3), rtol=0, atol=1e-9)


def test_sets_follow_one_another_and_test_sets_are_mixed(toy_frame: pl.DataFrame) -> None:
    sets = "".join(toy_frame["KaggleSet"].to_list())
    assert re.fullmatch("t+[bv]+u+", sets)
    assert len(re.findall("b+", sets)) > 300
    shares = toy_frame.group_by("KaggleSet").agg((pl.col("Label") == "s").mean())["Label"]
    assert shares.to_numpy() == pytest.approx(0.3427, abs=0.02)


def test_weights(toy_frame: pl.DataFrame) -> None:
    totals = {"s": 691.98861, "b": 410_999.84732}
    for (name, label), part in toy_frame.group_by("KaggleSet", "Label"):
        assert part["KaggleWeight"].sum() == pytest.approx(totals[str(label)], rel=1e-9)
        ratio = (part["KaggleWeight"] / part["Weight"]).to_numpy()
        assert np.ptp(ratio) < 1e-9 * ratio[0], name
    for label, total in totals.items():
        assert toy_frame.filter(pl.col("Label") == label)["Weight"].sum() == pytest.approx(total, rel=1e-9)


def test_the_full_size_has_the_challenges_counts() -> None:
    signal = np.zeros(818_238, bool)
    signal[:280_410] = True  # as make_htautau shares them out
    sets = _allot(signal, CERN, np.random.default_rng(0))
    for name, count in CERN.events.items():
        assert np.count_nonzero(sets == name) == count
    assert np.count_nonzero(signal & (sets == "t")) == 85_667


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    first = write_simulated(tmp_path / "a.csv.gz", 1000, random_state=3).read_bytes()
    assert write_simulated(tmp_path / "b.csv.gz", 1000, random_state=3).read_bytes() == first
    assert write_simulated(tmp_path / "b.csv.gz", 1000, random_state=4).read_bytes() != first


def test_pieces_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = write_simulated(tmp_path / "a.csv", 1000).read_bytes()
    monkeypatch.setattr("fivesigma.higgsml.simulate._PIECE", 301)
    assert write_simulated(tmp_path / "b.csv", 1000).read_bytes() == whole


def test_errors_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"neither \.csv nor \.csv\.gz"):
        write_simulated(tmp_path / "a.parquet", 1000)
    with pytest.raises(InputError, match="there is no folder"):
        write_simulated(tmp_path / "no" / "a.csv", 1000)
    with pytest.raises(InputError, match="at least 1,000"):
        write_simulated(tmp_path / "a.csv", 999)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fivesigma.higgsml.simulate._write", full)
    with pytest.raises(InputError, match=r"a\.csv\.gz cannot be written: No space left on device$"):
        write_simulated(tmp_path / "a.csv.gz", 1000)
    assert list(tmp_path.iterdir()) == []
