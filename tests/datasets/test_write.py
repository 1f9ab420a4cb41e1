from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fivesigma.datasets import Events, column_names, from_arrays, load_events, write_events
from fivesigma.errors import InputError

FORMATS = ["csv", "parquet", "root"]


def awkward_events(**changes: Any) -> Events:
    """Numbers that a careless writer would change."""
    X = np.array([[0.1, np.pi], [np.nan, 1e-30], [3.4e38, -0.0], [1 / 3, 16_777_217]], dtype="f4")
    options: dict[str, Any] = {
        "feature_names": ["a", "b c"],
        "process": ["gg,F", 'quo"te', "z", "z"],
        "ids": [4, 3, 2**40, 1],
    }
    return from_arrays(X, ["s", "b", "b", "s"], [0.1, 1 / 3, 1e-17, -2.5], **(options | changes))


@pytest.mark.parametrize("ending", FORMATS)
def test_round_trip_is_exact(tmp_path: Path, ending: str) -> None:
    events = awkward_events()
    path = write_events(events, tmp_path / f"e.{ending}")
    assert column_names(path) == ("EventId", "a", "b c", "Weight", "Label", "Process")
    again = load_events(path, process="Process")
    assert again.X.tobytes() == events.X.tobytes()
    assert again.weight.tobytes() == events.weight.tobytes()
    assert again.feature_names == events.feature_names
    assert again.signal == "s"
    for one, other in ((again.y, events.y), (again.process, events.process), (again.ids, events.ids)):
        assert one is not None
        assert other is not None
        assert one.tolist() == other.tolist()


@settings(deadline=None)  # the first read starts polars' threads
@given(
    X=arrays(np.float32, (5, 2), elements=st.floats(width=32, allow_infinity=False, allow_nan=False)),
    weight=arrays(np.float64, 5, elements=st.floats(allow_infinity=False, allow_nan=False)),
)
def test_csv_keeps_every_bit(tmp_path_factory: pytest.TempPathFactory, X: Any, weight: Any) -> None:
    events = from_arrays(X, [1, 0, 0, 1, 1], weight, missing=None)
    path = write_events(events, tmp_path_factory.mktemp("csv") / "e.csv", missing=None)
    again = load_events(path, missing=None)
    assert again.X.tobytes() == events.X.tobytes()
    assert again.weight.tobytes() == events.weight.tobytes()


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("labels", [[1, 0], [True, False], [1.0, -1.0]])
def test_number_labels_come_back_as_they_were(tmp_path: Path, ending: str, labels: list[Any]) -> None:
    events = from_arrays([[1.0], [2.0]], labels)
    again = load_events(write_events(events, tmp_path / f"e.{ending}"))
    assert again.y.tolist() == labels
    assert again.signal == labels[0]


def test_the_missing_code_is_in_the_file_or_nan_is(tmp_path: Path) -> None:
    events = awkward_events()
    coded = write_events(events, tmp_path / "e.csv").read_text()
    plain = write_events(events, tmp_path / "e.csv", missing=None).read_text()
    assert "-999.0" in coded
    assert "-999" not in plain
    assert "NaN" in plain


def test_events_without_labels_or_ids(tmp_path: Path) -> None:
    path = write_events(from_arrays([[1.0]], None), tmp_path / "e.parquet")
    assert column_names(path) == ("x0", "Weight")
    assert not load_events(path, label=None).labelled


def test_refused_targets(tmp_path: Path) -> None:
    events = awkward_events()
    with pytest.raises(InputError, match=r"e\.txt ends in none of \.csv, \.parquet, \.root"):
        write_events(events, tmp_path / "e.txt")
    with pytest.raises(InputError, match="there is no folder"):
        write_events(events, tmp_path / "no" / "e.csv")
    with pytest.raises(InputError, match="a feature is called 'Weight'"):
        write_events(awkward_events(feature_names=["a", "Weight"]), tmp_path / "e.csv")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import polars as pl

    path = write_events(awkward_events(), tmp_path / "e.csv")
    before = path.read_bytes()

    def fail(self: Any, target: Path) -> None:
        target.write_text("half")
        raise OSError("disk full")

    monkeypatch.setattr(pl.DataFrame, "write_csv", fail)
    with pytest.raises(InputError, match=r"e\.csv cannot be written: disk full$"):
        write_events(awkward_events(), path)
    assert path.read_bytes() == before
    assert sorted(item.name for item in tmp_path.iterdir()) == ["e.csv", "e.csv.sha256"]
