"""Files that we wrote have a digest beside them, and damage is noticed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from benchmarks.robustness.flips import FOLDERS, FORMATS, flips

from fivesigma import ScoredEvents
from fivesigma._tools.files import digest_path, written_with_digest
from fivesigma.datasets import column_names, load_events, make_htautau, write_events
from fivesigma.datasets.write import write_trees
from fivesigma.errors import InputError
from fivesigma.higgsml import write_simulated, write_submission


@pytest.mark.parametrize("kind", [*FORMATS, *FOLDERS])
def test_no_flipped_bit_is_read_as_other_numbers(kind: str, tmp_path: Path) -> None:
    counts = flips(kind, 25, tmp_path, digest=True)
    assert counts["other numbers"] == counts["foreign error"] == 0
    assert counts["refused"] > 0


def test_the_digest_is_what_sha256sum_writes(tmp_path: Path) -> None:
    path = write_events(make_htautau(100), tmp_path / "events.csv")
    assert digest_path(path).read_text() == f"{hashlib.sha256(path.read_bytes()).hexdigest()}  events.csv\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["events.csv", "events.csv.sha256"]


def test_a_replaced_file_has_a_new_digest(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    for n in (120, 100):
        write_events(make_htautau(n), path)
        assert len(load_events(path)) == n


def test_a_changed_file_is_refused_until_its_digest_is_removed(tmp_path: Path) -> None:
    path = ScoredEvents(np.array([0.25, 0.5]), np.array([False, True]), np.ones(2)).write(tmp_path / "scores.csv")
    path.write_text(path.read_text().replace("0.25", "0.75"))
    with pytest.raises(InputError, match=r"scores\.csv differs from its digest.*remove scores\.csv\.sha256 to accept"):
        ScoredEvents.read(path)
    with pytest.raises(InputError, match="differs"):
        column_names(path)
    digest_path(path).unlink()
    assert ScoredEvents.read(path).score.tolist() == [0.75, 0.5]


@pytest.mark.parametrize("content", [b"", b"\xff\x00nonsense", b"0" * 63])
def test_a_digest_that_is_none_is_refused(content: bytes, tmp_path: Path) -> None:
    path = write_events(make_htautau(100), tmp_path / "events.csv")
    digest_path(path).write_bytes(content)
    with pytest.raises(InputError, match=r"holds no SHA-256.*remove"):
        load_events(path)


def test_patterns_leave_digests_out(tmp_path: Path) -> None:
    write_events(make_htautau(100), tmp_path / "events.csv")
    assert len(load_events(tmp_path / "events*")) == 100


def test_a_write_that_fails_leaves_the_old_file_and_its_digest(tmp_path: Path) -> None:
    path = write_events(make_htautau(100), tmp_path / "events.csv")

    def fail() -> None:
        with written_with_digest(path) as beside:
            beside.write_bytes(b"half")
            raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match=r"events\.csv cannot be written: No space left on device"):
        fail()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["events.csv", "events.csv.sha256"]
    assert len(load_events(path)) == 100


def test_a_submission_has_no_digest_and_removes_that_of_another_file(tmp_path: Path) -> None:
    path = tmp_path / "submission.csv"
    digest_path(path).write_text(f"{'0' * 64}  {path.name}\n")
    write_submission(path, np.arange(3), np.arange(3.0), cut=1.0)
    assert list(tmp_path.iterdir()) == [path]


def test_every_writer_of_events_and_scores_replaces_the_digest(tmp_path: Path) -> None:
    """Else the file that is written last would be refused, by the digest of the one that was there before."""
    writers: dict[str, Callable[[Path], Path]] = {
        "trees.root": lambda path: write_trees(path, [("events", {"x": np.arange(3.0)})]),
        "simulated.csv": lambda path: write_simulated(path, n_events=1000),
        "simulated.csv.gz": lambda path: write_simulated(path, n_events=1000),
    }
    for name, write in writers.items():
        digest_path(tmp_path / name).write_text(f"{'0' * 64}  {name}\n")
        assert column_names(write(tmp_path / name))
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:-9] + b"?" + path.read_bytes()[-8:])
        with pytest.raises(InputError, match="differs from its digest"):
            column_names(path)
