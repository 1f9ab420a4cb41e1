"""Settings of all tests, and the real events that some of them need."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from fivesigma._types import AnyArray, Array

os.environ["MPLBACKEND"] = "Agg"
# The same examples on every run; a slow machine is not a failure.
settings.register_profile("fivesigma", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("fivesigma")

REAL = "atlas-higgs-challenge-2014-v2.first22889.csv.gz"


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> Iterator[None]:
    """A shell that starts the tests in the background has them ignore Ctrl-C, which some of them send."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def real_file() -> Path:
    """The prefix of the challenge's file, which is not part of the repository."""
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("FIVESIGMA_DATA", shared))
    if not (folder / REAL).exists():
        pytest.skip(f"the real events ({REAL}) are not in {folder}; set FIVESIGMA_DATA to their folder")
    return folder / REAL


@pytest.fixture(scope="session")
def real_events(real_file: Path) -> tuple[AnyArray, AnyArray, Array]:
    """X, y and weights of the real events, scaled to the yields of the challenge."""
    from fivesigma.datasets import load_events
    from fivesigma.datasets.htautau import YIELDS
    from fivesigma.yields import rescale

    events = load_events(real_file, weight="KaggleWeight")
    weight = rescale(events.weight, events.is_signal, (YIELDS["s"], YIELDS["b"]))
    return events.X, np.asarray(events.y), weight
