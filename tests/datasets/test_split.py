"""Parts and folds of events: nothing is lost, yields stay, and a seed or an event number decides."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fivesigma._types import BoolArray
from fivesigma.datasets import Events, from_arrays, make_htautau
from fivesigma.datasets.folds import hash_rows
from fivesigma.errors import InputError


@st.composite
def samples(draw: st.DrawFn) -> Events:
    """Events of both classes with processes, some of them rare, and weights of very different size."""
    n = draw(st.integers(8, 120))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    y = rng.random(n) < draw(st.floats(0.1, 0.9))
    y[:4] = [True, True, False, False]
    process = np.where(y, "s", "b").astype("U3")
    for name, share in (("1", 0.05), ("2", 0.4)):
        chosen = rng.random(n) < share
        process[chosen] = np.char.add(process[chosen], name)
    weight = rng.lognormal(0.0, 2.0, n)
    return from_arrays(
        np.arange(n)[:, None],
        y,
        weight,
        process=process if draw(st.booleans()) else None,
        ids=np.arange(n) + 1000,
        keep={"eventNumber": rng.integers(-(2**40), 2**62, n)},
    )


def rows(events: Events) -> Any:
    return events.X[:, 0].astype(int).tolist()


def class_yields(events: Events) -> tuple[float, float]:
    return float(events.weight[events.is_signal].sum()), float(events.weight[~events.is_signal].sum())


class TestSplit:
    @given(samples(), st.floats(0.1, 0.9), st.integers(0, 2**31))
    def test_parts_are_a_partition_and_stand_for_the_whole(self, events: Events, share: float, seed: int) -> None:
        try:
            rest, part = events.split(share, random_state=seed)
        except InputError:
            smallest = min(events.is_signal.sum(), (~events.is_signal).sum())
            assert round(share * smallest) in (0, smallest)
            assume(False)
        assert sorted(rows(rest) + rows(part)) == list(range(len(events)))
        for each in (rest, part):
            assert rows(each) == sorted(rows(each)), "ascending"
            assert class_yields(each) == pytest.approx(class_yields(events), rel=1e-12)
            assert each.ids is not None
            assert each.ids.tolist() == [row + 1000 for row in rows(each)]
            np.testing.assert_array_equal(each.kept["eventNumber"], events.kept["eventNumber"][rows(each)])
        for members in (events.is_signal, ~events.is_signal):
            n_part = int(members[rows(part)].sum())
            assert n_part == int(np.floor(share * members.sum() + 0.5))
            if events.process is not None:
                for name in np.unique(events.process[members]):
                    of_it = members & (events.process == name)
                    expected = of_it.sum() * n_part / members.sum()
                    assert abs(int(of_it[rows(part)].sum()) - expected) < 1, "stratified by process"

    @given(samples(), st.integers(0, 2**31))
    def test_a_seed_decides_and_scaling_does_not_choose(self, events: Events, seed: int) -> None:
        first, again = events.split(0.5, random_state=seed), events.split(0.5, random_state=seed, scale=False)
        for one, other in zip(first, again, strict=True):
            assert rows(one) == rows(other)
            np.testing.assert_array_equal(other.weight, events.weight[rows(other)])
            ratio = one.weight / other.weight
            for members in (one.is_signal, ~one.is_signal):
                np.testing.assert_allclose(ratio[members], ratio[members][0], rtol=1e-12)

    def test_another_seed_gives_another_part(self) -> None:
        events = make_htautau(200, random_state=0)
        one, other, unseeded = (events.split(0.5, random_state=seed)[1] for seed in (0, 1, None))
        assert one.ids is not None
        assert other.ids is not None
        assert one.ids.tolist() != other.ids.tolist()
        assert len(unseeded) == 100

    def test_a_rare_process_is_not_always_in_the_same_part(self) -> None:
        events = from_arrays(np.zeros((41, 1)), [1] * 20 + [0] * 21, process=["s"] * 20 + ["b"] * 20 + ["rare"])
        counts = [int(np.sum(events.split(0.5, random_state=i)[1].process == "rare")) for i in range(40)]
        assert 8 <= sum(counts) <= 32

    def test_every_event_is_drawn_equally_often(self) -> None:
        events = from_arrays(np.arange(30)[:, None], [1] * 10 + [0] * 20, process=["s"] * 10 + ["a"] * 15 + ["b"] * 5)
        drawn = np.zeros(30)
        for seed in range(600):
            drawn[rows(events.split(0.3, random_state=seed)[1])] += 1
        # Standard deviation 11 around 180; a process that is favoured would be far outside.
        assert (np.abs(drawn - 180) < 50).all()

    def test_neighbours_are_drawn_independently(self) -> None:
        events = from_arrays(np.arange(2000)[:, None], [1] * 1000 + [0] * 1000)
        part = np.zeros(2000, dtype=bool)
        part[rows(events.split(0.5, random_state=0)[1])] = True
        assert 400 < np.sum(part[1:] & part[:-1]) < 600, "every second event would be none, one block would be all"

    def test_events_without_labels_are_scaled_in_total(self) -> None:
        events = from_arrays(np.arange(10)[:, None], None, np.arange(1, 11))
        for part in events.split(0.3, random_state=0):
            assert part.weight.sum() == pytest.approx(55)

    def test_events_of_one_class_can_be_split(self) -> None:
        events = make_htautau(200, random_state=0)
        signal = events[events.is_signal]
        rest, part = signal.split(0.25, random_state=0)
        assert part.weight.sum() == pytest.approx(signal.weight.sum())
        assert rest.weight.sum() == pytest.approx(signal.weight.sum())

    def test_negative_weights_keep_their_sign(self) -> None:
        events = from_arrays(np.zeros((8, 1)), [1] * 4 + [0] * 4, [1, 1, 1, -0.5] * 2)
        rest, part = events.split(0.5, random_state=0)
        assert class_yields(rest) == pytest.approx((2.5, 2.5))
        assert (np.sort(np.concatenate([rest.weight, part.weight])) < 0).sum() == 2

    @pytest.mark.parametrize("fraction", [0, 1, -0.5, 1.5, np.nan, None, "half", [0.5]])
    def test_fractions_that_are_none(self, fraction: Any) -> None:
        with pytest.raises(InputError, match="fraction must be a number between 0 and 1, got"):
            make_htautau(100).split(fraction)

    def test_what_else_is_refused(self) -> None:
        events = from_arrays(np.zeros((10, 1)), [1, 1] + [0] * 8, [1, -3] + [1] * 8)
        with pytest.raises(
            InputError, match=r"a fraction of 0\.1 leaves one part without signal, of which there are 2"
        ):
            events.split(0.1)
        with pytest.raises(InputError, match=r"the weights of the signal sum to -\d"):
            events.split(0.5, random_state=0)
        assert len(events.split(0.5, random_state=0, scale=False)[0]) == 5
        with pytest.raises(InputError, match="random_state must be an integer of at least 0 or None, got -1"):
            events.split(0.5, random_state=-1)


class TestFolds:
    @given(samples(), st.integers(2, 9), st.integers(0, 2**31))
    def test_folds_by_number_do_not_depend_on_the_order(self, events: Events, k: int, seed: int) -> None:
        order = np.random.default_rng(seed).permutation(len(events))
        folds = events.folds(k, by="eventNumber")
        np.testing.assert_array_equal(events[order].folds(k, by="eventNumber"), folds[order])
        assert folds.tolist() == [int(number) % k for number in events.kept["eventNumber"]]
        np.testing.assert_array_equal(events.folds(k, by=events.kept["eventNumber"]), folds)

    @pytest.mark.parametrize(
        ("numbers", "k"),
        [
            (np.array([-7, -1, 0, 127], dtype=np.int8), 200),
            (np.array([0, 2**64 - 1, 2**63, 2**53 + 1], dtype=np.uint64), 7),
            (np.array([-(2**63), 2**63 - 1, -1, 5], dtype=np.int64), 3),
        ],
    )
    def test_every_integer_type_is_exact(self, numbers: NDArray[Any], k: int) -> None:
        events = from_arrays(np.zeros((4, 1)), [1, 0, 1, 0], keep={"n": numbers})
        assert events.folds(k, by="n").tolist() == [number % k for number in numbers.tolist()]

    def test_the_hash_is_splitmix64(self) -> None:
        # The published outputs of the generator for the seed 0.
        assert hash_rows(np.arange(3)).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]

    def test_row_numbers_are_well_mixed(self) -> None:
        events = from_arrays(np.zeros((60_000, 1)), np.arange(60_000) % 2)
        folds = events.folds(5)
        np.testing.assert_array_equal(folds, events.folds(5))
        assert folds.dtype.kind == "i"
        counts = np.bincount(folds, minlength=5)
        assert np.square(counts - 12_000).sum() / 12_000 < 25, "chi-squared of 4 degrees of freedom"
        pairs = np.bincount(5 * folds[:-1] + folds[1:], minlength=25)
        assert np.square(pairs - 2_400).sum() / 2_400 < 60, "neighbours are independent"

    def test_what_is_refused(self) -> None:
        events = from_arrays(np.zeros((3, 1)), [1, 0, 0], keep={"number": [1, 2, 3], "text": ["a", "b", "c"]})
        for k in (1, 0, -2, 2.5, None, True, 2**40):
            with pytest.raises(InputError, match="k must be an integer of at least 2"):
                events.folds(k)  # type: ignore[arg-type]  # wrong on purpose
        with pytest.raises(
            InputError, match=r"no column 'EventNo' is kept .* load the events with keep=\['EventNo'\]$"
        ):
            events.folds(2, by="EventNo")
        with pytest.raises(InputError, match="did you mean 'number'"):
            events.folds(2, by="numbr")
        with pytest.raises(InputError, match="column 'text' must hold integers to make folds, got <U1"):
            events.folds(2, by="text")
        for by in ([1.0, 2.0, 3.0], [True, False, True], [10**30, 1, 2]):
            with pytest.raises(InputError, match="by must hold integers"):
                events.folds(2, by=by)
        with pytest.raises(InputError, match=r"by must hold one integer per event, got the shape \(2,\)"):
            events.folds(2, by=[1, 2])


class TestScale:
    @given(samples(), st.floats(0, 1e9), st.floats(1e-9, 1e9))
    def test_classes_get_their_yields(self, events: Events, s: float, b: float) -> None:
        before = events.weight.copy()
        assert class_yields(events.scaled_to(s, b)) == pytest.approx((s, b), rel=1e-12)
        only = events.scaled_to(b=b)
        assert class_yields(only) == pytest.approx((class_yields(events)[0], b), rel=1e-12)
        np.testing.assert_array_equal(only.weight[events.is_signal], before[events.is_signal])
        np.testing.assert_array_equal(events.weight, before, "the events are not changed")

    @pytest.mark.parametrize("s", [-1, np.nan, np.inf, "3", True])
    def test_bad_yields(self, s: Any) -> None:
        with pytest.raises(InputError, match="s must be a finite number of at least 0, got"):
            make_htautau(100).scaled_to(s=s)

    def test_a_class_without_yield_cannot_be_scaled(self) -> None:
        with pytest.raises(InputError, match="the weights of the background sum to 0;"):
            from_arrays([[1.0], [2.0]], [1, 0], [1.0, 0.0]).scaled_to(b=3.0)
        with pytest.raises(InputError, match="no labels"):
            from_arrays([[1.0]], None).scaled_to(s=1.0)


@given(samples(), st.data())
def test_indexing_never_scales(events: Events, data: st.DataObject) -> None:
    chosen: BoolArray = np.array(data.draw(st.lists(st.booleans(), min_size=len(events), max_size=len(events))))
    part = events[chosen]
    np.testing.assert_array_equal(part.weight, events.weight[chosen])
    np.testing.assert_array_equal(part.kept["eventNumber"], events.kept["eventNumber"][chosen])
