"""The page without a browser: self-contained, escaped, and the same numbers as the library."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fivesigma
from fivesigma.datasets import Events, from_arrays
from fivesigma.errors import InputError
from fivesigma.reporting import Report, Section
from fivesigma.reporting.page import number, plain, share, signed

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


class Outline(HTMLParser):
    """Tags, ids, attributes that fetch, and the text of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.fetched: list[str] = []
        self.scripts: list[str] = []
        self.details = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            if name in ("src", "srcset", "data", "poster") or (name == "href" and not str(value).startswith("#")):
                self.fetched.append(f"{tag} {value}")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "script" and data.strip():
            self.scripts.append(data)


def test_page_needs_nothing_else(made: Report) -> None:
    outline = Outline(made.html)
    assert outline.fetched == []
    assert not {"link", "img", "iframe", "object"} & set(outline.tags)
    assert "@import" not in made.html
    assert "url(" not in made.html.replace("url(#${clip})", "")
    assert re.findall(r"https?://[^\s\"'<]+", made.html) == ["http://www.w3.org/2000/svg"]  # a name, not an address
    assert len(outline.ids) == len(set(outline.ids))
    assert len(outline.scripts) == 2


def test_the_cut_comes_before_the_progress_which_needs_no_paper(made: Report) -> None:
    ids = [i for i in Outline(made.html).ids if i in ("verdict", "cuts", "progress", "scores", "provenance")]
    assert ids == ["verdict", "cuts", "progress", "scores", "provenance"]
    links = re.findall(r'<a href="#(\w+)">', made.html)
    assert links.index("cuts") + 1 == links.index("progress")
    section = made.html.split('<section id="progress">')[1].split("</section>")[0]
    for word in ("minorant", "surrogate", "R(·"):
        assert word not in section.split("<details>")[0]
    for words in ("cannot be trained on significance itself", "The thick curve is the goal", "filled dot", "open dot"):
        assert words in section


def test_every_figure_has_an_aid_and_a_table(made: Report) -> None:
    outline = Outline(made.html)
    figures = ["significance", "progress", "u", "rounds", "scores", "roc", "purity"]
    assert [i for i in outline.ids if i.startswith("fig-")] == [f"fig-{name}" for name in figures]
    for name in ("progress", "rounds", "cuts", "scores", "rates", "features", "yields"):
        assert f"table-{name}" in outline.ids
    for section in re.findall(r"<section id=\"\w+\">.*?</section>", made.html, flags=re.DOTALL):
        assert 'class="aid"' in section


def test_embedded_numbers_are_the_librarys(made: Report) -> None:
    sent = json.loads(Outline(made.html).scripts[0])
    assert sent["cuts"] == plain(made.data.cuts)
    assert sent["verdict"]["significance"] == pytest.approx(made.data.verdict.significance, rel=1e-7)
    assert set(sent) == {"verdict", "progress", "cuts", "scores", "overtraining", "profiled"}


def test_names_from_files_are_escaped(cascade: Any, test_events: Events) -> None:
    hostile = replace(
        test_events,
        process=np.where(test_events.is_signal, HOSTILE, "b & <b>"),
        feature_names=tuple(f"{name}{HOSTILE}" for name in test_events.feature_names),
        notes=(HOSTILE,),
    )
    clean = Outline(fivesigma.report(cascade, test_events, n_boot=10).html)
    page = fivesigma.report(cascade, hostile, title=HOSTILE, command=HOSTILE, n_boot=10).html
    outline = Outline(page)
    assert HOSTILE not in page
    assert outline.tags.count("script") == 2
    assert "img" not in outline.tags
    assert set(outline.tags) == set(clean.tags) | {"td"}
    assert json.loads(outline.scripts[0])["scores"]["processes"][-1]["name"] == HOSTILE
    assert "b &amp; &lt;b&gt;" in page


def test_only_our_script_may_run(made: Report) -> None:
    import base64
    import hashlib

    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', made.html)
    digest = base64.b64encode(hashlib.sha256(Outline(made.html).scripts[1].encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy.replace("&#39;", "'").replace("&#43;", "+")


def test_write_is_whole_or_not_at_all(made: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report.html"
    assert made.write(target) == target
    assert target.read_text(encoding="utf-8") == made.html
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(InputError, match="full"):
        made.write(target)
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(InputError, match="there is no folder"):
        made.write(tmp_path / "none" / "report.html")
    with pytest.raises(InputError, match="is a folder"):
        made.write(tmp_path)


def test_repr_says_the_significance(made: Report) -> None:
    assert f"significance {made.data.verdict.significance:.4f}" in repr(made)


def test_text_of_numbers() -> None:
    values = [0.0, 0.51385, 12.0, 999.4, 999.96, 4611.9, 1.23e8, 1.2e-7, -0.05]
    assert [number(v) for v in values] == [
        "0", "0.5139", "12.00", "999.4", "1,000", "4,612", "1.230e+8", "1.200e-7", "-0.05000",
    ]  # fmt: skip
    assert number(float("nan")) == number(None) == share(float("nan")) == "–"
    assert [share(v) for v in (0.0333, 1.0)] == ["3.33 %", "100 %"]
    assert [signed(v) for v in (0.1, -0.1)] == ["+0.100", "−0.100"]


def test_small_events_still_make_a_page() -> None:
    pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    y = np.arange(400) % 2
    X = rng.normal(size=(400, 2)) + y[:, None]
    events = from_arrays(X, y, np.ones(400), signal=1)
    model = fivesigma.GrownCascadeClassifier(n_trees=3, random_state=0, n_jobs=1)
    with pytest.warns(fivesigma.errors.SmallSampleWarning):
        model.fit(events.X, events.y, events.weight)
    page = fivesigma.report(model, events[:60], n_boot=20).html
    assert "There is little background in all" in page


def test_systematics_have_a_section_of_their_own(cascade: Any, test_events: Events) -> None:
    moved = np.where(test_events.is_signal, test_events.weight, 1.2 * test_events.weight)
    given = {HOSTILE: (moved, None)}
    page = fivesigma.report(cascade, test_events, systematics=given, n_boot=10)
    expected = cascade.significance(test_events.X, test_events.y, test_events.weight, systematics=given)
    assert f'<b id="with-systematics">{expected:.3f}</b>' in page.html
    assert page.data.systematics is not None
    (shift,) = page.data.systematics.shifts
    assert (shift.s_up, shift.b_up, shift.b_down) == pytest.approx((0.0, 0.2, -0.2))
    assert "+20.00 %" in page.html
    assert HOSTILE not in page.html
    assert 'id="systematics"' not in fivesigma.report(cascade, test_events, n_boot=10).html


def test_categories_have_a_place(cascade: Any, test_events: Events) -> None:
    scored = fivesigma.ScoredEvents.of(cascade, test_events)
    three = fivesigma.categorise(scored, n_categories=3)
    page = fivesigma.report(cascade, test_events, categories=three, cross_fitted=1.2345, n_boot=50).html
    table = re.search(r'<table id="table-categories">.*?</table>', page, re.DOTALL)
    assert table is not None
    assert table[0].count("<tr>") == 4
    assert '<b id="cross-fitted">1.234</b>' in page or '<b id="cross-fitted">1.235</b>' in page
    assert f"<b>{three.significance:.3f}</b> σ on the very events that chose them" in page
    assert '<a href="#categories">' in page
    assert 'id="categories"' not in fivesigma.report(cascade, test_events, n_boot=50).html


def test_categories_of_several_signals_have_a_place(cascade: Any, test_events: Events) -> None:
    rng = np.random.default_rng(0)
    process = np.repeat(["ggF", "VBF", HOSTILE], 3000)
    x = rng.normal(np.repeat([[1.5, 0.0], [0.0, 1.5], [0.0, 0.0]], 3000, axis=0))
    density = np.column_stack([np.exp(1.5 * x - 1.125), np.ones(9000)])
    found = fivesigma.categorise_scores(
        density / density.sum(axis=1, keepdims=True), process, np.repeat([0.01, 0.005, 0.3], 3000), 2,
        signals=["ggF", "VBF"], processes=["ggF", "VBF", HOSTILE],
    )  # fmt: skip
    page = fivesigma.report(cascade, test_events, categories=found, n_boot=50).html
    assert f"ggF <b>{found.z['ggF']:.3f}</b> σ, VBF <b>{found.z['VBF']:.3f}</b> σ" in page
    assert HOSTILE not in page


def test_bad_categories(cascade: Any, test_events: Events) -> None:
    with pytest.raises(InputError, match="categories must be of categorise or categorise_scores, got list"):
        fivesigma.report(cascade, test_events, categories=[0.5], n_boot=50)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="give categories too"):
        fivesigma.report(cascade, test_events, cross_fitted=1.0, n_boot=50)


def test_sections_of_others_stand_before_the_verdict(cascade: Any, test_events: Events) -> None:
    """Their text is escaped, and the bars of their waterfall belong to their numbers."""
    section = Section(
        "expected",
        "What <b> is expected",
        headline=("2.345", "σ & more"),
        text=("first", "<i>second</i>"),
        waterfall=[("known background", 4.0), ("JES", 3.0), ("simulation", 2.0)],
        tables=(("normalisation", ("process", "factor"), [("ttbar", "0.5")]),),
        notes=("careful",),
    )
    page = fivesigma.report(cascade, test_events, sections=[section], n_boot=10).html
    found = page[page.index('<section id="expected">') : page.index('<section id="verdict">')]
    assert '<a href="#expected">What &lt;b&gt; is expected</a> <a href="#verdict">' in page
    for text in (
        '<b id="expected-value">2.345</b> <span>σ &amp; more</span>',
        "&lt;i&gt;second&lt;/i&gt;",
        "margin-left:75.00%;width:25.00%",
        '<td id="expected-waterfall-fitted">2.000</td>',
        "<td>ttbar</td><td>0.5</td>",
        "<b>note:</b> careful",
    ):
        assert text in found
