import os
from pathlib import Path

import pytest

REAL = "atlas-higgs-challenge-2014-v2.first22889.csv.gz"


@pytest.fixture(scope="session")
def real_file() -> Path:
    """The prefix of the challenge's file, which is not part of the repository."""
    shared = Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = Path(os.environ.get("FIVESIGMA_DATA", shared))
    if not (folder / REAL).exists():
        pytest.skip(f"the real events ({REAL}) are not in {folder}; set FIVESIGMA_DATA to their folder")
    return folder / REAL
