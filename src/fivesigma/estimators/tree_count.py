"""How many trees a plain model should have: as many as lower the loss of held-out events.

The loss is the logistic one with learner weights at which both classes weigh the same, as in training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fivesigma._tools.progress import end_if_given_up
from fivesigma._tools.threads import limit_threads
from fivesigma._types import Array, IntArray
from fivesigma.cascade.rounds import History
from fivesigma.estimators.grown import GrownCascadeClassifier
from fivesigma.estimators.split_steps import Growth, Weigher
from fivesigma.estimators.training_sample import TrainingSample
from fivesigma.learners import Binding

MOST_TREES = 1000
EVERY = 10  # trees between two looks at the loss
PATIENCE = 3  # looks without a new minimum after which growth stops


@dataclass(repr=False, eq=False, kw_only=True)
class PlainSearch(GrownCascadeClassifier):
    """A plain model that finds its number of trees itself.

    It grows until the loss of held-out events has stopped falling, and keeps `more` times as many trees as had the
    lowest loss; the trees of the search are those of the model.
    """

    n_trees: int = 2 * MOST_TREES  # never reached
    cascade: bool = False
    update_every: int = EVERY
    cut: str | float = "zero"
    more: float = 1.0  # trees of the model for each tree that lowers the loss

    def found(self) -> GrownCascadeClassifier:
        """Return the model, as if the number of its trees had been known."""
        names = GrownCascadeClassifier._get_param_names()
        model = GrownCascadeClassifier(**{**{name: getattr(self, name) for name in names}, "n_trees": self.n_trees_})
        for name, value in vars(self).items():
            if name.endswith("_") and not name.startswith("_"):
                setattr(model, name, value)
        model.history_ = History(self.history_[: self.n_trees_])
        return model

    def _judge(self, growth: Growth, n_trees: int, judged: list[float]) -> None:
        if n_trees % EVERY == 0 and not _has_risen(judged):
            judged.append(_loss(growth.score_held_out(), growth.sample, growth.splits[0][1]))

    def _should_stop(self, n_trees: int, judged: list[float]) -> bool:
        return _has_risen(judged) and n_trees >= self._n_kept(n_trees, judged)

    def _n_kept(self, n_trees: int, judged: list[float]) -> int:  # noqa: ARG002 - as the class above has it
        return round(self.more * _best(judged))


def find_tree_count(sample: TrainingSample, binding: Binding, params: dict[str, Any]) -> int:
    """Find the number for scikit-learn's histogram boosting."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(**params, early_stopping=False, warm_start=True, random_state=binding.seed)
    table, judged = binding.rows(binding.train), binding.rows(binding.held_out)
    weight = Weigher.of(sample, binding.train)(sample.balanced(binding.train))
    losses: list[float] = []
    while not _has_risen(losses):
        end_if_given_up()
        with limit_threads(binding.n_threads):
            model.set_params(max_iter=(len(losses) + 1) * EVERY)
            model.fit(table, binding.target[binding.train], sample_weight=weight)
            score = np.asarray(model.predict_proba(judged)[:, 1])
        losses.append(_loss(score, sample, binding.held_out))
    return _best(losses)


def _has_risen(losses: list[float]) -> bool:
    """Whether the last looks brought no new minimum, or were enough."""
    return bool(losses) and (len(losses) - int(np.argmin(losses)) > PATIENCE or len(losses) * EVERY >= MOST_TREES)


def _best(losses: list[float]) -> int:
    return (int(np.argmin(losses)) + 1) * EVERY


def _loss(probability: Array, sample: TrainingSample, rows: IntArray) -> float:
    p = np.clip(probability.astype(np.float64), 1e-12, 1 - 1e-12)
    weight = sample.learner_weights(rows, sample.balanced(rows))
    return float(-np.average(np.log(np.where(sample.signal[rows], p, 1 - p)), weights=weight))
