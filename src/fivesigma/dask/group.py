"""Workers that train one model together, through XGBoost's collective operations, and what they measure together."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from fivesigma._tools.extras import need
from fivesigma._types import AnyArray, Array, BoolArray
from fivesigma.cut.best_cut import CutScan, scan_binned
from fivesigma.cut.binned import SAMPLE, BinnedRanking, BinSums, Parts, in_parts, sample_scores
from fivesigma.cut.ranking import effective_of
from fivesigma.errors import FivesigmaError, InputError, shortened
from fivesigma.estimators.split_steps import TuningEvents
from fivesigma.scored.scored_files import Part
from fivesigma.significance import Utility

T = TypeVar("T")


class PeerError(FivesigmaError):
    """Raised by a worker because of what went wrong on another, which the message names."""


class Group:
    """The workers of this thread's communicator; without one, a group of one.

    All members must call its methods in the same order. The communicator belongs to the thread that joined it.

    Parameters
    ----------
    name : str
        What this worker is called in messages.
    """

    def __init__(self, name: str) -> None:
        self._collective = need("xgboost.collective")
        self.rank, self.size = int(self._collective.get_rank()), int(self._collective.get_world_size())
        self.names: list[str] = [name]
        self.names = self.gather(name)

    @property
    def leads(self) -> bool:
        """Whether this is the worker that speaks for all."""
        return self.rank == 0

    def sum(self, *values: Any) -> Array:
        """Sums over the workers of some numbers, or of an array."""
        return self._reduced(values, "SUM")

    def least(self, *values: Any) -> Array:
        """Least values over the workers."""
        return self._reduced(values, "MIN")

    def most(self, *values: Any) -> Array:
        """Largest values over the workers."""
        return self._reduced(values, "MAX")

    def _reduced(self, values: tuple[Any, ...], kind: str) -> Array:
        own = np.asarray(values[0] if len(values) == 1 else values, dtype=np.float64)
        if self.size == 1 or own.size == 0:
            return own
        flat = np.ascontiguousarray(own).reshape(-1)
        return np.asarray(self._collective.allreduce(flat, self._collective.Op[kind])).reshape(own.shape)

    def gather(self, value: T) -> list[T]:
        """The values of all workers, by rank."""
        if self.size == 1:
            return [value]
        own = (value,)  # None alone cannot be sent
        return [self._collective.broadcast(own if at == self.rank else None, at)[0] for at in range(self.size)]

    def agree(self, work: Callable[[], T]) -> T:
        """Do some work that needs no other worker; if it fails on one, it fails on all, with the cause.

        It is done in a thread of its own, which is no member of the group: there XGBoost asks nobody, and a worker that
        fails leaves no other waiting in the middle of a collective operation.
        """
        done: list[T] = []
        failed: list[BaseException] = []

        def outside() -> None:
            try:
                done.append(work())
            except BaseException as err:
                failed.append(err)

        thread = threading.Thread(target=contextvars.copy_context().run, args=(outside,))
        thread.start()
        thread.join()
        if self.sum(float(bool(failed))) == 0:
            return done[0]
        sentences = self.gather(said_of(failed[0]) if failed else "")
        if failed:
            raise failed[0]
        at = next(k for k, sentence in enumerate(sentences) if sentence)
        raise PeerError(f"{self.names[at]}: {sentences[at]}")


def said_of(err: BaseException) -> str:
    """What an error says, in one line; the name of its type unless it is a sentence of ours."""
    lines = str(err).strip().splitlines()
    text = shortened(lines[0], 300) if lines else ""
    return text if isinstance(err, InputError) and text else f"{type(err).__name__}: {text}".rstrip(": ")


class GroupRanking(BinnedRanking):
    """A ranking of events that are spread over the workers of a group; each has the same sums in the end."""

    def __init__(self, parts: Parts, group: Group) -> None:
        self._group = group
        super().__init__(parts)

    def _sample(self) -> tuple[AnyArray, int]:
        scores, n = sample_scores(self.parts) if len(self.parts) else (np.empty(0, dtype=np.float32), 0)
        step = max(1, scores.size * self._group.size // SAMPLE)
        return np.concatenate(self._group.gather(scores[::step])), int(self._group.sum(float(n)))

    def _sum_bins(self) -> BinSums:
        own, group = super()._sum_bins(), self._group
        least, most = float(group.least(own.extremes[0])), float(group.most(own.extremes[1]))
        return BinSums(group.sum(own.sums), group.least(own.lowest), (least, most))

    def _read_first(self, n_bins: int) -> list[Part]:
        return [part for parts in self._group.gather(super()._read_first(n_bins)) for part in parts]


@dataclass(frozen=True)
class GroupTuningEvents(TuningEvents):
    """Events of this worker, measured together with those of all others."""

    group: Group

    @classmethod
    def shared(cls, signal: BoolArray, weight: Array, utility: Utility, group: Group) -> GroupTuningEvents:
        """Gather events whose weights are scaled already."""
        available = effective_of(*group.sum(*_sum_and_squares(weight[~signal])).tolist())
        return cls(signal, weight, utility, available, 1.0, group)

    def at(self, selected: BoolArray) -> tuple[float, float, float]:
        """Yields s and b of a selection, and its effective background count."""
        w_s, w_b = self.weight[selected & self.signal], self.weight[selected & ~self.signal]
        s, b, b2 = self.group.sum(w_s.sum(), *_sum_and_squares(w_b)).tolist()
        return s, b, effective_of(b, b2)

    def scan(self, probability: Array, rule: str = "plateau") -> CutScan:
        """Scan all cuts on P(signal)."""
        ranking = GroupRanking(in_parts(probability, self.signal, self.weight), self.group)
        return scan_binned(ranking, self.utility, rule, self.floor)


def _sum_and_squares(weight: Array) -> tuple[float, float]:
    return float(weight.sum()), float(np.square(weight).sum())
