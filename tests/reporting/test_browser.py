"""The page in a real browser: no errors, a slider whose numbers are the library's, keyboard, phone, dark, print."""

from __future__ import annotations

import base64
import io
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fivesigma
from fivesigma.datasets import Events
from fivesigma.reporting import Report, Section
from fivesigma.reporting.cuts import usual_utilities, utility_label
from fivesigma.reporting.page import number, share
from fivesigma.reporting.sections import ProfiledPicture, ScorePanel
from fivesigma.yields import yields
from tests.reporting.conftest import B_REG
from tests.reporting.synthetic import Oracle, overlaid, synthetic
from tests.reporting.test_page import HOSTILE

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1100,900"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("no browser: chromium and chromedriver are not installed; as root on Debian, run make browser")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(driver, env={**os.environ}))
    yield found
    found.quit()


@pytest.fixture
def opened(browser: Any, made: Report, tmp_path: Path) -> Iterator[Any]:
    """The browser with the page open; afterwards it must have logged nothing."""
    open_page(browser, made, tmp_path)
    yield browser
    assert browser.get_log("browser") == []


def open_page(browser: Any, report: Report, folder: Path) -> None:
    emulate(browser)
    browser.get(report.write(folder / "report.html").as_uri())


def emulate(browser: Any, *, media: str = "", scheme: str = "light", width: int = 1100) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def slider(browser: Any) -> Any:
    return browser.find_element("id", "cut")


def move_to(browser: Any, row: int) -> None:
    script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
    browser.execute_script(script, slider(browser), row)


def shown(browser: Any) -> dict[str, tuple[float, str]]:
    """The live numbers: what the page holds and what it shows."""
    script = """return [...document.querySelectorAll('[data-live]')].map(
        e => [e.dataset.live, e.dataset.value, e.textContent])"""
    return {key: (float(value or "nan"), text) for key, value, text in browser.execute_script(script)}


def test_slider_shows_what_the_library_computes(opened: Any, made: Report, cascade: Any, test_events: Events) -> None:
    e, c = test_events, made.data.cuts
    p = cascade.predict_proba(e.X)[:, 1]
    total = yields(np.ones(len(e), bool), e.y, e.weight, pos_label="s")
    counting = np.flatnonzero(np.isfinite(c.significance))
    assert shown(opened)["cut"][0] == pytest.approx(cascade.cut_, rel=1e-7)  # it starts at the model's cut
    for row in (c.chosen, int(counting[0]), int(counting[-1]), int(counting[counting.size // 3])):
        move_to(opened, row)
        live = shown(opened)
        kept = yields(p >= c.cut[row], e.y, e.weight, pos_label="s")
        expected = {
            "s": kept.s,
            "b": kept.b,
            "efficiency": kept.s / total.s,
            "background_efficiency": kept.b / total.b,
            "purity": kept.s / (kept.s + kept.b),
            "fraction": float((p >= c.cut[row]).mean()),
            "effective_b": kept.effective_b,
        }
        for utility in usual_utilities(B_REG, float(c.b[c.chosen])):
            expected[f"utility:{utility_label(utility, B_REG)}"] = float(utility.value(kept.s, kept.b))
        assert set(live) == {*expected, "cut"}
        for key, value in expected.items():
            assert live[key][0] == pytest.approx(value, rel=1e-6)
            as_text = share if key in ("efficiency", "background_efficiency", "purity", "fraction") else number
            assert live[key][1] == as_text(live[key][0])  # the page's script and the library write numbers alike


def test_cuts_that_do_not_count_are_dashes(opened: Any, made: Report) -> None:
    tightest = made.data.cuts.cut.size - 1
    assert np.isnan(made.data.cuts.significance[tightest])
    move_to(opened, tightest)
    assert shown(opened)["utility:AMS2"][1] == "–"
    assert "too few background events" in slider(opened).get_attribute("aria-valuetext")


def test_verdict_in_the_page_is_the_librarys(opened: Any, cascade: Any, plain_model: Any, test_events: Events) -> None:
    e = test_events
    cascaded, plain = (m.significance(e.X, e.y, e.weight) for m in (cascade, plain_model))
    headline = opened.find_element("id", "z")
    assert float(headline.get_attribute("data-value")) == pytest.approx(cascaded)
    assert headline.text == f"{cascaded:.3f}"
    assert float(opened.find_element("id", "difference").get_attribute("data-value")) == pytest.approx(cascaded - plain)


def test_keyboard_moves_the_cut(opened: Any, made: Report) -> None:
    from selenium.webdriver.common.keys import Keys

    c, control = made.data.cuts, slider(opened)
    line = "return document.querySelector('#fig-scores .marker line').getAttribute('x1')"
    before = float(opened.execute_script(line))
    control.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert shown(opened)["s"][0] == pytest.approx(c.s[c.chosen + 2], rel=1e-6)
    assert float(opened.execute_script(line)) > before  # the cut moves in the other figures too
    control.send_keys(Keys.ARROW_LEFT)
    assert shown(opened)["s"][0] == pytest.approx(c.s[c.chosen + 1], rel=1e-6)
    control.send_keys(Keys.HOME)
    assert shown(opened)["efficiency"][1] == "100 %"
    opened.find_element("id", "to-best").send_keys(Keys.ENTER)
    assert shown(opened)["cut"][0] == pytest.approx(c.cut[c.best], rel=1e-6)
    opened.find_element("id", "to-chosen").send_keys(Keys.SPACE)
    assert shown(opened)["cut"][0] == pytest.approx(c.cut[c.chosen], rel=1e-6)


def test_dragging_in_the_figure_moves_the_cut(opened: Any, made: Report) -> None:
    from selenium.webdriver import ActionChains

    figure = opened.find_element("css selector", "#fig-significance svg")
    ActionChains(opened).move_to_element_with_offset(figure, 150, 0).click_and_hold().release().perform()
    first = shown(opened)["cut"][0]
    ActionChains(opened).move_to_element_with_offset(figure, -200, 0).click_and_hold().release().perform()
    assert shown(opened)["cut"][0] < first


def test_figures_are_drawn_inside_their_frames(opened: Any) -> None:
    script = """return [...document.querySelectorAll('.plot svg')].map(svg => [
        svg.getAttribute('aria-label'), svg.querySelectorAll('path').length, svg.querySelectorAll('text.title').length,
        [...svg.querySelectorAll('path')].some(p => /NaN|Infinity|undefined/.test(p.getAttribute('d')))])"""
    drawn = opened.execute_script(script)
    assert len(drawn) == 7
    for label, paths, titles, broken in drawn:
        assert label
        assert paths >= 2
        assert titles == 2
        assert not broken


@pytest.mark.parametrize("width", [360, 768, 1400])
def test_no_width_scrolls_sideways(opened: Any, width: int) -> None:
    emulate(opened, width=width)
    opened.refresh()
    assert opened.execute_script("return document.documentElement.scrollWidth") <= width
    overlap = """const f = [...document.querySelectorAll('.plot')].map(e => e.getBoundingClientRect());
        return f.every(r => r.width > 200 && r.right <= innerWidth)"""
    assert opened.execute_script(overlap)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_tables_that_are_too_wide_for_a_phone_show_that_they_scroll(opened: Any, scheme: str) -> None:
    emulate(opened, width=390, scheme=scheme)
    opened.refresh()
    wide = """return [...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).map(
        e => [e.tabIndex, getComputedStyle(e).backgroundImage, getComputedStyle(e).backgroundAttachment,
              e.querySelector('table').id])"""
    boxes = opened.execute_script(wide)
    assert {"comparison", "table-yields"} <= {name for *_, name in boxes}
    for tab, image, attachment, _ in boxes:
        assert tab == 0, "the keyboard cannot scroll it"
        # Shadows that stay at the sides, below covers that move with the table and hide them at its ends.
        assert image.count("linear-gradient") == 4
        assert attachment == "local, local, scroll, scroll"
    # The shadow is there to be seen: the last pixels of the table are darker, or lighter in the dark, than the paper.
    from PIL import Image

    box = opened.find_element("css selector", ".scroll:has(#table-yields)")
    rows = np.asarray(Image.open(io.BytesIO(box.screenshot_as_png)).convert("L"), dtype=float)
    paper = np.median(rows)
    assert abs(np.median(rows[:, -1]) - paper) > 30
    assert abs(np.median(rows[:, 0]) - paper) < 5, "nothing is hidden at the left"
    opened.execute_script("document.querySelector('#table-yields').parentElement.scrollLeft = 1e6")
    rows = np.asarray(Image.open(io.BytesIO(box.screenshot_as_png)).convert("L"), dtype=float)
    assert abs(np.median(rows[:, -1]) - paper) < 5, "the end is reached"
    assert abs(np.median(rows[:, 0]) - paper) > 30


def test_signal_is_a_line_of_its_own_over_the_stack(opened: Any) -> None:
    script = """const paths = [...document.querySelectorAll('#fig-scores g:not(.marker) > path')];
        return paths.slice(-2).map(p => [p.getAttribute('d'), p.style.stroke, p.style.strokeWidth, p.style.fill])"""
    halo, line = opened.execute_script(script)
    assert halo[0] == line[0]
    assert (halo[1], line[1]) == ("var(--paper)", "var(--signal)")
    assert float(halo[2]) > float(line[2]) >= 3
    assert line[3] == "none"


def test_rounds_that_are_not_monitored_do_not_interrupt_the_line(opened: Any) -> None:
    script = """return [...document.querySelectorAll('#fig-rounds g > path')].map(p => p.getAttribute('d'))"""
    held_out, training = opened.execute_script(script)
    assert held_out.count("M") == training.count("M") == 1
    assert training.count("L") >= 4


def test_dark_is_dark_and_print_is_light(opened: Any) -> None:
    def background() -> str:
        return str(opened.execute_script("return getComputedStyle(document.body).backgroundColor"))

    assert background() == "rgb(255, 255, 255)"
    emulate(opened, scheme="dark")
    assert background() == "rgb(20, 24, 28)"
    emulate(opened, scheme="dark", media="print")
    assert background() == "rgb(255, 255, 255)"
    hidden = """return [...document.querySelectorAll('details, nav, button')].every(
        e => getComputedStyle(e).display === 'none')"""
    assert opened.execute_script(hidden)


def test_print_has_a_few_pages(opened: Any) -> None:
    paper = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True}
    pdf = base64.b64decode(opened.execute_cdp_cmd("Page.printToPDF", paper)["data"])
    assert 2 <= pdf.count(b"/Type /Page\n") <= 8


def test_pages_of_other_models_have_no_errors(
    browser: Any, plain_model: Any, test_events: Events, tmp_path: Path
) -> None:
    numbers = replace(synthetic(), importance=None)
    bare = replace(numbers, progress=replace(numbers.progress, series=[], minorants=[], note="none"))
    without_u = fivesigma.report(plain_model, test_events, n_boot=10)
    for report, figures in ((Report(numbers), 8), (Report(bare), 5), (without_u, 5)):
        open_page(browser, report, tmp_path)
        assert len(browser.find_elements("css selector", ".plot svg")) == figures
        assert shown(browser)["cut"][0] == pytest.approx(report.data.verdict.cut, rel=1e-6)
        assert browser.get_log("browser") == []


def test_hostile_names_are_text(browser: Any, cascade: Any, test_events: Events, tmp_path: Path) -> None:
    hostile = replace(test_events, process=np.where(test_events.is_signal, HOSTILE, "background"))
    open_page(browser, fivesigma.report(cascade, hostile, title=HOSTILE, n_boot=10), tmp_path)
    assert browser.title == HOSTILE
    assert browser.find_elements("tag name", "img") == []
    names = browser.execute_script("return [...document.querySelectorAll('.legend span')].map(e => e.textContent)")
    assert HOSTILE in names
    assert browser.get_log("browser") == []


def test_systematics_follow_the_slider(browser: Any, tmp_path: Path) -> None:
    """Both curves and the waterfall, wide and narrow; the numbers are the library's."""
    data = synthetic()
    assert data.systematics is not None
    assert data.cuts.profiled is not None
    for width in (1100, 390):
        open_page(browser, Report(data), tmp_path)
        emulate(browser, width=width)
        browser.refresh()
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        lines = browser.find_elements("css selector", "#fig-systematics svg g path")
        assert len(lines) == 2
        cell = browser.find_element("css selector", "[data-live=profiled]")
        for row in (data.cuts.chosen, data.cuts.best):
            move_to(browser, row)
            assert cell.text == number(data.cuts.profiled[row])
    bars = browser.find_elements("css selector", "#table-waterfall .bar span")
    steps = data.systematics.waterfall
    widths = [bar.size["width"] for bar in bars]
    assert len(widths) == len(steps) + 1
    shares = [1.0, *((before - after) / steps[0][1] for (_, before), (_, after) in pairwise(steps))]
    np.testing.assert_allclose(np.divide(widths[:-1], widths[0]), shares, atol=0.02)
    assert browser.get_log("browser") == []


def test_figures_of_a_section_fit_a_phone_and_stand_side_by_side(browser: Any, made: Report, tmp_path: Path) -> None:
    drawn = io.BytesIO()
    figure = pytest.importorskip("matplotlib.figure").Figure(figsize=(8, 6))
    figure.savefig(drawn, format="png")
    section = Section("more", "More", figures=(("one", drawn.getvalue()), ("two", drawn.getvalue())))
    page = Report(replace(made.data, sections=(section,)))
    for width, rows in ((1100, 1), (390, 2)):
        open_page(browser, page, tmp_path)
        emulate(browser, width=width)
        browser.refresh()
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        tops = "return [...document.querySelectorAll('.album figure')].map(e => e.getBoundingClientRect().top)"
        assert len(set(browser.execute_script(tops))) == rows
    assert browser.get_log("browser") == []


def test_training_events_and_bins_of_a_profiled_score_are_drawn(browser: Any, tmp_path: Path) -> None:
    here = fivesigma.report(Oracle(), overlaid(0), trained_on=overlaid(1), n_boot=5).data
    stack = ScorePanel("score t", ["Z", "W"], np.array([[0.25, 0.5], [0.75, 0.5]]), np.array([True, False]), [], {})
    pair = replace(here, profiled=ProfiledPicture([replace(stack, waterfall=[("a", 2.0), ("b", 1.0)])], {}, []))
    open_page(browser, Report(pair), tmp_path)
    count = "return document.querySelectorAll('#{} {}').length"
    for k, one in enumerate(here.overtraining.classes if here.overtraining else ()):
        shown = int(np.count_nonzero(one.here))
        assert browser.execute_script(count.format(f"fig-overtraining-{k}", "circle")) >= shown > 0
    assert browser.execute_script(count.format("fig-profiled-0", "g path")) == 3  # two backgrounds and the mark
    assert browser.get_log("browser") == []
