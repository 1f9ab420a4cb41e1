"""A densely connected net, its symmetries and its training.

Every layer sees the inputs and the outputs of all layers before it. Nothing here touches torch's global state: seeds
are those of generators, and the number of threads is put back.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs

from fivesigma._extras import need
from fivesigma._types import Array
from fivesigma.learners.inputs import Floats

torch = need("torch")

_ROWS_AT_ONCE = 4096  # of a prediction: enough for full speed, few enough for the caches
_SYMMETRIES = 4  # mirrored or not, flipped or not


@dataclass(frozen=True)
class Recipe:
    """How a net is made and trained; see `NetClassifier`."""

    width: int
    depth: int
    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    dropout: float


class TrainingEvents(NamedTuple):
    """What a net is trained on.

    Attributes
    ----------
    scalars, vectors : arrays of shape (n_events, n_scalars) and (n_events, n_momenta, 3)
        See `Inputs`.
    target, weight : arrays of shape (n_events,)
        1 for signal; weights of mean one.
    """

    scalars: Floats
    vectors: Floats
    target: Floats
    weight: Floats


def train(events: TrainingEvents, recipe: Recipe, seed: int, report: Callable[[float], None]) -> list[Floats]:
    """Train a net and return its weights, layer by layer; `report` is called with the mean loss of each epoch."""
    generator = torch.Generator(device="cpu").manual_seed(seed)
    x, v, y, w = (torch.from_numpy(a) for a in events)
    n_inputs = x.shape[1] + 3 * v.shape[1]
    layers = _initial(n_inputs, recipe.width, recipe.depth, seed)
    n_batches = max(1, math.ceil(y.shape[0] / recipe.batch_size))
    optimizer = torch.optim.AdamW(layers, lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=recipe.learning_rate, total_steps=recipe.epochs * n_batches
    )
    with torch.enable_grad():
        for _ in range(recipe.epochs):
            order = torch.randperm(y.shape[0], generator=generator, device="cpu")
            total = 0.0
            for rows in torch.tensor_split(order, n_batches):
                inputs = x[rows]
                if v.shape[1]:
                    inputs = torch.cat([inputs, _randomly_turned(v[rows], generator)], 1)
                log_odds = _forward(layers, inputs, recipe.dropout, generator)
                loss = torch.nn.functional.binary_cross_entropy_with_logits(log_odds, y[rows], weight=w[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                total += loss.item()
            report(total / n_batches)
    return [layer.detach().numpy() for layer in layers]


def log_odds(weights: list[Floats], scalars: Floats, vectors: Floats, n_augment: int) -> Array:
    """Log-odds of events, the mean over `n_augment` symmetric copies of each.

    In double precision, for in single the score of an event would depend on which others are scored with it.
    """
    layers = [torch.from_numpy(layer.astype(np.float64)) for layer in weights]
    turns = _turns(n_augment) if vectors.shape[1] else [None]
    out = np.empty(scalars.shape[0])
    with torch.no_grad():
        for start in range(0, out.size, _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            x, v = (torch.from_numpy(a[rows].astype(np.float64)) for a in (scalars, vectors))
            copies = [_forward(layers, x if turn is None else torch.cat([x, _turned(v, *turn)], 1)) for turn in turns]
            out[rows] = np.mean([copy.numpy() for copy in copies], axis=0)
    return out


def _initial(n_inputs: int, width: int, depth: int, seed: int) -> list[Any]:
    """Random weights and zero offsets of all layers, one after the other."""
    rng = np.random.default_rng(seed)
    sizes = [(width, n_inputs + k * width, math.sqrt(2.0)) for k in range(depth)]
    sizes.append((1, n_inputs + depth * width, 1.0))
    layers = []
    for n_out, n_in, gain in sizes:
        layers.append(rng.normal(0.0, gain / math.sqrt(n_in), (n_out, n_in)).astype(np.float32))
        layers.append(np.zeros(n_out, dtype=np.float32))
    return [torch.from_numpy(layer).requires_grad_() for layer in layers]


def _forward(layers: list[Any], inputs: Any, dropout: float = 0.0, generator: Any = None) -> Any:
    linear, silu = torch.nn.functional.linear, torch.nn.functional.silu
    seen = inputs
    for weight, offset in zip(layers[:-2:2], layers[1:-2:2], strict=True):
        out = silu(linear(seen, weight, offset))
        if dropout:
            out = out * torch.rand(out.shape, generator=generator, device="cpu").ge(dropout) / (1.0 - dropout)
        seen = torch.cat([out, seen], 1)
    return linear(seen, layers[-2], layers[-1])[:, 0]


def _turns(n_augment: int) -> list[tuple[Any, ...]]:
    """Rotations by equal angles, each mirrored and flipped or not: a group, so that their mean is symmetric."""
    identity = (0.0, 1.0, 1.0)
    angles = [2.0 * math.pi * k * _SYMMETRIES / n_augment for k in range(n_augment // _SYMMETRIES)]
    group = [(angle, mirror, flip) for angle in angles for mirror in (1.0, -1.0) for flip in (1.0, -1.0)]
    return [tuple(torch.tensor([t], dtype=torch.float64) for t in turn) for turn in group or [identity]]


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
    torch.set_num_threads(effective_n_jobs(n_jobs))
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            torch.set_num_threads(_before)
