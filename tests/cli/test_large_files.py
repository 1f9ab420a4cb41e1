"""The commands on files that are read chunk by chunk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fivesigma
from fivesigma import ScoredEvents
from fivesigma.datasets import EventStream, load_events, make_htautau, write_events
from tests.cli.test_cli import bad, good

pytest.importorskip("xgboost")
pytest.importorskip("skops")
pl = pytest.importorskip("polars")

QUICK = ("--trees", "5", "--jobs", "1", "--b-reg", "10")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Events in three files, a model trained on them from disk, and its scores."""
    out = tmp_path_factory.mktemp("stream")
    for k in range(3):
        write_events(make_htautau(2_000, random_state=k), out / f"part-{k}.parquet")
    said = good("train", out / "part-*.parquet", "-o", out / "model", "--memory", "disk", *QUICK)
    assert "EventStream: 3 files, 30 features, 6,000 events" in said
    assert "GrownCascadeClassifier: 5 rounds" in said
    for k in range(3):
        good("predict", out / "model", out / f"part-{k}.parquet", "-o", out / f"scores-{k}.parquet")
    good("predict", out / "model", out / "part-*.parquet", "-o", out / "all.parquet")
    return out


def test_training_leaves_the_model_alone(folder: Path) -> None:
    assert not list(folder.glob("model.*"))
    model = fivesigma.load(folder / "model")
    assert (model.memory, model.n_trees_) == ("disk", 5)
    assert model.columns_["label"] == "Label"


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_predict_writes_what_scored_events_write(
    folder: Path, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = EventStream.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "rows", 700)
    pattern = folder / "part-*.parquet"
    good("predict", folder / "model", pattern, "-o", tmp_path / f"streamed{ending}", "--process", "Process")
    model, events = fivesigma.load(folder / "model"), load_events(pattern, process="Process")
    ScoredEvents.of(model, events).write(tmp_path / f"whole{ending}")
    read = pl.read_csv if ending == ".csv" else pl.read_parquet
    one, other = (read(tmp_path / f"{name}{ending}") for name in ("streamed", "whole"))
    assert one.columns == other.columns
    assert one.equals(other)
    assert (tmp_path / f"streamed{ending}.sha256").exists()


def _json(*arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(good(*arguments, "--json", "--b-reg", "10"))
    return found


@pytest.mark.parametrize("more", [(), ("--yields", "692", "411000")])
def test_scan_score_and_categorise_part_by_part(folder: Path, more: tuple[str, ...]) -> None:
    one, several = folder / "all.parquet", folder / "scores-*.parquet"
    whole, streamed = _json("scan", one, *more), _json("scan", several, "--stream", *more)
    assert streamed["cut"] == whole["cut"]
    assert streamed["significance"] == pytest.approx(whole["significance"], rel=1e-12)
    for name in ("significance_interval", "cut_interval"):
        width = whole[name][1] - whole[name][0]
        assert streamed[name] == pytest.approx(whole[name], abs=0.25 * width)
    for choice in ((), ("--cut", "0.51"), ("--fraction", "0.2")):
        whole = _json("score", one, *choice, *more)
        streamed = _json("score", several, "--stream", *choice, *more)
        for name in ("significance", "s", "b", "all_b", "fraction", "effective_b", "events"):
            assert streamed[name] == pytest.approx(whole[name], rel=1e-12), name
        assert streamed["cut"] == whole["cut"]
    whole = _json("categorise", one, "-k", "3", *more)
    streamed = _json("categorise", several, "-k", "3", "--stream", "--quote", several, *more)
    assert streamed["edges"] == whole["edges"]
    assert streamed["significance"] == pytest.approx(whole["significance"], rel=1e-12)


def test_tables_are_printed_too(folder: Path) -> None:
    said = good("scan", folder / "scores-*.parquet", "--stream")
    assert "best by model" in said
    assert "at 68 % (simulation statistics)" in good("score", folder / "scores-*.parquet", "--stream")
    assert "3 categories" in good("categorise", folder / "scores-*.parquet", "-k", "3", "--stream")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--memory", "disk", "--folds", "3"), "--folds needs all events in memory; leave it out with --memory disk"),
        (("--memory", "bins", "--library", "lightgbm"), "--library lightgbm needs all events in memory"),
        (("--memory", "bins", "--model", "retrained"), "--model retrained needs all events in memory"),
        (("--memory", "bins", "--fast"), "--fast needs all events in memory"),
        (("--cache", "x"), "cache is a folder for memory='disk', and memory is 'all'; leave cache out"),
    ],
)
def test_options_that_need_all_events(folder: Path, tmp_path: Path, options: tuple[str, ...], sentence: str) -> None:
    said = bad("train", folder / "part-0.parquet", "-o", tmp_path / "model", *options)
    assert sentence in said
    assert not list(tmp_path.iterdir())


def test_what_a_stream_cannot_draw(folder: Path, tmp_path: Path) -> None:
    assert "rule='smooth' needs every cut" in bad("scan", folder / "scores-*.parquet", "--stream", "--rule", "smooth")
    good("scan", folder / "scores-*.parquet", "--stream", "--plot", tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 1000


def test_a_failed_prediction_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    frame = pl.read_parquet(folder / "part-0.parquet")
    frame.write_parquet(tmp_path / "a.parquet")
    frame.with_columns(pl.lit("s").alias("Label")).write_parquet(tmp_path / "b.parquet")
    frame.with_columns(pl.lit(1).alias("EventId")).write_parquet(tmp_path / "c.parquet")
    before = sorted(path.name for path in tmp_path.iterdir())
    assert "must hold two labels; it holds 's'" in bad(
        "predict", folder / "model", tmp_path / "b.parquet", "-o", tmp_path / "scores.parquet"
    )
    assert "identifiers in 'EventId' must be unique" in bad(
        "predict", folder / "model", tmp_path / "a.parquet", tmp_path / "c.parquet", "-o", tmp_path / "scores.csv"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == before
