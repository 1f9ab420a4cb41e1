"""``fivesigma higgsml``: the whole way from a server to a score."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from fivesigma.cli import main
from fivesigma.higgsml import load, score_submission, write_submission
from tests.higgsml.server import Behaviour, serving


def cli(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["higgsml", *(str(a) for a in arguments)])


def good(*arguments: object) -> str:
    result = cli(*arguments)
    assert result.exit_code == 0, result.stderr or result.exception
    return result.stdout


def bad(*arguments: object) -> str:
    result = cli(*arguments)
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit), "a traceback"
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_simulate_serve_fetch_load_submit_score(tmp_path: Path) -> None:
    made = tmp_path / "made.csv.gz"
    assert good("simulate", made, "--events", 5000, "--seed", 2).strip() == str(made)
    fetched = tmp_path / "fetched.csv.gz"
    with serving(Behaviour(made.read_bytes(), break_after=[50_000, 100_000])) as url:
        assert good("fetch", fetched, "--url", url, "--sample").strip() == str(fetched)
        assert "is not the challenge's file" in bad("fetch", tmp_path / "full.csv.gz", "--url", url)
    assert fetched.read_bytes() == made.read_bytes()
    events = load(fetched, sample=True)
    test = events[events.in_test]
    score = -np.abs(test.column("DER_mass_vis") - 80)
    submission = write_submission(tmp_path / "submission.csv", np.asarray(test.ids), score, cut=-20)
    said = good("score", submission, "--data", fetched, "--sample", "--replicas", 50)
    result = score_submission(submission, fetched, sample=True, n_boot=50)
    assert said == f"{result}\n"
    assert result.private is not None
    assert f"private   {result.private.ams:.5f}" in said
    assert "note: A sample of 5,000 events" in said
    found = json.loads(good("score", submission, "--data", fetched, "--sample", "--replicas", 50, "--json"))
    assert found["private"]["ams"] == result.private.ams
    assert found["public"]["events"] == events.sets["b"]
    assert "--sample" in bad("score", submission, "--data", fetched)
    submission.write_text(submission.read_text().replace(",s\n", ",signal\n", 1))
    assert "Class must be s or b; line " in bad("score", submission, "--data", fetched, "--sample")


def test_the_real_prefix(real_file: Path, tmp_path: Path) -> None:
    events = load(real_file, sample=True)
    test = events[events.in_test]
    mass = np.nan_to_num(np.abs(test.column("DER_mass_MMC") - 125), nan=1e3)
    submission = write_submission(tmp_path / "mass.csv", np.asarray(test.ids), -mass, cut=-22)
    # A window on the mass of +-22 GeV had 1.5445 on the public leaderboard.
    found = json.loads(good("score", submission, "--data", real_file, "--sample", "--json"))
    for name in ("public", "private"):
        low, high = found[name]["interval"]
        assert low - 0.1 < 1.5445 < high + 0.1
    assert found["standing"].startswith("not compared")


def test_outputs_are_not_replaced_unasked(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("mine")
    assert "add --force" in bad("simulate", path, "--events", 1000)
    assert path.read_text() == "mine"
    good("simulate", path, "--events", 1000, "--force")
    assert path.read_text().startswith("EventId,")


@pytest.mark.parametrize(
    "arguments", [["score", "x.csv"], ["simulate"], ["simulate", "x.csv", "--events", "5"], ["tech"]]
)
def test_wrong_usage_is_2(arguments: list[str]) -> None:
    assert cli(*arguments).exit_code == 2


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom fivesigma.cli import main\n"
        "try: main(['higgsml', 'fetch', '--help'])\nexcept SystemExit: pass\n"
        "sys.exit(', '.join(m for m in ('numpy', 'polars', 'urllib.request', 'rich') if m in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
