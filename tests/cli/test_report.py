"""``fivesigma report``."""

from __future__ import annotations

import contextlib
import html
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import fivesigma
from fivesigma.cli import main
from fivesigma.datasets import Events
from fivesigma.datasets.digest import events_digest
from fivesigma.datasets.write import write_events


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
    result = CliRunner().invoke(main, ["report", *words])
    assert result.exit_code == 0, result.output
    z = cascade.significance(test_events.X, test_events.y, test_events.weight)
    assert f"significance {z:.4f}" in result.stdout
    page = html.unescape((folder / "report.html").read_text(encoding="utf-8"))
    assert f"fivesigma report {folder}/model '{folder}/the events.parquet' -o {folder}/report.html" in page
    assert f"--baseline {folder}/plain --replicas 20 --yields 691.98861 410999.84732 --force" in page  # as typed
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
    for there in ("plain model (baseline)", events_digest(train), "411,000", "It&#39;s &lt;mine&gt;"):
        assert there in page
    (folder / "a page.html").write_text("something else")
    assert run(command_in(page)) == said
    again = (folder / "a page.html").read_text(encoding="utf-8")
    assert but_for_times(again) == but_for_times(page)


def test_training_events_are_warned_of(folder: Path, test_events: Events) -> None:
    words = [f"{folder}/model", f"{folder}/the events.parquet", "-o", f"{folder}/report.html", "--replicas", "5"]
    result = CliRunner().invoke(main, ["report", *words, "--trained-on", f"{folder}/the events.parquet"])
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
    cascade.data_hash_ = events_digest(train)
    try:
        fivesigma.save(cascade, folder / "model", force=True)
    finally:
        del cascade.data_hash_
    write_events(train, folder / "train.parquet")
    words = [f"{folder}/model", f"{folder}/train.parquet", "-o", f"{folder}/report.html", "--replicas", "5"]
    result = CliRunner().invoke(main, ["report", *words, "--label", "Label", "--process", "none"])
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
        result = run(main, ["report", *words, "--replicas", "5"])
        assert result.exit_code == 1
        assert sentence in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert not (folder / "out.html").exists()


def test_systematics_from_files(folder: Path, cascade: Any, test_events: Events) -> None:
    write_events(test_events[::2], folder / "half.parquet")
    words = [f"{folder}/model", f"{folder}/the events.parquet", "-o", f"{folder}/report.html", "--replicas", "10"]
    more = ["--systematic", f"half={folder}/half.parquet", "--systematic", "W=10%@wjets"]
    result = CliRunner().invoke(main, ["report", *words, *more])
    assert result.exit_code == 0, result.output
    heavier = test_events.weight * np.where(test_events.process == "wjets", 1.1, 1.0)
    given = {"half": (test_events[::2], None), "W": (heavier, None)}
    steps = cascade.yield_shifts(test_events, None, None, given).waterfall()
    for name, significance in steps:
        assert f"{significance:8.4f}  {name}" in result.stdout
    page = html.unescape((folder / "report.html").read_text(encoding="utf-8"))
    assert f"--systematic half={folder}/half.parquet --systematic W=10%@wjets" in page
    wrong = CliRunner().invoke(main, ["report", *words, "--force", "--systematic", "W=10%@wjet"])
    assert "'W' scales the process 'wjet', of which there are no events; did you mean 'wjets'" in wrong.output


def run_report(*words: object) -> Any:
    return CliRunner().invoke(main, ["report", *map(str, words), "--replicas", "10"])


def test_a_file_of_scores_is_enough(folder: Path, cascade: Any, test_events: Events) -> None:
    fivesigma.ScoredEvents.of(cascade, test_events).write(folder / "scores.parquet")
    result = run_report(folder / "model", folder / "scores.parquet", "-o", folder / "r.html", "--systematic", "lumi=3%")
    assert result.exit_code == 0, result.output
    assert f"significance {cascade.significance(test_events):.4f}" in result.stdout
    moved = fivesigma.Normalisation(sorted(set(map(str, np.asarray(test_events.process)))), 0.03)
    shifts = cascade.yield_shifts(test_events, None, None, {"lumi": moved})
    assert f"{shifts.waterfall()[1][1]:8.4f}  lumi" in result.stdout
    wrong = run_report(
        folder / "model", folder / "scores.parquet", "-o", folder / "s.html", "--baseline", folder / "plain"
    )
    assert "baseline needs the features of the events" in wrong.stderr


def test_one_size_for_all_processes(folder: Path, cascade: Any, test_events: Events) -> None:
    """With a column of processes or without, all yields move together."""
    words = (folder / "model", folder / "the events.parquet", "-o", folder / "r.html", "--systematic", "lumi=3%")
    said = []
    for more in ((), ("--process", "none")):
        result = run_report(*words, *more, "--force")
        assert result.exit_code == 0, result.output
        page = (folder / "r.html").read_text(encoding="utf-8")
        assert '<th scope="row">lumi</th><td>+3.00 %</td><td>-3.00 %</td><td>+3.00 %</td><td>-3.00 %</td>' in page
        said.append(result.stdout)
    assert said[0] == said[1]


def test_a_baseline_may_have_other_features(folder: Path, train: Events, test_events: Events) -> None:
    options: dict[str, Any] = {"n_trees": 10, "b_reg": 10.0, "random_state": 0, "n_jobs": 1}
    few, more = ("DER_mass_MMC", "PRI_tau_pt"), ("PRI_tau_pt", "PRI_met", "DER_mass_vis")
    for name, features in (("few", few), ("more", more)):
        read = fivesigma.load_events(write_events(train, folder / "train.parquet"), features=features)
        fivesigma.save(fivesigma.GrownCascadeClassifier(**options).fit(read), folder / name)
    for model, baseline in (("few", "more"), ("more", "few")):
        files = (folder / model, folder / "the events.parquet", "-o", folder / f"{model}.html")
        result = run_report(*files, "--baseline", folder / baseline, "--trained-on", folder / "train.parquet")
        assert result.exit_code == 0, result.output
        assert f"significance {fivesigma.load(folder / model).significance(test_events):.4f}" in result.stdout
        page = (folder / f"{model}.html").read_text(encoding="utf-8")
        assert f"{fivesigma.load(folder / baseline).significance(test_events):.3f}" in page


def test_samples_have_systematics_of_their_own(tmp_path: Path, train: Events, test_events: Events) -> None:
    """Files by process, nominal and varied, are the events of one file with columns of labels and processes."""
    pytest.importorskip("polars")
    names = ("htautau_ggF", "ttbar", "wjets")
    signal = names[0]

    def of(events: Events, process: str, factor: float, name: str) -> Path:
        chosen = events[np.asarray(events.process) == process]
        moved = replace(chosen, X=np.where(np.isnan(chosen.X), chosen.X, chosen.X * factor).astype(np.float32))
        return write_events(moved, tmp_path / f"{process}_{name}.parquet")

    def samples(events: Events, name: str, factor: float = 1.0) -> dict[str, Path]:
        return {process: of(events, process, factor, name) for process in names}

    there = [name for name in names if (np.asarray(train.process) == name).any()]
    assert there == list(names)
    known: dict[str, Any] = {"signal": [signal], "features": ["DER_*", "PRI_tau_*"], "weight": "Weight"}
    model = fivesigma.GrownCascadeClassifier(n_trees=10, b_reg=10.0, random_state=0, n_jobs=1)
    model.fit(fivesigma.load_events(samples(train, "train"), **known))
    fivesigma.save(model, tmp_path / "model")
    nominal, up, down = (samples(test_events, n, f) for n, f in (("nominal", 1.0), ("up", 1.05), ("down", 0.95)))
    words: list[object] = [tmp_path / "model", "-o", tmp_path / "r.html"]
    words += [word for name in names for word in ("--sample", f"{name}={nominal[name]}")]
    for name in ("ttbar", "wjets"):
        words += ["--systematic", f"JES={up[name]},{down[name]}@{name}"]
    result = run_report(*words)
    assert result.exit_code == 0, result.output
    events = fivesigma.load_events(nominal, **known)
    sides = [fivesigma.load_events({n: s[n] for n in names[1:]}, **known | {"signal": []}) for s in (up, down)]
    sides = [replace(side, signal=events.signal, y=np.full(len(side), model.classes_[0])) for side in sides]
    steps = model.yield_shifts(events, None, None, {"JES": (sides[0], sides[1])}).waterfall()
    assert f"{steps[1][1]:8.4f}  JES" in result.stdout
    assert steps[1][1] < steps[0][1]
    wrong = run_report(*words[:-4], "--systematic", f"JES={up['ttbar']}", "-o", tmp_path / "s.html")
    assert wrong.exit_code == 2
    assert "@PROCESS" in wrong.stderr


def test_the_selection_of_the_training_is_remembered(folder: Path, train: Events, test_events: Events) -> None:
    """And said; --where none takes all events."""
    read = fivesigma.load_events(
        write_events(train, folder / "train.parquet"), features=["PRI_*"], cut="PRI_jet_num >= 1"
    )
    model = fivesigma.GrownCascadeClassifier(n_trees=10, b_reg=10.0, random_state=0, n_jobs=1).fit(read)
    fivesigma.save(model, folder / "jets")
    words = (folder / "jets", folder / "the events.parquet", "-o", folder / "jets.html")
    jets = test_events[test_events.table(["PRI_jet_num"])[:, 0] >= 1]
    for more, events in (((), jets), (("--where", "none"), test_events)):
        result = run_report(*words, "--force", *more)
        assert result.exit_code == 0, result.output
        assert f"significance {model.significance(events):.4f}" in result.stdout
        assert ("note: As in training: cut 'PRI_jet_num >= 1'" in result.stderr) is (not more)
