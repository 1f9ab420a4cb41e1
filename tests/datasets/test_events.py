import dataclasses

import numpy as np
import pytest

from fivesigma._types import BoolArray
from fivesigma.datasets import Events, from_arrays
from fivesigma.errors import InputError


@pytest.fixture
def events() -> Events:
    return from_arrays(
        [[1.0, 2.0], [3.0, -999.0], [5.0, 6.0], [7.0, 8.0]],
        ["b", "s", "b", "s"],
        [2.0, 0.25, 1.0, 0.5],
        feature_names=["a", "b"],
        process=["z", "ggF", "w", "VBF"],
        ids=[10, 11, 12, 13],
    )


def test_subset_keeps_weights_and_everything_else_in_step(events: Events) -> None:
    part = events[events.is_signal]
    assert len(part) == 2
    assert part.weight.tolist() == [0.25, 0.5]
    assert part.ids is not None
    assert part.ids.tolist() == [11, 13]
    assert part.process is not None
    assert part.process.tolist() == ["ggF", "VBF"]
    assert part.X[:, 0].tolist() == [3.0, 7.0]
    assert part.signal == "s"


@pytest.mark.parametrize("rows", [2, slice(2, 3), [2], np.array([False, False, True, False])])
def test_subset_by_every_kind_of_index(events: Events, rows: int | slice | list[int] | BoolArray) -> None:
    part = events[rows]
    assert part.X.tolist() == [[5.0, 6.0]]


def test_repr_is_a_table_of_yields(events: Events) -> None:
    lines = repr(events).splitlines()
    assert lines[0] == "Events: 4 rows, 2 features, signal 's'"
    table = {line.split()[0]: line.split()[1:] for line in lines[2:]}
    assert table["s"] == ["2", "0.75", f"{0.75**2 / (0.25**2 + 0.5**2):.1f}"]
    assert table["b"] == ["2", "3", "1.8"]
    assert table["ggF"] == ["1", "0.25", "1.0"]
    assert list(table) == ["s", "VBF", "ggF", "b", "w", "z"]


def test_repr_shows_notes_and_survives_no_events(events: Events) -> None:
    noted = dataclasses.replace(events, notes=("Something was left out.",))
    assert repr(noted).endswith("note: Something was left out.")
    assert "0 rows" in repr(events[:0])


def test_it_is_frozen(events: Events) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        events.weight = np.ones(4)  # type: ignore[misc]  # wrong on purpose


def test_column_by_name(events: Events) -> None:
    assert events.column("a").tolist() == [1.0, 3.0, 5.0, 7.0]
    with pytest.raises(InputError, match="no feature 'A'"):
        events.column("A")


def test_without_labels_there_is_no_signal() -> None:
    events = from_arrays([[1.0], [2.0]], None)
    assert not events.labelled
    assert events.weight.tolist() == [1.0, 1.0]
    assert "no labels" in repr(events)
    with pytest.raises(InputError, match="no labels"):
        _ = events.is_signal
