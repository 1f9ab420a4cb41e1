"""A report whose numbers are the same on every machine: no learner, no random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri

from fivesigma import AMS2, History, Round, Varied
from fivesigma._types import Array
from fivesigma.cascade.rounds import ClassWeights
from fivesigma.datasets import Events, from_arrays
from fivesigma.reporting import ReportData, report

UTILITY = AMS2()


class Oracle:
    """A model that knows the score: the only feature."""

    cut_, utility_, n_features_in_ = 0.8, UTILITY, 1
    feature_importances_ = np.array([1.0])
    history_ = History()

    def predict_proba(self, X: Array) -> Array:
        return np.column_stack([1 - X[:, 0], X[:, 0]])

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {"random_state": 0}


def make_round(t: int, u: float, s: float, b: float) -> Round:
    weights, following = (UTILITY.weights_at(v) for v in (u, u * 1.3))
    return Round(
        index=t,
        u=u,
        class_weights=(float(weights[0]), float(weights[1])),
        s=s,
        b=b,
        effective_background=100.0,
        significance=float(UTILITY.value(s, b)),
        valid=True,
        improved=True,
        surrogate_before=None,
        surrogate_after=None,
        train_s=1.1 * s if t % 2 else None,
        train_b=b if t % 2 else None,
        seconds=0.1,
        following=ClassWeights(float(following[0]), float(following[1]), u * 1.3),
    )


def overlaid(seed: int, n: int = 1000, shift: float = 0.0) -> Events:
    """Random events whose only feature is a score, a little larger by `shift`."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    score = np.clip(rng.beta(2 + y, 3 - y) + shift, 0.0, 1.0)
    return from_arrays(score[:, None], y, np.where(y == 1, 0.5, 2.0), signal=1)


def synthetic() -> ReportData:
    """Signal and two backgrounds with Gaussian margins."""
    names, means = ("Higgs", "Z", "top"), (1.5, -1.0, 0.2)
    margins = [mean + ndtri(np.linspace(0.0005, 0.9995, 1000)) for mean in means]
    score = 1 / (1 + np.exp(-np.concatenate(margins)))
    process = np.repeat(names, 1000)
    weight = np.repeat([0.08, 1.5, 0.3], 1000)
    events = from_arrays(score[:, None], np.where(process == "Higgs", "s", "b"), weight, process=process)
    model = Oracle()
    model.history_ = History(make_round(t, 0.05 * 1.3**t, 60.0 - 3 * t, 300.0 - 30 * t) for t in range(1, 7))
    moved = [Varied(score=score + shift) for shift in (0.01, -0.01)]
    heavier = Varied(weight=weight * np.where(process == "top", 1.2, 1.0))
    systematics = {"scale": (moved[0], moved[1]), "top": (heavier, None)}
    return report(model, events, systematics=systematics, n_boot=20).data
