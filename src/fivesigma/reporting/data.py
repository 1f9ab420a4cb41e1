"""All numbers of a report: histograms and curves of a bounded size, never events."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from fivesigma.categories import Categories
from fivesigma.categories.several_signals import ScoreCategories
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError
from fivesigma.likelihood.shifts import Normalisation
from fivesigma.reporting.categories import CategoryTable, category_table
from fivesigma.reporting.cuts import CutTable, cut_table
from fivesigma.reporting.histogram import ProcessRow, ScoreHistogram, process_rows, score_histogram
from fivesigma.reporting.importance import Importance, importance_of
from fivesigma.reporting.provenance import (
    Provenance,
    feature_names_of,
    provenance_of,
    python_call,
    shared_events,
)
from fivesigma.reporting.rounds import Progress, progress_of
from fivesigma.reporting.shifts import Systematics, systematics_of, variations_of
from fivesigma.reporting.verdict import Verdict, verdict_of
from fivesigma.scored.scored_events import ScoredEvents, signal_probability
from fivesigma.significance import Utility
from fivesigma.yields import number_processes, signal_and_background

DIGITS = 8  # significant digits that are sent


@dataclass(frozen=True, eq=False)
class ReportData:
    """What a report shows, figure by figure."""

    title: str
    verdict: Verdict
    progress: Progress
    cuts: CutTable
    scores: ScoreHistogram
    processes: list[ProcessRow]
    categories: CategoryTable | None
    systematics: Systematics | None
    importance: Importance | None
    provenance: Provenance


def gather(
    model: Any,
    events: Events | ScoredEvents,
    *,
    baseline: Any = None,
    yields: tuple[float, float] | None = None,
    utilities: Sequence[Utility] | None = None,
    systematics: Mapping[str, tuple[Any, Any] | Normalisation] | None = None,
    categories: Categories | ScoreCategories | None = None,
    cross_fitted: float | None = None,
    trained_on: Events | None = None,
    title: str | None = None,
    command: str | None = None,
    level: float = 0.68,
    n_boot: int = 1000,
    random_state: int = 0,
) -> ReportData:
    """Compute all numbers of a report; parameters as in `fivesigma.report`."""
    _need_cut(model)
    if isinstance(events, ScoredEvents):
        for name, given in (("baseline", baseline), ("trained_on", trained_on)):
            if given is not None:
                raise InputError(f"{name} needs the features of the events: give Events, not ScoredEvents")
        scored = events if yields is None else events.scaled_to(*yields)
    elif isinstance(events, Events):
        scored = ScoredEvents.of(model, events, yields)
    else:
        raise InputError(
            f"events must be Events, as load_events makes them, or ScoredEvents, got {type(events).__name__}"
        )
    score, signal, weight = scored.arrays()
    if not signal.any() or signal.all():
        raise InputError("a report needs signal and background events, and one of the two is not there")
    selected = score >= model.cut_
    if not (selected & ~signal).any():
        raise InputError(f"the model's cut at {model.cut_:.6g} keeps no background of these events; report on more")
    utility: Utility = model.utility_
    variations = variations_of(model, events, scored, systematics)
    table = cut_table(scored, utility, float(model.cut_), utilities, variations)
    processes = number_processes(signal, scored.process, split_mixed=True)
    other = None
    if baseline is not None and isinstance(events, Events):
        _need_cut(baseline)
        other = baseline, signal_probability(baseline, events) >= baseline.cut_
    verdict = verdict_of(
        model,
        scored,
        table,
        utility,
        other,
        shared_events=shared_events(events, model, trained_on),
        training_yields=None if trained_on is None else signal_and_background(trained_on.weight, trained_on.is_signal),
        level=level,
        n_boot=n_boot,
        random_state=random_state,
    )
    again = python_call(
        {"baseline": baseline, "trained_on": trained_on, "utilities": utilities, "systematics": systematics},
        {"yields": yields, "title": title, "level": level, "n_boot": n_boot, "random_state": random_state},
    )
    return ReportData(
        title=f"{type(model).__name__} on {len(events):,} events" if title is None else title,
        verdict=verdict,
        progress=progress_of(model, utility, table),
        cuts=table,
        scores=score_histogram(score, weight, processes),
        processes=process_rows(weight, selected, processes),
        categories=category_table(categories, cross_fitted),
        systematics=systematics_of(scored, float(model.cut_), variations),
        importance=importance_of(model, feature_names_of(model, events)),
        provenance=provenance_of(model, events, trained_on, again if command is None else command),
    )


def _need_cut(model: Any) -> None:
    if not hasattr(model, "cut_"):
        raise InputError(
            f"a {type(model).__name__} without a cut cannot be reported on; fit a model of fivesigma first"
        )


def plain(value: Any) -> Any:
    """Turn records and arrays into what JSON knows; what is not finite becomes None.

    Examples
    --------
    >>> import numpy as np
    >>> plain({"z": np.array([1.0, np.nan])})
    {'z': [1.0, None]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(v) for v in (value.tolist() if isinstance(value, np.ndarray) else value)]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value
