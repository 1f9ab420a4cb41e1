"""The verdict: significance of the model on these events, what it is made of, and what speaks against it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fivesigma._types import Array, BoolArray
from fivesigma.cut.best_cut import MIN_EFFECTIVE
from fivesigma.cut.bootstrap import Interval, paired_difference
from fivesigma.reporting.cuts import CutTable, utility_label
from fivesigma.scored.scored_events import ScoredEvents
from fivesigma.significance import Utility
from fivesigma.yields import signal_and_background

SAME_YIELDS = 0.1  # yields that differ by less stand for the same experiment
FEW = 100.0  # effective background events, known to 10 %


@dataclass(frozen=True)
class Finding:
    """Something that a reader must know: a ``"warning"`` or a ``"note"``."""

    level: str
    text: str


@dataclass(frozen=True)
class Comparison:
    """The baseline on the same events, and the paired difference (model less baseline)."""

    name: str
    significance: float
    interval: Interval
    cut: float
    s: float
    b: float
    difference: float
    difference_interval: Interval
    sentence: str


@dataclass(frozen=True)
class Verdict:
    """Significance at the model's cut.

    Attributes
    ----------
    name, utility : str
    significance : float
    interval : (float, float)
        Bootstrap interval of probability `level`, from the statistics of the simulated events.
    level : float
    cut, fraction : float
        The model's cut and the unweighted share of events that it selects.
    s, b, effective_s, effective_b, total_s, total_b : float
        Yields and effective counts at the cut, and yields of all events.
    comparison : Comparison or None
    findings : list of Finding
    """

    name: str
    utility: str
    significance: float
    interval: Interval
    level: float
    cut: float
    fraction: float
    s: float
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
    utility: Utility,
    baseline: tuple[Any, BoolArray] | None,
    *,
    shared_events: int,
    training_yields: Interval | None,
    level: float,
    n_boot: int,
    random_state: int,
) -> Verdict:
    """Judge a model.

    Parameters
    ----------
    model : estimator
    scored : ScoredEvents
        With labels and weights.
    table : CutTable
        What each cut keeps; the model's cut is among them.
    utility : Utility
    baseline : (estimator, bool array), optional
        Another model and its selection of the same events.
    shared_events : int
        How many of the events the model is known to have seen in training.
    training_yields : (float, float), optional
        Sums of the training weights of signal and background.
    level, n_boot, random_state
        Of the bootstrap.
    """
    score, signal, weight = scored.arrays()
    selected = score >= model.cut_
    other = selected if baseline is None else baseline[1]
    pair = paired_difference(
        other, selected, signal, weight, utility, level=level, n_boot=n_boot, random_state=random_state
    )
    name, comparison = type(model).__name__, None
    if baseline is not None:
        s, b = signal_and_background(weight, signal, other)
        comparison = Comparison(
            name=_kind(baseline[0]),
            significance=pair.first,
            interval=pair.first_interval,
            cut=float(baseline[0].cut_),
            s=s,
            b=b,
            difference=pair.difference,
            difference_interval=pair.difference_interval,
            sentence=_sentence(pair.difference_interval),
        )
    row = table.chosen
    return Verdict(
        name=_kind(model) if baseline is not None else name,
        utility=utility_label(utility),
        significance=pair.second,
        interval=pair.second_interval,
        level=level,
        cut=float(model.cut_),
        fraction=float(table.fraction[row]),
        s=float(table.s[row]),
        b=float(table.b[row]),
        effective_s=float(table.effective_s[row]),
        effective_b=float(table.effective_b[row]),
        total_s=float(table.s[0]),
        total_b=float(table.b[0]),
        comparison=comparison,
        findings=_findings(weight, table, utility, shared_events, training_yields),
    )


def _kind(model: Any) -> str:
    """Name a model so that plain and cascade can be told apart."""
    plain = getattr(model, "cascade", True) is False or getattr(model, "max_rounds", None) == 0
    if plain:
        return "plain model"
    name = type(model).__name__
    return next((kind for kind in ("Pool", "Cascade") if kind in name), name).lower()


def _sentence(interval: Interval) -> str:
    if interval[0] > 0:
        return "The model is ahead of the baseline on these events."
    if interval[1] < 0:
        return "The baseline is ahead of the model on these events."
    return "These events do not tell the two apart."


def _findings(
    weight: Array, table: CutTable, utility: Utility, shared_events: int, training_yields: Interval | None
) -> list[Finding]:
    out = []
    few = float(table.effective_b[table.chosen])
    if shared_events >= weight.size:
        text = "The model was trained on all of these events: the significance is too high. Report on others."
        out.append(Finding("warning", text))
    elif shared_events:
        text = (
            f"{shared_events:,} of {weight.size:,} events have the features of training events: if they are the "
            "same, the significance is too high."
        )
        out.append(Finding("warning", text))
    if few < MIN_EFFECTIVE:
        text = (
            f"The background above the cut rests on {few:.1f} effective events, fewer than {MIN_EFFECTIVE:.0f}: "
            "neither b nor the significance can be trusted."
        )
        out.append(Finding("warning", text))
    elif few < FEW:
        known = 100 * few**-0.5
        text = f"The background above the cut rests on {few:.0f} effective events, so b is known to {known:.0f} %."
        out.append(Finding("note", text))
    if table.floor < MIN_EFFECTIVE:
        text = "There is little background in all: cuts that keep as little as one effective event are shown."
        out.append(Finding("warning", text))
    here = (float(table.s[0]), float(table.b[0]))
    if training_yields is not None and not np.allclose(training_yields, here, rtol=SAME_YIELDS):
        text = (
            "In training the weights summed to {} signal and {} background events, here to {} and {}: significances "
            "by round belong to the former."
        ).format(*(f"{v:,.0f}" if v >= 100 else f"{v:.3g}" for v in (*training_yields, *here)))
        out.append(Finding("note", text))
    negative = weight < 0
    if negative.any():
        lost = -weight[negative].sum() / np.abs(weight).sum()
        shares = (100 * float(negative.mean()), 100 * lost)
        text = "{:.1f} % of the events have negative weights, with {:.1f} % of the absolute weight.".format(*shares)
        out.append(Finding("note", text))
    if not utility.guaranteed:
        text = f"{type(utility).__name__} is not convex: a smaller weighted error does not have to raise it."
        out.append(Finding("note", text))
    return out
