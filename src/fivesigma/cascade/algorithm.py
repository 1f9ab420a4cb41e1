"""The weighted classification cascade: Algorithms 1 and 2 of the paper as a generator of rounds.

On round t a learner minimises the weighted classification error b(g) f*(u) + s~(g) u at u = u_{t-1}, which gives g_t;
then u_t = f'(s(g_t) / b(g_t)). This module knows no learner: it asks a `Step` for the yields of g_t.

Safeguards. A round is *valid* if its selection keeps some signal and at least `floor` effective background events. A
round that is not valid (nothing selected, s = 0, b = 0, background too thin) is recorded with significance zero and
never improves; the weight of background against signal is halved for the next round, so that more is selected. u stays
within its bounds, which lie inside the domain of f*, whatever moves it. Without a guarantee of ascent
(`Utility.guaranteed`) only a round that improved moves the class weights on; any other is answered by going half the
way back to those of the best round.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import NamedTuple, Protocol

from fivesigma.cascade.rounds import ClassWeights, Round
from fivesigma.errors import InputError, is_number
from fivesigma.significance import Utility, VariationalUtility

_LEAST_U = 1e-6  # halving stops here: at so small a u every event is selected


class Outcome(NamedTuple):
    """What a step reports of its classifier: yields on the events that drive the update, at the update cut."""

    s: float
    b: float
    effective_background: float
    tuned: tuple[float, float] | None = None  # (s, b) at the best cut, asked for after class-balanced rounds
    train: tuple[float, float] | None = None  # (s, b) on the training events, if asked for


class Step(Protocol):
    """What trains and measures the classifiers of a cascade."""

    def train(self, weights: ClassWeights) -> None:
        """Train g_t with class weights."""

    def measure(self, *, tuned: bool, monitored: bool) -> Outcome:
        """Yields of g_t; if asked for, also those at the best cut and those on the training events."""


@dataclass(frozen=True)
class Schedule:
    """How u follows the yields; the regularisation of a cascade."""

    utility: Utility
    update_every: int = 1  # rounds; in between the yields are not measured, and rounds repeat the last ones
    damping: float = 0.0  # d in u <- (1 - d) u_new + d u_old
    warmup: int = 0  # rounds during which the first class weights stay
    bounds: tuple[float, float] | None = None  # of u
    floor: float = 1.0  # effective background count that a selection must keep to be valid
    can_go_back: bool = True  # a round that did not improve can be dropped; trees that have grown cannot

    def __post_init__(self) -> None:
        for name, least in (("update_every", 1), ("warmup", 0)):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < least:
                raise InputError(f"{name} must be an integer of at least {least}, got {value!r}")
        if not is_number(self.damping) or not 0 <= self.damping < 1:
            raise InputError(f"damping must be a number in [0, 1), got {self.damping!r}")
        if (self.damping or self.bounds) and not isinstance(self.utility, VariationalUtility):
            raise InputError(f"damping and bounds act on u, which {self.utility!r} does not have")
        if self.bounds:
            if len(self.bounds) != 2:
                raise InputError(f"the bounds of u must be two numbers, got {self.bounds!r}")
            low, high = self.bounds
            for limit in self.bounds:
                self.at(limit)  # refuses what lies outside the domain of f*
            if not low < high:
                raise InputError(f"the bounds of u must ascend, got {self.bounds}")

    def at(self, u: float) -> ClassWeights:
        """Class weights (u, f*(u)) of a u that a user chose."""
        if not isinstance(self.utility, VariationalUtility):
            raise InputError(f"{self.utility!r} has no u; use u_init='auto'")
        signal, background = self.utility.weights_at(u)
        if not (signal > 0 and background > 0):
            raise InputError(f"u must be > 0, got {u!r}: at zero both class weights vanish")
        return ClassWeights(float(signal), float(background), float(u))

    def following(self, s: float, b: float, old: ClassWeights) -> ClassWeights:
        """Class weights of the next round: the slopes of F at the yields (s, b), damped and bounded."""
        signal, background = (float(w) for w in self.utility.class_weights(s, b))
        if signal < 0 or background < 0:
            raise InputError(
                f"{type(self.utility).__name__} has class weights {signal:g} and {background:g} at s = {s:g} and "
                f"b = {b:g}; it must rise with s and fall with b"
            )
        if not isinstance(self.utility, VariationalUtility):
            return ClassWeights(signal, background)
        u = signal
        if self.damping and old.u is not None:
            u = (1 - self.damping) * u + self.damping * old.u
        if self.bounds:
            u = min(max(u, self.bounds[0]), self.bounds[1])
        # Where nothing was changed the slopes are more precise than f*(u).
        return ClassWeights(signal, background, u) if u == signal else self.at(u)

    def selecting_more(self, weights: ClassWeights) -> ClassWeights:
        """Class weights with half the weight of background against signal."""
        if weights.u is not None:
            return self.at(max(weights.u / 2, self.bounds[0] if self.bounds else _LEAST_U))
        return weights._replace(background=max(weights.background / 2, _LEAST_U * weights.signal))


def cascade(
    step: Step,
    schedule: Schedule,
    start: ClassWeights,
    *,
    p: float,
    monitor_every: int = 0,
    resume: Sequence[Round] = (),
) -> Iterator[Round]:
    """Alternate training and updates of the class weights, for as long as the caller asks for rounds.

    `start` is (u_0, f*(u_0)), and rounds count from 1; or class-balanced weights without a u, which the first u at the
    best cut of a round 0 follows. p is the yield of all signal. The training events are looked at every `monitor_every`
    rounds, if it is not 0. Rounds of `resume` were run before.
    """
    utility, first = schedule.utility, 0 if start.u is None else 1
    weights, previous, best = start, None, None
    last = resume[-1] if resume else None
    if last is not None:
        weights, previous = last.following, Outcome(last.s, last.b, last.effective_background)
        best = next((r for r in reversed(resume) if r.improved), None)
    for t in itertools.count(first + len(resume)):
        clock = time.perf_counter()
        due = (t - first - schedule.warmup) % schedule.update_every == 0
        updating = due and t - first >= schedule.warmup
        find_u = start.u is None and t - first == schedule.warmup
        monitored = monitor_every > 0 and t % monitor_every == 0
        step.train(weights)
        if last is not None and not due and not monitored and last.trained_at(weights):
            last = _repeated(last, t, time.perf_counter() - clock)
            yield last
            continue
        if previous is None or monitored or due:
            outcome = step.measure(tuned=find_u, monitored=monitored)
        else:
            outcome = previous._replace(tuned=None, train=None)  # nothing depends on it, and yields take time
        this = _judged(
            schedule, t, weights, outcome, previous=previous, best=best, p=p, seconds=time.perf_counter() - clock
        )
        following = weights
        if updating and outcome.tuned is not None:
            following = schedule.following(*outcome.tuned, weights)
        elif updating and not this.valid:
            following = schedule.selecting_more(weights)
        elif updating and (utility.guaranteed or this.improved or best is None or not schedule.can_go_back):
            following = schedule.following(outcome.s, outcome.b, weights)
        elif updating and best is not None:
            signal, background = best.class_weights  # the ratio between is the geometric mean of the two
            following = ClassWeights(math.sqrt(weights.signal * signal), math.sqrt(weights.background * background))
        last = replace(this, following=following)
        yield last
        weights, previous = following, outcome
        if last.improved:
            best = last


def plain_round(schedule: Schedule, weights: ClassWeights, outcome: Outcome, *, p: float, seconds: float) -> Round:
    """Return the only round of a plain model, which no other follows; parameters as in `cascade`."""
    this = _judged(schedule, 0, weights, outcome, previous=None, best=None, p=p, seconds=seconds)
    return this if outcome.tuned is None else replace(this, following=schedule.following(*outcome.tuned, weights))


def _judged(
    schedule: Schedule,
    t: int,
    weights: ClassWeights,
    outcome: Outcome,
    *,
    previous: Outcome | None,
    best: Round | None,
    p: float,
    seconds: float,
) -> Round:
    """Record what a round reached; the class weights that follow are not known yet."""
    valid = outcome.s > 0 and outcome.b > 0 and outcome.effective_background >= schedule.floor * (1 - 1e-9)
    z = float(schedule.utility.value(outcome.s, outcome.b)) if valid else 0.0
    return Round(
        index=t,
        u=weights.u,
        class_weights=(weights.signal, weights.background),
        s=outcome.s,
        b=outcome.b,
        effective_background=outcome.effective_background,
        significance=z,
        valid=valid,
        improved=valid and (best is None or z > best.significance),
        surrogate_before=_surrogate(schedule.utility, weights, previous, p),
        surrogate_after=_surrogate(schedule.utility, weights, outcome, p),
        train_s=outcome.train[0] if outcome.train else None,
        train_b=outcome.train[1] if outcome.train else None,
        seconds=seconds,
        following=weights,
    )


def _repeated(last: Round, t: int, seconds: float) -> Round:
    """Record a round without a look at the yields, at the class weights of the one before: nothing else is new."""
    return replace(
        last,
        index=t,
        improved=False,
        surrogate_before=last.surrogate_after,
        train_s=None,
        train_b=None,
        seconds=seconds,
        following=ClassWeights(*last.class_weights, last.u),
    )


def _surrogate(utility: Utility, weights: ClassWeights, outcome: Outcome | None, p: float) -> float | None:
    """R(g, u), or the same weighted error for class weights that belong to no u."""
    if outcome is None or outcome.s < 0 or outcome.b + utility.b_reg <= 0:
        return None
    if weights.u is not None and isinstance(utility, VariationalUtility):
        return float(utility.surrogate(outcome.s, outcome.b, weights.u, p))
    return weights.background * (outcome.b + utility.b_reg) - weights.signal * outcome.s


def until_no_increase(rounds: Iterable[Round], extra_rounds: int, max_rounds: int) -> Iterator[Round]:
    """Pass rounds on until the significance fails to increase, then `extra_rounds` more; the paper's rule.

    A class-balanced round 0 only finds the first u: it stops nothing, and `max_rounds` does not count it.
    """
    left = None
    for r in rounds:
        yield r
        if left is not None:
            left -= 1
        elif r.index > 0 and not r.improved:
            left = extra_rounds
        if left == 0 or r.index >= max_rounds:
            return
