"""Reading the challenge's files: sets, labels, both weights, and what is wrong with a file."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fivesigma import higgsml
from fivesigma.datasets import load_events
from fivesigma.errors import InputError
from fivesigma.higgsml.data import CERN, FEATURES, Census, ChallengeEvents, load

S, B = 691.98861, 410_999.84732


def sums(events: ChallengeEvents) -> tuple[float, float]:
    signal = events.is_signal
    return float(events.weight[signal].sum()), float(events.weight[~signal].sum())


@pytest.mark.parametrize("name", higgsml.__all__)
def test_every_public_name_resolves_and_is_documented(name: str) -> None:
    assert getattr(higgsml, name).__doc__
    assert name in dir(higgsml)


def test_the_census_adds_up() -> None:
    assert CERN.total == 818_238
    assert CERN.scaled(818_238) == CERN
    for n in (1000, 4001, 99_999):
        assert CERN.scaled(n).total == n


class TestFullFile:
    def test_columns_mean_what_they_say(self, toy_file: Path, toy_frame: pl.DataFrame, small_census: Census) -> None:
        events = load(toy_file)
        assert events.feature_names == FEATURES == tuple(toy_frame.columns[1:31])
        np.testing.assert_array_equal(events.weight, toy_frame["KaggleWeight"].to_numpy())
        np.testing.assert_array_equal(events.original_weight, toy_frame["Weight"].to_numpy())
        assert events.kaggle_set.tolist() == toy_frame["KaggleSet"].to_list()
        assert events.y.tolist() == toy_frame["Label"].to_list()
        assert np.asarray(events.ids).tolist() == toy_frame["EventId"].to_list()
        expected = toy_frame.select(FEATURES).to_numpy().astype("f4")
        np.testing.assert_array_equal(events.X, np.where(expected == -999, np.float32(np.nan), expected))
        assert events.sets == small_census.events
        assert events.notes == ()

    @pytest.mark.parametrize("ending", [".csv", ".parquet"])
    def test_other_formats_hold_the_same(
        self, toy_file: Path, toy_frame: pl.DataFrame, tmp_path: Path, ending: str, small_census: Census
    ) -> None:
        path = tmp_path / f"toy{ending}"
        (toy_frame.write_csv if ending == ".csv" else toy_frame.write_parquet)(path)
        first, second = load(toy_file), load(path)
        np.testing.assert_array_equal(first.X, second.X)
        assert (first.kaggle_set == second.kaggle_set).all()
        assert (first.weight == second.weight).all()

    def test_a_prefix_is_refused_with_what_to_do(self, toy_file: Path) -> None:
        sentence = (
            "toy.csv.gz is not the challenge's full file: it has 4,000 events (t 1,222, b 489, v 2,200, u 89), not "
            "818,238 (t 250,000, b 100,000, v 450,000, u 18,238); get it with 'fivesigma higgsml fetch', or use what "
            "is there as a sample (sample=True, or --sample)"
        )
        with pytest.raises(InputError, match=re.escape(sentence)):
            load(toy_file)

    def test_wrong_classes_and_weights_are_said(
        self, toy_frame: pl.DataFrame, tmp_path: Path, small_census: Census
    ) -> None:
        path = tmp_path / "x.csv"
        t = pl.col("EventId") == toy_frame.filter(pl.col("Label") == "b")["EventId"][0]
        toy_frame.with_columns(pl.when(t).then(pl.lit("s")).otherwise("Label").alias("Label")).write_csv(path)
        with pytest.raises(InputError, match="420 of its training events are signal, not 419"):
            load(path)
        v = pl.col("KaggleSet") == "v"
        toy_frame.with_columns(pl.col("KaggleWeight") * pl.when(v).then(2.0).otherwise(1.0)).write_csv(path)
        with pytest.raises(InputError, match=r"the weights of s in set v sum to 1383.9.*, not 691.98861"):
            load(path)

    def test_a_file_cut_off_is_said(self, toy_file: Path, tmp_path: Path, small_census: Census) -> None:
        packed, path = toy_file.read_bytes(), tmp_path / "x.csv.gz"
        path.write_bytes(packed[: len(packed) // 2])
        for sample in (False, True):
            with pytest.raises(InputError, match="truncated"):
                load(path, sample=sample)
        text = gzip.decompress(packed)
        path = tmp_path / "x.csv"
        path.write_bytes(text[: text.rindex(b"\n", 0, len(text) // 2) + 1])
        with pytest.raises(InputError, match="not the challenge's full file: it has 1,998 events"):
            load(path)

    def test_bad_cells_are_named(self, toy_frame: pl.DataFrame, tmp_path: Path) -> None:
        path = tmp_path / "x.csv"
        third = pl.col("EventId") == 100_002
        for column, value, sentence in (
            ("KaggleSet", "x", "KaggleSet is 'x' in row 3 of x.csv; it must be t, b, v or u"),
            ("KaggleSet", None, "column 'KaggleSet' is empty in row 3 of x.csv"),
            ("Weight", None, "Weight is nan in row 3 of x.csv"),
            ("KaggleWeight", None, "'KaggleWeight' is nan in row 3 of x.csv"),
        ):
            toy_frame.with_columns(pl.when(third).then(pl.lit(value)).otherwise(column).alias(column)).write_csv(path)
            with pytest.raises(InputError, match=re.escape(sentence)):
                load(path, sample=True)
        toy_frame.drop("PRI_met").write_csv(path)
        with pytest.raises(InputError, match="no column 'PRI_met' in"):
            load(path, sample=True)


class TestKagglesFiles:
    def test_training(self, toy_frame: pl.DataFrame, tmp_path: Path, small_census: Census) -> None:
        part = toy_frame.filter(pl.col("KaggleSet") == "t")
        path = tmp_path / "training.csv"
        kaggle = (
            part.drop("Weight", "KaggleSet")
            .rename({"KaggleWeight": "Weight"})
            .select("EventId", *FEATURES, "Weight", "Label")
        )
        kaggle.write_csv(path)
        events = load(path)
        assert events.sets == {"t": 1222}
        assert events.original_weight is None
        assert sums(events) == pytest.approx((S, B), rel=1e-9)
        assert events[:3].original_weight is None
        kaggle[:-1].write_csv(path)
        with pytest.raises(InputError, match=r"1,221 events \(t 1,221\), not 1,222 \(t 1,222\)"):
            load(path)
        # The whole of training.csv has no test events either, so a sample of it is split.
        kaggle.write_csv(path)
        assert set(load(path, sample=True).sets) == {"t", "b", "v"}

    def test_test(self, toy_frame: pl.DataFrame, tmp_path: Path, small_census: Census) -> None:
        part = toy_frame.filter(pl.col("KaggleSet").is_in(["b", "v"])).select("EventId", *FEATURES)
        path = tmp_path / "test.csv"
        part.write_csv(path)
        events = load(path)
        assert not events.labelled
        assert events.sets == {"?": 2689}
        assert events.in_test.all()
        assert (events.subset("?").weight == 1).all()
        assert "no labels" in repr(events)
        part[:-1].write_csv(path)
        with pytest.raises(InputError, match="it has 2,688 events"):
            load(path)
        assert len(load(path, sample=True)) == 2688


class TestChallengeEvents:
    def test_slices_stay_aligned(self, toy: ChallengeEvents) -> None:
        ids = np.asarray(toy.ids)
        rows = np.random.default_rng(0).permutation(len(toy))[:50]
        mask = np.zeros(len(toy), bool)
        mask[rows] = True
        for chosen in (rows, mask, slice(5, 55), rows.tolist()):
            part = toy[chosen]
            assert isinstance(part, ChallengeEvents)
            assert (np.asarray(part.ids) == ids[chosen]).all()
            assert (part.kaggle_set == toy.kaggle_set[chosen]).all()
            assert part.original_weight is not None
            assert toy.original_weight is not None
            assert (part.original_weight == toy.original_weight[chosen]).all()
        assert toy[7].kaggle_set.tolist() == [toy.kaggle_set[7]]

    def test_replace_keeps_the_kind(self, toy: ChallengeEvents) -> None:
        wider = replace(toy, X=np.hstack([toy.X, toy.X]), feature_names=(*toy.feature_names, *"abc"))
        assert isinstance(wider, ChallengeEvents)
        assert wider.subset("b").X.shape[1] == 60

    @pytest.mark.parametrize("name", ["t", "b", "v", "u"])
    def test_a_subset_stands_for_the_experiment(self, toy: ChallengeEvents, name: str) -> None:
        thinned = toy[::3]
        part = thinned.subset(name)
        assert set(part.kaggle_set) == {name}
        assert sums(part) == pytest.approx((S, B), rel=1e-12)
        ratio = part.weight / thinned.weight[thinned.kaggle_set == name]
        assert np.ptp(ratio[part.is_signal]) < 1e-9
        assert np.ptp(ratio[~part.is_signal]) < 1e-9

    def test_a_set_that_is_not_there(self, toy: ChallengeEvents) -> None:
        with pytest.raises(InputError, match="have no set 'v'; they have t 1,222"):
            toy[toy.kaggle_set == "t"].subset("v")

    def test_the_table_has_a_line_a_set(self, toy: ChallengeEvents) -> None:
        lines = repr(toy).splitlines()
        assert [line.split()[0] for line in lines[2:6]] == ["t", "b", "v", "u"]
        assert "691.989" in lines[2]


class TestSample:
    def test_sets_that_are_there_are_kept(self, toy_file: Path) -> None:
        events = load(toy_file, sample=True)
        assert events.notes == (
            "A sample of 4,000 events (t 1,222, b 489, v 2,200, u 89); the full file has 818,238.",
            "The weights of each set are scaled to s = 691.99 and b = 410,999.85.",
        )

    def test_a_full_file_is_no_sample(self, toy_file: Path, small_census: Census) -> None:
        assert load(toy_file, sample=True).notes == ()

    def test_real_prefix_is_dealt(self, real_file: Path) -> None:
        with pytest.raises(InputError, match=r"it has 22,889 events \(t 22,889\)"):
            load(real_file)
        events = load(real_file, sample=True)
        assert events.sets == {"t": 11_444, "b": 5_723, "v": 5_722}
        assert "A sample of 22,889 events (t 22,889); the full file has 818,238." in events.notes
        assert any("dealt to train and test within it: t 11,444, b 5,723, v 5,722" in note for note in events.notes)
        plain = load_events(real_file, weight="KaggleWeight")
        share = plain.is_signal.mean()
        for name in "tbv":
            part = events[events.kaggle_set == name]
            assert sums(part) == pytest.approx((S, B), rel=1e-9)
            assert part.is_signal.mean() == pytest.approx(share, abs=1e-4)
        # The file's order may mean something, so the sets are mixed.
        assert min(np.count_nonzero(events.kaggle_set[:1000] == name) for name in "tbv") > 200
        # The set of an event is the same every time, and it depends on nothing else in the event.
        again = load(real_file, sample=True)
        assert (again.kaggle_set == events.kaggle_set).all()
        np.testing.assert_array_equal(events.X, plain.X)
        # Within t of the CERN file, both weights are proportional in each class.
        raw = load_events(real_file, weight="Weight").weight
        assert events.original_weight is not None
        assert (events.original_weight == raw).all()

    def test_too_small(self, toy_frame: pl.DataFrame, tmp_path: Path) -> None:
        path = tmp_path / "x.csv"
        few = toy_frame.filter(pl.col("KaggleSet") == "t")
        pl.concat([few.filter(pl.col("Label") == label)[:2] for label in "sb"]).write_csv(path)
        with pytest.raises(InputError, match="too small: in set v, the signal of a subset of 0 events"):
            load(path, sample=True)
