"""``--systematic`` of scan, categorise and report: variations from files, and normalisations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from fivesigma import Normalisation, ScoredEvents, Varied, categorise, discovery_significance, scan
from fivesigma.cli import main
from fivesigma.likelihood.shifts import Systematics

polars = pytest.importorskip("polars")

N = 8_000


def events(seed: int, shift: float = 0.0, scale: float = 1.0, n: int = N) -> ScoredEvents:
    """Two Gaussians with two backgrounds."""
    rng = np.random.default_rng(seed)
    signal = np.arange(n) % 2 == 1
    process = np.where(signal, "H", np.where(np.arange(n) % 4 == 0, "Z", "ttbar"))
    weight = scale * np.where(signal, 100.0, 8_000.0) * 2 / n * rng.gamma(8.0, size=n) / 8
    return ScoredEvents(rng.normal(1.5 * signal) + shift, signal, weight, process=process, classes=("b", "s"))


def some(scored: ScoredEvents, rows: Any) -> ScoredEvents:
    score, signal, weight = scored.arrays()
    assert scored.process is not None
    return ScoredEvents(score[rows], signal[rows], weight[rows], process=scored.process[rows], classes=("b", "s"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nominal and varied events; the varied ones to quote are other events, of one process alone."""
    out = tmp_path_factory.mktemp("scores")
    made = {"nominal": events(0), "up": events(0, 0.06), "down": events(0, -0.04), "test": events(1)}
    for name, seed, shift in (("test_up", 2, 0.06), ("test_down", 3, -0.04)):
        other = events(seed, shift, n=6_000)
        made[name] = some(other, other.process == "ttbar")
    made["triple"] = events(0, scale=3.0)
    for name, scored in made.items():
        scored.write(out / f"{name}.parquet")
    return out


def run(*words: Any) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def asked(folder: Path) -> list[Any]:
    return ["--systematic", f"JES={folder}/up.parquet,{folder}/down.parquet", "--systematic", "top=6%@ttbar"]


def read(folder: Path, name: str) -> ScoredEvents:
    return ScoredEvents.read(folder / f"{name}.parquet")


def test_a_measurement_is_that_of_the_library(folder: Path) -> None:
    nominal, test = read(folder, "nominal"), read(folder, "test")
    top: Systematics = {"top": Normalisation("ttbar", 0.06)}
    expected = categorise(nominal, n_categories=3, goal="measurement", systematics=top)
    words = ["categorise", folder / "nominal.parquet", "-k", 3, "--systematic", "top=6%@ttbar", "--goal", "measurement"]
    words += ["--replicas", 30]
    found = json.loads(run(*words, "--json").stdout)
    assert "significance" not in found
    assert found["uncertainty"] == expected.uncertainty
    low, high = found["uncertainty_interval"]
    assert low < expected.uncertainty < high
    quoted = run(*words, "--quote", folder / "test.parquet")
    assert f"uncertainty  {expected.evaluate(test, systematics=top).uncertainty:.4f}" in quoted.stdout


def own(scored: ScoredEvents) -> Varied:
    score, signal, weight = scored.arrays()
    return Varied(score, weight, signal, scored.process)


def test_scan_is_that_of_the_library(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    nominal = read(folder, "nominal")
    given: Systematics = {
        "JES": (own(read(folder, "up")), own(read(folder, "down"))),
        "top": Normalisation("ttbar", 0.06),
    }
    expected = scan(nominal, systematics=given)
    words = ["scan", folder / "nominal.parquet", *asked(folder), "--replicas", 30]
    found = json.loads(run(*words, "--json").stdout)
    assert (found["cut"], found["significance"]) == (expected.cut, expected.significance)
    assert found["systematics"] == ["JES", "top"]
    assert found["known_background"] == expected.known_background > found["significance"]
    assert found["rule"] == "model"
    done = run(*words, "--plot", tmp_path / "scan.png", "--systematic", "H=5%@H")
    assert done.exit_code == 0, done.output
    assert f"over JES, top, H; {expected.known_background:.4f} if b were known" in done.stdout
    assert "note: systematic 'H' moves no background: it does not change the discovery significance" in done.stderr
    assert (tmp_path / "scan.png").stat().st_size > 1000


@pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning")
def test_categorise_is_that_of_the_library(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyhf")
    nominal = read(folder, "nominal")
    given: Systematics = {
        "JES": (own(read(folder, "up")), own(read(folder, "down"))),
        "top": Normalisation("ttbar", 0.06),
    }
    expected = categorise(nominal, n_categories=3, systematics=given)
    words = ["categorise", folder / "nominal.parquet", "-k", 3, *asked(folder), "--replicas", 20]
    done = run(*words, "--json")
    found = json.loads(done.stdout)
    assert found["edges"][1:-1] == expected.edges[1:-1].tolist()
    assert found["significance"] == expected.significance
    assert (found["bound"], found["gap"]) == (expected.bound, expected.gap)
    done = run(*words, "--mc-statistics", "--pyhf", tmp_path / "whole.json")
    assert "profiled over JES, top, simulation" in done.stdout
    quoted = categorise(nominal, n_categories=3, systematics=given, mc_statistics=True)
    fitted = discovery_significance(json.loads((tmp_path / "whole.json").read_text()), quoted.pulls)
    assert fitted == pytest.approx(quoted.significance, abs=1e-6)


def test_other_events_are_quoted_with_their_own_variations(folder: Path) -> None:
    test = read(folder, "test")
    words = ["categorise", folder / "nominal.parquet", "-k", 3, *asked(folder), "--quote", folder / "test.parquet"]
    words += ["--replicas", 20, "--json"]
    done = run(*words)
    assert done.exit_code == 2
    assert "give those of the events to quote with --quote-systematic JES=UP,DOWN" in done.stderr
    files = f"{folder}/test_up.parquet,{folder}/test_down.parquet"
    found = json.loads(run(*words, "--quote-systematic", f"JES={files}").stdout)
    nominal = read(folder, "nominal")
    given: Systematics = {
        "JES": (own(read(folder, "up")), own(read(folder, "down"))),
        "top": Normalisation("ttbar", 0.06),
    }
    up, down = (own(ScoredEvents.read(folder / f"test_{side}.parquet", like=test)) for side in ("up", "down"))
    expected = categorise(nominal, n_categories=3, systematics=given).evaluate(
        test, systematics={"JES": (up, down), "top": Normalisation("ttbar", 0.06)}
    )
    assert found["significance"] == expected.significance
    assert found["held_out"] is True


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--systematic", "JES"], 2, "--systematic 'JES' is not of the form NAME=UP,DOWN or NAME=SIZE%@PROCESS"),
        (["--systematic", "JES=a,b,c"], 2, "has 3 files; give one for up, and one for down"),
        (["--systematic", "top=free"], 2, "names no process; write top=free@PROCESS"),
        (["--systematic", "a=up.parquet@Z"], 1, "a file of scores knows its processes; leave @Z out"),
        (["--systematic", "top=1.2.3%@Z"], 2, "'1.2.3' is not a number"),
        (["--systematic", "a=1%@Z", "--systematic", "a=2%@Z"], 2, "names 'a' twice"),
        (["--systematic", "top=6%@tbar"], 1, "of which there are no events; did you mean 'ttbar'"),
        (["--systematic", "JES=upp.parquet"], 1, "there is no file upp.parquet"),
        (["--systematic", "x=triple.parquet"], 1, "x up moves the background from"),
        (["--systematic", "x=up.parquet", "--yields", "5", "100"], 1, "--yields cannot scale the events of --sys"),
        (["--quote-systematic", "x=up.parquet"], 2, "--quote-systematic needs --quote SCORES"),
        (["--quote", "test.parquet", "--quote-systematic", "x=up.parquet"], 2, "'x', which no --systematic does"),
        (["--systematic", "weight_*_up"], 1, "'weight_*_up' is a pattern of branches"),
        (["--systematic", "top=6%@ttbar", "--stream"], 2, "--systematic needs all events in memory"),
        (["--goal", "measurement", "--stream"], 2, "--goal measurement needs all events in memory"),
    ],
)
def test_bad_options_get_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, sentence: str
) -> None:
    monkeypatch.chdir(folder)
    done = run("categorise", "nominal.parquet", "-k", "2", *words)
    assert done.exit_code == code
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_labels_of_a_variation_are_those_of_the_nominal_events(folder: Path, tmp_path: Path) -> None:
    nominal = read(folder, "nominal")
    path = tmp_path / "one.parquet"
    polars.DataFrame({"score": [0.5, 0.6], "label": ["b", "b"], "weight": [1.0, 2.0]}).write_parquet(path)
    assert ScoredEvents.read(path, like=nominal).arrays()[1].tolist() == [False, False]
    polars.DataFrame({"score": [0.5], "label": ["t"], "weight": [1.0]}).write_parquet(path)
    done = run("scan", folder / "nominal.parquet", "--systematic", f"x={path}")
    assert "column 'label' of one.parquet holds 't'; the nominal events have ['b', 's'] (systematic 'x')" in done.stderr
