"""Expressions are evaluated as NumPy would, on one number per event and on several, and nothing else is reachable."""

import re
from pathlib import Path

import awkward as ak
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fivesigma.datasets.expression import MOST_CHARACTERS, Expression, split_definition
from fivesigma.errors import InputError

COLUMNS = {
    "n": np.array([0.0, 1.0, 2.0, np.nan]),
    "eta": np.array([-3.0, 0.5, 2.0, 1.0]),
    "kind": np.array(["t", "b", "t", "t"]),
    "flag": np.array([True, False, True, False]),
    "count_": np.array([0, 1, 2, 3]),
    "number": np.array([2**60 + 1, 2**60 + 2, 2**60 + 3, 4]),
    "jet": ak.Array([[50.0, 30.0], [], [10.0], [70.0, 60.0, 20.0]]),
    "tight": ak.Array([[True, False], [], [False], [True, True, False]]),
    "fixed": np.arange(8.0).reshape(4, 2),
    "jets.pt": ak.Array([[1.0], [2.0, 3.0], [], [4.0]]),
    "abs": np.array([0.0, 1.0, 2.0, 3.0]),
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
        ("count_", [0, 1, 1, 1]),
        ("count_ && flag", [0, 0, 1, 0]),
        ("0 < n < 2", [0, 1, 0, 0]),
        ("kind == 't' && n != 0", [0, 0, 1, 1]),
        ("kind != 'a && !b'", [1, 1, 1, 1]),
        ("isnan(n)", [0, 0, 0, 1]),
        ("maximum(n, eta) ** 2 - 1 > -eta / 2", [0, 1, 1, 0]),
        ("sqrt(eta) > 1", [0, 0, 1, 0]),
        ("number % 2 == 1", [1, 0, 1, 0]),
        ("jet[0] > 45", [1, 0, 0, 1]),
        ("jet[-1] < 25", [0, 0, 1, 1]),
        ("any(jet > 55)", [0, 0, 0, 1]),
        ("all(jet > 15)", [1, 1, 0, 1]),
        ("count(jet) >= 2 && tight[0]", [1, 0, 0, 1]),
        ("!tight[0]", [0, 1, 1, 0]),
        ("True", [1, 1, 1, 1]),
    ],
)
def test_conditions(text: str, expected: list[int]) -> None:
    np.testing.assert_array_equal(Expression(text, "cut").condition(COLUMNS), np.array(expected, dtype=bool))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("jet[0]", [50, np.nan, 10, 70]),
        ("jet[2]", [np.nan, np.nan, np.nan, 20]),
        ("jet[-2]", [50, np.nan, np.nan, 60]),
        ("sum(jet)", [80, 0, 10, 150]),
        ("max(jet)", [50, np.nan, 10, 70]),
        ("min(jet)", [30, np.nan, 10, 20]),
        ("count(jet)", [2, 0, 1, 3]),
        ("len(jet) + len(fixed)", [4, 2, 3, 5]),
        ("sort(jet)[0] + sort(jet)[-1]", [80, np.nan, 20, 90]),
        ("sort(where(jet == 50, sqrt(-jet), jet))[0]", [30, np.nan, 10, 20]),  # what is missing is last
        ("sort(-fixed)[0]", [-1, -3, -5, -7]),
        ("round(eta) + round(eta + 1)", [-5, 2, 5, 3]),  # a half goes to the even number
        ("sum(jet > 25)", [2, 0, 0, 2]),
        ("sum(jet[jet > 25])", [80, 0, 0, 130]),
        ("sum(jet[tight])", [50, 0, 0, 130]),
        ("sum(jet * count_)", [0, 0, 20, 450]),
        ("jets.pt[0] + 1", [2, 3, np.nan, 5]),
        ("fixed[1]", [1, 3, 5, 7]),
        ("fixed[7]", [np.nan] * 4),
        ("sum(fixed) / count(fixed)", [0.5, 2.5, 4.5, 6.5]),
        ("-flag + 2", [1, 2, 1, 2]),
        ("count_ ** -1", [np.inf, 1, 0.5, 1 / 3]),
        ("2", [2, 2, 2, 2]),
    ],
)
def test_numbers(text: str, expected: list[float]) -> None:
    np.testing.assert_allclose(Expression(text, "weight").values(COLUMNS), expected)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20), st.lists(st.floats(0.1, 1e3), min_size=20, max_size=20))
def test_arithmetic_is_that_of_numpy(a: list[float], b: list[float]) -> None:
    x, y = np.array(a), np.array(b[: len(a)])
    found = Expression("(x * y - 2) / y + abs(x) ** 0.5", "weight").values({"x": x, "y": y})
    np.testing.assert_array_equal(found, (x * y - 2) / y + np.abs(x) ** 0.5)


def test_columns_are_names_but_not_functions() -> None:
    assert Expression("abs(eta) < 2 && n > abs", "cut").columns == {"eta", "n", "abs"}
    assert Expression("sum(jets.pt[0]) > x.y.z", "cut").columns == {"jets.pt", "x.y.z"}


def test_definitions() -> None:
    assert split_definition(" HT = sum(jet_pt) ") == ("HT", "sum(jet_pt) ")
    assert all(split_definition(text) is None for text in ("mass", "a == b", "a >= b", "1 = 2", "a b = c"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("n >", "complete"),
        ("", "complete"),
        ("n", "true or false"),
        ("n > 1 & eta < 2", "parentheses"),
        ("count_ > 1 & count_ < 3", "parentheses"),
        ("n + 1 && eta < 2", "not a condition"),
        ("fabbs(eta) < 2", "did you mean 'abs'"),
        ("zzz(eta) < 2", "there are abs"),
        ("abs(eta, eta, eta) < 2", "arguments"),
        ("abs(kind) < 2", "takes numbers"),
        ("kind > 1", "text can be compared"),
        ("kind > 'a'", "text can be compared"),
        ("'%1000000000d' % 5 == kind", "text can be compared"),
        ("'a' * 1000000000 == kind", "text can be compared"),
        ("n in eta", "not an operator"),
        ("n @ eta > 1", "not an operator"),
        ("n.sum() > 1", "not understood"),
        ("__import__('os').system('true')", "not understood"),
        ("(lambda: 1)()", "not understood"),
        ("[n for n in eta]", "not understood"),
        ("n if flag else eta", "compare the columns"),
        ("flag ? n", "complete"),
        ("n ^ 2 > 1", "write [*][*] for a power"),
        ("Iteration$ > 1", "'Iteration[$]' of ROOT is not understood"),
        ("TMath::BesselI0(n) > 1", "'TMath::BesselI0' of ROOT is not understood"),
        ("(count_ << 70) > 1", "bits from 0 to 62"),
        ("n > 1" + "0" * 400, "cannot be computed .OverflowError"),
        ("count_[count_ > 1] > 1", "needs one"),
        ("sort(eta) > 1", "sort does not take these arguments"),
        ("eta[count_] > 1", "there is only one"),
        ("eta[0] > 1", "there is only one"),
        ("sum(eta) > 1", "there is only one"),
        ("jet > 1", r"not one number per event but the shape 4 \* var \* bool"),
        ("fixed > 1", r"the shape 4 \* 2 \* bool"),
        ("jet[1:2] > 1", "neither a whole number nor a condition"),
        ("jet[1.5] > 1", "neither a whole number nor a condition"),
        ("jet[eta > 1] > 1", "needs one"),
        ("jet == jets.pt", "other numbers of values"),
        ("sum(jet[jets.pt > 1]) > 1", "other lengths"),
        ("max(jet, n, n) > 1", "takes one column"),
        ("kind", "true or false"),
        ("'t'", "it is text"),
        ("(" * 500, "complete"),
        ("n" + " + n" * 4000, "characters"),
        ("n" + "+n" * 3000 + "> 1", "complete|too deeply"),
    ],
)
def test_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        Expression(text, "cut").condition(COLUMNS)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


MUONS = {
    "MET_pt": np.array([10.0, 30.0, 50.0, 70.0]),
    "MET_phi": np.array([-3.0, -1.0, 0.5, 2.0]),
    "HLT_mu": np.array([True, False, True, True]),
    "nJet": np.array([2, 0, 1, 3]),
    "run": np.array([1, 2, 3, 3]),
    "Jet_pt": ak.Array([[50.0, 30.0], [], [10.0], [70.0, 60.0, 20.0]]),
    "Jet_eta": ak.Array([[0.5, -3.0], [], [2.5], [-1.0, 1.0, 0.0]]),
    "Jet_phi": ak.Array([[0.1, 1.0], [], [-3.0], [3.0, 2.0, 1.0]]),
    "Jet_jetId": ak.Array([[6, 2], [], [2], [4, 0, 0]]),
    "Muon_jetIdx": ak.Array([[0], [-1], [0, 1], [1]]),
    "Electrons:pt": ak.Array([[1.0], [2.0, 3.0], [], [4.0]]),
    "evt/x": np.array([1.0, 2.0, 3.0, 4.0]),
}
ROW = re.compile(r"^\| ``? ?(.+?) ?`?` \| [^|]*(?:\\\|[^|]*)* \| `(.+)` \|$", re.MULTILINE)


def test_the_table_of_the_documentation() -> None:
    """Every expression that the page shows has the values that NumPy and awkward give."""
    page = (Path(__file__).parents[2] / "docs" / "guide" / "ntuples.md").read_text()
    table = page[page.index("(expressions)=") : page.index("In a condition a whole number")]
    rows = [(a.replace("\\|", "|"), b.replace("\\|", "|")) for a, b in ROW.findall(table)]
    assert len(rows) == table.count("\n| ") - 1
    names = {"np": np, "ak": ak, "electrons": MUONS["Electrons:pt"], "slashed": MUONS["evt/x"]}
    names |= {"first": lambda x: ak.to_numpy(ak.fill_none(ak.firsts(x), np.nan))}
    for text, oracle in rows:
        found = Expression(text, "feature").values(MUONS)
        expected = eval(oracle, {}, names | {k: v for k, v in MUONS.items() if k.isidentifier()})
        np.testing.assert_allclose(found.astype(float), ak.to_numpy(expected).astype(float), err_msg=text)


def test_conditionals_nest_to_the_right() -> None:
    def value(text: str) -> list[float]:
        return [float(x) for x in Expression(text, "feature").values(MUONS)]

    assert value("nJet > 2 ? 1 : nJet > 1 ? 2 : 3") == [2, 3, 3, 1]
    assert value("nJet > 1 ? HLT_mu ? 1 : 2 : 3") == [1, 3, 3, 1]
    assert value("max((HLT_mu ? 5 : 1), nJet) + (run == 3 ? 10 : 0)") == [5, 1, 15, 15]
    assert value("!HLT_mu == HLT_mu") == [0, 0, 0, 0]


def test_powers_do_not_explode() -> None:
    assert Expression("9 ** 9 ** 9 ** 9 > n", "cut").condition(COLUMNS).tolist() == [True, True, True, False]
    assert Expression(f"n < {'9' * 300}", "cut").condition(COLUMNS).tolist() == [True, True, True, False]


def test_text_is_bounded() -> None:
    with pytest.raises(InputError, match="at most 10,000 are read"):
        Expression("n" * (MOST_CHARACTERS + 1), "cut")
    with pytest.raises(InputError, match="must be text, got int"):
        Expression(3, "cut")  # type: ignore[arg-type]


def test_functions_of_conditions_and_of_objects() -> None:
    ak = pytest.importorskip("awkward")
    jets = ak.Array([[0.5, 2.0, 3.0], []])
    found = Expression("sum(sqrt(jet > 1))", "feature").values({"jet": jets})
    assert found.tolist() == [2.0, 0.0]
    assert Expression("sqrt(a > 1) + abs(a > 1)", "feature").values({"a": np.array([0.0, 2.0])}).tolist() == [0.0, 2.0]
    for momenta in (ak.Array([[{"fE": 1.0}], []]), ak.Array([[1.0, "text"], []])):
        with pytest.raises(InputError, match=r"^the feature 'm' 'jetp4\[0\]' cannot be used: ") as caught:
            Expression("jetp4[0]", "feature 'm'").values({"jetp4": momenta})
        assert "\n" not in str(caught.value)
