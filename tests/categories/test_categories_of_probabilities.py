"""Class probabilities of one signal and several backgrounds: one ratio, then the exact search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fivesigma import Varied, categorise, categorise_scores
from fivesigma._types import AnyArray, Array
from fivesigma.errors import InputError

NAMES = ("H", "Z", "top")
YIELDS = np.array([40.0, 4000.0, 1000.0])


def events(n: int = 6000, seed: int = 0) -> tuple[Array, AnyArray, AnyArray, Array, Array]:
    """Gaussians in two dimensions: exact probabilities of classes with equal shares, and log s/b of the experiment."""
    rng = np.random.default_rng(seed)
    means = np.array([[1.8, 0.0], [0.0, 0.0], [0.0, 1.8]])
    code = np.arange(3 * n) % 3
    logs = rng.normal(means[code]) @ means.T - np.square(means).sum(axis=1) / 2
    p = np.exp(logs)
    truth = np.log(YIELDS[0] * p[:, 0] / (p[:, 1:] @ YIELDS[1:]))
    p /= p.sum(axis=1, keepdims=True)
    return p, (code == 0).astype(int), np.array(NAMES)[code], YIELDS[code] / n, truth


SCORES, Y, PROCESS, WEIGHT, TRUTH = events()
GIVEN: dict[str, Any] = {"process": PROCESS, "processes": NAMES}


@pytest.mark.parametrize("calibrate", [True, False])
def test_the_score_is_the_expected_ratio(calibrate: bool) -> None:
    found = categorise(SCORES, Y, WEIGHT, 4, calibrate=calibrate, rule="peak", **GIVEN)
    assert found.ratio is not None
    wrong = found.ratio.of(SCORES) - TRUTH  # a constant is left, from the statistics of the classes
    assert abs(wrong.mean()) < 0.05
    assert wrong.std() < (0.1 if calibrate else 1e-9)
    best = categorise(TRUTH, Y, WEIGHT, 4, rule="peak")
    assert found.significance == pytest.approx(best.significance, rel=0.01)


def test_it_gains_over_the_probability_of_the_signal() -> None:
    """Shares of the backgrounds differ from those of the training, so that the probability orders events wrongly."""
    found = categorise(SCORES, Y, WEIGHT, 3, min_effective=40, **GIVEN)
    naive = categorise(SCORES[:, 0], Y, WEIGHT, 3, min_effective=40)
    other, y, process, weight, _ = events(seed=1)
    ours = found.evaluate(other, y, weight, process=process).significance
    assert ours > naive.evaluate(other[:, 0], y, weight).significance


def test_wrong_probabilities_are_calibrated() -> None:
    """A classifier that is too sure of itself for one class orders events wrongly."""
    steep = SCORES ** np.array([1.0, 1.0, 2.5])
    steep /= steep.sum(axis=1, keepdims=True)
    best = categorise(TRUTH, Y, WEIGHT, 4).significance
    with_, without = (categorise(steep, Y, WEIGHT, 4, calibrate=c, **GIVEN).significance for c in (True, False))
    assert without < with_ <= best * 1.01
    assert with_ == pytest.approx(best, rel=0.02)


def test_events_are_assigned_by_their_probabilities() -> None:
    found = categorise(SCORES, Y, WEIGHT, 3, **GIVEN)
    category = found.assign(SCORES)
    for k in range(3):
        assert WEIGHT[(category == k) & (Y == 1)].sum() == pytest.approx(found.s[k])
    again = found.evaluate(SCORES, Y, WEIGHT, process=PROCESS)
    np.testing.assert_allclose(again.b, found.b)
    assert set(again.by_process) == set(NAMES)


def test_it_agrees_with_one_of_several_signals() -> None:
    one = categorise(SCORES, Y, WEIGHT, 4, rule="peak", **GIVEN)
    several = categorise_scores(SCORES, PROCESS, WEIGHT, 4, signals=["H"], processes=NAMES)
    assert one.significance == pytest.approx(several.z["H"], rel=0.01)


def test_systematics_have_probabilities_too() -> None:
    up = SCORES * np.array([1.0, 1.0, 1.3])
    up /= up.sum(axis=1, keepdims=True)
    found = categorise(SCORES, Y, WEIGHT, 3, systematics={"tagging": (Varied(score=up), None)}, **GIVEN)
    assert found.ratio is not None
    plain = categorise(
        found.ratio.of(SCORES), Y, WEIGHT, 3, process=PROCESS,
        systematics={"tagging": (Varied(score=found.ratio.of(up)), None)},
    )  # fmt: skip
    assert found.significance == plain.significance
    np.testing.assert_array_equal(found.edges, plain.edges)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"processes": None}, r"need processes=the names of the columns"),
        ({"process": None}, r"need process=the name of the process of each event"),
        (
            {"processes": ("h", "Z", "top")},
            r"signal events are of 'H', and one of .* must be all of the signal",
        ),
        ({"processes": ("H", "Z")}, r"shape \(18000, 3\); 2 processes need shape"),
        ({"process": np.where(PROCESS == "Z", "H", PROCESS)}, r"process 'H' has signal and background events"),
        ({"process": PROCESS[1:]}, r"process has shape \(17999,\) for 18000 events"),
    ],
)
def test_bad_input(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        categorise(SCORES, Y, WEIGHT, 3, **{**GIVEN, **change})


def test_scores_of_the_wrong_kind() -> None:
    with pytest.raises(InputError, match="these scores are one per event"):
        categorise(TRUTH, Y, WEIGHT, 3, **GIVEN)
    one, many = categorise(TRUTH, Y, WEIGHT, 3), categorise(SCORES, Y, WEIGHT, 3, **GIVEN)
    with pytest.raises(InputError, match="chosen on one score per event"):
        one.assign(SCORES)
    with pytest.raises(InputError, match="chosen on class probabilities of 'H', 'Z', 'top'"):
        many.evaluate(TRUTH, Y, WEIGHT)
    halves = SCORES / 2
    with pytest.raises(InputError, match="does not sum to one"):
        categorise(halves, Y, WEIGHT, 3, **GIVEN)
