"""Ways to train or to use nets that `benchmarks.studies.higgsml_trials` tries and that the package has not.

They replace parts of the training while a fit runs, so that the package need not have a place for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.model_selection import train_test_split

from fivesigma._types import AnyArray, Array
from fivesigma.learners.net import training
from fivesigma.learners.net.dense import DenseNet, initial_layers
from fivesigma.learners.net.groups import groups_of_weight


class Trial(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier by log-odds; a subclass has `fit` and `decision_function`."""

    def predict_proba(self, X: AnyArray) -> Array:
        """Probabilities of both classes."""
        margin = self.decision_function(X)
        return np.column_stack([expit(-margin), expit(margin)])


class Averaged(Trial):
    """A net whose weights are the mean over the last steps, in which the rate stays above a share of its peak."""

    def __init__(self, estimator: Any = None, share: float = 0.25, floor: float = 0.0) -> None:
        self.estimator = estimator
        self.share = share
        self.floor = floor

    def fit(self, X: AnyArray, y: AnyArray, sample_weight: AnyArray) -> Averaged:
        """Train it."""
        self.classes_ = np.unique(y)
        one_cycle, share, floor = training.one_cycle, self.share, self.floor
        now = {"averages": False, "ends": False}

        def cycle(step: int, n_steps: int, peak: float) -> tuple[float, float]:
            rate, momentum = one_cycle(step, n_steps, peak)
            now["averages"], now["ends"] = step >= (1.0 - share) * n_steps, step == n_steps - 1
            return max(rate, floor * peak) if step > n_steps / 2 else rate, momentum

        class Averaging(training._Adam):
            n_averaged = 0

            def step(self, rate: float, momentum: float, memory: float = 0.999) -> None:
                super().step(rate, momentum, memory)
                if now["averages"]:
                    self.n_averaged += 1
                    if self.n_averaged == 1:
                        self.average = self.parameters.clone()
                    self.average.lerp_(self.parameters, 1.0 / self.n_averaged)
                if now["ends"]:
                    self.parameters.copy_(self.average)

        with patch.object(training, "one_cycle", cycle), patch.object(training, "_Adam", Averaging):
            self.fitted_ = clone(self.estimator).fit(X, y, sample_weight)
        return self

    def decision_function(self, X: AnyArray) -> Array:
        """Log-odds."""
        return np.asarray(self.fitted_.decision_function(X))


class BestEpoch(Trial):
    """A net as it was after the epoch that had the least loss on a tenth of the events, which it does not see."""

    def __init__(self, estimator: Any = None, random_state: Any = None) -> None:
        self.estimator = estimator
        self.random_state = random_state

    def fit(self, X: AnyArray, y: AnyArray, sample_weight: AnyArray) -> BestEpoch:
        """Train it."""
        self.classes_ = np.unique(y)
        seen, held_out = train_test_split(np.arange(y.size), test_size=0.1, stratify=y, random_state=self.random_state)
        net = clone(self.estimator)
        n_batches = int(np.ceil(seen.size / net.batch_size))
        epochs: list[Any] = []

        class Recording(training._Adam):
            def step(self, rate: float, momentum: float, memory: float = 0.999) -> None:
                super().step(rate, momentum, memory)
                if self.n_steps % n_batches == 0:
                    epochs.append(self.parameters.clone().numpy())

        with patch.object(training, "_Adam", Recording):
            self.fitted_ = net.fit(X[seen], y[seen], sample_weight[seen])
        ends = np.cumsum([layer.size for layer in net.weights_])[:-1]
        shapes = [layer.shape for layer in net.weights_]
        losses, sign = [], np.where(y[held_out] == 1, -1.0, 1.0)
        for vector in epochs:
            net.weights_ = [part.reshape(shape) for part, shape in zip(np.split(vector, ends), shapes, strict=True)]
            each = np.logaddexp(0.0, sign * net.decision_function(X[held_out]))
            losses.append(np.average(each, weights=sample_weight[held_out]))
        best = epochs[int(np.argmin(losses))]
        net.weights_ = [part.reshape(shape) for part, shape in zip(np.split(best, ends), shapes, strict=True)]
        print(f"  best epoch {np.argmin(losses) + 1} of {len(losses)}", flush=True)
        return self

    def decision_function(self, X: AnyArray) -> Array:
        """Log-odds."""
        return np.asarray(self.fitted_.decision_function(X))


class Several(Trial):
    """The mean of several nets, each of which sees a share of the columns, drawn for it."""

    def __init__(self, estimator: Any = None, n: int = 3, share: float = 1.0, random_state: Any = None) -> None:
        self.estimator = estimator
        self.n = n
        self.share = share
        self.random_state = random_state

    def fit(self, X: AnyArray, y: AnyArray, sample_weight: AnyArray) -> Several:
        """Train them."""
        self.classes_ = np.unique(y)
        self.fitted_ = []
        for seed in np.random.SeedSequence(self.random_state).spawn(self.n):
            rng, columns = np.random.default_rng(seed), list(self.estimator.columns)
            drawn = rng.choice(columns, round(self.share * len(columns)), replace=False)
            net = clone(self.estimator).set_params(
                columns=sorted(int(c) for c in drawn), random_state=int(rng.integers(2**31))
            )
            self.fitted_.append(net.fit(X, y, sample_weight))
        return self

    def decision_function(self, X: AnyArray) -> Array:
        """Log-odds."""
        return np.asarray(np.mean([net.decision_function(X) for net in self.fitted_], axis=0))


class ByProcess(Trial):
    """A net with an output for each process, whose numbers are the last column and where those of signal come first.

    With `n_groups` groups of like weight stand for the processes. Signal and background are the sums of their
    processes. With `tuned` it is but a start, made with all processes in equal shares, from which the two classes are
    learnt in half the epochs at a third of the rate.
    """

    def __init__(self, estimator: Any = None, *, n_groups: int = 0, tuned: bool = False) -> None:
        self.estimator = estimator
        self.n_groups = n_groups
        self.tuned = tuned

    def fit(self, X: AnyArray, y: AnyArray, sample_weight: AnyArray) -> ByProcess:
        """Train it."""
        self.classes_ = np.unique(y)
        process = X[:, -1].astype(int)
        if self.n_groups:
            groups = groups_of_weight(y, sample_weight, self.n_groups)
            process = y if groups is None else groups
            process = process.max() - process  # signal first
        self.n_signal_ = int(process[y == 1].max()) + 1
        weight = np.asarray(sample_weight, dtype=np.float64)
        if self.tuned:
            weight = weight / np.bincount(process, weight)[process]
        with self._by_process(process):
            self.fitted_ = clone(self.estimator).fit(X, y, weight)
        if self.tuned:
            *hidden, last, _ = self.fitted_.weights_
            head = last[: self.n_signal_].mean(0, keepdims=True) - last[self.n_signal_ :].mean(0, keepdims=True)
            start = [*hidden, head, np.zeros(1, np.float32)]
            net = clone(self.estimator)
            net.set_params(epochs=(net.epochs + 1) // 2, learning_rate=net.learning_rate / 3)
            with patch.object(training, "initial_layers", lambda *_: start):
                self.fitted_ = net.fit(X, y, sample_weight)
        return self

    def decision_function(self, X: AnyArray) -> Array:
        """Log-odds."""
        if self.tuned:
            return np.asarray(self.fitted_.decision_function(X))
        with self._by_process(None):
            return np.asarray(self.fitted_.decision_function(X))

    @contextmanager
    def _by_process(self, process: AnyArray | None) -> Iterator[None]:
        """Let nets have an output for each process."""
        made: list[_ProcessNet] = []

        class Net(_ProcessNet):
            n_signal = self.n_signal_

            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                made.append(self)

        def layers(n_inputs: int, width: int, depth: int, seed: int, _: int) -> list[Any]:
            assert process is not None
            return initial_layers(n_inputs, width, depth, seed, int(process.max()) + 1)

        def train(events: Any, *rest: Any) -> list[Any]:
            assert process is not None
            plain_train(events._replace(target=process.astype(np.float32), group=None), *rest)
            pairs = zip(made[-1]._weights, made[-1]._offsets, strict=True)
            return [layer.numpy().copy() for pair in pairs for layer in pair]

        plain_train = training.train
        with ExitStack() as stack:
            stack.enter_context(patch.object(training, "DenseNet", Net))
            if process is not None:
                stack.enter_context(patch.object(training, "train", train))
                stack.enter_context(patch.object(training, "initial_layers", layers))
            yield


class _ProcessNet(DenseNet):
    """A net with an output for each process; `target` are their numbers."""

    n_signal = 1

    def margin(self, inputs: Any) -> Any:
        """Log-odds of all signals against all backgrounds."""
        out = self._outputs(self._seen(inputs))[0]
        return out[:, : self.n_signal].logsumexp(1) - out[:, self.n_signal :].logsumexp(1)

    def add_gradient(self, inputs: Any, target: Any, weight: Any, to: list[Any], masks: Any = (), _: Any = None) -> Any:
        """Add the gradient of the weighted cross-entropy of all processes, and return the loss."""
        table = self._seen(inputs)
        out, before = self._outputs(table, masks)
        log_p = torch.log_softmax(out, 1)
        by_out = log_p.exp()
        rows = torch.arange(table.shape[0])
        by_out[rows, target.long()] -= 1.0
        by_out.mul_(weight[:, None])
        to[-2].addmm_(by_out.t(), table)
        to[-1].add_(by_out.sum(0))
        by_unit = by_out @ self._weights[-1][:, : self._n_hidden]
        for k, (w, _, (start, end)) in reversed(list(enumerate(self._hidden()))):
            by_layer = by_unit[:, start:end] * masks[k] if masks else by_unit[:, start:end]
            by_before = torch.ops.aten.silu_backward(by_layer, before[k])
            to[2 * k].addmm_(by_before.t(), table[:, end:])
            to[2 * k + 1].add_(by_before.sum(0))
            if k:
                by_unit[:, end:].addmm_(by_before, w[:, : self._n_hidden - end])
        return -(log_p[rows, target.long()] * weight).sum()

    def _outputs(self, table: Any, masks: Any = ()) -> tuple[Any, list[Any]]:
        before = []
        for k, (w, offset, (start, end)) in enumerate(self._hidden()):
            before.append(torch.addmm(offset, table[:, end:], w.t()))
            table[:, start:end] = torch.nn.functional.silu(before[k])
            if masks:
                table[:, start:end].mul_(masks[k])
        return torch.addmm(self._offsets[-1], table, self._weights[-1].t()), before
