"""The decomposed learner: an unweighted classifier times a model of the weights."""

from __future__ import annotations

import time
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.base import MetaEstimatorMixin

from fivesigma._tools.threads import threads_for
from fivesigma._types import Array, IntArray
from fivesigma.cascade.algorithm import Outcome, Schedule, plain_round
from fivesigma.cascade.rounds import ClassWeights, History
from fivesigma.estimators.running import reporting, spread_seeds
from fivesigma.estimators.significance_classifier import SignificanceClassifier
from fivesigma.estimators.split_steps import TuningEvents
from fivesigma.estimators.training_sample import Splits, TrainingSample
from fivesigma.learners.density_ratios import RatioModel, check_regressor, fit_ratio_model
from fivesigma.learners.libraries import HISTOGRAM, default_learner, default_regressor, library_of
from fivesigma.learners.protocols import Binding
from fivesigma.learners.sklearn import check_learner
from fivesigma.store.checkpoint import Checkpoint, once


@dataclass(repr=False, eq=False)
class DecomposedClassifier(MetaEstimatorMixin, SignificanceClassifier):
    """Ratio of signal to background from an unweighted classifier and the mean weights of both classes.

    What a selection needs is R(x) = E[w 1(y=s) | x] / E[w 1(y=b) | x], and it factors into
    P(s|x)/P(b|x) x E[w|s,x]/E[w|b,x]. The first factor is a classifier for which every event has the same weight, so
    that none is wasted where weights have very different sizes. The second is a regression of the weights for each
    class. Their logarithms add up. ``predict_proba`` is R/(1+R) with R scaled to equal yields of both classes: the
    probability of signal at class-balanced weights, as for the plain model.

    Parameters
    ----------
    estimator : classifier, optional
        Any classifier; it need not take ``sample_weight``. By default the best that is installed: XGBoost, LightGBM,
        else HistGradientBoostingClassifier. It must not weight the classes itself.
    weight_estimator : regressor, optional
        Any regressor of a positive quantity; it sees weights of mean one. By default the best installed booster with
        gamma loss. A class in which all weights are the same needs none.
    utility, b_reg, cv, pos_label, verbose, random_state, n_jobs
        As in `CascadeClassifier`; held-out events choose the cut alone.
    cut : {"model", "plateau", "peak", "smooth", "zero"} or float, default="model"
        Cut of `predict`: tuned on held-out events by a rule of `fivesigma.scan`, equal probabilities at balanced
        classes, or a number on the scale of ``predict_proba``.
    negative_weights : {"error", "zero", "abs"}, default="error"
        What the learners see of negative weights; s and b always keep the sign. With ``"zero"`` such events are left
        out of the classifier and the regressions, whose product then is the ratio of the positive parts.
    refit : bool, default=False
        Whether to train once more on all events. If not, the models of the splits are averaged.
    checkpoint : path, optional
        Folder to which the models of each finished split are written; the same call resumes from there.

    Attributes
    ----------
    history_ : History
        One `Round`: the held-out yields at the cut, with class-balanced weights.
    models_ : list of RatioModel
        The classifier and the mean weights of each split, or of all events after `refit`; their ``log_ratio`` is log R.
    held_out_score_, cut_, selected_fraction_, classes_
        As in `CascadeClassifier`.

    See Also
    --------
    fivesigma.CascadeClassifier : Weighted classification, round by round.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import GammaRegressor, LogisticRegression
    >>> from fivesigma import DecomposedClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([1, 0], 4000)
    >>> X = rng.normal(size=(8000, 2)) + 1.5 * y[:, None]
    >>> w = np.where(y == 1, 0.05, 5.0 * np.exp(X[:, 1]))  # heavy where the second feature is large
    >>> train, test = slice(0, None, 2), slice(1, None, 2)
    >>> model = DecomposedClassifier(LogisticRegression(), GammaRegressor(), random_state=0)
    >>> model = model.fit(X[train], y[train], sample_weight=w[train])
    >>> model.models_[0].signal.regressor is None  # all signal weighs the same
    True
    >>> bool(model.significance(X[test], y[test], w[test], yields=(200, 33_000)) > 200 / np.sqrt(33_000))
    True
    """

    estimator: Any = None
    weight_estimator: Any = None
    _: KW_ONLY
    refit: bool = False

    _stored: ClassVar = {**SignificanceClassifier._stored, "history_": History, "models_": list}

    def _fit(self, sample: TrainingSample, splits: Splits | None, checkpoint: Checkpoint | None) -> Array:
        classifier, regressor = self._learners()
        check_learner(classifier, weighted=False)
        check_regressor(regressor)
        split_seed, seed = spread_seeds(self.random_state, 2)
        splits = sample.splits(self.cv, split_seed) if splits is None else splits
        held_out = TuningEvents.of(sample, np.concatenate([rows for _, rows in splits]), self.utility_)
        held_out.warn_if_small()
        with reporting(self, 1, "decomposed") as report:
            clock = time.perf_counter()
            fits = [partial(self._fit_rows, sample, train, seed) for train, _ in splits]
            self.models_ = [once(checkpoint, f"split-{k}", fit) for k, fit in enumerate(fits)]
            parts = zip(self.models_, splits, strict=True)
            probability = np.concatenate([m.signal_probability(sample.rows(rows)) for m, (_, rows) in parts])
            self._tune_on(held_out, probability)
            best = held_out.scan(probability)
            outcome = Outcome(*held_out.at(probability >= self.cut_), tuned=(best.s, best.b))
            schedule = Schedule(self.utility_, floor=held_out.floor)
            start = sample.balanced(np.concatenate([train for train, _ in splits]))
            seconds = time.perf_counter() - clock
            only = plain_round(schedule, start, outcome, p=sample.totals[0], seconds=seconds)
            self.history_ = History([only])
            if self.refit:
                self.models_ = [self._fit_rows(sample, np.flatnonzero(sample.weight), seed)]
            report(only)
        self._keep_held_out(splits, probability, sample.signal.size)
        return probability

    def _fit_rows(self, sample: TrainingSample, rows: IntArray, seed: int) -> RatioModel:
        """Train on some rows, without those of which learners see nothing."""
        weight = sample.learner_weights(rows, ClassWeights(1.0, 1.0))
        seen = weight > 0
        threads = threads_for(self.n_jobs, sample.n_cells)
        binding = Binding(sample.X, sample.target, rows[seen], rows[:1], seed, threads)
        return fit_ratio_model(*self._learners(), binding, weight[seen])

    def _learners(self) -> tuple[Any, Any]:
        classifier = default_learner() if self.estimator is None else self.estimator
        return classifier, _regressor_beside(classifier) if self.weight_estimator is None else self.weight_estimator


def _regressor_beside(classifier: Any) -> Any:
    """A regressor of the library of the classifier, so that both take the same tables."""
    library = library_of(classifier)
    own = library.name if library else HISTOGRAM if type(classifier).__name__.startswith("HistGradient") else None
    return default_regressor(library=own)
