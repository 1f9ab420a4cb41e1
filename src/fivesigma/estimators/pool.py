"""The pool: cascades and plain models, blended; the paper's ensemble."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils.metaestimators import _BaseComposition

from fivesigma._types import Array, IntArray
from fivesigma.cascade import History
from fivesigma.errors import InputError
from fivesigma.estimators.base import SignificanceClassifier
from fivesigma.estimators.blend import Blend
from fivesigma.estimators.checkpoint import Checkpoint
from fivesigma.estimators.grown import GrownCascadeClassifier
from fivesigma.estimators.parallel import run_parallel, spread_seeds, spread_threads
from fivesigma.estimators.progress import CallbackSupportMixin, PoolProgress, with_callbacks
from fivesigma.estimators.retrained import CascadeClassifier
from fivesigma.estimators.sample import Gauge, Sample
from fivesigma.learners import check_learner
from fivesigma.significance import Utility


class _Task(NamedTuple):
    """One fit: a member on one split."""

    member: int
    name: str
    number: int
    train: IntArray
    held_out: IntArray
    seed: int

    @property
    def key(self) -> str:
        """Name of the fit in a checkpoint."""
        return f"{self.name}-{self.number}"


class CascadePool(CallbackSupportMixin, SignificanceClassifier, _BaseComposition):
    """Blend of cascades and plain models.

    Parameters
    ----------
    estimators : list of (str, estimator)
        Members: cascades of fivesigma, plain models (``GrownCascadeClassifier(cascade=False)``), or any classifier that
        takes ``sample_weight``, which becomes the plain ``CascadeClassifier(classifier, max_rounds=0)``. All of them
        take the pool's utility and its held-out events.
    keep : int, optional
        Number of members to keep, those of the highest held-out significance; all by default.
    blend : {"rank", "margin", "probability"}, default="rank"
        What is averaged. Ranks are shares of held-out events below a score.
    weights : {"even", "fit"}, default="even"
        Weights of the members in the blend; ``"fit"`` finds non-negative ones on held-out scores.
    utility : str or Utility, default="ams2"
        What to maximise, for the pool and all its cascades.
    b_reg : float, optional
        Constant added to b, if `utility` is a name.
    cv : float, int, splitter or iterable, default=0.25
        A fraction holds out the same events from all members. A number of folds bags: each member is trained once a
        fold, on folds of its own, and scores the events that it did not see, so that all events have honest scores.
    n_repeats : int, default=1
        Repeats of the folds, each with new folds and seeds.
    cut : {"plateau", "peak", "smooth", "zero"} or float, default="plateau"
        Cut of `predict`, tuned on the blended held-out scores.
    pos_label : label, optional
        The signal. By default the larger number, or the signal of a known pair such as s/b.
    negative_weights : {"error", "zero", "abs"}, default="error"
        What learners see of negative weights; s and b always keep the sign.
    verbose : int, default=0
        1 shows a progress bar on stderr.
    checkpoint : path, optional
        Folder to which each finished fit is written, and every 50 trees of a grown one; the same call goes on from
        there.
    random_state : int, RandomState or None, default=None
        Seed of splits and members; each member gets its own.
    n_jobs : int, optional
        Cores to use, by members and their learners together; all by default.

    Attributes
    ----------
    members_ : list of (str, estimator)
        Trained members that were kept; a bagged member stands here once for each of its fits.
    blend_ : Blend
        How their scores are averaged.
    member_significance_ : dict of str to float
        Held-out significance of every member at its own best cut.
    held_out_score_ : array of shape (n_events,)
        Blended score of each event by models that did not train on it; NaN for events that were never held out.
    history_ : History
        Rounds of all cascades that were kept.
    cut_, selected_fraction_ : float
        Threshold on ``predict_proba(X)[:, 1]``, and the share of held-out events that it selects.
    classes_ : array of shape (2,)
        (background, signal).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fivesigma import CascadeClassifier, CascadePool
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([1, 0], 2000)
    >>> X = rng.normal(size=(4000, 2)) + 1.5 * y[:, None]
    >>> w = np.where(y == 1, 0.15, 1.5)
    >>> members = [("plain", LogisticRegression()), ("cascade", CascadeClassifier(LogisticRegression()))]
    >>> pool = CascadePool(members, random_state=0).fit(X, y, sample_weight=w)
    >>> sorted(pool.member_significance_)
    ['cascade', 'plain']
    """

    def __init__(
        self,
        estimators: Sequence[tuple[str, Any]] = (),
        *,
        keep: int | None = None,
        blend: str = "rank",
        weights: str = "even",
        utility: str | Utility = "ams2",
        b_reg: float | None = None,
        cv: Any = 0.25,
        n_repeats: int = 1,
        cut: str | float = "plateau",
        pos_label: Any = None,
        negative_weights: str = "error",
        verbose: int = 0,
        checkpoint: str | os.PathLike[str] | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimators = estimators
        self.keep = keep
        self.blend = blend
        self.weights = weights
        self.utility = utility
        self.b_reg = b_reg
        self.cv = cv
        self.n_repeats = n_repeats
        self.cut = cut
        self.pos_label = pos_label
        self.negative_weights = negative_weights
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.n_jobs = n_jobs

    @classmethod
    def paper_ten(cls, n_trees: int = 500, library: str = "xgboost", params: Any = None, **options: Any) -> CascadePool:
        """Return the paper's post-challenge recipe: five plain and five grown models of 500 trees, averaged.

        Parameters
        ----------
        n_trees, library, params
            Of each model; see `GrownCascadeClassifier`.
        **options
            Of the pool.
        """
        members = [
            (f"{name}-{k}", GrownCascadeClassifier(library, n_trees=n_trees, params=params, cascade=cascade))
            for name, cascade in (("plain", False), ("grown", True))
            for k in range(1, 6)
        ]
        return cls(members, **options)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters of the pool and, with names before them, of its members."""
        params: dict[str, Any] = self._get_params("estimators", deep=deep)
        return params

    def set_params(self, **params: Any) -> CascadePool:
        """Set parameters of the pool or, with a name and two underscores before them, of its members."""
        self._set_params("estimators", **params)
        return self

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None, process: Any = None) -> CascadePool:
        """Train the members and blend them.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_events, n_features)
        y : array-like of shape (n_events,)
            Two labels.
        sample_weight : array-like of shape (n_events,), optional
            Physics weights: the expected yield of each event. One each if not given.
        process : array-like of shape (n_events,), optional
            Process of each event; splits are stratified by it.

        Returns
        -------
        self
        """
        self._check_members()
        sample = self._check_sample(X, y, sample_weight, process)
        self._check_integers(n_repeats=1, **({} if self.keep is None else {"keep": 1}))
        if self.weights not in ("even", "fit"):
            raise InputError(f"weights must be 'even' or 'fit', got {self.weights!r}")
        checkpoint = Checkpoint.of(self, 0, sample.X, sample.signal, sample.weight, process)

        tasks = self._tasks(sample)
        workers, threads = spread_threads(self.n_jobs, len(tasks))
        done = set() if checkpoint is None else _finished(checkpoint)
        rounds = {t.key: self._rounds(t.member) for t in tasks}
        with PoolProgress(self, rounds).showing() as progress:

            def work(task: _Task) -> SignificanceClassifier:
                with progress.fit(task.key):
                    return self._fit_one(task, sample, threads, checkpoint, done)

            try:
                models = run_parallel(work, [(t,) for t in tasks], workers)
            except KeyboardInterrupt:
                if checkpoint:
                    checkpoint.say_interrupted(progress.finished, len(_finished(checkpoint)), "fit")
                raise
        self._blend_members(sample, tasks, models)
        return self

    def _check_members(self) -> None:
        if not self.estimators:
            raise InputError("estimators is empty; a pool needs at least one (name, estimator) pair")
        try:
            names = [name for name, _ in self.estimators]
        except (TypeError, ValueError):
            raise InputError(f"estimators must be (name, estimator) pairs, got {self.estimators!r}") from None
        self._validate_names(names)
        for _, estimator in self.estimators:
            if not isinstance(estimator, SignificanceClassifier):
                check_learner(estimator)

    def _tasks(self, sample: Sample) -> list[_Task]:
        """All fits: every member on every split."""
        (root,) = spread_seeds(self.random_state, 1)
        bagged = isinstance(self.cv, (int, np.integer))  # only then has each member folds of its own
        common = [] if bagged else [sample.splits(self.cv, _seed(root, 0, r)) for r in range(self.n_repeats)]
        tasks = []
        for k, (name, _) in enumerate(self.estimators):
            repeats = [sample.splits(self.cv, _seed(root, k, r)) for r in range(self.n_repeats)] if bagged else common
            for at, (train, held_out) in enumerate(itertools.chain.from_iterable(repeats)):
                tasks.append(_Task(k, name, at, train, held_out, _seed(root, k, at, 1)))
        return tasks

    def _rounds(self, member: int) -> int:
        """Rounds that a member reports at most."""
        model = self._member(member)
        if isinstance(model, CascadeClassifier):
            return (model.max_rounds + (model.u_init == "auto")) * model.n_restarts
        return int(getattr(model, "n_trees", 1))

    def _member(self, k: int) -> SignificanceClassifier:
        """Return a member, a bare classifier as the plain model that it makes."""
        estimator = self.estimators[k][1]
        if isinstance(estimator, SignificanceClassifier):
            return estimator
        return CascadeClassifier(estimator, max_rounds=0)

    def _fit_one(
        self, task: _Task, sample: Sample, threads: int, checkpoint: Checkpoint | None, done: set[str]
    ) -> SignificanceClassifier:
        """Fit a member on one split, or take it from the checkpoint."""
        from fivesigma.store import load, save  # the store knows all estimators, this one too

        if checkpoint and task.key in done:
            stored: SignificanceClassifier = load(checkpoint.folder / task.key)
            return stored
        model: SignificanceClassifier = clone(self._member(task.member)).set_params(
            utility=self.utility_,
            b_reg=None,
            cv=[(task.train, task.held_out)],
            negative_weights=self.negative_weights,
            checkpoint=checkpoint.folder / f"{task.key}.running" if checkpoint else None,
            random_state=task.seed,
            n_jobs=threads,
        )
        model.fit(sample.X, sample.target, sample.weight)
        if checkpoint:
            save(model, checkpoint.folder / task.key)
            shutil.rmtree(checkpoint.folder / f"{task.key}.running", ignore_errors=True)
            with checkpoint.lock:
                checkpoint.write({"fits": sorted(_finished(checkpoint) | {task.key})}, {})
        return model

    def _blend_members(self, sample: Sample, tasks: list[_Task], models: list[SignificanceClassifier]) -> None:
        """Choose members, weigh them, and tune the cut, all on held-out scores."""
        n, n_members = sample.signal.size, len(self.estimators)
        total, count = np.zeros((n_members, n)), np.zeros((n_members, n))
        for task, model in zip(tasks, models, strict=True):
            total[task.member, task.held_out] += model.predict_proba(sample.rows(task.held_out))[:, 1]
            count[task.member, task.held_out] += 1
        rows = np.flatnonzero(count.min(axis=0))
        scores = total[:, rows] / count[:, rows]
        gauge = Gauge.of(sample, rows, self.utility_)
        gauge.warn_if_small()
        names = [name for name, _ in self.estimators]
        z = np.array([gauge.scan(p).significance for p in scores])
        self.member_significance_ = {name: float(v) for name, v in zip(names, z, strict=True)}
        kept = sorted(np.argsort(-z, kind="stable")[: self.keep])
        chosen = [scores[k] for k in kept]
        blend = Blend.fitted(self.blend, chosen)
        if self.weights == "fit":
            balanced = sample.learner_weights(rows, sample.balanced(rows))
            blend = blend.reweighted(chosen, gauge.signal, balanced)
        self.blend_ = blend
        self.members_ = [(t.name, m) for t, m in zip(tasks, models, strict=True) if t.member in kept]
        blended = blend(chosen)
        self._tune_cut(gauge, blended)
        self.held_out_score_ = np.full(n, np.nan)
        self.held_out_score_[rows] = blended
        self.history_ = History(r for _, m in self.members_ for r in m.history_)

    def _signal_probability(self, X: Any) -> Array:
        by_name: dict[str, list[Array]] = {}
        for name, model in self.members_:
            by_name.setdefault(name, []).append(model.predict_proba(X)[:, 1])
        return self.blend_([np.mean(parts, axis=0) for parts in by_name.values()])

    def _learners(self) -> Iterator[Any]:
        return (estimator for _, estimator in self.estimators)


def _seed(*key: int) -> int:
    return int(np.random.SeedSequence(key).generate_state(1)[0] >> 1)


def _finished(checkpoint: Checkpoint) -> set[str]:
    """Fits that a checkpoint holds."""
    saved = checkpoint.read()
    return set() if saved is None else {key for key in saved[0]["fits"] if Path(checkpoint.folder / key).exists()}
