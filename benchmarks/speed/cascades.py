"""What cascades cost beside plain training with the same library: time and memory, as ratios within one run.

Every measurement runs in a process of its own that loads the events and trains once, so that peak memory means
something; the two sides of a ratio take turns.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from xgboost import XGBClassifier

from benchmarks.harness import Figure, benchmark, peak_memory
from fivesigma import CascadeClassifier, GrownCascadeClassifier
from fivesigma._tools.extras import need
from fivesigma._types import AnyArray, Array, IntArray
from fivesigma.challenge import B_REG
from fivesigma.datasets import make_htautau
from fivesigma.estimators.training_sample import TrainingSample
from fivesigma.learners.lightgbm import GROWER_DEFAULTS as LIGHTGBM
from fivesigma.learners.lightgbm import GROWER_FIXED as LIGHTGBM_FIXED
from fivesigma.learners.xgboost import GROWER_DEFAULTS as XGBOOST
from fivesigma.learners.xgboost import GROWER_FIXED as XGBOOST_FIXED

N_EVENTS = 250_000
N_TREES = 500
THREADS = 2
PAIRS = 3


@benchmark(slow=True)
def retrained() -> Iterable[Figure]:
    """Ten rounds of a retrained cascade against ten fits of XGBClassifier on the same rows."""
    ours, plain = _pairs(N_EVENTS, ("retrained", "xgboost"), ("ten_fits", "xgboost"))
    one = _measure(N_EVENTS, "one_fit", "xgboost")
    yield Figure("ten rounds / ten XGBClassifier fits: time", ours[0] / plain[0], 0.85, note=f"{ours[0]:.1f} s")
    yield Figure("ten rounds / one fit: peak memory", ours[1] / one[1], 2.0, note=f"{ours[1]:.0f} MB")


@benchmark(slow=True)
def grown_xgboost() -> Iterable[Figure]:
    """500 trees with u from held-out events at every fifth, against plain training that evaluates the same events."""
    yield from _grown("xgboost", 1.10)
    ours, bare = _pairs(N_EVENTS, ("grown", "xgboost"), ("bare", "xgboost"))
    ratio = ours[0] / bare[0]
    yield Figure("grown cascade / bare XGBClassifier.fit on its rows: time", ratio, 1.15, note=f"{bare[0]:.1f} s")


@benchmark()
def grown_price() -> Iterable[Figure]:
    """The processor time of 200 trees on 30,000 rows of 40,000, of which the rest is held out, against a bare fit."""
    X, y, w = _events(40_000)
    work = {"grown": _grow, "bare": _bare}
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(PAIRS):
        for name, run in work.items():
            start = time.process_time()
            run("xgboost", X, y, w, n_trees=200, threads=1)
            seconds[name].append(time.process_time() - start)
    ratio, bare = float(np.median(np.divide(seconds["grown"], seconds["bare"]))), min(seconds["bare"])
    yield Figure("grown cascade / bare XGBClassifier.fit on its rows, CPU", ratio, 1.15, note=f"{bare:.1f} s")


@benchmark(slow=True)
def grown_lightgbm() -> Iterable[Figure]:
    """The same with LightGBM."""
    yield from _grown("lightgbm", 1.20)


def _grown(library: str, limit: float) -> Iterable[Figure]:
    ours, plain = _pairs(N_EVENTS, ("grown", library), ("plain", library))
    yield Figure(f"grown cascade / plain {library}: time", ours[0] / plain[0], limit, note=f"{ours[0]:.1f} s")
    yield Figure(f"grown cascade / plain {library}: peak memory", ours[1] / plain[1], 1.2, note=f"{ours[1]:.0f} MB")


@benchmark(slow=True)
def grown_scaling() -> Iterable[Figure]:
    """Growth with the number of events."""
    large, small = (min(_measure(n, "grown", "xgboost")[0] for _ in range(2)) for n in (4 * N_EVENTS, N_EVENTS))
    yield Figure("grown cascade, 1,000,000 / 250,000 events", large / small, 4.6, note=f"{large:.0f} s")


def _pairs(n: int, a: tuple[str, str], b: tuple[str, str]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Time and memory of two runs that take turns, of the pair with the least ratio of times."""
    runs = [(_measure(n, *a), _measure(n, *b)) for _ in range(PAIRS)]
    return min(runs, key=lambda pair: pair[0][0] / pair[1][0])


def _measure(n: int, what: str, library: str) -> tuple[float, float]:
    """Seconds and peak memory in MB of one run in a process of its own."""
    command = [
        sys.executable,
        "-c",
        f"from benchmarks.speed.cascades import _child; _child({n}, {what!r}, {library!r})",
    ]
    seconds, peak = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return seconds, peak


def _events(n: int) -> tuple[AnyArray, AnyArray, Array]:
    """Toy events, simulated once and read by every run."""
    path = Path(tempfile.gettempdir()) / f"fivesigma-benchmark-{n}.npz"
    if not path.exists():
        events = make_htautau(n, random_state=0)
        np.savez(path, X=events.X, y=events.is_signal.astype(np.intp), w=events.weight)
    with np.load(path) as stored:
        return stored["X"], stored["y"], stored["w"]


def _child(n: int, what: str, library: str) -> None:
    subprocess.run([sys.executable, "-c", f"from benchmarks.speed.cascades import _events; _events({n})"], check=True)
    X, y, w = _events(n)
    work = _RUNS[what]
    start = time.perf_counter()
    work(library, X, y, w)
    print(json.dumps([time.perf_counter() - start, peak_memory()]))


def _split(X: AnyArray, y: AnyArray, w: Array) -> tuple[IntArray, IntArray, Array]:
    """The split of the estimators, and class-balanced learner weights."""
    sample = TrainingSample.checked(X, y, w, None, pos_label=None, negative="error")
    ((train, held_out),) = sample.splits(0.25, 0)
    return train, held_out, sample.learner_weights(train, sample.balanced(train))


def _retrained(_: str, X: AnyArray, y: AnyArray, w: Array) -> None:
    learner = XGBClassifier(n_jobs=THREADS)
    model = CascadeClassifier(learner, b_reg=B_REG, max_rounds=10, extra_rounds=10, u_init=0.05, random_state=0)
    assert len(model.fit(X, y, w).history_) == 10


def _fits(n: int) -> Callable[[str, AnyArray, AnyArray, Array], None]:
    def work(_: str, X: AnyArray, y: AnyArray, w: Array) -> None:
        train, _held_out, weight = _split(X, y, w)
        X_train, y_train = X[train], y[train]
        for seed in range(n):
            XGBClassifier(n_jobs=THREADS, random_state=seed).fit(X_train, y_train, sample_weight=weight)

    return work


def _grow(library: str, X: AnyArray, y: AnyArray, w: Array, *, n_trees: int = N_TREES, threads: int = THREADS) -> None:
    GrownCascadeClassifier(library, n_trees=n_trees, b_reg=B_REG, random_state=0, n_jobs=threads).fit(X, y, w)


def _bare(_: str, X: AnyArray, y: AnyArray, w: Array, *, n_trees: int = N_TREES, threads: int = THREADS) -> None:
    train, _held_out, weight = _split(X, y, w)
    model = XGBClassifier(n_estimators=n_trees, n_jobs=threads, random_state=0, **XGBOOST)
    model.fit(X[train], y[train], sample_weight=weight)


def _plain(library: str, X: AnyArray, y: AnyArray, w: Array) -> None:
    train, held_out, weight = _split(X, y, w)
    module = need(library)
    params: dict[str, Any]
    if library == "xgboost":
        params = {**XGBOOST, **XGBOOST_FIXED, "nthread": THREADS, "eval_metric": "logloss"}
        data = module.QuantileDMatrix(X[train], label=y[train], weight=weight)
        other = module.QuantileDMatrix(X[held_out], label=y[held_out], ref=data)
        module.train(params, data, N_TREES, evals=[(other, "held")], verbose_eval=False)
    else:
        params = {**LIGHTGBM, **LIGHTGBM_FIXED, "num_threads": THREADS, "metric": "binary_logloss"}
        data = module.Dataset(X[train], label=y[train], weight=weight, params=params)
        other = module.Dataset(X[held_out], label=y[held_out], reference=data)
        module.train(params, data, N_TREES, valid_sets=[other])


_RUNS: dict[str, Callable[[str, AnyArray, AnyArray, Array], None]] = {
    "retrained": _retrained,
    "ten_fits": _fits(10),
    "one_fit": _fits(1),
    "grown": _grow,
    "bare": _bare,
    "plain": _plain,
}
