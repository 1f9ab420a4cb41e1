"""The uncertainty of a measured strength: against the Hessian of pyhf's likelihood, and against every partition."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from fivesigma import AMS2, Normalisation, SOverRootSB, Varied, categorise, to_pyhf
from fivesigma._types import Array, IntArray
from fivesigma.categories import Categories
from fivesigma.categories.floors import Floors
from fivesigma.categories.one_score.dual import search
from fivesigma.categories.one_score.profiled_cells import MeasurementCells
from fivesigma.errors import InputError
from fivesigma.likelihood.shifts import Systematics, YieldShifts
from fivesigma.yields import ProcessYields

pytestmark = [
    pytest.mark.filterwarnings("ignore:jsonschema.RefResolver:DeprecationWarning"),  # pyhf 0.7.6 uses it
    pytest.mark.filterwarnings("ignore::fivesigma.errors.SmallSampleWarning"),
]


def random_categories(seed: int) -> Categories:
    """A signal, two backgrounds and systematics of all kinds; some have no constraint."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(4, 9))  # more than mu and the free pulls need
    sizes = {"H": rng.uniform(1, 20, k), "Z": rng.uniform(20, 500, k), "W": rng.uniform(5, 100, k)}
    nominal = {
        name: ProcessYields(name == "H", size, size * rng.uniform(0.01, 0.5, k), np.full(k, 100))
        for name, size in sizes.items()
    }
    up: dict[str, dict[str, Array]] = {}
    down: dict[str, dict[str, Array]] = {}
    for name in ("shape", "signal", "straight"):
        shift = {key: size * rng.normal(0, 0.1, k) for key, size in sizes.items() if name != "signal" or key == "H"}
        factor = -1.0 if name == "straight" else -rng.uniform(0.5, 1.5)
        up[name] = {key: size + shift.get(key, 0 * size) for key, size in sizes.items()}
        down[name] = {key: size + factor * shift.get(key, 0 * size) for key, size in sizes.items()}
    up["k_W"] = {**sizes, "W": 2 * sizes["W"]}
    down["k_W"] = {**sizes, "W": 0 * sizes["W"]}
    free: dict[str, tuple[str, ...]] = {"k_W": ("W",)} | ({"straight": ()} if rng.random() < 0.5 else {})
    edges = np.append(np.arange(float(k)), np.inf)
    shifts = YieldShifts(edges, nominal, up, down, free)
    statistics = bool(rng.random() < 0.5)
    return Categories(edges, nominal, AMS2(), "peak", Floors(), shifts=shifts, mc_statistics=statistics)


def hessian(function: Any, at: Array, step: float = 2e-2) -> Array:
    """Second derivatives by differences, extrapolated twice."""
    n = at.size

    def plain(h: float) -> Array:
        out, unit = np.empty((n, n)), h * np.eye(n)
        for i, j in itertools.combinations_with_replacement(range(n), 2):
            values = [function(at + a * unit[i] + b * unit[j]) for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1))]
            out[i, j] = out[j, i] = (values[0] - values[1] - values[2] + values[3]) / (4 * h * h)
        return out

    coarse, middle, fine = (plain(step / 2**k) for k in range(3))
    first, second = (4 * middle - coarse) / 3, (4 * fine - middle) / 3
    return (16 * second - first) / 15


@pytest.mark.parametrize("block", range(10))
def test_pyhf_has_the_same_hessian(block: int) -> None:
    pyhf = pytest.importorskip("pyhf")
    for seed in range(20 * block, 20 * block + 20):
        found = random_categories(seed)
        model = pyhf.Workspace(to_pyhf(found, staterror=found.mc_statistics)).model()
        at = np.array(model.config.suggested_init())
        data = model.expected_data(at)
        second = hessian(lambda p, m=model, d=data: float(pyhf.infer.mle.twice_nll(p, d, m)[0]) / 2, at)
        poi = model.config.poi_index
        assert found.uncertainty == pytest.approx(float(np.sqrt(np.linalg.inv(second)[poi, poi])), rel=1e-5), seed


def random_cells(seed: int, n_edges: int = 12) -> MeasurementCells:
    rng = np.random.default_rng(seed)
    n_systematics = int(rng.integers(1, 4))
    x = np.linspace(3, -3, n_edges)
    s, b = rng.gamma(20.0, size=(2, n_edges)) * np.exp(-((x - np.array([[1.5], [0.0]])) ** 2) / 2)
    n = s + 20 * b
    delta = n * rng.normal(0, 0.05, (n_systematics, 1)) * np.stack([np.ones_like(x), x, x * x])[:n_systematics]
    running = [np.pad(np.cumsum(v, axis=-1), [(0, 0)] * (v.ndim - 1) + [(1, 0)]) for v in (n, s, delta)]
    allowed = np.tri(n_edges + 1, k=-1, dtype=np.bool_)
    constraint = np.where(rng.random(n_systematics) < 0.3, 0.0, 1.0)
    return MeasurementCells(running[0], allowed, 0.0, np.zeros(n_systematics), running[1], running[2], constraint)


@pytest.mark.parametrize("seed", range(20))
def test_the_search_finds_the_best_of_all_partitions(seed: int) -> None:
    cells, k = random_cells(seed), 2 + seed % 3
    every: IntArray = np.array(list(itertools.combinations(range(1, cells.n.size), k)))
    best = float(cells.between(every).profile().objective.max())
    found = search(cells, k)
    assert found.objective <= best * (1 + 1e-9)
    assert found.bound >= best * (1 - 1e-9)
    assert np.sqrt(2 * best) - np.sqrt(2 * found.objective) < 1e-3


def events(n: int = 20_000, seed: int = 0) -> tuple[Array, IntArray, Array, Array]:
    rng = np.random.default_rng(seed)
    process = np.array(["H", "Z", "W"])[np.arange(n) % 3]
    y = (process == "H").astype(np.intp)
    score = rng.normal(np.where(process == "H", 1.5, np.where(process == "W", 0.6, 0.0)))
    return score, y, np.where(y == 1, 200.0, 3_000.0) * 3 / n * np.ones(n), process


@pytest.mark.parametrize("rule", ["model", "peak"])
def test_without_systematics_it_is_the_precision_utility(rule: str) -> None:
    score, y, weight, _ = events()
    found = categorise(score, y, weight, 4, rule=rule, goal="measurement")
    same = categorise(score, y, weight, 4, SOverRootSB(), rule=rule)
    assert found.edges.tolist() == same.edges.tolist()
    assert found.uncertainty == pytest.approx(1 / same.significance, rel=1e-12)
    assert same.bound is not None
    assert found.bound == pytest.approx(1 / same.bound, rel=1e-12)
    assert found.gap == 0


@pytest.mark.parametrize("free", [(), ("k_W",)])
def test_edges_for_a_measurement_measure_better(free: tuple[str, ...]) -> None:
    score, y, weight, process = events()
    moved = Varied(score=score + np.where(y == 1, 0.05, 0.03))
    systematics: Systematics = {"scale": (moved, None), "k_W": Normalisation("W", 0.2)}
    options: dict[str, Any] = {"systematics": systematics, "free": free, "process": process, "rule": "peak"}
    found = categorise(score, y, weight, 4, goal="measurement", mc_statistics=False, **options)
    other = categorise(score, y, weight, 4, mc_statistics=False, **options)
    assert found.uncertainty <= other.uncertainty
    assert found.gap is not None
    assert found.bound is not None
    assert found.uncertainty - found.gap == pytest.approx(found.bound)
    again = found.evaluate(score, y, weight, systematics=systematics, process=process)
    assert again.uncertainty == pytest.approx(found.uncertainty)
    assert "uncertainty of mu" in repr(found)
    low, high = found.interval(n_boot=30).significance
    assert low < found.uncertainty < high


def test_a_systematic_of_the_signal_enters() -> None:
    score, y, weight, process = events()
    known = categorise(score, y, weight, 3, goal="measurement")
    moves: Systematics = {"theory": Normalisation("H", 0.3)}
    found = categorise(score, y, weight, 3, goal="measurement", systematics=moves, process=process)
    assert found.uncertainty > np.hypot(0.95 * known.uncertainty, 0.3) * 0.99


def test_bad_goals_are_one_sentence() -> None:
    score, y, weight, _ = events(300)
    with pytest.raises(InputError, match="goal must be one of 'discovery', 'measurement', got 'limit'"):
        categorise(score, y, weight, 2, goal="limit")
