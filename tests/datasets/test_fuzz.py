"""A short run of the fuzz benchmark; the long one is ``python -m benchmarks.robustness.fuzz_loaders``."""

from pathlib import Path

import pytest
from benchmarks.robustness.fuzz_loaders import outcome, run, whole_files


def test_whole_files_load(tmp_path: Path) -> None:
    for ending, data in whole_files(tmp_path).items():
        path = tmp_path / f"again{ending}"
        path.write_bytes(data)
        assert outcome(path) == "loaded", ending


@pytest.mark.filterwarnings("default")
def test_damaged_files_give_only_our_own_errors(tmp_path: Path) -> None:
    counts, surprises = run(240, seed=1, folder=tmp_path)
    assert not surprises, surprises[0]
    assert counts.total() == 240
    # Damage is real: most files are refused, and some survive.
    assert sum(n for (_, result), n in counts.items() if result == "refused") > 120
    assert sum(n for (_, result), n in counts.items() if result == "loaded") > 0
