from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from fivesigma.datasets import from_arrays, from_frame, load_events
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
    with pytest.raises(InputError, match=r"'x' .* does not hold one value per event"):
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


def records(n: int = 200) -> Any:
    """Events as coffea has them: records, lists of records, text, and what is missing."""
    ak = pytest.importorskip("awkward")
    rng = np.random.default_rng(5)
    counts = rng.integers(0, 4, n)
    size = int(counts.sum())
    jets = ak.zip(
        {
            "pt": ak.unflatten(rng.exponential(40.0, size), counts),
            "flavour": ak.unflatten(rng.integers(0, 6, size), counts),
        }
    )
    met = ak.zip({"pt": rng.exponential(30.0, n), "phi": rng.normal(size=n)})
    return ak.Array(
        {
            "event": np.arange(n),
            "MET": met,
            "Jet": jets,
            "mass": ak.mask(rng.normal(125.0, 9.0, n), rng.random(n) < 0.9),
            "Weight": rng.random(n),
            "Label": np.where(rng.random(n) < 0.5, "s", "b"),
        }
    )


def in_parquet(data: Any, folder: Path) -> Any:
    import awkward as ak

    ak.to_parquet(data, folder / "events.parquet")
    return load_events(folder / "events.parquet", **ASKED)


def in_dask_awkward(data: Any, _: Path) -> Any:
    return from_frame(pytest.importorskip("dask_awkward").from_awkward(data, 3), **ASKED)


def in_arrow(data: Any, *, polars: bool) -> Any:
    import awkward as ak

    table = ak.to_arrow_table(data, extensionarray=False)
    return from_frame(pl.from_arrow(table) if polars else table, **ASKED)


ASKED: dict[str, Any] = {
    "features": ["MET.pt", "mass", "Jet.pt[0]", "HT = Sum$(Jet.pt)", "nb = sum(Jet.flavour == 5)"],
    "keep": ["event"],
    "cut": "MET.phi < 1.5",
}
HOLDERS: dict[str, Callable[[Any, Path], Any]] = {
    "awkward": lambda data, _: from_frame(data, **ASKED),
    "Parquet as coffea writes it": in_parquet,
    "dask-awkward": in_dask_awkward,
    "pyarrow": lambda data, _: in_arrow(data, polars=False),
    "polars": lambda data, _: in_arrow(data, polars=True),
}


@pytest.mark.parametrize("kind", HOLDERS)
def test_records_give_what_awkward_alone_gives(kind: str, tmp_path: Path) -> None:
    ak, data = pytest.importorskip("awkward"), records()
    events = HOLDERS[kind](data, tmp_path)
    kept = data[data.MET.phi < 1.5]
    wanted = [
        kept.MET.pt,
        ak.fill_none(kept.mass, np.nan),
        ak.fill_none(ak.firsts(kept.Jet.pt), np.nan),
        ak.sum(kept.Jet.pt, axis=1),
        ak.sum(kept.Jet.flavour == 5, axis=1),
    ]
    np.testing.assert_array_equal(events.X, np.stack([np.asarray(v) for v in wanted], axis=1).astype(np.float32))
    assert events.feature_names == ("MET.pt", "mass", "Jet_pt_0", "HT", "nb")
    np.testing.assert_array_equal(events.weight, np.asarray(kept.Weight))
    np.testing.assert_array_equal(events.kept["event"], np.asarray(kept.event))
    assert events.y.tolist() == kept.Label.to_list()


def test_records_without_what_is_needed() -> None:
    ak, data = pytest.importorskip("awkward"), records()
    with pytest.raises(InputError, match=r"no column 'Jet\.p' in the Array; did you mean 'Jet\.pt'"):
        from_frame(data, features=["x = sum(Jet.p)"])
    with pytest.raises(InputError, match=r"'Jet\.pt' of the Array does not hold one value per event .*'Jet\.pt\[0\]'"):
        from_frame(data, features=["Jet.pt"])
    with pytest.raises(InputError, match="the Array has no fields: give an array of records"):
        from_frame(ak.Array([1.0, 2.0]))
    with pytest.raises(InputError, match="'mass' is empty in row"):
        from_frame(data, features=["MET.pt"], keep=["event"], process="mass")


def test_columns_of_a_frame_can_stand_for_others() -> None:
    data = frame().with_columns((pl.col("pt") * 2).alias("pt_up"))
    varied = from_frame(data, features=["pt"], varied={"pt": "pt_up"}, missing=None)
    np.testing.assert_array_equal(varied.X, 2 * from_frame(data, features=["pt"], missing=None).X)
