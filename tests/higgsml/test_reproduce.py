"""Recipes from events to a table; above all, that nothing of the test sets leaks into what is chosen."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from benchmarks.studies.recipes import whole
from click.testing import CliRunner

from fivesigma import AMS2
from fivesigma.cli import main
from fivesigma.errors import InputError
from fivesigma.higgsml import ChallengeEvents, load, score_submission, write_simulated
from fivesigma.higgsml.data import Census
from fivesigma.higgsml.reproduce import ALL, RECIPES, WITH, WITHOUT, find_recipe, reproduce

N_EVENTS = 6000


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_simulated(tmp_path_factory.mktemp("higgsml") / "events.csv.gz", n_events=N_EVENTS, random_state=1)


@pytest.fixture(scope="module")
def data(file: Path) -> ChallengeEvents:
    return load(file, sample=True)


def run(data: ChallengeEvents, folder: Path, name: str = "paper-ten", **options: Any) -> Any:
    return reproduce(data, find_recipe(name), folder, quick=True, n_jobs=1, **options)


@pytest.fixture(scope="module")
def paper_ten(data: ChallengeEvents, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    folder = tmp_path_factory.mktemp("paper-ten")
    return run(data, folder, seeds=(0, 1)), folder


def test_labels_and_weights_of_the_test_sets_change_no_model_no_cut_and_no_byte(
    data: ChallengeEvents, paper_ten: tuple[Any, Path], tmp_path: Path
) -> None:
    test = np.flatnonzero(np.isin(data.kaggle_set, ["b", "v"]))
    order = np.random.default_rng(0).permutation(test)
    y, weight = data.y.copy(), data.weight.copy()
    y[test], weight[test] = data.y[order], data.weight[order]
    results = run(replace(data, y=y, weight=weight), tmp_path, seeds=(0,))
    before, folder = paper_ten
    assert (tmp_path / "submission.csv").read_bytes() == (folder / "submission.csv").read_bytes()
    boosters = _boosters(tmp_path / "checkpoint-0")
    assert len(boosters) == 10
    assert boosters == _boosters(folder / "checkpoint-0")
    for name in (WITHOUT, WITH, ALL):
        mixed, right = (r.runs[0]["blends"][name] for r in (results, before))
        assert mixed["fraction"] == right["fraction"]
        assert mixed["sets"] != right["sets"]  # the labels did reach the score


def _boosters(folder: Path) -> dict[str, bytes]:
    """Boosters of a checkpoint; the manifests beside them name the folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*.ubj")}


def test_training_labels_do_change_the_submission(
    data: ChallengeEvents, paper_ten: tuple[Any, Path], tmp_path: Path
) -> None:
    train = np.flatnonzero(data.kaggle_set == "t")
    y = data.y.copy()
    y[train] = np.random.default_rng(0).permutation(y[train])
    run(replace(data, y=y), tmp_path, seeds=(0,))
    assert (tmp_path / "submission.csv").read_bytes() != (paper_ten[1] / "submission.csv").read_bytes()


def test_results_are_those_of_the_submission(file: Path, data: ChallengeEvents, paper_ten: tuple[Any, Path]) -> None:
    results, folder = paper_ten
    score = score_submission(folder / "submission.csv", data)
    sets = results.runs[0]["blends"][ALL]["sets"]
    assert score.public is not None
    assert score.private is not None
    assert score.public.ams == pytest.approx(sets["public"]["ams"])
    assert score.private.ams == pytest.approx(sets["private"]["ams"])
    kept = np.genfromtxt(folder / "submission.csv", delimiter=",", dtype=str, skip_header=1)
    chosen = set(kept[kept[:, 2] == "s", 0].astype(int))
    private = data.subset("v")
    selected = np.isin(np.asarray(private.ids), list(chosen))
    s, b = (private.weight[selected & c].sum() for c in (private.is_signal, ~private.is_signal))
    assert sets["private"]["ams"] == pytest.approx(float(AMS2(b_reg=10.0).value(s, b)))


def test_table_and_json_hold_all_blends_and_seeds(paper_ten: tuple[Any, Path]) -> None:
    results, folder = paper_ten
    written = json.loads((folder / "results.json").read_text())
    assert [r["seed"] for r in written["runs"]] == [0, 1]
    assert list(written["runs"][0]["blends"]) == [WITHOUT, WITH, ALL]
    assert written["runs"][0]["blends"][WITHOUT]["sets"]["public"]["gain"] == 0.0
    table = (folder / "table.md").read_text()
    assert "mean ± spread of 2 seeds" in table
    for name in (WITHOUT, WITH, ALL):
        mean = np.mean([r["blends"][name]["sets"]["private"]["ams"] for r in results.runs])
        row = next(line for line in table.splitlines() if line.startswith(f"| {name} |"))
        assert f"{mean:.3f}" in row


def test_an_interrupted_run_goes_on_and_ends_the_same(
    data: ChallengeEvents, paper_ten: tuple[Any, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fivesigma.estimators.grown import GrownCascadeClassifier

    fit, fits = GrownCascadeClassifier._fit_sample, 0

    def third_breaks_off(self: Any, *args: Any) -> Any:
        nonlocal fits
        fits += 1
        if fits == 3:
            raise KeyboardInterrupt
        return fit(self, *args)

    monkeypatch.setattr(GrownCascadeClassifier, "_fit_sample", third_breaks_off)
    with pytest.raises(KeyboardInterrupt):
        run(data, tmp_path, seeds=(0,))
    assert not (tmp_path / "submission.csv").exists()
    run(data, tmp_path, seeds=(0,))
    assert fits == 3 + 8  # the two that were finished are not trained again
    assert (tmp_path / "submission.csv").read_bytes() == (paper_ten[1] / "submission.csv").read_bytes()


@pytest.mark.parametrize("name", ["plain", "paper-full", "best"])
def test_every_recipe_runs(name: str, data: ChallengeEvents, tmp_path: Path) -> None:
    results = run(data, tmp_path, name)
    found = results.runs[0]["blends"]
    assert list(found) == ([WITHOUT, WITH, ALL] if name == "paper-full" else [ALL])
    assert 0.02 < found[ALL]["fraction"] < 0.6
    # Better than keeping everything: it has learned something.
    private = data.subset("v")
    everything = float(
        AMS2(b_reg=10.0).value(*(private.weight[c].sum() for c in (private.is_signal, ~private.is_signal)))
    )
    assert found[ALL]["sets"]["private"]["ams"] > 1.3 * everything


def test_command_prints_the_table(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    arguments = ["higgsml", "reproduce", str(file), "--recipe", "plain", "--sample", "--quick", "-o", str(folder)]
    done = CliRunner().invoke(main, [*arguments, "--jobs", "1"])
    assert done.exit_code == 0, done.output
    assert "private AMS [68 %]" in done.output
    assert {p.name for p in folder.iterdir()} == {"results.json", "table.md", "submission.csv", "checkpoint-0"}


def test_command_refuses_a_folder_that_is_not_its_own(file: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    arguments = ["higgsml", "reproduce", str(file), "--sample", "--quick", "-o", str(tmp_path)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1
    assert "thesis.tex" in done.output
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_command_keeps_the_results_of_another_recipe(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    arguments = ["higgsml", "reproduce", str(file), "--sample", "--quick", "--jobs", "1", "-o", str(folder)]
    assert CliRunner().invoke(main, [*arguments, "--recipe", "plain"]).exit_code == 0
    before = (folder / "results.json").read_bytes()
    done = CliRunner().invoke(main, [*arguments, "--recipe", "paper-ten", "--seed", "1"])
    assert done.exit_code == 1
    assert "holds the results of another run (one plain XGBoost model of 500 trees, 5% of" in done.output
    assert not (folder / "checkpoint-1").exists()
    assert (folder / "results.json").read_bytes() == before
    (folder / "results.json").write_text("[]")
    done = CliRunner().invoke(main, [*arguments, "--recipe", "plain"])
    assert isinstance(done.exception, SystemExit), "a traceback"
    assert "another run" in done.output


@pytest.mark.parametrize("name", ["training.csv", "test.csv"])
def test_events_that_cannot_be_scored_are_refused_before_training(
    name: str, toy_frame: pl.DataFrame, small_census: Census, tmp_path: Path
) -> None:
    training = name == "training.csv"
    kept = pl.col("KaggleSet").is_in(["t"] if training else ["b", "v"])
    frame = toy_frame.filter(kept).with_columns(Weight="KaggleWeight").drop("KaggleSet", "KaggleWeight")
    (frame if training else frame.drop("Weight", "Label")).write_csv(tmp_path / name)
    assert len(load(tmp_path / name)) == sum(small_census.events[k] for k in ("t" if training else "bv"))  # whole files
    arguments = ["higgsml", "reproduce", str(tmp_path / name), "--recipe", "plain", "--quick"]
    done = CliRunner().invoke(main, [*arguments, "-o", str(tmp_path / "out")])
    assert isinstance(done.exception, SystemExit), "a traceback"
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: a recipe needs training events (set t) and test events with labels")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_help_lists_recipes_line_by_line() -> None:
    lines = CliRunner().invoke(main, ["higgsml", "reproduce", "--help"]).output.splitlines()
    assert [line.split()[0] for line in lines if line.strip().startswith(tuple(r.name for r in RECIPES))][:4] == [
        r.name for r in RECIPES
    ]


def test_benchmark_on_real_events_has_the_weights_of_the_file(toy_frame: pl.DataFrame, tmp_path: Path) -> None:
    toy_frame.filter(pl.col("KaggleSet") == "t").write_csv(tmp_path / "t.csv")
    data = load(tmp_path / "t.csv", sample=True)
    assert list(data.sets) == ["t", "b", "v"]  # dealt, and each of them scaled
    part = whole(data)
    assert part.original_weight is not None
    ratio = part.weight / part.original_weight
    for members in (part.is_signal, ~part.is_signal):
        assert np.ptp(ratio[members]) < 1e-9 * ratio[members].max()


def test_recipes_have_names_of_their_own() -> None:
    assert [r.name for r in RECIPES] == ["plain", "paper-ten", "paper-full", "best"]
    with pytest.raises(InputError, match="did you mean 'paper-ten'"):
        find_recipe("paper_ten")
