"""What folds gain over the default of one split, inside set t of the simulated events.

``python -m benchmarks.studies.default_folds DATA [SEEDS]`` trains on 10,000 events, others for each seed, and tests
on 50,000
that no seed trains on. Both sides have the same events to train on; gains are paired, with the error of
`benchmarks.studies.protocol`.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.studies.auto import mean_gain
from benchmarks.studies.protocol import FRACTIONS, UTILITY, entering_steps, gains_with_replicas, read_set, scaled_part
from benchmarks.studies.protocol import selection_steps as at_cut
from benchmarks.studies.study.data import SIMULATED
from fivesigma import CascadeClassifier, GrownCascadeClassifier
from fivesigma._tools.extras import need

SEEDS, N_TRAIN, N_TEST, N_BOOT = 10, 10_000, 50_000, 50


def _grown(**options: Any) -> Any:
    return GrownCascadeClassifier(n_trees=150, utility=UTILITY, n_jobs=1, **options)


def _retrained(**options: Any) -> Any:
    learner = need("xgboost").XGBClassifier(n_estimators=60, learning_rate=0.1, n_jobs=1)
    return CascadeClassifier(learner, max_rounds=4, utility=UTILITY, n_jobs=1, **options)


KINDS: dict[str, Callable[..., Any]] = {"grown": _grown, "retrained": _retrained}
SETTINGS: dict[str, dict[str, Any]] = {"cv=0.25": {}, "cv=0.25, refit": {"refit": True}, "cv=5": {"cv": 5}}


def main(data: str, n_seeds: str = str(SEEDS)) -> None:
    """See the module."""
    warnings.simplefilter("ignore")
    events = read_set(str(Path(data) / SIMULATED), "t")
    order = np.random.default_rng(0).permutation(len(events))
    test, others = scaled_part(events, np.sort(order[:N_TEST])), order[N_TEST:]
    gains: dict[tuple[str, str, str], list[Any]] = {}
    seconds: dict[tuple[str, str], list[float]] = {}
    for seed in range(int(n_seeds)):
        train = scaled_part(events, np.sort(np.random.default_rng(seed).permutation(others)[:N_TRAIN]))
        for kind, make in KINDS.items():
            steps: dict[tuple[str, str], Any] = {}
            for name, options in SETTINGS.items():
                start = time.process_time()
                model = make(random_state=seed, **options).fit(train)
                seconds.setdefault((kind, name), []).append(time.process_time() - start)
                p = model.predict_proba(test)[:, 1]
                steps["own", name], steps["over", name] = at_cut(p >= model.cut_), entering_steps(p, FRACTIONS)
            for (what, name), made in steps.items():
                found = gains_with_replicas(made, steps[what, "cv=0.25"], test, N_BOOT)
                gains.setdefault((kind, what, name), []).append(found)
        print(f"seed {seed} done", flush=True)
    for kind in KINDS:
        for name in SETTINGS:
            price = np.median(np.divide(seconds[kind, name], seconds[kind, "cv=0.25"]))
            own, over = (mean_gain(gains[kind, what, name]) for what in ("own", "over"))
            print(f"| {kind}, `{name}` | {own[0]:+.3f} ± {own[1]:.3f} | {over[0]:+.3f} ± {over[1]:.3f} | {price:.1f} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
