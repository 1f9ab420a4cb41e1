"""Models of strangers, with right hashes: what is crafted ends a child process, and no code of a model runs."""

import io
import json
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from fivesigma import CascadeClassifier, CascadePool, DecomposedClassifier, GrownCascadeClassifier, load, save
from fivesigma.errors import StoreError
from fivesigma.store import probe
from fivesigma.store.archive import file_entry, render
from tests.estimators.blobs import make_blobs
from tests.store.test_store import forge

xgboost = pytest.importorskip("xgboost")
lightgbm = pytest.importorskip("lightgbm")
skops = pytest.importorskip("skops.io")

X, Y, W = make_blobs(1500)
ONCE: dict[str, Any] = {"max_rounds": 1, "extra_rounds": 0, "random_state": 0, "n_jobs": 1}
GROWN: dict[str, Any] = {"n_trees": 3, "random_state": 0, "n_jobs": 1}
MODELS: dict[str, Callable[[], Any]] = {
    "xgboost": lambda: GrownCascadeClassifier(**GROWN),
    "lightgbm": lambda: GrownCascadeClassifier("lightgbm", **GROWN),
    "forest": lambda: CascadeClassifier(RandomForestClassifier(2, max_depth=3), **ONCE),
    "histogram": lambda: CascadeClassifier(HistGradientBoostingClassifier(max_iter=2), **ONCE),
    "linear": lambda: CascadeClassifier(LogisticRegression(), **ONCE),
    "pipeline-xgboost": lambda: CascadeClassifier(
        make_pipeline(StandardScaler(), xgboost.XGBClassifier(n_estimators=2, n_jobs=1)), **ONCE
    ),
    "pipeline-lightgbm": lambda: CascadeClassifier(
        make_pipeline(StandardScaler(), lightgbm.LGBMClassifier(n_estimators=2, n_jobs=1, verbosity=-1)), **ONCE
    ),
    "decomposed": lambda: DecomposedClassifier(
        xgboost.XGBClassifier(n_estimators=2, n_jobs=1), random_state=0, n_jobs=1
    ),
    "pool": lambda: CascadePool([("a", GrownCascadeClassifier(n_trees=2))], cv=2, random_state=0, n_jobs=1),
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder, made = tmp_path_factory.mktemp("originals"), dict[str, Path]()

    def original(name: str) -> Path:
        if name not in made:
            made[name] = save(MODELS[name]().fit(X, Y, W), folder / name)
        return made[name]

    return original


@pytest.fixture
def copy(originals: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(originals(name), tmp_path / "saved" / name))


def hash_again(path: Path) -> None:
    """Give a changed model a right manifest."""
    file = path / "manifest.json"
    content = json.loads(file.read_bytes())
    content["files"] = {name: file_entry((path / name).read_bytes()) for name in content["files"]}
    file.write_bytes(render(content))


def refused(path: Path, words: str, **options: Any) -> None:
    with pytest.raises(StoreError, match=words) as caught:
        load(path, **options)
    assert "\n" not in str(caught.value)


def rewrite(path: Path, ending: str, change: Callable[[bytes], bytes]) -> None:
    """Change the first part of a kind and give the model right hashes."""
    part = min(path.glob(f"*{ending}"))
    part.write_bytes(change(part.read_bytes()))
    hash_again(path)


@pytest.mark.parametrize("name", MODELS)
def test_good_models_survive_the_child_and_score_the_same(copy: Callable[[str], Path], name: str) -> None:
    path = copy(name)
    np.testing.assert_array_equal(load(path, untrusted=True).predict_proba(X), load(path).predict_proba(X))


@pytest.mark.parametrize("learner", [KNeighborsClassifier(), SVC()], ids=["neighbours", "vectors"])
def test_learners_of_compiled_code_load_as_all_others(learner: Any, tmp_path: Path) -> None:
    model = DecomposedClassifier(learner, xgboost.XGBRegressor(n_estimators=2), random_state=0, n_jobs=1)
    path = save(model.fit(X, Y, W), tmp_path / "model")
    np.testing.assert_array_equal(load(path, untrusted=True).predict_proba(X), model.predict_proba(X))


def first_child(content: bytes, value: int) -> bytes:
    """Let the first node of the first tree of an XGBoost booster lead to another node."""
    head = content.index(b"left_children[$l#L") + len(b"left_children[$l#L") + 8
    return content[:head] + value.to_bytes(4, "big", signed=True) + content[head + 4 :]


def first_left(content: bytes, value: int) -> bytes:
    """Let the first node of the first tree of a LightGBM booster lead to another node."""
    out, n = re.subn(rb"\nleft_child=[-\d]+", b"\nleft_child=%d" % value, content, count=1)
    assert n == 1
    return out


@pytest.mark.parametrize(
    ("name", "ending", "change"),
    [
        ("xgboost", ".ubj", lambda content: first_child(content, 1_000_000_000)),
        ("lightgbm", ".txt", lambda content: first_left(content, 1_000_000_000)),
        ("lightgbm", ".txt", lambda content: content[:900]),
    ],
    ids=["xgboost", "lightgbm", "a text that was cut"],
)
def test_a_crafted_booster_ends_the_child_only(
    copy: Callable[[str], Path], name: str, ending: str, change: Callable[[bytes], bytes]
) -> None:
    """Without the child, each of these ends the process: at the load, or when the trees are walked."""
    path = copy(name)
    rewrite(path, ending, change)
    refused(path, r"ended a child process \(SIG[A-Z]+\), so it is not loaded here", untrusted=True)


def test_a_tree_that_leads_in_a_circle_ends_the_child_only(
    copy: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copy("lightgbm")
    rewrite(path, ".txt", lambda content: first_left(content, 0))
    monkeypatch.setattr(probe, "SECONDS", 8)
    refused(path, r"kept a child process busy for 8 seconds|ended a child process \((SIGXCPU|SIGKILL)", untrusted=True)


def test_the_child_may_take_so_much_memory_and_no_more(
    copy: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("resource")
    if sys.platform != "linux":
        pytest.skip("other systems do not bound what a process allocates")
    path = copy("xgboost")
    forge(path, lambda manifest: manifest["model"]["fitted"].update(n_features_in_=1 << 26))
    monkeypatch.setattr(probe, "MEMORY", 2 << 30)  # the probe alone would take 8 GB
    refused(path, r"cannot be used \(Unable to allocate .* GiB", untrusted=True)


def test_what_the_child_refuses_is_refused_with_its_sentence(copy: Callable[[str], Path]) -> None:
    path = copy("lightgbm")
    part = min(path.glob("*.txt"))
    part.write_bytes(part.read_bytes() + b" ")
    refused(path, "was changed after it was saved", untrusted=True)


def test_nothing_in_the_working_folder_is_imported(
    copy: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = copy("xgboost")
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    assert load(path, untrusted=True).classes_.tolist() == [0, 1]


def test_pickles_are_never_untrusted(copy: Callable[[str], Path]) -> None:
    refused(copy("xgboost"), "leave out allow_pickle=True", untrusted=True, allow_pickle=True)


@pytest.mark.parametrize("name", ["xgboost", "lightgbm"])
def test_an_empty_booster_is_refused_without_a_child(copy: Callable[[str], Path], name: str) -> None:
    path = copy(name)
    rewrite(path, ".ubj" if name == "xgboost" else ".txt", lambda _: b"")
    refused(path, "names an empty file")


def edit_schema(path: Path, change: Callable[[Any, dict[str, bytes]], Any], part: int = 0) -> None:
    """Change the schema and the members of a file of skops."""
    file = sorted(path.glob("*.skops"))[part]
    with zipfile.ZipFile(file) as zipped:
        members = {name: zipped.read(name) for name in zipped.namelist()}
    schema = json.loads(members["schema.json"])
    change(schema, members)
    members["schema.json"] = json.dumps(schema).encode()
    with zipfile.ZipFile(file, "w") as zipped:
        for name, content in members.items():
            zipped.writestr(name, content)
    hash_again(path)


def nodes(value: Any, name: str) -> list[Any]:
    """Every node of a class in a schema."""
    found = [value] if isinstance(value, dict) and value.get("__class__") == name else []
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return found + [n for item in items for n in nodes(item, name)]


class TestGadgets:
    """Ways in which files made skops run constructors or open files."""

    def booster(self, kind: str, argument: str, loader: str) -> dict[str, Any]:
        plain = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "is_json": True}
        values = ["null", "null", json.dumps(argument)]
        items = [{**plain, "content": v, "__id__": 900 + k} for k, v in enumerate(values)]
        arguments = {"__class__": "tuple", "__module__": "builtins", "__loader__": "TupleNode", "content": items}
        module, name = kind.rsplit(".", 1)
        node = {"__class__": name, "__module__": module, "__loader__": loader, "content": {**arguments, "__id__": 999}}
        return {**node, "__reduce__": {"args": {**arguments, "__id__": 998}}, "__id__": 997}

    @pytest.mark.parametrize("loader", ["ConstructorFromReduceNode", "LossNode", "TreeNode"])
    @pytest.mark.parametrize("kind", ["lightgbm.basic.Booster", "xgboost.core.Booster"])
    def test_constructors_are_not_called(
        self, copy: Callable[[str], Path], tmp_path: Path, kind: str, loader: str
    ) -> None:
        path = copy("linear")
        os.mkfifo(tmp_path / "pipe")  # whoever opens it never returns
        gadget = self.booster(kind, str(tmp_path / "pipe"), loader)
        edit_schema(path, lambda schema, _: schema["content"]["content"].update(extra=gadget))
        refused(path, f"makes a {kind} by {loader}, as skops does not")

    @pytest.mark.parametrize(
        ("module", "name", "loader"),
        [
            ("builtins", "eval", "FunctionNode"),
            ("os", "system", "FunctionNode"),
            ("numpy", "fromfile", "FunctionNode"),
            ("functools", "partial", "PartialNode"),
            ("operator", "methodcaller", "OperatorFuncNode"),
            ("pathlib", "Path", "TypeNode"),
            ("sklearn.linear_model._logistic", "LogisticRegression", "MethodNode"),
            ("sklearn.linear_model._logistic", "LogisticRegression", "CachedNode"),
        ],
    )
    def test_no_other_way_to_call(self, copy: Callable[[str], Path], module: str, name: str, loader: str) -> None:
        path = copy("linear")
        node = {"__class__": name, "__module__": module, "__loader__": loader, "content": {}, "__id__": 5}
        edit_schema(path, lambda schema, _: schema["content"]["content"].update(extra=node))
        refused(path, r"in the manifest cannot be made a skops")

    def test_compressed_members_are_refused(self, copy: Callable[[str], Path]) -> None:
        path = copy("linear")
        file = min(path.glob("*.skops"))
        with zipfile.ZipFile(file) as zipped:
            members = {name: zipped.read(name) for name in zipped.namelist()}
        stream = io.BytesIO()
        np.save(stream, np.zeros(1 << 22))
        members["7.npy"] = stream.getvalue()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name, content in members.items():
                zipped.writestr(name, content)
        hash_again(path)
        refused(path, "is compressed, as fivesigma.save does not")


@pytest.mark.parametrize("position", [-1, 625, (1 << 31) - 1])
def test_random_states_at_no_position(copy: Callable[[str], Path], position: int) -> None:
    good = copy("linear")
    path = save(load(good).set_params(random_state=np.random.RandomState(0)), good.parent / "random")
    forge(path, lambda m: m["model"]["parameters"]["random_state"]["state"]["items"].__setitem__(2, position))
    refused(path, "is not the state of a random generator")


MEANINGS: list[tuple[str, Callable[[dict[str, Any]], Any], str]] = [
    ("xgboost", lambda m: m["fitted"]["models_"][0].update(n_trees=-1), "n_trees is -1, and the booster has 3"),
    ("xgboost", lambda m: m["fitted"]["models_"][0].update(n_trees=10**9), "n_trees .* and the booster has 3"),
    ("lightgbm", lambda m: m["fitted"]["models_"][0].update(files=[]), "names no booster"),
    ("xgboost", lambda m: m["parameters"].update(n_jobs="all"), "n_jobs"),
    ("xgboost", lambda m: m["parameters"].update(utility=3), "parameters in the manifest cannot belong"),
    ("pool", lambda m: m["fitted"]["blend_"].update(kind="x"), "gives other scores now"),
    ("pool", lambda m: m["fitted"]["blend_"]["weights"].update(data=[-1.0]), "gives other scores now"),
    ("pool", lambda m: m["fitted"]["blend_"].update(knots=[]), "cannot be used"),
    ("xgboost", lambda m: m["fitted"].update(n_features_in_=1 << 44), "cannot be used"),
    ("xgboost", lambda m: m["fitted"].update(models_=[{"$": "tuple", "items": []}]), "cannot be used"),
    (
        "decomposed",
        lambda m: m["fitted"]["models_"][0].update(log_balance={"$": "number", "value": "nan"}),
        "gives other scores now",
    ),
]


@pytest.mark.parametrize(("name", "change", "words"), MEANINGS, ids=map(str, range(len(MEANINGS))))
def test_values_with_which_a_model_cannot_score(
    copy: Callable[[str], Path], name: str, change: Callable[[dict[str, Any]], Any], words: str
) -> None:
    path = copy(name)
    forge(path, lambda manifest: change(manifest["model"]))
    refused(path, words)


HEADERS = {
    "too long": b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000,), }",
    "longer than the file": b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000,), }",
    "objects": b"{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
    "code": b"__import__('os').system('true')",
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_headers_of_arrays_that_lie_are_refused(copy: Callable[[str], Path], header: bytes) -> None:
    path = copy("pool")
    text = header.ljust(117) + b"\n"
    rewrite(path, ".npy", lambda _: b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(16))
    refused(path, "in the manifest cannot be made a array")


def test_versions_of_a_wrong_type_are_refused(copy: Callable[[str], Path]) -> None:
    for versions in (None, [1]):
        path = copy("xgboost")
        forge(path, lambda manifest, versions=versions: manifest.update(versions=versions))  # type: ignore[misc]
        refused(path, "has not the parts .*versions")
        shutil.rmtree(path)


def test_a_net_with_nan_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from safetensors.numpy import load as read
    from safetensors.numpy import save as write

    path = save(load(Path(__file__).parent / "format-1" / "net"), tmp_path / "net")

    def spoil(content: bytes) -> bytes:
        arrays = {name: array.copy() for name, array in read(content).items()}
        arrays["layer-000"].flat[0] = np.nan
        return write(arrays)

    rewrite(path, ".safetensors", spoil)
    refused(path, "gives other scores now")


def test_pipes_and_links_are_not_opened(copy: Callable[[str], Path], tmp_path: Path) -> None:
    for name in ("part-000.npy", "manifest.json"):
        path = copy("xgboost")
        victim = next(iter(path.glob(name)), path / "manifest.json")
        victim.unlink()
        os.mkfifo(victim)
        refused(path, "which is no plain file")
        shutil.rmtree(path)
    os.mkfifo(tmp_path / "model")
    refused(tmp_path / "model", "no saved model")
