"""What the estimators that blend members have in common: the blend, its cut, and how events are scored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from fivesigma._tools.threads import wanted_cores
from fivesigma._types import Array, IntArray
from fivesigma.blend import Blend, quantiles
from fivesigma.cascade.rounds import History
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError
from fivesigma.estimators.base import SignificanceClassifier
from fivesigma.estimators.fits import Fit, mean_by_member
from fivesigma.estimators.gauge import Gauge
from fivesigma.estimators.parallel import run_parallel
from fivesigma.estimators.sample import Sample
from fivesigma.estimators.step import Splits

_ENOUGH, _ENOUGH_SELECTED = 2_000, 250  # events, and selected ones, whose scores by all fits say where the cut lies


class BlendedClassifier(SignificanceClassifier):
    """Base of the estimators whose score is a blend of members, each trained on the same or on other splits."""

    n_jobs: int | None
    by: str | None
    folds_: list[int]
    members_: list[tuple[str, SignificanceClassifier]]
    blend_: Blend
    member_significance_: dict[str, float]
    held_out_score_: Array
    held_out_scores_: dict[str, Array]

    _stored: ClassVar = {
        **SignificanceClassifier._stored,
        "members_": list,
        "blend_": Blend,
        "member_significance_": dict,
    }

    def _blend_members(
        self, sample: Sample, fits: list[Fit], *, kind: str = "rank", keep: int | None = None, weigh: bool = False
    ) -> None:
        """Choose members, weigh them, and tune the cut, all on held-out scores.

        Parameters
        ----------
        sample : Sample
        fits : list of Fit
            Of all members.
        kind : {"rank", "margin", "probability"}
            Scale of the mean.
        keep : int, optional
            Number of members to keep; all by default.
        weigh : bool
            Whether to fit the members' weights.
        """
        n = sample.signal.size
        self.held_out_scores_ = held_out_scores(fits, n)
        names = list(self.held_out_scores_)
        rows = np.flatnonzero(np.isfinite([*self.held_out_scores_.values()]).all(axis=0))
        scores = {name: score[rows] for name, score in self.held_out_scores_.items()}
        gauge = Gauge.of(sample, rows, self.utility_)
        gauge.warn_if_small()
        z = {name: gauge.scan(score).significance for name, score in scores.items()}
        self.member_significance_ = z
        kept = set(sorted(names, key=lambda name: -z[name])[:keep])
        chosen = [scores[name] for name in names if name in kept]
        blend = Blend.fitted(kind, chosen)
        if weigh:
            balanced = sample.learner_weights(rows, sample.balanced(rows))
            blend = blend.reweighted(chosen, gauge.signal, balanced)
        self.blend_ = blend
        of_kept = [fit for fit in fits if fit.task.name in kept]
        self.members_ = [(fit.task.name, fit.model) for fit in of_kept]
        blended = blend(chosen)
        self.folds_ = [fit.task.number for fit in of_kept]
        self.tune_on(gauge, blended)
        # A new event of a known fold is scored by one fit, as the held-out ones were.
        if self.by is None and len(of_kept) > len(kept) and isinstance(self.cut, str) and self.cut != "zero":
            enough = max(_ENOUGH, round(_ENOUGH_SELECTED / self.selected_fraction_))
            some = np.arange(rows.size)
            if enough < rows.size:
                some = np.sort(np.random.default_rng(0).choice(rows.size, enough, replace=False))
            as_new = mean_by_member((fit.task.name, score_as_if_new(fit, sample, rows[some])) for fit in of_kept)
            share = np.mean(blended[some] >= self.cut_)  # of the same events, so that only differences of scores count
            self.cut_ = float(np.quantile(blend(list(as_new.values())), 1.0 - share))
        self.held_out_score_ = np.full(n, np.nan)
        self.held_out_score_[rows] = blended

    @property
    def history_(self) -> History:  # type: ignore[override]  # derived, not stored
        """Rounds of all fits that were kept; the ``restart`` of a round is the position of its fit in `members_`."""
        return History(replace(r, restart=k) for k, (_, m) in enumerate(self.members_) for r in m.history_)

    def _splits_of(self, X: Any, sample: Sample) -> Splits | None:
        if self.by is None:
            return None
        if not isinstance(X, Events):
            raise InputError(f"by={self.by!r} is a kept column of Events, and X is a {type(X).__name__}; fit Events")
        repeats = getattr(self, "n_repeats", 1)
        if isinstance(self.cv, bool) or not isinstance(self.cv, (int, np.integer)) or repeats != 1:
            raise InputError(f"by={self.by!r} needs an integer cv and n_repeats=1, got {self.cv!r} and {repeats!r}")
        return sample.splits(X.folds(int(self.cv), by=self.by), 0)

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of (background, signal); with `by`, each event by the fits that did not see its fold.

        Parameters
        ----------
        X : Events, or array, sparse matrix or frame of shape (n_events, n_features)

        Returns
        -------
        array of shape (n_events, 2)
        """
        if self.by is None or not isinstance(X, Events):
            return super().predict_proba(X)
        check_is_fitted(self)
        table, folds, p = self._check_table(X, reset=False), X.folds(int(self.cv), by=self.by), np.empty(len(X))
        for k in np.unique(folds):
            rows = np.flatnonzero(folds == k)
            fits = [model for (_, model), fold in zip(self.members_, self.folds_, strict=True) if fold == k]
            p[rows] = self.blend_([model.score_checked(_safe_indexing(table, rows)) for model in fits])
        return np.column_stack([1.0 - p, p])

    def member_scores(self, X: Any) -> dict[str, Array]:
        """Score events by each member that was kept; a bagged one is the mean of its fits.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_events, n_features)

        Returns
        -------
        dict of str to array of shape (n_events,)
            P(signal) by name of the member.
        """
        check_is_fitted(self)
        return self._member_scores(self._check_table(X, reset=False))

    def _member_scores(self, X: Any) -> dict[str, Array]:
        workers = min(wanted_cores(self.n_jobs), len(self.members_))
        scores = run_parallel(lambda model: model.score_checked(X), [(m,) for _, m in self.members_], workers)
        return mean_by_member(zip((name for name, _ in self.members_), scores, strict=True))

    def score_checked(self, X: Any) -> Array:
        """P(signal) of a checked table: the blend of the members."""
        return self.blend_(list(self._member_scores(X).values()))


def held_out_scores(fits: Iterable[Fit], n_events: int) -> dict[str, Array]:
    """Mean score of each event by the fits of a member that were not fitted on it; NaN if it was never held out."""
    total: dict[str, Array] = {}
    count: dict[str, Array] = {}
    for fit in fits:
        name, rows = fit.task.name, fit.task.held_out
        for sums in (total, count):
            sums.setdefault(name, np.zeros(n_events))
        total[name][rows] += fit.held_out_score
        count[name][rows] += 1
    with np.errstate(invalid="ignore"):  # 0/0 is NaN
        return {name: total[name] / count[name] for name in total}


def score_as_if_new(fit: Fit, sample: Sample, rows: IntArray) -> Array:
    """Scores of events as if a fit had seen none of them.

    Scores of its training events lie too far apart: they are mapped to the distribution of scores of its held-out ones.
    """
    score = fit.model.score_checked(sample.rows(rows))
    seen = np.isin(rows, fit.task.train)
    if seen.any():
        below = np.searchsorted(np.sort(score[seen]), score[seen], "right") / np.count_nonzero(seen)
        score[seen] = quantiles(fit.held_out_score, below)
    return score
