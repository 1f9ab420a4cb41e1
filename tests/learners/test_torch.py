"""The net keeps scikit-learn's contract, the symmetries it was given, and torch's state."""

import io
import json
import math
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import fivesigma
from fivesigma import CascadeClassifier, CascadePool, DecomposedClassifier, load, save
from fivesigma._tools.threads import wanted_cores
from fivesigma._types import Array, IntArray
from fivesigma.errors import InputError, MissingExtraError, StoreError
from fivesigma.learners.net.inputs import (
    Inputs,
    find_momenta,
    find_named_momenta,
    groups_of_weight,
    turning_column,
)
from fivesigma.store.archive import file_entry, render
from tests.estimators.blobs import make_blobs

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.numpy")

from fivesigma import NetClassifier  # noqa: E402 - only where torch is
from fivesigma.learners.net.model import (  # noqa: E402
    DenseNet,
    NetTraining,
    find_device,
    limited_threads,
    net_log_odds,
    random_mask,
)

# A few hundred events are enough here.
pytestmark = pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning")

SMALL: dict[str, Any] = {"width": 8, "depth": 2, "epochs": 4, "batch_size": 64, "random_state": 0, "n_jobs": 1}
NO_MOMENTA = np.empty((0, 3), dtype=np.intp)
MOMENTA = [("pt1", "eta1", "phi1"), ("met", None, "met_phi")]
NAMES = ["pt1", "eta1", "phi1", "met", "met_phi", "mass"]


def make_collisions(n: int = 2000, seed: int = 0) -> tuple[Array, IntArray]:
    """Two particles; signal is where they are close, so only their angles together say anything."""
    rng = np.random.default_rng(seed)
    y = (np.arange(n) % 2).astype(np.intp)
    phi = rng.uniform(-np.pi, np.pi, n)
    apart = np.where(y == 1, rng.normal(0.0, 0.5, n), rng.uniform(-np.pi, np.pi, n))
    pt, met = rng.exponential(30.0, (2, n)) + 20.0
    X = np.column_stack([pt, rng.normal(0.0, 1.5, n), phi, met, phi + apart, rng.normal(size=n)])
    X[rng.uniform(size=n) < 0.1, :3] = np.nan
    return X, y


def turned(X: Array, *, angle: float = 0.0, mirror: bool = False, flip: bool = False) -> Array:
    out = X.copy()
    out[:, [2, 4]] *= -1.0 if mirror else 1.0
    out[:, [2, 4]] += angle
    out[:, 1] *= -1.0 if flip else 1.0
    return out


@pytest.fixture(scope="module")
def symmetric() -> Any:
    X, y = make_collisions()
    settings = {**SMALL, "width": 16, "epochs": 15, "n_augment": 8, "momenta": [(0, 1, 2), (3, None, 4)]}
    return NetClassifier(**settings).fit(X, y)


WEIGHTS = "weights are not repetitions: rows are drawn in batches"
KNOWN = {f"check_sample_weight_equivalence_on_{kind}_data": WEIGHTS for kind in ("dense",)}


@parametrize_with_checks(
    [NetClassifier(width=8, depth=2, epochs=40, batch_size=32, learning_rate=0.02, n_jobs=1)],
    expected_failed_checks=lambda _: KNOWN,
    xfail_strict=True,
)
def test_sklearn_contract(estimator: Any, check: Any) -> None:
    check(estimator)


class TestSymmetry:
    @pytest.mark.parametrize(
        "how", [{"mirror": True}, {"flip": True}, {"mirror": True, "flip": True}, {"angle": np.pi}]
    )
    def test_predictions_do_not_see_a_transform_of_the_group(self, symmetric: Any, how: dict[str, Any]) -> None:
        X, _ = make_collisions(500, seed=1)
        difference = symmetric.decision_function(turned(X, **how)) - symmetric.decision_function(X)
        assert np.abs(difference).max() < 2e-5
        one = clone(symmetric).set_params(n_augment=1)
        vars(one).update({k: v for k, v in vars(symmetric).items() if k.endswith("_")})
        assert np.abs(one.decision_function(turned(X, **how)) - one.decision_function(X)).max() > 0.01

    def test_other_rotations_matter_little_and_less_with_more_copies(self, symmetric: Any) -> None:
        X, _ = make_collisions(500, seed=1)

        def spread(n_augment: int) -> float:
            net = pickle.loads(pickle.dumps(symmetric)).set_params(n_augment=n_augment)
            return float(np.std(net.decision_function(turned(X, angle=0.4)) - net.decision_function(X)))

        assert spread(32) < spread(8) < spread(1)
        assert spread(32) < 0.05 * np.std(symmetric.decision_function(X))

    def test_angles_of_particles_together_are_learnt(self, symmetric: Any) -> None:
        X, y = make_collisions(2000, seed=2)
        assert symmetric.score(X, y) > 0.72
        # Angles are no inputs by themselves: without vectors nothing is left to learn from.
        assert symmetric.inputs_.columns.tolist() == [0, 3, 5]

    def test_names_and_numbers_are_the_same(self) -> None:
        pandas = pytest.importorskip("pandas")
        X, y = make_collisions(300)
        frame = pandas.DataFrame(X, columns=NAMES)
        by_name = NetClassifier(**SMALL, momenta=MOMENTA).fit(frame, y)
        by_number = NetClassifier(**SMALL, momenta=[(0, 1, 2), (3, None, 4)]).fit(X, y)
        np.testing.assert_array_equal(by_name.predict_proba(frame), by_number.predict_proba(X))
        assert by_name.feature_names_in_.tolist() == NAMES

    def test_vectors_turn_as_the_event(self) -> None:
        X, y = make_collisions(300)
        inputs = Inputs.learn(X, np.ones(y.size), find_momenta(MOMENTA, 6, NAMES))
        v, after = inputs.vectors(X), inputs.vectors(turned(X, angle=0.7))
        c, s = np.cos(0.7), np.sin(0.7)
        np.testing.assert_allclose(after[:, :, 0], c * v[:, :, 0] - s * v[:, :, 1], atol=1e-5)
        np.testing.assert_allclose(after[:, :, 1], s * v[:, :, 0] + c * v[:, :, 1], atol=1e-5)
        np.testing.assert_array_equal(after[:, :, 2], v[:, :, 2])
        np.testing.assert_array_equal(inputs.vectors(turned(X, flip=True))[:, :, 2], -v[:, :, 2])
        assert not v[np.isnan(X[:, 0]), 0].any()
        assert not v[:, 1, 2].any()  # missing momentum has no component along the beam


class TestInputs:
    @given(st.integers(0, 2**31), st.floats(1e-6, 1e6), st.floats(-1e6, 1e6))
    def test_neither_unit_nor_origin_of_a_symmetric_column_matters(self, seed: int, unit: float, origin: float) -> None:
        x = np.random.default_rng(seed).normal(size=(200, 1))
        ones = np.ones(200)
        moved = x * unit + origin
        a = Inputs.learn(x, ones, NO_MOMENTA).scalars(x)
        b = Inputs.learn(moved, ones, NO_MOMENTA).scalars(moved)
        np.testing.assert_allclose(a, b, atol=1e-3)

    def test_standard_by_weight(self) -> None:
        rng = np.random.default_rng(0)
        X, weight = rng.normal(3.0, 5.0, (1000, 2)), rng.exponential(size=1000)
        out = Inputs.learn(X, weight, NO_MOMENTA).scalars(X)
        np.testing.assert_allclose(np.average(out, axis=0, weights=weight), 0.0, atol=1e-5)
        np.testing.assert_allclose(np.average(out**2, axis=0, weights=weight), 1.0, rtol=1e-4)

    def test_only_heavy_tails_become_logarithms(self) -> None:
        rng = np.random.default_rng(0)
        normal = rng.normal(size=5000)
        X = np.column_stack([normal, np.exp(2 * normal), -np.exp(2 * normal), normal > 0])
        inputs = Inputs.learn(X, np.ones(5000), NO_MOMENTA)
        assert (inputs.units > 0).tolist() == [False, True, True, False]
        assert np.abs(inputs.scalars(X)).max() < 8

    def test_one_flag_for_all_that_are_missing_together(self) -> None:
        X = np.random.default_rng(0).normal(size=(50, 5))
        X[:10, 1:3] = np.nan
        X[5:20, 4] = np.nan
        inputs = Inputs.learn(X, np.ones(50), NO_MOMENTA)
        assert inputs.flags.tolist() == [1, 4]
        out = inputs.scalars(X)
        np.testing.assert_array_equal(out[:, 5:], np.isnan(X[:, [1, 4]]))
        assert not out[:, :5][np.isnan(X)].any()
        assert inputs.scalars(X).shape[1] + 3 * inputs.vectors(X).shape[1] == 7

    def test_constant_empty_and_huge_columns_are_harmless(self) -> None:
        X = np.random.default_rng(0).normal(size=(100, 5))
        X[:, 1], X[:, 2], X[0, 3], X[:, 4] = 0.1, np.nan, 1e300, np.linspace(0, 1e-310, 100)
        y = (X[:, 0] > 0).astype(int)
        net = NetClassifier(**SMALL).fit(X, y)
        X[:, 1] = -1e300
        assert np.isfinite(net.predict_proba(X)).all()
        X[:] = np.nan
        assert np.isfinite(net.predict_proba(X)).all()


def joined_outputs(layers: list[Any], inputs: Any, masks: Sequence[Any] = ()) -> Any:
    """The net as it is said in words: each layer sees the inputs and all layers before it."""
    seen = inputs
    for k, (weight, offset) in enumerate(zip(layers[:-2:2], layers[1:-2:2], strict=True)):
        out = torch.nn.functional.silu(seen @ weight.T + offset)
        seen = torch.cat([out * masks[k] if masks else out, seen], 1)
    return seen @ layers[-2].T + layers[-1]


class TestDenseNet:
    @given(st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(1, 4)), st.integers(2, 7))
    def test_each_layer_sees_the_inputs_and_all_layers_before_it(self, shape: tuple[int, int, int], n: int) -> None:
        n_inputs, width, depth = shape
        net = DenseNet(n_inputs, [width] * depth + [1])
        net.initialise(torch.Generator().manual_seed(n))
        rng = np.random.default_rng(n)
        arrays = [a + (rng.normal(size=a.shape).astype(np.float32) if a.ndim == 1 else 0) for a in net.arrays()]
        inputs = torch.from_numpy(rng.normal(size=(n, n_inputs)))
        expected = joined_outputs([torch.from_numpy(a.astype(float)) for a in arrays], inputs)[:, 0]
        with torch.no_grad():
            found = DenseNet.from_arrays(arrays)(inputs)[:, 0]
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12, atol=1e-12)

    def test_arrays_are_those_of_the_net(self) -> None:
        net = DenseNet(3, [4, 4, 1])
        net.initialise(torch.Generator().manual_seed(0))
        again = DenseNet.from_arrays(net.arrays())
        assert [a.shape for a in net.arrays()] == [(4, 3), (4,), (4, 7), (4,), (1, 11), (1,)]
        for a, b in zip(net.arrays(), again.arrays(), strict=True):
            np.testing.assert_array_equal(a, b)

    @pytest.mark.parametrize("dropout", [0.001, 0.1, 0.5, 0.9])
    def test_dropout_leaves_out_its_share_and_keeps_the_mean(self, dropout: float) -> None:
        mask = random_mask((1001, 333), dropout, torch.Generator().manual_seed(0)).numpy()
        n = mask.size
        assert mask.shape == (1001, 333)
        assert np.unique(mask).size == 2
        assert np.mean(mask == 0) == pytest.approx(dropout, abs=5 * np.sqrt(dropout * (1 - dropout) / n) + 2**-16)
        assert mask.mean() == pytest.approx(1.0, abs=5 * np.sqrt(dropout / (1 - dropout) / n) + 1e-6)
        together = np.mean((mask[:, 1:] == 0) & (mask[:, :-1] == 0))  # units are independent
        assert together == pytest.approx(dropout**2, abs=6 * dropout * np.sqrt(1 / n) + 2**-16)


class TestTraining:
    def test_a_device_that_is_not_there_is_refused(self) -> None:
        assert find_device("cpu") == "cpu"
        assert find_device("auto") in ("cpu", "cuda", "mps")
        X, y, _ = make_blobs(100)
        if not torch.cuda.is_available():
            with pytest.raises(InputError, match="device='cuda' is not available here; use device='auto' or 'cpu'"):
                NetClassifier(**SMALL, device="cuda").fit(X, y)
        with pytest.raises(InputError, match="device must be one of auto, cpu, cuda, mps, got 'tpu'"):
            NetClassifier(**SMALL, device="tpu").fit(X, y)

    def test_it_learns_what_a_line_cannot(self) -> None:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(2000, 2))
        y = (X[:, 0] * X[:, 1] > 0).astype(int)
        net = NetClassifier(**{**SMALL, "width": 16, "epochs": 30}).fit(X[:1000], y[:1000])
        assert net.score(X[1000:], y[1000:]) > 0.9
        assert net.loss_[-1] < 0.5 * net.loss_[0]


class TestWeightGroups:
    @given(
        st.lists(st.tuples(st.integers(0, 1), st.sampled_from([0.0, 0.1, 0.3, 1.0, 2.5])), min_size=4, max_size=40),
        st.integers(1, 6),
    )
    def test_groups(self, events: list[tuple[int, float]], n_groups: int) -> None:
        target, weight = np.array([t for t, _ in events]), np.array([w for _, w in events])
        assume(0 < target.sum() < target.size)
        found = groups_of_weight(target, weight, n_groups)
        n_weights = [np.unique(weight[target == label]).size for label in range(2)]
        if n_groups == 1 or n_weights == [1, 1]:
            assert found is None
            return
        if found is None:  # only if nearly all weights of both classes are the same
            return
        assert set(found) == set(range(found.max() + 1))
        for label in range(2):
            mine, w = found[target == label], weight[target == label]
            assert np.unique(mine).size <= min(n_groups, n_weights[label])
            order = np.argsort(w, kind="stable")
            assert (np.diff(mine[order]) >= 0).all()  # a heavier event is in no earlier group
            assert all(np.unique(mine[w == one]).size == 1 for one in w)
        assert found[target == 0].max() < found[target == 1].min()

    def test_groups_are_of_one_size_where_weights_differ(self) -> None:
        target, weight = np.repeat([0, 1], 400), np.random.default_rng(0).exponential(size=800)
        found = groups_of_weight(target, weight, 4)
        assert found is not None
        assert np.bincount(found).tolist() == [100] * 8

    def test_the_net_learns_from_them_and_forgets_their_outputs(self) -> None:
        X, y, weight = make_blobs(600)
        weight = weight * np.where(X[:, 0] > np.median(X[:, 0]), 3.0, 1.0)
        with_groups, without = (NetClassifier(**SMALL, weight_groups=n).fit(X, y, weight) for n in (2, 1))
        assert [a.shape for a in with_groups.weights_] == [a.shape for a in without.weights_]
        assert with_groups.weights_[0].tobytes() != without.weights_[0].tobytes()
        assert roc_auc_score(y, with_groups.decision_function(X)) > 0.7

    def test_equal_weights_are_no_groups(self) -> None:
        X, y, _ = make_blobs(300)
        four, one = (NetClassifier(**SMALL, weight_groups=n).fit(X, y) for n in (4, 1))
        assert [a.tobytes() for a in four.weights_] == [a.tobytes() for a in one.weights_]


class TestFocus:
    def training(self) -> NetTraining:
        X, y, weight = (np.asarray(values, dtype=np.float32) for values in make_blobs(2000))
        return NetTraining(NetClassifier(**SMALL), 0, X, np.zeros((2000, 0, 3), np.float32), y, weight, group=None)

    def test_factors_are_largest_at_the_cut_that_keeps_a_third_of_the_signal(self) -> None:
        training = self.training()
        training.run_epoch()
        X, y, weight = make_blobs(2000)
        score = net_log_odds(training.weights(), np.asarray(X, np.float32), np.zeros((2000, 0, 3), np.float32), 1)
        factors = training.focus_factors(3.0).numpy().astype(np.float64)
        order = np.argsort(-score)
        kept = np.cumsum((weight * y)[order]) / weight[y == 1].sum()
        cut = order[np.argmin(abs(kept - 1 / 3))]
        for side in (y == 1, y == 0):  # of a class, for each is scaled to its own sum
            largest = score[side][np.argmax(factors[side])]
            assert abs((score > largest).mean() - (score > score[cut]).mean()) < 0.01
            assert np.average(factors[side], weights=weight[side]) == pytest.approx(1.0, rel=1e-4)
            assert 3.0 < factors[side].max() / factors[side].min() <= 4.0

    def test_the_last_third_of_the_epochs_alone_is_focused(self) -> None:
        X, y, weight = make_blobs(600)
        usual, focused = (NetClassifier(**SMALL, focus=kappa).fit(X, y, weight) for kappa in (0.0, 3.0))
        first = math.ceil(usual.epochs * 2 / 3)
        assert 0 < first < usual.epochs
        assert focused.loss_[:first].tolist() == usual.loss_[:first].tolist()
        assert focused.loss_[first] != usual.loss_[first]

    def test_a_negative_focus_is_refused(self) -> None:
        with pytest.raises(InputError, match="focus must be a number, at least 0"):
            NetClassifier(focus=-1.0).fit(*make_blobs(100))


class TestState:
    def test_same_seed_same_bytes(self) -> None:
        X, y = make_collisions(500)
        settings = {**SMALL, "momenta": [(0, 1, 2), (3, None, 4)], "dropout": 0.1}
        first, second = (NetClassifier(**settings).fit(X, y) for _ in range(2))
        assert [a.tobytes() for a in first.weights_] == [a.tobytes() for a in second.weights_]
        other = NetClassifier(**{**settings, "random_state": 1}).fit(X, y)
        assert other.weights_[0].tobytes() != first.weights_[0].tobytes()

    def test_torch_is_left_as_it_was(self) -> None:
        X, y, weight = make_blobs(300)
        torch.manual_seed(5)
        before, threads = torch.get_rng_state(), torch.get_num_threads()
        others = 1 if threads > 1 else 2
        with torch.no_grad():
            net = NetClassifier(**{**SMALL, "n_jobs": others, "dropout": 0.2}).fit(X, y, weight)
            net.predict(X)
            assert not torch.is_grad_enabled()
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.get_num_threads() == threads
        with limited_threads(others):
            assert torch.get_num_threads() == wanted_cores(others)  # there may be one core only
        assert torch.get_num_threads() == threads

    def test_threads_are_put_back_however_nets_overlap(self) -> None:
        before = torch.get_num_threads()
        inside, left = threading.Event(), threading.Event()
        seen: list[int] = []

        def other() -> None:
            with limited_threads(before + 2):
                inside.set()
                assert left.wait(10)

        with limited_threads(before + 1):
            thread = threading.Thread(target=other)
            thread.start()
            assert inside.wait(10)
        left.set()
        thread.join()
        fresh = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        fresh.start()
        fresh.join()
        assert seen == [before]
        assert torch.get_num_threads() == before

    def test_only_ratios_of_weights_matter_and_heavy_events_count(self) -> None:
        X, y, weight = make_blobs(400)
        first = NetClassifier(**SMALL).fit(X, y, weight)
        second = NetClassifier(**SMALL).fit(X, y, 1024.0 * weight)
        np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
        longer = NetClassifier(**{**SMALL, "epochs": 30})
        heavy = clone(longer).fit(X, y, np.where(y == 1, 10.0, 1.0))
        light = clone(longer).fit(X, y, np.where(y == 1, 0.1, 1.0))
        assert heavy.predict_proba(X)[:, 1].mean() > light.predict_proba(X)[:, 1].mean() + 0.2

    def test_bar(self, capsys: pytest.CaptureFixture[str]) -> None:
        X, y, _ = make_blobs(100)
        net = NetClassifier(**SMALL, verbose=1).fit(X, y)
        err = capsys.readouterr().err
        assert "net" in err
        assert f"loss {net.loss_[-1]:.4f}" in err
        NetClassifier(**SMALL).fit(X, y)
        assert capsys.readouterr().err == ""


class TestRefusals:
    @pytest.mark.parametrize(
        ("bad", "sentence"),
        [
            (np.nan, "NaN or infinite in 1 of 100 rows"),
            (np.inf, "NaN or infinite in 1 of 100 rows"),
            (-1.0, "negative in 1 of 100 rows"),
        ],
    )
    def test_weights(self, bad: float, sentence: str) -> None:
        X, y, weight = make_blobs(100)
        weight[7] = bad
        with pytest.raises(InputError, match=rf"{sentence} \(at 7\)"):
            NetClassifier(**SMALL).fit(X, y, weight)

    def test_classes(self) -> None:
        X, y, weight = make_blobs(100)
        with pytest.raises(InputError, match="y has one class only"):
            NetClassifier(**SMALL).fit(X, np.zeros(100, dtype=int))
        with pytest.raises(InputError, match="one class is zero"):
            NetClassifier(**SMALL).fit(X, y, np.where(y == 1, 0.0, weight))

    @pytest.mark.parametrize(
        ("momenta", "names", "sentence"),
        [
            ([("pt1", "eta1", "fi1")], NAMES, r"momenta\[0\] names the column 'fi1'.*did you mean 'phi1'"),
            ([(0, 1, 2), (3, None, 6)], None, r"momenta\[1\] names the column 6, but X has 6 columns"),
            ([(0, 1, -1)], None, "names the column -1"),
            ([("pt1", "eta1", "phi1")], None, "X has no names"),
            ([("pt1", "phi1")], NAMES, "must be three columns"),
            (["pt1"], NAMES, "must be three columns"),
            ([("pt1", "eta1", None)], NAMES, "only eta may be None"),
        ],
    )
    def test_momenta(self, momenta: Any, names: list[str] | None, sentence: str) -> None:
        with pytest.raises(InputError, match=sentence):
            find_momenta(momenta, 6, names)

    @pytest.mark.parametrize(
        "parameters",
        [
            {"width": 0},
            {"depth": 1.5},
            {"epochs": True},
            {"n_augment": 6},
            {"learning_rate": 0},
            {"weight_decay": -1},
            {"dropout": 1.0},
            {"dropout": "0.1"},
        ],
    )
    def test_parameters(self, parameters: dict[str, Any]) -> None:
        X, y, _ = make_blobs(100)
        with pytest.raises(InputError, match=rf"^{next(iter(parameters))} must be"):
            NetClassifier(**parameters).fit(X, y)

    def test_without_torch_the_install_line_is_said(self) -> None:
        code = (
            "import sys\n"
            "class Absent:\n"
            "    def find_spec(self, name, *_):\n"
            "        if name == 'torch': raise ModuleNotFoundError('No module', name=name)\n"
            "sys.meta_path.insert(0, Absent())\n"
            "import inspect, pydoc, fivesigma, fivesigma.store\n"
            "from fivesigma import *\n"
            "assert 'NetClassifier' in dict(inspect.getmembers(fivesigma))\n"
            "assert 'NetClassifier' in pydoc.render_doc(fivesigma)\n"
            "try: NetClassifier().fit([[0.0], [1.0]], [0, 1])\n"
            "except fivesigma.errors.MissingExtraError as err: print(err)"
        )
        out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
        assert out == "torch is needed here. Install it with: pip install 'fivesigma[torch]'\n"
        assert issubclass(MissingExtraError, ModuleNotFoundError)

    def test_the_store_does_not_import_torch(self) -> None:
        code = "import sys, fivesigma.store; print('torch' in sys.modules)"
        assert (
            subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "False\n"
        )


def net_of_collisions() -> Any:
    return NetClassifier(**{**SMALL, "momenta": ((0, 1, 2), (3, None, 4)), "n_jobs": None})


MODELS: dict[str, Callable[[], Any]] = {
    "cascade": lambda: CascadeClassifier(net_of_collisions(), max_rounds=2, extra_rounds=0, random_state=0, n_jobs=1),
    "decomposed": lambda: DecomposedClassifier(net_of_collisions(), cv=2, random_state=0, n_jobs=1),
    "pool": lambda: CascadePool(
        [("net", net_of_collisions()), ("decomposed", DecomposedClassifier(net_of_collisions()))],
        random_state=0,
        n_jobs=2,
    ),
}


class TestStore:
    @pytest.mark.parametrize("name", MODELS)
    def test_round_trip(self, name: str, tmp_path: Path) -> None:
        X, y = make_collisions(800)
        weight = np.where(y == 1, 0.1, np.exp(np.nan_to_num(X[:, 5])))
        model = MODELS[name]().fit(X, y, weight)
        again = load(save(model, tmp_path / "model"))
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
        assert repr(again.get_params()) == repr(model.get_params())
        assert {p.suffix for p in (tmp_path / "model").iterdir()} >= {".json", ".safetensors"}
        assert not list((tmp_path / "model").glob("*.pickle"))

    def test_seed_and_threads_reach_the_net(self) -> None:
        X, y, weight = make_blobs(400)
        nets = [
            CascadeClassifier(NetClassifier(**{**SMALL, "n_jobs": -1}), cascade=False, random_state=seed, n_jobs=1)
            .fit(X, y, weight)
            .models_[0]
            .estimator
            for seed in (0, 0, 1)
        ]
        assert [net.n_jobs for net in nets] == [1, 1, 1]
        first, same, other = (net.weights_[0] for net in nets)
        np.testing.assert_array_equal(first, same)
        assert not np.array_equal(first, other)

    def test_a_pool_goes_on_from_its_checkpoint(self, tmp_path: Path) -> None:
        X, y, weight = make_blobs(400)

        def pool() -> Any:
            members = [("net", NetClassifier(**SMALL)), ("decomposed", DecomposedClassifier(NetClassifier(**SMALL)))]
            return CascadePool(members, checkpoint=tmp_path / "run", random_state=0, n_jobs=1)

        first, second = (pool().fit(X, y, weight).predict_proba(X) for _ in range(2))
        np.testing.assert_array_equal(first, second)

    def test_nets_side_by_side_are_those_of_one_after_the_other(self) -> None:
        X, y, weight = make_blobs(400)
        net = NetClassifier(**{**SMALL, "dropout": 0.2, "n_jobs": None})
        members = [("a", net), ("b", clone(net)), ("c", DecomposedClassifier(net))]
        one, two = (
            CascadePool(members, cv=2, random_state=0, n_jobs=n_jobs).fit(X, y, weight).member_scores(X)
            for n_jobs in (1, 2)
        )
        for name, scores in one.items():
            np.testing.assert_array_equal(scores, two[name])
        assert not np.array_equal(one["a"], one["b"])

    def test_a_checkpoint_asks_for_safetensors_before_training(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        X, y, weight = make_blobs(100)
        monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
        monkeypatch.setattr(NetTraining, "run_epoch", lambda *_: pytest.fail("trained first"))
        pool = CascadePool([("net", NetClassifier(**SMALL))], checkpoint=tmp_path / "run", random_state=0, n_jobs=1)
        with pytest.raises(MissingExtraError, match=r"fivesigma\[torch\]"):
            pool.fit(X, y, weight)

    def test_a_checkpoint_of_another_torch_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        X, y, weight = make_blobs(100)
        net = NetClassifier(**SMALL)
        pool = CascadePool([("net", net)], checkpoint=tmp_path / "run", random_state=0, n_jobs=1).fit(X, y, weight)
        version = metadata.version
        monkeypatch.setattr(metadata, "version", lambda name: "0.1" if name == "torch" else version(name))
        with pytest.raises(InputError, match=r"by other versions of the libraries .*torch 0\.1"):
            pool.fit(X, y, weight)

    @pytest.mark.parametrize(
        "change",
        [
            lambda a: a.pop("columns"),
            lambda a: a.update(units=a["units"][1:]),
            lambda a: a.update(means=a["means"] * np.nan),
            lambda a: a.update(columns=a["columns"] + 1),
            lambda a: a.update(momenta=np.full((1, 3), -2)),
            lambda a: a.pop("layer-005"),
            lambda a: a.update({"layer-002": a["layer-002"][:, 1:].copy()}),
            lambda a: a.update({"layer-000": 2 * a["layer-000"]}),
            lambda a: a.update({"layer-006": a["layer-000"]}),
        ],
        ids=map(str, range(9)),
    )
    def test_forged_arrays_are_refused(self, saved: Path, change: Callable[[dict[str, Any]], Any]) -> None:
        arrays = safetensors.load(next(saved.glob("*.safetensors")).read_bytes())
        change(arrays)
        forge(saved, lambda m: None, safetensors.save(arrays))
        with pytest.raises(StoreError, match=r"cannot be made a net|cannot be used|gives other scores now"):
            load(saved)

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            (lambda net: net["parameters"].update(widht=3), "NetClassifier .* does not know.*did you mean 'width'"),
            (lambda net: net["parameters"].update(n_augment=3), "n_augment must be"),
            (lambda net: net["fitted"].update(n_features_in_="2"), "should be a int"),
            (lambda net: net["fitted"].pop("classes_"), "classes_ is missing"),
            (lambda net: net.update(file="../x"), "not part of the model"),
        ],
    )
    def test_forged_manifests_are_refused(
        self, saved: Path, change: Callable[[dict[str, Any]], Any], sentence: str
    ) -> None:
        forge(saved, lambda m: change(m["model"]["fitted"]["models_"][0]["estimator"]))
        with pytest.raises(StoreError, match=sentence):
            load(saved)

    def test_garbage_for_arrays_is_refused(self, saved: Path) -> None:
        stream = io.BytesIO()
        np.save(stream, np.ones(3))
        for content in (b"", b"\xff" * 50, pickle.dumps([1]), stream.getvalue()):
            forge(saved, lambda m: None, content)
            with pytest.raises(StoreError, match="cannot be made a net" if content else "names an empty file"):
                load(saved)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    X, y, weight = make_blobs(200)
    model = CascadeClassifier(NetClassifier(**SMALL), cascade=False, random_state=0, n_jobs=1).fit(X, y, weight)
    return save(model, tmp_path_factory.mktemp("net") / "model")


@pytest.fixture
def saved(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "model"))


def forge(path: Path, change: Callable[[dict[str, Any]], Any], arrays: bytes | None = None) -> None:
    """Change a saved net and give it right hashes again."""
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)
    if arrays is not None:
        name = next(path.glob("*.safetensors")).name
        (path / name).write_bytes(arrays)
        manifest["files"][name] = file_entry(arrays)
    (path / "manifest.json").write_bytes(render(manifest))


def test_public() -> None:
    assert fivesigma.NetClassifier is NetClassifier


class TestColumns:
    def test_only_those_are_seen(self) -> None:
        X, y = make_collisions(400)
        other = X.copy()
        other[:, 5] = -3 * other[:, 5]
        net = NetClassifier(**SMALL, columns=[3], momenta=[(0, 1, 2)]).fit(X, y)
        assert np.array_equal(net.predict_proba(X), net.predict_proba(other))
        all_seen = NetClassifier(**SMALL).fit(X, y)
        assert not np.array_equal(all_seen.predict_proba(X), all_seen.predict_proba(other))

    @pytest.mark.parametrize("columns", ["pt1", [], 3, [0, 9], [0, "pt1"]])
    def test_bad_ones(self, columns: Any) -> None:
        X, y = make_collisions(100)
        with pytest.raises(InputError, match="columns"):
            NetClassifier(**SMALL, columns=columns).fit(X, y)


class TestLikeTheOtherEstimators:
    def test_events_bring_everything_along(self) -> None:
        from fivesigma.datasets import from_arrays

        X, y, weight = make_blobs(400)
        events = from_arrays(X, y, weight, feature_names=["a", "b"])
        net = NetClassifier(**SMALL).fit(events)
        totals = np.where(y == 1, weight[y == 1].sum(), weight[y == 0].sum())
        by_hand = NetClassifier(**SMALL).fit(X, y, weight / totals)
        np.testing.assert_allclose(net.predict_proba(events), by_hand.predict_proba(X), rtol=1e-5)
        assert net.feature_names_in_.tolist() == ["a", "b"]
        swapped = from_arrays(X[:, ::-1], y, weight, feature_names=["b", "a"])
        np.testing.assert_array_equal(net.predict_proba(swapped), net.predict_proba(events))

    def test_significance_is_that_of_what_is_selected(self) -> None:
        X, y, weight = make_blobs(400)
        net = NetClassifier(**SMALL).fit(*make_blobs(400, seed=9)[:2])
        chosen = net.predict(X) == 1
        s, b = weight[chosen & (y == 1)].sum(), weight[chosen & (y == 0)].sum()
        assert net.significance(X, y, weight) == pytest.approx(float(fivesigma.AMS2().value(s, b)))
        assert net.significance(X, y, weight, utility="ams3") == pytest.approx(s / np.sqrt(b))

    def test_after_a_fork_threads_are_gone_and_it_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        X, y, _ = make_blobs(100)
        net = NetClassifier(**SMALL).fit(X, y)
        monkeypatch.setattr("fivesigma._tools.extras.threads_lost", {"several cores"})
        for call in (lambda: NetClassifier(**SMALL).fit(X, y), lambda: net.predict(X)):
            with pytest.raises(InputError, match="this process was forked from one that had used several cores"):
                call()


class TestCheckpoint:
    def net(self, folder: Path | None, **options: Any) -> NetClassifier:
        shape = {"width": 6, "depth": 2, "batch_size": 100, "epochs": 6, "random_state": 1, "n_jobs": 1}
        return NetClassifier(
            **{**shape, "momenta": [(0, 1, 2)], "weight_groups": 2, "focus": 2.0, **options}, checkpoint=folder
        )

    def events(self) -> tuple[Any, Any, Any]:
        rng = np.random.default_rng(0)
        X = np.column_stack([rng.exponential(30, 800), rng.normal(size=800), rng.uniform(-np.pi, np.pi, 800)])
        X = np.column_stack([X, rng.normal(size=800)])
        return X, (X[:, 0] + 10 * X[:, 3] > 30).astype(int), rng.uniform(0.5, 1.5, 800)

    @pytest.mark.parametrize("after", [1, 4])
    def test_a_broken_training_ends_as_an_unbroken_one(
        self, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        events = self.events()
        whole = self.net(None).fit(*events)
        run = NetTraining.run_epoch

        def breaks(training: NetTraining) -> float:
            if len(training.losses) == after:
                raise KeyboardInterrupt
            return run(training)

        monkeypatch.setattr(NetTraining, "run_epoch", breaks)
        with pytest.raises(KeyboardInterrupt):
            self.net(tmp_path / "run").fit(*events)
        assert f"interrupted after epoch {after}; the same call resumes from epoch {after}" in capsys.readouterr().err
        left: list[int] = []

        def counted(training: NetTraining) -> float:
            left.append(len(training.losses))
            return run(training)

        monkeypatch.setattr(NetTraining, "run_epoch", counted)
        resumed = self.net(tmp_path / "run").fit(*events)
        assert left == list(range(after, 6))
        np.testing.assert_array_equal(resumed.decision_function(events[0]), whole.decision_function(events[0]))
        np.testing.assert_array_equal(resumed.loss_, whole.loss_)

    def test_that_of_other_events_or_settings_is_refused(self, tmp_path: Path) -> None:
        X, y, weight = self.events()
        self.net(tmp_path / "run").fit(X, y, weight)
        with pytest.raises(InputError, match="of other events"):
            self.net(tmp_path / "run").fit(X[::-1], y[::-1], weight)
        with pytest.raises(InputError, match="of another configuration"):
            self.net(tmp_path / "run", width=7).fit(X, y, weight)


class TestNamedMomenta:
    def table(self, n: int = 3000) -> tuple[list[str], Any]:
        rng = np.random.default_rng(0)
        phi = rng.uniform(-np.pi, np.pi, n)
        jet_phi = (phi + np.pi + rng.normal(0, 0.3, n) + np.pi) % (2 * np.pi) - np.pi
        columns = {
            "lep_pt": rng.exponential(30, n) + 20,
            "lep_eta": rng.normal(size=n),
            "lep_phi": phi,
            "MET": rng.exponential(40, n),
            "MET_phi": jet_phi,
            "Jet_pt[0]": rng.exponential(50, n),
            "Jet_eta[0]": rng.normal(size=n),
            "Jet_phi[0]": jet_phi,
            "delta_phi": np.abs(rng.normal(0, 1, n)),
        }
        return list(columns), np.column_stack(list(columns.values()))

    def test_names_tell_particles(self) -> None:
        names, X = self.table()
        found = find_named_momenta(names, X)
        assert found.momenta == [(0, 1, 2), (3, None, 4), (5, 6, 7)]
        assert found.note == "momenta by name: lep_pt, MET, Jet_pt[0]"
        none = find_named_momenta(None, X)
        assert (none.momenta, none.note) == ([], "no columns are named as the pt and phi of a particle")

    def turning(self, what: str, X: Any) -> Any:
        """A column that changes when events are rotated, mirrored or flipped."""
        rng = np.random.default_rng(1)
        return {
            "px": X[:, 0] * np.cos(X[:, 2]),
            "size of py": np.abs(X[:, 0] * np.sin(X[:, 2])),
            "azimuth": (X[:, 7] + rng.normal(0, 1.0, len(X)) + np.pi) % (2 * np.pi) - np.pi,
            "pseudorapidity": X[:, 6] + rng.normal(0, 1.0, len(X)),
            "signed angle": (X[:, 2] - X[:, 7] + np.pi) % (2 * np.pi) - np.pi,
        }[what]

    TURNING = ("px", "size of py", "azimuth", "pseudorapidity", "signed angle")

    @pytest.mark.parametrize("what", TURNING)
    def test_a_column_that_turns_with_the_event_forbids_them(self, what: str) -> None:
        names, X = self.table()
        X = np.column_stack([X, self.turning(what, X)])
        found = find_named_momenta([*names, "other"], X)
        assert found.momenta == []
        assert "column 'other' turns with the event" in found.note

    @pytest.mark.parametrize("what", TURNING)
    def test_given_momenta_are_refused_beside_a_column_that_turns(self, what: str) -> None:
        _, X = self.table()
        X, y = np.column_stack([X, self.turning(what, X)]), (X[:, 0] > 40).astype(int)
        momenta = [(0, 1, 2), (3, None, 4), (5, 6, 7)]
        with pytest.raises(InputError, match="column 9 turns with the event and is part of no momentum"):
            NetClassifier(**{**SMALL, "momenta": momenta}).fit(X, y)
        NetClassifier(**{**SMALL, "momenta": momenta, "columns": [0, 3, 5, 8]}).fit(X, y)

    @given(st.integers(0, 2**32 - 1))
    @settings(max_examples=25, deadline=None)
    def test_a_turned_copy_of_events_is_as_good(self, seed: int) -> None:
        """What passes the test is the same in turned events: invariants of any events are never taken for turning."""
        rng = np.random.default_rng(seed)
        _, X = self.table(2000)
        angle, mirror = rng.uniform(-np.pi, np.pi, len(X)), rng.choice([-1, 1], len(X))
        for phi in (2, 4, 7):
            X[:, phi] = (mirror * X[:, phi] + angle + np.pi) % (2 * np.pi) - np.pi
        X[:, [1, 6]] *= rng.choice([-1, 1], len(X))[:, None]
        mass = np.sqrt(2 * X[:, 0] * X[:, 5] * np.abs(np.cosh(X[:, 1] - X[:, 6]) - np.cos(X[:, 2] - X[:, 7])))
        X = np.column_stack([X, mass, X[:, 1] * X[:, 6], np.where(X[:, 0] > 30, X[:, 5], np.nan)])
        assert turning_column(X, np.array([[0, 1, 2], [3, -1, 4], [5, 6, 7]])) is None

    def test_names_can_stand_beside_an_array(self) -> None:
        names, X = self.table(600)
        y = (X[:, 0] > 40).astype(int)
        net = NetClassifier(**{**SMALL, "momenta": "auto"}, names=names).fit(X, y)
        assert net.inputs_.momenta.tolist() == [[0, 1, 2], [3, -1, 4], [5, 6, 7]]

    def test_a_phi_that_is_no_angle_is_none(self) -> None:
        names, X = self.table()
        X[:, 2] *= 100
        assert (0, 1, 2) not in find_named_momenta(names, X).momenta

    def test_a_net_takes_them_and_says_so(self) -> None:
        pandas = pytest.importorskip("pandas")
        names, X = self.table(600)
        y = (X[:, 0] > 40).astype(int)
        net = NetClassifier(**{**SMALL, "momenta": "auto"}).fit(pandas.DataFrame(X, columns=names), y)
        assert net.inputs_.momenta.tolist() == [[0, 1, 2], [3, -1, 4], [5, 6, 7]]
        assert net.notes_ == ("momenta by name: lep_pt, MET, Jet_pt[0]",)
        plain = NetClassifier(**{**SMALL, "momenta": "auto"}).fit(X, y)
        assert len(plain.inputs_.momenta) == 0
