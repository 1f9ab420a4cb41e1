"""How many trees a plain model should have: as many as lower the loss of held-out events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fivesigma._progress import end_if_given_up
from fivesigma._threads import limited
from fivesigma._types import Array, BoolArray
from fivesigma.estimators.growth import Weigher
from fivesigma.estimators.sample import Sample
from fivesigma.learners import Binding, grower

MOST_TREES = 1000
EVERY = 10  # trees between two looks at the loss
PATIENCE = 3  # looks without a new minimum after which growth stops


def find_tree_count(sample: Sample, binding: Binding, library: str, params: dict[str, Any]) -> int:
    """Grow a plain model on the training rows of a split until the loss of its held-out rows stops falling.

    The loss is the logistic one with learner weights at which both classes weigh the same, as in training.

    Parameters
    ----------
    sample : Sample
    binding : Binding
        The split, the seed and the threads.
    library : {"xgboost", "lightgbm", "histogram"}
    params : dict
        Of the library's trees.
    """
    train, held_out = binding.train, binding.held_out
    weight = Weigher.of(sample, train)(sample.balanced(train))
    judge = sample.learner_weights(held_out, sample.balanced(held_out))
    signal = sample.signal[held_out]
    score_after = (
        _histogram(params, binding, weight) if library == "histogram" else _grown(library, params, binding, weight)
    )
    losses: list[float] = []
    while len(losses) * EVERY < MOST_TREES and len(losses) - int(np.argmin([*losses, np.inf])) <= PATIENCE:
        end_if_given_up()
        losses.append(_loss(score_after((len(losses) + 1) * EVERY), signal, judge))
    return (int(np.argmin(losses)) + 1) * EVERY


def _grown(library: str, params: dict[str, Any], binding: Binding, weight: Array) -> Callable[[int], Array]:
    """Score the held-out rows by ever more trees of one booster."""
    booster = grower(library, params, binding)
    booster.set_weights(weight)

    def score_after(_: int) -> Array:
        for _ in range(EVERY):
            booster.grow()
        return booster.score_held_out()

    return score_after


def _histogram(params: dict[str, Any], binding: Binding, weight: Array) -> Callable[[int], Array]:
    """Score the held-out rows by ever more trees of scikit-learn's histogram boosting."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(**params, early_stopping=False, warm_start=True, random_state=binding.seed)
    table, judged = binding.rows(binding.train), binding.rows(binding.held_out)

    def score_after(n_trees: int) -> Array:
        with limited(binding.n_threads):
            model.set_params(max_iter=n_trees).fit(table, binding.target[binding.train], sample_weight=weight)
            return np.asarray(model.predict_proba(judged)[:, 1])

    return score_after


def _loss(probability: Array, signal: BoolArray, weight: Array) -> float:
    p = np.clip(probability.astype(np.float64), 1e-12, 1 - 1e-12)
    return float(-np.average(np.log(np.where(signal, p, 1 - p)), weights=weight))
