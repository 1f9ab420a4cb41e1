"""The study's mathematics and its memory: gains against brute force, and runs that go on where they were stopped."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.harness import registered
from benchmarks.studies import protocol
from benchmarks.studies.protocol import (
    TOTALS,
    entering_steps,
    paired_gain,
    ranks,
    replicated,
    scaled_part,
    selection_steps,
    step_significance,
)
from benchmarks.studies.study import runs as study_runs
from benchmarks.studies.study.data import Source
from benchmarks.studies.study.runs import Cache, Fitted, Run, complete
from benchmarks.studies.study.summary import Comparison, compared

from fivesigma import AMS2, AMS3
from fivesigma._types import AnyArray, Array
from fivesigma.cut.bootstrap import PoissonCounts
from fivesigma.datasets import Events, from_arrays
from fivesigma.yields import rescale


@pytest.fixture
def events() -> Events:
    rng = np.random.default_rng(1)
    signal = rng.random(400) < 0.4
    X = rng.normal(size=(400, 2)) + signal[:, None]
    raw = rng.gamma(2.0, size=400)
    return from_arrays(X, signal, raw, process=signal).scaled_to(*TOTALS)


def brute_force(score: AnyArray, weight: Array, events: Events, fractions: Array, utility: Any) -> float:
    """Mean significance, each cut by sorting and counting."""
    order = np.argsort(-score, kind="stable")
    values = []
    for fraction in fractions:
        kept = [i for place, i in enumerate(order) if place < fraction * score.size]
        s = sum(weight[i] for i in kept if events.is_signal[i])
        b = sum(weight[i] for i in kept if not events.is_signal[i])
        values.append(float(utility.value(s, b)))
    return float(np.mean(values))


class TestMeasure:
    @pytest.mark.parametrize("utility", [AMS2(b_reg=10.0), AMS3(b_reg=10.0)])
    def test_mean_over_cuts_is_that_of_brute_force(self, events: Events, utility: Any) -> None:
        fractions = np.linspace(0.05, 0.3, 7)
        steps = entering_steps(events.X[:, 0], fractions)
        expected = brute_force(events.X[:, 0], events.weight, events, fractions, utility)
        assert step_significance(steps, events, utility) == pytest.approx(expected, rel=1e-12)

    def test_a_selection_is_one_cut(self, events: Events) -> None:
        selected = events.X[:, 0] > 1
        s = events.weight[selected & events.is_signal].sum()
        b = events.weight[selected & ~events.is_signal].sum()
        assert step_significance(selection_steps(selected), events) == pytest.approx(AMS2(b_reg=10.0).value(s, b))

    def test_all_and_none_selected(self, events: Events) -> None:
        everything, nothing = np.ones(400, dtype=bool), np.zeros(400, dtype=bool)
        assert step_significance(selection_steps(everything), events) == pytest.approx(
            float(AMS2(b_reg=10.0).value(*TOTALS))
        )
        assert step_significance(selection_steps(nothing), events) == 0.0


class TestGain:
    def test_gain_and_error_are_those_of_brute_force(self, events: Events) -> None:
        rng = np.random.default_rng(2)
        ours = [events.X.sum(axis=1) + 0.3 * rng.normal(size=400) for _ in range(3)]
        theirs = [events.X[:, 0] + 0.3 * rng.normal(size=400) for _ in range(3)]
        utility, fractions = protocol.UTILITY, np.linspace(0.1, 0.2, 5)

        def difference(weight: Array) -> Array:
            pairs = zip(ours, theirs, strict=True)
            measure = partial(brute_force, weight=weight, events=events, fractions=fractions, utility=utility)
            return np.array([measure(a) - measure(b) for a, b in pairs])

        source, means = PoissonCounts(0, 400), []
        for _ in range(20):
            weight = rescale(events.weight * source.draw(400), events.is_signal, TOTALS)
            means.append(difference(weight).mean())
        found = difference(events.weight)
        error = np.sqrt(np.var(means, ddof=1) + found.var(ddof=1) / 3)
        steps, replicas = partial(entering_steps, fractions=fractions), replicated(events, 20)
        assert paired_gain(ours, theirs, events, steps, replicas=replicas) == pytest.approx(
            (found.mean(), error), rel=1e-9
        )

    def test_a_learner_does_not_beat_itself(self, events: Events) -> None:
        score = [events.X[:, 0]]
        assert paired_gain(score, score, events, entering_steps, replicas=replicated(events, 5)) == (0.0, 0.0)

    def test_pairing_takes_the_common_noise_away(self, events: Events) -> None:
        near = [events.X[:, 0] + 1e-3 * events.X[:, 1]]
        far = [-events.X[:, 1]]
        _, small = paired_gain(near, [events.X[:, 0]], events, entering_steps, replicas=replicated(events, 50))
        _, large = paired_gain(far, [events.X[:, 0]], events, entering_steps, replicas=replicated(events, 50))
        assert small < large / 3

    def test_ranks_do_not_change_the_order(self) -> None:
        assert ranks(np.array([0.3, -5.0, 7.0])).tolist() == pytest.approx([1 / 3, 0.0, 2 / 3])


class Splits(Source):
    """Two halves of some events."""

    known: Events

    def test(self) -> Events:
        return Splits.known

    def splits(self, seed: int) -> Any:
        rows = np.random.default_rng(seed).permutation(400)
        for train, scored in ((rows[:200], rows[200:]), (rows[200:], rows[:200])):
            yield scaled_part(Splits.known, train), scored


fits: list[tuple[str, int]] = []
stop_after = 10**6


def arm(column: int, name: str) -> Any:
    def fit(train: Events, seed: int) -> Fitted:
        if len(fits) >= stop_after:
            raise KeyboardInterrupt
        fits.append((name, seed))
        return Fitted(lambda X: X[:, column], float(np.median(train.X[:, column])), {"u": 0.1 * seed})

    return fit


ARMS = {"first": arm(0, "first"), "second": arm(1, "second")}


class TestResume:
    @pytest.fixture
    def wanted(self, events: Events) -> list[Run]:
        Splits.known = events
        fits.clear()
        source = Splits("some", "nowhere")
        return [Run(source, __name__, name, k) for k in range(2) for name in ARMS]

    def test_an_interrupted_study_goes_on_without_repeating(
        self, wanted: list[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tests.benchmarks.test_study.stop_after", 5)  # in the middle of the third run
        with pytest.raises(KeyboardInterrupt):
            complete(wanted, Cache(tmp_path))
        done = [json.loads(line)["key"] for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
        assert done == ["some/first/0", "some/second/0"]
        monkeypatch.setattr("tests.benchmarks.test_study.stop_after", 10**6)
        fits.clear()
        complete(wanted, Cache(tmp_path))
        assert fits == [("first", 1), ("first", 1), ("second", 1), ("second", 1)]  # two halves each
        fits.clear()
        complete(wanted, Cache(tmp_path))
        assert fits == []

    def test_half_a_line_is_forgotten(self, wanted: list[Run], tmp_path: Path) -> None:
        complete(wanted[:1], Cache(tmp_path))
        with (tmp_path / "runs.jsonl").open("a") as file:
            file.write('{"key": "some/second/0", "sec')
        cache = Cache(tmp_path)
        assert list(cache.facts) == ["some/first/0"]
        complete(wanted[:2], cache)
        assert list(Cache(tmp_path).facts) == ["some/first/0", "some/second/0"]

    def test_figures_are_those_of_the_scores(self, wanted: list[Run], events: Events, tmp_path: Path) -> None:
        cache = Cache(tmp_path)
        complete(wanted, cache)
        found = compared(Comparison("second", "first", (0, 1)), wanted[0].source, cache, (2,))
        gains = []
        for k in range(2):
            ours, theirs = (cache.scores(Run(wanted[0].source, "", name, k))[0] for name in ("second", "first"))
            gains.append(protocol.mean_significance(ours, events) - protocol.mean_significance(theirs, events))
        assert found["window"]["gain"] == pytest.approx(np.mean(gains), abs=1e-4)
        assert found["u"] == [0.0, 0.1]
        assert found["fraction"] == pytest.approx([0.5, 0.5], abs=0.1)
        blend = [np.mean([cache.scores(Run(wanted[0].source, "", n, k))[0] for k in range(2)], axis=0) for n in ARMS]
        expected = protocol.mean_significance(blend[1], events) - protocol.mean_significance(blend[0], events)
        assert found["blend of 2"]["gain"] == pytest.approx(expected, abs=1e-4)

    def test_each_half_is_scored_by_the_model_of_the_other(self, wanted: list[Run], events: Events) -> None:
        scores, facts = study_runs.perform(wanted[0])
        for train, rows in wanted[0].source.splits(0):
            assert scores["rank"][rows].tolist() == pytest.approx(ranks(events.X[rows, 0]).tolist())
            assert (scores["selected"][rows] == (events.X[rows, 0] >= np.median(train.X[:, 0]))).all()
        assert len(facts["fraction"]) == 2


def test_the_quick_benchmarks_are_not_disturbed() -> None:
    assert not [b for b in registered() if "study" in b.name]
