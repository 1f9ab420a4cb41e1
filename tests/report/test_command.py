"""``fivesigma report``."""

from __future__ import annotations

import html
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
    assert f"--baseline {folder}/plain --yields 691.98861 410999.84732" in page
    assert "plain model (baseline)" in page
    assert "htautau_VBF" in page  # the process column was found


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
    assert "W scales the process 'wjet', of which there are no events; did you mean 'wjets'" in wrong.output
