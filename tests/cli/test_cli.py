"""The command ``fivesigma``, as a user meets it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import fivesigma
from fivesigma.cli import main
from fivesigma.cut.bootstrap import Paired
from fivesigma.datasets import Events, load_events, make_htautau, write_events

pytest.importorskip("xgboost")
pytest.importorskip("lightgbm")
pytest.importorskip("skops")
pl = pytest.importorskip("polars")
pytest.importorskip("uproot")

ROOT = Path(__file__).parents[2]
HIGGSML = ("higgsml", "higgsml fetch", "higgsml simulate", "higgsml score", "higgsml reproduce")
COMMANDS = (
    "demo",
    "train",
    "predict",
    "score",
    "scan",
    "categorise",
    "categorise-scores",
    "rebin",
    "report",
    "export",
    "env",
    "analyse",
    "fair-universe",
    *HIGGSML,
)
QUICK = ("--trees", "12", "--jobs", "1", "--b-reg", "10")


def cli(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def good(*arguments: object) -> str:
    """Run a command that must succeed; return what it printed to stdout."""
    result = cli(*arguments)
    assert result.exit_code == 0, result.stderr or result.exception
    return result.stdout


def bad(*arguments: object) -> str:
    """Run a command that must fail as a user's error: one line on stderr and nothing on stdout."""
    result = cli(*arguments)
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit), "a traceback"
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def shell(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fivesigma", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def halves() -> tuple[Events, Events]:
    events = make_htautau(6000, random_state=5)
    return events[:4000], events[4000:]


@pytest.fixture(scope="module")
def folder(halves: tuple[Events, Events], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Events in three formats, a model and its scores."""
    out = tmp_path_factory.mktemp("cli")
    for ending in (".csv", ".parquet", ".root"):
        write_events(halves[0], out / f"train{ending}")
        write_events(halves[1], out / f"test{ending}")
    good("train", out / "train.parquet", "-o", out / "model", "--process", "Process", *QUICK)
    good("predict", out / "model", out / "test.parquet", "-o", out / "scores.parquet")
    return out


class TestFrontDoor:
    def test_version_imports_nothing_heavy(self) -> None:
        code = (
            "import sys\nfrom fivesigma.cli import main\n"
            "try:\n    main(['--version'])\nexcept SystemExit:\n    pass\n"
            "print([m for m in ('numpy', 'sklearn', 'scipy', 'polars', 'rich', 'matplotlib') if m in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        assert done.stdout == f"fivesigma {fivesigma.__version__}\n[]\n"

    @pytest.mark.parametrize("flag", ["-h", "--help"])
    @pytest.mark.parametrize("command", ["", *COMMANDS])
    def test_help_has_an_example(self, command: str, flag: str) -> None:
        text = good(*command.split(), flag)
        assert "Example: fivesigma" in text
        assert "Usage: " in text

    @pytest.mark.parametrize("arguments", [["trian"], ["train"], ["score"], ["scan", "x.csv", "--replicas", "no"]])
    def test_wrong_usage_is_2(self, arguments: list[str]) -> None:
        assert cli(*arguments).exit_code == 2

    def test_models_and_libraries_are_those_of_the_library(self) -> None:
        from fivesigma.cli.train import _CHOICES, MODELS
        from fivesigma.estimators import auto, make

        assert tuple(make.MODELS) == MODELS
        assert auto.CHOICES == _CHOICES

    def test_env(self) -> None:
        lines = good("env").splitlines()
        assert f"fivesigma     {fivesigma.__version__}" in lines
        assert f"numpy         {np.__version__}" in lines
        assert any(line.startswith("platform") for line in lines)

    def test_env_lists_every_extra_of_pyproject_with_what_it_adds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import tomllib
        from importlib import metadata

        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras: dict[str, list[str]] = project["optional-dependencies"]

        def added(extra: str) -> set[str]:
            names: set[str] = set()
            for requirement in extras[extra]:
                name, others = re.match(r"([\w-]+)(?:\[([\w,]+)\])?", requirement).groups()  # type: ignore[union-attr]
                names |= set().union(*map(added, others.split(","))) if name == "fivesigma" else {name}
            return names

        shown = dict(line.split("]", 1) for line in good("env").splitlines() if line.startswith("["))
        assert shown.keys() == {f"[{extra}" for extra in extras if extra != "all"}
        for extra, text in shown.items():
            assert {each.split()[0] for each in text.split(", ")} == added(extra[1:])
        # Of XGBoost it has the smaller build, and CatBoost is asked for by name.
        assert added("all") == set().union(*(added(extra[1:]) for extra in shown)) - {
            "xgboost",
            "catboost",
            "fsspec-xrootd",
        }

        def missing(name: str) -> str:
            raise metadata.PackageNotFoundError(name)

        monkeypatch.setattr(metadata, "version", missing)
        assert "[root]        uproot not installed" in good("env").splitlines()

    def test_interrupted_anywhere(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        def interrupt(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("fivesigma.datasets.load.load_events", interrupt)
        result = cli("train", folder / "train.csv", "-o", folder / "never")
        assert (result.exit_code, result.stdout, result.stderr) == (130, "", "interrupted\n")

    def test_a_full_disk_is_one_line(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device", "scores.csv")

        monkeypatch.setattr(pl.LazyFrame, "sink_csv", full)
        assert "No space left" in bad("predict", folder / "model", folder / "test.csv", "-o", folder / "never.csv")
        assert not (folder / "never.csv").exists()
        assert not list(folder.glob(".*")), "something was left behind"

    def test_warnings_are_one_line_each(self, folder: Path, tmp_path: Path) -> None:
        done = shell("scan", small_scores(tmp_path))
        assert done.returncode == 0
        first, second = done.stderr.splitlines()
        assert first.startswith("warning: the background has ")
        assert second.startswith("warning: signal has ")


def small_scores(folder: Path) -> Path:
    """Scores of so few events that a warning is due."""
    path = folder / "small.csv"
    rows = [f"{k},{k / 40},{str(k > 30).lower()},{'sb'[k % 3 > 0]},1.0" for k in range(40)]
    path.write_text("id,score,selected,label,weight\n" + "\n".join(rows) + "\n")
    return path


@pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")
def test_categorise_quotes_other_events_and_writes_a_workspace(folder: Path, tmp_path: Path) -> None:
    good("predict", folder / "model", folder / "train.parquet", "-o", tmp_path / "train.csv")
    arguments = (tmp_path / "train.csv", "-k", 2, "--yields", 692, 411000, "--replicas", 20)
    found = json.loads(good("categorise", *arguments, "--quote", folder / "scores.parquet", "--json"))
    own = json.loads(good("categorise", *arguments, "--json"))
    assert len(found["s"]) == len(found["b"]) == 2
    assert found["edges"] == own["edges"]
    assert found["held_out"]
    assert not own["held_out"]
    assert found["significance"] == pytest.approx(np.sqrt(sum(fivesigma.AMS2().value(found["s"], found["b"]) ** 2)))
    assert "significance" in good("categorise", *arguments, "--pyhf", tmp_path / "workspace.json")
    workspace = json.loads((tmp_path / "workspace.json").read_text())
    assert {s["name"] for s in workspace["channels"][0]["samples"]} >= {"ztautau", "ttbar"}
    assert "is there already" in bad("categorise", *arguments, "--pyhf", tmp_path / "workspace.json")
    good("categorise", *arguments, "--combine", tmp_path / "cards")
    assert "autoMCStats" in (tmp_path / "cards" / "datacard.txt").read_text()
    assert "holds a datacard already" in bad("categorise", *arguments, "--combine", tmp_path / "cards")
    good("categorise", *arguments, "--combine", tmp_path / "cards", "--force")
    assert cli("categorise", tmp_path / "train.csv", "-k", "many").exit_code == 2


def test_report_is_written_and_knows_training_events(folder: Path, tmp_path: Path) -> None:
    good("report", folder / "model", folder / "test.parquet", "-o", tmp_path / "test.html", "--replicas", 20)
    good("report", folder / "model", folder / "train.parquet", "-o", tmp_path / "train.html", "--replicas", 20)
    pages = [(tmp_path / name).read_text() for name in ("test.html", "train.html")]
    assert all(page.lower().startswith("<!doctype html>") for page in pages)
    assert "trained on" in pages[1].lower()
    assert "is there already" in bad("report", folder / "model", folder / "test.parquet", "-o", tmp_path / "test.html")


def test_three_formats_give_identical_scores(folder: Path, tmp_path: Path) -> None:
    """End to end, one of them from the shell."""
    scores, printed = [], []
    for ending in (".csv", ".parquet", ".root"):
        model, out = tmp_path / f"model{ending[1:]}", tmp_path / f"scores-{ending[1:]}.csv"
        train = ("train", folder / f"train{ending}", "-o", model, "--process", "Process", "--model", "grown", *QUICK)
        for run in (train, ("predict", model, folder / f"test{ending}", "-o", out)):
            if ending == ".root":
                done = shell(*run)
                assert (done.returncode, done.stderr) == (0, "")
                said = done.stdout
            else:
                said = good(*run)
            if run is train:
                taken = ", ".join(load_events(folder / f"train{ending}", process="Process").feature_names)
                assert f"features: {taken}\n" in said
        scores.append(out.read_bytes())
        printed.append(json.loads(good("score", out, "--b-reg", 10, "--json")))
    assert scores[0] == scores[1] == scores[2]
    assert printed[0] == printed[1] == printed[2]
    assert printed[0]["significance"] > 0.5


class TestTrain:
    def test_the_model_is_what_the_library_trains(self, folder: Path, halves: tuple[Events, Events]) -> None:
        train, test = halves
        model = fivesigma.load(folder / "model")
        assert model.columns_["features"] == train.feature_names
        again = fivesigma.AutoClassifier(n_trees=12, b_reg=10.0, random_state=0, n_jobs=1, pos_label="s").fit(train)
        np.testing.assert_array_equal(again.predict_proba(test), model.predict_proba(test))
        assert again.cut_ == model.cut_
        assert not (folder / "model.checkpoint").exists()

    def test_notes_on_the_events_are_printed_once(self, folder: Path, tmp_path: Path) -> None:
        run = ("train", folder / "train.parquet", "-o", tmp_path / "model", "--where", "PRI_jet_num > 0")
        result = cli(*run, "--model", "plain", "--trees", 4, "--jobs", 1)
        notes = [line.strip().removeprefix("note: ") for line in result.output.splitlines() if "fail the cut" in line]
        assert len(notes) == len(set(notes)) >= 1

    @pytest.mark.parametrize(
        ("options", "kind", "learner"),
        [
            (["--library", "lightgbm"], "AutoClassifier", "lightgbm"),
            (["--fast", "--library", "histogram", "--folds", "2"], "AutoClassifier", "histogram"),
            (["--model", "grown", "--library", "lightgbm"], "GrownCascadeClassifier", "lightgbm"),
            (["--model", "plain"], "GrownCascadeClassifier", "xgboost"),
            (["--model", "retrained", "--library", "histogram"], "CascadeClassifier", "HistGradientBoosting"),
            (["--model", "retrained", "--library", "lightgbm"], "CascadeClassifier", "LGBMClassifier"),
            (["--model", "retrained"], "CascadeClassifier", "XGBClassifier"),
        ],
    )
    def test_learners(self, folder: Path, tmp_path: Path, options: list[str], kind: str, learner: str) -> None:
        out = tmp_path / "model.zip"
        run = ("train", folder / "train.parquet", "-o", out, "--features", "DER_mass_*", "--utility", "ams3")
        text = good(*run, *options, "--trees", 4, "--jobs", 1)
        assert f"model in {out}" in text
        model = fivesigma.load(out)
        assert type(model).__name__ == kind
        assert learner in repr(getattr(model, "library", None) or model.estimator)
        assert model.n_features_in_ == 4
        assert repr(model.utility_) == "AMS3(b_reg=0.0)"
        assert ("plain" in text) == (kind == "AutoClassifier")
        assert model.cv == (2 if "--folds" in options else 5 if kind == "AutoClassifier" else 0.25)
        if options == ["--model", "plain"]:
            assert all(r.u is None for r in model.history_)
        good("predict", out, folder / "test.root", "-o", tmp_path / "scores.csv")

    def test_config(self, folder: Path, tmp_path: Path) -> None:
        config = tmp_path / "run.toml"
        config.write_text('trees = 3\nb-reg = 7.5\nheld_out = 0.4\nfeatures = ["PRI_*", "DER_mass_MMC"]\nseed = 11\n')
        good("train", folder / "train.csv", "-o", tmp_path / "a", "--config", config, "--jobs", 1, "--seed", 12)
        model = fivesigma.load(tmp_path / "a")
        assert (model.n_trees, model.b_reg, model.cv, model.random_state) == (3, 7.5, 0.4, 12)
        assert model.columns_["features"][-1] == "DER_mass_MMC"
        config.write_text('features = "DER_mass_MMC"\ntrees = 2\n')
        good("train", folder / "train.csv", "-o", tmp_path / "b", "--config", config, "--jobs", 1)
        assert fivesigma.load(tmp_path / "b").n_features_in_ == 1

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("tress = 3", "unknown key 'tress'; did you mean 'trees'"),
            ("force = true", "unknown key 'force'"),
            ("trees = true", "trees cannot be True"),
            ("[models]\ntrees = 3", "unknown key 'models'"),
            ("trees = [1]", "trees cannot be [1]"),
            ("trees = ", "is not TOML"),
        ],
    )
    def test_a_wrong_config(self, folder: Path, tmp_path: Path, text: str, sentence: str) -> None:
        config = tmp_path / "run.toml"
        config.write_text(text)
        assert sentence in bad("train", folder / "train.csv", "-o", tmp_path / "model", "--config", config)
        assert "cannot be read" in bad("train", "x.csv", "-o", tmp_path / "model", "--config", tmp_path / "no.toml")

    def test_signal_labels_and_missing_codes(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        y = np.arange(1000) % 2
        x = rng.normal(size=1000) + y
        frame = pl.DataFrame({"x": x, "hole": np.where(x > 2, -1.0, 2.0), "kind": y + 4, "yield": 1.0 + y})
        frame.write_csv(tmp_path / "events.csv")
        columns = ("--label", "kind", "--weight", "yield", "--missing", "-1", "--trees", 3, "--jobs", 1)
        said = bad("train", tmp_path / "events.csv", "-o", tmp_path / "m", *columns)
        assert "name it with signal= or --signal" in said
        good("train", tmp_path / "events.csv", "-o", tmp_path / "m", *columns, "--signal", "4")
        model = fivesigma.load(tmp_path / "m")
        assert model.classes_.tolist() == [5, 4]
        assert model.columns_["missing"] == -1.0
        good("predict", tmp_path / "m", tmp_path / "events.csv", "-o", tmp_path / "s.csv")
        assert pl.read_csv(tmp_path / "s.csv").columns == ["id", "score", "selected", "label", "weight"]
        assert "signal" in bad("score", tmp_path / "s.csv")
        good("score", tmp_path / "s.csv", "--signal", 4)

    def test_nothing_is_overwritten_without_force(self, folder: Path, tmp_path: Path) -> None:
        run = ("train", folder / "train.csv", "-o", tmp_path / "model", "--trees", 2, "--model", "plain", "--jobs", 1)
        good(*run)
        before = (tmp_path / "model" / "manifest.json").stat().st_mtime_ns
        assert "there already" in bad(*run)
        assert (tmp_path / "model" / "manifest.json").stat().st_mtime_ns == before
        good(*run, "--force")
        assert (tmp_path / "model" / "manifest.json").stat().st_mtime_ns > before

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["nowhere.csv", "-o", "model"], "there is no file nowhere.csv"),
            (["{}/train.csv", "-o", "nowhere/model"], "there is no folder nowhere"),
            (["{}/train.csv", "-o", "model", "--features", "DER_mas_MMC"], "did you mean 'DER_mass_MMC'"),
            (["{}/train.csv", "-o", "model", "--utility", "ams4"], "no utility is called 'ams4'"),
            (["{}/train.csv", "-o", "model", "--model", "grown", "--library", "histogram"], "use 'retrained'"),
            (["{}/train.csv", "-o", "model", "--model", "plain", "--fast"], "--fast is for --model auto"),
            (["{}/train.csv", "-o", "model", "--folds", "3", "--held-out", "0.2"], "exclude each other"),
            (["{}/train.csv", "-o", "model", "--where", "DER_mass_MMC > 1e9"], "passes the cut"),
        ],
    )
    def test_errors(self, folder: Path, tmp_path: Path, arguments: list[str], sentence: str,
                    monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
        monkeypatch.chdir(tmp_path)
        assert sentence in bad("train", *(a.format(folder) for a in arguments), "--jobs", 1)
        assert not list(tmp_path.iterdir())

    @pytest.mark.skipif(os.name == "nt", reason="signals")
    @pytest.mark.parametrize(("model", "trees", "unit"), [("grown", "400", "tree"), ("auto", "25", "fit")])
    def test_an_interrupted_run_goes_on(self, folder: Path, tmp_path: Path, model: str, trees: str, unit: str) -> None:
        run = ["train", str(folder / "train.parquet"), "-o", str(tmp_path / "model"), "--trees", trees, "--jobs", "1"]
        run += ["--model", model, *(["--folds", "3"] if model == "auto" else [])]
        started = subprocess.Popen([sys.executable, "-m", "fivesigma", *run], stdout=-1, stderr=-1, text=True)
        kept = tmp_path / "model.checkpoint" / "checkpoint.json"
        while not kept.exists() and started.poll() is None:
            time.sleep(0.005)
        time.sleep(0.1)  # the old booster is gone by then; Python ignores what is raised while an object is deleted
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=60)
        assert (started.returncode, out) == (130, "")
        assert err.startswith(f"interrupted after {unit} ")
        assert err.count("\n") == 1
        assert not (tmp_path / "model").exists()
        assert "add --resume" in bad(*run)
        good(*run, "--resume")
        assert not kept.parent.exists()
        good(*run[:3], str(tmp_path / "at-once"), *run[4:])
        test = load_events(folder / "test.parquet")
        a, b = (fivesigma.load(tmp_path / name).predict_proba(test) for name in ("model", "at-once"))
        np.testing.assert_array_equal(a, b)


class TestPredict:
    def test_columns(self, folder: Path, halves: tuple[Events, Events]) -> None:
        frame, test = pl.read_parquet(folder / "scores.parquet"), halves[1]
        assert frame.columns == ["id", "score", "selected", "label", "weight", "process"]
        assert frame["id"].to_list() == test.ids.tolist() if test.ids is not None else False
        model = fivesigma.load(folder / "model")
        np.testing.assert_array_equal(frame["score"].to_numpy(), model.predict_proba(test)[:, 1])
        np.testing.assert_array_equal(frame["selected"].to_numpy(), model.predict(test) == "s")
        np.testing.assert_array_equal(frame["weight"].to_numpy(), test.weight)
        assert frame["label"].to_list() == test.y.tolist()

    def test_events_without_labels_in_another_order(self, folder: Path, tmp_path: Path) -> None:
        frame = pl.read_parquet(folder / "test.parquet").drop("Label", "Weight", "Process", "EventId")
        frame.select(reversed(frame.columns)).write_parquet(tmp_path / "data.parquet")
        good("predict", folder / "model", tmp_path / "data.parquet", "-o", tmp_path / "scores.csv")
        found = pl.read_csv(tmp_path / "scores.csv")
        assert found.columns == ["id", "score", "selected"]
        np.testing.assert_array_equal(found["score"], pl.read_parquet(folder / "scores.parquet")["score"])
        assert "no column 'label' in scores.csv" in bad("score", tmp_path / "scores.csv")

    def test_one_class_only(self, folder: Path, tmp_path: Path) -> None:
        pl.read_csv(folder / "test.csv").filter(pl.col("Label") == "b").write_csv(tmp_path / "b.csv")
        good("predict", folder / "model", tmp_path / "b.csv", "-o", tmp_path / "scores.csv", "--label", "none")

    def test_a_model_that_was_fitted_to_a_frame(self, folder: Path, tmp_path: Path) -> None:
        frame = pl.read_parquet(folder / "train.parquet")
        X = frame.select("DER_mass_vis", "DER_mass_transverse_met_lep").to_pandas()
        model = fivesigma.GrownCascadeClassifier(n_trees=3, n_jobs=1).fit(X, frame["Label"].to_numpy())
        fivesigma.save(model, tmp_path / "model")
        good("predict", tmp_path / "model", folder / "test.csv", "-o", tmp_path / "scores.csv")
        test = pl.read_parquet(folder / "test.parquet").select(X.columns).to_pandas()
        np.testing.assert_array_equal(pl.read_csv(tmp_path / "scores.csv")["score"], model.predict_proba(test)[:, 1])

    def test_errors(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "there.csv").write_text("mine")
        run = ("predict", folder / "model", folder / "test.csv", "-o")
        assert "there already" in bad(*run, tmp_path / "there.csv")
        assert (tmp_path / "there.csv").read_text() == "mine"
        good(*run, tmp_path / "there.csv", "--force")
        assert "ends in none of .csv, .parquet" in bad(*run, tmp_path / "scores.txt")
        assert "belong to one ROOT file" in bad(*run, tmp_path / "scores.root")
        assert "there is no saved model" in bad("predict", tmp_path / "no", *run[2:], tmp_path / "s.csv")
        (tmp_path / "x.csv").write_text("a,b\n1,2\n")
        assert "no column" in bad("predict", folder / "model", tmp_path / "x.csv", "-o", tmp_path / "s.csv")


class TestScore:
    def test_at_the_models_cut(self, folder: Path, halves: tuple[Events, Events]) -> None:
        test, model = halves[1], fivesigma.load(folder / "model")
        found = json.loads(good("score", folder / "scores.parquet", "--b-reg", 10, "--json"))
        assert found["significance"] == pytest.approx(model.significance(test), rel=1e-12)
        low, high = found["interval"]
        assert low < found["significance"] < high
        assert found["s"] + found["b"] == pytest.approx(sum(found["processes"].values()))
        text = good("score", folder / "scores.parquet", "--b-reg", 10)
        assert f"significance  {found['significance']:.4f}  [{low:.4f}, {high:.4f}]" in text
        assert "AMS2(b_reg=10.0)" in text

    def test_yields(self, folder: Path, halves: tuple[Events, Events]) -> None:
        test, model = halves[1], fivesigma.load(folder / "model")
        found = json.loads(good("score", folder / "scores.parquet", "--b-reg", 10, "--json", "--yields", 692, 411000))
        wanted = model.significance(test, yields=(692, 411000))
        assert found["significance"] == pytest.approx(wanted, rel=1e-12)

    def test_cut_and_fraction(self, folder: Path) -> None:
        frame = pl.read_parquet(folder / "scores.parquet")
        found = json.loads(good("score", folder / "scores.parquet", "--fraction", 0.25, "--json"))
        assert found["fraction"] == pytest.approx(0.25, abs=0.01)  # equal scores stay together
        again = json.loads(good("score", folder / "scores.parquet", "--cut", found["cut"], "--json"))
        assert again == found
        kept = frame.filter(pl.col("score") >= found["cut"])
        assert found["s"] == pytest.approx(kept.filter(pl.col("label") == "s")["weight"].sum())
        assert cli("score", folder / "scores.parquet", "--cut", 0.5, "--fraction", 0.5).exit_code == 2
        assert "keeps s = 0 and b = 0" in bad("score", folder / "scores.parquet", "--cut", 2)

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            (lambda f: f.drop("weight"), "no column 'weight'"),
            (lambda f: f.drop("selected"), "give --cut or --fraction"),
            (lambda f: f.with_columns(selected=pl.lit("yes")), "must hold true or false"),
            (lambda f: f.with_columns(score=pl.lit(float("nan"))), "not finite in row 1"),
            (lambda f: f.with_columns(label=pl.lit("s")), "must hold two labels; it holds 1"),
            (lambda f: f.head(0), "holds no events"),
        ],
    )
    def test_errors(self, folder: Path, tmp_path: Path, change: Callable[[Any], Any], sentence: str) -> None:
        change(pl.read_parquet(folder / "scores.parquet")).write_parquet(tmp_path / "scores.parquet")
        assert sentence in bad("score", tmp_path / "scores.parquet")


class TestScan:
    def test_json_is_the_librarys(self, folder: Path) -> None:
        frame = pl.read_parquet(folder / "scores.parquet")
        for rule in ("model", "plateau", "peak", "model"):
            run = ("scan", folder / "scores.parquet", "--rule", rule, "--utility", "ams3", "--replicas", 100)
            found = json.loads(good(*run, "--json"))
            score, label, weight = (frame[name].to_numpy() for name in ("score", "label", "weight"))
            best = fivesigma.scan(score, label, weight, fivesigma.AMS3(), rule)
            assert (found["cut"], found["significance"]) == (best.cut, best.significance)
            assert tuple(found["cut_interval"]) == best.interval(n_boot=100).cut

    def test_a_wrong_rule_is_one_line(self, folder: Path) -> None:
        assert "rule must be one of 'model', 'plateau'" in bad("scan", folder / "scores.parquet", "--rule", "best")

    def test_table_and_plot(self, folder: Path, tmp_path: Path) -> None:
        plot = tmp_path / "scan.png"
        text = good("scan", folder / "scores.parquet", "--plot", plot, "--replicas", 50)
        assert "best by model" in text
        assert plot.read_bytes().startswith(b"\x89PNG")
        assert "there already" in bad("scan", folder / "scores.parquet", "--plot", plot)
        good("scan", folder / "scores.parquet", "--plot", plot, "--replicas", 50, "--force")
        assert [p.name for p in tmp_path.iterdir()] == ["scan.png"]


class TestDemo:
    RUN = ("--events", 4000, "--trees", 8, "--jobs", 1)

    def test_demo(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        text = good("demo", *self.RUN)
        out = tmp_path / "fivesigma-demo"
        for word in ("plain", "cascade", "difference", "significance", "Paired difference", "test events"):
            assert word in text
        assert (out / "cascade.png").read_bytes().startswith(b"\x89PNG")
        model = fivesigma.load(out / "model")
        assert len(model.history_) == 8
        scores = pl.read_csv(out / "scores.csv")
        assert len(scores) == 2000
        assert scores.filter(pl.col("label") == "s")["weight"].sum() == pytest.approx(691.98861)
        score = json.loads(good("score", out / "scores.csv", "--b-reg", 10, "--json"))
        assert f"{score['significance']:.3f} [" in text

        # Nobody sees bars here, so a line per step, each with the seconds so far, says what is under way.
        steps = re.findall(r"^\[\d+ s\] (\w+)", text, flags=re.MULTILINE)
        assert steps == ["simulating", "training", "training", "comparing", "making"]

        (out / "mine.txt").write_text("kept by mistake")
        page = (out / "report.html").read_text(encoding="utf-8")
        (again,) = re.findall(r'<pre id="command">fivesigma (.*?)</pre>', page)
        assert "--events 4000 --trees 8 --seed 0 --jobs 1" in again
        good(*again.split())
        times = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC|rounds in [\d.,e-]+ s"
        written = (out / "report.html").read_text(encoding="utf-8")
        assert re.sub(times, "", written) == re.sub(times, "", page), "the page's command writes the same page again"
        assert sorted(p.name for p in tmp_path.iterdir()) == ["fivesigma-demo"]
        assert not (out / "mine.txt").exists(), "an earlier demo is replaced"

    def test_steps_leave_at_once_if_piped_and_are_not_printed_on_a_terminal(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        from fivesigma.demonstration import run_demo

        command = [sys.executable, "-m", "fivesigma", "demo", "-o", str(tmp_path / "a"), *map(str, self.RUN)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "[0 s] simulating 4,000 events\n"
            assert process.poll() is None, "the line came only at the end"
            process.kill()
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        run_demo(tmp_path / "b", n_events=4000, n_trees=2, n_jobs=1)
        assert "simulating" not in capsys.readouterr().out

    def test_only_its_own_folder_is_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").write_text("years of work")
        assert "not of an earlier demo" in bad("demo", "-o", tmp_path, *self.RUN)
        assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]
        assert "there is no folder" in bad("demo", "-o", tmp_path / "a" / "b", *self.RUN)

    @pytest.mark.parametrize(
        ("interval", "verdict"),
        [
            ((0.11, 0.29), "the cascade is ahead on these events, by more than two standard errors"),
            ((-0.29, -0.11), "the plain model is ahead on these events"),
            ((0.05, 0.25), "these events do not tell the two apart"),
        ],
    )
    def test_the_verdict_needs_two_standard_errors(self, interval: tuple[float, float], verdict: str) -> None:
        from fivesigma.demonstration import compare_models

        difference, error = sum(interval) / 2, (interval[1] - interval[0]) / 2
        pair = Paired(3.0, 3.0 + difference, difference, (2.9, 3.1), (2.9, 3.1), interval, error)
        assert verdict in compare_models(pair)


def test_a_weight_and_a_cut_for_each_process(tmp_path: Path) -> None:
    """PROCESS=TEXT is for one process, and any other text for all, also with an equals sign in it."""
    events = make_htautau(6_000)
    for name, rows in (("H", events.is_signal), ("Z", ~events.is_signal)):
        write_events(events[rows], tmp_path / f"{name}.parquet")
    samples = [word for name in "HZ" for word in ("--sample", f"{name}={tmp_path / name}.parquet")]
    words = [*samples, "--signal", "H", "--features", "PRI_tau_pt", "--model", "plain", "--trees", 3, "--jobs", 1]
    own = ["--weight", "H=Weight * 2", "--weight", "Z=Weight", "--where", "H=PRI_jet_num == 1", "--where", "Z=none"]
    good("train", *words, *own, "-o", tmp_path / "model")
    model = fivesigma.load(tmp_path / "model")
    assert model.columns_["weight"] == {"H": "Weight * 2", "Z": "Weight"}
    assert model.columns_["cut"] == {"H": "PRI_jet_num == 1", "Z": None}
    good("predict", tmp_path / "model", *samples, "-o", tmp_path / "s.parquet")
    scored = fivesigma.ScoredEvents.read(tmp_path / "s.parquet", signal="signal")
    one_jet = events.is_signal & (events.column("PRI_jet_num") == 1)
    assert scored.signal is not None
    assert scored.weight is not None
    assert scored.signal.sum() == one_jet.sum()
    np.testing.assert_allclose(scored.weight[scored.signal].sum(), 2 * events.weight[one_jet].sum())
    good("train", *words, "--where", "PRI_jet_num >= 0", "-o", tmp_path / "all")
    assert fivesigma.load(tmp_path / "all").columns_["cut"] == "PRI_jet_num >= 0"
    both = cli("train", *words, "--where", "H=PRI_jet_num == 1", "--where", "PRI_jet_num == 1", "-o", tmp_path / "no")
    assert "as PROCESS=TEXT for each process of --sample" in both.stderr
