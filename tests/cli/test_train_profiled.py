"""``fivesigma train --systematic``: the score that knows the systematics, from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import fivesigma
from fivesigma import Normalisation, ProfiledClassifier
from fivesigma.cli import main
from fivesigma.datasets import load_events, write_events
from tests.estimators.test_profiled import shift, toy

pytest.importorskip("xgboost")
QUICK = ("--trees", "10", "--jobs", "1", "--process", "Process", "--folds", "2")
FILES = ("up.parquet", "down.parquet")


def train(folder: Path, name: str, *options: object) -> Result:
    words = ["train", folder / "nominal.parquet", "-o", folder / name, *QUICK, *options]
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("profiled")
    events = toy(1000)
    for name, by in (("nominal", 0.0), ("up", 0.2), ("down", -0.2)):
        write_events(shift(events, by), out / f"{name}.parquet")
    return out


def test_the_model_is_what_the_library_trains(folder: Path) -> None:
    up, down = (folder / name for name in FILES)
    result = train(folder, "model", "--systematic", f"shift={up},{down}", "--systematic", "Z=10%@Z")
    assert result.exit_code == 0, result.output
    assert "ProfiledClassifier: the " in result.stdout
    assert "these events chose cut and pulls" in result.stdout
    model = fivesigma.load(folder / "model")
    assert isinstance(model, ProfiledClassifier)
    nominal, *moved = (load_events(folder / f, process="Process") for f in ("nominal.parquet", *FILES))
    again = ProfiledClassifier(model.estimator, cv=2, random_state=0, n_jobs=1)
    again.fit(nominal, systematics={"shift": (moved[0], moved[1]), "Z": Normalisation("Z", 0.1)})
    assert again.pulls_ == model.pulls_
    np.testing.assert_array_equal(again.decision_function(nominal), model.decision_function(nominal))


def test_a_measurement_has_its_own_score(folder: Path) -> None:
    result = train(folder, "measured", "--systematic", "Z=10%@Z", "--goal", "measurement")
    assert result.exit_code == 0, result.output
    assert "held-out uncertainty" in result.stdout
    assert fivesigma.load(folder / "measured").goal == "measurement"
    refused = train(folder, "other", "--goal", "measurement")
    assert refused.exit_code == 1
    assert "--goal measurement needs --systematic" in refused.stderr


def test_other_models_do_not_know_systematics(folder: Path) -> None:
    result = train(folder, "other", "--systematic", "Z=10%@Z", "--model", "grown")
    assert result.exit_code == 1
    assert "--model grown does not know systematics" in result.stderr


def test_another_utility_is_refused(folder: Path) -> None:
    result = train(folder, "other", "--systematic", "Z=10%@Z", "--b-reg", "10")
    assert result.exit_code == 1
    assert "a profiled model maximises the significance of a likelihood with systematics" in result.stderr


def test_events_larger_than_memory_are_refused(folder: Path) -> None:
    words = ["train", folder / "nominal.parquet", "-o", folder / "other", "--systematic", "Z=10%@Z", "--memory", "disk"]
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 1
    assert "--systematic needs all events in memory" in result.stderr
