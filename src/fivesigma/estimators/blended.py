"""What the estimators that blend members have in common: which are blended, the cut, and how events are scored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fivesigma._tools.threads import wanted_cores
from fivesigma._types import Array, IntArray
from fivesigma.blend import Blend, quantiles
from fivesigma.cascade.rounds import History
from fivesigma.cut.bootstrap import PoissonCounts
from fivesigma.estimators.member_fits import MemberFit, mean_by_member
from fivesigma.estimators.running import run_parallel
from fivesigma.estimators.significance_classifier import SignificanceClassifier
from fivesigma.estimators.split_steps import TuningEvents
from fivesigma.estimators.training_sample import Splits, TrainingSample
from fivesigma.yields import significance_or_nan, valid_yields

N_BOOT = 100
WINDOW = np.geomspace(0.7, 1.4, 9)  # cuts over which blends are compared, as multiples of the first member's share
_ENOUGH, _ENOUGH_SELECTED = 2_000, 250  # events, and selected ones, whose scores by all fits say where the cut lies


class BlendedClassifier(SignificanceClassifier):
    """Base of the estimators whose score is a blend of members, each trained on the same or on other splits."""

    by: str | None
    folds_: list[int]
    members_: list[tuple[str, SignificanceClassifier]]
    blend_: Blend
    member_significance_: dict[str, float]
    held_out_scores_: dict[str, Array]

    _stored: ClassVar = {
        **SignificanceClassifier._stored,
        "members_": list,
        "blend_": Blend,
        "member_significance_": dict,
    }

    def _blend_members(
        self,
        sample: TrainingSample,
        fits: list[MemberFit],
        splits: Splits,
        *,
        kind: str = "rank",
        keep: int | None = None,
        weigh: bool = False,
        extra: str | None = None,
    ) -> Array:
        """Choose members, weigh them, and tune the cut, all on held-out scores; an `extra` one weighs a half.

        Returns the blended scores of the rows that the splits hold out.
        """
        n = sample.signal.size
        self.held_out_scores_ = held_out_scores(fits, n)
        names = list(self.held_out_scores_)
        rows = np.flatnonzero(np.isfinite([*self.held_out_scores_.values()]).all(axis=0))
        scores = {name: score[rows] for name, score in self.held_out_scores_.items()}
        gauge = TuningEvents.of(sample, rows, self.utility_)
        gauge.warn_if_small()
        z = {name: gauge.scan(score).significance for name, score in scores.items()}
        self.member_significance_ = z
        kept = set(sorted(names, key=lambda name: -z[name])[:keep])
        chosen = [scores[name] for name in names if name in kept]
        blend = Blend.fitted(kind, chosen, member_weights([name for name in names if name in kept], extra))
        if weigh:
            balanced = sample.learner_weights(rows, sample.balanced(rows))
            blend = blend.reweighted(chosen, gauge.signal, balanced)
        self.blend_ = blend
        of_kept = [fit for fit in fits if fit.task.name in kept]
        self.members_ = [(fit.task.name, fit.model) for fit in of_kept]
        blended = blend(chosen)
        self.folds_ = [fit.task.number for fit in of_kept]
        self._tune_on(gauge, blended)
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
        return np.asarray(self.held_out_score_[np.concatenate([held_out for _, held_out in splits])])

    @property
    def feature_importances_(self) -> Array:
        """Mean importance of each feature over the members that know theirs."""
        check_is_fitted(self)
        return self._mean_importance([getattr(m, "feature_importances_", None) for _, m in self.members_])

    @property
    def history_(self) -> History:  # type: ignore[override]  # derived, not stored
        """Rounds of all fits that were kept; the ``restart`` of a round is the position of its fit in `members_`."""
        return History(replace(r, restart=k) for k, (_, m) in enumerate(self.members_) for r in m.history_)

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

    def _member_scores(self, X: Any, fold: int | None = None) -> dict[str, Array]:
        fits = self.members_
        if fold is not None:
            fits = [fit for fit, number in zip(fits, self.folds_, strict=True) if number == fold]
        workers = min(wanted_cores(self.n_jobs), len(fits))
        scores = run_parallel(lambda model: model.__fivesigma_score__(X), [(model,) for _, model in fits], workers)
        return mean_by_member(zip((name for name, _ in fits), scores, strict=True))

    def __fivesigma_score__(self, X: Any, fold: int | None = None) -> Array:
        """P(signal) of a checked table: the blend of the members, or of their fits that did not see a fold."""
        return self.blend_(list(self._member_scores(X, fold).values()))


def held_out_scores(fits: Iterable[MemberFit], n_events: int) -> dict[str, Array]:
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


def score_as_if_new(fit: MemberFit, sample: TrainingSample, rows: IntArray) -> Array:
    """Scores of events as if a fit had seen none of them.

    Scores of its training events lie too far apart: they are mapped to the distribution of scores of its held-out ones.
    """
    score = fit.model.__fivesigma_score__(sample.rows(rows))
    seen = np.isin(rows, fit.task.train)
    if seen.any():
        below = np.searchsorted(np.sort(score[seen]), score[seen], "right") / np.count_nonzero(seen)
        score[seen] = quantiles(fit.held_out_score, below)
    return score


class Choice(NamedTuple):
    """What was chosen, and what it was compared with."""

    members: tuple[str, ...]
    comparisons: dict[str, tuple[float, float]]


def choose_blend(
    scores: Mapping[str, Array], gauge: TuningEvents, random_state: int = 0, *, extra: str | None = None
) -> Choice:
    """Take the even blend of all members, unless another blend is better by more than a standard error.

    A blend of many is the safe choice: it loses little where members are alike, and single members differ from sample
    to sample more than held-out events can tell. Significance is the mean over nine cuts around the best one of the
    first member, which is less noisy than that of one cut. The error is that of the difference of two blends, from a
    Poisson bootstrap in which both have the same events. An `extra` member, the last, then joins what was chosen with
    the weight of one half, unless that is worse by more than a standard error: alone it is never chosen.
    """
    blends, z = compare_blends(scores, gauge, random_state, extra=extra)
    usual = max(k for k, members in enumerate(blends) if extra not in members)
    with np.errstate(invalid="ignore"):
        over_usual, over_first = gains(z - z[:, [usual]]), gains(z - z[:, :1])
    comparisons = {" + ".join(m): pair for m, pair in zip(blends, over_first, strict=True)}
    better = [k for k, (gain, error) in enumerate(over_usual) if gain > error and extra not in blends[k]]
    chosen = max(better, key=lambda k: over_usual[k][0], default=usual)
    if extra is not None:
        with_extra = blends.index((*blends[chosen], extra))
        gain, error = gains(z[:, [with_extra]] - z[:, [chosen]])[0]
        chosen = chosen if gain < -error else with_extra
    return Choice(blends[chosen], comparisons)


def member_weights(members: Sequence[str], extra: str | None) -> Array:
    """Even weights, but as much for an `extra` member as for all others together: it errs unlike them.

    Examples
    --------
    >>> member_weights(["plain", "cascade", "net"], "net").tolist()
    [1.0, 1.0, 2.0]
    """
    return np.array([float(len(members) - 1 or 1) if name == extra else 1.0 for name in members])


def compare_blends(
    scores: Mapping[str, Array], gauge: TuningEvents, random_state: int = 0, *, extra: str | None = None
) -> tuple[list[tuple[str, ...]], Array]:
    """Measure every blend, from single members to all of them, even but for an `extra` member."""
    names = tuple(scores)
    blends = [m for size in range(1, len(names) + 1) for m in combinations(names, size)]
    share = gauge.scan(scores[names[0]], "model").fraction
    return blends, _replicas([_cells(_blended(scores, m, extra), share) for m in blends], gauge, random_state)


def gains(differences: Array) -> list[tuple[float, float]]:
    """Difference on the sample, and its standard deviation over those replicas in which it is defined."""
    out = []
    for column in differences.T:
        replicas = column[1:][np.isfinite(column[1:])]
        out.append((float(column[0]), float(np.std(replicas)) if replicas.size > 1 else float("nan")))
    return out


def _blended(scores: Mapping[str, Array], members: tuple[str, ...], extra: str | None) -> Array:
    chosen = [scores[name] for name in members]
    return chosen[0] if len(chosen) == 1 else Blend.fitted("rank", chosen, member_weights(members, extra))(chosen)


def _cells(score: Array, share: float) -> IntArray:
    """Number of the cell of each event: k if it is kept by the cut k of the window and by no tighter one."""
    ends = np.clip(np.round(WINDOW * share * score.size), 1, score.size).astype(np.intp)
    cell = np.empty(score.size, dtype=np.intp)
    cell[np.argsort(-score, kind="stable")] = np.searchsorted(ends, np.arange(score.size), side="right")
    return cell


def _replicas(cells: list[IntArray], gauge: TuningEvents, random_state: int) -> Array:
    """Mean significance over the window of each blend: of the sample, then of its replicas."""
    loosest = WINDOW.size
    used = np.flatnonzero(np.min(cells, axis=0) < loosest)
    signal, weight = gauge.signal[used], gauge.weight[used]
    # Cells of signal and background in one count.
    places = [c[used] + np.where(signal, 0, loosest + 1) for c in cells]
    source = PoissonCounts(random_state, used.size)
    sums = np.empty((N_BOOT + 1, len(cells), 2 * loosest + 2))
    for i in range(N_BOOT + 1):
        w = weight if i == 0 else weight * source.draw(used.size)
        for k, place in enumerate(places):
            sums[i, k] = np.bincount(place, w, 2 * loosest + 2)
    s, b = (np.cumsum(part[..., :-1], axis=-1) for part in np.split(sums, 2, axis=-1))
    # A blend has a value only where all cuts of the window have.
    return np.asarray(np.mean(significance_or_nan(gauge.utility, s, b, valid_yields(s, b)), axis=-1))
