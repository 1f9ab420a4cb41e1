import numpy as np
import pytest

from fivesigma.datasets.expression import Cut
from fivesigma.errors import InputError

COLUMNS = {
    "n": np.array([0.0, 1.0, 2.0, np.nan]),
    "eta": np.array([-3.0, 0.5, 2.0, 1.0]),
    "kind": np.array(["t", "b", "t", "t"]),
    "flag": np.array([True, False, True, False]),
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n >= 1", [0, 1, 1, 0]),
        ("n >= 1 && abs(eta) < 1", [0, 1, 0, 0]),
        ("n >= 1 and not eta > 1", [0, 1, 0, 0]),
        ("(n < 1) | (eta == 2)", [1, 0, 1, 0]),
        ("n < 1 || !(eta != 2)", [1, 0, 1, 0]),
        ("~flag", [0, 1, 0, 1]),
        ("flag", [1, 0, 1, 0]),
        ("0 < n < 2", [0, 1, 0, 0]),
        ("kind == 't' && n != 0", [0, 0, 1, 1]),
        ("isnan(n)", [0, 0, 0, 1]),
        ("maximum(n, eta) ** 2 - 1 > -eta / 2", [0, 1, 1, 0]),
        ("sqrt(eta) > 1", [0, 0, 1, 0]),
    ],
)
def test_which_events_pass(text: str, expected: list[int]) -> None:
    np.testing.assert_array_equal(Cut(text).passes(COLUMNS), np.array(expected, dtype=bool))


def test_columns_are_names_but_not_functions() -> None:
    assert Cut("abs(eta) < 2 && n > abs").columns == {"eta", "n", "abs"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("n >", "complete"),
        ("", "complete"),
        ("n", "true or false"),
        ("1 < 2", "true or false"),
        ("n > 1 & eta < 2", "parentheses"),
        ("n + 1 && eta < 2", "not a condition"),
        ("fabs(eta) < 2", "did you mean 'abs'"),
        ("zzz(eta) < 2", "there are abs"),
        ("abs(eta, eta, eta) < 2", "arguments"),
        ("abs(kind) < 2", "arguments"),
        ("kind > 1", "text with numbers"),
        ("1 / 0 < n", "divides by zero"),
        ("n in eta", "not an operator"),
        ("n @ eta > 1", "not an operator"),
        ("n.sum() > 1", "not understood"),
        ("__import__('os').system('true')", "not understood"),
        ("eta[0] > 1", "not understood"),
        ("9 ** 9 ** 9 ** 9 > n", "cannot be used"),
        (f"n > {'9' * 400}", "too large"),
        ("(" * 500, "complete"),
    ],
)
def test_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        Cut(text).passes(COLUMNS | {"abs": COLUMNS["n"]})
