from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from fivesigma.datasets import from_arrays, from_frame
from fivesigma.errors import InputError
from tests.datasets.files import frame

pa = pytest.importorskip("pyarrow")


def pandas_nullable(data: pl.DataFrame) -> Any:
    return pd.DataFrame(data.to_dict(as_series=False)).convert_dtypes()


def pandas_categories(data: pl.DataFrame) -> Any:
    return pd.DataFrame(data.to_dict(as_series=False)).astype({"Label": "category"})


def arrow(data: pl.DataFrame) -> Any:
    return pa.table(data.to_dict(as_series=False))


def arrow_dictionary(data: pl.DataFrame) -> Any:
    table = arrow(data)
    return table.set_column(4, "Label", table["Label"].dictionary_encode())


KINDS: dict[str, Callable[[pl.DataFrame], Any]] = {
    "polars": lambda data: data,
    "polars categories": lambda data: data.with_columns(pl.col("Label").cast(pl.Categorical)),
    "pandas": lambda data: pd.DataFrame(data.to_dict(as_series=False)),
    "pandas nullable": pandas_nullable,
    "pandas categories": pandas_categories,
    "pyarrow": arrow,
    "pyarrow dictionary": arrow_dictionary,
    "dict": lambda data: {s.name: s.to_numpy() for s in data},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_frame_gives_the_same_events(kind: str) -> None:
    events = from_frame(KINDS[kind](frame()), cut="mass != 91.1", features=["mass", "pt"])
    assert events.feature_names == ("mass", "pt")
    np.testing.assert_array_equal(events.X, np.array([[125.5, 30.25], [np.nan, 41.0], [124.9, 28.125]], dtype="f4"))
    assert events.weight.tolist() == [0.1, 2.5, 0.2]
    assert events.y.tolist() == ["s", "b", "s"]
    assert events.ids is not None
    assert events.ids.tolist() == [7, 8, 10]
    assert "1 of 4 events fail the cut" in events.notes[0]


@pytest.mark.parametrize("kind", ["polars", "pandas", "pandas nullable", "pyarrow"])
def test_gaps_become_missing_in_features_and_are_refused_elsewhere(kind: str) -> None:
    def holed(name: str) -> Any:
        data = frame().with_columns(pl.when(pl.col("EventId") == 9).then(None).otherwise(pl.col(name)).alias(name))
        return KINDS[kind](data)

    np.testing.assert_array_equal(np.isnan(from_frame(holed("pt")).column("pt")), [False, False, True, False])
    with pytest.raises(InputError, match="'Weight' is nan in row 3 of the"):
        from_frame(holed("Weight"))
    with pytest.raises(InputError, match="'Label' is empty in row 3 of the"):
        from_frame(holed("Label"))


def test_text_where_numbers_belong_has_a_row() -> None:
    data = {"x": ["1", "2", "two"], "Label": ["s", "b", "b"], "Weight": [1, 1, 1]}
    with pytest.raises(InputError, match="'x' should hold numbers, but row 3 of the dict has 'two'"):
        from_frame(data, features=["x"])


def test_what_is_no_frame() -> None:
    with pytest.raises(InputError, match="the list is not a frame"):
        from_frame([1, 2, 3])
    with pytest.raises(InputError, match="each once"):
        from_frame(pd.DataFrame(np.zeros((2, 2))))
    mixed = {"x": [1.0, 2.0], "Label": np.array(["s", 1], dtype=object), "Weight": [1.0, 1.0]}
    with pytest.raises(InputError, match="not a mixture"):
        from_frame(mixed)
    with pytest.raises(InputError, match=r"'x' .* does not hold one number per event"):
        from_frame(mixed | {"x": np.zeros((2, 2)), "Label": ["s", "b"]}, features=["x"])


def test_arrays_are_checked_and_left_alone() -> None:
    X = np.array([[1.0, -999.0], [2.0, 3.0]])
    weight = np.array([1, 2])
    events = from_arrays(X, [1, 0], weight, process=["a", "b"], ids=["p", "q"])
    assert X[0, 1] == -999.0
    assert np.isnan(events.X[0, 1])
    assert events.weight.dtype == np.float64
    assert events.feature_names == ("x0", "x1")
    assert events.signal == 1
    assert events.process is not None
    assert events.process.tolist() == ["a", "b"]


def test_float32_arrays_are_copied() -> None:
    X = np.ones((2, 1), dtype=np.float32)
    from_arrays(X, [1, 0]).X[0, 0] = 5.0
    assert X[0, 0] == 1.0


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"X": [1.0, 2.0], "y": [1, 0]}, "two dimensions"),
        ({"X": [[1.0], [2.0]], "y": [1, 0, 1]}, r"X has 2 events, but y has the shape \(3,\)"),
        ({"X": [[1.0], [2.0]], "y": [1, 0], "weight": [[1.0], [1.0]]}, "weight has the shape"),
        ({"X": [[1.0], [2.0]], "y": [1, 0], "feature_names": ["a", "b"]}, "X has 1 columns, but there are 2"),
        ({"X": [[1.0, 1.0]], "y": [1], "feature_names": ["a", "a"]}, "differ"),
        ({"X": [[1.0], [2.0]], "y": [1, 0], "weight": [1.0, np.nan]}, "nan in row 2"),
        ({"X": [[1.0], [2.0]], "y": [3, 4]}, "the labels 3, 4 in the arrays do not say which is signal"),
        ({"X": [[1.0], [2.0]], "y": [1, 0], "ids": [1, 1]}, "must be unique"),
        ({"X": [[1.0], [np.inf]], "y": [1, 0]}, "'x0' is infinite"),
        ({"X": np.zeros((0, 1)), "y": []}, "holds no events"),
        ({"X": np.zeros((2, 0)), "y": [1, 0]}, "no feature"),
        ({"X": [["a"], ["b"]], "y": [1, 0]}, "'x0' should hold numbers, but row 1"),
    ],
)
def test_arrays_that_do_not_fit(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        from_arrays(**arguments)


@pytest.mark.parametrize("role", ["Label", "EventId", "Process"])
@pytest.mark.parametrize("values", [[[1, 2]] * 4, [[1], [2, 3]] * 2, [{"a": 1}] * 4, [np.ones(2)] * 4, [(1, 2)] * 4])
def test_several_values_where_one_belongs(role: str, values: list[Any]) -> None:
    column = np.empty(4, dtype=object)
    column[:] = values
    table = {"x": np.arange(4.0), "Weight": np.ones(4), "Label": ["s", "b"] * 2, "EventId": np.arange(4)}
    with pytest.raises(InputError, match=f"column {role!r} .* does not hold one value per event"):
        from_frame({**table, "Process": ["p"] * 4, role: column}, process="Process")


def test_integers_of_128_bits_in_a_frame() -> None:
    wide = pl.Series([1, 2, 3, 2**100], dtype=pl.Int128)
    table = {"x": [1.0, 2.0, 3.0, 4.0], "Weight": [1.0] * 4, "Label": ["s", "b"] * 2, "y": wide}
    events = from_frame(pl.DataFrame(table), features=["x", "y"])
    np.testing.assert_array_equal(events.column("y"), np.array([1, 2, 3, 2.0**100], dtype=np.float32))
    with pytest.raises(InputError, match="text or numbers"):
        from_frame(pl.DataFrame({**table, "EventId": wide}), features=["x"])
