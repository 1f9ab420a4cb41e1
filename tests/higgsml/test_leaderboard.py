"""Places that are claimed only as far as they are known."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fivesigma.higgsml.submission import PRIVATE, standing


@pytest.mark.parametrize(
    ("score", "text"),
    [
        (3.81, "above 1st (Melis, 3.80581)"),
        (3.80581, "level with 1st (Melis, 3.80581)"),
        (3.805809999, "level with 1st (Melis, 3.80581)"),
        (3.8058, "between 1st (Melis, 3.80581) and 2nd (Salimans, 3.78912)"),
        (3.788, "between 2nd (Salimans, 3.78912) and 3rd (nhlx5haze, 3.78682)"),
        (3.76, "between 5th (cheng chen, 3.77383) and 26th (phunter, 3.73+)"),
        (3.735, "between 5th (cheng chen, 3.77383) and 31st (Mackey, Bryan and Mo, 3.72594)"),
        (3.728, "between 26th (phunter, 3.73+) and 31st (Mackey, Bryan and Mo, 3.72594)"),
        (3.72594, "level with 31st (Mackey, Bryan and Mo, 3.72594)"),
        (3.6, "below 31st (Mackey, Bryan and Mo, 3.72594)"),
        (0.0, "below 31st (Mackey, Bryan and Mo, 3.72594)"),
    ],
)
def test_standing(score: float, text: str) -> None:
    assert standing(score) == text


def test_the_board_is_in_order() -> None:
    assert [p.rank for p in PRIVATE] == sorted(p.rank for p in PRIVATE)
    for better, worse in pairwise(PRIVATE):
        assert better.low > worse.high


@given(st.floats(3.5, 3.9))
def test_a_claimed_place_is_certain(score: float) -> None:
    text = standing(score)
    for place in PRIVATE:
        if text.startswith(f"above {place}") or text.endswith(f"and {place}"):
            assert round(score, 5) >= place.high
        if text.startswith((f"below {place}", f"between {place}")):
            assert round(score, 5) < place.low
