"""The grown cascade: one booster that gains one tree a round; the paper's second variant."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fivesigma._tools.threads import threads_for
from fivesigma._types import Array
from fivesigma.cascade.algorithm import Schedule, cascade
from fivesigma.cascade.rounds import ClassWeights, History
from fivesigma.datasets.stream import EventStream
from fivesigma.errors import InputError
from fivesigma.estimators.parameters import flag, none_or, one_of, whole
from fivesigma.estimators.running import reporting, spread_seeds, with_callbacks
from fivesigma.estimators.significance_classifier import CASCADE_CHECKS, SignificanceClassifier
from fivesigma.estimators.split_steps import Growth, TuningEvents, Weigher
from fivesigma.estimators.training_sample import Splits, TrainingSample, read_stream
from fivesigma.learners.libraries import LIBRARIES, bind_grower, check_library, tree_parameters
from fivesigma.learners.protocols import Binding, Model
from fivesigma.learners.xgboost import MEMORY, cache_folder
from fivesigma.significance import resolve_utility
from fivesigma.store.checkpoint import Checkpoint

UPDATES = ("held-out", "cross-fit", "train")
EARLY_WINDOW = 20  # trees whose mean significance early stopping looks at


@dataclass(repr=False, eq=False)
class GrownCascadeClassifier(SignificanceClassifier):
    """Weighted classification cascade that grows one booster by one tree per round.

    Each tree is fitted to the gradient of the weighted error at the present class weights (u, f*(u)); then u follows
    the yields of the booster so far. The events are binned once and only their weights change.

    Parameters
    ----------
    library : {"xgboost", "lightgbm"}, default="xgboost"
        Library that grows the trees.
    n_trees : int, default=500
        Trees, and rounds of the cascade.
    learning_rate, max_depth : float and int, optional
        Of the trees; by default 0.05 and 6.
    params : dict, optional
        Further parameters of the library's trees, such as ``{"min_child_weight": 5}``.
    cascade : bool, default=True
        False trains the plain model: class-balanced learner weights throughout, everything else the same. It is the
        baseline that a cascade has to beat.
    utility : str or Utility, default="ams2"
        What to maximise. Trees cannot be taken back, so with a utility without a guarantee (`RelativeBackground`) the
        class weights follow the yields all the same.
    b_reg, pos_label, negative_weights, verbose, monitor_every, random_state
        As in `CascadeClassifier`.
    u_init : "auto" or float, default="auto"
        First u. ``"auto"`` takes it at the plateau cut after one class-balanced tree, or after `warmup` more.
    cv : float, int, splitter or iterable, default=0.25
        Held-out events: a fraction, a number of folds, a splitter or pairs of row indices. With several splits as many
        boosters grow side by side, and their probabilities are averaged.
    update : {"held-out", "cross-fit", "train"}, default="held-out"
        Yields that u follows: of the held-out events; of all events, each scored by a booster that did not train on it
        (a fraction as `cv` then means as many folds as it takes, at least two); or of the training events, on which u
        runs away.
    update_every : int, default=5
        Trees between two updates of u, which look at the yields; rounds in between repeat those of the last look. The
        paper has 1, which takes longer.
    damping : float, default=0.0
        d in u <- (1 - d) u_new + d u_old.
    warmup : int, default=0
        Rounds before the one that first updates the class weights.
    u_bounds : (float, float), optional
        Limits of u.
    update_cut : {"zero", "plateau"}, default="zero"
        Cut at which the yields that drive u are formed: the sign of the margin, or the best cut on it.
    cut : {"model", "plateau", "peak", "smooth", "zero"} or float, default="model"
        Cut of `predict`, tuned on held-out events.
    early_stopping : int, optional
        Trees without a new best mean, over 20 trees, of the significance of the held-out events at their best cut,
        after which growth stops; the trees up to the best are kept. Off by default.
    refit : bool, default=False
        Whether to grow one booster on all events along the same path of u, in place of those of the splits.
    checkpoint : path, optional
        Folder to which the run is written every `checkpoint_every` trees; the same call resumes from there.
    checkpoint_every : int, default=50
        Trees between two writes. At each of them the booster is read back, so that a run that was killed ends with the
        same model as one with a checkpoint that was not; without a checkpoint, or with another interval, the random
        numbers of the trees are others.
    n_jobs : int, optional
        Threads: one by default, -1 for all cores.
    memory : {"all", "bins", "disk"}, default="all"
        What is held of the features: all of them; their bins, about four bytes per value; or, of XGBoost 3.0 and later,
        the bins in files that are read for every tree. The last two show the features to XGBoost batch by batch, and
        `fit` then also takes an `EventStream`, whose files are never in memory all at once.
    cache : path, optional
        Folder to be made for ``memory="disk"``, on a local disk with about 5 bytes per value; it is removed in the
        end and after an error. By default a temporary one.

    Attributes
    ----------
    history_ : History
        A `Round` for each tree; prints as a table.
    models_ : list
        Trained boosters, one for each split.
    n_trees_ : int
        Trees in each of them.
    feature_importances_ : array of shape (n_features,)
        Share of the total gain.
    held_out_score_, cut_, selected_fraction_, classes_
        As in `CascadeClassifier`; u and the number of trees may have been chosen on the held-out events.

    See Also
    --------
    fivesigma.CascadeClassifier : Any classifier, trained anew each round.

    Examples
    --------
    >>> import numpy as np
    >>> from fivesigma import GrownCascadeClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([1, 0], 2000)
    >>> X = rng.normal(size=(4000, 2)) + 1.5 * y[:, None]
    >>> w = np.where(y == 1, 0.15, 1.5)
    >>> model = GrownCascadeClassifier(n_trees=20, random_state=0, n_jobs=1).fit(X, y, sample_weight=w)
    >>> len(model.history_)
    20
    """

    library: str = "xgboost"
    _: KW_ONLY
    n_trees: int = 500
    learning_rate: float | None = None
    max_depth: int | None = None
    params: dict[str, Any] | None = None
    cascade: bool = True
    u_init: float | str = "auto"
    update: str = "held-out"
    update_every: int = 5
    damping: float = 0.0
    warmup: int = 0
    u_bounds: tuple[float, float] | None = None
    update_cut: str = "zero"
    early_stopping: int | None = None
    refit: bool = False
    monitor_every: int = 0
    checkpoint_every: int = 50
    memory: str = "all"
    cache: str | os.PathLike[str] | None = None

    _checks: ClassVar = {
        **SignificanceClassifier._checks,
        **CASCADE_CHECKS,
        "n_trees": whole(1),
        "monitor_every": whole(0),
        "checkpoint_every": whole(1),
        "early_stopping": none_or(whole(1)),
        "update": one_of(UPDATES),
        "memory": one_of(MEMORY),
        "refit": flag,
    }
    _stored: ClassVar = {**SignificanceClassifier._stored, "history_": History, "n_trees_": int, "models_": list}

    def __fivesigma_check__(self) -> None:
        """Refuse parameters that cannot be used, or not together."""
        super().__fivesigma_check__()
        able = [name for name, library in LIBRARIES.items() if self.memory in library.memory]
        if self.library in LIBRARIES and self.library not in able:
            raise InputError(f"memory={self.memory!r} is available with library={able[0]!r}, not with {self.library!r}")
        if self.memory != "disk" and self.cache is not None:
            raise InputError(f"cache is a folder for memory='disk', and memory is {self.memory!r}; leave cache out")

    def _fit_given(self, X: Any, y: Any, sample_weight: Any, process: Any, groups: Any) -> None:
        if not isinstance(X, EventStream):
            super()._fit_given(X, y, sample_weight, process, groups)
            return
        for name, given in (("y", y), ("sample_weight", sample_weight), ("process", process), ("groups", groups)):
            if given is not None:
                raise InputError(f"{name} is given with an EventStream, which reads it from its files; leave it out")
        self._fit_stream(X)

    @with_callbacks
    def _fit_stream(self, stream: EventStream) -> None:
        """Train on files that are read chunk by chunk."""
        if self.memory == "all":
            raise InputError("an EventStream needs memory='bins' or memory='disk'; load_events reads all of it")
        if not isinstance(self.cv, float):
            raise InputError(f"an EventStream needs a fraction as cv, the share of events held out, got {self.cv!r}")
        for name, taken in (("refit", self.refit), ("update='cross-fit'", self.update == "cross-fit")):
            if taken:
                raise InputError(f"{name} needs all events in memory; leave it out for an EventStream")
        self.utility_ = resolve_utility(self.utility, self.b_reg)
        split_seed, seed = spread_seeds(self.random_state, 2)
        options = {"pos_label": self.pos_label, "negative": self.negative_weights}
        sample, splits = read_stream(stream, self.cv, split_seed, **options)
        self.classes_, self.n_features_in_ = sample.classes, len(stream.feature_names)
        self.feature_names_in_ = np.array(stream.feature_names, dtype=object)
        self.columns_, table = asdict(stream.columns), sample.X
        interval = self._checkpoint_interval()
        described = (table.fingerprint(), sample.signal, sample.weight)
        with (
            Checkpoint.of(self, interval, *described) as checkpoint,
            cache_folder(self.memory, self.cache, table.shape) as cache,
        ):
            growth, start = self._growth(sample, splits, seed, cache)
            total, self.data_hash_ = sample.totals[0], table.digest(sample)
            self.training_rows_ = table.rows
            if self.monitor_every or self.update == "train":
                _ = growth.training  # while the events are still there
            del sample, splits, described  # the boosters have what they need: let go of the rest before they grow
            growth.forget()
            try:
                self._train_and_tune(growth, start, total, checkpoint)
            finally:
                del growth  # its matrices, before the files in which they are

    def _checkpoint_interval(self) -> int:
        return self.checkpoint_every

    def _fit(self, sample: TrainingSample, splits: Splits | None, checkpoint: Checkpoint | None) -> Array:
        split_seed, seed = spread_seeds(self.random_state, 2)
        if splits is None:
            few = self.update == "cross-fit" and isinstance(self.cv, float)
            splits = sample.splits(max(2, round(1 / self.cv)) if few else self.cv, split_seed)
        with cache_folder(self.memory, self.cache, sample.X.shape) as cache:
            probability = self._train_and_tune(*self._growth(sample, splits, seed, cache), sample.totals[0], checkpoint)
        if self.refit:
            self.models_ = [self._grow_on_all(sample, seed)]
        self._keep_held_out(splits, probability, sample.signal.size)
        return probability

    def _growth(
        self, sample: TrainingSample, splits: Splits, seed: int, cache: Path | None
    ) -> tuple[Growth, ClassWeights]:
        """Bind the boosters to their events; return the class weights of the first round too."""
        growth = Growth(
            sample,
            splits,
            TuningEvents.of(sample, np.concatenate([rows for _, rows in splits]), self.utility_),
            library=self.library,
            params=check_library(self.library, tree_parameters(self)),
            seed=seed,
            threads=threads_for(self.n_jobs, sample.n_cells),
            update_cut=self.update_cut,
            on_train=self.update == "train",
            memory=self.memory,
            cache=cache,
        )
        growth.gauge.warn_if_small()
        if self.cascade and self.u_init != "auto":
            return growth, self._schedule(growth.gauge.floor).at(float(self.u_init))
        return growth, sample.balanced(np.concatenate([rows for rows, _ in splits]))

    def _train_and_tune(self, growth: Growth, start: ClassWeights, p: float, checkpoint: Checkpoint | None) -> Array:
        """Grow the boosters and tune the cut; return P(signal) of the held-out rows."""
        self.history_, judged = self._grow(growth, start, p, checkpoint)
        self.n_trees_ = self._n_kept(len(self.history_), judged)
        self.models_ = growth.models(self.n_trees_)
        probability = growth.score_held_out_by(self.models_) if self.n_trees_ < len(self.history_) else growth.score()
        self._tune_on(growth.held_out, probability)
        return probability

    def _grow(
        self, growth: Growth, start: ClassWeights, p: float, checkpoint: Checkpoint | None
    ) -> tuple[History, list[float]]:
        """Run the cascade, from its checkpoint if there is one; return its rounds and what early stopping saw."""
        schedule = self._schedule(growth.gauge.floor)
        history, judged = History(), list[float]()
        if checkpoint and (saved := checkpoint.read()):
            with checkpoint.resuming():
                history, judged = History.from_columns(saved[0]["rounds"]), [float(z) for z in saved[0]["judged"]]
                growth.restore([saved[1][f"booster-{k}"] for k in range(len(saved[1]))], len(history))
        rounds = cascade(growth, schedule, start, p=p, monitor_every=self.monitor_every, resume=tuple(history))
        on_interrupt: dict[str, Any] = {"checkpoint": checkpoint, "unit": "tree", "every": self.checkpoint_every}
        with reporting(self, self.n_trees, "trees", len(history), **on_interrupt) as report:
            while len(history) < self.n_trees and not self._should_stop(len(history), judged):
                r = next(rounds)
                history.append(r)
                self._judge(growth, len(history), judged)
                if checkpoint and len(history) % self.checkpoint_every == 0:
                    dumped = growth.dump()
                    files = {f"booster-{k}": d for k, d in enumerate(dumped)}
                    checkpoint.write({"rounds": history.to_columns(), "judged": judged}, files)
                    growth.restore(dumped, len(history))
                if report(r):
                    break
        return history, judged

    def _schedule(self, floor: float) -> Schedule:
        if not self.cascade:
            return Schedule(self.utility_, update_every=self.update_every, warmup=int(self.n_trees), floor=floor)
        return Schedule(
            self.utility_,
            update_every=self.update_every,
            damping=self.damping,
            warmup=self.warmup,
            bounds=self.u_bounds,
            floor=floor,
            can_go_back=False,
        )

    # The next three decide how many trees there are; a search for their number has others.
    def _judge(self, growth: Growth, n_trees: int, judged: list[float]) -> None:  # noqa: ARG002 - for a search
        """Add what early stopping looks at after so many trees."""
        if self.early_stopping is not None:
            judged.append(growth.held_out.scan(growth.score()).significance)  # whatever drives u

    def _should_stop(self, n_trees: int, judged: list[float]) -> bool:  # noqa: ARG002 - for a search
        return self.early_stopping is not None and len(judged) - _best_end(judged) >= self.early_stopping

    def _n_kept(self, n_trees: int, judged: list[float]) -> int:
        """How many of the trees that have grown are kept."""
        return _best_end(judged) if self.early_stopping else n_trees

    def _grow_on_all(self, sample: TrainingSample, seed: int) -> Model:
        """Grow one booster on all events with the class weights of the rounds that were kept."""
        rows = np.flatnonzero(sample.weight)
        params, threads = check_library(self.library, tree_parameters(self)), threads_for(self.n_jobs, sample.n_cells)
        whole = bind_grower(self.library, params, Binding(sample.X, sample.target, rows, rows[:1], seed, threads))
        weigh = Weigher.of(sample, rows)
        for r in self.history_[: self.n_trees_]:
            whole.set_weights(weigh(ClassWeights(*r.class_weights)))
            whole.grow()
        return whole.model(self.n_trees_)


def _best_end(significance: list[float]) -> int:
    """Number of trees at which the mean significance over the last few is highest."""
    z = np.array(significance)
    if z.size <= EARLY_WINDOW:
        return int(z.size)
    total = np.cumsum(np.append(0.0, z))
    means = total[EARLY_WINDOW:] - total[:-EARLY_WINDOW]
    return int(np.argmax(means)) + EARLY_WINDOW
