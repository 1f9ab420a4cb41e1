"""An exported model says what the library says, and what cannot be exported says why."""

import ctypes
import json
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.linear_model import GammaRegressor, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures, RobustScaler, StandardScaler

import fivesigma
from fivesigma import (
    AutoClassifier,
    CascadeClassifier,
    CascadePool,
    DecomposedClassifier,
    GrownCascadeClassifier,
    NetClassifier,
    categorise,
    export,
    save,
)
from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.blend import Blend, _rank
from fivesigma.cli import main
from fivesigma.datasets import make_htautau, write_events
from fivesigma.errors import InputError
from fivesigma.exporting import TOLERANCE, run_onnx, simulated_table
from fivesigma.exporting.graph import Graph
from fivesigma.exporting.operators import rank
from fivesigma.exporting.trees import Forest, _exponential, _parts, lightgbm_forest, xgboost_forest
from fivesigma.learners.lightgbm import LightGBMModel

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
xgboost = pytest.importorskip("xgboost")
lightgbm = pytest.importorskip("lightgbm")

# A few hundred events are enough here.
pytestmark = pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "export.md").read_text()
ONE: dict[str, Any] = {"random_state": 0, "n_jobs": 1}
ROUNDS: dict[str, Any] = {**ONE, "max_rounds": 2, "extra_rounds": 0}
MOMENTA = [(1, 2, 3), (4, None, 5)]
# What float32 sums may cost where they are added up in another order, and what float64 sums do.
SINGLE, DOUBLE = 1e-6, 1e-12
GLIBC = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="XGBoost's exponential is that of another library")


def make_events(n: int = 1200, *, missing: bool = True, seed: int = 0) -> tuple[Array, IntArray, Array]:
    """Six columns, of which two are transverse momenta and three are angles."""
    rng = np.random.default_rng(seed)
    y = (np.arange(n) % 2).astype(np.intp)
    X = rng.normal(size=(n, 6)) + 0.7 * y[:, None]
    X[:, [1, 4]] = 30.0 * np.exp(X[:, [1, 4]])
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
    return X, y, np.where(y == 1, 0.1, rng.uniform(0.5, 2.0, n))


def run(path: Path, X: AnyArray, precision: str = "float64") -> tuple[Array, BoolArray]:
    """Score and selection of a file by onnxruntime with its defaults, as a user has it."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    score, selected = session.run(["score", "selected"], {"features": np.asarray(X, dtype=precision)})
    return score, selected


def small_net(**options: Any) -> NetClassifier:
    pytest.importorskip("torch")
    return NetClassifier(
        **{"width": 8, "depth": 2, "epochs": 2, "batch_size": 200, "momenta": MOMENTA, **ONE, **options}
    )


def pool(blend: str, **options: Any) -> CascadePool:
    members = [
        ("grown", GrownCascadeClassifier(n_trees=15)),
        ("light", GrownCascadeClassifier("lightgbm", n_trees=15)),
        ("net", small_net()),
        ("ratio", DecomposedClassifier(xgboost.XGBClassifier(n_estimators=10))),
        ("logistic", make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression())),
    ]
    return CascadePool(members, blend=blend, **{**ONE, **options})


def linear(*steps: Any) -> CascadeClassifier:
    return CascadeClassifier(make_pipeline(SimpleImputer(), *steps, LogisticRegression()), **ROUNDS)


def light(**options: Any) -> Any:
    return lightgbm.LGBMClassifier(n_estimators=10, verbosity=-1, **options)


def gamma() -> Any:
    return lightgbm.LGBMRegressor(objective="gamma", n_estimators=10, verbosity=-1)


KINDS: dict[str, tuple[Callable[[], Any], float]] = {
    "grown XGBoost": (lambda: GrownCascadeClassifier(n_trees=30, **ONE), SINGLE),
    "grown XGBoost, three boosters": (lambda: GrownCascadeClassifier(n_trees=20, cv=3, **ONE), SINGLE),
    "grown XGBoost, stopped early": (lambda: GrownCascadeClassifier(n_trees=80, early_stopping=5, **ONE), SINGLE),
    "grown LightGBM": (lambda: GrownCascadeClassifier("lightgbm", n_trees=30, **ONE), DOUBLE),
    "grown LightGBM, three boosters": (lambda: GrownCascadeClassifier("lightgbm", n_trees=15, cv=3, **ONE), DOUBLE),
    "retrained XGBoost": (lambda: CascadeClassifier(xgboost.XGBClassifier(n_estimators=10), **ROUNDS), SINGLE),
    "retrained XGBoost, dart": (
        lambda: CascadeClassifier(xgboost.XGBClassifier(n_estimators=10, booster="dart", rate_drop=0.5), **ROUNDS),
        SINGLE,
    ),
    "retrained XGBoost, exact": (
        lambda: CascadeClassifier(xgboost.XGBClassifier(n_estimators=10, tree_method="exact", gamma=3.0), **ROUNDS),
        SINGLE,
    ),
    "retrained LightGBM": (lambda: CascadeClassifier(light(), **ROUNDS), DOUBLE),
    "retrained LightGBM, forest": (
        lambda: CascadeClassifier(light(boosting_type="rf", subsample=0.5, subsample_freq=1), **ROUNDS),
        DOUBLE,
    ),
    "retrained LightGBM that ignores missing values": (
        lambda: CascadeClassifier(light(use_missing=False), **ROUNDS),
        DOUBLE,
    ),
    "logistic regression": (lambda: linear(StandardScaler()), 1e-12),
    "logistic regression, other scalers": (
        lambda: linear(RobustScaler(), MinMaxScaler((-1.0, 3.0)), "passthrough"),
        1e-12,
    ),
    "Pipeline of an imputer and XGBoost": (
        lambda: CascadeClassifier(make_pipeline(SimpleImputer(), xgboost.XGBClassifier(n_estimators=10)), **ROUNDS),
        SINGLE,
    ),
    "Pipeline of an imputer and LightGBM": (
        lambda: CascadeClassifier(make_pipeline(SimpleImputer(strategy="median"), light()), **ROUNDS),
        DOUBLE,
    ),
    "decomposed XGBoost": (lambda: DecomposedClassifier(xgboost.XGBClassifier(n_estimators=10), cv=2, **ONE), SINGLE),
    "decomposed LightGBM": (lambda: DecomposedClassifier(light(), gamma(), **ONE), DOUBLE),
    "decomposed, squared loss": (
        lambda: DecomposedClassifier(light(), xgboost.XGBRegressor(n_estimators=10), **ONE),
        SINGLE,
    ),
    "decomposed net": (lambda: DecomposedClassifier(small_net(), **ONE), SINGLE),
    "net": (small_net, 1e-12),
    "net, one copy": (lambda: small_net(n_augment=1), 1e-12),
    "net without momenta": (lambda: small_net(momenta=None, columns=[0, 1, 4]), 1e-12),
    "retrained net": (lambda: CascadeClassifier(small_net(n_augment=4), cv=2, **ROUNDS), 1e-12),
    "pool of probabilities": (lambda: pool("probability", weights="fit"), SINGLE),
    "pool of margins": (lambda: pool("margin", cv=2, keep=4), SINGLE),
    "pool of ranks": (lambda: pool("rank", cv=2), 2e-6),
}


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_scores_as_the_library_does(kind: str, tmp_path: Path) -> None:
    make, tolerance = KINDS[kind]
    X, y, w = make_events()
    model = make().fit(X, y, sample_weight=w)
    path = tmp_path / "model.onnx"
    written = export(model, path)
    assert written.simulated
    assert written.largest_difference <= tolerance
    assert written.n_moved == 0
    new, _, _ = make_events(3000, seed=1)
    score, selected = run(path, new)
    np.testing.assert_allclose(score, model.predict_proba(new)[:, 1], rtol=0, atol=tolerance)
    np.testing.assert_array_equal(model.classes_[selected.astype(int)], model.predict(new))
    one_by_one = [run(path, new[k : k + 1])[0][0] for k in range(3)]
    np.testing.assert_allclose(one_by_one, score[:3], rtol=0, atol=tolerance)
    # The same model for programs that have single precision: its score is a rounding of float32 off, no more.
    rounded, half = new.astype(np.float32).astype(np.float64), tolerance + 2.0**-24
    written = export(model, path, precision="float32", force=True)
    assert (written.precision, written.n_moved) == ("float32", 0)
    assert written.largest_difference <= half
    score, selected = run(path, new, "float32")
    assert score.dtype == np.float32
    np.testing.assert_allclose(score, model.predict_proba(rounded)[:, 1], rtol=0, atol=half)
    np.testing.assert_array_equal(model.classes_[selected.astype(int)], model.predict(rounded))


def test_a_number_for_missing_values_is_as_good_as_nan(tmp_path: Path) -> None:
    X, y, w = make_events()
    coded = np.where(np.isnan(X), -999.0, X)
    model = CascadeClassifier(xgboost.XGBClassifier(n_estimators=10, missing=-999.0), **ROUNDS).fit(coded, y, w)
    assert export(model, tmp_path / "model.onnx").largest_difference <= SINGLE
    score, _ = run(tmp_path / "model.onnx", X)
    np.testing.assert_allclose(run(tmp_path / "model.onnx", coded)[0], score, rtol=0, atol=0)
    np.testing.assert_allclose(score, model.predict_proba(coded)[:, 1], rtol=0, atol=SINGLE)


def test_an_imputer_that_was_fitted_in_single_precision(tmp_path: Path) -> None:
    X, y, w = make_events()
    model = linear(StandardScaler()).fit(X.astype(np.float32), y, w)
    assert export(model, tmp_path / "model.onnx", events=X).largest_difference <= 1e-12
    assert export(model, tmp_path / "model.onnx", force=True).largest_difference <= 1e-12


def test_margins_of_a_resumed_lightgbm_run_add_up(tmp_path: Path) -> None:
    X, y, w = make_events()
    model = GrownCascadeClassifier("lightgbm", n_trees=15, cv=2, **ONE).fit(X, y, w)
    boosters = tuple(part.boosters[0] for part in model.models_)
    model.models_ = [LightGBMModel(boosters, 1)]
    assert export(model, tmp_path / "model.onnx", events=X).largest_difference <= DOUBLE
    assert run(tmp_path / "model.onnx", X)[0].std() > 0.01
    model.models_ = [LightGBMModel((), 1)]
    with pytest.raises(InputError, match="a LightGBM model without any tree cannot be exported"):
        export(model, tmp_path / "none.onnx")


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
@pytest.mark.parametrize("missing", [True, False])
def test_events_exactly_at_thresholds(library: str, missing: bool, tmp_path: Path) -> None:
    """One column at each of its thresholds and on both sides of it, in either precision; the others are typical."""
    X, y, w = make_events(missing=missing)
    model = GrownCascadeClassifier(library, n_trees=10, params={"max_depth": 3}, **ONE).fit(X, y, w)
    forest = (
        xgboost_forest(model.models_[0])[0]
        if library == "xgboost"
        else lightgbm_forest(model.models_[0].boosters[0])[0]
    )
    rows = []
    for k, thresholds in forest.thresholds().items():
        at = np.concatenate([thresholds, thresholds.astype(np.float32), np.nextafter(thresholds, -np.inf)])
        at = np.concatenate([at, np.nextafter(thresholds, np.inf), [np.nan, 0.0, -0.0, 1e-36, -1e-36]])
        some = np.repeat(X[:1] if not missing else np.nan_to_num(X[:1]), at.size, axis=0)
        some[:, k] = at
        rows.append(some)
    events = np.concatenate(rows)
    export(model, tmp_path / "model.onnx")
    score, _ = run(tmp_path / "model.onnx", events)
    np.testing.assert_allclose(score, model.predict_proba(events)[:, 1], rtol=0, atol=SINGLE)


class TestTheCheckCanFail:
    """Each line that decides how a tree reads a number is replaced by a plausible one, and the check must see it."""

    @pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
    def test_the_other_comparison(self, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        other = {"BRANCH_LT": "BRANCH_LEQ", "BRANCH_LEQ": "BRANCH_LT"}
        before = Forest.__init__

        def swapped(self: Forest, precision: Any, mode: str, *rest: Any) -> None:
            before(self, precision, other[mode], *rest)

        monkeypatch.setattr(Forest, "__init__", swapped)
        self.refused(GrownCascadeClassifier(library, n_trees=20, **ONE), tmp_path)

    def test_single_precision_for_lightgbm(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = Forest.__init__

        def single(self: Forest, _: Any, *rest: Any) -> None:
            before(self, np.float32, *rest)

        monkeypatch.setattr(Forest, "__init__", single)
        self.refused(GrownCascadeClassifier("lightgbm", n_trees=20, **ONE), tmp_path)

    def test_missing_values_that_go_the_other_way(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = Forest.grow

        def mirrored(self: Forest, *arguments: Any) -> None:
            before(self, *arguments)
            self.rows = [(*row[:-1], not row[-1]) for row in self.rows]

        monkeypatch.setattr(Forest, "grow", mirrored)
        self.refused(GrownCascadeClassifier(n_trees=20, **ONE), tmp_path)

    def refused(self, estimator: Any, folder: Path) -> None:
        X, y, w = make_events()
        model = estimator.fit(X, y, w)
        path = folder / "model.onnx"
        path.write_text("what was there before")
        with pytest.raises(InputError, match=r"they may differ by 1e-05, so nothing was written$"):
            export(model, path, force=True)
        assert path.read_text() == "what was there before"
        assert list(folder.iterdir()) == [path]


SCORES = st.floats(0, 1).map(lambda score: round(score, 9))


@given(
    st.lists(st.sampled_from([0.0, 0.125, 0.25, 0.3, 0.5, 0.875, 1.0]) | SCORES, min_size=1, max_size=40),
    st.lists(SCORES, max_size=10),
)
def test_ranks_are_those_of_a_blend(held_out: list[float], new: list[float]) -> None:
    knots = Blend.fitted("rank", [np.array(held_out)]).knots[0]
    scores = np.array([*held_out, *new, 0.0, 1.0])
    # Closer to a step than rounding a score is on the step; that is not what is compared here.
    nearest = np.abs(scores[:, None] - np.array(held_out)).min(axis=1)
    scores = scores[(nearest == 0) | (nearest > 2e-9)]
    graph = Graph(1)
    content = graph.model(rank(graph, "features", knots), 0.5, {})
    found, _ = run_onnx(content, scores[:, None])
    expected = _rank(scores, knots, np.linspace(0.0, 1.0, knots.size))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_a_rank_next_to_a_step_by_rounding_is_the_middle_of_the_step() -> None:
    knots = Blend.fitted("rank", [np.array([0.1] * 30 + [0.6] * 60 + [0.9] * 10)]).knots[0]
    at = np.array([0.1, 0.6, 0.9])
    middles = _rank(at, knots, np.linspace(0.0, 1.0, knots.size))
    graph = Graph(1)
    content = graph.model(rank(graph, "features", knots), 0.5, {})
    for shift in (-1e-10, 0.0, 1e-10):
        np.testing.assert_allclose(run_onnx(content, (at + shift)[:, None])[0], middles, rtol=0, atol=1e-12)


@GLIBC
@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_steep_ranks_are_exact_because_scores_are(library: str, tmp_path: Path) -> None:
    # Few trees give few distinct scores: a rank jumps at each, and some lie 1e-7 beside one that many events share.
    train, test = make_htautau(6000, random_state=2).split(0.5, random_state=0)
    model = AutoClassifier(library=library, n_trees=5, cv=3, b_reg=10.0, net=False, **ONE).fit(train)
    assert model.blend_.kind == "rank"
    steps, shared = np.unique(model.blend_.knots[0], return_counts=True)
    assert shared.max() > 5
    assert np.diff(steps).min() < 1e-6
    path = tmp_path / "model.onnx"
    assert export(model, path).largest_difference <= 1e-9
    assert export(model, path, events=test, force=True).largest_difference <= 1e-9


@GLIBC
def test_xgboost_scores_are_the_same_numbers(tmp_path: Path) -> None:
    X, y, w = make_events()
    for model in (
        GrownCascadeClassifier(n_trees=40, cv=2, **ONE),
        CascadeClassifier(xgboost.XGBClassifier(n_estimators=20), **ROUNDS),
        CascadeClassifier(xgboost.XGBClassifier(n_estimators=20, base_score=0.123), **ROUNDS),
    ):
        assert export(model.fit(X, y, w), tmp_path / "model.onnx", force=True).largest_difference == 0.0


@GLIBC
def test_the_exponential_is_that_of_the_c_library() -> None:
    library = ctypes.CDLL(None).expf
    library.restype, library.argtypes = ctypes.c_float, [ctypes.c_float]
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-110, 90, 3000), rng.normal(size=6000), [0.0, -104.0, 88.7, -1e30, 1e30]])
    x = x.astype(np.float32)
    graph = Graph(1)
    content = graph.model(graph.cast(_exponential(graph, graph.cast("features", np.float32)), np.float64), 0.5, {})
    np.testing.assert_array_equal(run_onnx(content, x[:, None].astype(np.float64))[0], [library(v) for v in x.tolist()])


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=30), st.integers(1, 2000))
def test_parts_of_leaves_add_up_and_their_sums_need_no_more_than_single_precision(
    values: list[float], n_trees: int
) -> None:
    given_values = np.array(values)
    parts = _parts(given_values, n_trees)
    np.testing.assert_allclose(
        parts.sum(axis=0), given_values, rtol=0, atol=2.0**-53 * np.abs(given_values).max() + 2.0**-100
    )
    for row in parts:
        for total in (n_trees * row.max(), n_trees * row.min(), (n_trees - 1) * row.max() + row.min()):
            assert np.float32(total) == total


def test_what_lightgbm_separates_from_missing_values_has_no_end(tmp_path: Path) -> None:
    X, y, w = make_events()
    noise = np.random.default_rng(0).normal(size=y.size)
    X[:, 0] = np.where(np.arange(y.size) % 7 < 4 * y, np.nan, noise)  # the column says whether it is there, no more
    model = GrownCascadeClassifier("lightgbm", n_trees=5, **ONE).fit(X, y, w)
    thresholds = lightgbm_forest(model.models_[0].boosters[0])[0].thresholds()
    assert np.isinf(thresholds[0]).any()
    X[:, 0] = [1.5e300, -1.5e300, np.nan] * 400
    assert export(model, tmp_path / "model.onnx", events=X).largest_difference <= DOUBLE
    assert export(model, tmp_path / "model.onnx", force=True).largest_difference <= DOUBLE


def test_simulated_events_lie_on_and_beside_thresholds_and_some_are_missing() -> None:
    X, y, w = make_events()
    model = GrownCascadeClassifier(n_trees=5, **ONE).fit(X, y, w)
    thresholds = xgboost_forest(model.models_[0])[0].thresholds()
    table = simulated_table(model, {k: [values] for k, values in thresholds.items()})
    assert 0.08 < np.isnan(table).mean() < 0.12
    for k, values in thresholds.items():
        assert np.isin(table[:, k], values).sum() > 50
        assert np.isin(values, table[:, k]).mean() > 0.5
        assert (np.nextafter(values, -np.inf)[:, None] == table[:, k]).sum() > 50
    plain = CascadeClassifier(LogisticRegression(), **ROUNDS).fit(np.nan_to_num(X), y, w)
    assert np.isfinite(simulated_table(plain, {})).all()


def test_metadata(tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")
    X, y, w = make_events()
    names = ["mass", "pt1", "eta1", "phi1", "met", "met_phi"]
    frame = pl.DataFrame(X, schema=names)
    model = GrownCascadeClassifier(n_trees=10, b_reg=10.0, **ONE).fit(frame, np.where(y == 1, "s", "b"), w)
    score = model.predict_proba(frame)[:, 1]
    categories = categorise(score, y, w, 2)
    written = export(model, tmp_path / "model.onnx", events=frame, categories=categories)
    assert (written.path, written.format, written.simulated) == (tmp_path / "model.onnx", "onnx", False)
    assert written.n_events == len(X)
    read = onnx.load(tmp_path / "model.onnx")
    onnx.checker.check_model(read, full_check=True)
    found = {entry.key: entry.value for entry in read.metadata_props}
    assert json.loads(found["feature_names"]) == names
    assert json.loads(found["classes"]) == ["b", "s"]
    assert json.loads(found["cut"]) == model.cut_
    assert json.loads(found["selected_fraction"]) == model.selected_fraction_
    edges = json.loads(found["category_edges"])
    assert edges[1:-1] == categories.edges[1:-1].tolist()
    assert edges[-1] is None
    assert found["utility"] == repr(model.utility_) == "AMS2(b_reg=10.0)"
    assert found["model"] == "GrownCascadeClassifier"
    assert found["fivesigma_version"] == fivesigma.__version__ == read.producer_version
    assert found["missing"] == "NaN"
    assert {o.domain: o.version for o in read.opset_import} == {"": 18, "ai.onnx.ml": 3}
    attributes = xgboost.Booster(
        model_file=export(model, tmp_path / "model.json", "xgboost-json", categories=[0.1, 0.5, np.inf]).path
    ).attributes()
    assert json.loads(attributes["fivesigma_category_edges"]) == [0.1, 0.5, None]
    assert json.loads(attributes["fivesigma_cut"]) == model.cut_
    assert attributes["fivesigma_version"] == fivesigma.__version__


def test_events_are_found_by_name(tmp_path: Path) -> None:
    events = make_htautau(3000, random_state=0)
    model = GrownCascadeClassifier(n_trees=10, **ONE).fit(events)
    assert export(model, tmp_path / "model.onnx", events=events).n_events == len(events)


def xgboost_model(**options: Any) -> GrownCascadeClassifier:
    X, y, w = make_events()
    return GrownCascadeClassifier(**{"n_trees": 10, **ONE, **options}).fit(X, y, w)


def test_xgboost_json_is_what_xgboost_reads(tmp_path: Path) -> None:
    model = xgboost_model(n_trees=60, early_stopping=5)
    assert model.models_[0].n_trees > 0, "the model is the beginning of its booster"
    assert export(model, tmp_path / "model.json", "xgboost-json").largest_difference == 0.0
    booster = xgboost.Booster(model_file=tmp_path / "model.json")
    assert booster.num_boosted_rounds() == model.n_trees_
    new, _, _ = make_events(seed=1)
    np.testing.assert_array_equal(booster.inplace_predict(new), model.predict_proba(new)[:, 1])


def readers() -> list[str]:
    """Cells of the page that read an exported file."""
    cells = re.findall(r"```\{code-cell\}\n(.*?)```", PAGE, re.DOTALL)
    return [cell for cell in cells if "selected" in cell]


def test_the_readers_of_the_page_run_as_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = xgboost_model()
    export(model, "model.onnx")
    export(model, "model.json", "xgboost-json")
    new, _, _ = make_events(seed=1)
    onnx_reader, json_reader = readers()
    expected = model.predict_proba(new)[:, 1]
    for code in (onnx_reader, json_reader):
        names: dict[str, Any] = {"events": new}
        exec(compile(code, "export.md", "exec"), names)
        np.testing.assert_allclose(names["score"], expected, rtol=0, atol=SINGLE)
        np.testing.assert_array_equal(names["selected"], expected >= model.cut_)


def fitted(estimator: Any, *, missing: bool = True) -> Any:
    X, y, w = make_events(missing=missing)
    return estimator.fit(X, y, w)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "forest": (
        lambda: CascadeClassifier(RandomForestClassifier(5), **ROUNDS),
        "a RandomForestClassifier cannot be exported; known are XGBoost, LightGBM",
    ),
    "member": (
        lambda: CascadePool([("a", GrownCascadeClassifier(n_trees=5)), ("b", RandomForestClassifier(5))], **ONE),
        "member 'b' of the pool: a RandomForestClassifier cannot be exported",
    ),
    "step": (
        lambda: linear(PolynomialFeatures()),
        "the step PolynomialFeatures() of a Pipeline cannot be exported; known are StandardScaler",
    ),
    "indicator": (
        lambda: CascadeClassifier(make_pipeline(SimpleImputer(add_indicator=True), LogisticRegression()), **ROUNDS),
        "SimpleImputer of NaN without an indicator",
    ),
    "linear leaves": (
        lambda: GrownCascadeClassifier("lightgbm", n_trees=3, params={"linear_tree": True}, **ONE),
        "linear_tree=True cannot be exported: its leaves are not numbers",
    ),
    "zero": (
        lambda: GrownCascadeClassifier("lightgbm", n_trees=3, params={"zero_as_missing": True}, **ONE),
        "zero_as_missing=True cannot be exported",
    ),
    "categories": (
        lambda: CascadeClassifier(light(categorical_feature=[0]), **ROUNDS),
        "a LightGBM model with categorical features cannot be exported",
    ),
    "regressor": (
        lambda: DecomposedClassifier(light(), make_pipeline(SimpleImputer(), GammaRegressor()), **ONE),
        "the weights are regressed by a Pipeline, which cannot be exported; use an XGBRegressor or an LGBMRegressor",
    ),
    "objective": (
        lambda: DecomposedClassifier(
            light(), xgboost.XGBRegressor(n_estimators=3, objective="reg:squaredlogerror"), **ONE
        ),
        "a regression of the weights with the objective 'reg:squaredlogerror' cannot be exported",
    ),
    "linear booster": (
        lambda: CascadeClassifier(xgboost.XGBClassifier(n_estimators=3, booster="gblinear"), **ROUNDS),
        "an XGBoost model of the kind gblinear cannot be exported: only trees can",
    ),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_exported_says_why(case: str, tmp_path: Path) -> None:
    make, sentence = REFUSED[case]
    X, y, w = make_events()
    if case in ("categories", "zero", "linear leaves"):
        X[:, 0] = np.arange(len(X)) % 4
    model = make().fit(X, y, w)
    with pytest.raises(InputError, match=re.escape(sentence)):
        export(model, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_categorical_columns_of_xgboost_are_refused(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    X, y, w = make_events(missing=False)
    frame = pd.DataFrame({"x": X[:, 0], "c": pd.Categorical(np.where(y == 1, "red", "blue")[::-1])})
    frame.loc[::3, "c"] = "blue"
    model = GrownCascadeClassifier(n_trees=5, **ONE).fit(frame, y, w)
    with pytest.raises(InputError, match="categorical features or vectors in its leaves cannot be exported"):
        export(model, tmp_path / "model.onnx")


def test_what_xgboost_json_cannot_hold(tmp_path: Path) -> None:
    X, y, w = make_events()
    path = tmp_path / "model.json"

    def refused(model: Any, sentence: str) -> None:
        with pytest.raises(InputError, match=re.escape(sentence)):
            export(model, path, format="xgboost-json")
        assert not path.exists()

    refused(xgboost_model(cv=3), "holds one XGBoost booster, and this GrownCascadeClassifier has 3; export it as onnx")
    refused(fitted(GrownCascadeClassifier("lightgbm", n_trees=3, **ONE)), "not a LightGBMModel; export it as onnx")
    members = [("a", GrownCascadeClassifier(n_trees=3))]
    refused(fitted(CascadePool(members, **ONE)), "a CascadePool has none")
    coded = CascadeClassifier(xgboost.XGBClassifier(n_estimators=3, missing=-999.0), **ROUNDS)
    refused(coded.fit(np.nan_to_num(X, nan=-999.0), y, w), "missing=-999 cannot be told to readers")
    dart = CascadeClassifier(xgboost.XGBClassifier(n_estimators=3, booster="dart", rate_drop=0.5), **ROUNDS)
    refused(dart.fit(X, y, w), "only trees with logistic loss and without dropout")


def test_a_score_of_another_kind_is_not_taken_for_a_mean(tmp_path: Path) -> None:
    class Squared(GrownCascadeClassifier):
        def __fivesigma_score__(self, X: Any) -> Array:
            return super().__fivesigma_score__(X) ** 2

    X, y, w = make_events()
    model = Squared(n_trees=3, **ONE).fit(X, y, w)
    with pytest.raises(InputError, match=r"^a Squared cannot be exported: it forms its score in a way of its own$"):
        export(model, tmp_path / "m.onnx")


def test_wrong_arguments(tmp_path: Path) -> None:
    model = xgboost_model()
    X, _, _ = make_events()
    with pytest.raises(InputError, match=r"^format must be one of onnx, xgboost-json, got 'pmml'$"):
        export(model, tmp_path / "m.onnx", format="pmml")
    with pytest.raises(InputError, match=r"^there is no folder .* to write m.onnx to$"):
        export(model, tmp_path / "nowhere" / "m.onnx")
    with pytest.raises(InputError, match=r"^the name x+… is longer than 255 bytes; choose a shorter one$"):
        export(model, tmp_path / f"{300 * 'x'}.onnx")
    with pytest.raises(NotFittedError):
        export(GrownCascadeClassifier(), tmp_path / "m.onnx")
    with pytest.raises(InputError, match="a LogisticRegression cannot be exported; give a trained classifier"):
        export(LogisticRegression().fit(np.nan_to_num(X), X[:, 0] > 0), tmp_path / "m.onnx")
    with pytest.raises(ValueError, match="X has 5 features"):
        export(model, tmp_path / "m.onnx", events=X[:, :5])
    with pytest.raises(InputError, match=r"^the events have \d+ features, and the model was trained with 6$"):
        export(model, tmp_path / "m.onnx", events=make_htautau(100, random_state=0))
    for edges in ([0.5], [0.5, 0.2], [[0.1, 0.2]]):
        with pytest.raises(InputError, match="two or more ascending edges"):
            export(model, tmp_path / "m.onnx", categories=edges)
    with pytest.raises(InputError, match="precision must be one of float64, float32, got 'half'"):
        export(model, tmp_path / "m.onnx", precision="half")
    assert list(tmp_path.iterdir()) == []


def cli(*arguments: object) -> Any:
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A trained model and its events, as the command line has them."""
    pytest.importorskip("skops")
    pytest.importorskip("polars")
    folder = tmp_path_factory.mktemp("saved")
    write_events(make_htautau(3000, random_state=0), folder / "events.parquet")
    command = ("train", folder / "events.parquet", "-o", folder / "model", "--trees", "10", "--jobs", "1")
    assert cli(*command, "--model", "grown").exit_code == 0
    return folder / "model", folder / "events.parquet"


def test_command(saved: tuple[Path, Path], tmp_path: Path) -> None:
    model, events = saved
    out = tmp_path / "model.onnx"
    result = cli("export", model, "-o", out)
    assert result.exit_code == 0, result.output
    assert re.fullmatch(
        r"largest difference of a score \S+ on 4,096 simulated events, \d+ of which change sides of the cut\n"
        rf"model in {out}\n",
        result.stdout,
    )
    assert cli("export", model, "-o", out).exit_code == 1, "nothing is replaced without --force"
    (tmp_path / "edges.json").write_text(json.dumps({"edges": [None, 0.5, None]}))
    command = ("export", model, "-o", out, "--force", "--events", events, "--precision", "float32")
    result = cli(*command, "--categories", tmp_path / "edges.json")
    assert result.exit_code == 0, result.output
    assert onnx.load(out).graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert "on 3,000 given events" in result.stdout
    found = {entry.key: entry.value for entry in onnx.load(out).metadata_props}
    assert json.loads(found["category_edges"]) == [None, 0.5, None]
    assert json.loads(found["feature_names"]) == list(make_htautau(100, random_state=0).feature_names)


@pytest.mark.parametrize(
    ("name", "asked", "said"),
    [
        ("m.json", "onnx", "m.json ends as a file of xgboost-json does, and onnx is asked for"),
        ("m.ONNX", "xgboost-json", "m.ONNX ends as a file of onnx does, and xgboost-json is asked for"),
        ("m.bin", None, r"m.bin does not say its format by its ending; it must end in .onnx \(onnx\) or .json"),
        ("m", "onnx", "m does not say its format by its ending"),
    ],
)
def test_the_ending_decides_the_format(name: str, asked: str | None, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        export(xgboost_model(), tmp_path / name, asked)
    assert export(xgboost_model(), tmp_path / "model.JSON").format == "xgboost-json"
    with pytest.raises(InputError, match=r"model\.JSON is there already; .* force=True"):
        export(xgboost_model(), tmp_path / "model.JSON")
    assert [path.name for path in tmp_path.iterdir()] == ["model.JSON"]


def test_command_for_xgboost_json(saved: tuple[Path, Path], tmp_path: Path) -> None:
    result = cli("export", saved[0], "-o", tmp_path / "model.json")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("largest difference of a score 0 on 4,096 simulated events, 0 of which")
    assert result.stderr.startswith("note: RBDT of ROOT sends a missing value to the right")


def test_command_refuses_in_one_line(saved: tuple[Path, Path], tmp_path: Path) -> None:
    save(fitted(GrownCascadeClassifier("lightgbm", n_trees=3, **ONE)), tmp_path / "light")
    result = cli("export", tmp_path / "light", "-o", tmp_path / "model.json", "--format", "xgboost-json")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    (tmp_path / "edges.json").write_text("[]")
    result = cli("export", saved[0], "-o", tmp_path / "m.onnx", "--categories", tmp_path / "edges.json")
    assert result.exit_code == 1
    assert "is not the output of fivesigma categorise --json" in result.stderr
    assert not (tmp_path / "m.onnx").exists()


def test_tolerance_is_the_one_of_the_page() -> None:
    assert TOLERANCE == 1e-5
    assert "1e-5" in PAGE
