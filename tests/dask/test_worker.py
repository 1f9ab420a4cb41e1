"""The worker function itself, launched without Dask, and how it shares its work."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fivesigma import GrownCascadeClassifier as Ordinary
from fivesigma.dask.collections import _partition
from fivesigma.dask.estimator import _spread
from fivesigma.dask.group import Group
from fivesigma.dask.watch import Member
from fivesigma.datasets import EventStream, load_events
from fivesigma.errors import InputError
from tests.dask.files import assert_same
from tests.dask.threads import FIT


def test_any_number_of_workers_gives_the_same_trees(pattern: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.dask.threads", pattern, str(tmp_path), "1", "3", "5"]
    subprocess.run(command, check=True, timeout=300, cwd=Path(__file__).parents[2])
    single = Ordinary(memory="bins", n_jobs=1, **FIT).fit(EventStream(pattern))
    events = load_events(pattern)
    for most in (10**6, 300):
        found = [_fitted(tmp_path / f"{n}-{most}.pickle") for n in (1, 3, 5)]
        for other in found[1:]:  # the fifth worker has no events
            assert_same(found[0], other)
        margins = [np.log(p / (1 - p)) for p in (m.models_[0].signal_probability(events.X) for m in (*found, single))]
        if most == 10**6:
            assert_same(found[0], single)
        else:  # other bins than those of all events
            assert 0.98 < np.corrcoef(margins[0], margins[-1])[0, 1] < 1 - 1e-9


def _fitted(path: Path) -> Any:
    return SimpleNamespace(**pickle.loads(path.read_bytes()))


@given(st.lists(st.integers(1, 100), min_size=1, max_size=20), st.integers(1, 6))
def test_files_are_spread_evenly(sizes: list[int], n_workers: int) -> None:
    members = [Member(f"tcp://{k}", str(k), 1) for k in range(n_workers)]
    own = _spread(sizes, members)
    assert sorted(at for files in own for at in files) == list(range(len(sizes)))
    loads = [sum(sizes[at] for at in files) for files in own]
    assert max(loads) - min(loads) <= max(sizes)  # no file could move and leave them more even than that


def test_a_group_of_one_needs_nobody() -> None:
    group = Group("me")
    assert (group.rank, group.size, group.leads, group.names) == (0, 1, True, ["me"])
    np.testing.assert_array_equal(group.sum(np.arange(3)), [0.0, 1.0, 2.0])
    assert group.gather(None) == [None]
    with pytest.raises(KeyError, match="lost"):
        group.agree(lambda: dict[str, int]()["lost"])


@pytest.mark.parametrize("kind", ["U3", "complex128"])
def test_scores_that_are_no_numbers_are_refused_by_their_partition(kind: str) -> None:
    score = np.array([1, 2]).astype(kind)
    with pytest.raises(InputError, match=r"score must be one number per event, got .* in partition 7"):
        _partition(7, score, np.array([0, 1]), np.ones(2), 1)
