"""A small file in the challenge's format, and the census that calls it full."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from fivesigma.higgsml import data
from fivesigma.higgsml.data import CERN, Census, ChallengeEvents, load
from fivesigma.higgsml.simulate import write_simulated

N_EVENTS = 4000


@pytest.fixture(scope="session")
def toy_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_simulated(tmp_path_factory.mktemp("toy") / "toy.csv.gz", N_EVENTS, random_state=7)


@pytest.fixture(scope="session")
def toy_frame(toy_file: Path) -> pl.DataFrame:
    return pl.read_csv(toy_file)


@pytest.fixture(scope="session")
def toy(toy_file: Path) -> ChallengeEvents:
    return load(toy_file, sample=True)


@pytest.fixture
def small_census(monkeypatch: pytest.MonkeyPatch) -> Census:
    """Let the small file count as the full one."""
    census = CERN.scaled(N_EVENTS)
    monkeypatch.setattr(data, "CERN", census)
    return census
