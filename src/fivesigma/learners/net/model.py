"""The net itself and its training: torch.nn, autograd, AdamW and one cycle of the learning rate.

Random numbers come from generators of the run alone, and the number of threads is put back: torch's global state is
left as it was.
"""

from __future__ import annotations

import io
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._tools.threads import note_threads, wanted_cores
from fivesigma._types import Array, IntArray
from fivesigma.errors import InputError
from fivesigma.learners.net.inputs import Floats, symmetric_copies

torch = need("torch")

_ROWS_AT_ONCE = 1024  # of a prediction
FOCUS_SHARE, FOCUS_WIDTH = 1 / 3, 0.7  # of the signal that a cut keeps; of the focus, in ln(rank)


class DenseNet(torch.nn.Module):  # type: ignore[name-defined]  # torch is imported when it is needed
    """A net whose layers see the inputs and all layers before them."""

    def __init__(self, n_inputs: int, widths: list[int], dropout: float = 0.0) -> None:
        super().__init__()
        seen = np.cumsum([n_inputs, *widths[:-1]])
        # Weights come later: those that torch draws by default take its global random numbers.
        self.layers = torch.nn.ModuleList(
            torch.nn.utils.skip_init(torch.nn.Linear, int(n), width) for n, width in zip(seen, widths, strict=True)
        )
        self.dropout = dropout

    def forward(self, inputs: Any, generator: Any = None) -> Any:
        """Outputs of events; with a generator, units are left out by chance."""
        seen = inputs
        for layer in self.layers[:-1]:
            units = torch.nn.functional.silu(layer(seen))
            if generator is not None and self.dropout:
                units = units * random_mask(units.shape, self.dropout, generator)
            seen = torch.cat([units, seen], 1)
        return self.layers[-1](seen)

    def initialise(self, generator: Any) -> None:
        """Draw weights that keep the size of what passes a layer; offsets are zero."""
        for before, _ in pairwise(self.layers):
            torch.nn.init.normal_(before.weight, 0.0, math.sqrt(2.0 / before.in_features), generator=generator)
        last = self.layers[-1]
        torch.nn.init.normal_(last.weight, 0.0, math.sqrt(1.0 / last.in_features), generator=generator)
        for layer in self.layers:
            torch.nn.init.zeros_(layer.bias)

    def arrays(self) -> list[Floats]:
        """Weights and offsets of each layer in turn."""
        return [p.detach().cpu().numpy().copy() for layer in self.layers for p in (layer.weight, layer.bias)]

    @classmethod
    def from_arrays(cls, arrays: list[Floats]) -> DenseNet:
        """Make a net in double precision of what `arrays` gave."""
        net = cls(arrays[0].shape[1], [offset.shape[0] for offset in arrays[1::2]])
        net.double()
        with torch.no_grad():
            for p, array in zip(net.parameters(), arrays, strict=True):
                p.copy_(torch.from_numpy(array))
        return net


def random_mask(shape: tuple[int, int], dropout: float, generator: Any) -> Any:
    """Zero for the share of units that is left out, more than one for the others, so that their mean is one.

    Sixteen bits decide on a unit, for a random number each would take a tenth of the time of a step.
    """
    n, below = math.prod(shape), round(dropout * 2**16) - 2**15
    bits = torch.empty((n + 3) // 4, dtype=torch.int64, device=generator.device)
    bits.random_(-(2**63), None, generator=generator)
    kept = bits.view(torch.int16)[:n].view(shape) >= below
    return kept.to(torch.float32).mul_(2**16 / (2**15 - below))


def find_device(device: str) -> str:
    """The device that is meant, if it is there."""
    there = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available, "cpu": lambda: True}
    if device == "auto":
        return next(name for name, has in there.items() if has())
    if not there[device]():
        raise InputError(f"device={device!r} is not available here; use device='auto' or 'cpu'")
    return device


class NetTraining:
    """The training of a net, epoch by epoch.

    `settings` has width, depth, epochs, batch_size, learning_rate, weight_decay, dropout, focus and device of
    a `NetClassifier`. Of the events it takes what `Inputs` makes of them, scalars and vectors, the target, 1 for
    signal, weights of mean one, and the groups that the net learns to tell apart as well, if there are some.
    """

    def __init__(self, settings: Any, seed: int, *events: Floats, group: IntArray | None) -> None:
        device = find_device(settings.device)
        self._order, self._chance = (torch.Generator(device=d).manual_seed(seed) for d in ("cpu", device))
        self._x, self._v, self._y, self._w = (torch.from_numpy(a).to(device) for a in events)
        self._group = None if group is None else torch.from_numpy(group).to(device)
        n_outputs = 1 if group is None else 2 + int(group.max())
        n_inputs = self._x.shape[1] + 3 * self._v.shape[1]
        self._net = DenseNet(n_inputs, [settings.width] * settings.depth + [n_outputs], settings.dropout)
        self._net.initialise(self._order)
        self._net.to(device)
        self._n_batches = math.ceil(self._y.shape[0] / settings.batch_size)
        self._focus, self._focus_from = settings.focus, math.ceil(settings.epochs * 2 / 3)
        rate, steps = settings.learning_rate, max(2, settings.epochs * self._n_batches)
        options = {"lr": rate, "weight_decay": settings.weight_decay, "fused": device == "cpu"}
        self._optimizer = torch.optim.AdamW(self._net.parameters(), **options)
        self._cycle = torch.optim.lr_scheduler.OneCycleLR(self._optimizer, rate, total_steps=steps)
        self.losses: list[float] = []

    def run_epoch(self) -> float:
        """Pass over the events once; return the mean loss."""
        loss_of, cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits, torch.nn.functional.cross_entropy
        total = torch.zeros((), device=self._y.device)
        focused = self._focus and len(self.losses) >= self._focus_from
        weight = self._w * self.focus_factors(self._focus) if focused else self._w
        order = torch.randperm(self._y.shape[0], generator=self._order).to(self._y.device)
        with torch.enable_grad():
            for rows in torch.tensor_split(order, self._n_batches):
                inputs = self._x[rows]
                if self._v.shape[1]:
                    inputs = torch.cat([inputs, _randomly_turned(self._v[rows], self._chance)], 1)
                outputs = self._net(inputs, self._chance)
                loss = loss_of(outputs[:, 0], self._y[rows], weight[rows])
                total += loss.detach()
                if self._group is not None:
                    by_event = cross_entropy(outputs[:, 1:], self._group[rows], reduction="none")
                    loss = loss + (weight[rows] * by_event).mean()
                self._optimizer.zero_grad()
                loss.backward()
                self._optimizer.step()
                self._cycle.step()
        self.losses.append(float(total) / self._n_batches)
        return self.losses[-1]

    @torch.no_grad()
    def focus_factors(self, height: float) -> Any:
        """Factors of the weights that are largest where a cut would be, and keep the sum of each class.

        With r the rank of an event from the top as a share of all events, and r0 the share that scores as high as the
        best third of the signal, they are 1 + height exp(-(ln(r / r0))^2 / (2 FOCUS_WIDTH^2)) before they are scaled.
        """
        inputs = torch.cat([self._x, self._v.flatten(1)], 1)
        score = torch.cat([self._net(part)[:, 0] for part in inputs.split(_ROWS_AT_ONCE)])
        order = torch.argsort(score, descending=True)
        rank = torch.empty_like(score)
        rank[order] = torch.arange(1, score.numel() + 1, dtype=score.dtype, device=score.device)
        signal = torch.cumsum((self._w * self._y)[order], 0)
        at_cut = 1 + torch.searchsorted(signal, FOCUS_SHARE * signal[-1:])
        factors = 1 + height * torch.exp(-((rank / at_cut).log() ** 2) / (2 * FOCUS_WIDTH**2))
        for side in (self._y, 1 - self._y):
            factors = torch.where(
                side > 0, factors * (self._w * side).sum() / (self._w * side * factors).sum(), factors
            )
        return factors

    def weights(self) -> list[Floats]:
        """Weights and offsets, layer by layer; the outputs of the groups have done their work."""
        arrays = self._net.arrays()
        return [*arrays[:-2], arrays[-2][:1], arrays[-1][:1]]

    def dump(self) -> bytes:
        """Return all that the next epochs depend on."""
        parts = (self._net, self._optimizer, self._cycle)
        state = [[p.state_dict() for p in parts], [g.get_state() for g in (self._order, self._chance)], self.losses]
        content = io.BytesIO()
        torch.save(state, content)
        return content.getvalue()

    def restore(self, dumped: bytes) -> None:
        """Go on from what `dump` returned."""
        states, generators, losses = torch.load(io.BytesIO(dumped), weights_only=True)
        for part, state in zip((self._net, self._optimizer, self._cycle), states, strict=True):
            part.load_state_dict(state)
        for generator, state in zip((self._order, self._chance), generators, strict=True):
            generator.set_state(state)
        self.losses = [float(loss) for loss in losses]


def net_log_odds(weights: list[Floats], scalars: Floats, vectors: Floats, n_augment: int) -> Array:
    """Log-odds of events, the mean over `n_augment` symmetric copies of each.

    In double precision, for in single the score of an event would depend on which others are scored with it; on the
    CPU, which has it everywhere.
    """
    net = DenseNet.from_arrays(weights)
    turns = _turns(n_augment) if vectors.shape[1] else [None]
    out = np.empty(scalars.shape[0])
    with torch.inference_mode():
        for start in range(0, out.size, _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            x, v = (torch.from_numpy(a[rows].astype(np.float64)) for a in (scalars, vectors))
            copies = [net(x if turn is None else torch.cat([x, _turned(v, *turn)], 1)) for turn in turns]
            out[rows] = np.mean([copy[:, 0].numpy() for copy in copies], axis=0)
    return out


def _turns(n_augment: int) -> list[tuple[Any, ...]]:
    return [tuple(torch.tensor([t], dtype=torch.float64) for t in turn) for turn in symmetric_copies(n_augment)]


def _randomly_turned(vectors: Any, generator: Any) -> Any:
    """Each event rotated about the beam, mirrored and flipped by chance."""
    n, device = vectors.shape[0], vectors.device
    angle = torch.rand(n, generator=generator, device=device) * (2.0 * math.pi)
    signs = torch.randint(2, (2, n), generator=generator, device=device, dtype=torch.float32) * 2.0 - 1.0
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
    """Keep torch within some threads, and refuse a forked process, in which they are gone.

    torch gives new threads what was set last in any of them, so with several nets at once the first one in says what
    the last one out puts back.
    """
    global _inside, _before  # noqa: PLW0603 - torch's setting is as global
    threads = note_threads(wanted_cores(n_jobs))
    with _lock:
        if _inside == 0:
            _before = torch.get_num_threads()
        _inside += 1
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            torch.set_num_threads(_before)
