"""The retrained cascade: every round trains any classifier anew; the paper's first variant."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import MetaEstimatorMixin

from fivesigma._tools.threads import spread_threads, threads_for
from fivesigma._types import Array
from fivesigma.cascade.algorithm import Schedule, cascade, until_no_increase
from fivesigma.cascade.rounds import ClassWeights, History, Round
from fivesigma.errors import InputError, SmallSampleWarning
from fivesigma.estimators.parameters import flag, whole
from fivesigma.estimators.running import reporting, run_parallel, spread_seeds
from fivesigma.estimators.significance_classifier import CASCADE_CHECKS, SignificanceClassifier
from fivesigma.estimators.split_steps import SplitStep, TuningEvents
from fivesigma.estimators.training_sample import Splits, TrainingSample
from fivesigma.learners.libraries import bind_learner, default_learner
from fivesigma.learners.protocols import Binding, Model
from fivesigma.learners.sklearn import check_learner
from fivesigma.store.checkpoint import Checkpoint


class _Candidate(NamedTuple):
    """A round that may be kept: its classifiers, one a split, and their held-out scores."""

    round: Round
    models: list[Model]  # none yet for a round of an earlier run
    held_out: Array
    seed: int


@dataclass(repr=False, eq=False)
class CascadeClassifier(MetaEstimatorMixin, SignificanceClassifier):
    """Weighted classification cascade that retrains a classifier each round.

    Each round trains a fresh copy of any classifier that takes ``sample_weight`` on the physics weights times the
    round's class weights (u, f*(u)), scaled to mean one; then u is set to f'(s/b) at the yields of held-out events.
    The run ends when their significance fails to increase, and a few rounds later; the best rounds are kept.

    Parameters
    ----------
    estimator : classifier, optional
        A scikit-learn classifier or Pipeline, XGBClassifier, LGBMClassifier, CatBoostClassifier. By default the best
        that is installed: XGBoost, LightGBM, else HistGradientBoostingClassifier. It must not weight the classes
        itself (``class_weight``, ``scale_pos_weight``, ``is_unbalance``).
    utility : str or Utility, default="ams2"
        What to maximise.
    b_reg : float, optional
        Constant added to b, if `utility` is a name.
    max_rounds : int, default=20
        Most rounds of a cascade.
    extra_rounds : int, default=10
        Rounds after the first that did not increase the held-out significance.
    u_init : "auto" or float, default="auto"
        First u. ``"auto"`` takes it at the plateau cut of a class-balanced round 0.
    cv : float, int, splitter or iterable, default=0.25
        Held-out events: a fraction (one split), a number of folds or a splitter (cross-fitted: out-of-fold yields
        drive u), or pairs of row indices. Stratified by class and, if given to `fit`, by process.
    update_cut : {"zero", "plateau"}, default="zero"
        Cut at which the yields that drive u, the stop and the ranking of rounds are formed: the sign of the weighted
        classifier, or the best cut on its score.
    cut : {"model", "plateau", "peak", "smooth", "zero"} or float, default="model"
        Cut of `predict`: tuned on held-out events by a rule of `fivesigma.scan`, the sign of the classifier, or a
        number on the scale of ``predict_proba``.
    n_restarts : int, default=1
        Cascades with different seeds of the learner, on the same split.
    keep : int, default=1
        Best rounds of all restarts that are kept, at most; their probabilities are averaged. A round that is not
        valid, or that did not improve a utility without a guarantee, is not kept beside others.
    cascade : bool, default=True
        False trains the plain model, the class-balanced round 0 alone, with a tuned cut. It is the baseline that a
        cascade has to beat.
    refit : bool, default=False
        Whether to train the kept rounds once more, on all events. If not, the models of the splits are averaged. The
        cut is tuned before, on scores of models that did not see the events; a mean of several is a little narrower.
    pos_label : label, optional
        The signal. By default the larger number, or the signal of a known pair such as s/b.
    negative_weights : {"error", "zero", "abs"}, default="error"
        What the learner sees of negative weights; s and b always keep the sign.
    monitor_every : int, default=0
        Rounds between two looks at the yields of the training events; 0 for none.
    verbose : int, default=0
        1 shows a progress bar on stderr.
    checkpoint : path, optional
        Folder to which each finished round is written; the same call resumes from there, and trains the rounds that it
        keeps once more.
    random_state : int, RandomState or None, default=None
        Seed of the split and of the learners.
    n_jobs : int, optional
        Cores to use, by restarts and by the learner together: one by default, -1 for all.

    Attributes
    ----------
    history_ : History
        A `Round` for each round of each restart; prints as a table.
    kept_ : list of Round
        The rounds that are blended, best first.
    models_ : list
        Their trained classifiers.
    held_out_score_ : array of shape (n_events,)
        Score of each event by models that were not fitted on it; NaN for events that were never held out. The rounds
        that are kept were chosen on these events.
    cut_, selected_fraction_ : float
        Threshold on ``predict_proba(X)[:, 1]``, and the share of held-out events that it selects.
    classes_ : array of shape (2,)
        (background, signal).

    See Also
    --------
    fivesigma.GrownCascadeClassifier : One booster that gains one tree per round.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fivesigma import CascadeClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([1, 0], 2000)
    >>> X = rng.normal(size=(4000, 2)) + 1.5 * y[:, None]
    >>> w = np.where(y == 1, 0.05, 5.0)  # 100 signal events on 10,000 of background
    >>> train, test = slice(0, None, 2), slice(1, None, 2)
    >>> model = CascadeClassifier(LogisticRegression(), random_state=0)
    >>> model = model.fit(X[train], y[train], sample_weight=w[train])
    >>> bool(model.significance(X[test], y[test], w[test], yields=(100, 10_000)) > 100 / np.sqrt(10_000))
    True
    """

    estimator: Any = None
    _: KW_ONLY
    max_rounds: int = 20
    extra_rounds: int = 10
    u_init: float | str = "auto"
    update_cut: str = "zero"
    n_restarts: int = 1
    keep: int = 1
    cascade: bool = True
    refit: bool = False
    monitor_every: int = 0

    _checks: ClassVar = {
        **SignificanceClassifier._checks,
        **CASCADE_CHECKS,
        "max_rounds": whole(1),
        "extra_rounds": whole(0),
        "n_restarts": whole(1),
        "keep": whole(1),
        "monitor_every": whole(0),
        "refit": flag,
    }
    _stored: ClassVar = {**SignificanceClassifier._stored, "history_": History, "kept_": list, "models_": list}

    def _fit(self, sample: TrainingSample, splits: Splits | None, checkpoint: Checkpoint | None) -> Array:
        (learner,) = self._learners()
        check_learner(learner)
        if not self.cascade and self.u_init != "auto":
            raise InputError(f"cascade=False trains no round at u_init={self.u_init!r}; use u_init='auto'")
        written: dict[str, History] = {}  # rounds of each restart that the checkpoint holds
        if checkpoint:
            with checkpoint.resuming():
                written = {k: History.from_columns(columns) for k, columns in checkpoint.state().items()}
        split_seed, *seeds = spread_seeds(self.random_state, 1 + self.n_restarts)
        splits = sample.splits(self.cv, split_seed) if splits is None else splits
        held_out = TuningEvents.of(sample, np.concatenate([rows for _, rows in splits]), self.utility_)
        held_out.warn_if_small()
        schedule = Schedule(self.utility_, floor=held_out.floor)
        if self.u_init == "auto":
            start = sample.balanced(np.concatenate([rows for rows, _ in splits]))
        else:
            start = schedule.at(float(self.u_init))

        most = self.max_rounds if self.cascade else 0
        workers, threads = spread_threads(self.n_jobs, self.n_restarts, sample.n_cells)
        total, done = (most + (start.u is None)) * self.n_restarts, sum(map(len, written.values()))
        with reporting(self, total, "cascade", done, checkpoint=checkpoint) as report:

            def restart(k: int, seed: int) -> tuple[History, list[_Candidate]]:
                step = Retraining(
                    learner, sample, splits, held_out, update_cut=self.update_cut, seed=seed, threads=threads
                )

                def finished(history: History) -> bool:
                    if checkpoint:
                        with checkpoint.lock:
                            written[str(k)] = History(history)
                            checkpoint.write({k: rounds.to_columns() for k, rounds in written.items()}, {})
                    return report(history[-1])

                earlier = written.get(str(k), History())
                return self._run(step, schedule, start, most=most, earlier=earlier, finished=finished)

            results = run_parallel(restart, list(enumerate(seeds)), workers)

        self.history_ = History(replace(r, restart=k) for k, (history, _) in enumerate(results) for r in history)
        candidates = [
            c._replace(round=replace(c.round, restart=k)) for k, (_, kept) in enumerate(results) for c in kept
        ]
        candidates.sort(key=self._preference)  # stable: ties go to the earlier round
        candidates = [c for c in candidates if self._may_be_kept(c.round)][: self.keep] or candidates[:1]
        if not candidates[0].round.valid:
            warnings.warn(
                f"no round selects signal and at least {held_out.floor:g} effective background events among those "
                "held out; the first round is kept",
                SmallSampleWarning,
                stacklevel=2,
            )
        self.kept_ = [c.round for c in candidates]
        probability = np.asarray(np.mean([c.held_out for c in candidates], axis=0))
        self._tune_on(held_out, probability)
        self.models_ = self._final_models(learner, sample, candidates)
        self._keep_held_out(splits, probability, sample.signal.size)
        return probability

    def _run(
        self,
        step: Retraining,
        schedule: Schedule,
        start: ClassWeights,
        *,
        most: int,
        earlier: History,
        finished: Callable[[History], bool],
    ) -> tuple[History, list[_Candidate]]:
        """Run one cascade, after the rounds of an earlier run if there are any, and keep its best rounds."""
        history, best = History(), list[_Candidate]()
        new = cascade(step, schedule, start, p=step.sample.totals[0], monitor_every=self.monitor_every, resume=earlier)
        for r in until_no_increase(itertools.chain(earlier, new), self.extra_rounds, most):
            history.append(r)
            best.append(_Candidate(r, step.models, step.probability, step.seed))
            best.sort(key=self._preference)
            del best[self.keep :]
            if len(history) > len(earlier) and finished(history):
                break
        return history, [c if c.models else step.again(c) for c in best]

    def _may_be_kept(self, r: Round) -> bool:
        return r.valid and (self.utility_.guaranteed or r.improved)

    def _preference(self, c: _Candidate) -> tuple[bool, float]:
        return not self._may_be_kept(c.round), -c.round.significance

    def _final_models(self, learner: Any, sample: TrainingSample, candidates: list[_Candidate]) -> list[Model]:
        if not self.refit:
            return [model for c in candidates for model in c.models]
        rows = np.flatnonzero(sample.weight)
        threads = threads_for(self.n_jobs, sample.n_cells)
        models = []
        for c in candidates:
            trainer = bind_learner(learner, Binding(sample.X, sample.target, rows, rows[:1], c.seed, threads))
            models.append(trainer.fit(sample.learner_weights(rows, ClassWeights(*c.round.class_weights))))
        return models

    def _learners(self) -> tuple[Any]:
        return (default_learner() if self.estimator is None else self.estimator,)


class Retraining(SplitStep):
    """The step of a retrained cascade: a new classifier on each split."""

    def __init__(
        self,
        learner: Any,
        sample: TrainingSample,
        splits: Splits,
        held_out: TuningEvents,
        *,
        update_cut: str,
        seed: int,
        threads: int,
    ) -> None:
        super().__init__(sample, splits, held_out, update_cut=update_cut)
        self.seed = seed
        self._trainers = [
            bind_learner(learner, Binding(sample.X, sample.target, train, rows, seed, threads))
            for train, rows in splits
        ]
        self._held_out = [sample.rows(rows) for _, rows in splits]
        self.models: list[Model] = []
        self.probability: Array = np.empty(0)

    def train(self, weights: ClassWeights) -> None:
        """Train a new classifier on every split and score what it did not see."""
        pairs = zip(self._trainers, self.splits, strict=True)
        self.models = [trainer.fit(self.sample.learner_weights(train, weights)) for trainer, (train, _) in pairs]
        parts = zip(self.models, self._held_out, strict=True)
        self.probability = np.concatenate([model.signal_probability(X) for model, X in parts])

    def score(self, *, held_out: bool = True) -> Array:
        """P(signal) of the held-out or of the training rows of all splits."""
        if held_out:
            return self.probability
        parts = zip(self.models, self.splits, strict=True)
        return np.concatenate([model.signal_probability(self.sample.rows(train)) for model, (train, _) in parts])

    def again(self, candidate: _Candidate) -> _Candidate:
        """Train a round of an earlier run once more."""
        self.train(ClassWeights(*candidate.round.class_weights, candidate.round.u))
        return candidate._replace(models=self.models, held_out=self.probability)
