"""Scored events: of a model, as files, and in place of arrays."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import fivesigma
from fivesigma import AMS2, ScoredEvents, Varied, categorise, scan, yield_shifts
from fivesigma.datasets import Events, from_arrays
from fivesigma.errors import InputError
from fivesigma.scored.scored_events import as_scored
from tests.reporting.synthetic import Oracle

pl = pytest.importorskip("polars")


def make_events(n: int = 3000, labels: tuple[str, str] = ("b", "s"), seed: int = 0) -> Events:
    """Two features of which the first tells signal from background."""
    rng = np.random.default_rng(seed)
    signal = np.arange(n) % 3 == 0
    X = np.column_stack([rng.normal(1.5 * signal), rng.normal(size=n)])
    process = np.where(signal, "H", np.where(np.arange(n) % 2 == 0, "Z", "top"))
    return from_arrays(
        X,
        np.where(signal, labels[1], labels[0]),
        np.where(signal, 0.1, 2.0) * rng.gamma(3.0, size=n),
        signal=labels[1],
        process=process,
        feature_names=["mass", "noise"],
    )


class Named:
    """A model with a cut that knows the names of its columns."""

    columns_: ClassVar = {"features": ["mass"]}
    n_features_in_ = 1
    cut_ = 0.7

    def predict_proba(self, X: Any) -> Any:
        p = 1 / (1 + np.exp(-np.asarray(X, dtype=np.float64)[:, 0]))
        return np.column_stack([1 - p, p])


@pytest.fixture(scope="module")
def events() -> Events:
    return make_events()


@pytest.fixture(scope="module")
def scored(events: Events) -> ScoredEvents:
    return ScoredEvents.of(Named(), events)


def assert_same(one: ScoredEvents, two: ScoredEvents) -> None:
    for name in ("score", "signal", "weight", "selected", "process"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name), err_msg=name)
    assert one.classes == two.classes


# of a model


def test_of_a_model_with_a_cut(events: Events, scored: ScoredEvents) -> None:
    np.testing.assert_array_equal(scored.score, Named().predict_proba(events.X)[:, 1])
    np.testing.assert_array_equal(scored.selected, scored.score >= 0.7)
    np.testing.assert_array_equal(scored.signal, events.is_signal)
    np.testing.assert_array_equal(scored.weight, events.weight)
    np.testing.assert_array_equal(scored.process, events.process)
    assert len(scored) == 3000
    assert repr(scored).startswith("ScoredEvents: 3,000 events, s = ")
    backwards = replace(events, X=events.X[:, ::-1], feature_names=("noise", "mass"))
    assert_same(ScoredEvents.of(Named(), backwards), scored)


def test_an_event_at_the_cut_is_selected(events: Events, scored: ScoredEvents) -> None:
    model = Named()
    model.cut_ = float(np.median(scored.score[1:]))  # of an odd number of scores: one of them
    assert model.cut_ in scored.score
    np.testing.assert_array_equal(ScoredEvents.of(model, events).selected, scored.score >= model.cut_)


@pytest.mark.parametrize("labels", [("b", "s"), ("background", "Signal"), ("ttbar", "ggH")])
def test_any_classifier_gives_the_probability_of_signal(labels: tuple[str, str]) -> None:
    """Other classifiers sort their labels: signal need not be the second."""
    events = make_events(labels=labels)
    model = LogisticRegression().fit(events.X, events.y)
    found = ScoredEvents.of(model, events)
    assert found.selected is None
    assert found.classes == labels
    column = model.classes_.tolist().index(labels[1])
    np.testing.assert_array_equal(found.score, model.predict_proba(events.X)[:, column])
    assert found.score[events.is_signal].mean() > found.score[~events.is_signal].mean()


def test_a_model_that_was_fitted_to_a_frame_gets_a_frame() -> None:
    events = make_events()
    model = LogisticRegression().fit(pl.DataFrame(events.X, schema=["mass", "noise"]), events.y)
    backwards = replace(events, X=events.X[:, ::-1], feature_names=("noise", "mass"))
    np.testing.assert_array_equal(ScoredEvents.of(model, backwards).score, ScoredEvents.of(model, events).score)


def test_yields_scale_each_class(events: Events) -> None:
    full = ScoredEvents.of(Named(), events, yields=(7.0, 400.0))
    _, signal, weight = full.arrays()
    assert weight[signal].sum() == pytest.approx(7.0)
    assert weight[~signal].sum() == pytest.approx(400.0)
    assert_same(ScoredEvents.of(Named(), events).scaled_to(7.0, 400.0), full)


def test_models_that_cannot_score_these_events(events: Events) -> None:
    with pytest.raises(InputError, match="no feature 'mass' among the 2 of these events"):
        ScoredEvents.of(Named(), replace(events, feature_names=("m", "noise")))
    with pytest.raises(InputError, match="a set has no predict_proba, so it cannot score events"):
        ScoredEvents.of(set(), events)
    with pytest.raises(InputError, match="the events have 2 features, and the model was trained with 1"):
        ScoredEvents.of(Oracle(), events)


# files


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_file_gives_back_what_was_written(scored: ScoredEvents, tmp_path: Path, ending: str) -> None:
    path = scored.write(tmp_path / f"scores.{ending}")
    frame = pl.read_csv(path) if ending == "csv" else pl.read_parquet(path)
    assert frame.columns == ["id", "score", "selected", "label", "weight", "process"]
    assert set(frame["label"]) == {"s", "b"}
    assert frame["id"].to_list() == list(range(3000))
    again = ScoredEvents.read(path)
    assert_same(again, scored)
    assert again.ids is not None
    assert_same(ScoredEvents.read(path, yields=(7.0, 400.0)), scored.scaled_to(7.0, 400.0))


def test_labels_keep_their_names(tmp_path: Path) -> None:
    written = ScoredEvents.of(Named(), make_events(labels=("ttbar", "ggH")))
    path = written.write(tmp_path / "scores.csv")
    with pytest.raises(InputError, match="is signal"):
        ScoredEvents.read(path)
    assert_same(ScoredEvents.read(path, signal="ggH"), written)
    numbers = ScoredEvents(np.array([0.1, 0.9]), np.array([False, True]), np.ones(2)).write(tmp_path / "numbers.csv")
    assert pl.read_csv(numbers)["label"].to_list() == [0, 1]


def test_events_without_labels(events: Events, tmp_path: Path) -> None:
    unlabelled = replace(events, y=np.full(3000, None), signal=None, process=None, ids=np.arange(3000) + 7)
    found = ScoredEvents.of(Named(), unlabelled)
    assert "no signal" in repr(found)
    path = replace(found, weight=None).write(tmp_path / "scores.csv")
    frame = pl.read_csv(path)
    assert frame.columns == ["id", "score", "selected"]
    assert frame["id"][0] == 7
    with pytest.raises(InputError, match=r"'label' in scores\.csv"):
        ScoredEvents.read(path)
    again = ScoredEvents.read(path, labelled=False)
    np.testing.assert_array_equal(again.score, found.score)
    np.testing.assert_array_equal(again.selected, found.selected)
    for refused in (found, again, ScoredEvents(found.score, signal=events.is_signal)):
        with pytest.raises(InputError, match=r"these scored events have no (labels|weights); significance needs"):
            scan(refused)
    with pytest.raises(InputError, match="have no labels"):
        ScoredEvents.of(Named(), unlabelled, yields=(1.0, 2.0))


def test_events_of_one_class_can_be_written(events: Events, tmp_path: Path) -> None:
    for members, label in ((events.is_signal, "s"), (~events.is_signal, "b")):
        path = ScoredEvents.of(Named(), events[members]).write(tmp_path / "scores.csv")
        assert set(pl.read_csv(path)["label"]) == {label}


def test_a_file_appears_whole_or_not_at_all(
    scored: ScoredEvents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(InputError, match="full"):
        scored.write(tmp_path / "scores.csv")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["scores.root", "scores"])
def test_other_endings_are_refused(scored: ScoredEvents, tmp_path: Path, name: str) -> None:
    for act in (scored.write, ScoredEvents.read):
        with pytest.raises(InputError, match=f"{name} ends in none of .csv, .parquet"):
            act(tmp_path / name)


# checks


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"score": [[1.0]]}, "score must be one number per event, got float64 of shape (1, 1)"),
        ({"score": [[0.3, 0.7]]}, "as predict_proba returns it: give the column of the signal, score[:, 1]"),
        ({"score": ["a"]}, "score must be one number per event"),
        ({"score": []}, "score is empty: there are no events"),
        ({"score": [1.0, np.nan]}, "score is NaN in 1 of 2 rows (at 1)"),
        ({"score": [1.0], "signal": [2]}, "signal must be booleans, or zeros and ones, got int64"),
        ({"score": [1.0], "selected": [True, False]}, "selected has shape (2,) for 1 events"),
        ({"score": [1.0], "process": ["a", "b"]}, "process has shape (2,) for 1 events"),
        ({"score": [1.0], "weight": [np.inf]}, "sample_weight is NaN or infinite in 1 of 1 rows"),
    ],
)
def test_bad_columns(columns: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        ScoredEvents(**columns)


# in place of arrays


def test_scores_that_are_lists_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "scores.parquet"
    pl.DataFrame({"score": [[1.0, 2.0], [0.5]], "label": [1, 0], "weight": [1.0, 1.0]}).write_parquet(path)
    with pytest.raises(InputError, match=r"'score' of scores\.parquet does not hold one value per event"):
        ScoredEvents.read(path)


def test_scan_takes_scored_events(scored: ScoredEvents) -> None:
    found, arrays = scan(scored, utility="ams3", rule="peak"), scan(*scored.arrays(), "ams3", "peak")
    assert (found.cut, found.significance) == (arrays.cut, arrays.significance)
    assert found.interval(n_boot=20) == arrays.interval(n_boot=20)


def test_categorise_takes_scored_events(scored: ScoredEvents) -> None:
    found = categorise(scored, n_categories=3)
    arrays = categorise(*scored.arrays(), 3, process=scored.process)
    assert found.edges.tolist() == arrays.edges.tolist()
    assert found.by_process.keys() == arrays.by_process.keys() == {"H", "Z", "top"}
    assert "signal" in categorise(replace(scored, process=None), n_categories=3).by_process
    assert len(categorise(scored)) >= 1  # "auto"
    other = ScoredEvents.of(Named(), make_events(seed=1))
    one = found.evaluate(other, yields=(100.0, 4000.0))
    two = found.evaluate(*other.arrays(), yields=(100.0, 4000.0), process=other.process)
    assert one.significance == two.significance
    assert one.by_process.keys() == two.by_process.keys()
    assert one.s.sum() + one.b.sum() <= 4100.0 * (1 + 1e-9)


def test_yield_shifts_take_scored_events(scored: ScoredEvents) -> None:
    moved = {"scale": (Varied(score=scored.score + 0.05), None)}
    edges = [0.5, 0.8, np.inf]
    found = yield_shifts(edges, scored, systematics=moved)
    arrays = yield_shifts(edges, *scored.arrays(), moved, process=scored.process)
    assert found.significance == arrays.significance
    assert found.nominal.keys() == {"H", "Z", "top"}
    with pytest.raises(InputError, match="systematics must map names to"):
        yield_shifts(edges, scored)


def test_both_or_half_of_the_arrays_are_refused(scored: ScoredEvents) -> None:
    score, signal, weight = scored.arrays()
    for given in ({"y": signal}, {"sample_weight": weight}, {"pos_label": 1}):
        name = next(iter(given))
        sentence = f"{name} is given with ScoredEvents, which know labels and weights; leave it out"
        for act in (scan, categorise, categorise(scored, n_categories=1).evaluate):
            with pytest.raises(InputError, match=sentence):
                act(scored, **given)
        with pytest.raises(InputError, match=sentence):
            yield_shifts([0.0, 1.0], scored, systematics={}, **given)
    with pytest.raises(InputError, match="y is None; an array of scores needs labels"):
        scan(score)
    with pytest.raises(InputError, match=r"sample_weight is None; .* np\.ones\(len\(y\)\)"):
        categorise(score, signal)


class Judge(Named):
    """What a report asks of a model."""

    utility_ = AMS2()
    history_: tuple[()] = ()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {"random_state": 0}


def test_report_takes_scored_events(events: Events, scored: ScoredEvents) -> None:
    made = fivesigma.report(Judge(), events, n_boot=20, yields=(100.0, 4000.0))
    again = fivesigma.report(Judge(), scored, n_boot=20, yields=(100.0, 4000.0))
    assert again.data.verdict == made.data.verdict
    assert again.data.processes == made.data.processes
    np.testing.assert_array_equal(again.data.cuts.significance, made.data.cuts.significance)
    assert again.data.provenance.data_hash != made.data.provenance.data_hash
    assert again.data.provenance.data_hash == fivesigma.report(Judge(), scored, n_boot=5).data.provenance.data_hash
    assert again.data.provenance.notes == ["The scores were given, not computed here."]
    assert again.data.provenance.features == 1
    pytest.importorskip("jinja2")
    assert "The scores were given" in again.html


def test_a_report_on_scored_events_has_no_features(events: Events, scored: ScoredEvents) -> None:
    refused: tuple[dict[str, Any], ...] = ({"baseline": Judge()}, {"trained_on": events})
    for given in refused:
        name = next(iter(given))
        with pytest.raises(InputError, match=f"{name} needs the features of the events: give Events, not ScoredEvents"):
            fivesigma.report(Judge(), scored, **given)
    with pytest.raises(InputError, match=r"events must be Events, as load_events .* or ScoredEvents, got list"):
        fivesigma.report(Judge(), [])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="without a cut cannot be reported on"):
        fivesigma.report(LogisticRegression(), events)


def test_zeros_and_ones_say_which_events_are_signal() -> None:
    scored = ScoredEvents(np.arange(3.0), signal=np.array([0, 1, 1]))
    assert scored.signal is not None
    assert scored.signal.dtype == np.bool_
    assert scored.signal.tolist() == [False, True, True]


def test_arrays_become_scored_events_that_know_their_labels() -> None:
    scored = as_scored([3, 1, 2], ["s", "b", "s"], [1.0, 2.0, 3.0], process=["h", "z", "h"])
    score, signal, weight = scored.arrays()
    assert score.dtype == np.float64
    assert signal.tolist() == [True, False, True]
    assert weight.tolist() == [1.0, 2.0, 3.0]
    assert scored.classes == ("b", "s")
    assert as_scored(scored) is scored
    assert as_scored(np.array([1, 2], dtype=np.float32), [0, 1], [1.0, 1.0]).score.dtype == np.float32


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (([1.0, 2.0], None, [1.0, 1.0]), "y is None"),
        (([1.0, 2.0], [0, 1]), "np.ones(len(y)) if every event counts as one"),
        (([0, 1, 1], [0.1, 0.2, 0.3], np.ones(3)), "y has 3 labels: 0.1, 0.2, 0.3; the scores have two values only"),
        (([1.0, 2.0, 3.0], [0, 1], [1.0, 1.0]), "score has shape (3,) for 2 events"),
        ((as_scored([1.0, 2.0], [0, 1], [1.0, 1.0]), [0, 1]), "y is given with ScoredEvents"),
        (
            (ScoredEvents(np.arange(2.0), np.array([True, True]), np.ones(2)),),
            "are all signal; signal and background are both needed",
        ),
        ((ScoredEvents(np.arange(2.0), np.array([True, False])),), "these scored events have no weights"),
    ],
)
def test_what_cannot_become_scored_events_is_refused(given: tuple[Any, ...], says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        as_scored(*given)
