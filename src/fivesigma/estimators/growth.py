"""How boosters grow side by side, one for each split, while u follows their yields."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.cascade import ClassWeights, Outcome
from fivesigma.estimators.sample import Gauge, Sample
from fivesigma.learners import Binding, StagedModel, grower
from fivesigma.significance import Utility


class Weigher:
    """Learner weights of some rows at any class weights, in one pass."""

    def __init__(self, sample: Sample, rows: IntArray) -> None:
        self._signal = sample.signal[rows]
        self._base = sample.learner_weights(rows, ClassWeights(1.0, 1.0))
        self._sums = float(self._base[self._signal].sum()), float(self._base[~self._signal].sum())

    def __call__(self, weights: ClassWeights) -> Array:
        """Weights of mean one."""
        mean = (weights.signal * self._sums[0] + weights.background * self._sums[1]) / self._base.size
        return self._base * np.where(self._signal, weights.signal / mean, weights.background / mean)


class Growth:
    """The step of a grown cascade: a tree for the booster of each split, then a look at the yields that drive u.

    Parameters
    ----------
    sample : Sample
    splits : list of (train, held-out) rows
    utility : Utility
    library, params, seed, threads
        Of the boosters.
    on_train : bool
        Whether the training events drive u.
    update_cut : {"zero", "plateau"}
        Cut at which the yields are formed.
    """

    def __init__(
        self,
        sample: Sample,
        splits: list[tuple[IntArray, IntArray]],
        utility: Utility,
        *,
        library: str,
        params: dict[str, Any],
        seed: int,
        threads: int,
        on_train: bool,
        update_cut: str,
    ) -> None:
        self._sample, self._splits, self._utility = sample, splits, utility
        self._seed, self._on_train, self._update_cut = seed, on_train, update_cut
        self._growers = [
            grower(library, params, Binding(sample.X, sample.target, train, rows, k_seed, threads))
            for k_seed, (train, rows) in zip(self._seeds(0), splits, strict=True)
        ]
        self._weigh = [Weigher(sample, train) for train, _ in splits]
        self._current: ClassWeights | None = None

    @cached_property
    def held_out(self) -> Gauge:
        """Events held out of any booster."""
        return Gauge.of(self._sample, np.concatenate([rows for _, rows in self._splits]), self._utility)

    @cached_property
    def _train(self) -> Gauge:
        return Gauge.of(self._sample, np.concatenate([train for train, _ in self._splits]), self._utility)

    @property
    def gauge(self) -> Gauge:
        """Events that drive u."""
        return self._train if self._on_train else self.held_out

    def __call__(self, weights: ClassWeights, find_u: bool, monitored: bool) -> Outcome:
        """Grow with class weights and report the yields."""
        if weights != self._current:
            for g, weigh in zip(self._growers, self._weigh, strict=True):
                g.set_weights(weigh(weights))
            self._current = weights
        for g in self._growers:
            g.grow()
        p = self._score_train() if self._on_train else self.score_held_out()
        best = self.gauge.scan(p) if find_u or self._update_cut == "plateau" else None
        threshold = 0.5 if best is None or self._update_cut == "zero" else best.cut
        s, b, effective = self.gauge.at(p >= threshold)
        train = self._train.at(self._score_train() >= threshold)[:2] if monitored else None
        return Outcome(s, b, effective, tuned=(best.s, best.b) if best and find_u else None, train=train)

    def best_significance(self) -> float:
        """Held-out significance at the best cut, whatever drives u: what early stopping looks at."""
        return self.held_out.scan(self.score_held_out()).significance

    def score_held_out(self) -> Array:
        """P(signal) of the held-out rows of all splits, by all trees."""
        return np.concatenate([g.score_held_out() for g in self._growers])

    def _score_train(self) -> Array:
        return np.concatenate([g.score_train() for g in self._growers])

    def models(self, n_trees: int) -> list[StagedModel]:
        """Return the first trees of each booster."""
        return [g.model(n_trees) for g in self._growers]

    def dump(self) -> list[bytes]:
        """Return the trees of all boosters."""
        return [g.dump() for g in self._growers]

    def restore(self, dumped: list[bytes], n_trees: int) -> None:
        """Go on from dumped trees, with seeds that depend on their number."""
        self._current = None
        for g, content, seed in zip(self._growers, dumped, self._seeds(n_trees), strict=True):
            g.restore(content, seed)

    def _seeds(self, n_trees: int) -> list[int]:
        return [int(s >> 1) for s in np.random.SeedSequence([self._seed, n_trees]).generate_state(len(self._splits))]
