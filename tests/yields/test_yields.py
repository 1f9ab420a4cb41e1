from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fivesigma import AMS2, Utility
from fivesigma.datasets import from_arrays
from fivesigma.errors import InputError
from fivesigma.yields import (
    KNOWN_PAIRS,
    balanced_class_weights,
    check_weights,
    class_sums,
    effective_count,
    learner_weights,
    number_processes,
    process_yields,
    rescale,
    signal_and_background,
    significance_of,
    significance_or_nan,
    significance_or_zero,
    split_labels,
    yields,
)
from tests.significance.exact import UTILITIES, name_of

SIGNAL = np.array([True, False, True, False, False])
WEIGHT = np.array([0.5, 2.0, 1.5, 4.0, -1.0])
YIELD = st.integers(-2000, 50_000).map(lambda n: n / 1000)


# labels


@pytest.mark.parametrize(
    ("y", "signal", "classes"),
    [
        ([0, 1, 1], [False, True, True], [0, 1]),
        ([1, -1, 1], [True, False, True], [-1, 1]),
        ([2.5, 7.0], [False, True], [2.5, 7.0]),
        ([True, False], [True, False], [False, True]),
        (["s", "b", "s"], [True, False, True], ["b", "s"]),
        (["Signal", "background"], [True, False], ["background", "Signal"]),  # sorts the other way round
        (["sig", "bkg"], [True, False], ["bkg", "sig"]),
        (np.array([3, 1], dtype=object), [True, False], [1, 3]),
        (np.array(["b", "s"], dtype=object), [False, True], ["b", "s"]),
    ],
)
def test_the_signal_is_found_without_a_warning(y: Any, signal: list[bool], classes: list[Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, order = split_labels(y)
    assert found.dtype == np.bool_
    assert (found.tolist(), order.tolist()) == (signal, classes)


@pytest.mark.parametrize(("signal", "background"), KNOWN_PAIRS)
def test_known_pairs_are_known_to_events_and_to_estimators(signal: Any, background: Any) -> None:
    for case in (str.lower, str.upper, str.title) if isinstance(signal, str) else (lambda label: label,):
        y = [case(background), case(signal), case(background)]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert split_labels(y)[0].tolist() == [False, True, False]
        assert from_arrays(np.ones((3, 1)), y).is_signal.tolist() == [False, True, False]


def test_pos_label_decides() -> None:
    for y in ([0, 1, 1], ["s", "b", "b"], ["ggH", "ttbar", "ttbar"]):
        found, classes = split_labels(y, pos_label=y[0])
        assert found.tolist() == [True, False, False]
        assert classes.tolist() == [y[1], y[0]]


def test_an_unknown_pair_is_refused() -> None:
    with pytest.raises(
        InputError, match="labels 'ggH' and 'ttbar', and nothing says which is the signal: set pos_label"
    ):
        split_labels(["ggH", "ttbar"])


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        ([[0, 1]], "y must be 1-dimensional, got shape (1, 2)"),
        ([], "y is empty: there are no events"),
        ([1, 1, 1], "y has one class only (1); signal and background are both needed"),
        (["s", "s"], "y has one class only ('s'); signal and background are both needed"),
        ([0, 1, 2, 1], "Only binary classification is supported. y has 3 labels: 0, 1, 2"),
        (range(9), "y has 9 labels: 0, 1, 2, 3, 4, ..."),
        ([0.0, np.nan, 1.0, np.inf], "y is NaN or infinite in 2 of 4 rows (at 1, 3)"),
        (np.array(["s", np.nan, "b"], dtype=object), "y is neither text nor a number in 1 of 3 rows (at 1)"),
        (np.array(["s", "b", None], dtype=object), "y is neither text nor a number in 1 of 3 rows (at 2)"),
        (np.array(["s", 0], dtype=object), "y mixes text and numbers: 's' and 0"),
    ],
)
def test_bad_labels(y: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        split_labels(y)


@pytest.mark.parametrize(("y", "pos_label"), [([0, 1], 2), (["s", "b"], "S"), (["s", "b"], 1), ([0, 1], "1")])
def test_an_unknown_signal_label(y: Any, pos_label: Any) -> None:
    labels = sorted(y)
    with pytest.raises(InputError, match=re.escape(f"pos_label={pos_label!r} is not among the labels {labels}")):
        split_labels(y, pos_label)


# physics weights


@pytest.mark.parametrize(
    ("weight", "sentence"),
    [
        ([1.0, np.nan, 1.0, np.inf, -np.inf], "sample_weight is NaN or infinite in 3 of 5 rows (at 1, 3, 4)"),
        ([np.nan] * 5, "sample_weight is NaN or infinite in 5 of 5 rows (at 0, 1, 2, ...)"),
        ([0.0] * 5, "every sample_weight is zero"),
        ([1.0] * 4, "sample_weight has 4 entries for 5 events"),
        ([[1.0] * 5], "sample_weight must be 1-dimensional, got shape (1, 5)"),
        (["a"] * 5, "sample_weight must be numbers"),
        (None, "sample_weight is None; physics weights are needed here"),
    ],
)
def test_bad_weights(weight: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        check_weights(weight, 5)
    with pytest.raises(InputError, match=re.escape(sentence)):
        yields([True] * 5, SIGNAL, weight)


def test_negative_weights_pass_and_become_float64() -> None:
    checked = check_weights(np.array([-1, 2], dtype=np.float32), 2)
    assert checked.dtype == np.float64
    assert checked.tolist() == [-1.0, 2.0]


def test_yields_keep_signs_and_count_effective_events() -> None:
    kept = yields([True, True, False, True, True], SIGNAL, WEIGHT)
    assert (kept.s, kept.b) == (0.5, 5.0)
    assert kept.effective_s == 1.0
    assert kept.effective_b == pytest.approx(25.0 / 21.0)
    assert signal_and_background(WEIGHT, SIGNAL) == (2.0, 5.0)


def test_yields_of_nothing_are_zero() -> None:
    kept = yields(np.zeros(5, dtype=bool), SIGNAL, WEIGHT)
    assert (kept.s, kept.b, kept.effective_s, kept.effective_b) == (0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("selected", "sentence"),
    [
        ([True] * 4, "selected must be 5 booleans, got bool of shape (4,)"),
        ([1, 0, 1, 0, 1], "selected must be 5 booleans, got int64 of shape (5,)"),
    ],
)
def test_bad_selections(selected: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        yields(selected, SIGNAL, WEIGHT)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30))
def test_effective_count_is_between_one_and_the_number_of_events(w: list[float]) -> None:
    assert 1 - 1e-9 <= effective_count(np.array(w)) <= len(w) * (1 + 1e-9)
    assert effective_count(np.full(len(w), w[0])) == pytest.approx(len(w))
    assert effective_count(-np.array(w)) == effective_count(np.array(w))


# significance of yields that may not be valid


@pytest.mark.parametrize("utility", UTILITIES, ids=name_of)
@given(pairs=st.lists(st.tuples(YIELD, YIELD), min_size=1, max_size=12))
def test_significance_where_yields_are_valid(utility: Utility, pairs: list[tuple[float, float]]) -> None:
    s, b = np.array([*pairs, (0.0, 0.0), (0.0, 1.0)]).T
    z = significance_or_nan(utility, s, b)
    for i in range(s.size):
        if s[i] >= 0 and b[i] > 0:
            assert z[i] == pytest.approx(float(utility.value(s[i], b[i])), rel=1e-12)
            assert significance_or_zero(utility, s[i], b[i]) == significance_of(utility, s[i], b[i])
        else:
            assert np.isnan(z[i])
            assert significance_or_zero(utility, s[i], b[i]) == 0.0
            with pytest.raises(InputError, match=r"the cut keeps s = .* and b = .*; significance needs s >= 0 and b >"):
                significance_of(utility, s[i], b[i], "the cut")


def test_significance_of_many_yields_of_any_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fivesigma.yields.selection._CHUNK", 7)  # chunks that are valid throughout, in part, not at all
    s, b = np.tile(np.linspace(1.0, 5.0, 20), (3, 1)), np.ones((3, 20))
    b[1, 3:12] = 0.0
    z = significance_or_nan(AMS2(), s, b)
    assert z.shape == (3, 20)
    np.testing.assert_array_equal(np.isnan(z), b == 0)
    np.testing.assert_allclose(z[b > 0], AMS2().value(s[b > 0], b[b > 0]), rtol=1e-14)
    some = np.zeros((3, 20), dtype=bool)
    some[0] = True
    np.testing.assert_array_equal(np.isfinite(significance_or_nan(AMS2(), s, b, some)), some)


# processes


def test_a_process_of_both_classes_is_refused_or_split() -> None:
    names = np.array(["H", "Z", "Z", "Z", "top"])
    with pytest.raises(InputError, match="process 'Z' has both signal and background events; give them two names"):
        number_processes(SIGNAL, names)
    found = number_processes(SIGNAL, names, split_mixed=True)
    assert found.names == ("H", "Z (signal)", "Z (background)", "top")
    assert found.signal.tolist() == [True, True, False, False]
    assert found.codes.tolist() == [0, 2, 1, 2, 3]
    assert number_processes(SIGNAL, None).codes.tolist() == [0, 1, 0, 1, 1]


def test_a_selection_is_one_category() -> None:
    selected = np.array([True, True, False, True, True])
    names = np.array(["ggH", "Z", "VBF", "Z", "fakes"])
    kept = yields(selected, SIGNAL, WEIGHT)
    by_process = process_yields(np.where(selected, 0, -1), 1, WEIGHT, number_processes(SIGNAL, names))
    for name, rows in by_process.items():
        own = selected & (names == name)
        assert rows.sum_of_weights.tolist() == [WEIGHT[own].sum()]
        assert rows.events.tolist() == [own.sum()]
    for signal, total in ((True, kept.s), (False, kept.b)):
        assert class_sums(by_process, signal=signal)[0].tolist() == [total]
    assert signal_and_background(WEIGHT, SIGNAL, selected) == (kept.s, kept.b)


# subsets


@given(seed=st.integers(0, 1000))
def test_rescaling_a_subset_restores_each_class(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weight, signal = rng.exponential(size=40), rng.permutation(np.arange(40) % 3 == 0)
    rows = np.concatenate([np.flatnonzero(signal)[:4], np.flatnonzero(~signal)[:9]])
    before = weight.copy()
    totals = signal_and_background(weight, signal)
    part = rescale(weight[rows], signal[rows], totals)
    assert signal_and_background(part, signal[rows]) == pytest.approx(totals, rel=1e-12)
    ratio = part / weight[rows]
    np.testing.assert_allclose(ratio[:4], ratio[0])
    np.testing.assert_allclose(ratio[4:], ratio[4])
    assert ratio[0] != pytest.approx(ratio[4])
    np.testing.assert_array_equal(weight, before)


def test_rescale_does_not_change_its_input() -> None:
    weight = WEIGHT.copy()
    rescale(weight, SIGNAL, (100.0, 100.0))
    np.testing.assert_array_equal(weight, WEIGHT)


@pytest.mark.parametrize(
    ("weight", "signal", "sentence"),
    [
        ([1.0, 1.0], [True, True], "the background of a subset of 2 events has a sum of weights of 0; it must be > 0"),
        ([-1.0, 0.5, 1.0], [True, True, False], "the signal of a subset of 3 events has a sum of weights of -0.5"),
    ],
)
def test_a_subset_without_a_class_cannot_be_rescaled(weight: list[float], signal: list[bool], sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        rescale(np.array(weight), np.array(signal), (1.0, 1.0))


# learner weights


def test_learner_weights_are_physics_times_class_of_mean_one() -> None:
    weight = np.array([0.5, 2.0, 1.5, 4.0, 1.0])
    got = learner_weights(weight, SIGNAL, (3.0, 0.5))
    assert got.mean() == pytest.approx(1.0, rel=1e-14)
    np.testing.assert_allclose(got / got[0], np.array([1.5, 1.0, 4.5, 2.0, 0.5]) / 1.5, rtol=1e-14)
    assert weight.tolist() == [0.5, 2.0, 1.5, 4.0, 1.0]


@pytest.mark.parametrize(
    ("negative", "expected"), [("zero", [0.5, 2.0, 1.5, 4.0, 0.0]), ("abs", [0.5, 2.0, 1.5, 4.0, 1.0])]
)
def test_negative_weight_policies(negative: str, expected: list[float]) -> None:
    got = learner_weights(WEIGHT, SIGNAL, negative=negative)
    np.testing.assert_allclose(got, np.array(expected) / np.mean(expected), rtol=1e-14)
    assert WEIGHT[-1] == -1.0


@pytest.mark.parametrize(
    ("class_weights", "negative", "sentence"),
    [
        ((1.0, 1.0), "error", "sample_weight is negative in 1 of 5 rows (at 4); learners cannot take that"),
        ((1.0, 1.0), "drop", "negative_weights must be one of 'error', 'zero', 'abs', got 'drop'"),
        ((0.0, 0.0), "zero", "learner weights at class weights (0.0, 0.0) have mean 0; no learner can use them"),
        ((1.0, np.nan), "zero", "learner weights at class weights (1.0, nan) have mean nan"),
        ((-0.1, 1.0), "zero", "class weights must be >= 0, got (-0.1, 1.0)"),
    ],
)
def test_bad_learner_weights(class_weights: tuple[float, float], negative: str, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        learner_weights(WEIGHT, SIGNAL, class_weights, negative)


def test_balanced_classes_weigh_the_same() -> None:
    class_weights = balanced_class_weights(WEIGHT, SIGNAL, negative="zero")
    balanced = learner_weights(WEIGHT, SIGNAL, class_weights, negative="zero")
    s, b = signal_and_background(balanced, SIGNAL)
    assert s == pytest.approx(b)
    with pytest.raises(InputError, match="one class has no positive sample_weight"):
        balanced_class_weights(np.array([0.0, 1.0]), np.array([True, False]))
