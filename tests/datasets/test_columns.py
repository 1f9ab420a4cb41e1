"""Kept columns in their own type, and the record of how events were read."""

import pickle
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.typing import NDArray

from fivesigma.datasets import Events, from_arrays, from_frame, load_events, write_events
from fivesigma.datasets.columns import Columns
from fivesigma.errors import InputError
from tests.datasets.files import write

pa = pytest.importorskip("pyarrow")
FORMATS = pytest.mark.parametrize("ending", ["csv", "parquet", "root"])
# Neighbours that are one number as floats.
BIG = np.array([2**53 + 1, 2**53, -(2**62) - 1, 5], dtype=np.int64)
HUGE = np.array([2**63 + 1, 2**63, 2**64 - 1, 5], dtype=np.uint64)


def data(**more: Any) -> dict[str, Any]:
    return {
        "x": [1.0, 2.0, 3.0, 4.0],
        "eventNumber": BIG,
        "runNumber": HUGE,
        "Weight": [1.0, 1.0, 1.0, 1.0],
        "Label": ["s", "b", "b", "s"],
    } | more


@FORMATS
def test_integers_are_kept_exactly(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"a.{ending}", data())
    events = load_events(path, keep=["eventNumber", "runNumber"])
    assert events.feature_names == ("x",)
    assert events.kept["eventNumber"].dtype == np.int64
    assert events.kept["runNumber"].dtype == np.uint64
    assert events.kept["eventNumber"].tolist() == BIG.tolist()
    assert events.kept["runNumber"].tolist() == HUGE.tolist()
    assert events.folds(7, by="runNumber").tolist() == [n % 7 for n in HUGE.tolist()]
    assert "kept: eventNumber, runNumber" in repr(events)
    cut = load_events(path, keep="*Number", cut="eventNumber < 0 || x == 1", features="x")
    assert cut.kept["runNumber"].tolist() == HUGE[[0, 2]].tolist()


@FORMATS
def test_kept_columns_are_written_and_read_back(tmp_path: Path, ending: str) -> None:
    kept: dict[str, NDArray[Any]] = {
        "eventNumber": BIG,
        "runNumber": HUGE,
        "channel": np.array(["ee", "em", "mm", "ee"]),
        "phi": np.array([0.1, np.pi, -1.0, np.nan]),
        "flag": np.array([True, False, True, True]),
    }
    events = from_arrays([[1.0], [2.0], [3.0], [4.0]], ["s", "b", "b", "s"], keep=kept)
    again = load_events(write_events(events, tmp_path / f"a.{ending}"), keep=list(kept))
    assert again.feature_names == events.feature_names
    for name, values in kept.items():
        assert again.kept[name].dtype == values.dtype
        np.testing.assert_array_equal(again.kept[name], values)


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame(data()),
        pd.DataFrame(data()),
        pd.DataFrame(data()).convert_dtypes(),
        pa.table(data()),
        data(),
    ],
    ids=["polars", "pandas", "pandas nullable", "pyarrow", "dict"],
)
def test_frames_keep_integers_too(frame: Any) -> None:
    events = from_frame(frame, keep=["eventNumber", "runNumber"])
    assert events.kept["eventNumber"].tolist() == BIG.tolist()
    assert events.kept["runNumber"].tolist() == HUGE.tolist()
    assert events.kept["eventNumber"].dtype == np.int64


@pytest.mark.parametrize("library", ["polars", "pandas", "pyarrow", "csv", "parquet"])
def test_an_integer_that_is_missing_is_refused(tmp_path: Path, library: str) -> None:
    holed = pl.DataFrame(data()).drop("runNumber").with_columns(n=pl.Series([1, 2, None, 4]))

    def read() -> Events:
        if library in ("csv", "parquet"):
            return load_events(write(tmp_path / f"a.{library}", dict(holed.to_dict())), keep="n")
        if library == "pandas":
            return from_frame(pd.DataFrame(data()).assign(n=pd.array([1, 2, None, 4], dtype="Int64")), keep="n")
        return from_frame(holed if library == "polars" else pa.table(holed.to_dict(as_series=False)), keep="n")

    with pytest.raises(InputError, match=r"column 'n' is empty in row 3 of .*; every event needs a value there$"):
        read()


def test_files_with_different_integers_are_joined_exactly(tmp_path: Path) -> None:
    write(tmp_path / "1.parquet", data(eventNumber=HUGE))
    write(tmp_path / "2.parquet", data(eventNumber=np.abs(BIG)))
    events = load_events(f"{tmp_path}/*.parquet", keep="eventNumber")
    assert events.kept["eventNumber"].tolist() == [*HUGE.tolist(), *np.abs(BIG).tolist()]


def test_identifiers_above_any_integer_stay_apart(tmp_path: Path) -> None:
    ids = [str(10**25 + i) for i in range(4)]
    text = load_events(write(tmp_path / "a.csv", data(EventId=ids)))
    assert text.ids is not None
    assert text.ids.tolist() == ids
    wide = pl.DataFrame(data()).with_columns(EventId=pl.Series([2**63 + i for i in range(4)], dtype=pl.Int128))
    wide.write_parquet(tmp_path / "a.parquet")
    events = load_events(tmp_path / "a.parquet")
    assert events.ids is not None
    assert events.ids.tolist() == [2**63 + i for i in range(4)]


def test_a_kept_column_may_be_a_feature_if_it_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", data(n=[1, -999, 3, 4]))
    events = load_events(path, features=["x", "n"], keep=["n", "Weight", "Label"])
    np.testing.assert_array_equal(events.column("n"), np.array([1, np.nan, 3, 4], dtype="f4"))
    assert events.kept["n"].tolist() == [1, -999, 3, 4]
    again = load_events(write_events(events, tmp_path / "b.csv"), features=["x", "n"], keep="n")
    assert again.X.tobytes() == events.X.tobytes()
    with pytest.raises(InputError, match="kept column 'Weight' holds other values than the file's own"):
        write_events(events.scaled_to(s=3.0), tmp_path / "c.csv")
    assert not (tmp_path / "c.csv").exists()


def test_what_cannot_be_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", data(jets=[[1], [2], [], [3]], channel=list("abcd")))
    for keep, why in (
        ("eventNo", "no column 'eventNo' in a.parquet; did you mean 'eventNumber'"),
        ("evt*", "no column of a.parquet matches 'evt\\*'"),
        ("jets", "column 'jets' of a.parquet does not hold one value per event"),
    ):
        with pytest.raises(InputError, match=why):
            load_events(path, keep=keep)
    with pytest.raises(InputError, match=r"'channel' of a\.parquet holds text and cannot be a feature; only keep it"):
        load_events(path, features=["x", "channel"], keep="channel")
    with pytest.raises(InputError, match="'x0' is a feature already"):
        from_arrays([[1.0], [2.0]], [1, 0], keep={"x0": [1, 2]})
    with pytest.raises(InputError, match=r"X has 2 events, but number has the shape \(3,\)"):
        from_arrays([[1.0], [2.0]], [1, 0], keep={"number": [1, 2, 3]})


def test_arrays_called_like_a_role() -> None:
    events = from_arrays(
        [[1.0, 2.0], [3.0, 4.0]], [1, 0], [0.5, 2.0], feature_names=["weight", "y"], keep={"ids": [7, 8]}, ids=[1, 2]
    )
    assert events.column("weight").tolist() == [1.0, 3.0]
    assert events.weight.tolist() == [0.5, 2.0]
    assert events.kept["ids"].tolist() == [7, 8]
    assert events.ids is not None
    assert events.ids.tolist() == [1, 2]


class TestRecord:
    def test_events_say_how_they_were_read(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.csv", data(EventId=[1, 2, 3, 4], mass=[1.0] * 4))
        events = load_events(path, features="*", keep="runNumber", missing=None, cut="x > 1")
        assert events.columns == Columns(
            features=("x", "eventNumber", "runNumber", "mass"),
            ids="EventId",
            keep=("runNumber",),
            missing=None,
            cut="x > 1",
        )
        assert events[:1].columns == events.columns
        assert (events[:1] + events[1:]).columns == events.columns
        assert from_arrays([[1.0]], None).columns is None

    def test_the_record_reads_the_same_events_again(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.csv", data())
        first = load_events(path, keep="*Number")
        assert first.columns is not None
        settings = {each.name: getattr(first.columns, each.name) for each in fields(Columns) if each.init}
        again = load_events(path, **settings)
        assert again.columns == first.columns
        assert again.feature_names == first.feature_names

    def test_events_read_in_two_ways_have_no_record(self) -> None:
        events = from_frame(data(), keep="*Number")
        other = replace(events, columns=Columns(features=("x",), cut="x > 0"))
        assert (events + other).columns is None

    def test_events_can_be_pickled(self) -> None:
        events: Events = pickle.loads(pickle.dumps(from_frame(data(), keep="*Number")))
        assert events.kept["runNumber"].tolist() == HUGE.tolist()
        assert events.columns is not None
        assert events.columns.keep == ("eventNumber", "runNumber")


def test_a_condition_can_be_the_label(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id,x,Weight\n3,1,2\n5,2,3\n0,3,4\n")
    events = load_events(path, label="id > 2")
    assert events.y.tolist() == [True, True, False]
    assert events.signal is True
    assert events.feature_names == ("x",)  # what the label is made of is no feature
    assert events.is_signal.tolist() == load_events(path, label="id<=2", signal=False).is_signal.tolist()
    with pytest.raises(InputError, match=r"no column 'ix > 2' in x\.csv"):
        load_events(path, label="ix > 2")
    with pytest.raises(InputError, match="must hold two labels; it holds True"):
        load_events(path, label="id > -1")
