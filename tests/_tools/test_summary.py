"""Tables for terminals and notebooks: escaped, aligned, without scripts, and with sensible digits."""

from __future__ import annotations

import dataclasses
import html.parser
import re
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fivesigma import AMS2, History, Round, Varied, categorise, scan, yield_shifts
from fivesigma._tools.summary import Summary, digits
from fivesigma._types import Array
from fivesigma.cascade.rounds import ClassWeights
from fivesigma.datasets import Events, from_arrays

NASTY = "<script>alert('x')</script> & \"t\" 'q'"


class Reader(html.parser.HTMLParser):
    """What a browser would find: which elements, balanced or not, with which attributes, and the text."""

    VOID = ("br", "img")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.said: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(page)
        self.close()
        assert not self.open, f"{self.open} are not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "tr":
            self.rows.append([])
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.said.append(data)
        if self.open[-1] in ("td", "th"):
            self.rows[-1].append(data)


def read(shown: Any) -> Reader:
    """Parse the notebook's view of something, and check what holds of every view."""
    page = Reader(shown._repr_html_())
    assert set(page.tags) <= {
        *("div", "p", "b", "table", "thead", "tbody", "tr", "th", "td", "details", "summary"),
    }
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("href", "src", "id", "class")]
    # Every colour is that of the page around it, so that the table is readable in the dark too.
    styles = " ".join(value or "" for name, value in page.attributes if name in ("style", "fill", "stroke"))
    assert not re.search(r"#[0-9a-f]{3}|rgb|black|white(?!-space)", styles)
    return page


def events(**changes: Any) -> Events:
    process = np.array(["H", NASTY, NASTY, "Z"])
    made = from_arrays([[1.0], [2.0], [3.0], [4.0]], ["s", "b", "b", "b"], [0.5, 1e5, 2e5, 1 / 3], process=process)
    return dataclasses.replace(made, **changes)


def make_round(k: int, **changes: Any) -> Round:
    plain = Round(k, 0.01, (0.01, 1e-4), 401.04, 17710.3, 79.1, 3.0008, True, k == 1, None, None, None, None, 0.1,
                  ClassWeights(0.01, 1e-4, 0.01))  # fmt: skip
    return dataclasses.replace(plain, **changes)


def sample() -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(0)
    y = np.repeat([1, 0], 3000)
    return rng.normal(2.0 * y), y, np.where(y == 1, 0.02, 20.0)


@given(st.floats(1e-4, 1e9, exclude_max=True), st.integers(2, 7), st.booleans())
def test_digits_are_right_to_the_last_and_have_no_exponent(value: float, significant: int, negative: bool) -> None:
    value = -value if negative else value
    text = digits(value, significant)
    assert "e" not in text
    assert abs(float(text.replace(",", "")) - value) <= abs(value) * 10.0 ** (1 - significant) / 2 * (1 + 1e-9)
    assert re.fullmatch(r"-?\d{1,3}(,\d{3})*(\.\d+)?", text)
    decimals = text.partition(".")[2]
    assert len(decimals) <= significant + 3
    # Not one digit more than asked for, unless they stand before the point.
    whole = text.lstrip("-").partition(".")[0].replace(",", "").lstrip("0")
    meant = (whole + decimals).lstrip("0")
    assert len(meant) <= max(significant, len(whole))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (-0.0, "0"), (np.nan, "nan"), (np.inf, "inf"), (-np.inf, "-inf"), (3e12, "3e+12"), (2e-9, "2e-09"),
     (9999.6, "10,000"), (999.96, "1,000"), (0.99999, "1.000"), (410999.847, "411,000"), (12345.6, "12,346")],
)  # fmt: skip
def test_digits_at_the_ends(value: float, text: str) -> None:
    assert digits(value) == text


def test_names_are_escaped() -> None:
    page = read(events(notes=(NASTY,), feature_names=(NASTY,), kept={NASTY: np.zeros(4)}))
    assert "script" not in page.tags
    assert [row[0].strip() for row in page.rows[1:]] == ["s", "H", "b", NASTY, "Z"]
    assert sum(NASTY in text for text in page.said) == 4  # kept, process, note, feature

    score, y, weight = sample()
    shifts = yield_shifts([0.0, np.inf], score, y, weight, {NASTY: (Varied(weight=weight * 1.1), None)})
    assert read(shifts).rows[1] == [NASTY, "+10.00%", "-10.00%", "+10.00%", "-10.00%"]
    assert NASTY in repr(shifts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = scan(score, y, weight, systematics={NASTY: (Varied(weight=weight * np.where(y, 1, 1.1)), None)})
    assert any(NASTY in text for text in read(found).said)


def test_yields_have_the_digits_that_they_are_worth() -> None:
    rows = {row[0].strip(): row[1:] for row in read(events()).rows[1:]}
    assert rows["Z"] == ["1", "0.333333", "1.0"]
    assert rows[NASTY] == ["2", "300,000", "1.8"]
    line = repr(History([make_round(0), make_round(1)])).splitlines()[-1]
    assert line.split() == ["1", "0.01000", "401.0", "17,710", "79.1", "3.0008", "0.10", "*"]


def test_the_terminal_and_the_notebook_show_the_same_rows() -> None:
    score, y, weight = sample()
    found = categorise(score, y, weight, 3)
    moved = {"norm": (Varied(weight=weight * np.where(y == 0, 1.1, 1.0)), None)}
    history = History([make_round(k) for k in range(3)])
    for shown in (events(), found, yield_shifts(found.edges, score, y, weight, moved), history):
        lines = [line.split() for line in repr(shown).splitlines()]
        for row in read(shown).rows:
            assert " ".join(row).split() in lines
    assert len({len(line) for line in repr(found).splitlines()[1:5]}) == 1, "columns are aligned"


def test_a_scan_shows_its_cut() -> None:
    best = scan(*sample(), AMS2(b_reg=10.0))
    page = read(best)
    rows = dict(row for row in page.rows[1:])
    assert rows["significance"] == f"{best.significance:.4f}"
    assert rows["cut on the score"] == f"{best.cut:.6g}"
    assert any("AMS2(b_reg=10.0)" in text for text in page.said)


def test_long_histories_show_both_ends_and_count_the_rest() -> None:
    history = History([make_round(k, valid=k != 99, u=None if k == 0 else 0.5) for k in range(100)])
    rows = read(history).rows
    assert [row[0] for row in rows[1:3]] == ["0", "1"]
    assert rows[21] == ["... (60 rounds)"]
    assert rows[-1][-1] == "not valid"
    assert rows[1][1] == "-"
    assert ("colspan", "8") in read(history).attributes
    several = History([make_round(0), make_round(0, restart=1)])
    assert read(several).rows[0][0] == "restart"


def test_what_is_empty_says_so() -> None:
    assert repr(History()) == "no rounds"
    assert read(History()).said == ["no rounds"]
    page = read(events()[:0])
    assert page.said[0].startswith("Events: 0 rows")
    assert [row[1] for row in page.rows[1:]] == ["0", "0"]
    score, y, weight = sample()
    shifts = yield_shifts([99.0, np.inf], score, y, weight, {})
    assert read(shifts).rows == [["systematic", "s up", "s down", "b up", "b down"]]
    assert "0 systematics, 1 category" in repr(shifts)


def test_a_class_without_yield_does_not_move_by_a_percentage() -> None:
    score, y, weight = sample()
    moved = {"norm": (Varied(weight=weight * np.where(y == 0, 1.1, 1.0)), None)}
    shifts = yield_shifts([5.6, np.inf], score, y, weight, moved)
    assert shifts.yields(signal=False).sum() == 0
    assert read(shifts).rows[1][3:] == ["-", "-"]


def test_a_table_without_rows_or_title() -> None:
    assert Summary("").text() == ""
    assert Summary("").html() == "<div></div>"
    assert Summary("a", ("", "n"), [], ["b"]).text() == "a\n  n\nb"
