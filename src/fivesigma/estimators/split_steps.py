"""The steps of a cascade on one or more splits: train on each, then look at the yields that drive u."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._types import AnyArray, Array, BoolArray, IntArray
from fivesigma.cascade.algorithm import Outcome
from fivesigma.cascade.rounds import ClassWeights
from fivesigma.cut.best_cut import MIN_EFFECTIVE, CutScan, floor_for, scan
from fivesigma.errors import InputError, SmallSampleWarning
from fivesigma.estimators.training_sample import Splits, TrainingSample
from fivesigma.learners.libraries import LIBRARIES, bind_grower
from fivesigma.learners.protocols import Binding, Model
from fivesigma.significance import Utility
from fivesigma.yields import effective_count, signal_and_background


@dataclass(frozen=True)
class TuningEvents:
    """Events on which selections are measured: where u, the stop and the cut are decided. Usually they are held out."""

    signal: BoolArray
    weight: Array  # each class scaled to its full yield
    utility: Utility
    available: float  # effective count of all background
    copies: float  # how often an event stands here: repeated splits repeat events, which makes them no more precise

    @classmethod
    def of(cls, sample: TrainingSample, rows: IntArray, utility: Utility) -> TuningEvents:
        """Gather rows."""
        signal = sample.signal[rows]
        weight = sample.rescaled(rows)
        copies = rows.size / np.unique(rows).size
        return cls(signal, weight, utility, effective_count(weight[~signal]) / copies, copies)

    @property
    def floor(self) -> float:
        """Effective background count that a selection must keep to count."""
        return floor_for(self.available)

    def warn_if_small(self) -> None:
        """Say so if the floor had to be lowered."""
        if self.floor < MIN_EFFECTIVE:
            warnings.warn(
                f"{self.available:.1f} effective background events decide; selections that keep as few as one of them "
                "count",
                SmallSampleWarning,
                stacklevel=3,
            )

    def at(self, selected: BoolArray) -> tuple[float, float, float]:
        """Yields s and b of a selection, and its effective background count."""
        background = self.weight[selected & ~self.signal]
        s = float(self.weight[selected & self.signal].sum())
        return s, float(background.sum()), effective_count(background) / self.copies

    def scan(self, probability: Array, rule: str = "plateau") -> CutScan:
        """Scan all cuts on P(signal)."""
        return scan(probability, self.signal, self.weight, self.utility, rule, min_effective=self.floor * self.copies)


class SplitStep(ABC):
    """What the cascades share."""

    def __init__(
        self, sample: TrainingSample, splits: Splits, held_out: TuningEvents, *, update_cut: str, on_train: bool = False
    ) -> None:
        self.sample, self.splits, self.held_out = sample, splits, held_out
        self._update_cut, self._on_train = update_cut, on_train

    @abstractmethod
    def train(self, weights: ClassWeights) -> None:
        """Train on every split with class weights."""

    @abstractmethod
    def score(self, *, held_out: bool = True) -> Array:
        """P(signal) of the held-out or of the training rows of all splits."""

    @cached_property
    def training(self) -> TuningEvents:
        """Training rows of all splits, one after the other."""
        return TuningEvents.of(self.sample, np.concatenate([rows for rows, _ in self.splits]), self.held_out.utility)

    @property
    def gauge(self) -> TuningEvents:
        """Events that drive u."""
        return self.training if self._on_train else self.held_out

    def measure(self, *, tuned: bool, monitored: bool) -> Outcome:
        """Yields of the present classifiers on the events that drive u."""
        p = self.score(held_out=not self._on_train)
        best = self.gauge.scan(p) if tuned or self._update_cut == "plateau" else None
        threshold = 0.5 if best is None or self._update_cut == "zero" else best.cut
        s, b, effective = self.gauge.at(p >= threshold)
        seen = self.training.at(self.score(held_out=False) >= threshold)[:2] if monitored else None
        return Outcome(s, b, effective, tuned=(best.s, best.b) if best and tuned else None, train=seen)


_PIECE = 1 << 16


class Weigher:
    """Learner weights of some rows at any class weights, in one pass."""

    def __init__(self, base: Array, signal: BoolArray, sums: tuple[float, float], n: int) -> None:
        self._base, self._signal, self._sums, self._n = base, signal, sums, n

    @classmethod
    def of(cls, sample: TrainingSample, rows: IntArray) -> Weigher:
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
    """The step of a grown cascade: a tree for the booster of each split."""

    def __init__(
        self,
        sample: TrainingSample,
        splits: Splits,
        held_out: TuningEvents,
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
        self._growers = [bind_grower(library, params, binding) for binding in self._bindings]
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

    def score(self, *, held_out: bool = True) -> Array:
        """P(signal) of the held-out or of the training rows of all splits, by all trees."""
        return np.concatenate([g.score(held_out=held_out) for g in self._growers])

    def score_held_out_by(self, models: Sequence[Model]) -> Array:
        """P(signal) of the held-out rows of all splits, by some of the trees."""
        parts = []
        for model, binding in zip(models, self._bindings, strict=True):
            if binding.memory == "all":
                parts.append(model.signal_probability(binding.rows(binding.held_out)))
            else:
                parts += [model.signal_probability(X) for X, _ in binding.batches(binding.held_out)()]
        return np.concatenate(parts)

    def models(self, n_trees: int) -> list[Model]:
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
            if found > n_trees or (found < n_trees and LIBRARIES[self._library].always_grows):
                raise InputError(f"a booster has {found} trees after {n_trees} rounds")

    def _seeds(self, n_trees: int) -> list[int]:
        return [int(s >> 1) for s in np.random.SeedSequence([self._seed, n_trees]).generate_state(self._n_boosters)]
