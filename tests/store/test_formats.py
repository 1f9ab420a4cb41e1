"""Models outlive a release: those of every format load, and no change of what is stored goes unnoticed."""

import inspect
import itertools
import json
import shutil
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packaging.version import Version

import fivesigma
from fivesigma import CascadePool, GrownCascadeClassifier, load, save
from fivesigma.cascade.rounds import History, Round
from fivesigma.errors import InputError, StoreError
from fivesigma.store import migrations
from fivesigma.store.checkpoint import FORMAT as CHECKPOINT_FORMAT
from fivesigma.store.codecs import RECORDS, STORABLE, STORABLE_RECORDS
from tests.estimators.blobs import make_blobs
from tests.store.test_store import forge

pytest.importorskip("xgboost")
pytest.importorskip("lightgbm")
pytest.importorskip("skops")

HERE = Path(__file__).parent
FORMATS = {path.name: json.loads((path / "expected.json").read_text()) for path in sorted(HERE.glob("format-*"))}
MODELS = [(name, model) for name, expected in FORMATS.items() for model in expected["models"]]
STORED = HERE / "stored.json"


def needs(name: str) -> None:
    """Skip a model whose libraries are older here than those that wrote it, which no library promises to read."""
    if name == "net":
        pytest.importorskip("torch")
    written = json.loads((HERE / "format-1" / name / "manifest.json").read_text())["versions"]
    for library, ending in (("sklearn", "skops"), ("xgboost", "ubj"), ("lightgbm", "txt")):
        then, now = written.get(library, "0"), pytest.importorskip(library).__version__
        if any((HERE / "format-1" / name).glob(f"*.{ending}")) and Version(now) < Version(then):
            pytest.skip(f"the model was written by {library} {then}, and {now} is older")


@pytest.mark.parametrize(("number", "name"), MODELS)
class TestOldModels:
    def test_load_with_the_same_scores(self, number: str, name: str) -> None:
        needs(name)
        expected = FORMATS[number]["models"][name]
        model = load(HERE / number / name)
        score = model.predict_proba(np.array(FORMATS[number]["X"]))[:, 1]
        # The last bit of a net's score is that of the processor's own matrix product.
        np.testing.assert_allclose(score, expected["score"], rtol=1e-14 if name == "net" else 0, atol=0)
        assert model.cut_ == expected["cut"]
        assert model.classes_.tolist() == expected["classes"]
        assert [r.valid for r in model.history_] == expected["valid"]
        assert model.history_[-1].significance == expected["last_significance"]

    def test_can_be_saved_again_in_the_present_format(self, number: str, name: str, tmp_path: Path) -> None:
        needs(name)
        model = load(HERE / number / name)
        again = load(save(model, tmp_path / "model"))
        X = np.array(FORMATS[number]["X"])
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
        assert again.history_ == model.history_
        assert json.loads((tmp_path / "model" / "manifest.json").read_text())["format"] == migrations.FORMAT


def test_old_models_say_what_they_are() -> None:
    plain = load(HERE / "format-1" / "pool").members_[2][1]
    assert (plain.cascade, plain.max_rounds, plain.cv) == (False, 20, 0.25)
    rounds = load(HERE / "format-1" / "grown-xgboost").history_
    assert rounds[0].following.u is not None
    for r, after in itertools.pairwise(rounds):
        assert (r.following.signal, r.following.background) == after.class_weights


def test_old_nets_know_no_groups() -> None:
    needs("net")
    net = load(HERE / "format-1" / "net")
    assert net.estimator.weight_groups == 1
    assert net.models_[0].estimator.weight_groups == 1


class TestChangedParameters:
    """What the next release may do to a constructor, tried on models of the present and of the first release."""

    @pytest.fixture(params=["format-1", "present"])
    def model(self, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
        old = HERE / "format-1" / "grown-xgboost"
        return old if request.param == "format-1" else save(load(old), tmp_path / "model")

    def changed(self, monkeypatch: pytest.MonkeyPatch, **changes: str | None) -> None:
        """Give the class a constructor with parameters added (x=None), renamed (new="old") or removed."""
        names = list(inspect.signature(GrownCascadeClassifier.__init__).parameters)[1:]
        kept = [n for n in names if n not in changes.values() and not (n in changes and changes[n] == "removed")]
        default = inspect.signature(GrownCascadeClassifier.__init__).parameters
        text = ", ".join(f"{n}=default[{n!r}].default" for n in kept)
        new = ", ".join(f"{n}='as before'" for n, old in changes.items() if old != "removed")
        body = "\n".join(f"    self.{n} = {n}" for n in [*kept, *(n for n, old in changes.items() if old != "removed")])
        space: dict[str, Any] = {"default": default}
        exec(f"def __init__(self, {', '.join(p for p in (text, new) if p)}):\n{body}", space)
        monkeypatch.setattr(GrownCascadeClassifier, "__init__", space["__init__"])
        checks = {n: check for n, check in GrownCascadeClassifier._checks.items() if n in kept}
        monkeypatch.setattr(GrownCascadeClassifier, "_checks", checks)

    def test_an_added_one_takes_its_default(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = load(model)
        self.changed(monkeypatch, patience=None)
        after = load(model)
        assert after.patience == "as before"
        np.testing.assert_array_equal(after.predict_proba(np.zeros((2, 3))), before.predict_proba(np.zeros((2, 3))))

    def test_a_renamed_one_is_migrated(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.changed(monkeypatch, size="n_trees")
        with pytest.raises(StoreError, match=r"'n_trees', which GrownCascadeClassifier .* does not know"):
            load(model)

        def trees_become_size(content: dict[str, Any]) -> None:
            for node in migrations.estimators(content, "GrownCascadeClassifier"):
                node["parameters"]["size"] = node["parameters"].pop("n_trees")

        self.raise_format(monkeypatch, trees_become_size)
        assert load(model).size == 3

    def test_a_removed_one_is_migrated(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.changed(monkeypatch, u_bounds="removed")
        with pytest.raises(StoreError, match=r"'u_bounds', which GrownCascadeClassifier .* does not know"):
            load(model)

        def bounds_are_gone(content: dict[str, Any]) -> None:
            for node in migrations.estimators(content, "GrownCascadeClassifier"):
                migrations.drop(node, "parameters", "u_bounds")

        self.raise_format(monkeypatch, bounds_are_gone)
        assert "u_bounds" not in vars(load(model))

    def raise_format(self, monkeypatch: pytest.MonkeyPatch, change: migrations.Change) -> None:
        monkeypatch.setitem(migrations.CHANGES, migrations.FORMAT + 1, (change,))
        for module in (migrations, fivesigma.store.archive):
            monkeypatch.setattr(module, "FORMAT", migrations.FORMAT + (module is migrations))


def test_a_round_that_gained_a_field() -> None:
    columns = History([_round()]).to_columns()
    del columns["restart"]  # as if it had been added since
    assert History.from_columns(columns)[0].restart == 0
    with pytest.raises(InputError, match="no column 's'"):
        History.from_columns({k: v for k, v in columns.items() if k != "s"})
    with pytest.raises(InputError, match="differ in length"):
        History.from_columns({**columns, "s": [1.0, 2.0]})
    for name, value in (("valid", 0.5), ("index", 1.5), ("s", "1"), ("improved", None)):
        with pytest.raises(InputError, match=f"column '{name}' of the rounds"):
            History.from_columns({**columns, name: [value]})


def _round() -> Round:
    return load(HERE / "format-1" / "grown-xgboost").history_[0]  # type: ignore[no-any-return]


def stored_names() -> dict[str, Any]:
    """What the present format stores: parameters, fitted attributes, fields of rounds and of records of categories."""
    classes = {name: getattr(fivesigma, name) for name in STORABLE if name not in STORABLE_RECORDS}
    return {
        "format": migrations.FORMAT,
        "checkpoint": CHECKPOINT_FORMAT,
        "parameters": {name: sorted(cls().get_params(deep=False)) for name, cls in classes.items()},
        "fitted": {name: sorted(getattr(cls, "_stored", ())) for name, cls in classes.items()},
        "round": {f.name: f.default is not MISSING for f in fields(Round)},
        "records": {name: list(inspect.signature(kind).parameters) for name, kind in RECORDS.items()},
    }


def test_nobody_changes_what_is_stored_without_a_thought() -> None:
    pytest.importorskip("torch")
    assert stored_names() == json.loads(STORED.read_text()), (
        "A constructor, a fitted attribute or a field of Round changed. Read 'Saved models' in CONTRIBUTING.md, write "
        "the change into fivesigma.store.migrations if it needs one, and then: python -m tests.store.test_formats"
    )


def test_every_change_has_a_name_and_a_sentence() -> None:
    assert sorted(migrations.CHANGES) == list(range(2, migrations.FORMAT + 1))
    for changes in migrations.CHANGES.values():
        for change in changes:
            assert change.__doc__
            assert change.__name__ != "<lambda>"


def test_another_version_of_a_library_is_named(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    for model, part, library in (
        ("retrained-histogram", ".skops", "sklearn"),
        ("grown-xgboost", ".ubj", "xgboost"),
        ("net", ".safetensors", "torch"),
    ):
        path = Path(shutil.copytree(HERE / "format-1" / model, tmp_path / model))
        for file in path.glob(f"*{part}"):
            file.write_bytes(b"{L" + b"\0" * 6 + b"as another version wrote it")
        import hashlib

        def other(manifest: dict[str, Any], path: Path = path, library: str = library) -> None:
            manifest["versions"][library] = "0.0.1"
            for name, entry in manifest["files"].items():
                content = (path / name).read_bytes()
                entry.update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())

        forge(path, other)
        now = __import__(library).__version__.replace("+", r"\+")
        with pytest.raises(
            StoreError, match=rf"written by {library} 0\.0\.1, and {library} {now} cannot read"
        ) as caught:
            load(path)
        assert "\n" not in str(caught.value)


class TestProbe:
    """A library of another version that reads a file and means something else by it is noticed."""

    @pytest.fixture
    def model(self, tmp_path: Path) -> Path:
        path = save(load(HERE / "format-1" / "decomposed"), tmp_path / "model")
        forge(path, lambda m: m["versions"].update(xgboost="0.0.1"))
        return path

    def test_the_same_scores_are_fine(self, model: Path) -> None:
        load(model)

    def test_other_scores_are_refused(self, model: Path) -> None:
        forge(model, lambda m: m.update(probe=[p + 0.01 for p in m["probe"]]))
        with pytest.raises(StoreError, match=r"saved with xgboost 0\.0\.1 and gives other scores with xgboost"):
            load(model)
        forge(model, lambda m: m["versions"].update(xgboost=__import__("xgboost").__version__))
        with pytest.raises(StoreError, match=r"model was saved and gives other scores now; copy it again"):
            load(model)
        forge(model, lambda m: m.update(probe=["x"]))
        with pytest.raises(StoreError, match="gives other scores now"):
            load(model)

    def test_a_model_that_cannot_be_used_is_refused(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fails(*_: Any) -> None:
            raise AttributeError("'LogisticRegression' object has no attribute 'multi_class'")

        monkeypatch.setattr(fivesigma.DecomposedClassifier, "__fivesigma_score__", fails)
        with pytest.raises(StoreError, match=r"cannot be used with xgboost .*multi_class.*install xgboost 0\.0\.1"):
            load(model)


class TestArrays:
    def test_per_event_arrays_are_files(self, tmp_path: Path) -> None:
        X, y, weight = make_blobs(3000)
        members = [(f"m{k}", GrownCascadeClassifier(n_trees=2)) for k in range(2)]
        pool = CascadePool(members, cv=3, random_state=0, n_jobs=1).fit(X, y, weight)
        path = save(pool, tmp_path / "pool")
        sizes = {p.name: p.stat().st_size for p in path.iterdir()}
        assert sizes["manifest.json"] < 60_000
        assert sum(n for name, n in sizes.items() if name.endswith(".npy")) < 64 * 3000
        again = load(path)
        np.testing.assert_array_equal(again.held_out_score_, pool.held_out_score_)
        assert again.held_out_scores_.keys() == pool.held_out_scores_.keys()
        assert again.history_ == pool.history_
        assert all(model.cv == 0.25 for _, model in again.members_)

    @pytest.mark.parametrize(
        "array",
        [
            np.arange(100.0),
            np.arange(100, dtype=np.int8).reshape(20, 5).T,
            np.repeat(["s", "bb"], 40),
            np.ones(80, bool),
        ],
        ids=["floats", "fortran", "text", "flags"],
    )
    def test_come_back_as_they_were(self, array: Any, tmp_path: Path) -> None:
        model = load(HERE / "format-1" / "grown-xgboost")
        model.extra_ = array
        again = load(save(model, tmp_path / "model")).extra_
        np.testing.assert_array_equal(again, array)
        assert again.dtype == array.dtype
        again[0] = again[1]  # it may be written to


def test_a_net_alone_can_be_saved(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    net = fivesigma.NetClassifier(width=4, depth=1, epochs=1, random_state=0, n_jobs=1)
    with pytest.raises(StoreError, match="not fitted"):
        save(net, tmp_path / "net")
    X, y, _ = make_blobs(300)
    net.fit(X, y)
    np.testing.assert_array_equal(load(save(net, tmp_path / "net")).predict_proba(X), net.predict_proba(X))


def test_a_checkpoint_of_another_format_says_what_to_do(tmp_path: Path) -> None:
    X, y, weight = make_blobs(1000)
    model = GrownCascadeClassifier(n_trees=4, checkpoint=tmp_path, checkpoint_every=2, random_state=0, n_jobs=1)
    model.fit(X, y, weight)
    file = tmp_path / "checkpoint.json"
    content = json.loads(file.read_text())
    assert content["format"] == CHECKPOINT_FORMAT
    file.write_text(json.dumps({**content, "format": 1}))
    with pytest.raises(InputError, match=r"has format 1, .*finish the run with the version that began it, or remove"):
        model.fit(X, y, weight)


if __name__ == "__main__":
    STORED.write_text(json.dumps(stored_names(), indent=1) + "\n")


@pytest.mark.parametrize("function", [load, save])
def test_the_docstrings_name_all_estimators(function: Callable[..., Any]) -> None:
    assert {name for name in STORABLE if f"`{name}`" not in str(function.__doc__)} == set()
