"""The fits of a pool: every member on every split, in parallel, each kept in the checkpoint when it is done."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from fivesigma._tools.threads import spread_threads
from fivesigma._types import Array, IntArray
from fivesigma.errors import InputError, StoreError
from fivesigma.estimators.retrained import CascadeClassifier
from fivesigma.estimators.running import PoolProgress, on_cluster, run_on_cluster, run_parallel, threads_of_worker
from fivesigma.estimators.significance_classifier import SignificanceClassifier
from fivesigma.estimators.training_sample import Splits, TrainingSample
from fivesigma.learners.sklearn import check_learner
from fivesigma.store import check_storable
from fivesigma.store.checkpoint import Checkpoint

_RUNNING = ".running"  # ends the name of the checkpoint of a fit that is not finished


class Task(NamedTuple):
    """One fit that is to be done: a member on one split."""

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


class MemberFit(NamedTuple):
    """One fit that is done: the model, and its P(signal) of the held-out rows."""

    task: Task
    model: SignificanceClassifier
    held_out_score: Array


def as_member(estimator: Any) -> SignificanceClassifier:
    """Return an estimator of ours as it is, and a bare classifier as the plain model that it makes."""
    return estimator if isinstance(estimator, SignificanceClassifier) else CascadeClassifier(estimator, cascade=False)


def check_members(_: str, estimators: Sequence[tuple[str, Any]]) -> None:
    """Refuse members that have no usable name or cannot be members."""
    if not estimators:
        raise InputError("estimators is empty; a pool needs at least one (name, estimator) pair")
    try:
        pairs: list[tuple[Any, Any]] = [(name, estimator) for name, estimator in estimators]
    except (TypeError, ValueError):
        raise InputError(f"estimators must be (name, estimator) pairs, got {estimators!r}") from None
    for name, estimator in pairs:
        if not isinstance(name, str) or not name or name.startswith(".") or set(name) & set("/\\\0"):
            raise InputError(f"{name!r} cannot name a member: it must be text that could name a file")
        if not isinstance(estimator, SignificanceClassifier):
            check_learner(estimator)
            continue
        if "utility" not in estimator.get_params(deep=False):
            raise InputError(
                f"member {name!r} is a {type(estimator).__name__}, which learns from systematics that a pool does not "
                "hand on: fit it by itself"
            )
        estimator.__fivesigma_check__()
        if getattr(estimator, "update", None) == "cross-fit":
            raise InputError(
                f"member {name!r} has update='cross-fit', which needs folds of its own, but each fit of a pool has "
                "one split; use update='held-out'"
            )


def derived_seed(*key: int) -> int:
    """A seed for each combination of numbers."""
    return int(np.random.SeedSequence(key).generate_state(1)[0] >> 1)


def plan(names: Sequence[str], splits_of: Callable[[int], Splits], root: int) -> list[Task]:
    """All fits: every member on every one of its splits."""
    return [
        # A row that is held out twice is one event: it counts once.
        Task(k, name, at, train, np.unique(held_out), derived_seed(root, k, at, 1))
        for k, name in enumerate(names)
        for at, (train, held_out) in enumerate(splits_of(k))
    ]


def check_kept(members: Sequence[tuple[str, SignificanceClassifier]], utility: Any) -> None:
    """Refuse before training what a checkpoint could not hold after it."""
    for where, value in [*((f"member {name!r}", member) for name, member in members), ("utility", utility)]:
        try:
            check_storable(value, where)
        except StoreError as err:
            reason = str(err).partition(";")[0]
            raise InputError(f"checkpoint cannot hold this pool: {reason}; leave checkpoint out") from err


def run_fits(
    pool: Any,
    members: Sequence[SignificanceClassifier],
    tasks: list[Task],
    sample: TrainingSample,
    checkpoint: Checkpoint | None,
    *,
    ready: Mapping[str, MemberFit] = MappingProxyType({}),
) -> list[MemberFit]:
    """Run the fits; those of a member that a callback stopped in between are left out."""
    workers, threads = spread_threads(pool.n_jobs, len(tasks), sample.n_cells)
    done = checkpoint.finished() if checkpoint else set()
    if checkpoint:
        _clear_leftovers(checkpoint, done)
    done |= set(ready)
    elsewhere: Iterator[MemberFit] | None = None
    if on_cluster():
        settings = SimpleNamespace(utility_=pool.utility_, negative_weights=pool.negative_weights, n_jobs=pool.n_jobs)
        missing = [(settings, members[t.member], t, sample) for t in tasks if t.key not in done]
        elsewhere = run_on_cluster(_fit_elsewhere, missing)
    progress = PoolProgress(pool, {t.key: rounds_of(members[t.member]) for t in tasks})
    with progress.showing(checkpoint):

        def work(task: Task) -> MemberFit | None:
            if progress.stopped and elsewhere is None and task.member > 0:  # a pool needs one member
                return None
            with progress.fit(task.key):
                if task.key in ready:
                    return ready[task.key]
                if checkpoint and task.key in done:
                    stored = checkpoint.kept(task.key)
                    return MemberFit(task, stored["model"], stored["held_out"])
                if elsewhere is None:
                    fit = fit_task(pool, members[task.member], task, sample, threads=threads, checkpoint=checkpoint)
                else:
                    fit = next(elsewhere)
                if checkpoint:
                    keep_fit(checkpoint, fit)
                return fit

        # What is finished is kept here, not what is half done on a cluster.
        fits = run_parallel(work, [(t,) for t in tasks], workers) if elsewhere is None else [work(t) for t in tasks]
    left_out = {t.member for t, fit in zip(tasks, fits, strict=True) if fit is None}
    return [fit for fit in fits if fit is not None and fit.task.member not in left_out]


def _fit_elsewhere(settings: Any, member: SignificanceClassifier, task: Task, sample: TrainingSample) -> MemberFit:
    return fit_task(settings, member, task, sample, threads=threads_of_worker(settings.n_jobs), checkpoint=None)


def rounds_of(member: SignificanceClassifier) -> int:
    """Rounds that a member reports at most."""
    if isinstance(member, CascadeClassifier):
        rounds = (member.max_rounds if member.cascade else 0) + (member.u_init == "auto" or not member.cascade)
        return rounds * member.n_restarts
    return int(getattr(member, "n_trees", 1))


def fit_task(
    pool: Any,
    member: SignificanceClassifier,
    task: Task,
    sample: TrainingSample,
    *,
    threads: int,
    checkpoint: Checkpoint | None,
) -> MemberFit:
    """Fit a member on one split; while it runs, the checkpoint holds what a member writes to its own."""
    model: SignificanceClassifier = clone(member)
    model.set_params(
        utility=pool.utility_,
        b_reg=None,
        negative_weights=pool.negative_weights,
        checkpoint=checkpoint.folder / f"{task.key}{_RUNNING}" if checkpoint else None,
        random_state=task.seed,
        n_jobs=threads,
        **({"refit": False} if getattr(model, "refit", False) else {}),  # it would train on the events that judge it
    )
    score = model._fit_sample(sample, [(task.train, task.held_out)])
    if hasattr(model, "held_out_score_"):
        del model.held_out_score_  # the pool keeps that of all its members
    if checkpoint:
        model.set_params(checkpoint=None)
    return MemberFit(task, model, score)


def keep_fit(checkpoint: Checkpoint, fit: MemberFit) -> None:
    """Write a finished fit; in this order a kill between any two steps leaves a fit that is finished or can resume."""
    key = fit.task.key
    checkpoint.keep(key, {"model": fit.model, "held_out": fit.held_out_score})
    shutil.rmtree(checkpoint.folder / f"{key}{_RUNNING}", ignore_errors=True)


def _clear_leftovers(checkpoint: Checkpoint, done: set[str]) -> None:
    """Remove what a run that was killed had no time to remove: finished fits' checkpoints and half-written models."""
    for path in checkpoint.folder.iterdir():
        if path.is_dir() and (path.name.removesuffix(_RUNNING) in done - {path.name} or path.name.startswith(".")):
            shutil.rmtree(path, ignore_errors=True)


def mean_by_member(scores: Iterable[tuple[str, Array]]) -> dict[str, Array]:
    """Mean score of the fits of each member."""
    by_name: dict[str, list[Array]] = {}
    for name, score in scores:
        by_name.setdefault(name, []).append(score)
    return {name: np.mean(parts, axis=0) for name, parts in by_name.items()}
