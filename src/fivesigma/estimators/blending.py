"""How the fits of a pool become one score: chosen, weighed and blended, with a tuned cut, all on held-out scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from fivesigma._types import Array, IntArray
from fivesigma.blend import Blend
from fivesigma.estimators.fits import Fit, mean_by_member
from fivesigma.estimators.gauge import Gauge
from fivesigma.estimators.sample import Sample

_ENOUGH = 20_000  # events whose scores by all fits say where a share of them begins


def blend_members(pool: Any, sample: Sample, fits: list[Fit]) -> None:
    """Choose members, weigh them, and tune the cut, all on held-out scores."""
    names = list(dict.fromkeys(fit.task.name for fit in fits))
    n = sample.signal.size
    total, count = np.zeros((len(names), n)), np.zeros((len(names), n))
    for fit in fits:
        row = names.index(fit.task.name)
        total[row, fit.task.held_out] += fit.held_out_score
        count[row, fit.task.held_out] += 1
    with np.errstate(invalid="ignore"):  # 0/0 is NaN: an event that was never held out
        pool.held_out_scores_ = dict(zip(names, total / count, strict=True))
    rows = np.flatnonzero(count.min(axis=0))
    scores = {name: score[rows] for name, score in pool.held_out_scores_.items()}
    gauge = Gauge.of(sample, rows, pool.utility_)
    gauge.warn_if_small()
    z = {name: gauge.scan(score).significance for name, score in scores.items()}
    pool.member_significance_ = z
    kept = set(sorted(names, key=lambda name: -z[name])[: pool.keep])
    chosen = [scores[name] for name in names if name in kept]
    blend = Blend.fitted(pool.blend, chosen)
    if pool.weights == "fit":
        balanced = sample.learner_weights(rows, sample.balanced(rows))
        blend = blend.reweighted(chosen, gauge.signal, balanced)
    pool.blend_ = blend
    of_kept = [fit for fit in fits if fit.task.name in kept]
    pool.members_ = [(fit.task.name, fit.model) for fit in of_kept]
    pool.folds_ = [fit.task.number for fit in of_kept]
    blended = blend(chosen)
    pool.tune_on(gauge, blended)
    # A new event of a known fold is scored by one fit, as the held-out ones were.
    if pool.by is None and len(of_kept) > len(kept) and isinstance(pool.cut, str) and pool.cut != "zero":
        some = rows if rows.size <= _ENOUGH else np.random.default_rng(0).choice(rows, _ENOUGH, replace=False)
        as_new = mean_by_member((fit.task.name, score_as_if_new(fit, sample, some)) for fit in of_kept)
        pool.cut_ = float(np.quantile(blend(list(as_new.values())), 1.0 - pool.selected_fraction_))
    pool.held_out_score_ = np.full(n, np.nan)
    pool.held_out_score_[rows] = blended


def score_as_if_new(fit: Fit, sample: Sample, rows: IntArray) -> Array:
    """Scores of events as if a fit had seen none of them.

    Scores of its training events lie too far apart: they are mapped to the distribution of scores of its held-out ones.
    """
    score = fit.model.score_checked(sample.rows(rows))
    seen = np.isin(rows, fit.task.train)
    if seen.any():
        below = np.searchsorted(np.sort(score[seen]), score[seen], "right") / np.count_nonzero(seen)
        score[seen] = np.quantile(fit.held_out_score, below)
    return score
