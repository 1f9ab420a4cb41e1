"""The verdict: what a model is worth on these events, what speaks against it, and where the numbers come from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

import fivesigma
from fivesigma._tools.extras import versions_in_use
from fivesigma._types import Array, BoolArray
from fivesigma.cut.best_cut import MIN_EFFECTIVE
from fivesigma.cut.bootstrap import Interval, Paired, paired_difference
from fivesigma.datasets.columns import Columns
from fivesigma.datasets.digest import digest_of, events_digest, recognise, row_digests
from fivesigma.datasets.events import Events
from fivesigma.reporting.cuts import CutTable, utility_label
from fivesigma.scored.scored_events import ScoredEvents
from fivesigma.significance import Utility
from fivesigma.yields import signal_and_background

FEW = 100.0  # effective background events, known to 10 %
SAME_YIELDS = 0.1  # yields that differ by less stand for the same experiment


@dataclass(frozen=True)
class Finding:
    """Something that a reader must know: a ``"warning"`` or a ``"note"``."""

    level: str
    text: str


@dataclass(frozen=True)
class Comparison:
    """The baseline on the same events."""

    name: str
    cut: float
    s: float
    b: float
    pair: Paired  # the baseline first, then the model, and their paired difference

    @property
    def sentence(self) -> str:
        """Which of the two is ahead."""
        said = self.pair.ahead("the baseline", "the model")
        return f"{said[0].upper()}{said[1:]}."


@dataclass(frozen=True)
class Verdict:
    """Significance at the model's cut."""

    name: str
    utility: str
    significance: float
    interval: Interval  # bootstrap interval of probability `level`, from the statistics of the simulated events
    level: float
    cut: float  # the model's cut and the unweighted share of events that it selects
    fraction: float
    s: float  # yields and effective counts at the cut, and yields of all events
    b: float
    effective_s: float
    effective_b: float
    total_s: float
    total_b: float
    comparison: Comparison | None
    findings: list[Finding]


def verdict_of(
    model: Any,
    scored: ScoredEvents,
    table: CutTable,
    baseline: tuple[Any, BoolArray] | None,
    training: Iterable[Finding],
    **bootstrap: Any,
) -> Verdict:
    """Judge a model, beside a baseline and what that selects."""
    score, signal, weight = scored.arrays()
    selected = score >= model.cut_
    findings = [*training, *_findings(weight, table, model.utility_)]
    other, other_selected = baseline or (None, selected)
    s, b = signal_and_background(weight, signal, other_selected)
    if not (s >= 0 and b > 0) and other is not None:
        text = (
            f"The baseline's cut keeps s = {s:.4g} and b = {b:.4g} of these events, which is no significance: the two "
            "are not compared."
        )
        findings.append(Finding("warning", text))
        other, other_selected = None, selected
    pair = paired_difference(other_selected, selected, signal, weight, model.utility_, **bootstrap)
    at_cut = ("fraction", "s", "b", "effective_s", "effective_b")
    return Verdict(
        name=type(model).__name__ if other is None else _kind(model),
        utility=utility_label(model.utility_),
        significance=pair.second,
        interval=pair.second_interval,
        level=bootstrap["level"],
        cut=float(model.cut_),
        **{name: float(getattr(table, name)[table.chosen]) for name in at_cut},
        total_s=float(table.s[0]),
        total_b=float(table.b[0]),
        comparison=None if other is None else Comparison(_kind(other), float(other.cut_), s, b, pair),
        findings=findings,
    )


def _kind(model: Any) -> str:
    """Name a model so that plain and cascade can be told apart."""
    if getattr(model, "cascade", True) is False:
        return "plain model"
    name = type(model).__name__
    return next((kind for kind in ("Pool", "Cascade") if kind in name), name).lower()


def _findings(weight: Array, table: CutTable, utility: Utility) -> Iterator[Finding]:
    """What these events themselves say."""
    few = float(table.effective_b[table.chosen])
    rests = f"The background above the cut rests on {few:.{0 if few >= MIN_EFFECTIVE else 1}f} effective events"
    if few < MIN_EFFECTIVE:
        fewer = f"fewer than {MIN_EFFECTIVE:.0f}: neither b nor the significance can be trusted"
        yield Finding("warning", f"{rests}, {fewer}.")
    elif few < FEW:
        yield Finding("note", f"{rests}, so b is known to {100 * few**-0.5:.0f} %.")
    if table.floor < MIN_EFFECTIVE:
        text = "There is little background in all: cuts that keep as little as one effective event are shown."
        yield Finding("warning", text)
    negative = weight < 0
    if negative.any():
        shares = 100 * float(negative.mean()), 100 * float(-weight[negative].sum() / np.abs(weight).sum())
        text = "{:.1f} % of the events have negative weights, with {:.1f} % of the absolute weight.".format(*shares)
        yield Finding("note", text)
    if not utility.guaranteed:
        text = f"{type(utility).__name__} is not convex: a smaller weighted error does not have to raise it."
        yield Finding("note", text)


@dataclass(frozen=True)
class Provenance:
    """Where the numbers come from."""

    model: str  # class of the model
    parameters: dict[str, str]  # those that differ from the defaults come first
    data_hash: str  # of the events of this report
    trained_on: str  # hash of the training events, empty if the model does not say
    events: int
    features: int
    rounds: int
    training_seconds: float
    versions: dict[str, str]
    created: str  # UTC
    command: str  # what writes this report again
    notes: list[str]  # what was left out or changed when the events were read


def training_findings(model: Any, events: Events | ScoredEvents, trained_on: Events | None) -> Iterator[Finding]:
    """What is known of training events among the events of a report."""
    if isinstance(events, ScoredEvents):
        return  # without features nothing can be known
    names = Columns.of_model(model).feature_names or None
    known = np.asarray(getattr(model, "training_rows_", ()), dtype=np.uint64)
    if trained_on is not None:
        known = np.unique(row_digests(trained_on.table(names)))
    shared = recognise(events.table(names), known)
    by = getattr(model, "by", None)
    if shared.seen and by is not None:
        text = (
            f"{shared} are training events. Each was scored by the fits that did not see its fold ({by}), so the "
            "significance is that of new events, but for the cut, which was chosen on all of them."
        )
        yield Finding("note", text)
    elif shared.seen == shared.told and shared.distinct:
        text = "The model was trained on all of these events: the significance is too high. Report on others."
        yield Finding("warning", text)
    elif shared.seen:
        text = f"{shared} have the features of training events: if they are the same, the significance is too high."
        yield Finding("warning", text)
    if trained_on is not None:
        then, now = (signal_and_background(e.weight, e.is_signal) for e in (trained_on, events))
        if not np.allclose(then, now, rtol=SAME_YIELDS):
            text = (
                "In training the weights summed to {} signal and {} background events, here to {} and {}: "
                "significances by round belong to the former."
            ).format(*(f"{v:,.0f}" if v >= 100 else f"{v:.3g}" for v in (*then, *now)))
            yield Finding("note", text)


def feature_names_of(model: Any, final: Any, events: Events | ScoredEvents) -> tuple[str, ...]:
    """Names of the features that the last step of a model sees, or their numbers where they are not known."""
    n = int(getattr(final, "n_features_in_", 0))
    known: Any = Columns.of_model(final).feature_names
    if not known and final is model and isinstance(events, Events):
        known = events.feature_names
    if not known and hasattr(model, "steps"):
        with suppress(AttributeError, ValueError):  # not every step knows
            known = model[:-1].get_feature_names_out()
    return tuple(map(str, known)) if len(known) else tuple(f"feature {j}" for j in range(n))


def python_call(objects: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """The call that writes a report again."""
    words = ["model", "events", *(f"{name}={name}" for name, value in objects.items() if value is not None)]
    default = {"yields": None, "title": None, "level": 0.68, "n_boot": 1000, "random_state": 0}
    for name, value in values.items():
        if value != default[name]:
            words.append(f"{name}={tuple(map(float, value)) if name == 'yields' else value!r}")
    return f'fivesigma.report({", ".join(words)}).write("report.html")'


def provenance_of(
    model: Any, final: Any, events: Events | ScoredEvents, trained_on: Events | None, command: str
) -> Provenance:
    """Gather what is known."""
    history, chosen = getattr(final, "history_", []), getattr(final, "choice_", None)  # an `AutoClassifier` says why
    given = events.notes if isinstance(events, Events) else ("The scores were given, not computed here.",)
    hashed = events_digest(trained_on) if trained_on is not None else str(getattr(final, "data_hash_", ""))
    if isinstance(events, Events):
        own = events_digest(events)
    else:
        score, signal, weight = events.arrays()
        own = digest_of(score, weight, signal)  # scores stand in place of the features
    return Provenance(
        model=type(final).__name__,
        parameters=_parameters(final),
        data_hash=own,
        trained_on=hashed,
        events=len(events),
        features=len(feature_names_of(model, final, events)),
        rounds=len(history),
        training_seconds=float(sum(getattr(r, "seconds", 0.0) for r in history)),
        versions={"fivesigma": fivesigma.__version__, **versions_in_use()},
        created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        command=command,
        notes=[*([f"Chosen on held-out events: {chosen}."] if chosen else []), *given],
    )


def _parameters(model: Any) -> dict[str, str]:
    """Parameters as text, those that were chosen first."""
    found = {k: " ".join(repr(v).split()) for k, v in model.get_params(deep=False).items() if k != "verbose"}
    default = {k: repr(v) for k, v in type(model)().get_params(deep=False).items()}
    ordered = sorted(found, key=lambda k: (found[k] == default.get(k), k))
    return {k: found[k] if len(found[k]) <= 300 else f"{found[k][:300]}…" for k in ordered}
