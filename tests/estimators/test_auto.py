"""The front door: what it trains, how it chooses, and that it can be saved and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import log_loss

from fivesigma import AMS2, AutoClassifier, GrownCascadeClassifier, NetClassifier, load, save
from fivesigma._types import Array
from fivesigma.blend import Blend
from fivesigma.datasets import from_arrays
from fivesigma.errors import InputError
from fivesigma.estimators import auto, blended, member_fits
from fivesigma.estimators.auto import PlainSearch, find_tree_count
from fivesigma.estimators.blended import WINDOW, Choice, choose_blend
from fivesigma.estimators.running import spread_seeds
from fivesigma.estimators.split_steps import TuningEvents
from fivesigma.estimators.training_sample import TrainingSample
from fivesigma.learners import libraries
from fivesigma.learners.protocols import Binding
from tests.estimators.blobs import YIELDS, make_blobs

X, Y, W = make_blobs()
OTHERS = make_blobs(seed=9)
SMALL: dict[str, Any] = {"n_trees": 8, "cv": 3, "random_state": 1, "n_jobs": 1, "params": {"learning_rate": 0.3}}
SMALL["net"] = False
MEMBERS = ("plain", "cascade", "decomposed")


def sample_of(X: Any, y: Any, w: Any) -> TrainingSample:
    return TrainingSample.checked(X, y, w, None, pos_label=1, negative="error")


def gauge_of(y: Any, w: Any) -> TuningEvents:
    return TuningEvents.of(sample_of(np.zeros((y.size, 1)), y, w), np.arange(y.size), AMS2())


def test_members_share_their_folds_and_all_events_are_scored() -> None:
    model = AutoClassifier(**SMALL).fit(X, Y, W)
    names = [name for name, _ in model.members_]
    assert all(names.count(name) == 3 for name in model.held_out_scores_)
    assert set(model.comparisons_) > set(MEMBERS)
    assert model.comparisons_["plain"] == (0.0, 0.0)
    assert len(model.comparisons_) == 7
    assert np.isfinite(model.held_out_score_).all()
    assert all(np.isfinite(score).all() for score in model.held_out_scores_.values())
    assert model.n_trees_ == 8
    assert model.choice_.endswith("8 trees on 3 splits")
    for name in MEMBERS[1:]:
        gain, error = model.comparisons_[name]
        verdict = "blended" if name in model.held_out_scores_ else "left out"
        assert f"{name} {gain:+.2f} ± {error:.2f} over plain: " in model.choice_
        assert verdict in model.choice_
    assert model.significance(*OTHERS) > 1.2 * float(AMS2().value(*YIELDS))


def test_fast_is_the_plain_model_of_the_same_folds() -> None:
    fast = AutoClassifier(fast=True, **SMALL).fit(X, Y, W)
    assert [name for name, _ in fast.members_] == ["plain"] * 3
    assert fast.choice_ == "plain, 8 trees on 3 splits"
    assert fast.comparisons_ == {}
    model = AutoClassifier(**SMALL).fit(X, Y, W)
    np.testing.assert_array_equal(fast.held_out_scores_["plain"], model.held_out_scores_["plain"])


def test_new_events_are_selected_as_the_held_out_ones_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores of some events by all fits are enough to bring the cut from held-out scores to those of new events."""
    new = make_blobs(20_000, seed=9)[0]
    shares = []
    for enough in (10_000, 1_000):
        monkeypatch.setattr(blended, "_ENOUGH", enough)
        monkeypatch.setattr(blended, "_ENOUGH_SELECTED", 50)
        model = AutoClassifier(fast=True, **SMALL).fit(X, Y, W)
        shares.append(float(np.mean(model.predict(new) == 1)))
        assert shares[-1] == pytest.approx(model.selected_fraction_, rel=0.1)
    assert shares[0] != shares[1]


@pytest.mark.parametrize("library", ["lightgbm", "histogram"])
def test_other_libraries(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "installed", lambda name: name == library)
    params = {"learning_rate": 0.3}
    found = AutoClassifier(**{**SMALL, "params": params}).fit(X, Y, W)
    same = AutoClassifier(**{**SMALL, "params": params}, library=library).fit(X, Y, W)
    np.testing.assert_array_equal(found.predict_proba(X), same.predict_proba(X))
    members = MEMBERS if library == "lightgbm" else ("plain", "decomposed")
    assert set(found.comparisons_) > set(members)
    assert ("cascade" in found.comparisons_) == (library == "lightgbm")


def test_the_number_of_trees_has_the_lowest_held_out_loss() -> None:
    """Histogram boosting draws nothing, so every number of trees can be tried by a fit of its own."""
    x, y, w = make_blobs(1500)
    sample, rows = sample_of(x, y, w), np.arange(1500)
    part = rows // 2 % 4
    split = Binding(x, y, rows[part > 0], rows[part == 0], 0, 1)
    params = {"learning_rate": 0.05}
    found = find_tree_count(sample, split, params)
    losses = []
    for n in range(10, 200, 10):
        model = HistGradientBoostingClassifier(**params, max_iter=n, early_stopping=False)
        model.fit(x[split.train], y[split.train])  # both classes have the same number of events of one weight each
        losses.append(log_loss(y[split.held_out], model.predict_proba(x[split.held_out])[:, 1]))
    assert found == 10 * (int(np.argmin(losses)) + 1)
    assert 10 < found < 150


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_a_search_is_the_plain_model_that_it_finds(library: str) -> None:
    """Its trees are those of a model that knew their number, and that number has the lowest loss."""
    sample, rows = sample_of(X, Y, W), np.arange(Y.size)
    split = [(rows[rows // 2 % 4 > 0], rows[rows // 2 % 4 == 0])]
    options: dict[str, Any] = {"params": {"learning_rate": 0.1}, "random_state": 3, "n_jobs": 1}
    held_out = split[0][1]
    weight = sample.learner_weights(held_out, sample.balanced(held_out))
    looks = []
    for n_trees in range(10, 130, 10):
        p = GrownCascadeClassifier(library, cascade=False, n_trees=n_trees, **options)._fit_sample(sample, split)
        looks.append(log_loss(Y[held_out], p, sample_weight=weight))
    best = 10 * (int(np.argmin(looks)) + 1)
    assert 10 < best < 90
    for more in (1.0, 1.5, 4.0):  # fewer trees than the search grows, and more
        search = PlainSearch(library, more=more, **options)
        score = search._fit_sample(sample, split)
        found = search.found()
        assert found.n_trees_ == len(found.history_) == found.n_trees == round(more * best)
        known = GrownCascadeClassifier(library, cascade=False, n_trees=found.n_trees, **options)
        np.testing.assert_allclose(known._fit_sample(sample, split), score, rtol=1e-6)
        np.testing.assert_array_equal(found.predict_proba(X), known.predict_proba(X))


def test_the_number_of_trees_is_found_or_given() -> None:
    """The model is the same: the search is one of its fits."""
    found = AutoClassifier(**{**SMALL, "n_trees": None}).fit(X, Y, W)
    given = AutoClassifier(**{**SMALL, "n_trees": found.n_trees_}).fit(X, Y, W)
    np.testing.assert_array_equal(found.predict_proba(X), given.predict_proba(X))
    assert found.choice_ == given.choice_
    assert {model.n_trees for name, model in found.members_ if name == "plain"} == {found.n_trees_}


def test_fits_that_are_averaged_have_half_as_many_trees_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "find_tree_count", lambda *_: 30)
    options: dict[str, Any] = {"fast": True, "random_state": 0, "n_jobs": 1, "library": "histogram"}
    model = AutoClassifier(cv=3, **options).fit(X, Y, W)
    assert model.n_trees_ == 45
    assert model.choice_ == "plain, 45 trees on 3 splits"
    assert AutoClassifier(cv=0.25, **options).fit(X, Y, W).n_trees_ == 30
    events = from_arrays(X, Y, W, signal=1, keep={"number": np.arange(Y.size) // 2})
    assert AutoClassifier(cv=3, by="number", **options).fit(events).n_trees_ == 30  # new events meet one fit


@pytest.mark.parametrize(("options", "of_cascade"), [({}, 6), ({"cv": 0.3}, 9), ({"by": "number"}, 9)])
def test_a_cascade_has_the_trees_of_one_model(
    options: dict[str, Any], of_cascade: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fits that are averaged have half as many trees again, but a cascade has not."""
    monkeypatch.setattr(auto, "choose_blend", lambda scores, *_, **__: Choice(tuple(scores), {}))
    events = from_arrays(X, Y, W, signal=1, keep={"number": np.arange(Y.size) // 2})
    model = AutoClassifier(**{**SMALL, "n_trees": 9, **options}).fit(events)
    trees: dict[str, set[int]] = {}
    for name, member in model.members_:
        (made,) = member.models_
        booster = made.classifier.booster if name == "decomposed" else made.booster
        trees.setdefault(name, set()).add(booster.num_boosted_rounds())
    assert trees == {"plain": {9}, "cascade": {of_cascade}, "decomposed": {9}}


def test_bins_are_those_of_params_or_fewer_than_usual() -> None:
    """Half as many bins make another model, which `params` can undo."""
    options: dict[str, Any] = {**SMALL, "fast": True}
    usual = AutoClassifier(**{**options, "params": {"learning_rate": 0.3, "max_bin": 256}}).fit(X, Y, W)
    (_, first), *_ = usual.members_
    grown = GrownCascadeClassifier(cascade=False, n_trees=8, params={"learning_rate": 0.3}, random_state=0, n_jobs=1)
    grown.set_params(random_state=first.random_state)
    (train, held_out), *_ = sample_of(X, Y, W).splits(3, spread_seeds(1, 2)[0])
    grown._fit_sample(sample_of(X, Y, W), [(train, held_out)])
    np.testing.assert_array_equal(first.predict_proba(X), grown.predict_proba(X))
    fewer = AutoClassifier(**options).fit(X, Y, W)
    assert not np.array_equal(fewer.predict_proba(X), usual.predict_proba(X))


class TestChoice:
    @staticmethod
    def scores(*kinds: str) -> dict[str, Array]:
        rng = np.random.default_rng(5)
        good = X[:, 0] + 0.3 * rng.normal(size=Y.size)
        made = {"good": good, "same": good, "noise": rng.normal(size=Y.size), "other": X[:, 0]}
        return {kind: made[kind] for kind in kinds}

    def test_noise_is_left_out(self) -> None:
        choice = choose_blend(self.scores("good", "other", "noise"), gauge_of(Y, W))
        assert "noise" not in choice.members
        gain, error = choice.comparisons["noise"]
        assert gain < -3 * error < 0

    def test_equals_are_blended(self) -> None:
        choice = choose_blend(self.scores("good", "same"), gauge_of(Y, W))
        assert choice.members == ("good", "same")
        assert choice.comparisons["same"] == (0.0, 0.0)

    def test_the_simplest_may_be_the_one_that_is_left_out(self) -> None:
        choice = choose_blend(self.scores("noise", "good"), gauge_of(Y, W))
        assert choice.members == ("good",)

    def test_an_extra_member_joins_unless_it_is_worse(self) -> None:
        """It never changes what is chosen among the others, and is never chosen alone."""
        for others in (("good", "same"), ("noise", "same")):
            alone = choose_blend(self.scores(*others), gauge_of(Y, W)).members
            for extra, joins in (("other", True), ("against", False)):
                scores = {**self.scores(*others), "against": -X[:, 0], "other": self.scores("other")["other"]}
                scores = {name: scores[name] for name in (*others, extra)}
                choice = choose_blend(scores, gauge_of(Y, W), extra=extra)
                assert choice.members == ((*alone, extra) if joins else alone)
                assert len(choice.comparisons) == 7

    def test_gains_are_means_over_cuts_around_the_best(self) -> None:
        scores, gauge = self.scores("good", "other"), gauge_of(Y, W)
        share = gauge.scan(scores["good"], "model").fraction
        both = list(scores.values())

        def mean(score: Array) -> float:
            order, out = np.argsort(-score, kind="stable"), []
            for part in WINDOW:
                kept = order[: round(part * share * Y.size)]
                s, b = W[kept][Y[kept] == 1].sum(), W[kept][Y[kept] == 0].sum()
                out.append(float(AMS2().value(s, b)))
            return float(np.mean(out))

        choice = choose_blend(scores, gauge)
        first = mean(scores["good"])
        assert choice.comparisons["other"][0] == pytest.approx(mean(scores["other"]) - first)
        blended = mean(Blend.fitted("rank", both)(both))
        assert choice.comparisons["good + other"][0] == pytest.approx(blended - first)

    def test_errors_are_those_of_the_difference(self) -> None:
        """Over other samples the gain scatters as its error says, to a fifth: 40 samples know a spread to a ninth."""
        gains, errors = [], []
        for seed in range(40):
            x, y, w = make_blobs(2000, seed=seed)
            rng = np.random.default_rng(seed)
            score = {"a": x[:, 0], "b": x[:, 0] + 0.7 * rng.normal(size=y.size)}
            gain, error = choose_blend(score, gauge_of(y, w), seed).comparisons["b"]
            gains.append(gain)
            errors.append(error)
        assert 0.6 < np.std(gains) / np.mean(errors) < 1.4


def test_saved_and_loaded(tmp_path: Path) -> None:
    model = AutoClassifier(**SMALL).fit(X, Y, W)
    again = load(save(model, tmp_path / "model"))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert (again.choice_, again.comparisons_, again.n_trees_) == (model.choice_, model.comparisons_, model.n_trees_)
    assert again.history_ == model.history_
    assert clone(again).get_params() == model.get_params()


def test_resumed_it_is_the_same_and_counts_no_trees_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**SMALL, "n_trees": None, "checkpoint": tmp_path}
    whole = AutoClassifier(**{**options, "checkpoint": None}).fit(X, Y, W)
    begun: list[str] = []
    fit = member_fits.fit_task

    def dies(pool: Any, member: Any, task: Any, *rest: Any, **options: Any) -> Any:
        begun.append(task.key)
        if len(begun) == 5:
            raise MemoryError
        return fit(pool, member, task, *rest, **options)

    monkeypatch.setattr(member_fits, "fit_task", dies)
    with pytest.raises(MemoryError):
        AutoClassifier(**options).fit(X, Y, W)

    def never(*_: Any, **__: Any) -> int:
        raise AssertionError

    assert "plain-0" not in begun  # the search made it
    finished, n_begun = {"plain-0", *begun[:4]}, len(begun)
    monkeypatch.setattr(auto, "PlainSearch", never)
    resumed = AutoClassifier(**options).fit(X, Y, W)
    np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))
    assert resumed.choice_ == whole.choice_
    assert resumed.cut_ == whole.cut_
    assert not finished & set(begun[n_begun:])


def test_killed_between_the_fit_of_the_search_and_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It then searches again: a number is never there without its fit."""
    options = {**SMALL, "n_trees": None, "checkpoint": tmp_path}
    whole = AutoClassifier(**{**options, "checkpoint": None}).fit(X, Y, W)
    keep = member_fits.keep_fit

    def dies(*given: Any) -> None:
        keep(*given)
        raise MemoryError

    monkeypatch.setattr(auto, "keep_fit", dies)
    with pytest.raises(MemoryError):
        AutoClassifier(**options).fit(X, Y, W)
    monkeypatch.setattr(auto, "keep_fit", keep)
    resumed = AutoClassifier(**options).fit(X, Y, W)
    assert resumed.n_trees_ == whole.n_trees_
    np.testing.assert_array_equal(resumed.predict_proba(X), whole.predict_proba(X))


def test_negative_weights_need_a_policy() -> None:
    w = W.copy()
    w[::50] *= -1
    with pytest.raises(InputError, match="negative"):
        AutoClassifier(**SMALL).fit(X, Y, w)
    model = AutoClassifier(**SMALL, negative_weights="zero").fit(X, Y, w)
    assert model.significance(*OTHERS) > 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"cut": "zero"}, "a blend of ranks has none: use another cut"),
        ({"library": "cb"}, "library must be one of auto, xgboost, lightgbm, catboost, histogram, got 'cb'"),
        ({"n_trees": 0}, "n_trees must be an integer of at least 1, got 0"),
        ({"params": {"n_estimators": 3}}, r"params\['n_estimators'\] cannot be set: use n_trees"),
        ({"params": {"max_iter": 3}, "library": "histogram"}, r"params\['max_iter'\] cannot be set"),
        (
            {"params": {"max_dept": 3}},
            r"params\['max_dept'\] is not a parameter that xgboost uses; did you mean 'max_depth",
        ),
        ({"params": {"max_dpth": 3}, "library": "histogram"}, r"params\['max_dpth'\] .* did you mean 'max_depth'"),
        ({"params": [3], "library": "histogram"}, "params must be a dictionary of the library's parameters"),
    ],
)
def test_errors(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        AutoClassifier(**{**SMALL, **options}).fit(X, Y, W)


def test_a_net_is_a_member_if_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    small = NetClassifier(width=4, depth=1, epochs=2, momenta="auto")
    monkeypatch.setattr(auto, "NetClassifier", lambda **_: clone(small))
    model = AutoClassifier(**{**SMALL, "net": "auto"}).fit(X, Y, W)
    assert "net" in model.comparisons_
    assert "net " in model.choice_
    with monkeypatch.context() as patch:
        patch.setattr(auto, "choose_blend", lambda scores, *_, **__: Choice(tuple(scores), {}))
        weights = AutoClassifier(**{**SMALL, "net": "auto"}).fit(X, Y, W).blend_.weights
    np.testing.assert_allclose(weights, [1 / 6, 1 / 6, 1 / 6, 1 / 2])  # it weighs as much as all others
    if "net" in dict(model.members_):
        save(model, tmp_path / "model")
        np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(X), model.predict_proba(X))
    without = AutoClassifier(**{**SMALL, "net": "auto", "fast": True}).fit(X, Y, W)
    assert {name for name, _ in without.members_} == {"plain"}
    monkeypatch.setattr(auto, "installed", lambda _: False)
    assert "net" not in AutoClassifier(**{**SMALL, "net": "auto"}).fit(X, Y, W).comparisons_
    monkeypatch.undo()
    assert "net" not in AutoClassifier(**{**SMALL, "net": "auto"}).fit(X[:900], Y[:900], W[:900]).comparisons_
    frame = pytest.importorskip("pandas").DataFrame(X).rename(columns=str)
    frame["kind"] = np.where(X[:, 0] > 0, "a", "b")
    frame["kind"] = frame["kind"].astype("category")  # no net takes it
    assert "net" not in AutoClassifier(**{**SMALL, "net": "auto"}).fit(frame, Y, W).comparisons_
    with pytest.raises(InputError, match="net must be True, False or 'auto', got 'yes'"):
        AutoClassifier(**{**SMALL, "net": "yes"}).fit(X, Y, W)
