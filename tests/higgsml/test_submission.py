"""Submissions: Kaggle's rules, and scores held against sums done by hand."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fivesigma._types import Array, BoolArray
from fivesigma.errors import InputError
from fivesigma.higgsml import submission
from fivesigma.higgsml.data import CERN, ChallengeEvents
from fivesigma.higgsml.submission import score_submission, write_submission


def ams(s: float, b: float) -> float:
    """The formula of the challenge's documentation."""
    return math.sqrt(2 * ((s + b + 10) * math.log(1 + s / (b + 10)) - s))


@pytest.fixture(scope="module")
def test_events(toy: ChallengeEvents) -> ChallengeEvents:
    return toy[toy.in_test]


@pytest.fixture(scope="module")
def score(test_events: ChallengeEvents) -> Array:
    """A score that finds some signal; many events share a value."""
    distance: Array = np.abs(test_events.column("DER_mass_vis").astype(float) - 80)
    return -np.round(distance, 0)


class TestWrite:
    def test_the_largest_rank_is_the_most_signal_like(
        self, test_events: ChallengeEvents, score: Array, tmp_path: Path
    ) -> None:
        path = write_submission(tmp_path / "x.csv", test_events.ids, score, cut=-20)  # type: ignore[arg-type]
        text = path.read_text().splitlines()
        assert text[0] == "EventId,RankOrder,Class"
        frame = pl.read_csv(path)
        assert frame["EventId"].to_list() == np.asarray(test_events.ids).tolist()
        assert sorted(frame["RankOrder"].to_list()) == list(range(1, len(score) + 1))
        assert frame["RankOrder"].arg_max() == np.flatnonzero(score == score.max())[-1]
        assert (frame["Class"] == "s").to_list() == (score >= -20).tolist()

    @given(
        st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=30, unique_by=None),
        st.randoms(use_true_random=False),
    )
    def test_ranks_agree_with_the_selection_and_with_the_score(
        self, tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, bool]], shuffle: Any
    ) -> None:
        folder = tmp_path_factory.mktemp("ranks")
        ids = list(range(500, 500 + len(rows)))
        score, selected = [float(r[0]) for r in rows], [r[1] for r in rows]
        frame = pl.read_csv(write_submission(folder / "x.csv", ids, score, selected=selected))
        rank = frame["RankOrder"].to_numpy()
        assert sorted(rank.tolist()) == list(range(1, len(rows) + 1))
        chosen = np.array(selected)
        if chosen.any() and not chosen.all():
            assert rank[chosen].min() > rank[~chosen].max()
        for group in (chosen, ~chosen):
            assert (np.diff(np.array(score)[group][np.argsort(rank[group])]) >= 0).all()
        # The ranks belong to the events, not to the order in which they come.
        order = list(range(len(rows)))
        shuffle.shuffle(order)
        mixed = write_submission(
            folder / "y.csv", [ids[i] for i in order], [score[i] for i in order], selected=[selected[i] for i in order]
        )
        assert pl.read_csv(mixed).sort("EventId").equals(frame)

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            ({}, "either cut or selected"),
            ({"cut": 0.0, "selected": [True, False]}, "either cut or selected"),
            ({"ids": [1, 1], "cut": 0}, "each once"),
            ({"ids": [1.5, 2], "cut": 0}, "whole numbers"),
            ({"score": [1.0], "cut": 0}, r"shape \(1,\) for 2 ids"),
            ({"score": [1.0, math.nan], "cut": 0}, r"NaN or infinite in 1 of 2 rows \(at 1\)"),
            ({"selected": [1, 0]}, "2 booleans, got int64"),
            ({"path": "x.txt", "cut": 0}, "does not end in .csv"),
            ({"path": "no/x.csv", "cut": 0}, "there is no folder"),
        ],
    )
    def test_errors_leave_nothing(self, tmp_path: Path, arguments: dict[str, Any], sentence: str) -> None:
        given_ = {"path": "x.csv", "ids": [1, 2], "score": [0.1, 0.2]} | arguments
        with pytest.raises(InputError, match=sentence):
            write_submission(tmp_path / given_.pop("path"), **given_)
        assert list(tmp_path.iterdir()) == []


class TestScore:
    def test_against_sums_by_hand(
        self, toy_frame: pl.DataFrame, test_events: ChallengeEvents, toy_file: Path, score: Array, tmp_path: Path
    ) -> None:
        # Rows in any order: the identifiers count.
        order = np.random.default_rng(1).permutation(len(score))
        path = write_submission(tmp_path / "x.csv", np.asarray(test_events.ids)[order], score[order], cut=-20)
        result = score_submission(path, toy_file, sample=True, n_boot=50)
        kept = toy_frame.join(pl.read_csv(path), on="EventId").filter(pl.col("Class") == "s")
        for name, part in (("b", result.public), ("v", result.private)):
            assert part is not None
            rows = kept.filter(pl.col("KaggleSet") == name)
            s, b = (float(rows.filter(pl.col("Label") == c)["KaggleWeight"].sum()) for c in "sb")
            assert (part.s, part.b) == pytest.approx((s, b), rel=1e-9)
            assert part.ams == pytest.approx(ams(s, b), rel=1e-9)
            assert part.selected == len(rows)
            assert part.interval is not None
            assert part.interval[0] < part.ams < part.interval[1]
        assert result.public is not None
        assert result.private is not None
        assert (result.public.events, result.private.events) == (489, 2200)
        public, private = result.public.interval, result.private.interval
        assert public is not None
        assert private is not None
        assert public[1] - public[0] > 1.3 * (private[1] - private[0])  # fewer events know less

    def test_the_weights_of_a_thinned_set_are_scaled_back(self, toy: ChallengeEvents, tmp_path: Path) -> None:
        """All events selected: the AMS is that of the experiment, whatever part of the sets is there."""
        thinned = toy[::2]
        test = thinned[thinned.in_test]
        path = write_submission(tmp_path / "x.csv", test.ids, np.arange(len(test)), cut=-1)  # type: ignore[arg-type]
        result = score_submission(path, thinned, n_boot=10)
        assert result.public is not None
        assert result.private is not None
        for part in (result.public, result.private):
            assert part.ams == pytest.approx(ams(691.98861, 410_999.84732), rel=1e-9)

    def test_only_public_events(self, toy: ChallengeEvents, tmp_path: Path) -> None:
        public = toy[toy.kaggle_set != "v"]
        test = public[public.in_test]
        path = write_submission(tmp_path / "x.csv", test.ids, np.arange(len(test)), cut=100)  # type: ignore[arg-type]
        result = score_submission(path, public, n_boot=10)
        assert result.private is None
        assert "private" not in str(result).splitlines()[1]
        assert result.standing.startswith("not compared")

    def test_nothing_selected_scores_zero(self, toy: ChallengeEvents, score: Array, tmp_path: Path) -> None:
        test = toy[toy.in_test]
        result = score_submission(write_submission(tmp_path / "x.csv", test.ids, score, cut=1), toy)  # type: ignore[arg-type]
        assert result.private is not None
        assert (result.private.ams, result.private.interval) == (0.0, None)
        assert "no background" in str(result)

    def test_labels_are_needed(self, toy: ChallengeEvents, tmp_path: Path) -> None:
        blind = dataclasses.replace(toy, signal=None)
        with pytest.raises(InputError, match="no labels"):
            score_submission(tmp_path / "x.csv", blind)
        with pytest.raises(InputError, match="no sets b and v"):
            score_submission(tmp_path / "x.csv", toy[toy.kaggle_set == "t"])


class TestStanding:
    def fake(self, monkeypatch: pytest.MonkeyPatch, toy: ChallengeEvents) -> ChallengeEvents:
        """Make the small file pass for the challenge's."""
        monkeypatch.setattr(submission, "CERN", CERN.scaled(len(toy)))
        assert toy.original_weight is not None
        first = (100_000, float(toy.original_weight[0]), float(toy.weight[0]))
        monkeypatch.setattr(submission, "_FIRST_EVENT", first)
        return toy

    def test_the_challenges_events_are_ranked(
        self, monkeypatch: pytest.MonkeyPatch, toy: ChallengeEvents, score: Array, tmp_path: Path
    ) -> None:
        test = toy[toy.in_test]
        path = write_submission(tmp_path / "x.csv", test.ids, score, cut=-20)  # type: ignore[arg-type]
        not_compared = "not compared, because these are not the challenge's 450,000 private events"
        assert score_submission(path, toy, n_boot=10).standing == not_compared
        events = self.fake(monkeypatch, toy)
        ranked = score_submission(path, events, n_boot=10)
        assert ranked.standing == "below 31st (Mackey, Bryan and Mo, 3.72594)"
        assert f"leaderboard: {ranked.standing}" in str(ranked)
        assert toy.original_weight is not None
        other = dataclasses.replace(events, original_weight=toy.original_weight * 1.01)
        assert score_submission(path, other, n_boot=10).standing == not_compared

    def test_the_first_event_is_the_real_one(self, real_file: Path) -> None:
        first = pl.read_csv(real_file, n_rows=1)
        assert (first["EventId"][0], first["Weight"][0], first["KaggleWeight"][0]) == submission._FIRST_EVENT


class TestRules:
    @pytest.fixture
    def good(self, test_events: ChallengeEvents, score: Array, tmp_path: Path) -> pl.DataFrame:
        path = write_submission(tmp_path / "good.csv", test_events.ids, score, cut=-20)  # type: ignore[arg-type]
        return pl.read_csv(path)

    def refused(self, frame: pl.DataFrame | str, events: ChallengeEvents, folder: Path) -> str:
        path = folder / "x.csv"
        path.write_text(frame if isinstance(frame, str) else frame.write_csv())
        with pytest.raises(InputError) as caught:
            score_submission(path, events, n_boot=10)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def set_cell(self, frame: pl.DataFrame, row: int, column: str, value: Any) -> pl.DataFrame:
        """Change one cell; the frame becomes text."""
        text = frame.cast(pl.String)
        cells = text[column].to_list()
        cells[row] = value
        return text.with_columns(pl.Series(column, cells, dtype=pl.String))

    @pytest.mark.parametrize(
        ("cell", "sentence"),
        [
            ((3, "EventId", "101225x"), "EventId must be a whole number; line 5 of x.csv has '101225x'"),
            ((3, "EventId", "1.5"), "EventId must be a whole number; line 5 of x.csv has '1.5'"),
            ((3, "EventId", None), "EventId must be a whole number; line 5 of x.csv has 'None'"),
            ((3, "EventId", "101222"), "every EventId must appear once; 101222 is in line 2 and in line 5 of x.csv"),
            ((3, "EventId", "100000"), "EventId 100000 in line 5 of x.csv is of set t, not of b or v"),
            ((3, "EventId", "7"), "EventId 7 in line 5 of x.csv is not in the data"),
            ((4, "RankOrder", "0"), "RankOrder must be 1 to 2,689, each once; line 6 of x.csv has 0"),
            ((4, "RankOrder", "2690"), "RankOrder must be 1 to 2,689, each once; line 6 of x.csv has 2690"),
            ((4, "RankOrder", "-3"), "line 6 of x.csv has -3"),
            ((4, "RankOrder", "nan"), "RankOrder must be a whole number; line 6 of x.csv has 'nan'"),
            ((5, "Class", "S"), "Class must be s or b; line 7 of x.csv has 'S'"),
            ((5, "Class", None), "Class must be s or b; line 7 of x.csv has 'None'"),
            ((5, "Class", "1"), "Class must be s or b; line 7 of x.csv has '1'"),
        ],
    )
    def test_the_first_bad_cell_is_named(
        self, good: pl.DataFrame, toy: ChallengeEvents, tmp_path: Path, cell: tuple[int, str, Any], sentence: str
    ) -> None:
        assert self.refused(self.set_cell(good, *cell), toy, tmp_path).endswith(sentence)

    def test_a_rank_twice(self, good: pl.DataFrame, toy: ChallengeEvents, tmp_path: Path) -> None:
        bad = self.set_cell(good, 9, "RankOrder", str(good["RankOrder"][2]))
        sentence = self.refused(bad, toy, tmp_path)
        assert re.search(r"each once; \d+ is in line 4 and in line 11 of x.csv", sentence)

    def test_events_that_are_missing(self, good: pl.DataFrame, toy: ChallengeEvents, tmp_path: Path) -> None:
        bad = good.filter(~pl.col("EventId").is_in([101230, 101240]))
        sentence = self.refused(bad, toy, tmp_path)
        assert "must have all 2,689 events of sets b and v; 2 are missing, the first is EventId 101230" in sentence

    def test_all_classes_alike_but_wrong(self, good: pl.DataFrame, toy: ChallengeEvents, tmp_path: Path) -> None:
        numbers = good.with_columns(pl.lit(1).alias("Class"))
        assert "Class must be s or b; line 2" in self.refused(numbers, toy, tmp_path)

    def test_headers(self, good: pl.DataFrame, toy: ChallengeEvents, tmp_path: Path) -> None:
        header = "the header of x.csv must be EventId,RankOrder,Class; it is "
        assert header + "EventId,Class,RankOrder" in self.refused(
            good.select("EventId", "Class", "RankOrder"), toy, tmp_path
        )
        assert header in self.refused(good.with_columns(extra=1), toy, tmp_path)
        assert header in self.refused(good.write_csv(include_header=False), toy, tmp_path)
        assert "x.csv is empty" in self.refused("", toy, tmp_path)
        assert "x.csv holds no events" in self.refused("EventId,RankOrder,Class\n", toy, tmp_path)

    def test_the_good_one_passes(self, good: pl.DataFrame, toy: ChallengeEvents, tmp_path: Path) -> None:
        assert score_submission(tmp_path / "good.csv", toy, n_boot=10).private is not None


def test_the_selection_and_not_the_rank_is_scored(toy: ChallengeEvents, score: Array, tmp_path: Path) -> None:
    test = toy[toy.in_test]
    chosen: BoolArray = score >= -20
    ids: Any = test.ids
    first = score_submission(write_submission(tmp_path / "a.csv", ids, score, selected=chosen), toy, n_boot=10)
    second = score_submission(write_submission(tmp_path / "b.csv", ids, -score, selected=chosen), toy, n_boot=10)
    assert first == second
