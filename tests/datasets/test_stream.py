"""Streams of events: chunks that together are what `load_events` reads, and what is noticed on the way."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fivesigma.datasets import Events, EventStream, load_events, make_htautau, write_events
from fivesigma.datasets.digest import events_digest
from fivesigma.datasets.stream import Chunk, held_out_rows
from fivesigma.errors import InputError
from fivesigma.estimators.training_sample import read_stream

pl = pytest.importorskip("polars")
pytest.importorskip("uproot")


def _files(folder: Path, ending: str = ".parquet", n: int = 1_000) -> str:
    for k in range(3):
        write_events(make_htautau(n, random_state=k), folder / f"part-{k}{ending}")
    return str(folder / f"part-*{ending}")


def _joined(chunks: list[Chunk]) -> dict[str, np.ndarray]:
    names = ("X", "y", "weight", "process", "ids")
    columns = {name: [getattr(chunk.events, name) for chunk in chunks] for name in names}
    return {name: np.concatenate(parts) for name, parts in columns.items() if parts[0] is not None}


@pytest.mark.parametrize("ending", [".parquet", ".root", ".csv"])
@pytest.mark.parametrize("cut", [None, "PRI_jet_num >= 1"])
def test_chunks_are_the_events_of_load_events(tmp_path: Path, ending: str, cut: str | None) -> None:
    path = _files(tmp_path, ending)
    options: dict[str, Any] = {
        "features": ["PRI_*", "ratio = DER_pt_h / (1 + DER_mass_vis)"],
        "weight": "Weight * 2",
        "process": "Process",
        "cut": cut,
    }
    events = load_events(path, **options)
    stream = EventStream(path, rows=300, **options)
    chunks = list(stream)
    assert len(chunks) == (3 if ending == ".csv" else 12)
    for name, values in _joined(chunks).items():
        np.testing.assert_array_equal(values, getattr(events, name), err_msg=name)
    assert stream.feature_names == events.feature_names
    assert stream.columns == events.columns
    assert stream.signal == events.signal == chunks[-1].events.signal
    assert stream.notes == events.notes
    np.testing.assert_array_equal(np.concatenate(list(stream.tables())), events.X)
    described = list(stream.described())
    np.testing.assert_array_equal(np.concatenate([c.events.weight for c in described]), events.weight)
    assert [c.file for c in chunks] == sorted(c.file for c in chunks)
    if cut is None:
        rows = np.concatenate([c.rows for c in chunks if c.file == 1])
        np.testing.assert_array_equal(rows, np.arange(1_000))


def test_processes_of_files(tmp_path: Path) -> None:
    events = make_htautau(2_000, random_state=0)
    for name, members in (("H", events.is_signal), ("Z", ~events.is_signal)):
        write_events(events[members], tmp_path / f"{name}.parquet")
    options: dict[str, Any] = {
        "signal": ["H"],
        "luminosity": 2.0,
        "cross_section": {"H": None, "Z": 3.0},
        "sum_of_weights": {"Z": 100.0},
        "features": "PRI_*",
    }
    paths = {name: tmp_path / f"{name}.parquet" for name in ("H", "Z")}
    loaded, stream = load_events(paths, **options), EventStream(paths, rows=250, **options)
    for name, values in _joined(list(stream)).items():
        np.testing.assert_array_equal(values, getattr(loaded, name), err_msg=name)
    assert stream.classes == ("background", "signal")


def test_a_chunk_without_signal_is_as_good_as_any(tmp_path: Path) -> None:
    events = make_htautau(2_000, random_state=0)
    ordered = Events.concatenate([events[~events.is_signal], events[events.is_signal]])
    path = write_events(ordered, tmp_path / "ordered.parquet")
    stream = EventStream(path, rows=100)
    kinds = {tuple(np.unique(chunk.events.y)) for chunk in stream}
    assert ("b",) in kinds
    assert stream.classes == ("b", "s")
    sample, _ = read_stream(stream, 0.25, 0, pos_label=None, negative="error")
    np.testing.assert_array_equal(sample.signal, ordered.is_signal)
    list(sample.X.chunks())
    assert sample.X.digest(sample) == events_digest(load_events(path))


def test_the_split_is_a_hash_of_seed_file_and_row(tmp_path: Path) -> None:
    rows = np.arange(200_000)
    held = held_out_rows(3, 1, rows, 0.25)
    assert abs(held.mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / rows.size)
    for other in (held_out_rows(4, 1, rows, 0.25), held_out_rows(3, 2, rows, 0.25)):
        assert abs((held & other).mean() - 0.25**2) < 5 * np.sqrt(0.25**2 / rows.size)
    np.testing.assert_array_equal(held[500:900], held_out_rows(3, 1, rows[500:900], 0.25))  # wherever chunks begin
    assert (held <= held_out_rows(3, 1, rows, 0.5)).all()
    path = _files(tmp_path)
    splits = [
        read_stream(EventStream(path, rows=n, cut=cut), 0.25, 7, pos_label=None, negative="error")[1][0][1]
        for n, cut in ((100, None), (10_000, None), (333, "Weight > 0"))
    ]
    np.testing.assert_array_equal(splits[0], splits[1])
    np.testing.assert_array_equal(splits[0], splits[2])


def test_a_file_that_changes_between_passes(tmp_path: Path) -> None:
    path = _files(tmp_path)
    stream = EventStream(path)
    list(stream)
    (tmp_path / "part-1.parquet.sha256").unlink()
    write_events(make_htautau(1_000, random_state=9), tmp_path / "part-1.parquet")
    with pytest.raises(InputError, match=r"part-1\.parquet has changed since the first pass over it; every pass needs"):
        list(stream.tables())
    (tmp_path / "part-2.parquet").unlink()
    stream = EventStream(tmp_path / "part-0.parquet")
    (tmp_path / "part-0.parquet").unlink()
    with pytest.raises(InputError, match=r"part-0\.parquet cannot be read: No such file or directory"):
        list(stream)


def test_a_column_that_one_file_lacks(tmp_path: Path) -> None:
    path = _files(tmp_path)
    frame = pl.read_parquet(tmp_path / "part-2.parquet").drop("DER_mass_vis")
    (tmp_path / "part-2.parquet.sha256").unlink()
    frame.write_parquet(tmp_path / "part-2.parquet")
    with pytest.raises(InputError, match=r"no column 'DER_mass_vis' in part-2\.parquet"):
        EventStream(path)


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        ({"Label": ["s"] * 4}, {}, "column 'Label' of x.parquet must hold two labels; it holds 's'"),
        (
            {"Label": list("sbcb")},
            {},
            "of x.parquet must hold two labels; it holds 'b' (2), 'c' (1), 's' (1)",
        ),
        ({"Label": list("xyxy")}, {}, "do not say which is signal; name it with signal="),
        ({"Weight": [1.0, np.nan, 1.0, 1.0]}, {}, "every event needs a finite weight, but 'Weight' is nan in row 2 of"),
        ({}, {"cut": "x > 9", "features": "x"}, "none of 4 events passes the cut 'x > 9'"),
        ({}, {"label": None}, "the events of the stream have no labels; name their column with label="),
        ({}, {"rows": 0}, "rows must be an integer of at least 1, got 0"),
    ],
)
def test_streams_that_cannot_be_used(
    tmp_path: Path, columns: dict[str, Any], options: dict[str, Any], sentence: str
) -> None:
    usual = {"x": [1.0, 2.0, 3.0, 4.0], "Label": list("sbsb"), "Weight": [1.0] * 4}
    pl.DataFrame(usual | columns).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(InputError, match=re.escape(sentence)):
        read_stream(
            EventStream(tmp_path / "x.parquet", **({"rows": 2} | options)), 0.5, 0, pos_label=None, negative="error"
        )


def test_identifiers_are_unique_in_each_file(tmp_path: Path) -> None:
    frame = pl.DataFrame({"EventId": [3, 2, 1, 4, 3, 9], "x": [0.0] * 6, "Label": list("sbsbsb"), "Weight": [1.0] * 6})
    frame.write_parquet(tmp_path / "x.parquet")
    with pytest.raises(InputError, match=r"identifiers in 'EventId' must be unique, but 3 is in row 1 of x"):
        list(EventStream(tmp_path / "x.parquet", rows=2))
    frame.filter(pl.col("EventId").is_first_distinct()).write_parquet(tmp_path / "y.parquet")
    assert len(list(EventStream(tmp_path / "y.parquet", rows=2))) == 3
