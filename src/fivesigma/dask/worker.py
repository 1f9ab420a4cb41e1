"""What every worker of a group does: the cascade of `fivesigma.cascade.algorithm`, in lockstep with all others.

Nothing here knows Dask. The function `train_share` runs wherever a thread has joined a group of
`xgboost.collective.CommunicatorContext`, and alone where it has not.
"""

from __future__ import annotations

import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fivesigma._tools.progress import listen
from fivesigma._tools.threads import note_threads
from fivesigma._types import Array, IntArray
from fivesigma.cascade.rounds import ClassWeights, Round
from fivesigma.dask.group import Group, GroupTuningEvents, PeerError
from fivesigma.dask.share import LocalEvents, Share, read_share
from fivesigma.errors import InputError, SmallSampleWarning
from fivesigma.estimators.grown import GrownCascadeClassifier
from fivesigma.estimators.split_steps import Growth, TuningEvents, Weigher
from fivesigma.estimators.training_sample import TrainingSample
from fivesigma.learners.libraries import check_library
from fivesigma.learners.xgboost import cache_folder
from fivesigma.significance import resolve_utility

SAMPLE = 200_000  # training events that decide the bins
_PAUSE = 1.0  # seconds between two questions whether to stop
KEEP_ON, STOP, GIVE_UP = 0, 1, 2


@dataclass(frozen=True)
class Job:
    """Settings of a training that all workers of a group share."""

    parameters: dict[str, Any]  # of `fivesigma.GrownCascadeClassifier`
    split_seed: int
    seed: int  # of the trees
    threads: int = 1  # of each worker
    most: int = SAMPLE  # training events that decide the bins
    resume: tuple[dict[str, Any], dict[str, bytes]] | None = None  # state and files of a checkpoint

    @property
    def n_done(self) -> int:
        """Rounds that an earlier run did."""
        return 0 if self.resume is None else len(self.resume[0]["rounds"]["index"])


@dataclass(frozen=True)
class Channel:
    """Connection of the first worker of a group to its caller; by default there is none."""

    heard: Callable[[Round], None] = lambda _: None  # called with each round
    kept: Callable[[dict[str, Any], dict[str, bytes]], None] = lambda _, __: None  # with state and files to be kept
    wanted: Callable[[], int] = lambda: KEEP_ON  # whether to keep on, to STOP with the trees there are, or to GIVE_UP


SILENT = Channel()


@dataclass(frozen=True)
class Trained:
    """Fitted attributes of the model that a group has trained."""

    fitted: dict[str, Any]  # fitted attributes of `fivesigma.GrownCascadeClassifier`
    warnings: list[str] = field(default_factory=list)  # what was said on the way
    counts: dict[int, tuple[int, int]] = field(default_factory=dict)  # events read and kept of each file


def train_share(
    job: Job, events: LocalEvents, group: Group, *, channel: Channel = SILENT, scratch: Path | None = None
) -> Trained | None:
    """Train with the events of this worker, in lockstep with all others of the group.

    Parameters
    ----------
    job : Job
        The same on all workers.
    events : LocalEvents
        This worker's own; there may be none.
    group : Group
    channel : Channel, optional
        Of the first worker.
    scratch : path, optional
        Folder on a local disk, for ``memory="disk"``.

    Returns
    -------
    Trained or None
        What the first worker returns is the model; the others return None.
    """
    model = _Member(**job.parameters, group=group, channel=channel)
    model.utility_ = resolve_utility(model.utility, model.b_reg)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        share = read_share(
            group,
            events,
            fraction=model.cv,
            seed=job.split_seed,
            pos_label=model.pos_label,
            negative=model.negative_weights,
            most=job.most,
            hold=model.memory == "all",
        )
        model.classes_, model.n_features_in_ = np.array(share.classes), share.table.shape[1]
        if getattr(events, "named", True):
            model.feature_names_in_ = np.array(events.feature_names, dtype=object)
        memory = "bins" if model.memory == "all" else model.memory
        folder = None
        if memory == "disk" and scratch is not None:
            folder = scratch / f"fivesigma-{uuid.uuid4().hex}"
        with cache_folder(memory, folder, share.table.shape) as cache:
            growth, start = _bound(model, share, group, job, memory, cache)
            share.table.let_go()
            if model.cascade and model.u_init != "auto":
                start = model._schedule(growth.gauge.floor).at(float(model.u_init))
            growth.gauge.warn_if_small()
            relay = _Relay(job.resume, channel if group.leads else SILENT, share.sums)
            with listen(channel.heard if group.leads else lambda _: None):
                model._train_and_tune(growth, start, share.totals[0], relay)  # type: ignore[arg-type]  # what it uses of a checkpoint
            del growth
    counts = group.gather(getattr(events, "counts", {}))
    if not group.leads:
        return None
    small = [str(w.message) for w in said if issubclass(w.category, SmallSampleWarning)]
    fitted = {name: value for name, value in vars(model).items() if name.endswith("_") and not name.startswith("_")}
    return Trained(fitted, small, {at: found for own in counts for at, found in own.items()})


class _Member(GrownCascadeClassifier):
    """The estimator as a worker runs it: it asks before every tree whether to stop, and all stop together."""

    def __init__(self, *, group: Group, channel: Channel, **parameters: Any) -> None:
        super().__init__(**parameters)
        self._group, self._channel, self._asked, self._answer = group, channel, -np.inf, KEEP_ON

    def _should_stop(self, n_trees: int, judged: list[float]) -> bool:
        if self._group.leads and time.monotonic() - self._asked > _PAUSE:
            self._asked, self._answer = time.monotonic(), self._channel.wanted()
        answer = int(self._group.most(float(self._answer if self._group.leads else KEEP_ON)))
        if answer == GIVE_UP:
            raise PeerError("the run was given up")
        return answer == STOP or super()._should_stop(n_trees, judged)

    def _tune_on(self, held_out: TuningEvents, probability: Array) -> None:
        """Set the cut of `predict` by its rule, on the held-out events of all workers."""
        self.cut_ = self._cut_on(held_out, probability)
        selected, n = self._group.sum(float(np.count_nonzero(probability >= self.cut_)), float(probability.size))
        self.selected_fraction_ = float(selected / n)


class _GroupGrowth(Growth):
    """The step of a grown cascade whose events are spread over workers."""

    def __init__(
        self, share: Share, group: Group, model: GrownCascadeClassifier, weigh: Weigher, **options: Any
    ) -> None:
        self._train, self._own, self._group = share.train, weigh, group
        none = np.empty(0)  # weights are scaled in the share
        negative = model.negative_weights
        super().__init__(
            TrainingSample(
                share.table, share.signal, np.array(share.classes), none, None, None, share.totals, negative
            ),
            [(share.train.rows, share.held_out.rows)],
            library=model.library,
            params=check_library(model.library, model.params),
            update_cut=model.update_cut,
            on_train=model.update == "train",
            bins=share.bins,
            **options,
        )

    def _weigher(self, rows: IntArray) -> Weigher:  # noqa: ARG002 - it was made for these rows
        return self._own

    def start(self) -> None:
        """Begin in the thread that grows the trees: XGBoost's random numbers belong to the thread that seeds them."""
        for booster, seed in zip(self._growers, self._seeds(0), strict=True):
            booster.start(seed)  # type: ignore[attr-defined]  # XGBoost alone grows on a cluster

    @cached_property
    def training(self) -> TuningEvents:
        """Training rows of all workers."""
        return GroupTuningEvents.shared(self._train.signal, self._train.weight, self.held_out.utility, self._group)


def _bound(  # noqa: PLR0917 - what `train_share` has
    model: GrownCascadeClassifier, share: Share, group: Group, job: Job, memory: str, cache: Path | None
) -> tuple[_GroupGrowth, ClassWeights]:
    """Bind the booster to this worker's events, with the bins that all share; return the first class weights too."""
    side = share.train
    base = np.abs(side.weight) if model.negative_weights == "abs" else np.maximum(side.weight, 0.0)
    total, n_rows = group.sum(float(base.sum()), float(base.size)).tolist()
    if not 0 < total / n_rows < np.inf:
        raise InputError(f"the learner weights of {n_rows:.0f} events sum to {total:g}; no learner can use them")
    base /= total / n_rows
    s, b = group.sum(float(base[side.signal].sum()), float(base[~side.signal].sum())).tolist()
    if not (s > 0 and b > 0):
        raise InputError("one class has no positive weight; signal and background both need some")
    weigh = Weigher(base, side.signal, (s, b), int(n_rows))
    held_out = GroupTuningEvents.shared(share.held_out.signal, share.held_out.weight, model.utility_, group)
    options = {"seed": job.seed, "threads": note_threads(job.threads), "memory": memory, "cache": cache}
    growth = group.agree(lambda: _GroupGrowth(share, group, model, weigh, held_out=held_out, **options))
    growth.start()
    return growth, ClassWeights(1.0 / s, 1.0 / b)


class _Relay:
    """A checkpoint that is kept elsewhere: the first worker sends it, and all resume from what they were given."""

    def __init__(
        self, resume: tuple[dict[str, Any], dict[str, bytes]] | None, channel: Channel, sums: list[float]
    ) -> None:
        self._resume, self._channel, self._sums = resume, channel, sums

    def read(self) -> tuple[dict[str, Any], dict[str, bytes]] | None:
        """State and files, or None if there are none."""
        if self._resume is not None:
            known = self._resume[0].get("sums", [])
            if len(known) != len(self._sums) or not np.allclose(known, self._sums, rtol=1e-9, atol=0.0):
                raise InputError("the checkpoint is of other events; give another folder or remove it")
        return self._resume

    @contextmanager
    def resuming(self) -> Iterator[None]:
        """Say in a sentence that a state is none of this run."""
        try:
            yield
        except Exception as err:
            raise InputError(f"the checkpoint cannot be resumed ({err}); remove the folder to start anew") from err

    def write(self, state: dict[str, Any], files: dict[str, bytes]) -> None:
        """Have the state kept."""
        self._channel.kept({**state, "sums": self._sums}, files)

    def say_interrupted(self, *_: Any) -> None:
        """Nobody is there to be told."""
