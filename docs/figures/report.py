"""Draw the pictures of the report in the README and on the first page: ``python docs/figures/report.py``.

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
WIDTH, HEIGHT = 1180, 1340


def write_report(folder: Path) -> Path:
    """Train a short cascade and its plain baseline on the toy, and report on events that neither has seen."""
    train, test = make_htautau(200_000, random_state=0).split(0.5, random_state=0)
    trees = {"n_trees": 30, "params": {"learning_rate": 0.1, "max_depth": 6}, "b_reg": 10, "random_state": 0}
    model = fivesigma.GrownCascadeClassifier(**trees).fit(train)
    plain = fivesigma.GrownCascadeClassifier(**trees, cascade=False).fit(train)
    page = fivesigma.report(model, test, baseline=plain, trained_on=train, title="H → ττ, a toy")
    return page.write(folder / "report.html")


def photograph(page: Path, profile: Path) -> None:
    """Take a picture of the top of the page for each theme."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"):
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        for scheme in ("light", "dark"):
            feature = {"name": "prefers-color-scheme", "value": scheme}
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
            browser.get(page.as_uri())
            picture = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
            (HERE / f"report-{scheme}.png").write_bytes(base64.b64decode(picture["data"]))
    finally:
        browser.quit()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        photograph(write_report(Path(folder)), Path(folder, "profile"))
