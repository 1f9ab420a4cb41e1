"""``fivesigma report``."""

from __future__ import annotations

import contextlib
import html
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import fivesigma
from fivesigma.cli.report import report_command
from fivesigma.datasets import Events
from fivesigma.datasets.write import write_events
from fivesigma.reporting import data_hash


@pytest.fixture
def folder(tmp_path: Path, cascade: Any, plain_model: Any, test_events: Events) -> Path:
    pytest.importorskip("polars")
    fivesigma.save(cascade, tmp_path / "model")
    fivesigma.save(plain_model, tmp_path / "plain")
    write_events(test_events, tmp_path / "the events.parquet")
    return tmp_path


def test_writes_a_page_that_says_how(folder: Path, cascade: Any, test_events: Events) -> None:
    words = [f"{folder}/model", f"{folder}/the events.parquet", "-o", f"{folder}/report.html"]
    words += ["--baseline", f"{folder}/plain", "--replicas", "20", "--yields", "691.98861", "410999.84732"]
    result = CliRunner().invoke(report_command, words)
    assert result.exit_code == 0, result.output
    z = cascade.significance(test_events.X, test_events.y, test_events.weight)
    assert f"significance {z:.4f}" in result.stdout
    page = html.unescape((folder / "report.html").read_text(encoding="utf-8"))
    assert f"fivesigma report {folder}/model '{folder}/the events.parquet' -o {folder}/report.html" in page
    assert f"--yields 691.98861 410999.84732 --baseline {folder}/plain --replicas 20 --force" in page
    assert "plain model (baseline)" in page
    assert "htautau_VBF" in page  # the process column was found


def command_in(page: str) -> str:
    (command,) = re.findall(r'<pre id="command">(.*?)</pre>', page, re.DOTALL)
    return html.unescape(command)


def but_for_times(page: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC|rounds in [\d.,e-]+ s", "", page)


def test_the_command_of_a_page_writes_the_same_page_again(folder: Path, train: Events, tmp_path: Path) -> None:
    write_events(train, folder / "training events.parquet")
    words = ["fivesigma", "report", "model", "the events.parquet", "-o", "a page.html", "--baseline", "plain"]
    words += ["--yields", "692.5", "411000.25", "--trained-on", "training events.parquet", "--replicas", "7"]
    words += ["--systematic", "top=6%@ttbar", "--systematic", "W=3%@wjets"]
    words += ["--title", "It's <mine>", "--where", "Weight >= 0", "--process", "Process"]

    def run(command: str) -> str:
        shell = command.replace("fivesigma", f"{shlex.quote(sys.executable)} -m fivesigma", 1)
        done = subprocess.run(shell, shell=True, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = run(shlex.join(words))
    page = (folder / "a page.html").read_text(encoding="utf-8")
    for there in ("plain model (baseline)", data_hash(train), "411,000", "It&#39;s &lt;mine&gt;"):
        assert there in page
    (folder / "a page.html").write_text("something else")
    assert run(command_in(page)) == said
    again = (folder / "a page.html").read_text(encoding="utf-8")
    assert but_for_times(again) == but_for_times(page)


def test_training_events_are_warned_of(folder: Path, test_events: Events) -> None:
    words = [f"{folder}/model", f"{folder}/the events.parquet", "-o", f"{folder}/report.html", "--replicas", "5"]
    result = CliRunner().invoke(report_command, [*words, "--trained-on", f"{folder}/the events.parquet"])
    assert result.exit_code == 0, result.output
    assert "warning: The model was trained on all of these events" in result.stderr


def test_the_call_of_a_page_made_in_python_writes_the_same_page_again(
    cascade: Any, plain_model: Any, train: Events, test_events: Events, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"baseline": plain_model, "trained_on": train, "yields": (692, 411000.25), "n_boot": 9}
    made = fivesigma.report(cascade, test_events, **options, title='a "b"', random_state=3, level=0.5)
    command = made.data.provenance.command
    names = {"fivesigma": fivesigma, "model": cascade, "events": test_events, **options}
    with contextlib.chdir(tmp_path):
        exec(command, {**names, "yields": None, "n_boot": None})
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert but_for_times(page) == but_for_times(made.html)
    assert command_in(page) == command
    plain = fivesigma.report(cascade, test_events, n_boot=1000).data.provenance.command
    assert plain == 'fivesigma.report(model, events).write("report.html")'


def test_warnings_go_to_stderr(folder: Path, cascade: Any, train: Events) -> None:
    cascade.data_hash_ = data_hash(train)
    try:
        fivesigma.save(cascade, folder / "model", force=True)
    finally:
        del cascade.data_hash_
    write_events(train, folder / "train.parquet")
    words = [f"{folder}/model", f"{folder}/train.parquet", "-o", f"{folder}/report.html", "--replicas", "5"]
    result = CliRunner().invoke(report_command, [*words, "--label", "Label", "--process", "none"])
    assert result.exit_code == 0, result.output
    assert "warning: The model was trained on all of these events" in result.stderr
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "--label Label --process none" in page
    assert "htautau_VBF" not in page


def test_errors_are_one_line(folder: Path) -> None:
    run = CliRunner().invoke
    events, out = f"{folder}/the events.parquet", f"{folder}/out.html"
    for words, sentence in (
        ([f"{folder}/none", events, "-o", out], "none"),
        ([f"{folder}/model", f"{folder}/no.parquet", "-o", out], "there is no file"),
        ([f"{folder}/model", events, "-o", f"{folder}/no/out.html"], "there is no folder"),
        ([f"{folder}/model", events, "-o", events], "is there already"),
    ):
        result = run(report_command, [*words, "--replicas", "5"])
        assert result.exit_code == 1
        assert sentence in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert not (folder / "out.html").exists()


def test_systematics_from_files(folder: Path, cascade: Any, test_events: Events) -> None:
    write_events(test_events[::2], folder / "half.parquet")
    words = [f"{folder}/model", f"{folder}/the events.parquet", "-o", f"{folder}/report.html", "--replicas", "10"]
    more = ["--systematic", f"half={folder}/half.parquet", "--systematic", "W=10%@wjets"]
    result = CliRunner().invoke(report_command, [*words, *more])
    assert result.exit_code == 0, result.output
    heavier = test_events.weight * np.where(test_events.process == "wjets", 1.1, 1.0)
    given = {"half": (test_events[::2], None), "W": (heavier, None)}
    steps = cascade.yield_shifts(test_events, None, None, given).waterfall()
    for name, significance in steps:
        assert f"{significance:8.4f}  {name}" in result.stdout
    page = html.unescape((folder / "report.html").read_text(encoding="utf-8"))
    assert f"--systematic half={folder}/half.parquet --systematic W=10%@wjets" in page
    wrong = CliRunner().invoke(report_command, [*words, "--force", "--systematic", "W=10%@wjet"])
    assert "'W' scales the process 'wjet', of which there are no events; did you mean 'wjets'" in wrong.output
