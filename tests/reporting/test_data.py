"""The numbers of a report are those of the library."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fivesigma
from fivesigma import AMS2, AMS3, CascadeClassifier, CascadePool, RelativeBackground, scan
from fivesigma.cut.bootstrap import paired_difference
from fivesigma.datasets import Events, from_arrays, make_htautau
from fivesigma.datasets.digest import events_digest
from fivesigma.errors import InputError, TrainingEventsWarning
from fivesigma.reporting import Report
from fivesigma.reporting.cuts import usual_utilities, utility_label
from fivesigma.reporting.page import plain
from fivesigma.yields import yields
from tests.reporting.conftest import B_REG, grown
from tests.reporting.synthetic import Oracle


def blobs(n: int = 4000, seed: int = 0) -> Events:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = rng.normal(size=(n, 3)) + 1.2 * y[:, None] * np.array([1.0, 0.5, 0.0])
    return from_arrays(X, y, np.where(y == 1, 200.0, 4000.0) / (n / 2), signal=1)


def test_verdict_is_the_librarys(made: Report, cascade: Any, plain_model: Any, test_events: Events) -> None:
    v, e = made.data.verdict, test_events
    assert v.significance == pytest.approx(cascade.significance(e.X, e.y, e.weight), rel=1e-12)
    first, second = (m.predict_proba(e.X)[:, 1] >= m.cut_ for m in (plain_model, cascade))
    pair = paired_difference(first, second, e.is_signal, e.weight, AMS2(b_reg=B_REG), n_boot=200)
    assert v.interval == pair.second_interval
    assert v.comparison is not None
    assert v.comparison.pair.difference == pair.difference
    assert v.comparison.pair == pair
    assert (v.comparison.name, v.name) == ("plain model", "cascade")
    kept = yields(second, e.y, e.weight, pos_label="s")
    assert (v.s, v.b) == pytest.approx((kept.s, kept.b))
    assert (v.effective_s, v.effective_b) == pytest.approx((kept.effective_s, kept.effective_b))
    assert v.fraction == second.mean()


def test_every_row_of_the_slider_is_the_librarys(made: Report, cascade: Any, test_events: Events) -> None:
    c, e = made.data.cuts, test_events
    p = cascade.predict_proba(e.X)[:, 1]
    assert 100 < c.cut.size <= 400
    assert (np.diff(c.cut) > 0).all()
    assert c.cut[c.chosen] == cascade.cut_
    total = yields(np.ones(len(e), bool), e.y, e.weight, pos_label="s")
    for i in range(0, c.cut.size, 7):
        kept = yields(p >= c.cut[i], e.y, e.weight, pos_label="s")
        assert (c.s[i], c.b[i]) == pytest.approx((kept.s, kept.b))
        assert c.efficiency[i] == pytest.approx(kept.s / total.s)
        assert c.background_efficiency[i] == pytest.approx(kept.b / total.b)
        assert c.purity[i] == pytest.approx(kept.s / (kept.s + kept.b))
        assert c.effective_b[i] == pytest.approx(kept.effective_b)
        if kept.effective_b < c.floor:
            assert np.isnan(c.significance[i])
    assert len(c.utilities) == 6
    counts = np.isfinite(c.significance)
    for utility in usual_utilities(B_REG, float(c.b[c.chosen])):
        shown = c.utilities[utility_label(utility, B_REG)]
        np.testing.assert_allclose(shown[counts], utility.value(c.s[counts], c.b[counts]))
        assert np.isnan(shown[~counts]).all()
    peak = scan(p, e.is_signal, e.weight, AMS2(b_reg=B_REG), "peak")
    assert c.significance[c.best] == pytest.approx(peak.significance, rel=1e-12)
    assert c.auc == pytest.approx(roc_auc_score(e.is_signal, p, sample_weight=e.weight), abs=1e-9)


def test_minorants_lie_below_the_objective_and_touch_it(made: Report) -> None:
    progress = made.data.progress
    assert len(progress.minorants) >= 2
    for m in progress.minorants:
        gap = progress.objective - m.value
        assert gap.min() >= -1e-12
        assert m.value[m.top] == m.value.max()
        if m.touch is not None:
            assert gap[m.touch] == gap.min()
            assert gap[m.touch] < 0.01 * progress.objective[m.touch]
    assert any(m.touch is not None for m in progress.minorants)


def test_rounds_are_those_of_the_history(made: Report, cascade: Any) -> None:
    (series,) = made.data.progress.series
    assert series.round == [r.index for r in cascade.history_]
    np.testing.assert_array_equal(series.u, [r.following.u for r in cascade.history_])
    assert np.nanmax(series.significance) == max(r.significance for r in cascade.history_)
    looked = [r.index for r in cascade.history_ if r.train_s is not None]
    assert np.flatnonzero(np.isfinite(series.train)).tolist() == looked


def test_histograms_and_yields_add_up(made: Report, test_events: Events) -> None:
    d, e = made.data, test_events
    assert {p.name for p in d.scores.processes} == set(np.unique(np.asarray(e.process)))
    for p in d.scores.processes:
        assert p.values.sum() == pytest.approx(e.weight[e.process == p.name].sum())
    assert [p.signal for p in d.scores.processes] == sorted(p.signal for p in d.scores.processes)
    assert np.square(d.scores.error).sum() == pytest.approx(np.square(e.weight).sum())
    assert sum(r.selected for r in d.processes if r.signal) == pytest.approx(d.verdict.s)
    assert sum(r.selected for r in d.processes if not r.signal) == pytest.approx(d.verdict.b)
    assert sum(r.events for r in d.processes) == len(e)


def test_importance_is_named_and_sorted(made: Report, cascade: Any, test_events: Events) -> None:
    found = made.data.importance
    assert found is not None
    by_name = dict(zip(test_events.feature_names, cascade.feature_importances_, strict=True))
    # Their sum may differ from one by a rounding, by which the report divides.
    assert found.share == pytest.approx(sorted(by_name.values(), reverse=True)[: len(found.share)], rel=1e-14)
    assert found.share[0] == pytest.approx(by_name[found.names[0]], rel=1e-14)
    assert sum(found.share) + found.rest == pytest.approx(1.0)


def test_yields_rescale(cascade: Any, test_events: Events) -> None:
    e = test_events
    found = fivesigma.report(cascade, e, yields=(100.0, 50_000.0), n_boot=20).data.verdict
    assert (found.total_s, found.total_b) == pytest.approx((100.0, 50_000.0))
    assert found.significance == pytest.approx(cascade.significance(e.X, e.y, e.weight, yields=(100.0, 50_000.0)))


def test_training_events_are_noticed(cascade: Any, train: Events, test_events: Events) -> None:
    mixed = fivesigma.report(cascade, train[:3000], trained_on=train, n_boot=10).data
    assert any(f.level == "warning" and "trained on all of these" in f.text for f in mixed.verdict.findings)
    assert mixed.provenance.trained_on == events_digest(train)
    some = fivesigma.report(cascade, train[:3000], trained_on=train[2000:], n_boot=10).data.verdict.findings
    assert any("In training the weights summed to" in f.text for f in some)
    assert some[0].text.startswith("1,000 of 3,000 events have the features of training events")
    clean = fivesigma.report(cascade, test_events, trained_on=train, n_boot=10).data
    assert not any("train" in f.text for f in clean.verdict.findings)


def test_hash_depends_on_all_that_counts(test_events: Events) -> None:
    e = test_events[:50]
    hashes = {
        events_digest(e),
        events_digest(replace(e, weight=e.weight * 2)),
        events_digest(replace(e, X=e.X + 1)),
        events_digest(e[1:]),
    }
    assert len(hashes) == 4
    assert events_digest(e) == events_digest(e[:])


def test_little_background_is_a_warning() -> None:
    model = CascadeClassifier(LogisticRegression(), cascade=False, random_state=0)
    events = blobs()
    model.fit(events.X, events.y, events.weight)
    model.cut_ = float(np.sort(model.predict_proba(events.X)[events.y == 0, 1])[-4])
    found = fivesigma.report(model, events, n_boot=50).data
    assert found.verdict.effective_b == pytest.approx(4.0)
    assert any(f.level == "warning" and "4.0 effective events" in f.text for f in found.verdict.findings)
    assert "plain model" in found.progress.note
    assert found.importance is not None
    assert found.importance.kind == "permutation"  # a logistic regression has no gains
    assert "–" in Report(found).html


def test_restarts_pools_and_plain_members() -> None:
    events, others = blobs(), blobs(seed=1)
    members = [
        ("plain", LogisticRegression()),
        ("cascade", CascadeClassifier(LogisticRegression(), max_rounds=3, n_restarts=2)),
    ]
    pool = CascadePool(members, random_state=0, n_jobs=1).fit(events.X, events.y, events.weight)
    data = fivesigma.report(pool, others, n_boot=20).data
    assert [s.name for s in data.progress.series] == ["plain", "cascade restart 0", "cascade restart 1"]
    assert data.progress.of.startswith("cascade")
    assert data.progress.minorants
    assert [p.name for p in data.scores.processes] == ["background", "signal"]
    assert data.verdict.significance == pytest.approx(pool.significance(others.X, others.y, others.weight))
    assert "cascade restart 1" in Report(data).html


def test_what_was_chosen_and_why_is_said() -> None:
    train, test = blobs(1000), blobs(1000, seed=1)
    options: dict[str, Any] = {"n_trees": 4, "cv": 2, "net": False, "random_state": 0, "n_jobs": 1}
    model = fivesigma.AutoClassifier(**options, params={"learning_rate": 0.3}).fit(train)
    made = fivesigma.report(model, test, n_boot=20)
    assert "over plain" in model.choice_
    assert made.data.provenance.notes[0] == f"Chosen on held-out events: {model.choice_}."
    assert model.choice_ in made.html


def test_utility_without_u_and_utilities_of_ones_own() -> None:
    events = blobs()
    model = CascadeClassifier(LogisticRegression(), utility=RelativeBackground(0.05), max_rounds=2, random_state=0)
    model.fit(events.X, events.y, events.weight)
    data = fivesigma.report(model, events, utilities=[AMS3()], n_boot=20).data
    assert list(data.cuts.utilities) == ["relative background (fraction = 0.05)", "AMS3"]
    assert "has no u" in data.progress.note
    assert any("not convex" in f.text for f in data.verdict.findings)
    assert "RelativeBackground has no u" in Report(data).html


def test_negative_weights_are_shown() -> None:
    events = blobs()
    weight = np.where(np.arange(len(events)) % 20 == 0, -events.weight, events.weight)
    model = CascadeClassifier(LogisticRegression(), cascade=False, negative_weights="zero", random_state=0)
    model.fit(events.X, events.y, weight)
    data = fivesigma.report(model, replace(events, weight=weight), n_boot=20).data
    assert any("5.0 % of the events have negative weights" in f.text for f in data.verdict.findings)
    assert len(Report(data).html) > 10_000


def test_columns_are_found_by_name(cascade: Any, test_events: Events, made: Report) -> None:
    order = np.random.default_rng(0).permutation(len(test_events.feature_names))
    shuffled = replace(
        test_events, X=test_events.X[:, order], feature_names=tuple(test_events.feature_names[j] for j in order)
    )
    cascade.columns_ = {"features": list(test_events.feature_names)}
    try:
        again = fivesigma.report(cascade, shuffled, n_boot=10).data
        assert again.verdict.significance == made.data.verdict.significance
        renamed = replace(test_events, feature_names=("other", *test_events.feature_names[1:]))
        with pytest.raises(InputError, match="no feature 'DER_mass_MMC'"):
            fivesigma.report(cascade, renamed)
    finally:
        del cascade.columns_


def test_refusals_are_one_sentence(cascade: Any, test_events: Events) -> None:
    e = test_events
    with pytest.raises(InputError, match=r"events must be Events, .* datasets.from_arrays\(X, y, weight\)"):
        fivesigma.report(cascade, cast(Any, e.X))
    with pytest.raises(InputError, match="LogisticRegression without a cut cannot be reported on"):
        fivesigma.report(LogisticRegression(), e)
    with pytest.raises(InputError, match="signal and background"):
        fivesigma.report(cascade, e[e.is_signal])
    with pytest.raises(InputError, match="keeps no background"):
        fivesigma.report(cascade, e[e.is_signal | (cascade.predict_proba(e.X)[:, 1] < cascade.cut_)])
    with pytest.raises(InputError, match="29 features, and the model was trained with 30"):
        fivesigma.report(cascade, replace(e, X=e.X[:, 1:], feature_names=e.feature_names[1:]))


def test_a_model_of_frames_gets_its_columns() -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("polars")
    events = blobs()
    frame = pandas.DataFrame(events.X, columns=list(events.feature_names))
    model = CascadeClassifier(LogisticRegression(), max_rounds=1, random_state=0).fit(frame, events.y, events.weight)
    found = fivesigma.report(model, events, n_boot=10).data.verdict
    with pytest.warns(TrainingEventsWarning):
        assert found.significance == pytest.approx(model.significance(frame, events.y, events.weight))


def test_a_model_without_rounds() -> None:
    model = Oracle()
    X = np.linspace(0.01, 0.99, 400)[:, None]
    events = from_arrays(X, (X[:, 0] > 0.7) ^ (np.arange(400) % 3 == 0), np.ones(400), signal=True)
    data = fivesigma.report(model, events, baseline=model, n_boot=20).data
    assert data.progress.series == []
    assert data.provenance.rounds == 0
    assert data.verdict.comparison is not None
    assert data.verdict.comparison.name == "oracle"
    assert data.verdict.comparison.sentence == "These events do not tell the two apart by two standard errors."
    page = Report(data).html
    assert 'id="progress"' not in page
    assert 'id="fig-significance"' in page


def test_the_sentence_says_who_is_ahead(cascade: Any, plain_model: Any, made: Report, test_events: Events) -> None:
    close = made.data.verdict.comparison
    assert close is not None
    assert 0 < close.pair.difference < 2 * close.pair.difference_error
    assert close.sentence == "These events do not tell the two apart by two standard errors."
    loose = copy.copy(plain_model)
    loose.cut_ = 0.05
    forth = fivesigma.report(cascade, test_events, baseline=loose, n_boot=200).data.verdict.comparison
    back = fivesigma.report(loose, test_events, baseline=cascade, n_boot=200).data.verdict.comparison
    assert forth is not None
    assert back is not None
    assert back.pair.difference == pytest.approx(-forth.pair.difference)
    assert forth.pair.difference > 2 * forth.pair.difference_error > 0
    assert forth.sentence == "The model is ahead on these events, by more than two standard errors."
    assert back.sentence == "The baseline is ahead on these events, by more than two standard errors."


def test_numbers_are_plain_json(made: Report) -> None:
    sent = json.loads(json.dumps(plain(made.data), allow_nan=False))
    assert sent["verdict"]["significance"] == pytest.approx(made.data.verdict.significance, rel=1e-7)
    assert None in sent["cuts"]["significance"]  # a cut that is not valid


def test_a_million_events_make_a_small_page(cascade: Any) -> None:
    few = make_htautau(20_000, random_state=5)
    many = few[np.tile(np.arange(20_000), 50)]
    many = replace(many, weight=many.weight / 50)
    found = fivesigma.report(cascade, many, n_boot=20)
    assert found.data.provenance.events == 1_000_000
    assert len(found.html.encode()) < 2_000_000
    assert found.data.verdict.significance == pytest.approx(cascade.significance(few.X, few.y, few.weight))


def test_many_processes_are_taken_together(test_events: Events, cascade: Any) -> None:
    names = np.array([f"p{i % 40:02}" for i in range(len(test_events))])
    data = fivesigma.report(cascade, replace(test_events, process=names), n_boot=10).data
    assert len(data.scores.processes) == 14
    assert data.scores.processes[0].name == "34 smaller processes"
    assert len(data.processes) == 80
    assert data.processes[0].name == "p00 (signal)"
    total = sum(float(p.values.sum()) for p in data.scores.processes)
    assert total == pytest.approx(test_events.weight.sum())


def test_a_long_cascade_is_thinned(train: Events, test_events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fivesigma.reporting.cuts.MOST_ROUNDS", 10)
    model = grown(train[:4000], n_trees=37)
    (series,) = fivesigma.report(model, test_events, n_boot=10).data.progress.series
    assert len(series.round) <= 11
    assert series.round[-1] == model.history_[-1].index


def test_a_utility_with_its_own_h() -> None:
    events = blobs()
    utility = fivesigma.FDivergence(lambda t: t * t / 2, lambda t: t, h=np.sqrt)
    model = CascadeClassifier(LogisticRegression(), utility=utility, max_rounds=2, random_state=0)
    model.fit(events.X, events.y, events.weight)
    data = fivesigma.report(model, events, n_boot=20).data
    assert data.progress.name == "F"
    assert next(iter(data.cuts.utilities)) == data.verdict.utility == "FDivergence"
    assert len(data.cuts.utilities) == 7
    assert "FDivergence" in Report(data).html


def ended(found: Report) -> list[str]:
    return [finding.text for finding in found.data.verdict.findings]


@pytest.mark.parametrize("keep", ["array", "Events"])
def test_training_events_are_known_again_by_their_rows(keep: str, train: Events, test_events: Events) -> None:
    """Whole, shuffled, a part of them, with other weights; fitted as arrays or as Events."""
    few = train[:6000]
    model = fivesigma.GrownCascadeClassifier(n_trees=5, b_reg=B_REG, random_state=0, n_jobs=1)
    model = model.fit(few.X, few.y, few.weight) if keep == "array" else model.fit(few)
    order = np.random.default_rng(0).permutation(len(few))
    for events in (few, few[order], few[order[:3000]], replace(few, weight=2 * few.weight)):
        assert ended(fivesigma.report(model, events, n_boot=10))[0].startswith("The model was trained on all of these")
    half = Events.concatenate([few[:3000], test_events[:3000]])
    (said,) = [text for text in ended(fivesigma.report(model, half, n_boot=10)) if "training events" in text]
    share = float(said.removeprefix("about ").partition(" %")[0])
    assert share == pytest.approx(50, abs=4)
    assert not any("training events" in text for text in ended(fivesigma.report(model, test_events, n_boot=10)))


def test_events_that_are_scored_out_of_fold_are_not_called_training_events(train: Events) -> None:
    numbered = replace(train[:4000], kept={"eventNumber": np.arange(4000)})
    model = CascadePool([("plain", LogisticRegression())], cv=2, by="eventNumber", random_state=0, n_jobs=1, b_reg=10.0)
    events = replace(numbered, X=np.clip(np.nan_to_num(numbered.X) / 100, -3, 3))
    (said,) = [text for text in ended(fivesigma.report(model.fit(events), events, n_boot=10)) if "training" in text]
    assert "scored by the fits that did not see its fold (eventNumber)" in said
    assert "too high" not in said


def test_a_baseline_that_keeps_no_background_does_not_end_the_report(cascade: Any, test_events: Events) -> None:
    strict = copy.copy(cascade)
    strict.cut_ = 2.0
    found = fivesigma.report(cascade, test_events, baseline=strict, n_boot=10)
    assert found.data.verdict.comparison is None
    assert "The baseline's cut keeps s = 0 and b = 0 of these events" in " ".join(ended(found))
    assert found.data.verdict.significance == pytest.approx(cascade.significance(test_events))


def test_the_last_step_of_a_pipeline_and_what_a_search_found(train: Events, test_events: Events) -> None:
    def inside() -> Any:
        learner = CascadeClassifier(LogisticRegression(), max_rounds=1, b_reg=B_REG, random_state=0)
        return make_pipeline(SimpleImputer(), StandardScaler(), learner)

    few, other = train[:4000], test_events[:4000]
    whole = inside().fit(few.X, few.y, cascadeclassifier__sample_weight=few.weight)
    found = fivesigma.report(whole, other, baseline=whole, n_boot=10).data
    expected = whole[-1].significance(whole[:-1].transform(other.X), other.y, other.weight)
    assert found.verdict.significance == pytest.approx(expected)
    assert found.verdict.comparison is not None
    assert found.provenance.model == "CascadeClassifier"
    assert found.importance is not None
    assert set(found.importance.names) <= set(other.feature_names)
    search = GridSearchCV(inside(), {"simpleimputer__strategy": ["mean"]}, cv=2)
    search.fit(few.X, few.y, cascadeclassifier__sample_weight=few.weight)
    again = fivesigma.report(search, other, n_boot=10).data
    assert again.verdict.significance == pytest.approx(expected)


def test_every_model_has_importances() -> None:
    """The first feature says most and the last nothing, whatever a model knows of its gains."""
    train, test = blobs(3000), blobs(3000, seed=1)
    options: dict[str, Any] = {"random_state": 0, "n_jobs": 1}
    for model, kind in (
        (fivesigma.AutoClassifier(n_trees=10, cv=2, fast=True, **options), "gain"),
        (fivesigma.DecomposedClassifier(**options), "permutation"),
        (CascadePool([("a", LogisticRegression()), ("b", fivesigma.GrownCascadeClassifier(n_trees=5))], **options),
         "permutation"),
    ):  # fmt: skip
        found = fivesigma.report(model.fit(train), test, n_boot=10).data.importance
        assert found is not None
        assert (found.kind, found.names[0], found.names[-1]) == (kind, "x0", "x2")
        scored = fivesigma.ScoredEvents.of(model, test)
        unseen = fivesigma.report(model, scored, n_boot=10).data.importance
        assert unseen is not None
        assert unseen.kind == "gain"


def test_yields_as_a_table_of_latex(made: Report, cascade: Any, test_events: Events) -> None:
    rows = made.latex().splitlines()
    assert (rows[0], rows[-1]) == (r"\begin{tabular}{lrr}", r"\end{tabular}")
    d = made.data
    assert len(rows) == len(d.processes) + 2 + 6
    assert rf"signal & {d.verdict.total_s:.4g} & {d.verdict.s:.4g} $\pm$" in rows[-4]
    assert rows[4].startswith(d.processes[0].name.replace("_", r"\_"))
    names = np.full(len(test_events), "50% & more_of {it}")
    odd = fivesigma.report(cascade, replace(test_events, process=names), n_boot=10).latex()
    assert r"50\% \& more\_of \{it\}" in odd


def test_a_score_that_knows_the_systematics_has_a_report(train: Events, test_events: Events) -> None:
    model = fivesigma.ProfiledClassifier(cv=2, random_state=0, n_jobs=1)
    model.fit(train[:3000], systematics={"W": fivesigma.Normalisation("wjets", 0.2)})
    found = fivesigma.report(model, test_events, n_boot=10)
    assert found.data.verdict.significance == pytest.approx(model.significance(test_events))
    assert "ProfiledClassifier" in found.html


def test_no_link_leads_to_a_page_of_scikit_learn() -> None:
    for model in (fivesigma.GrownCascadeClassifier(), fivesigma.AutoClassifier()):
        assert "generated/fivesigma" not in model._repr_html_()
