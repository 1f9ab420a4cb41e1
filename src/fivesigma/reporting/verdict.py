"""The verdict: significance of the model on these events, what it is made of, and what speaks against it."""

from __future__ import annotations

from collections.abc import Sequence
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
    difference_error: float
    sentence: str


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
    utility: Utility,
    baseline: tuple[Any, BoolArray] | None,
    *,
    training: Sequence[Finding],
    **bootstrap: Any,
) -> Verdict:
    """Judge a model."""
    score, signal, weight = scored.arrays()
    selected = score >= model.cut_
    findings = [*training, *_findings(weight, table, utility)]
    s, b = (0.0, 0.0) if baseline is None else signal_and_background(weight, signal, baseline[1])
    if baseline is not None and not (s >= 0 and b > 0):
        text = (
            f"The baseline's cut keeps s = {s:.4g} and b = {b:.4g} of these events, which is no significance: the two "
            "are not compared."
        )
        findings.append(Finding("warning", text))
        baseline = None
    other = selected if baseline is None else baseline[1]
    pair = paired_difference(other, selected, signal, weight, utility, **bootstrap)
    comparison = None
    if baseline is not None:
        sentence = pair.ahead("the baseline", "the model")
        comparison = Comparison(
            name=_kind(baseline[0]),
            significance=pair.first,
            interval=pair.first_interval,
            cut=float(baseline[0].cut_),
            s=s,
            b=b,
            difference=pair.difference,
            difference_interval=pair.difference_interval,
            difference_error=pair.difference_error,
            sentence=f"{sentence[0].upper()}{sentence[1:]}.",
        )
    row = table.chosen
    return Verdict(
        name=_kind(model) if baseline is not None else type(model).__name__,
        utility=utility_label(utility),
        significance=pair.second,
        interval=pair.second_interval,
        level=bootstrap["level"],
        cut=float(model.cut_),
        fraction=float(table.fraction[row]),
        s=float(table.s[row]),
        b=float(table.b[row]),
        effective_s=float(table.effective_s[row]),
        effective_b=float(table.effective_b[row]),
        total_s=float(table.s[0]),
        total_b=float(table.b[0]),
        comparison=comparison,
        findings=findings,
    )


def _kind(model: Any) -> str:
    """Name a model so that plain and cascade can be told apart."""
    plain = getattr(model, "cascade", True) is False or getattr(model, "max_rounds", None) == 0
    if plain:
        return "plain model"
    name = type(model).__name__
    return next((kind for kind in ("Pool", "Cascade") if kind in name), name).lower()


def _findings(weight: Array, table: CutTable, utility: Utility) -> list[Finding]:
    """What these events themselves say."""
    out = []
    few = float(table.effective_b[table.chosen])
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
