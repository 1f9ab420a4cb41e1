"""Draw the pictures of docs/guide/report.md: ``python docs/figures/report.py``.

Needs chromium, chromedriver and selenium (``make browser``); takes less than a minute.
"""

from __future__ import annotations

import base64
import shutil
import tempfile
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

import fivesigma
from fivesigma.datasets import make_htautau

HERE = Path(__file__).parent
WIDTH = 1180
SECTIONS = {"verdict": 560, "systematics": 335}  # of the page, each a picture of at most this height


def write_report(folder: Path) -> Path:
    """Train a blend and a plain baseline on the toy, and report with systematics on events that neither has seen."""
    train, test = make_htautau(100_000, random_state=0).split(0.5, random_state=0)
    model = fivesigma.AutoClassifier(n_trees=60, fast=True, random_state=0).fit(train)
    plain = fivesigma.GrownCascadeClassifier(n_trees=60, cascade=False, random_state=0).fit(train)
    names = {"Z": ("ztautau", 0.05), "W": ("wjets", 0.10), "top": ("ttbar", 0.08)}
    systematics = {name: fivesigma.Normalisation(*one) for name, one in names.items()}
    page = fivesigma.report(
        model, test, baseline=plain, trained_on=train, systematics=systematics, title="H → ττ, a toy"
    )
    return page.write(folder / "report.html")


def photograph(page: Path, profile: Path) -> None:
    """Take a picture of each section for each theme."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"):
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        size = {"width": WIDTH, "height": 900, "deviceScaleFactor": 1.5, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        for scheme in ("light", "dark"):
            feature = {"name": "prefers-color-scheme", "value": scheme}
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            browser.get(page.as_uri())
            for section, height in SECTIONS.items():
                box = browser.execute_script(
                    "const b = document.getElementById(arguments[0]).getBoundingClientRect();"
                    "const height = Math.min(b.height, arguments[1]);"
                    "return {x: b.x - 20, y: b.y + window.scrollY, width: b.width + 40, height};",
                    section,
                    height,
                )
                clip = {"format": "png", "captureBeyondViewport": True, "clip": {**box, "scale": 1}}
                picture = browser.execute_cdp_cmd("Page.captureScreenshot", clip)
                (HERE / f"report-{section}-{scheme}.png").write_bytes(base64.b64decode(picture["data"]))
    finally:
        browser.quit()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        photograph(write_report(Path(folder)), Path(folder, "profile"))
