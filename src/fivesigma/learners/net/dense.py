"""A densely connected net: its margin, and the gradient of its loss.

Inputs and outputs of all layers lie side by side in one table, the last layer first, so that what a layer sees is a
slice of it. torch's own gradient would join and copy these slices in every layer, which takes as long as all products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma.learners.net.inputs import Floats

torch = need("torch")
_silu, _silu_backward = torch.ops.aten.silu.out, torch.ops.aten.silu_backward

_LEVELS = 2**16  # of a random number that decides whether a unit is left out


class DenseNet:
    """A net whose layers see the inputs and all layers before them.

    Parameters
    ----------
    layers : list of tensors
        Weights and offsets of each layer in turn.
    n_rows : int
        The most events at once.
    """

    def __init__(self, layers: list[Any], n_rows: int) -> None:
        self._weights, self._offsets = layers[::2], layers[1::2]
        widths = [offset.shape[0] for offset in self._offsets[:-1]]
        self._n_hidden = sum(widths)
        # What layer k sees begins here, and its own output ends here.
        self._starts = [self._n_hidden - done for done in accumulate(widths, initial=0)]
        self._table = torch.empty((n_rows, self._weights[-1].shape[1]), dtype=self._weights[0].dtype)

    def margin(self, inputs: Any) -> Any:
        """Log-odds of events."""
        table = self._seen(inputs)
        for weight, offset, (start, end) in self._hidden():
            _silu(torch.addmm(offset, table[:, end:], weight.t()), out=table[:, start:end])
        return torch.addmv(self._offsets[-1][:1], table, self._weights[-1][0])

    def add_gradient(  # noqa: PLR0917 - the events, then what becomes of them
        self, inputs: Any, target: Any, weight: Any, to: list[Any], masks: Sequence[Any] = (), group: Any = None
    ) -> Any:
        """Add the gradient of the weighted cross-entropy to `to`, which is like `layers`, and return the loss.

        Both are sums over events. `masks` are factors of the units of each layer, if there are any. The outputs beside
        the first, if there are any, tell groups apart: the gradient has their cross-entropy as well, the loss has not.
        """
        table, before = self._seen(inputs), []
        for k, (w, offset, (start, end)) in enumerate(self._hidden()):
            before.append(torch.addmm(offset, table[:, end:], w.t()))
            _silu(before[k], out=table[:, start:end])
            if masks:
                table[:, start:end].mul_(masks[k])
        outputs = torch.addmm(self._offsets[-1], table, self._weights[-1].t())
        by_output = torch.empty_like(outputs)
        by_output[:, 0] = torch.sigmoid(outputs[:, 0]).sub_(target)
        if group is not None:
            by_output[:, 1:] = torch.softmax(outputs[:, 1:], 1)
            by_output[torch.arange(group.shape[0]), 1 + group] -= 1.0
        by_output.mul_(weight[:, None])
        to[-2].addmm_(by_output.t(), table)
        to[-1].add_(by_output.sum(0))
        by_unit = by_output @ self._weights[-1][:, : self._n_hidden]
        for k, (w, _, (start, end)) in reversed(list(enumerate(self._hidden()))):
            by_out = by_unit[:, start:end]
            by_before = _silu_backward(by_out * masks[k] if masks else by_out, before[k])
            to[2 * k].addmm_(by_before.t(), table[:, end:])
            to[2 * k + 1].add_(by_before.sum(0))
            if k:
                by_unit[:, end:].addmm_(by_before, w[:, : self._n_hidden - end])
        entropy = torch.nn.functional.binary_cross_entropy_with_logits
        return entropy(outputs[:, 0], target, weight=weight, reduction="sum")

    def _seen(self, inputs: Any) -> Any:
        """Rows of the table that hold these inputs."""
        table = self._table[: inputs.shape[0]]
        table[:, self._n_hidden :] = inputs
        return table

    def _hidden(self) -> list[tuple[Any, Any, tuple[int, int]]]:
        """Weight, offset and slice of output of each layer but the last."""
        slices = zip(self._starts[1:], self._starts[:-1], strict=True)
        return list(zip(self._weights[:-1], self._offsets[:-1], slices, strict=True))


def initial_layers(n_inputs: int, width: int, depth: int, seed: int, n_outputs: int = 1) -> list[Floats]:
    """Random weights and zero offsets of all layers, one after the other."""
    rng = np.random.default_rng(seed)
    sizes = [(width, n_inputs + k * width, math.sqrt(2.0)) for k in range(depth)]
    sizes.append((n_outputs, n_inputs + depth * width, 1.0))
    layers = []
    for n_out, n_in, gain in sizes:
        layers.append(rng.normal(0.0, gain / math.sqrt(n_in), (n_out, n_in)).astype(np.float32))
        layers.append(np.zeros(n_out, dtype=np.float32))
    return layers


def random_mask(shape: tuple[int, int], dropout: float, rng: np.random.Generator) -> Any:
    """Zero for the share of units that is left out, more than one for the others, so that their mean is one.

    Sixteen bits decide on a unit: a random float for each would take a tenth of the time of a step.
    """
    n, below = math.prod(shape), round(dropout * _LEVELS)
    bits = rng.integers(0, 2**64, math.ceil(n / 4), dtype=np.uint64).view(np.uint16)[:n]
    scale = np.float32(_LEVELS / (_LEVELS - below))
    return torch.from_numpy(np.multiply(bits >= below, scale, dtype=np.float32).reshape(shape))
