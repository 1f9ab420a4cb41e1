"""``fivesigma categorise --signals``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fivesigma.cli import main
from tests.regions.toys import PROCESSES, Events, gaussians


def write(path: Path, events: Events) -> Path:
    polars = pytest.importorskip("polars")
    columns = {f"score_{name}": events.scores[:, i] for i, name in enumerate(PROCESSES)}
    polars.DataFrame({**columns, "process": events.process, "weight": events.weight}).write_csv(path)
    return path


def test_several_signals(tmp_path: Path) -> None:
    tune, test = (write(tmp_path / f"{seed}.csv", gaussians(n=1500, seed=seed)) for seed in (1, 2))
    workspace = tmp_path / "workspace.json"
    command = ["categorise", str(tune), "--signals", "ggF,VBF", "-k", "3", "--quote", str(test)]
    done = CliRunner().invoke(main, [*command, "--pyhf", str(workspace), "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.output)
    assert set(result["z"]) == {"ggF", "VBF"}
    assert result["held_out"] is True
    assert len(json.loads(workspace.read_text())["measurements"]) == 2
    assert "3 categories by" in CliRunner().invoke(main, command).output


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--signals", "ggF,VBF"], "'auto' is not a number"),
        (["--signals", "ggH", "-k", "2"], "signal 'ggH' is not a process"),
    ],
)
def test_bad_options(tmp_path: Path, options: list[str], sentence: str) -> None:
    tune = write(tmp_path / "tune.csv", gaussians(n=300))
    done = CliRunner().invoke(main, ["categorise", str(tune), *options])
    assert done.exit_code != 0
    assert sentence in done.output + str(done.exception)
