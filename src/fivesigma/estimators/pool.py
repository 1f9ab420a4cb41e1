"""The pool: cascades and plain models, blended; the paper's ensemble."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils.metaestimators import _BaseComposition
from sklearn.utils.validation import check_is_fitted

from fivesigma._types import Array, IntArray
from fivesigma.cascade import History
from fivesigma.errors import InputError, StoreError
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

_RUNNING = ".running"  # ends the name of the checkpoint of a fit that is not finished


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
        take the pool's utility, its policy for negative weights and its held-out events, which they are never trained
        on: a member's own ``utility``, ``b_reg``, ``cv``, ``refit``, ``pos_label``, ``negative_weights``,
        ``checkpoint``, ``random_state`` and ``n_jobs`` do not count.
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
        fold, on folds of its own, and scores the events that it was not fitted on, so that all events have such scores.
    n_repeats : int, default=1
        Repeats of the folds, each with new folds and seeds.
    cut : {"plateau", "peak", "smooth", "zero"} or float, default="plateau"
        Cut of `predict`, tuned on the blended held-out scores; ``"zero"``, the sign of the margin, is not for ranks.
        A bagged pool keeps the tuned share of events rather than the score: the mean of all fits of a member is
        narrower than the scores of one fit on which the share was tuned.
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
        Significance of every member on held-out events at its own best cut. It is not that of new events: no member was
        fitted on these events, but cascades chose u, rounds and early stopping on them, and the cut is the best one on
        them too. So it favours members that chose among more rounds, and so does `keep`.
    held_out_score_ : array of shape (n_events,)
        Blended score of each event by models that were not fitted on it (u, rounds and early stopping were chosen on
        it); NaN for events that were never held out.
    held_out_scores_ : dict of str to array of shape (n_events,)
        The same for each member alone, those that were not kept too.
    history_ : History
        Rounds of all fits that were kept; the ``restart`` of a round is the position of its fit in `members_`.
    cut_, selected_fraction_ : float
        Threshold on ``predict_proba(X)[:, 1]``, and the share of held-out events that the cut was tuned to select.
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
        if self.cut == "zero" and self.blend == "rank":
            raise InputError(
                "cut='zero' is the sign of a margin and blend='rank' has none: use blend='margin' or another cut"
            )
        if self.checkpoint is not None:
            self._check_storable()
        tasks = self._tasks(sample)
        checkpoint = Checkpoint.of(self, 0, sample.X, sample.signal, sample.weight, process)
        try:
            tasks, models = self._fit_all(tasks, sample, checkpoint)
        finally:
            if checkpoint:
                checkpoint.release()
        self._blend_members(sample, tasks, models)
        return self

    def _fit_all(
        self, tasks: list[_Task], sample: Sample, checkpoint: Checkpoint | None
    ) -> tuple[list[_Task], list[SignificanceClassifier]]:
        """Run the fits; those of a member that a callback stopped in between are left out."""
        workers, threads = spread_threads(self.n_jobs, len(tasks))
        done = set() if checkpoint is None else _finished(checkpoint)
        if checkpoint:
            _clear_leftovers(checkpoint, done)
        rounds = {t.key: self._rounds(t.member) for t in tasks}
        with PoolProgress(self, rounds).showing() as progress:

            def work(task: _Task) -> SignificanceClassifier | None:
                if progress.stopped and task.member > 0:  # a pool needs one member
                    return None
                with progress.fit(task.key):
                    return self._fit_one(task, sample, threads, checkpoint, done)

            try:
                models = run_parallel(work, [(t,) for t in tasks], workers)
            except KeyboardInterrupt:
                if checkpoint:
                    checkpoint.say_interrupted(progress.finished, len(_finished(checkpoint)), "fit")
                raise
        left_out = {t.member for t, m in zip(tasks, models, strict=True) if m is None}
        pairs = [(t, m) for t, m in zip(tasks, models, strict=True) if m is not None and t.member not in left_out]
        return [t for t, _ in pairs], [m for _, m in pairs]

    def _check_members(self) -> None:
        if not self.estimators:
            raise InputError("estimators is empty; a pool needs at least one (name, estimator) pair")
        try:
            names: list[Any] = [name for name, _ in self.estimators]
        except (TypeError, ValueError):
            raise InputError(f"estimators must be (name, estimator) pairs, got {self.estimators!r}") from None
        for name in names:
            if not isinstance(name, str) or not name or name.startswith(".") or set(name) & set("/\\\0"):
                raise InputError(f"{name!r} cannot name a member: it must be text that could name a file")
        self._validate_names(names)
        for name, estimator in self.estimators:
            if not isinstance(estimator, SignificanceClassifier):
                check_learner(estimator)
            elif getattr(estimator, "update", None) == "cross-fit":
                raise InputError(
                    f"member {name!r} has update='cross-fit', which needs folds of its own, but each fit of a pool has "
                    "one split; use update='held-out'"
                )

    def _check_storable(self) -> None:
        """Refuse before training what a checkpoint could not hold after it."""
        from fivesigma.store import parts, values
        from fivesigma.store.packing import Packer

        what = [(f"member {name!r}", self._member(k)) for k, (name, _) in enumerate(self.estimators)]
        for where, value in [*what, ("utility", self.utility_)]:
            try:
                Packer((*values.CODECS, *parts.CODECS)).pack(value, where)
            except StoreError as err:
                reason = str(err).partition(";")[0]
                raise InputError(f"checkpoint cannot hold this pool: {reason}; leave checkpoint out") from err

    def _tasks(self, sample: Sample) -> list[_Task]:
        """All fits: every member on every split."""
        (root,) = spread_seeds(self.random_state, 1)
        bagged = isinstance(self.cv, (int, np.integer))  # only then has each member folds of its own
        common = [] if bagged else [sample.splits(self.cv, _seed(root, 0, r)) for r in range(self.n_repeats)]
        tasks = []
        for k, (name, _) in enumerate(self.estimators):
            repeats = [sample.splits(self.cv, _seed(root, k, r)) for r in range(self.n_repeats)] if bagged else common
            for at, (train, held_out) in enumerate(itertools.chain.from_iterable(repeats)):
                # A row that is held out twice is one event: it counts once.
                tasks.append(_Task(k, name, at, train, np.unique(held_out), _seed(root, k, at, 1)))
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
        model: SignificanceClassifier = clone(self._member(task.member))
        if "refit" in model.get_params():
            model.set_params(refit=False)  # it would train on the events that judge it
        model.set_params(
            utility=self.utility_,
            b_reg=None,
            cv=[(task.train, task.held_out)],
            pos_label=None,  # members see 1 and 0
            negative_weights=self.negative_weights,
            checkpoint=checkpoint.folder / f"{task.key}{_RUNNING}" if checkpoint else None,
            random_state=task.seed,
            n_jobs=threads,
        )
        model.fit(sample.X, sample.target, sample.weight)
        if checkpoint:
            # In this order a kill between any two steps leaves a fit that is finished or can go on.
            save(model, checkpoint.folder / task.key, force=True)
            with checkpoint.lock:
                checkpoint.write({"fits": sorted(_finished(checkpoint) | {task.key})}, {})
            shutil.rmtree(checkpoint.folder / f"{task.key}{_RUNNING}", ignore_errors=True)
        return model

    def _blend_members(self, sample: Sample, tasks: list[_Task], models: list[SignificanceClassifier]) -> None:
        """Choose members, weigh them, and tune the cut, all on held-out scores."""
        members = sorted({t.member for t in tasks})
        names = [self.estimators[k][0] for k in members]
        n = sample.signal.size
        total, count = np.zeros((len(members), n)), np.zeros((len(members), n))
        for task, model in zip(tasks, models, strict=True):
            row = members.index(task.member)
            total[row, task.held_out] += model.predict_proba(sample.rows(task.held_out))[:, 1]
            count[row, task.held_out] += 1
        rows = np.flatnonzero(count.min(axis=0))
        scores = total[:, rows] / count[:, rows]
        gauge = Gauge.of(sample, rows, self.utility_)
        gauge.warn_if_small()
        z = np.array([gauge.scan(p).significance for p in scores])
        self.member_significance_ = {name: float(v) for name, v in zip(names, z, strict=True)}
        kept = sorted(np.argsort(-z, kind="stable")[: self.keep])
        chosen = [scores[k] for k in kept]
        blend = Blend.fitted(self.blend, chosen)
        if self.weights == "fit":
            balanced = sample.learner_weights(rows, sample.balanced(rows))
            blend = blend.reweighted(chosen, gauge.signal, balanced)
        self.blend_ = blend
        of_kept = [(t, m) for t, m in zip(tasks, models, strict=True) if t.name in {names[k] for k in kept}]
        self.members_ = [(t.name, m) for t, m in of_kept]
        blended = blend(chosen)
        self._tune_cut(gauge, blended)
        if len(of_kept) > len(kept) and isinstance(self.cut, str) and self.cut != "zero":
            as_new = _mean_by_member((t.name, _as_if_new(t, m, sample, rows)) for t, m in of_kept)
            self.cut_ = float(np.quantile(blend(list(as_new.values())), 1.0 - self.selected_fraction_))
        with np.errstate(invalid="ignore"):  # 0/0 is NaN: an event that was never held out
            self.held_out_scores_ = dict(zip(names, total / count, strict=True))
        self.held_out_score_ = np.full(n, np.nan)
        self.held_out_score_[rows] = blended
        self.history_ = History(replace(r, restart=k) for k, (_, m) in enumerate(self.members_) for r in m.history_)

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
        workers, _ = spread_threads(self.n_jobs, len(self.members_))
        scores = run_parallel(lambda model: model.predict_proba(X)[:, 1], [(m,) for _, m in self.members_], workers)
        return _mean_by_member(zip((name for name, _ in self.members_), scores, strict=True))

    def _signal_probability(self, X: Any) -> Array:
        return self.blend_(list(self.member_scores(X).values()))

    def _learners(self) -> Iterator[Any]:
        return (estimator for _, estimator in self.estimators)


def _mean_by_member(scores: Iterable[tuple[str, Array]]) -> dict[str, Array]:
    """Mean score of the fits of each member."""
    by_name: dict[str, list[Array]] = {}
    for name, score in scores:
        by_name.setdefault(name, []).append(score)
    return {name: np.mean(parts, axis=0) for name, parts in by_name.items()}


def _seed(*key: int) -> int:
    return int(np.random.SeedSequence(key).generate_state(1)[0] >> 1)


def _as_if_new(task: _Task, model: SignificanceClassifier, sample: Sample, rows: IntArray) -> Array:
    """Scores of events as if a fit had seen none of them.

    Scores of its training events lie too far apart: they are mapped to the distribution of scores of its held-out ones.
    """
    score = model.predict_proba(sample.rows(rows))[:, 1]
    seen, new = np.isin(rows, task.train), np.isin(rows, task.held_out)
    if seen.any() and new.any():
        below = np.searchsorted(np.sort(score[seen]), score[seen], "right") / np.count_nonzero(seen)
        score[seen] = np.quantile(score[new], below)
    return score


def _clear_leftovers(checkpoint: Checkpoint, done: set[str]) -> None:
    """Remove what a run that was killed had no time to remove: finished fits' checkpoints and half-written models."""
    for path in checkpoint.folder.iterdir():
        if path.is_dir() and (path.name.removesuffix(_RUNNING) in done - {path.name} or path.name.startswith(".")):
            shutil.rmtree(path, ignore_errors=True)


def _finished(checkpoint: Checkpoint) -> set[str]:
    """Fits that a checkpoint holds."""
    saved = checkpoint.read()
    return set() if saved is None else {key for key in saved[0]["fits"] if Path(checkpoint.folder / key).exists()}
