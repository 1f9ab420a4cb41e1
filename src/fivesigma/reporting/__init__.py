"""A report: one HTML file with everything that is to be known of a model on labelled events."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fivesigma._tools.files import write_text
from fivesigma.categories import Categories
from fivesigma.categories.several_signals import ScoreCategories
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError
from fivesigma.reporting.cuts import CutTable, Progress, cut_table, progress_of
from fivesigma.reporting.histogram import (
    Overtraining,
    ProcessRow,
    ScoreHistogram,
    overtraining_of,
    process_rows,
    score_histogram,
)
from fivesigma.reporting.page import render_page, yields_as_latex
from fivesigma.reporting.sections import (
    CategoryTable,
    Importance,
    ProfiledPicture,
    Section,
    ShiftTable,
    category_table,
    profiled_picture,
    rank_features,
    score_systematics,
    shift_table,
)
from fivesigma.reporting.verdict import (
    Provenance,
    Verdict,
    feature_names_of,
    provenance_of,
    python_call,
    training_findings,
    verdict_of,
)
from fivesigma.scored.scored_events import ScoredEvents, signal_probability
from fivesigma.significance import Utility
from fivesigma.yields import number_processes

__all__ = ["Report", "ReportData", "Section", "report"]


@dataclass(frozen=True, eq=False)
class ReportData:
    """What a report shows, figure by figure: histograms and curves of a bounded size, never events."""

    title: str
    sections: tuple[Section, ...]
    verdict: Verdict
    progress: Progress
    cuts: CutTable
    scores: ScoreHistogram
    processes: list[ProcessRow]
    categories: CategoryTable | None
    systematics: ShiftTable | None
    profiled: ProfiledPicture | None
    importance: Importance | None
    overtraining: Overtraining | None
    provenance: Provenance


@dataclass(frozen=True, repr=False, eq=False)
class Report:
    """A report on a model.

    Attributes
    ----------
    data : ReportData
        All its numbers; `fivesigma.plot` draws them for papers.
    html : str
        The page: one document that needs no other file and no network.
    """

    data: ReportData

    def __repr__(self) -> str:
        v = self.data.verdict
        low, high = v.interval
        return f"Report({self.data.title}: significance {v.significance:.4f} [{low:.4f}, {high:.4f}], {v.utility})"

    @cached_property
    def html(self) -> str:
        """The page as text."""
        return render_page(self.data)

    def latex(self) -> str:
        """The yields by process, before and after the cut, as a table of LaTeX with the rules of booktabs."""
        return yields_as_latex(self.data)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the page; the file appears whole or not at all, and one that is there is replaced.

        Parameters
        ----------
        path : path
            Such as ``report.html``.

        Returns
        -------
        pathlib.Path
        """
        path = Path(path)
        if path.is_dir():
            raise InputError(f"{path} is a folder; name a file")
        return write_text(path, self.html)


def report(
    model: Any,
    events: Events | ScoredEvents,
    *,
    baseline: Any = None,
    yields: tuple[float, float] | None = None,
    utilities: Sequence[Utility] | None = None,
    systematics: Mapping[str, Any] | None = None,
    categories: Categories | ScoreCategories | None = None,
    cross_fitted: float | None = None,
    trained_on: Events | None = None,
    sections: Sequence[Section] = (),
    title: str | None = None,
    command: str | None = None,
    level: float = 0.68,
    n_boot: int = 1000,
    random_state: int = 0,
) -> Report:
    """Report on a model.

    Parameters
    ----------
    model : estimator
        A fitted `AutoClassifier`, `ProfiledClassifier`, `CascadeClassifier`, `GrownCascadeClassifier`,
        `DecomposedClassifier` or `CascadePool`: anything with a cut of its own, also as the last step of a Pipeline or
        found by a grid search.
    events : Events or ScoredEvents
        Labelled and weighted events that were used for nothing else. Scored events must have the scores of this model;
        `baseline` and `trained_on` need features and therefore `Events`.
    baseline : estimator, optional
        The model to compare with, usually the plain one of the same budget; each has its own cut.
    yields : (float, float), optional
        Expected signal and background that the events stand for; by default the sums of their weights.
    utilities : sequence of Utility, optional
        Those to show in addition to the model's own. By default all, with its ``b_reg``: `OnOff` with tau = 1,
        `RelativeBackground` with 10 %, `GaussianBackground` with 10 % of the background at the cut.
    systematics : mapping of str to (up, down), optional
        The events one standard deviation up and down: tables or weights of the same events, `Events` of their own, or
        `Varied`; see the estimators' `yield_shifts`. Scored events take `Varied` alone.
    categories : Categories or ScoreCategories, optional
        Of `categorise` or `categorise_scores`, filled with these events by their `evaluate`.
    cross_fitted : float, optional
        Significance of such categories with edges that were chosen without the events that fill them; it is shown
        beside the one of `categories`.
    trained_on : Events, optional
        The training events, for a check of overtraining. Events that are also here lead to a warning. Without them the
        warning comes from digests of rows of features that the model keeps.
    sections : sequence of Section, optional
        Sections to show before the verdict.
    title : str, optional
        Of the page.
    command : str, optional
        What the page says how to make it again.
    level, n_boot, random_state
        Probability, replicas and seed of the bootstrap intervals.

    Returns
    -------
    Report
        Has ``write(path)``, ``html`` and ``data``.

    Examples
    --------
    >>> import fivesigma
    >>> from fivesigma.datasets import make_htautau
    >>> train, test = make_htautau(4000), make_htautau(4000, random_state=1)
    >>> model = fivesigma.GrownCascadeClassifier(n_trees=10, b_reg=10.0, random_state=0, n_jobs=1)
    >>> found = fivesigma.report(model.fit(train.X, train.y, train.weight), test, n_boot=50)
    >>> found.data.verdict.significance == model.significance(test.X, test.y, test.weight)
    True
    """
    final = _final_step(model)
    scored = _scored(model, final, events, yields, {"baseline": baseline, "trained_on": trained_on})
    score, signal, weight = scored.arrays()
    varied = score_systematics(model, events, scored, systematics)
    table = cut_table(final, scored, utilities, varied)
    processes = number_processes(signal, scored.process, split_mixed=True)
    other = None
    if baseline is not None and isinstance(events, Events):
        plain = _final_step(baseline)
        other = plain, signal_probability(baseline, events) >= plain.cut_
    training = training_findings(model, events, trained_on)
    bootstrap = {"level": level, "n_boot": n_boot, "random_state": random_state}
    again = python_call(
        {"baseline": baseline, "trained_on": trained_on, "utilities": utilities, "systematics": systematics},
        {"yields": yields, "title": title, **bootstrap},
    )
    return Report(
        ReportData(
            title=f"{type(final).__name__} on {len(events):,} events" if title is None else title,
            sections=tuple(sections),
            verdict=verdict_of(final, scored, table, other, training, **bootstrap),
            progress=progress_of(final, table),
            cuts=table,
            scores=score_histogram(score, weight, processes),
            processes=process_rows(weight, score >= final.cut_, processes),
            categories=category_table(categories, cross_fitted),
            systematics=None if varied is None else shift_table(scored, float(final.cut_), varied),
            profiled=profiled_picture(model, events, scored, varied, systematics),
            importance=rank_features(model, final, feature_names_of(model, final, events), events),
            overtraining=None if trained_on is None else overtraining_of(model, final, scored, trained_on),
            provenance=provenance_of(model, final, events, trained_on, again if command is None else command),
        )
    )


def _final_step(model: Any) -> Any:
    """The estimator with a cut: the model itself, the last step of a Pipeline, or what a search found."""
    found = model
    while not hasattr(found, "cut_"):
        if hasattr(found, "best_estimator_"):
            found = found.best_estimator_
        elif hasattr(found, "steps"):
            found = found.steps[-1][1]
        else:
            raise InputError(
                f"a {type(model).__name__} without a cut cannot be reported on; fit a model of fivesigma, or a "
                "Pipeline or a search that ends in one"
            )
    return found


def _scored(
    model: Any,
    final: Any,
    events: Events | ScoredEvents,
    yields: tuple[float, float] | None,
    need_features: Mapping[str, Any],
) -> ScoredEvents:
    """Events with the model's scores, if they are such that there is something to report."""
    if isinstance(events, ScoredEvents):
        for name, given in need_features.items():
            if given is not None:
                raise InputError(f"{name} needs the features of the events: give Events, not ScoredEvents")
        scored = events if yields is None else events.scaled_to(*yields)
    elif isinstance(events, Events):
        scored = ScoredEvents.of(model, events, yields)
    else:
        raise InputError(
            f"events must be Events, as load_events and datasets.from_arrays(X, y, weight) make them, or ScoredEvents, "
            f"got {type(events).__name__}"
        )
    score, signal, _ = scored.arrays()
    if not signal.any() or signal.all():
        raise InputError("a report needs signal and background events, and one of the two is not there")
    if not ((score >= final.cut_) & ~signal).any():
        raise InputError(f"the model's cut at {final.cut_:.6g} keeps no background of these events; report on more")
    return scored
