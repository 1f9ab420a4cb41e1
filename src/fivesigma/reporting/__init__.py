"""A report: one HTML file with everything that is to be known of a model on labelled events."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fivesigma._tools.files import written_whole
from fivesigma.categories import Categories
from fivesigma.categories.several_signals import ScoreCategories
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError
from fivesigma.reporting.data import ReportData, gather
from fivesigma.reporting.expectation import Expectation
from fivesigma.reporting.provenance import data_hash
from fivesigma.scored.scored_events import ScoredEvents
from fivesigma.significance import Utility

__all__ = ["Expectation", "Report", "ReportData", "data_hash", "report"]


@dataclass(frozen=True, repr=False, eq=False)
class Report:
    """A report on a model.

    Attributes
    ----------
    data : ReportData
        All its numbers; `fivesigma.plot` draws them for papers.
    expectation : Expectation or None
        What the analysis that the model belongs to expects; a section of its own.
    html : str
        The page: one document that needs no other file and no network.
    """

    data: ReportData
    expectation: Expectation | None = None

    def __repr__(self) -> str:
        v = self.data.verdict
        low, high = v.interval
        return f"Report({self.data.title}: significance {v.significance:.4f} [{low:.4f}, {high:.4f}], {v.utility})"

    @cached_property
    def html(self) -> str:
        """The page as text."""
        from fivesigma.reporting.page import render

        return render(self.data, self.expectation)

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
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {path.parent} to write {path.name} to")
        if path.is_dir():
            raise InputError(f"{path} is a folder; name a file")
        with written_whole(path) as beside:
            beside.write_text(self.html, encoding="utf-8")
        return path


def report(
    model: Any,
    events: Events | ScoredEvents,
    *,
    baseline: Any = None,
    yields: tuple[float, float] | None = None,
    utilities: Sequence[Utility] | None = None,
    systematics: Mapping[str, tuple[Any, Any]] | None = None,
    categories: Categories | ScoreCategories | None = None,
    cross_fitted: float | None = None,
    trained_on: Events | None = None,
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
        A fitted `CascadeClassifier`, `GrownCascadeClassifier` or `CascadePool`.
    events : Events or ScoredEvents
        Labelled and weighted events that were used for nothing else. Scored events must have the scores of this model;
        `baseline` and `trained_on` need features and therefore `Events`.
    baseline : estimator, optional
        The model to compare with, usually the plain one of the same budget; each has its own cut.
    yields : (float, float), optional
        Expected signal and background that the events stand for; by default the sums of their weights.
    utilities : sequence of Utility, optional
        Those to show beside the model's own. By default all, with its ``b_reg``: `OnOff` with tau = 1,
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
        The training events: events that are also here lead to a warning. Without them a model that has ``data_hash_``
        is compared by that.
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
    return Report(
        gather(
            model,
            events,
            baseline=baseline,
            yields=yields,
            utilities=utilities,
            systematics=systematics,
            categories=categories,
            cross_fitted=cross_fitted,
            trained_on=trained_on,
            title=title,
            command=command,
            level=level,
            n_boot=n_boot,
            random_state=random_state,
        )
    )
