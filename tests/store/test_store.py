"""What is saved comes back the same; what was changed does not come back at all."""

import json
import os
import shutil
import stat
import struct
import subprocess
import sys
import threading
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import fivesigma
from fivesigma import AMS3, CascadeClassifier, FDivergence, GrownCascadeClassifier, OnOff, load, save
from fivesigma._tools.files import name_beside
from fivesigma.errors import InputError, StoreError
from fivesigma.store import archive
from fivesigma.store.archive import render
from fivesigma.store.migrations import FORMAT
from tests.estimators.blobs import make_blobs

xgboost = pytest.importorskip("xgboost")
lightgbm = pytest.importorskip("lightgbm")
pytest.importorskip("skops")

X, y, weight = make_blobs(1500)
GROWN: dict[str, Any] = {"n_trees": 6, "random_state": 3, "n_jobs": 1}
RETRAINED: dict[str, Any] = {"max_rounds": 2, "extra_rounds": 0, "random_state": 3, "n_jobs": 1}


def square(t: NDArray[np.float64]) -> NDArray[np.float64]:
    return t * t / 2


def slope(t: NDArray[np.float64]) -> NDArray[np.float64]:
    return t


MODELS: dict[str, Callable[[], Any]] = {
    "grown-xgboost": lambda: GrownCascadeClassifier(**GROWN, b_reg=10.0, params={"max_depth": 3}),
    "grown-lightgbm": lambda: GrownCascadeClassifier("lightgbm", **GROWN, utility=AMS3(b_reg=2.5)),
    "grown-folds": lambda: GrownCascadeClassifier(**GROWN, cv=StratifiedKFold(2), u_bounds=(0.01, 1.0)),
    "plain": lambda: GrownCascadeClassifier(**GROWN, cascade=False, utility="on-off(3)"),
    "default": lambda: CascadeClassifier(xgboost.XGBClassifier(n_estimators=5), **RETRAINED),
    "lightgbm": lambda: CascadeClassifier(lightgbm.LGBMClassifier(n_estimators=5, verbosity=-1), **RETRAINED),
    "gblinear": lambda: CascadeClassifier(xgboost.XGBClassifier(n_estimators=5, booster="gblinear"), **RETRAINED),
    "histogram": lambda: CascadeClassifier(HistGradientBoostingClassifier(max_iter=5), **RETRAINED, keep=2),
    "pipeline": lambda: CascadeClassifier(make_pipeline(StandardScaler(), LogisticRegression()), **RETRAINED),
    "random-state": lambda: CascadeClassifier(
        LogisticRegression(), **{**RETRAINED, "random_state": np.random.RandomState(1)}, utility=OnOff(2.0, b_reg=1.0)
    ),
}


def same(a: Any, b: Any) -> bool:
    """Whether two parameters or attributes are alike, numbers to the last bit."""
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, np.random.RandomState):
        return str(a.get_state()) == str(b.get_state())
    return type(a) is type(b) and (a == b or repr(a) == repr(b))


@pytest.mark.parametrize("ending", ["", ".zip"])
@pytest.mark.parametrize("name", MODELS)
def test_round_trip(name: str, ending: str, tmp_path: Path) -> None:
    model = MODELS[name]().fit(X, y, weight)
    again = load(save(model, tmp_path / f"model{ending}"))
    assert type(again) is type(model)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    others = make_blobs(1500, seed=9)
    assert again.significance(*others) == model.significance(*others)
    assert again.history_ == model.history_
    assert repr(again.history_) == repr(model.history_)
    before, after = model.get_params(deep=False), again.get_params(deep=False)
    assert before.keys() == after.keys()
    assert all(same(before[k], after[k]) for k in before)
    for attribute in ("classes_", "cut_", "selected_fraction_", "utility_", "n_features_in_"):
        assert same(getattr(model, attribute), getattr(again, attribute)), attribute
    assert [p.name for p in tmp_path.iterdir()] == [f"model{ending}"], "something was left beside the model"


def test_native_files_and_a_readable_manifest(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])])
    labels = np.where(y == 1, "s", "b")
    model = GrownCascadeClassifier("lightgbm", **GROWN).fit(frame, labels, weight)
    path = save(model, tmp_path / "model")
    assert sorted(p.name for p in path.iterdir()) == [
        "manifest.json",
        *("part-000.npy", "part-001.npy", "part-002.txt", "part-003.npy"),
    ]
    assert (path / "part-002.txt").read_text().startswith("tree\n")
    assert stat.S_IMODE((path / "manifest.json").stat().st_mode) & 0o444 == 0o444
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["format"] == FORMAT
    assert manifest["fivesigma"] == fivesigma.__version__
    assert {"python", "numpy", "sklearn", "lightgbm"} <= manifest["versions"].keys()
    fitted = manifest["model"]["fitted"]
    assert fitted["feature_names_in_"]["data"] == list(frame.columns)
    assert fitted["classes_"]["data"] == ["b", "s"]
    assert fitted["cut_"] == model.cut_
    assert "index" in fitted["history_"]["columns"]
    assert manifest["model"]["parameters"]["random_state"] == 3
    again = load(path)
    np.testing.assert_array_equal(again.feature_names_in_, model.feature_names_in_)
    assert again.feature_names_in_.dtype == object
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame[frame.columns[::-1]])


class TestPipeline:
    def fitted(self) -> Pipeline:
        steps = make_pipeline(StandardScaler(), GrownCascadeClassifier(**GROWN))
        return steps.fit(X, y, growncascadeclassifier__sample_weight=weight)

    def test_that_ends_in_ours_is_saved_and_scores_alike(self, tmp_path: Path) -> None:
        model = self.fitted()
        loaded = load(save(model, tmp_path / "model"))
        assert [name for name, _ in loaded.steps] == [name for name, _ in model.steps]
        np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
        assert loaded[-1].cut_ == model[-1].cut_
        assert not list((tmp_path / "model").glob("*.pickle"))

    def test_that_is_not_fitted_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="is not fitted"):
            save(clone(self.fitted()), tmp_path / "model")

    def test_that_ends_in_something_else_is_refused(self, tmp_path: Path) -> None:
        other = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
        with pytest.raises(StoreError, match="a Pipeline cannot be saved"):
            save(other, tmp_path / "model")


def test_categories_of_a_frame(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X).assign(region=pandas.Categorical(np.where(X[:, 0] > 1, "high", "low")))
    frame.columns = [str(c) for c in frame.columns]
    for library in ("xgboost", "lightgbm"):
        model = GrownCascadeClassifier(library, **GROWN).fit(frame, y, weight)
        again = load(save(model, tmp_path / library))
        np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))


def test_a_model_that_went_on_from_a_checkpoint_has_several_boosters(tmp_path: Path) -> None:
    settings_ = {**GROWN, "checkpoint": tmp_path / "checkpoint", "checkpoint_every": 2}
    model = GrownCascadeClassifier("lightgbm", **settings_).fit(X, y, weight)
    assert len(model.models_[0].boosters) > 1
    again = load(save(model, tmp_path / "model"))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.checkpoint == tmp_path / "checkpoint"


def test_another_process_gives_the_same_scores(tmp_path: Path) -> None:
    model = GrownCascadeClassifier(**GROWN).fit(X, y, weight)
    path = save(model, tmp_path / "model")
    np.save(tmp_path / "X.npy", X)
    code = (
        "import sys, numpy, fivesigma; m = fivesigma.load(sys.argv[1]); "
        "numpy.save(sys.argv[3], m.predict_proba(numpy.load(sys.argv[2])))"
    )
    out = tmp_path / "p.npy"
    subprocess.run([sys.executable, "-c", code, path, tmp_path / "X.npy", out], check=True)
    np.testing.assert_array_equal(np.load(out), model.predict_proba(X))


class TestPickle:
    def test_functions_are_refused_unless_allowed(self, tmp_path: Path) -> None:
        model = GrownCascadeClassifier(**GROWN, utility=FDivergence(square, slope)).fit(X, y, weight)
        with pytest.raises(StoreError, match=r"model\.utility is a FDivergence.*allow_pickle=True"):
            save(model, tmp_path / "model")
        assert not list(tmp_path.iterdir())
        save(model, tmp_path / "model", allow_pickle=True)
        with pytest.raises(StoreError, match=r"is a pickle, which runs code.*allow_pickle=True"):
            load(tmp_path / "model")
        again = load(tmp_path / "model", allow_pickle=True)
        assert again.utility.f is square
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))

    def test_lambdas_cannot_even_be_pickled(self, tmp_path: Path) -> None:
        utility = FDivergence(lambda t: t * t / 2, lambda t: t)
        model = GrownCascadeClassifier(**GROWN, utility=utility).fit(X, y, weight)
        with pytest.raises(StoreError, match="def in a module"):
            save(model, tmp_path / "model", allow_pickle=True)

    def test_types_off_the_list_are_refused(self, tmp_path: Path) -> None:
        pipeline = make_pipeline(FunctionTransformer(square), LogisticRegression())
        model = CascadeClassifier(pipeline, **RETRAINED).fit(X, y, weight)
        with pytest.raises(StoreError, match=r"test_store\.square, which is not on the list"):
            save(model, tmp_path / "model")
        again = load(save(model, tmp_path / "model", allow_pickle=True), allow_pickle=True)
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))

    def test_a_skops_file_with_another_type_is_refused_on_loading(self, saved: Path) -> None:
        skops = pytest.importorskip("skops.io")
        estimator = make_pipeline(FunctionTransformer(square), LogisticRegression()).fit(X, y)
        forge(saved, lambda m: m["model"]["parameters"].update(cv={"$": "skops", "file": "part-009.skops"}))
        add_file(saved, "part-009.skops", skops.dumps(estimator))
        with pytest.raises(StoreError, match=r"parameters\.cv .*test_store\.square"):
            load(saved)


class TestTarget:
    def test_nothing_is_overwritten_without_force(self, saved: Path) -> None:
        model = load(saved)
        with pytest.raises(StoreError, match="there already"):
            save(model, saved)
        (saved / "part-002.ubj").write_bytes(b"old")
        save(model, saved, force=True)
        load(saved)
        assert [p.name for p in saved.parent.iterdir()] == ["model"]

    def test_force_replaces_saved_models_only(self, saved: Path, tmp_path: Path) -> None:
        model = load(saved)
        mine = tmp_path / "thesis"
        mine.mkdir()
        save(model, mine, force=True)  # an empty folder holds nothing to lose
        shutil.rmtree(mine)
        mine.mkdir()
        (mine / "chapter1.tex").write_text("years of work")
        with pytest.raises(StoreError, match="remove it yourself"):
            save(model, mine, force=True)
        (tmp_path / "notes.zip").write_text("notes")
        with pytest.raises(StoreError, match="remove it yourself"):
            save(model, tmp_path / "notes.zip", force=True)
        assert (mine / "chapter1.tex").read_text() == "years of work"

    @pytest.mark.parametrize("step", ["write_bytes", "replace"])
    def test_a_failed_write_leaves_the_old_model(self, saved: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
        model, before = load(saved), (saved / "manifest.json").read_bytes()

        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(archive, "_exchange", lambda *_: False)  # else nothing is renamed
        monkeypatch.setattr(Path, step, fail)
        with pytest.raises(StoreError, match="No space left"):
            save(model, saved, force=True)
        assert (saved / "manifest.json").read_bytes() == before
        assert [p.name for p in saved.parent.iterdir()] == ["model"]

    def test_what_cannot_be_saved(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="not fitted"):
            save(GrownCascadeClassifier(), tmp_path / "model")
        with pytest.raises(StoreError, match="LogisticRegression cannot be saved; known are CascadeClassifier"):
            save(LogisticRegression(), tmp_path / "model")
        with pytest.raises(StoreError, match="there is no folder"):
            save(GrownCascadeClassifier(), tmp_path / "nowhere" / "model")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = GrownCascadeClassifier(**GROWN, b_reg=10.0).fit(X, y, weight)
    return save(model, tmp_path_factory.mktemp("store") / "model")


@pytest.fixture
def saved(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "saved" / "model"))


def forge(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest and give it a right digest again, as only a person would."""
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)
    (path / "manifest.json").write_bytes(render(manifest))


def add_file(path: Path, name: str, content: bytes) -> None:
    import hashlib

    (path / name).write_bytes(content)
    entry = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    forge(path, lambda m: m["files"].update({name: entry}))


FORGERIES: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda m: m.update(files=[]), "has not the parts"),
    (lambda m: m.update(model=1), "has not the parts"),
    (lambda m: m.update(model={}), "describes no estimator"),
    (lambda m: m.update(extra=1), "has not the parts"),
    (lambda m: m["files"].update({"part-002.ubj": 3}), "was changed after it was saved"),
    (lambda m: m["model"].update({"class": "Popen"}), "is a 'Popen'; known are"),
    (lambda m: m["model"].update({"class": ["GrownCascadeClassifier"]}), "should be a str, not a list"),
    (lambda m: m["model"].update({"$": "subprocess"}), "unknown kind 'subprocess'"),
    (lambda m: m["model"].update({"$": 1}), "unknown kind"),
    (lambda m: m["model"]["parameters"].update(__class__=1), r"parameters .* '__class__', which .* does not know"),
    (lambda m: m["model"]["parameters"].update(n_tree=1), r"saved by .*did you mean 'n_trees'"),
    (lambda m: m["model"]["fitted"].update(cut_="0.5"), r"fitted\.cut_ .* should be a float, not a str"),
    (lambda m: m["model"]["fitted"].update(n_features_in_=True), "should be a int, not a bool"),
    (lambda m: m["model"]["fitted"].update(predict=1), "does not hold fitted attributes"),
    (lambda m: m["model"]["fitted"].pop("history_"), "history_ is missing"),
    (lambda m: m["model"]["fitted"].update(models_=[]), "cannot be used|gives other scores now"),
    (lambda m: m["model"]["fitted"].update(models_=[1]), "cannot be used"),
    (lambda m: m["model"]["fitted"]["models_"][0].update(file="../x"), "which is not part of the model"),
    (lambda m: m["model"]["fitted"]["classes_"].update(shape=[1 << 40]), "classes_ .* cannot be made"),
    (lambda m: m["model"]["fitted"]["classes_"].update(dtype="O"), "which no model needs"),
    (lambda m: m["model"]["fitted"]["classes_"].update(dtype="<U999999999"), "which no model needs"),
    (lambda m: m["model"]["fitted"]["history_"]["columns"].pop(), "history_ in the manifest cannot be made a history"),
    (lambda m: m["model"]["fitted"]["history_"]["columns"].__setitem__(0, "x"), "no column 'index'"),
    (lambda m: m["model"]["fitted"]["history_"]["columns"].__setitem__(3, "s"), "no column 'class_weights'"),
    (lambda m: m["model"]["fitted"]["history_"]["columns"].__setitem__(-1, "x"), "a column 'x', which is unknown"),
    (lambda m: m["model"]["fitted"]["history_"].update(table=1), r"table .* should be a ndarray, not a int"),
    (lambda m: m["model"]["fitted"]["history_"]["table"].update(file="part-002.ubj"), "history_.* cannot be made"),
    (lambda m: m["model"]["fitted"]["utility_"].update({"class": "FDivergence"}), "is a 'FDivergence'; known are"),
    (lambda m: m["model"]["fitted"]["utility_"]["parameters"].update(b_reg=-1), "cannot be made a utility"),
    (lambda m: m["model"]["parameters"].update(cv={"$": "pickle", "file": "part-002.ubj"}), "is a pickle"),
]


class TestDamage:
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.data())
    def test_any_changed_byte_is_refused(self, saved: Path, data: st.DataObject) -> None:
        file = saved / data.draw(st.sampled_from(["manifest.json", "part-002.ubj"]))
        content = file.read_bytes()
        at = data.draw(st.integers(0, len(content) - 1))
        changed = content[at] ^ data.draw(st.integers(1, 255))
        file.write_bytes(content[:at] + bytes([changed]) + content[at + 1 :])
        try:
            with pytest.raises(StoreError) as caught:
                load(saved)
            assert "\n" not in str(caught.value)
        finally:
            file.write_bytes(content)

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.data())
    def test_a_changed_byte_of_a_zip_is_refused_or_means_nothing(
        self, original: Path, tmp_path: Path, data: st.DataObject
    ) -> None:
        model = load(original)
        path = save(model, tmp_path / "model.zip") if not (tmp_path / "model.zip").exists() else tmp_path / "model.zip"
        content = path.read_bytes()
        at = data.draw(st.integers(0, len(content) - 1) | st.integers(len(content) - 300, len(content) - 1))
        path.write_bytes(content[:at] + bytes([content[at] ^ (1 << data.draw(st.integers(0, 7)))]) + content[at + 1 :])
        try:
            again = load(path)
        except StoreError:
            pass
        else:  # a date, say
            np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
        finally:
            path.write_bytes(content)

    def test_missing_and_extra_files(self, saved: Path) -> None:
        (saved / "extra.txt").write_text("")
        with pytest.raises(StoreError, match=r"holds extra\.txt, which its manifest does not list"):
            load(saved)
        (saved / "extra.txt").unlink()
        (saved / "part-002.ubj").unlink()
        with pytest.raises(StoreError, match=r"part-002\.ubj is missing"):
            load(saved)
        (saved / "manifest.json").unlink()
        with pytest.raises(StoreError, match=r"holds no manifest\.json"):
            load(saved)
        with pytest.raises(StoreError, match="there is no saved model"):
            load(saved / "elsewhere")

    def test_a_link_is_refused(self, saved: Path, tmp_path: Path) -> None:
        (saved / "part-002.ubj").rename(tmp_path / "outside.ubj")
        (saved / "part-002.ubj").symlink_to(tmp_path / "outside.ubj")
        with pytest.raises(StoreError, match="no plain file"):
            load(saved)

    @pytest.mark.parametrize(
        "name", ["../outside.ubj", "/etc/passwd", "a/b.ubj", "..", "a..", "C:\\x", "manifest.json"]
    )
    def test_a_name_that_leaves_the_folder_is_refused(self, saved: Path, name: str) -> None:
        forge(saved, lambda m: m["files"].update({name: m["files"].pop("part-002.ubj")}))
        with pytest.raises(StoreError, match="is missing"):
            load(saved)

    @pytest.mark.parametrize("name", ["../outside.txt", "/outside.txt", "sub/"])
    def test_a_zip_that_leaves_its_folder_is_refused(self, original: Path, tmp_path: Path, name: str) -> None:
        path = save(load(original), tmp_path / "model.zip")
        with zipfile.ZipFile(path, "a") as file:
            file.writestr(name, "boo")
        with pytest.raises(StoreError, match="a name that no file of a saved model has"):
            load(path)
        assert [p.name for p in tmp_path.iterdir()] == ["model.zip"]

    def test_a_zip_that_holds_a_name_twice_is_refused(self, original: Path, tmp_path: Path) -> None:
        path = save(load(original), tmp_path / "model.zip")
        with zipfile.ZipFile(path, "a") as file, pytest.warns(UserWarning, match="Duplicate name"):
            file.writestr("manifest.json", file.read("manifest.json"))
        with pytest.raises(StoreError, match=r"holds 'manifest\.json' twice"):
            load(path)

    def test_a_compressed_zip_is_refused(self, original: Path, tmp_path: Path) -> None:
        path = tmp_path / "model.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("manifest.json", "{}" * 10_000)
        with pytest.raises(StoreError, match="compressed"):
            load(path)

    def test_a_zip_whose_members_overlap_is_refused(self, tmp_path: Path) -> None:
        """Each member holds all that follow it: 40 kB say that they are 20 MB."""
        directory, body = b"", b"x" * 1000
        names = [*(f"part-{k:03}.npy" for k in range(999)), "manifest.json"]
        lengths = []
        for name in names:
            fields = struct.pack("<HHHHHIIIHH", 20, 0, 0, 0, 33, zlib.crc32(body), len(body), len(body), len(name), 0)
            body = b"PK\x03\x04" + fields + name.encode() + body
            lengths.append((fields, len(body)))
        for name, (fields, length) in zip(names, lengths, strict=True):
            rest = struct.pack("<HHHII", 0, 0, 0, 0, len(body) - length)
            directory += b"PK\x01\x02" + struct.pack("<H", 20) + fields + rest + name.encode()
        end = struct.pack("<HHHHIIH", 0, 0, len(names), len(names), len(directory), len(body), 0)
        path = tmp_path / "model.zip"
        path.write_bytes(body + directory + b"PK\x05\x06" + end)
        with zipfile.ZipFile(path) as file:
            assert sum(info.file_size for info in file.infolist()) > 100 * path.stat().st_size
        with pytest.raises(StoreError, match=r"says that it holds more bytes than it has"):
            load(path)

    def test_no_zip_at_all(self, tmp_path: Path) -> None:
        (tmp_path / "model").write_bytes(b"tree\nversion=v4\n")
        with pytest.raises(StoreError, match="no whole zip"):
            load(tmp_path / "model")

    def test_a_newer_format_says_so(self, saved: Path) -> None:
        forge(saved, lambda m: m.update(format=FORMAT + 1, something="new", fivesigma="9.1.0"))
        sentence = (
            rf"has format {FORMAT + 1}, and fivesigma .* reads formats up to {FORMAT}; .* fivesigma 9\.1\.0: install"
        )
        with pytest.raises(StoreError, match=sentence):
            load(saved)
        forge(saved, lambda m: m.update(format=FORMAT + 1, fivesigma="\n" * 1000))
        with pytest.raises(StoreError, match="saved by a newer version: install"):
            load(saved)

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            (b"", "not JSON"),
            (b"\xff\xfe", "not JSON"),
            (b"[" * 100_000, "nested too deep"),
            (b"[]", "no format number"),
            (b"1", "no format number"),
            (b'{"format": true}', "no format number"),
            (b'{"format": 0}', "no format number"),
            (b'{"format": NaN}', "no format number"),
            (b'{"format": 1}', "its own digest"),
            (b'{"format": 1, "format": 1}', "its own digest"),
        ],
    )
    def test_garbage_for_a_manifest(self, saved: Path, text: bytes, sentence: str) -> None:
        (saved / "manifest.json").write_bytes(text)
        with pytest.raises(StoreError, match=sentence):
            load(saved)

    @pytest.mark.parametrize(("change", "sentence"), FORGERIES, ids=map(str, range(len(FORGERIES))))
    def test_a_forged_manifest(self, saved: Path, change: Callable[[dict[str, Any]], Any], sentence: str) -> None:
        forge(saved, change)
        with pytest.raises(StoreError, match=sentence) as caught:
            load(saved)
        assert "\n" not in str(caught.value)
        assert isinstance(caught.value, InputError)


def test_a_model_that_is_replaced_is_there_at_every_moment(saved: Path) -> None:
    """Readers see the old model or the new one, and nothing in between, while other ones take its place."""
    model, over = load(saved), threading.Event()

    def replace() -> None:
        for _ in range(40):
            save(model, saved, force=True)
        over.set()

    writer = threading.Thread(target=replace)
    writer.start()
    looked = 0
    while not over.is_set():
        assert (saved / "manifest.json").is_file()
        assert load(saved).cut_ == model.cut_
        looked += 1
    writer.join()
    assert looked > 3
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


def test_without_an_exchange_of_folders_a_model_is_replaced_too(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_exchange", lambda *_: False)
    model = load(saved)
    save(model, saved, force=True)
    assert load(saved).cut_ == model.cut_
    assert [p.name for p in saved.parent.iterdir()] == [saved.name]


def test_what_a_killed_process_left_is_removed(saved: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    beside = name_beside(saved)
    gone, alive = (beside.with_name(beside.name.replace(str(os.getpid()), str(pid), 1)) for pid in (child.pid, 1))
    for folder in (gone, alive):
        (folder / "new").mkdir(parents=True)
    save(load(saved), saved, force=True)
    assert {p.name for p in saved.parent.iterdir()} == {saved.name, alive.name}


def test_the_only_copy_of_a_model_is_never_removed(saved: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    beside = name_beside(saved)
    left = beside.with_name(beside.name.replace(str(os.getpid()), str(child.pid), 1))
    left.mkdir()
    model = load(saved)
    saved.rename(left / "old")
    name_beside(saved)
    assert load(left / "old").cut_ == model.cut_
