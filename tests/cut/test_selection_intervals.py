"""Intervals of fixed selections."""

from typing import Any

import numpy as np
import pytest

from fivesigma import AMS2, AMS3
from fivesigma._types import Array, BoolArray
from fivesigma.cut.bootstrap import Interval, paired_difference
from fivesigma.errors import InputError

rng = np.random.default_rng(3)
SIGNAL = np.arange(20_000) % 2 == 0
SCORE = rng.normal(size=SIGNAL.size) + SIGNAL
WEIGHT = np.where(SIGNAL, 0.02, 0.5) * rng.lognormal(0, 0.3, SIGNAL.size)


def selection_interval(selected: BoolArray, signal: BoolArray, weight: Array, *options: Any, **named: Any) -> Interval:
    """Of one selection, compared with itself."""
    return paired_difference(selected, selected, signal, weight, *options, **named).first_interval


def test_width_is_the_error_that_theory_gives() -> None:
    selected = SCORE > 1.5
    s, b = (WEIGHT[selected & m].sum() for m in (SIGNAL, ~SIGNAL))
    var_s, var_b = (np.square(WEIGHT[selected & m]).sum() for m in (SIGNAL, ~SIGNAL))
    z = s / np.sqrt(b)  # AMS3: dZ/ds = Z / s, dZ/db = -Z / (2 b)
    error = np.hypot(z / s * np.sqrt(var_s), z / (2 * b) * np.sqrt(var_b))
    low, high = selection_interval(selected, SIGNAL, WEIGHT, AMS3(), level=0.6827, n_boot=4000)
    assert low < z < high
    assert (high - low) / 2 == pytest.approx(error, rel=0.06)


def test_pairs_share_their_replicas() -> None:
    tight, loose = SCORE > 1.5, SCORE > 1.45
    found = paired_difference(tight, loose, SIGNAL, WEIGHT, AMS2(b_reg=5.0))
    again = selection_interval(tight, SIGNAL, WEIGHT, AMS2(b_reg=5.0))
    assert found.first == float(AMS2(b_reg=5.0).value(*(WEIGHT[tight & m].sum() for m in (SIGNAL, ~SIGNAL))))
    assert found.difference == found.second - found.first
    assert found.first_interval == pytest.approx(again, rel=0.01)
    width = found.difference_interval[1] - found.difference_interval[0]
    assert 0 < width < 0.5 * (found.first_interval[1] - found.first_interval[0])
    # The other way round is the same with another sign.
    back = paired_difference(loose, tight, SIGNAL, WEIGHT, AMS2(b_reg=5.0), n_boot=4000)
    assert back.difference == -found.difference
    assert back.difference_interval[0] == pytest.approx(-found.difference_interval[1], abs=0.1 * width)


def test_selections_with_nothing_in_common() -> None:
    first, second = SCORE > 1.5, (SCORE > 1.0) & (SCORE <= 1.5)
    found = paired_difference(first, second, SIGNAL, WEIGHT, AMS2(), n_boot=4000)
    widths = [(h - low) / 2 for low, h in (found.first_interval, found.second_interval, found.difference_interval)]
    assert widths[2] == pytest.approx(np.hypot(widths[0], widths[1]), rel=0.08)


def test_refused() -> None:
    nothing, everything = np.zeros(SIGNAL.size, bool), np.ones(SIGNAL.size, bool)
    with pytest.raises(InputError, match="keeps s = 0 and b = 0"):
        selection_interval(nothing, SIGNAL, WEIGHT, AMS2())
    with pytest.raises(InputError, match="level"):
        selection_interval(everything, SIGNAL, WEIGHT, AMS2(), level=1.0)
    with pytest.raises(InputError, match="n_boot"):
        selection_interval(everything, SIGNAL, WEIGHT, AMS2(), n_boot=0)
