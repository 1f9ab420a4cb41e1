"""How difficult the toy is: the largest AMS that plain XGBoost finds, as quoted in docs/validation/simulation.md.

Run it with ``python -m benchmarks.studies.simulation_difficulty``; add ``--real FILE`` for the challenge's events.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sklearn.metrics import roc_auc_score

from fivesigma._tools.extras import need
from fivesigma.challenge import B_REG, YIELDS
from fivesigma.datasets import load_events, make_htautau

if TYPE_CHECKING:
    from fivesigma.datasets import Events

WINDOW = 401  # cuts averaged for the smoothed figure


class Difficulty(NamedTuple):
    """The largest AMS over cuts that keep 200 events, the same smoothed, and areas under the ROC curve."""

    ams: float
    smoothed: float
    auc: float
    weighted_auc: float


def difficulty(events: Events, *, n_trees: int = 300, eta: float = 0.05, nthread: int = 1) -> Difficulty:
    """Train on the first half, scan the cut on the second, scaled to the challenge's yields."""
    xgb = need("xgboost")
    half = len(events) // 2
    train, test = events[:half], events[half:]
    data = xgb.DMatrix(train.X, train.is_signal, weight=train.scaled_to(0.5 * half, 0.5 * half).weight)
    settings = {"objective": "binary:logistic", "eta": eta, "max_depth": 6, "nthread": nthread, "seed": 0}
    score = xgb.train(settings, data, n_trees).predict(xgb.DMatrix(test.X))
    weight, order = test.scaled_to(**YIELDS).weight, np.argsort(-score)
    s = np.cumsum((weight * test.is_signal)[order])
    b = np.cumsum((weight * ~test.is_signal)[order]) + B_REG
    ams = np.sqrt(2.0 * ((s + b) * np.log1p(s / b) - s))
    return Difficulty(
        float(ams[200:].max()),
        float(np.convolve(ams, np.full(WINDOW, 1.0 / WINDOW), "valid").max()),
        float(roc_auc_score(test.is_signal, score)),
        float(roc_auc_score(test.is_signal, score, sample_weight=test.scaled_to(1.0, 1.0).weight)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--nthread", type=int, default=1)
    parser.add_argument("--real", type=Path)
    arguments = parser.parse_args()
    for seed in range(arguments.seeds):
        print(f"toy, seed {seed}:", difficulty(make_htautau(arguments.events, seed), nthread=arguments.nthread))
    if arguments.real is not None:
        print("real:", difficulty(load_events(arguments.real), nthread=arguments.nthread))


if __name__ == "__main__":
    main()
