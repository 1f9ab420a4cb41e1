"""How boosters grow side by side, one for each split, while u follows their yields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.cascade.rounds import ClassWeights
from fivesigma.errors import InputError
from fivesigma.estimators.gauge import Gauge
from fivesigma.estimators.sample import Sample
from fivesigma.estimators.step import Splits, SplitStep
from fivesigma.learners import Binding, StagedModel, grower
from fivesigma.yields import signal_and_background

_PIECE = 1 << 16


class Weigher:
    """Learner weights of some rows at any class weights, in one pass.

    Parameters
    ----------
    base : array
        Weights of the rows at class weights of one.
    signal : bool array
    sums : (float, float)
        Of the base weights of signal and background.
    n : int
        Rows that are summed: those given, or those of all workers.
    """

    def __init__(self, base: Array, signal: BoolArray, sums: tuple[float, float], n: int) -> None:
        self._base, self._signal, self._sums, self._n = base, signal, sums, n

    @classmethod
    def of(cls, sample: Sample, rows: IntArray) -> Weigher:
        """Weigh some rows of a sample."""
        signal = sample.signal[rows]
        base = sample.learner_weights(rows, ClassWeights(1.0, 1.0))
        return cls(base, signal, signal_and_background(base, signal), base.size)

    def __call__(self, weights: ClassWeights) -> AnyArray:
        """Weights of mean one, float32."""
        mean = (weights.signal * self._sums[0] + weights.background * self._sums[1]) / self._n
        if not 0 < mean < np.inf:
            raise InputError(
                f"learner weights at class weights {weights.signal:g} and {weights.background:g} have mean {mean:g}; "
                "no learner can use them"
            )
        out = np.empty(self._base.size, dtype=np.float32)  # as libraries hold them, and no larger array on the way
        for start in range(0, out.size, _PIECE):
            part = slice(start, start + _PIECE)
            factors = np.where(self._signal[part], weights.signal / mean, weights.background / mean)
            out[part] = self._base[part] * factors
        return out


class Growth(SplitStep):
    """The step of a grown cascade: a tree for the booster of each split.

    Parameters
    ----------
    sample, splits, held_out, update_cut, on_train
        As in `SplitStep`.
    library, params, seed, threads, memory, cache, bins
        Of the boosters.
    """

    def __init__(
        self,
        sample: Sample,
        splits: Splits,
        held_out: Gauge,
        *,
        library: str,
        params: dict[str, Any],
        seed: int,
        threads: int,
        update_cut: str,
        on_train: bool,
        memory: str = "all",
        cache: Path | None = None,
        bins: AnyArray | None = None,
    ) -> None:
        super().__init__(sample, splits, held_out, update_cut=update_cut, on_train=on_train)
        self._library, self._seed = library, seed
        target = sample.target if memory == "all" else sample.signal
        self._n_boosters = len(splits)
        folders = [None if cache is None else cache / f"split-{k}" for k in range(len(splits))]
        self._bindings = [
            Binding(sample.X, target, train, rows, k_seed, threads, memory, folder, bins)
            for k_seed, (train, rows), folder in zip(self._seeds(0), splits, folders, strict=True)
        ]
        self._growers = [grower(library, params, binding) for binding in self._bindings]
        self._weigh = [self._weigher(train) for train, _ in splits]
        self._current: ClassWeights | None = None

    def _weigher(self, rows: IntArray) -> Weigher:
        return Weigher.of(self.sample, rows)

    def forget(self) -> None:
        """Let go of the sample, of which the boosters have what they need; what is measured stays."""
        del self.sample, self.splits
        self._bindings = [replace(binding, train=binding.train[:0]) for binding in self._bindings]

    def train(self, weights: ClassWeights) -> None:
        """Grow a tree on every split."""
        if weights != self._current:
            for g, weigh in zip(self._growers, self._weigh, strict=True):
                g.set_weights(weigh(weights))
            self._current = weights
        for g in self._growers:
            g.grow()

    def best_significance(self) -> float:
        """Held-out significance at the best cut, whatever drives u: what early stopping looks at."""
        return self.held_out.scan(self.score_held_out()).significance

    def score_held_out(self) -> Array:
        """P(signal) of the held-out rows of all splits, by all trees."""
        return np.concatenate([g.score_held_out() for g in self._growers])

    def score_train(self) -> Array:
        """P(signal) of the training rows of all splits, by all trees."""
        return np.concatenate([g.score_train() for g in self._growers])

    def score_held_out_by(self, models: Sequence[StagedModel]) -> Array:
        """P(signal) of the held-out rows of all splits, by some of the trees."""
        parts = []
        for model, binding in zip(models, self._bindings, strict=True):
            if binding.memory == "all":
                parts.append(model.signal_probability(binding.rows(binding.held_out)))
            else:
                parts += [model.signal_probability(X) for X, _ in binding.batches(binding.held_out)()]
        return np.concatenate(parts)

    def models(self, n_trees: int) -> list[StagedModel]:
        """Return the first trees of each booster."""
        return [g.model(n_trees) for g in self._growers]

    def dump(self) -> list[bytes]:
        """Return the trees of all boosters."""
        return [g.dump() for g in self._growers]

    def restore(self, dumped: list[bytes], n_trees: int) -> None:
        """Resume from dumped trees, with seeds that depend on the number of rounds."""
        self._current = None
        for g, content, seed in zip(self._growers, dumped, self._seeds(n_trees), strict=True):
            found = g.restore(content, seed)
            # XGBoost grows a tree in each round; LightGBM leaves out those without a split.
            if found > n_trees or (found < n_trees and self._library == "xgboost"):
                raise InputError(f"a booster has {found} trees after {n_trees} rounds")

    def _seeds(self, n_trees: int) -> list[int]:
        return [int(s >> 1) for s in np.random.SeedSequence([self._seed, n_trees]).generate_state(self._n_boosters)]
