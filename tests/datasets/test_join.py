"""Events of several sources as one."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fivesigma.datasets import Events, from_arrays, make_htautau
from fivesigma.datasets.columns import Columns
from fivesigma.errors import InputError


def some_events(start: int = 0, n: int = 4, **changes: Any) -> Events:
    options: dict[str, Any] = {
        "feature_names": ["a", "b"],
        "process": ["z"] * n,
        "ids": np.arange(start, start + n),
        "keep": {"number": np.arange(start, start + n)},
    }
    X = np.stack([np.arange(n) + start, np.arange(n) + 0.5 + start], axis=1)
    return from_arrays(X, ["s", "b"] * (n // 2), np.ones(n), **(options | changes))


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_what_was_taken_apart_is_joined_again(sizes: list[int]) -> None:
    ends = np.cumsum([0, *sizes])
    whole = some_events(n=int(ends[-1]) * 2)
    parts = [whole[2 * i : 2 * j] for i, j in pairwise(ends)]
    for again in (Events.concatenate(parts), Events.concatenate(iter(parts))):
        for name in ("X", "y", "weight", "process", "ids"):
            np.testing.assert_array_equal(getattr(again, name), getattr(whole, name))
        np.testing.assert_array_equal(again.kept["number"], whole.kept["number"])
        assert again.notes == whole.notes


def test_adding_is_joining_two() -> None:
    first, second = some_events(), some_events(4)
    both = first + second
    assert both.X[:, 0].tolist() == list(range(8))
    assert both.weight.sum() == 8
    with pytest.raises(TypeError):
        first + 3


def test_columns_come_in_the_order_of_the_first() -> None:
    turned = from_arrays([[10.0, 20.0], [30.0, 40.0]], ["s", "b"], feature_names=["b", "a"])
    both = some_events(process=None, ids=None, keep=None) + turned
    assert both.feature_names == ("a", "b")
    assert both.X[-2:].tolist() == [[20.0, 10.0], [40.0, 30.0]]


def test_signal_and_background_apart() -> None:
    events = make_htautau(200, random_state=0)
    both = events[events.is_signal] + events[~events.is_signal]
    assert both.weight.sum() == pytest.approx(events.weight.sum())
    assert both.is_signal.sum() == events.is_signal.sum()


def test_what_not_all_have_is_dropped_and_said() -> None:
    both = some_events() + some_events(4, process=None, keep={"other": np.zeros(4)})
    assert both.process is None
    assert both.ids is not None
    assert dict(both.kept) == {}
    assert both.notes == (
        "The column process is dropped, because not all of the joined events have it.",
        "The kept column number is dropped, because not all of the joined events have it.",
        "The kept column other is dropped, because not all of the joined events have it.",
    )
    again = some_events() + some_events()
    assert again.ids is None
    assert again.notes == ("The identifiers are dropped, because they are not unique in the joined events.",)


def test_how_events_were_read_is_known_only_if_all_were_read_alike() -> None:
    alike, unlike = Columns(features=("a", "b"), cut="a > 1"), Columns(features=("a", "b"), cut="a > 2")
    first, second = replace(some_events(), columns=alike), some_events(4)
    assert (first + replace(second, columns=alike)).columns == alike
    assert (first + replace(second, columns=unlike)).columns is None
    assert (first + second).columns is None


def test_notes_are_joined_each_once() -> None:
    parts = [replace(some_events(4 * i), notes=notes) for i, notes in enumerate([("One.",), ("Two.", "One.")])]
    assert Events.concatenate(parts).notes == ("One.", "Two.")


def test_integers_stay_integers() -> None:
    numbers = np.array([2**63 + 1, 2**63 + 2, 7, 8], dtype=np.uint64)
    signed = np.array([1, 2, 3, 2**53 + 1], dtype=np.int64)
    both = some_events(keep={"number": numbers}) + some_events(4, keep={"number": signed})
    assert both.kept["number"].tolist() == [*numbers.tolist(), *signed.tolist()]
    small = some_events(keep={"number": signed.astype(np.uint64)}) + some_events(4, keep={"number": -signed})
    assert small.kept["number"].tolist() == [*signed.tolist(), *(-signed).tolist()]
    assert small.kept["number"].dtype == np.int64
    with pytest.raises(
        InputError, match=r"column 'number' holds integers above 2\^53 in one place and floats in another"
    ):
        some_events(keep={"number": signed}) + some_events(4, keep={"number": np.zeros(4)})
    with pytest.raises(InputError, match="column 'number' holds integers below 0 and above 2"):
        some_events(keep={"number": numbers}) + some_events(4, keep={"number": -signed})


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (some_events(feature_names=["a", "c"]), "part 2 and the first have other features: .* has 'b', 'c'"),
        (some_events(signal="b"), "part 2 has the signal label 'b', but the first has 's'"),
        (from_arrays([[1.0, 2.0]], None, feature_names=["a", "b"]), "part 2 has no labels, unlike the first"),
        (
            from_arrays([[1.0, 2.0], [1.0, 2.0]], ["s", "bkg"], feature_names=["a", "b"], signal="s"),
            "background labels 'b', 'bkg'; one is needed",
        ),
        (some_events(keep={"number": list("wxyz")}), "'number' holds text in part 2 and numbers in part 1"),
        (3, "part 2 must be Events, got int"),
    ],
)
def test_what_cannot_be_joined(other: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        Events.concatenate([some_events(), other])


def test_nothing_cannot_be_joined() -> None:
    with pytest.raises(InputError, match="there are no events to join"):
        Events.concatenate([])


class TestTable:
    def test_columns_in_the_order_asked_for(self) -> None:
        events = some_events()
        assert events.table() is events.X
        assert events.table(["a", "b"]) is events.X
        np.testing.assert_array_equal(events.table(np.array(["b", "a"])), events.X[:, ::-1])
        assert events.table(["b"]).dtype == np.float32

    def test_an_absent_one_is_named(self) -> None:
        with pytest.raises(InputError, match="no feature 'mass' among the 2 of these events; there are 'a', 'b'"):
            some_events().table(["a", "mass"])
