"""Models of strangers, with right hashes: they are used safely or refused with one sentence, and nothing else."""

import io
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.robustness.fuzz_edits import _decode, _encode
from benchmarks.robustness.fuzz_models import Child, hash_again, run
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from fivesigma import CascadeClassifier, CascadePool, DecomposedClassifier, GrownCascadeClassifier, load, save
from fivesigma.errors import InputError, StoreError
from fivesigma.store.checks import UncheckedError, lightgbm_model, xgboost_model
from fivesigma.store.checks.lightgbm_numbers import check_numbers, infinities_replaced
from fivesigma.store.checks.walks import check_depth
from tests.estimators.blobs import make_blobs
from tests.store.test_store import forge

xgboost = pytest.importorskip("xgboost")
lightgbm = pytest.importorskip("lightgbm")
skops = pytest.importorskip("skops.io")
pandas = pytest.importorskip("pandas")

X, Y, W = make_blobs(1500)
# Of few digits; LightGBM's may be longer.
NUMBER = re.compile(r"-?[0-9]{1,9}(\.[0-9]{1,9})?(e-[0-9]{1,3}|e\+?(300|[0-2]?[0-9]?[0-9]))?")
ONCE: dict[str, Any] = {"max_rounds": 1, "extra_rounds": 0, "random_state": 0, "n_jobs": 1}
GROWN: dict[str, Any] = {"n_trees": 3, "random_state": 0, "n_jobs": 1}
MODELS: dict[str, Callable[[], Any]] = {
    "xgboost": lambda: GrownCascadeClassifier(**GROWN),
    "lightgbm": lambda: GrownCascadeClassifier("lightgbm", **GROWN),
    "forest": lambda: CascadeClassifier(RandomForestClassifier(2, max_depth=3), **ONCE),
    "boosting": lambda: CascadeClassifier(GradientBoostingClassifier(n_estimators=2), **ONCE),
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


def refused(path: Path, words: str = "pass trusted=True if you trust its author") -> None:
    with pytest.raises(StoreError, match=words) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def rewrite(path: Path, ending: str, change: Callable[[bytes], bytes]) -> None:
    """Change the first part of a kind and give the model right hashes."""
    part = min(path.glob(f"*{ending}"))
    part.write_bytes(change(part.read_bytes()))
    hash_again(path)


@pytest.mark.parametrize("name", MODELS)
def test_good_models_pass_and_score_the_same(copy: Callable[[str], Path], name: str) -> None:
    path = copy(name)
    checked, trusted = load(path), load(path, trusted=True)
    np.testing.assert_array_equal(checked.predict_proba(X), trusted.predict_proba(X))


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_good_models_of_missing_values_pass(library: str, tmp_path: Path) -> None:
    """LightGBM parts missing values from all others by an infinite threshold."""
    rng = np.random.default_rng(0)
    y = rng.random(1500) < 0.5
    holes = np.where(rng.random(y.size) < np.where(y, 0.9, 0.1), np.nan, rng.normal(size=y.size))[:, None]
    model = GrownCascadeClassifier(library, n_trees=5, random_state=0, n_jobs=1).fit(holes, y, np.ones(y.size))
    path = save(model, tmp_path / "model")
    if library == "lightgbm":
        assert re.search(rb"\nthreshold=[^\n]*\binf\b", next(path.glob("*.txt")).read_bytes())
    np.testing.assert_array_equal(load(path).predict_proba(holes), model.predict_proba(holes))


class TestXGBoost:
    """Shortest first: what made XGBoost end the process, or never end."""

    def change(self, key: bytes, value: Callable[[list[Any]], Any]) -> Callable[[bytes], bytes]:
        def edit(content: bytes) -> bytes:
            root, _ = _decode(content, 0)
            found = []

            def find(node: Any) -> None:
                for k, child in node[1] if node[0] == "{" else ():
                    found.extend([child] if k == key else [])
                    find(child)
                for child in node[1] if node[0] == "[" else ():
                    find(child)

            find(root)
            value(found[0])
            return _encode(root)

        return edit

    @pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[#L" + b"\xff" * 8, b"{L\x7f" + b"\xff" * 7])
    def test_no_booster(self, copy: Callable[[str], Path], content: bytes) -> None:
        path = copy("xgboost")
        rewrite(path, ".ubj", lambda _: content)
        refused(path)

    @pytest.mark.parametrize(
        ("key", "place", "value"),
        [
            (b"left_children", 0, 1_000_000),
            (b"left_children", 0, 0),
            (b"left_children", 0, -5),
            (b"right_children", 0, 1),
            (b"parents", 1, 2),
            (b"split_indices", 0, 3),
            (b"split_indices", 0, -1),
            (b"split_conditions", -1, float("nan")),
            (b"split_type", 0, 1),
            (b"default_left", 0, 2),
            (b"loss_changes", 0, float("nan")),
        ],
    )
    def test_a_tree_that_cannot_be_walked(
        self, copy: Callable[[str], Path], key: bytes, place: int, value: float
    ) -> None:
        path = copy("xgboost")
        rewrite(path, ".ubj", self.change(key, lambda node: node[2].__setitem__(place, value)))
        refused(path)

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            (b"num_feature", b"4"),
            (b"num_nodes", b"1"),
            (b"num_trees", b"99"),
            (b"num_class", b"3"),
            (b"num_deleted", b"1"),
            (b"size_leaf_vector", b"2"),
            (b"base_score", b"[nan]"),
            (b"base_score", b"[2E0]"),
            (b"num_parallel_tree", b"0"),
        ],
    )
    def test_a_wrong_count(self, copy: Callable[[str], Path], key: bytes, value: bytes) -> None:
        path = copy("xgboost")
        rewrite(path, ".ubj", self.change(key, lambda node: node.__setitem__(1, value)))
        refused(path)

    def test_arrays_of_another_length_or_type(self, copy: Callable[[str], Path]) -> None:
        for key in (b"sum_hessian", b"base_weights", b"left_children", b"split_type"):
            for edit in (lambda node: node[2].pop(), lambda node: node.__setitem__(1, "L")):
                path = copy("xgboost")
                rewrite(path, ".ubj", self.change(key, edit))
                refused(path)
                shutil.rmtree(path)

    def test_unknown_and_doubled_keys_and_trailing_bytes(self, copy: Callable[[str], Path]) -> None:
        for edit in (
            self.change(b"learner", lambda node: node[1].append([b"extra", ["i", 1]])),
            self.change(b"learner", lambda node: node[1].append(node[1][0])),
            self.change(b"tree_info", lambda node: node[1].append(["i", 0])),
            self.change(b"iteration_indptr", lambda node: node[1].reverse()),
            lambda content: content + b"\0",
            lambda content: content[:-1],
        ):
            path = copy("xgboost")
            rewrite(path, ".ubj", edit)
            refused(path)
            shutil.rmtree(path)

    def test_categories_beyond_the_last(self) -> None:
        rng = np.random.default_rng(0)
        frame = pandas.DataFrame({"a": X[:, 0], "c": pandas.Categorical(rng.integers(0, 20, len(X)).astype(str))})
        model = xgboost.XGBClassifier(n_estimators=3, max_depth=3, enable_categorical=True, n_jobs=1)
        raw = bytes(model.fit(frame, rng.integers(0, 2, len(X))).get_booster().save_raw("ubj"))
        assert xgboost_model.check_booster(raw) == (2, 3)
        for key, value in (
            (b"categories", 1 << 30),
            (b"categories", -1),
            (b"categories_nodes", 1000),
            (b"categories_segments", 1 << 40),
            (b"categories_sizes", 1 << 40),
            (b"sorted_idx", 1000),
            (b"feature_segments", 1000),
        ):

            def put(node: list[Any], value: int = value) -> None:
                node[2][-1] = value

            with pytest.raises(UncheckedError):
                xgboost_model.check_booster(self.change(key, put)(raw))

    @pytest.mark.parametrize(
        "options",
        [
            {"booster": "dart", "rate_drop": 0.3},
            {"booster": "gblinear"},
            {"tree_method": "exact", "gamma": 1},  # pruning leaves deleted nodes
            {"grow_policy": "lossguide", "max_leaves": 7},
            {"num_parallel_tree": 3},
            {"n_estimators": 200, "max_depth": 1},
        ],
        ids=str,
    )
    @pytest.mark.filterwarnings("ignore")
    def test_what_xgboost_writes_is_read(self, options: dict[str, Any]) -> None:
        model = xgboost.XGBClassifier(**{"n_estimators": 4, "n_jobs": 1, **options}).fit(X, Y)
        raw = bytes(model.get_booster().save_raw("ubj"))
        assert xgboost_model.check_booster(raw) == (X.shape[1], options.get("n_estimators", 4))


class TestLightGBM:
    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (rb"left_child=", rb"left_child=99 "),
            (rb"\nleft_child=[-\d]+", rb"\nleft_child=0"),
            (rb"\nright_child=[-\d]+", rb"\nright_child=-99"),
            (rb"\nsplit_feature=\d+", rb"\nsplit_feature=77"),
            (rb"\ndecision_type=\d+", rb"\ndecision_type=1"),
            (rb"\nleaf_value=[-.\de]+", rb"\nleaf_value=nan"),
            (rb"\nleaf_value=[-.\de]+", rb"\nleaf_value=1e400"),
            (rb"\nsplit_gain=[-.\de]+", rb"\nsplit_gain=x"),
            (rb"num_leaves=\d+", rb"num_leaves=1000000"),
            (rb"num_cat=0", rb"num_cat=3"),
            (rb"tree_sizes=\d+", rb"tree_sizes=99999999"),
            (rb"tree_sizes=\d+", rb"tree_sizes=1"),
            (rb"max_feature_idx=\d+", rb"max_feature_idx=99"),
            (rb"is_linear=0", rb"is_linear=1"),
            (rb"num_class=1", rb"num_class=9"),
            (rb"objective=binary", rb"objective=multiclass"),
            (rb"\[machine_list_filename: \]", rb"[machine_list_filename: /etc/passwd]"),
            (rb"end of trees", rb"end of all"),
        ],
    )
    def test_a_text_that_cannot_be_used(self, copy: Callable[[str], Path], old: bytes, new: bytes) -> None:
        import re

        path = copy("lightgbm")

        def edit(content: bytes) -> bytes:
            out, n = re.subn(old, new, content, count=1)
            assert n == 1
            return out

        rewrite(path, ".txt", edit)
        refused(path)

    @pytest.mark.parametrize("length", [0, 10, 300, 900, -5])
    def test_a_text_that_was_cut(self, copy: Callable[[str], Path], length: int) -> None:
        path = copy("lightgbm")
        rewrite(path, ".txt", lambda content: content[:length])
        refused(path)

    def test_what_lightgbm_writes_is_read(self) -> None:
        rng = np.random.default_rng(0)
        codes = rng.integers(0, 20, len(X))
        frame = pandas.DataFrame({"a": X[:, 0], "c": pandas.Categorical(codes.astype(str))})
        common = {"n_estimators": 3, "verbosity": -1, "n_jobs": 1, "min_data_per_group": 5, "cat_smooth": 1}
        for options in ({}, {"boosting_type": "dart"}, {"min_child_samples": 500}, {"num_leaves": 100}):
            model = lightgbm.LGBMClassifier(**{**common, **options}).fit(frame, codes % 2)
            text = model.booster_.model_to_string().encode()
            assert lightgbm_model.check_booster(text)[0] == 2
        for word in (b"cat_boundaries=0 ", b"cat_threshold="):
            text = lightgbm.LGBMClassifier(**common).fit(frame, codes % 2).booster_.model_to_string().encode()
            with pytest.raises(UncheckedError):
                lightgbm_model.check_booster(text.replace(word, word + b"9 ", 1))

    @given(st.lists(st.from_regex(NUMBER, fullmatch=True) | st.text("0123-+.e inf", max_size=8), max_size=8))
    @example(["1.5.5"])
    @example(["1e5e5"])
    @example(["1e5.5"])
    @example(["5inf"])
    @example(["1e-inf"])
    @example(["+1"])
    def test_numbers_are_what_a_regular_expression_says(self, words: list[str]) -> None:
        """The oracle is slow and plain; an infinity is a number among thresholds alone."""
        text = " ".join(words)
        for infinite, name in ((False, "leaf_value"), (True, "threshold")):
            tokens = text.split(" ") if text else []
            right = all(NUMBER.fullmatch(t) or (infinite and t in ("inf", "-inf")) for t in tokens)
            try:
                found = check_numbers(infinities_replaced(text.encode()) if infinite else text.encode())
            except UncheckedError:
                assert not right, name
            else:
                assert right, name
                assert found.size == len(tokens)


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


def fitted_part(path: Path, name: str) -> int:
    """Number of the file of skops that holds an object of a class, fitted."""
    for k, file in enumerate(sorted(path.glob("*.skops"))):
        with zipfile.ZipFile(file) as zipped:
            if nodes(json.loads(zipped.read("schema.json")), name):
                return k
    raise AssertionError(name)


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

    @pytest.mark.parametrize("loader", ["ConstructorFromReduceNode", "LossNode", "ReduceNode"])
    @pytest.mark.parametrize("kind", ["lightgbm.basic.Booster", "xgboost.core.Booster"])
    def test_constructors_are_not_called(
        self, copy: Callable[[str], Path], tmp_path: Path, kind: str, loader: str
    ) -> None:
        path = copy("linear")
        os.mkfifo(tmp_path / "pipe")  # whoever opens it never returns
        gadget = self.booster(kind, str(tmp_path / "pipe"), loader)
        edit_schema(path, lambda schema, _: schema["content"]["content"].update(extra=gadget))
        refused(path, f"holds {kind} by {loader}, which cannot be checked; pass trusted=True")

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
        refused(path, "cannot be|which is not|UntrustedTypes|trusted")

    def test_a_number_that_stands_for_two_parts(self, copy: Callable[[str], Path]) -> None:
        path = copy("pipeline-lightgbm")

        def change(schema: Any, _members: dict[str, bytes]) -> None:
            (booster,) = nodes(schema, "Booster")
            handle = booster["content"]["content"]["_handle"]
            first = {**handle, "content": json.dumps("tree\nversion=v4\n")}
            entries = schema["content"]["content"]
            schema["content"]["content"] = {"before": first, **entries}

        edit_schema(path, change, fitted_part(path, "Booster"))
        refused(path, "two parts of it have one number")

    @pytest.mark.parametrize("name", ["pipeline-xgboost", "pipeline-lightgbm"])
    def test_boosters_in_a_pipeline_are_checked(self, copy: Callable[[str], Path], name: str) -> None:
        path = copy(name)

        def change(schema: Any, members: dict[str, bytes]) -> None:
            (booster,) = nodes(schema, "Booster")
            if name == "pipeline-lightgbm":
                handle = booster["content"]["content"]["_handle"]
                handle["content"] = handle["content"].replace("left_child=", "left_child=99 ", 1)
            else:
                (file,) = [f for f in members if f.endswith(".bin")]
                edit = TestXGBoost().change(b"left_children", lambda node: node[2].__setitem__(0, 10**6))
                members[file] = edit(members[file])

        edit_schema(path, change, fitted_part(path, "Booster"))
        refused(path)

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
        refused(path, "it is compressed, as fivesigma.save does not")

    @pytest.mark.parametrize("name", ["../x.npy", "/x.npy", "a/b.npy", "x.pickle"])
    def test_members_with_other_names_are_refused(self, copy: Callable[[str], Path], name: str) -> None:
        path = copy("linear")
        edit_schema(path, lambda _, members: members.update({name: b""}))
        refused(path, "it holds")

    def test_a_member_is_used_once(self, copy: Callable[[str], Path]) -> None:
        path = copy("forest")

        def change(schema: Any, _members: dict[str, bytes]) -> None:
            first, *others = nodes(schema, "ndarray")
            others[-1]["file"] = first["file"]

        edit_schema(path, change, fitted_part(path, "Tree"))
        refused(path)


class TestScikitLearn:
    def edit_array(self, path: Path, kind: str, key: str, change: Callable[[Any], Any]) -> None:
        """Change an array of the first object of a class."""

        def edit(schema: Any, members: dict[str, bytes]) -> None:
            file = nodes(schema, kind)[0]["content"]["content"][key]["file"]
            array = np.load(io.BytesIO(members[file])).copy()
            changed = change(array)
            stream = io.BytesIO()
            np.save(stream, array if changed is None else changed)
            members[file] = stream.getvalue()

        edit_schema(path, edit, fitted_part(path, kind))

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("left_child", 10**6),
            ("left_child", 0),
            ("right_child", 10**6),
            ("feature", 77),
            ("threshold", float("nan")),
        ],
    )
    @pytest.mark.parametrize("name", ["forest", "boosting"])
    def test_a_tree_that_cannot_be_walked(
        self, copy: Callable[[str], Path], name: str, field: str, value: float
    ) -> None:
        path = copy(name)
        self.edit_array(path, "Tree", "nodes", lambda nodes: nodes[field].__setitem__(0, value))
        refused(path)

    @pytest.mark.parametrize(
        ("field", "value"),
        [("left", 10**6), ("left", 0), ("right", 10**6), ("feature_idx", 77), ("is_categorical", 1), ("is_leaf", 2)],
    )
    def test_a_histogram_tree_that_cannot_be_walked(self, copy: Callable[[str], Path], field: str, value: int) -> None:
        path = copy("histogram")
        self.edit_array(path, "TreePredictor", "nodes", lambda nodes: nodes[field].__setitem__(0, value))
        refused(path)

    def test_counts_that_do_not_agree(self, copy: Callable[[str], Path]) -> None:
        def more_outputs(schema: Any, _: Any) -> None:
            nodes(schema, "Tree")[0]["__reduce__"]["args"]["content"][2].update(content="1000", __id__=3)

        def more_features(schema: Any, _: Any) -> None:
            schema["content"]["content"]["n_features_in_"].update(content="7", __id__=3)

        def no_features(schema: Any, _: Any) -> None:
            del schema["content"]["content"]["n_features_in_"]

        for change in (more_outputs, more_features, no_features):
            path = copy("forest")
            edit_schema(path, change, fitted_part(path, "Tree"))
            refused(path)
            shutil.rmtree(path)

    @pytest.mark.parametrize("position", [-1, 625, (1 << 31) - 1])
    def test_random_states_at_no_position(self, copy: Callable[[str], Path], position: int) -> None:
        good = copy("linear")
        path = save(load(good).set_params(random_state=np.random.RandomState(0)), good.parent / "random")
        forge(path, lambda m: m["model"]["parameters"]["random_state"]["state"]["items"].__setitem__(2, position))
        refused(path, "is not the state of a random generator")

    def test_many_threads_are_refused(self, copy: Callable[[str], Path]) -> None:
        for name, kind in (("forest", "RandomForestClassifier"), ("pipeline-xgboost", "XGBClassifier")):
            path = copy(name)

            def change(schema: Any, _members: dict[str, bytes], kind: str = kind) -> None:
                nodes(schema, kind)[0]["content"]["content"]["n_jobs"].update(content="100000", __id__=3)

            edit_schema(path, change, fitted_part(path, kind))
            refused(path, "its n_jobs is not a number of threads")
        path = copy("lightgbm")
        forge(path, lambda m: m["model"]["fitted"]["models_"][0].update(n_threads=10**6))
        refused(path, "n_threads is not a number of threads")

    @pytest.mark.parametrize("learner", [KNeighborsClassifier(), SVC()], ids=["neighbours", "vectors"])
    def test_what_cannot_be_checked_needs_trust(self, learner: Any, tmp_path: Path) -> None:
        model = DecomposedClassifier(learner, xgboost.XGBRegressor(n_estimators=2), random_state=0, n_jobs=1)
        path = save(model.fit(X, Y, W), tmp_path / "model")
        refused(path, f"{type(learner).__name__} by ObjectNode, which cannot be checked; pass trusted=True")
        np.testing.assert_array_equal(load(path, trusted=True).predict_proba(X), model.predict_proba(X))

    def test_errors_at_use_are_sentences(self, copy: Callable[[str], Path]) -> None:
        path = copy("linear")
        edit_schema(path, lambda schema, _: schema["content"]["content"].pop("coef_"), fitted_part(path, "ndarray"))
        model = load(path)
        with pytest.raises(InputError, match="LogisticRegression of the loaded model cannot score these events"):
            model.predict_proba(X)


MEANINGS: list[tuple[str, Callable[[dict[str, Any]], Any], str]] = [
    ("xgboost", lambda m: m["fitted"]["models_"][0].update(n_trees=-1), "n_trees .* is -1, and the booster has 3"),
    ("xgboost", lambda m: m["fitted"]["models_"][0].update(n_trees=10**9), "n_trees .* and the booster has 3"),
    ("xgboost", lambda m: m["fitted"].update(n_trees_=10**9), "n_trees_ in the manifest cannot belong"),
    ("xgboost", lambda m: m["fitted"].update(n_features_in_=4), "models_ in the manifest cannot belong"),
    ("lightgbm", lambda m: m["fitted"].update(n_features_in_=4), "models_ in the manifest cannot belong"),
    ("lightgbm", lambda m: m["fitted"]["models_"][0].update(files=[]), "names no booster"),
    ("forest", lambda m: m["fitted"].update(n_features_in_=4), "models_ in the manifest cannot belong"),
    ("decomposed", lambda m: m["fitted"].update(n_features_in_=4), "models_ in the manifest cannot belong"),
    (
        "xgboost",
        lambda m: m["fitted"].update(classes_={"$": "array", "dtype": "<U1", "shape": [2], "data": ["s", "s"]}),
        "classes_ in the manifest cannot belong",
    ),
    ("xgboost", lambda m: m["fitted"].update(columns_=[1]), "columns_ in the manifest cannot belong"),
    ("xgboost", lambda m: m["fitted"].update(columns_={"features": 7}), "columns_ in the manifest cannot belong"),
    ("xgboost", lambda m: m["fitted"].update(columns_={"label": ["x"]}), "columns_ in the manifest cannot belong"),
    ("xgboost", lambda m: m["fitted"].update(columns_={"missing": "x"}), "columns_ in the manifest cannot belong"),
    ("xgboost", lambda m: m["fitted"].update(data_hash_=7), "data_hash_ in the manifest cannot belong"),
    ("xgboost", lambda m: m["fitted"].update(selected_fraction_=7.0), "selected_fraction_ .* cannot belong"),
    ("xgboost", lambda m: m["parameters"].update(n_jobs="all"), "n_jobs"),
    ("xgboost", lambda m: m["parameters"].update(utility=3), "parameters in the manifest cannot belong"),
    ("pool", lambda m: m["fitted"]["blend_"].update(kind="x"), "blend_ in the manifest cannot belong"),
    ("pool", lambda m: m["fitted"]["blend_"]["weights"].update(data=[-1.0]), "blend_ in the manifest cannot belong"),
    ("pool", lambda m: m["fitted"].update(member_significance_={"a": "x"}), "member_significance_"),
    ("decomposed", lambda m: m["fitted"]["models_"][0].update(log_balance={"$": "number", "value": "nan"}), "is nan"),
]


@pytest.mark.parametrize(("name", "change", "words"), MEANINGS, ids=map(str, range(len(MEANINGS))))
def test_values_with_which_a_model_cannot_score(
    copy: Callable[[str], Path], name: str, change: Callable[[dict[str, Any]], Any], words: str
) -> None:
    path = copy(name)
    forge(path, lambda manifest: change(manifest["model"]))
    refused(path, words)


def test_wide_texts_do_not_swell(copy: Callable[[str], Path]) -> None:
    path = copy("xgboost")
    wide = {"$": "array", "dtype": "<U9999", "shape": [60_000], "data": [""] * 60_000}
    forge(path, lambda manifest: manifest["model"]["fitted"].update(extra_=wide))
    refused(path, "is <U9999, far more than its 60000 texts need")


def test_values_of_no_size_are_refused(copy: Callable[[str], Path]) -> None:
    path = copy("pool")
    text = b"{'descr': '<U0', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(117) + b"\n"
    rewrite(path, ".npy", lambda _: b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    refused(path, "holds 1000000000000 values of no size")


def test_versions_of_a_wrong_type_are_refused(copy: Callable[[str], Path]) -> None:
    for versions in (None, [1], {"xgboost": 3}):
        path = copy("xgboost")
        forge(path, lambda manifest, versions=versions: manifest.update(versions=versions))  # type: ignore[misc]
        refused(path, "by which versions")
        shutil.rmtree(path)


def test_a_net_with_nan_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from safetensors.numpy import load as read
    from safetensors.numpy import save as write

    source = Path(__file__).parent / "format-1" / "net"
    path = Path(shutil.copytree(source, tmp_path / "net"))

    def spoil(content: bytes) -> bytes:
        arrays = {name: array.copy() for name, array in read(content).items()}
        arrays["layer-000"].flat[0] = np.nan
        return write(arrays)

    rewrite(path, ".safetensors", spoil)
    refused(path, "are not finite")


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


def test_deep_trees_are_refused() -> None:
    check_depth(np.maximum(np.arange(4000) - 1, 0))
    with pytest.raises(UncheckedError, match="deeper than"):
        check_depth(np.maximum(np.arange(10_000) - 1, 0))


def test_the_child_of_the_fuzzer_notices(copy: Callable[[str], Path], tmp_path: Path) -> None:
    """The watch of the fuzzer sees good models, bad ones, and ends that should not be."""
    child = Child()
    try:
        assert child.use(copy("xgboost")) == "used"
        path = copy("lightgbm")
        rewrite(path, ".txt", lambda content: content[:500])
        assert child.use(path) == "refused"
        outside = tmp_path / "outside"
        outside.symlink_to(copy("linear"))
        assert child.use(outside) == "used"
    finally:
        child.end()


def test_fuzz(tmp_path: Path) -> None:
    """A short run of the benchmark; the long one is ``python -m benchmarks.robustness.fuzz_models``."""
    pytest.importorskip("torch")
    counts, surprises = run(12, seed=2, folder=tmp_path)
    assert not surprises, surprises[0]
    assert sum(counts.values()) == 10 * 12, "ten kinds of parts"
    assert counts[".ubj refused"] > 0
    assert counts[".npy used"] + counts[".ubj used"] > 0, "the damage is so coarse that nothing survives it"
