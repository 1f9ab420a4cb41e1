"""Two analyses that run once: the example with its own ntuples, and one on cabinetry's kind of ntuples."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from fivesigma.analysis import Record, analyse, figures
from tests.analysis.ntuples import config, make
from tests.test_examples import load

cabinetry = pytest.importorskip("cabinetry")
pytest.importorskip("uproot")
pytest.importorskip("xgboost")


class Done(NamedTuple):
    """An analysis that was run."""

    folder: Path
    out: Path
    found: dict[str, Any]


class Small(NamedTuple):
    """An analysis of one file with several trees."""

    file: Path
    config: dict[str, Any]
    out: Path
    record: Record
    said: list[str]


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No ranking, which takes longer than all else, but in analyses that run once and in tests of figures."""
    if request.module.__name__.rpartition("_")[2] not in ("figures", "configurations"):
        nothing = cabinetry.fit.results_containers.RankingResults(*[np.empty(0)] * 2, [], *[np.empty(0)] * 4)
        monkeypatch.setattr(figures, "_rank", lambda *_: (nothing, []))


@pytest.fixture(scope="package")
def example(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """The documented example, with few events."""
    folder = tmp_path_factory.mktemp("example")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "jsonschema.RefResolver", DeprecationWarning)  # pyhf 0.7.6 uses it
        found = load("ntuples_to_fit").main(folder, n=3_000, n_jobs=1, say=None)
    return Done(folder, folder / "out", found)


@pytest.fixture(scope="package")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    folder = tmp_path_factory.mktemp("small")
    file, said = make(folder / "ntuples.root"), list[str]()
    given = config(file)
    return Small(file, given, folder / "out", analyse(given, folder / "out", n_jobs=1, say=said.append), said)
