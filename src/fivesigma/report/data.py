"""All numbers of a report: histograms and curves of a bounded size, never events."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from fivesigma.datasets.events import Events
from fivesigma.errors import InputError
from fivesigma.report.cuts import CutTable, cut_table
from fivesigma.report.importance import Importance, importance_of
from fivesigma.report.progress import Progress, progress_of
from fivesigma.report.provenance import Provenance, provenance_of, shared_events
from fivesigma.report.scored import Scored, probability_of
from fivesigma.report.scores import ProcessRow, ScoreHistogram, process_rows, score_histogram
from fivesigma.report.systematics import Systematics, systematics_of
from fivesigma.report.verdict import Verdict, verdict_of
from fivesigma.significance import Utility
from fivesigma.yields import signal_and_background

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
    systematics: Systematics | None
    importance: Importance | None
    provenance: Provenance


def gather(
    model: Any,
    events: Events,
    *,
    baseline: Any = None,
    yields: tuple[float, float] | None = None,
    utilities: Sequence[Utility] | None = None,
    systematics: Mapping[str, tuple[Any, Any]] | None = None,
    trained_on: Events | None = None,
    title: str | None = None,
    command: str | None = None,
    level: float = 0.68,
    n_boot: int = 1000,
    random_state: int = 0,
) -> ReportData:
    """Compute all numbers of a report; parameters as in `fivesigma.report`."""
    if not isinstance(events, Events):
        raise InputError(f"events must be Events, as load_events makes them, got {type(events).__name__}")
    scored = Scored.of(model, events, yields)
    selected = scored.probability >= model.cut_
    if not (selected & ~scored.signal).any():
        raise InputError(f"the model's cut at {model.cut_:.6g} keeps no background of these events; report on more")
    utility: Utility = model.utility_
    table = cut_table(scored, utility, float(model.cut_), utilities)
    verdict = verdict_of(
        model,
        scored,
        table,
        utility,
        None if baseline is None else (baseline, probability_of(baseline, events)),
        shared_events=shared_events(events, model, trained_on),
        training_yields=None if trained_on is None else signal_and_background(trained_on.weight, trained_on.is_signal),
        level=level,
        n_boot=n_boot,
        random_state=random_state,
    )
    return ReportData(
        title=f"{type(model).__name__} on {len(events):,} events" if title is None else title,
        verdict=verdict,
        progress=progress_of(model, utility, table),
        cuts=table,
        scores=score_histogram(scored),
        processes=process_rows(scored, selected),
        systematics=systematics_of(model, events, yields, systematics),
        importance=importance_of(model, events.feature_names),
        provenance=provenance_of(model, events, trained_on, command),
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
