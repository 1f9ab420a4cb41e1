"""``fivesigma categorise-scores``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fivesigma import categorise_scores
from fivesigma.cli import main
from tests.categories.several_signals.toys import PROCESSES, Events, gaussians


def write(path: Path, events: Events) -> Path:
    polars = pytest.importorskip("polars")
    columns = {f"score_{name}": events.scores[:, i] for i, name in enumerate(PROCESSES)}
    polars.DataFrame({**columns, "process": events.process, "weight": events.weight}).write_csv(path)
    return path


def test_several_signals(tmp_path: Path) -> None:
    tune, test = (write(tmp_path / f"{seed}.csv", gaussians(n=1500, seed=seed)) for seed in (1, 2))
    workspace = tmp_path / "workspace.json"
    command = ["categorise-scores", str(tune), "--signals", "ggF,VBF", "-k", "3", "--quote", str(test)]
    done = CliRunner().invoke(main, [*command, "--pyhf", str(workspace), "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.output)
    assert set(result["z"]) == {"ggF", "VBF"}
    assert result["held_out"] is True
    assert len(json.loads(workspace.read_text())["measurements"]) == 2
    assert "3 categories by" in CliRunner().invoke(main, command).output


def test_goal_floors_and_utility_are_those_of_python(tmp_path: Path) -> None:
    events = gaussians(n=800, seed=4, scatter=0.4)
    tune = write(tmp_path / "tune.csv", events)
    options = ["-k", "2", "--goal", "minimum", "--floor-processes", "Z", "--min-effective", "60", "--keep-all"]
    command = ["categorise-scores", str(tune), "--signals", "ggF, VBF", *options, "--utility", "ams3", "--json"]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    found = categorise_scores(
        *events,
        2,
        signals=["ggF", "VBF"],
        processes=PROCESSES,
        goal="minimum",
        floor_processes=["Z"],
        min_effective=60,
        discard=False,
        utility="ams3",
    )
    assert json.loads(done.output)["goal"] == pytest.approx(found.value, rel=1e-9)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--signals", "ggF,VBF", "-k", "2", "--floor-processes", "ggF"], "floor_processes has the signal 'ggF'"),
        (["--signals", "ggF,VBF", "-k", "9", "--min-effective", "90"], "9 categories do not fit"),
        (["--signals", "ggF,VBF"], "Missing option '-k'"),
        (["-k", "2"], "Missing option '--signals'"),
        (["--signals", "ggH", "-k", "2"], "signal 'ggH' is not a process"),
    ],
)
def test_bad_options(tmp_path: Path, options: list[str], sentence: str) -> None:
    tune = write(tmp_path / "tune.csv", gaussians(n=300))
    done = CliRunner().invoke(main, ["categorise-scores", str(tune), *options])
    assert done.exit_code != 0
    assert sentence in done.output + str(done.exception)
