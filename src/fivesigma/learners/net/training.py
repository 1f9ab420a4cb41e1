"""The training of a net, and the symmetries of its events.

Nothing here touches torch's global state: seeds
are those of generators, and the number of threads is put back.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._tools.threads import wanted_cores
from fivesigma._types import Array, IntArray
from fivesigma.learners.net.dense import DenseNet, initial_layers, random_mask
from fivesigma.learners.net.inputs import Floats
from fivesigma.learners.net.settings import NetSettings, symmetric_copies

torch = need("torch")

_ROWS_AT_ONCE = 1024  # enough for full speed, few enough for the caches


class TrainingEvents(NamedTuple):
    """What a net is trained on.

    Attributes
    ----------
    scalars, vectors : arrays of shape (n_events, n_scalars) and (n_events, n_momenta, 3)
        See `Inputs`.
    target, weight : arrays of shape (n_events,)
        1 for signal; weights of mean one.
    group : int array of shape (n_events,), optional
        Groups that the net learns to tell apart as well.
    """

    scalars: Floats
    vectors: Floats
    target: Floats
    weight: Floats
    group: IntArray | None = None


def train(events: TrainingEvents, settings: NetSettings, seed: int, report: Callable[[float], None]) -> list[Floats]:
    """Train a net and return its weights, layer by layer; `report` is called with the mean loss of each epoch."""
    generator = torch.Generator(device="cpu").manual_seed(seed)
    rng = np.random.Generator(np.random.SFC64(seed))  # of dropout
    x, v, y, w = (torch.from_numpy(a) for a in events[:4])
    group = None if events.group is None else torch.from_numpy(events.group)
    n_outputs = 1 if events.group is None else 2 + int(events.group.max())
    initial = initial_layers(x.shape[1] + 3 * v.shape[1], settings.width, settings.depth, seed, n_outputs)
    sizes, shapes = [layer.size for layer in initial], [layer.shape for layer in initial]
    adam = _Adam(np.concatenate([layer.ravel() for layer in initial]), settings.weight_decay)
    layers, gradient = (_layers(vector, sizes, shapes) for vector in (adam.parameters, adam.gradient))
    net = DenseNet(layers, _ROWS_AT_ONCE)
    n_batches = math.ceil(y.shape[0] / settings.batch_size)
    n_steps = settings.epochs * n_batches
    with torch.no_grad():
        for _ in range(settings.epochs):
            order = torch.randperm(y.shape[0], generator=generator, device="cpu")
            total = 0.0
            for batch in torch.tensor_split(order, n_batches):
                adam.gradient.zero_()
                for rows in batch.split(_ROWS_AT_ONCE):
                    inputs = x[rows]
                    if v.shape[1]:
                        inputs = torch.cat([inputs, _randomly_turned(v[rows], generator)], 1)
                    masks = _masks(rows.shape[0], settings, rng)
                    weight = w[rows] / batch.shape[0]
                    groups = None if group is None else group[rows]
                    total += net.add_gradient(inputs, y[rows], weight, gradient, masks, groups).item()
                adam.step(*one_cycle(adam.n_steps, n_steps, settings.learning_rate))
            report(total / n_batches)
    layers[-2:] = [layer[:1] for layer in layers[-2:]]  # the outputs of the groups have done their work
    return [layer.numpy().copy() for layer in layers]


def _masks(n_rows: int, settings: NetSettings, rng: np.random.Generator) -> list[Any]:
    """Factors of the units of each layer: those that a step leaves out have none."""
    if not settings.dropout:
        return []
    return [random_mask((n_rows, settings.width), settings.dropout, rng) for _ in range(settings.depth)]


def one_cycle(step: int, n_steps: int, peak: float) -> tuple[float, float]:
    """Learning rate and momentum at a step: the rate rises to its peak and falls to nothing, momentum the other way."""
    last, top = n_steps - 1, 0.3 * n_steps - 1
    rising = step <= top
    share = (step + 1) / (top + 1) if rising else (step - top) / max(last - top, 1.0)
    share = 0.5 - 0.5 * math.cos(math.pi * share)  # from 0 to 1
    if rising:
        return peak * (0.04 + 0.96 * share), 0.95 - 0.1 * share
    return peak * (1.0 - share), 0.85 + 0.1 * share


class _Adam:
    """Adam with decoupled weight decay on one vector; torch's own imports its compiler first, for seconds."""

    def __init__(self, start: Floats, weight_decay: float) -> None:
        self.parameters, self.gradient = torch.from_numpy(start), torch.from_numpy(np.zeros_like(start))
        self.n_steps = 0
        self._decay = weight_decay
        self._mean, self._square = (torch.from_numpy(np.zeros_like(start)) for _ in range(2))
        self._left = 1.0  # how much of the mean of gradients is still the zero that it started from

    def step(self, rate: float, momentum: float, memory: float = 0.999) -> None:
        """Go one step along the gradient."""
        self.n_steps += 1
        self._left *= momentum
        self._mean.lerp_(self.gradient, 1.0 - momentum)
        self._square.mul_(memory).addcmul_(self.gradient, self.gradient, value=1.0 - memory)
        size = (self._square / (1.0 - memory**self.n_steps)).sqrt_().add_(1e-8)
        self.parameters.mul_(1.0 - rate * self._decay)
        self.parameters.addcdiv_(self._mean, size, value=-rate / (1.0 - self._left))


def net_log_odds(weights: list[Floats], scalars: Floats, vectors: Floats, n_augment: int) -> Array:
    """Log-odds of events, the mean over `n_augment` symmetric copies of each.

    In double precision, for in single the score of an event would depend on which others are scored with it.
    """
    net = DenseNet([torch.from_numpy(layer.astype(np.float64)) for layer in weights], _ROWS_AT_ONCE)
    turns = _turns(n_augment) if vectors.shape[1] else [None]
    out = np.empty(scalars.shape[0])
    with torch.no_grad():
        for start in range(0, out.size, _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            x, v = (torch.from_numpy(a[rows].astype(np.float64)) for a in (scalars, vectors))
            copies = [net.margin(x if turn is None else torch.cat([x, _turned(v, *turn)], 1)) for turn in turns]
            out[rows] = np.mean([copy.numpy() for copy in copies], axis=0)
    return out


def _layers(parameters: Any, sizes: list[int], shapes: list[Any]) -> list[Any]:
    """Views of one vector."""
    return [part.view(shape) for part, shape in zip(parameters.split(sizes), shapes, strict=True)]


def _turns(n_augment: int) -> list[tuple[Any, ...]]:
    """Symmetric copies as numbers of torch."""
    return [tuple(torch.tensor([t], dtype=torch.float64) for t in turn) for turn in symmetric_copies(n_augment)]


def _randomly_turned(vectors: Any, generator: Any) -> Any:
    """Each event rotated about the beam, mirrored and flipped by chance."""
    n = vectors.shape[0]
    angle = torch.rand(n, generator=generator, device="cpu", dtype=torch.float32) * (2.0 * math.pi)
    signs = torch.randint(2, (2, n), generator=generator, device="cpu", dtype=torch.float32) * 2.0 - 1.0
    return _turned(vectors, angle, signs[0], signs[1])


def _turned(vectors: Any, angle: Any, mirror: Any, flip: Any) -> Any:
    """Vectors mirrored in y, rotated in the transverse plane and flipped in z, flat."""
    cos, sin = torch.cos(angle)[:, None], torch.sin(angle)[:, None]
    x, y = vectors[:, :, 0], vectors[:, :, 1] * mirror[:, None]
    return torch.cat([cos * x - sin * y, sin * x + cos * y, vectors[:, :, 2] * flip[:, None]], 1)


_lock = threading.Lock()
_inside = 0
_before = 0


@contextmanager
def limited_threads(n_jobs: int | None) -> Iterator[None]:
    """Keep torch within some threads; None leaves it as it is.

    torch gives new threads what was set last in any of them, so with several nets at once the first one in says what
    the last one out puts back.
    """
    global _inside, _before  # noqa: PLW0603 - torch's setting is as global
    if n_jobs is None:
        yield
        return
    with _lock:
        if _inside == 0:
            _before = torch.get_num_threads()
        _inside += 1
    torch.set_num_threads(wanted_cores(n_jobs))
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            torch.set_num_threads(_before)
