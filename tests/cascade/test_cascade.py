"""The loop alone, with an exact learner on problems small enough to try every selection."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fivesigma import AMS2, AMS3, GaussianBackground, OnOff, RelativeBackground, SOverRootSB
from fivesigma._types import Array
from fivesigma.cascade.algorithm import Outcome, Schedule, cascade, until_no_increase
from fivesigma.cascade.rounds import ClassWeights, History, Round
from fivesigma.errors import InputError
from fivesigma.significance import Utility

GUARANTEED: list[Utility] = [AMS2(), AMS2(b_reg=3.0), AMS3(), SOverRootSB(), OnOff(2.0), GaussianBackground(1.5)]


class Exact:
    """Minimises the weighted error over all selections of a few cells."""

    def __init__(self, s: Array, b: Array) -> None:
        picks = np.array(list(itertools.product([0.0, 1.0], repeat=s.size)))
        self.s, self.b = picks @ s, picks @ b

    def train(self, weights: ClassWeights) -> None:
        self.best = int(np.argmin(weights.background * self.b - weights.signal * self.s))

    def measure(self, *, tuned: bool, monitored: bool) -> Outcome:
        s, b = float(self.s[self.best]), float(self.b[self.best])
        return Outcome(s, b, 100.0, tuned=(s, b) if tuned else None, train=(s, b) if monitored else None)


cells = st.integers(2, 9).flatmap(
    lambda n: st.tuples(*(st.lists(st.floats(0.01, 10.0), min_size=n, max_size=n).map(np.array) for _ in range(2)))
)


@pytest.mark.parametrize("utility", GUARANTEED, ids=repr)
@settings(max_examples=60, deadline=None)
@given(problem=cells, u=st.floats(0.01, 0.45))
def test_exact_learner_never_loses(utility: Utility, problem: tuple[Array, Array], u: float) -> None:
    s, b = problem
    schedule = Schedule(utility)
    rounds = list(itertools.islice(cascade(Exact(s, b), schedule, schedule.at(u), p=float(s.sum())), 8))
    counted = [r.significance for r in rounds if r.valid]
    assert counted, "halving u must end in a selection of everything"
    # A round that does not count restarts the ascent from another u; from then on nothing may fall.
    tail = [r.significance for r in itertools.takewhile(lambda r: r.valid, reversed(rounds))][::-1]
    assert all(later >= earlier * (1 - 1e-12) for earlier, later in itertools.pairwise(tail))


@settings(max_examples=60, deadline=None)
@given(problem=cells, u=st.floats(0.01, 3.0))
def test_surrogate_falls_and_bounds_the_significance(problem: tuple[Array, Array], u: float) -> None:
    s, b = problem
    schedule = Schedule(AMS2())
    for r in itertools.islice(cascade(Exact(s, b), schedule, schedule.at(u), p=float(s.sum())), 6):
        if not r.valid:
            continue
        assert r.surrogate_after is not None
        assert -(r.significance**2) / 2 <= r.surrogate_after + 1e-9
        if r.surrogate_before is not None:
            assert r.surrogate_after <= r.surrogate_before + 1e-9


def test_fixed_point_is_best_among_threshold_selections() -> None:
    # Cells ordered by s/b: the cascade ends at a selection that no other of its kind improves at its own u.
    s, b = np.array([4.0, 3.0, 2.0, 1.0]), np.array([1.0, 3.0, 10.0, 50.0])
    schedule = Schedule(AMS2())
    *_, last = itertools.islice(cascade(Exact(s, b), schedule, schedule.at(0.3), p=10.0), 10)
    z = AMS2().value(np.cumsum(s), np.cumsum(b))
    assert last.significance == pytest.approx(float(z.max()))


class Scripted:
    """Reports given outcomes and remembers the class weights it was asked for."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes, self.asked, self.measured = iter(outcomes), list[ClassWeights](), list[int]()

    def train(self, weights: ClassWeights) -> None:
        self.asked.append(weights)
        self.outcome = next(self.outcomes)

    def measure(self, *, tuned: bool, monitored: bool) -> Outcome:
        self.measured.append(len(self.asked) - 1)
        return self.outcome


def run(schedule: Schedule, start: ClassWeights, *outcomes: Outcome) -> tuple[list[Round], list[ClassWeights]]:
    step = Scripted(*outcomes)
    rounds = list(itertools.islice(cascade(step, schedule, start, p=100.0), len(outcomes)))
    return rounds, step.asked


def u_of(weights: list[ClassWeights]) -> list[float | None]:
    return [w.u for w in weights]


GOOD = Outcome(20.0, 100.0, 50.0)


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(Outcome(0.0, 0.0, 0.0), id="nothing selected"),
        pytest.param(Outcome(5.0, 0.0, 0.0), id="b is zero"),
        pytest.param(Outcome(0.0, 50.0, 40.0), id="s is zero"),
        pytest.param(Outcome(-1.0, 50.0, 40.0), id="s is negative"),
        pytest.param(Outcome(5.0, -1.0, 40.0), id="b is negative"),
        pytest.param(Outcome(5.0, 1.0, 0.5), id="background too thin"),
    ],
)
def test_degenerate_round_is_recorded_and_answered_by_half_the_u(bad: Outcome) -> None:
    schedule = Schedule(AMS2())
    rounds, asked = run(schedule, schedule.at(0.4), bad, GOOD, GOOD)
    assert not rounds[0].valid
    assert rounds[0].significance == 0.0
    assert not rounds[0].improved
    assert rounds[1].valid
    assert u_of(asked)[:2] == [0.4, 0.2]
    for r in rounds:
        values = [v for (v,) in History([r]).to_columns().values() if isinstance(v, float)]
        assert np.isfinite(values).all()


def test_everything_selected_is_a_valid_round() -> None:
    schedule = Schedule(AMS2())
    rounds, asked = run(schedule, schedule.at(0.4), Outcome(100.0, 10_000.0, 500.0), GOOD)
    assert rounds[0].valid
    assert asked[1].u == pytest.approx(np.log1p(0.01))


def test_update_every_damping_warmup_and_bounds() -> None:
    new = float(AMS2().u(20.0, 100.0))
    start = Schedule(AMS2()).at(0.4)
    _, asked = run(Schedule(AMS2(), update_every=2), start, GOOD, GOOD, GOOD, GOOD)
    assert u_of(asked) == [0.4, new, new, new]
    _, asked = run(Schedule(AMS2(), damping=0.75), start, GOOD, GOOD)
    assert asked[1].u == pytest.approx(0.25 * new + 0.75 * 0.4)
    _, asked = run(Schedule(AMS2(), warmup=2), start, GOOD, GOOD, GOOD, GOOD)
    assert u_of(asked) == [0.4, 0.4, 0.4, new]
    _, asked = run(Schedule(AMS2(), bounds=(0.01, 0.1)), start, GOOD, GOOD)
    assert asked[1].u == 0.1
    assert asked[1].background == pytest.approx(float(AMS2().weights_at(0.1)[1]))


def test_yields_are_measured_only_where_u_is_updated() -> None:
    outcomes = [Outcome(20.0 + k, 100.0, 50.0, train=(1.0, 2.0)) for k in range(9)]
    schedule = Schedule(AMS2(), update_every=3, warmup=1)
    step = Scripted(*outcomes)
    rounds = list(itertools.islice(cascade(step, schedule, schedule.at(0.4), p=100.0), 9))
    assert step.measured == [0, 1, 4, 7]  # the first round has no earlier yields to repeat
    assert [r.s for r in rounds] == [20.0, 21.0, 21.0, 21.0, 24.0, 24.0, 24.0, 27.0, 27.0]
    assert [r.improved for r in rounds] == [k in step.measured for k in range(9)]
    assert [r.train_s is None for r in rounds] == [k not in step.measured for k in range(9)]
    step = Scripted(*outcomes)
    list(itertools.islice(cascade(step, schedule, schedule.at(0.4), p=100.0, monitor_every=2), 9))
    assert step.measured == [0, 1, 3, 4, 5, 7]  # rounds are counted from 1


def test_rounds_without_a_look_are_judged_as_if_they_had_the_same_yields() -> None:
    outcomes = [Outcome(20.0 + 5 * (k % 4), 100.0 + 3 * k, 50.0) for k in range(14)]
    for utility in (AMS2(), RelativeBackground(0.1)):
        schedule = Schedule(utility, update_every=4)
        rounds = list(itertools.islice(cascade(Scripted(*outcomes), schedule, ClassWeights(1.0, 0.01), p=100.0), 14))
        best = 0.0
        for before, r in itertools.pairwise(rounds):
            best = max(best, before.significance)
            assert r.index == before.index + 1
            assert r.significance == pytest.approx(float(utility.value(r.s, r.b)))
            assert r.improved == (r.significance > best)
            for seen, said in ((before, r.surrogate_before), (r, r.surrogate_after)):
                signal, background = r.class_weights
                error = background * (seen.b + utility.b_reg) - signal * seen.s
                if r.u is not None:
                    assert isinstance(utility, AMS2)
                    error = float(utility.surrogate(seen.s, seen.b, r.u, 100.0))
                assert said == pytest.approx(error)
            assert before.following == ClassWeights(*r.class_weights, r.u)


def test_balanced_start_takes_u_at_the_best_cut() -> None:
    schedule = Schedule(AMS2())
    tuned = GOOD._replace(s=90.0, b=9000.0, tuned=(20.0, 100.0))
    rounds, asked = run(schedule, ClassWeights(1.0, 0.01), tuned, GOOD)
    assert [r.index for r in rounds] == [0, 1]
    assert rounds[0].u is None
    assert asked[1].u == pytest.approx(np.log1p(0.2))


def test_without_guarantee_only_an_improvement_moves_on() -> None:
    utility = RelativeBackground(0.1)
    worse = Outcome(1.0, 100.0, 50.0)
    start = ClassWeights(1.0, 0.01)
    _, asked = run(Schedule(utility), start, GOOD, worse, worse)
    after_good = utility.class_weights(20.0, 100.0)
    assert (asked[1].signal, asked[1].background) == pytest.approx([float(v) for v in after_good])
    ratio = [w.background / w.signal for w in asked]
    assert ratio[2] == pytest.approx(np.sqrt(ratio[1] * ratio[0]))


def test_class_weights_without_u_are_halved_too() -> None:
    start = ClassWeights(1.0, 0.01)
    _, asked = run(Schedule(RelativeBackground(0.1)), start, Outcome(0.0, 0.0, 0.0), GOOD)
    assert asked[1] == ClassWeights(1.0, 0.005)


AT = Schedule(AMS2()).at(0.1)


def make_round(index: int, significance: float, *, improved: bool) -> Round:
    return Round(
        index, 0.1, (0.1, 0.005), 1.0, 1.0, 10.0, significance, True, improved, None, None, None, None, 0.0, AT
    )


def test_stops_extra_rounds_after_the_first_that_did_not_increase() -> None:
    flags = [True, True, False, True, False, False, False]
    rounds = [make_round(k + 1, 1.0, improved=flag) for k, flag in enumerate(flags)]
    assert [r.index for r in until_no_increase(rounds, 2, 20)] == [1, 2, 3, 4, 5]
    assert [r.index for r in until_no_increase(rounds, 0, 20)] == [1, 2, 3]
    assert [r.index for r in until_no_increase(rounds, 2, 2)] == [1, 2]
    zero = [make_round(0, 1.0, improved=True), *rounds]
    assert [r.index for r in until_no_increase(zero, 2, 2)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"update_every": 0}, "update_every must be an integer of at least 1, got 0"),
        ({"damping": 1.0}, "damping must be a number in"),
        ({"warmup": -1}, "warmup must be an integer of at least 0"),
        ({"bounds": (0.2, 0.1)}, "must ascend"),
        ({"bounds": (0.0, 0.1)}, "u must be > 0"),
        ({"bounds": (-1.0, 0.1)}, "domain"),
    ],
)
def test_bad_schedule_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Schedule(AMS2(), **options)  # type: ignore[arg-type]  # wrong on purpose


def test_utility_without_u_has_no_damping_and_no_number_to_start_from() -> None:
    with pytest.raises(InputError, match="does not have"):
        Schedule(RelativeBackground(0.1), damping=0.5)
    with pytest.raises(InputError, match="use u_init='auto'"):
        Schedule(RelativeBackground(0.1)).at(0.1)


def test_u_outside_the_domain_is_refused() -> None:
    with pytest.raises(InputError, match=r"0\.6"):
        Schedule(SOverRootSB()).at(0.6)


def test_resumed_cascade_goes_on_as_if_nothing_had_happened() -> None:
    outcomes = [Outcome(20.0 + k, 100.0 + 7 * k, 50.0) for k in range(6)]
    for utility in (AMS2(), RelativeBackground(0.1)):
        schedule, start = Schedule(utility, update_every=2), ClassWeights(1.0, 0.01)
        whole, _ = run(schedule, start, *outcomes)
        saved = History.from_columns(json.loads(json.dumps(History(whole[:3]).to_columns())))
        assert saved == whole[:3]
        rest = cascade(Scripted(*outcomes[3:]), schedule, start, p=100.0, resume=saved)
        for before, after in zip(whole[3:], itertools.islice(rest, 3), strict=True):
            assert replace(before, seconds=0.0) == replace(after, seconds=0.0)


def test_history_prints_as_a_table() -> None:
    history = History([make_round(k, 3.0 + 0.01 * k, improved=k == 60) for k in range(61)])
    lines = repr(history).splitlines()
    assert lines[:2] == ["61 rounds", lines[1]]
    assert lines[1].split()[:2] == ["round", "u"]
    assert "(21 rounds)" in repr(history)
    assert lines[-1].endswith("*")
