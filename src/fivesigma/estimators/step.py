"""The step of a cascade on one or more splits: train on each, then look at the yields that drive u."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.cascade.algorithm import Outcome
from fivesigma.cascade.rounds import ClassWeights
from fivesigma.estimators.gauge import Gauge
from fivesigma.estimators.sample import Sample

Splits = list[tuple[IntArray, IntArray]]
"""Rows to train on and rows to hold out, of each split."""


class SplitStep(ABC):
    """What the cascades share.

    Parameters
    ----------
    sample : Sample
    splits : list of (train, held-out) rows
    held_out : Gauge
        Held-out rows of all splits, one after the other.
    update_cut : {"zero", "plateau"}
        Cut at which the yields are formed.
    on_train : bool
        Whether the training events drive u.
    """

    def __init__(
        self, sample: Sample, splits: Splits, held_out: Gauge, *, update_cut: str, on_train: bool = False
    ) -> None:
        self.sample, self.splits, self.held_out = sample, splits, held_out
        self._update_cut, self._on_train = update_cut, on_train

    @abstractmethod
    def train(self, weights: ClassWeights) -> None:
        """Train on every split with class weights."""

    @abstractmethod
    def score_held_out(self) -> Array:
        """P(signal) of the held-out rows of all splits."""

    @abstractmethod
    def score_train(self) -> Array:
        """P(signal) of the training rows of all splits."""

    @cached_property
    def training(self) -> Gauge:
        """Training rows of all splits, one after the other."""
        return Gauge.of(self.sample, np.concatenate([rows for rows, _ in self.splits]), self.held_out.utility)

    @property
    def gauge(self) -> Gauge:
        """Events that drive u."""
        return self.training if self._on_train else self.held_out

    def measure(self, *, tuned: bool, monitored: bool) -> Outcome:
        """Yields of the present classifiers on the events that drive u."""
        p = self.score_train() if self._on_train else self.score_held_out()
        best = self.gauge.scan(p) if tuned or self._update_cut == "plateau" else None
        threshold = 0.5 if best is None or self._update_cut == "zero" else best.cut
        s, b, effective = self.gauge.at(p >= threshold)
        seen = self.training.at(self.score_train() >= threshold)[:2] if monitored else None
        return Outcome(s, b, effective, tuned=(best.s, best.b) if best and tuned else None, train=seen)
