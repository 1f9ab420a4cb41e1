"""Scores go back to ROOT: entry by entry in the old order, several trees at once, with kept columns or alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fivesigma import CascadePool, GrownCascadeClassifier, ScoredEvents, load, save
from fivesigma.cli import main
from fivesigma.datasets import load_events
from tests.datasets.test_ntuples import CUT, FEATURES, SIGNAL, WEIGHT, make, write

uproot = pytest.importorskip("uproot")
pytest.importorskip("xgboost")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("root")
    for process in ("VH", "ggH", "ttbar"):
        write(out / f"{process}.root", {"Nominal": make(process, 0)}, "ttree")
    with uproot.recreate(out / "two.root") as file:
        for tree, process in (("Nominal", "VH"), ("JES_up", "ttbar")):
            branches = make(process, 0)
            kinds = {k: "var * float64" if k == "jet_pt" else v.dtype for k, v in branches.items()}
            file.mktree(tree, kinds)
            file[tree].extend(branches)
    events = load_events(
        {process: out / f"{process}.root" for process in ("VH", "ggH", "ttbar")},
        signal=SIGNAL,
        weight=WEIGHT,
        cut=CUT,
        features=FEATURES,
        keep=["eventNumber"],
    )
    model = GrownCascadeClassifier(n_trees=3, negative_weights="zero", random_state=0, n_jobs=1, cut=0.5)
    with pytest.warns(UserWarning, match="effective"):
        model.fit(events)
    save(model, out / "model")
    return out


def run(*words: object, code: int = 0) -> str:
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.output


def test_every_entry_of_several_trees(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "scores.root"
    text = run("predict", folder / "model", folder / "two.root", "-o", out, "--keep", "eventNumber")
    assert "400 entries of Nominal scored" in text
    with uproot.open(out) as file:
        for tree, process in (("Nominal", "VH"), ("JES_up", "ttbar")):
            found = file[tree].arrays(library="np")
            np.testing.assert_array_equal(found["eventNumber"], make(process, 0)["eventNumber"])
            assert found["eventNumber"].dtype == np.int64
            assert found["score"].dtype == np.float64
            assert found["selected"].dtype == np.bool_
            assert len(np.unique(found["score"])) > 3
    single = tmp_path / "one.parquet"
    run("predict", folder / "model", folder / "two.root", "-o", single, "--tree", "JES_up", "--where", "none")
    pl = pytest.importorskip("polars")
    with uproot.open(out) as file:
        np.testing.assert_array_equal(pl.read_parquet(single)["score"], file["JES_up"]["score"].array(library="np"))


def test_a_friend_has_the_new_branches_alone(folder: Path, tmp_path: Path) -> None:
    run("predict", folder / "model", folder / "VH.root", "-o", tmp_path / "f.root", "--friend", "--keep", "mBB")
    with uproot.open(tmp_path / "f.root") as file:
        assert set(file["Nominal"].keys()) == {"score", "selected"}


@pytest.mark.parametrize(
    ("files", "words", "sentence"),
    [
        (["VH.root", "ggH.root"], ["x.root"], "belong to one ROOT file; 2 files were given"),
        (["VH.root"], ["x.root", "--where", "mBB > 1"], "leave --where out"),
        (["VH.root"], ["x.csv", "--friend"], "need an output that ends in .root"),
        (["VH.root"], ["x.root", "--tree", "Nominl"], "no tree 'Nominl' in VH.root"),
        (["VH.root"], ["x.root", "--keep", "mass"], "no column 'mass' in VH.root"),
    ],
)
def test_bad_input_gets_one_sentence(
    folder: Path, tmp_path: Path, files: list[str], words: list[str], sentence: str
) -> None:
    paths = [str(folder / name) for name in files]
    output = str(tmp_path / words[0])
    done = CliRunner().invoke(main, ["predict", str(folder / "model"), *paths, "-o", output, *words[1:]])
    assert done.exit_code == 1
    assert sentence in done.output
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")
def test_command_line_and_library_give_the_same_scores(folder: Path, tmp_path: Path) -> None:
    samples = [word for p in ("VH", "ggH", "ttbar") for word in ("--sample", f"{p}={folder / p}.root")]
    columns = ["--signal", "VH,ggH", "--weight", WEIGHT, "--where", CUT]
    features = [word for text in FEATURES for word in ("--features", text)]
    made = ["--folds", 2, "--by", "eventNumber", "--model", "grown", "--trees", 3, "--jobs", 1]
    model = tmp_path / "model"
    run("train", "-o", model, *samples, *columns, *features, *made, "--negative-weights", "zero")
    run("predict", model, folder / "two.root", "-o", tmp_path / "scores.root")
    options: dict[str, Any] = {"signal": SIGNAL, "weight": WEIGHT, "cut": CUT, "features": FEATURES}
    paths = {process: folder / f"{process}.root" for process in ("VH", "ggH", "ttbar")}
    events = load_events(paths, keep=["eventNumber"], **options)
    member = GrownCascadeClassifier(n_trees=3)
    settings: dict[str, Any] = {
        "cv": 2,
        "by": "eventNumber",
        "negative_weights": "zero",
        "random_state": 0,
        "n_jobs": 1,
    }
    with pytest.warns(UserWarning, match="effective"):
        pool = CascadePool([("grown", member)], blend="probability", **settings).fit(events)
    with uproot.open(tmp_path / "scores.root") as file:
        for tree in ("Nominal", "JES_up"):
            wanted = load_events(
                folder / "two.root", tree=tree, features=FEATURES, label=None, weight=None, keep=["eventNumber"]
            )
            assert file[tree]["score"].array(library="np").tobytes() == pool.predict_proba(wanted)[:, 1].tobytes()


@pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning", "ignore:.*effective:UserWarning")
def test_samples_are_scored_for_cuts_and_categories(folder: Path, tmp_path: Path) -> None:
    """Files without labels become scores with labels, weights and processes; varied trees too, of some processes."""
    samples = [word for p in ("VH", "ggH", "ttbar") for word in ("--sample", f"{p}={folder / p}.root")]
    words: list[object] = [*samples, "--signal", "VH,ggH", "--where", CUT]
    none = ["--cross-section", "VH=none", "--cross-section", "ggH=none"]
    norm = ["--luminosity", 10, "--cross-section", "ttbar=3", *none, "--sum-of-weights", "ttbar=h_sumw"]
    features = [word for text in FEATURES for word in ("--features", text)]
    made = ["--model", "grown", "--trees", 3, "--jobs", 1, "--negative-weights", "zero"]
    model = tmp_path / "model"
    run("train", "-o", model, *words, *norm, "--weight", WEIGHT, *features, *made)
    run("predict", model, *words, *norm, "-o", tmp_path / "scores.parquet")
    run("predict", model, *samples[:2], "--signal", "VH", "-o", tmp_path / "signal.parquet")  # one process alone
    varied = ["--sample", f"ttbar={folder / 'two.root'}", "--tree", "JES_up", "--signal", "none", "--where", CUT]
    run("predict", model, *varied, *norm[:4], "--sum-of-weights", "ttbar=1000", "-o", tmp_path / "up.parquet")
    events = load_events(
        {process: folder / f"{process}.root" for process in ("VH", "ggH", "ttbar")},
        signal=SIGNAL,
        weight=WEIGHT,
        cut=CUT,
        features=FEATURES,
        luminosity=10.0,
        cross_section={"VH": None, "ggH": None, "ttbar": 3.0},
        sum_of_weights={"ttbar": "h_sumw"},
    )
    scored, expected = ScoredEvents.read(tmp_path / "scores.parquet"), ScoredEvents.of(load(model), events)
    for found, wanted in zip(scored.arrays(), expected.arrays(), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert scored.process is not None
    np.testing.assert_array_equal(scored.process, events.process)
    up = ScoredEvents.read(tmp_path / "up.parquet", like=scored)
    assert not up.arrays()[1].any()
    words = ["scan", tmp_path / "scores.parquet", "--systematic", f"JES={tmp_path / 'up.parquet'}", "--replicas", 10]
    assert "profiled      over JES" in run(*words)
    refused = run("predict", model, *samples, "--signal", "VH", "--label", "x", "-o", tmp_path / "z.csv", code=1)
    assert "--sample says what an event is" in refused
    refused = run("predict", model, *samples, "--signal", "VH", "-o", tmp_path / "z.root", code=1)
    assert "scores in ROOT files belong to one file each" in refused
    page = tmp_path / "report.html"
    words = ["report", model, *samples, "--signal", "VH,ggH", "--where", CUT, *norm, "-o", page, "--replicas", 10]
    said = run(*words, "--systematic", "top=6%@ttbar")
    assert "known background" in said
    assert "--sample VH=" in page.read_text()
    assert "write --systematic x=a.root@PROCESS" in run(*words, "--force", "--systematic", "x=a.root", code=2)
