"""The front door: folds, a plain model, a cascade and a decomposed learner, blended as held-out events advise."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import issparse

from fivesigma._tools.extras import installed, need
from fivesigma._tools.progress import end_if_given_up
from fivesigma._tools.threads import limit_threads, threads_for
from fivesigma._types import Array, IntArray
from fivesigma.cascade.rounds import History
from fivesigma.errors import InputError
from fivesigma.estimators.blended import BlendedClassifier, Choice, choose_blend, held_out_scores
from fivesigma.estimators.decomposed import DecomposedClassifier
from fivesigma.estimators.grown import GrownCascadeClassifier
from fivesigma.estimators.member_fits import MemberFit, Task, fit_task, keep_fit, plan, run_fits
from fivesigma.estimators.net_classifier import NetClassifier
from fivesigma.estimators.parameters import none_or, one_of, whole
from fivesigma.estimators.retrained import CascadeClassifier
from fivesigma.estimators.running import run_parallel, spread_seeds
from fivesigma.estimators.significance_classifier import SignificanceClassifier
from fivesigma.estimators.split_steps import Growth, TuningEvents, Weigher
from fivesigma.estimators.training_sample import Splits, TrainingSample
from fivesigma.learners.libraries import (
    HISTOGRAM,
    LIBRARIES,
    check_parameters,
    default_regressor,
    installed_library,
    make_like_grown,
    tree_parameters,
)
from fivesigma.learners.protocols import Binding
from fivesigma.store.checkpoint import Checkpoint

PLAIN, CASCADE, DECOMPOSED, NET = "plain", "cascade", "decomposed", "net"
MORE_TREES = 1.5  # than are best for one model, where several on different folds are averaged
BINS = {"xgboost": {"max_bin": 128}}  # as good as its 256, and half the time with ten thousand events
WEIGHT_TREES = 30, 0.3, 3  # number, learning rate and depth: as good as 100, 0.1 and 4, for less time
FEWEST_FOR_NET = 1_000  # events with which a net is tried
WEIGHT_BINS = 32  # mean weights are smooth
CHOICES = ("auto", *LIBRARIES, HISTOGRAM)
MOST_TREES = 1000
EVERY = 10  # trees between two looks at the loss
PATIENCE = 3  # looks without a new minimum after which growth stops


def _net_choice(name: str, value: Any) -> None:
    if not (isinstance(value, bool) or value == "auto"):
        raise InputError(f"{name} must be True, False or 'auto', got {value!r}")


@dataclass(repr=False, eq=False)
class AutoClassifier(BlendedClassifier):
    """Blend of several models with a tuned cut, with no settings to choose.

    On the same folds a plain model, a grown cascade, a decomposed learner and, where torch is installed, a net are
    trained; each event is scored by models that did not see it. The number of trees is 1.5 times the one with which the
    loss of held-out events is lowest for one model, since new events are scored by the mean of several, which scatters
    less (with `by` they are scored by one, and the number is that of one). The cascade, which is done sooner, has the
    number of one model. All members but the net are blended, unless another blend of them is better by more than a
    standard error on held-out events; then the best one is. The net joins it with as much weight as all others
    together, unless that is worse by more than a standard error. The cut is tuned on the held-out scores of all events.
    `choice_` says what was chosen and why.

    Parameters
    ----------
    utility, b_reg, pos_label, negative_weights, verbose, random_state, n_jobs
        As in `CascadeClassifier`.
    cv : int, float, splitter or iterable, default=5
        Folds, the same for all members.
    by : str, optional
        Name of a kept column of integers, such as an event number, by which folds are made; see `CascadePool`.
    fast : bool, default=False
        Whether to train the plain model only, on the same folds: a third of the time, a sixth of that with a net.
    net : bool or "auto", default="auto"
        Whether a `NetClassifier` with momenta found by name is a member too. ``"auto"`` trains one where torch is
        installed, the features are numbers and there are 1,000 events. It takes about as long as all other members
        together; with more than 150,000 events it has fewer epochs, so that a fit sees two million of them at most.
        ``fast=True`` has none.
    library : {"auto", "xgboost", "lightgbm", "histogram"}, default="auto"
        Library of the trees; by default the first that is installed. ``"histogram"`` is that of scikit-learn, which
        grows no cascade: the plain and the decomposed model are blended.
    n_trees : int, optional
        Trees of a model; by default they are found. The cascade has two thirds of them, unless new events are scored
        by one fit.
    learning_rate, max_depth : float and int, optional
        Of the trees; by default 0.05 and 6, and those of scikit-learn for ``"histogram"``.
    params : dict, optional
        Further parameters of the library's trees, such as ``{"min_child_weight": 5}``.
    cut : {"model", "plateau", "peak", "smooth"} or float, default="model"
        Cut of `predict`, tuned on held-out events.
    checkpoint : path, optional
        Folder to which each finished fit is written; the same call resumes from there.

    Attributes
    ----------
    choice_ : str
        What was chosen and why.
    comparisons_ : dict of str to (float, float)
        Gain of every blend over the plain model on held-out events, and its standard error: the mean over cuts around
        the best one, simulation statistics only. Fits were judged on these events, so quote the significance of others.
    n_trees_ : int
        Trees of a plain and of a decomposed model.
    members_ : list of (str, estimator)
        Trained members of the blend, each once for each fold; their own cuts are not tuned.
    blend_, member_significance_, held_out_score_, held_out_scores_, history_, cut_, selected_fraction_, classes_
        As in `CascadePool`, of the members of the blend.

    Examples
    --------
    >>> import numpy as np
    >>> from fivesigma import AutoClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([1, 0], 2000)
    >>> X = rng.normal(size=(4000, 2)) + 1.5 * y[:, None]
    >>> w = np.where(y == 1, 0.15, 1.5)
    >>> model = AutoClassifier(fast=True, random_state=0, n_jobs=1).fit(X, y, sample_weight=w)
    >>> print(model.choice_)
    plain, 195 trees on 5 splits
    """

    _: KW_ONLY
    cv: Any = 5
    by: str | None = None
    fast: bool = False
    net: bool | str = "auto"
    library: str = "auto"
    n_trees: int | None = None
    learning_rate: float | None = None
    max_depth: int | None = None
    params: dict[str, Any] | None = None

    _checks: ClassVar = {
        **SignificanceClassifier._checks,
        "library": one_of(CHOICES),
        "n_trees": none_or(whole(1)),
        "net": _net_choice,
    }
    _stored: ClassVar = {**BlendedClassifier._stored, "choice_": str, "comparisons_": dict, "n_trees_": int}

    def _fit(self, sample: TrainingSample, splits: Splits | None, checkpoint: Checkpoint | None) -> Array:
        if self.cut == "zero":
            raise InputError("cut='zero' is the sign of a margin, and a blend of ranks has none: use another cut")
        library = installed_library() if self.library == "auto" else self.library
        params = {**BINS.get(library, {}), **check_parameters(library, tree_parameters(self))}
        split_seed, root = spread_seeds(self.random_state, 2)
        splits = sample.splits(self.cv, split_seed) if splits is None else splits
        more = MORE_TREES if self.by is None and len(splits) > 1 else 1.0
        first = plan([PLAIN], lambda _: splits[:1], root)[0]
        if self.n_trees is None:
            self.n_trees_, ready = count_trees(self, sample, first, library, params, checkpoint=checkpoint, more=more)
        else:
            self.n_trees_, ready = int(self.n_trees), {}
        members = _members(library, params, self.n_trees_, round(self.n_trees_ / more), plain_only=self.fast)
        if not self.fast and self._takes_net(sample):
            net = make_net(min(train.size for train, _ in splits), sample.feature_names)
            members[NET] = CascadeClassifier(net, cascade=False, cut="zero")
        tasks = plan(list(members), lambda _: splits, root)
        fits = run_fits(self, list(members.values()), tasks, sample, checkpoint, ready=ready)
        choice = self._choose(sample, fits, root)
        self.comparisons_ = choice.comparisons
        self.choice_ = _sentence(choice, self.n_trees_, len(splits))
        chosen = [fit for fit in fits if fit.task.name in choice.members]
        return self._blend_members(sample, chosen, splits, extra=NET)

    def _choose(self, sample: TrainingSample, fits: list[MemberFit], root: int) -> Choice:
        """Compare blends on events that every member scored without having seen them."""
        scores = held_out_scores(fits, sample.signal.size)
        if len(scores) == 1:
            return Choice(tuple(scores), {})
        rows = np.flatnonzero(np.isfinite([*scores.values()]).all(axis=0))
        gauge = TuningEvents.of(sample, rows, self.utility_)
        extra = NET if NET in scores else None
        return choose_blend({name: score[rows] for name, score in scores.items()}, gauge, root, extra=extra)

    def _takes_net(self, sample: TrainingSample) -> bool:
        if self.net is True:
            need("torch")
        if self.net != "auto":
            return bool(self.net)
        if (
            not (installed("torch") and installed("safetensors"))
            or issparse(sample.X)
            or sample.signal.size < FEWEST_FOR_NET
        ):
            return False
        try:
            return not np.isinf(np.asarray(sample.X, dtype=np.float64)).any()
        except (TypeError, ValueError):  # text or categories
            return False


def make_net(n_events: int, names: Any) -> NetClassifier:
    """A net for so many training events: smaller steps for few, and fewer epochs for very many, which bounds its time.

    Steps and epochs were chosen on toys of 1,500 and 5,000 events. Groups of weight and focus gain with many.
    """
    many = n_events >= 30_000
    epochs = int(np.clip(40_000 // n_events, 15, 30)) if n_events < 150_000 else max(3, 2_000_000 // n_events)
    return NetClassifier(
        momenta="auto",
        names=None if names is None else [str(name) for name in names],
        epochs=epochs,
        batch_size=int(np.clip(n_events // 32, 128, 1024)),
        weight_groups=4 if many else 1,
        focus=3.0 if many else 0.0,
    )


def _members(
    library: str, params: dict[str, Any], n_trees: int, of_cascade: int, *, plain_only: bool
) -> dict[str, Any]:
    """The members by name, the simplest first; the cut is tuned on the blend, not on them."""
    classifier = make_like_grown(library, n_trees, **params)
    members: dict[str, Any] = {}
    if library == HISTOGRAM:
        members[PLAIN] = CascadeClassifier(classifier, cascade=False, cut="zero")
    else:
        options: dict[str, Any] = {"params": params, "cut": "zero"}
        members[PLAIN] = GrownCascadeClassifier(library, cascade=False, n_trees=n_trees, update_every=EVERY, **options)
        members[CASCADE] = GrownCascadeClassifier(library, n_trees=of_cascade, **options)
    regressor = default_regressor(*WEIGHT_TREES, library=library)
    if "max_bin" in regressor.get_params():
        regressor.set_params(max_bin=WEIGHT_BINS)
    members[DECOMPOSED] = DecomposedClassifier(classifier, regressor, cut="zero")
    return {PLAIN: members[PLAIN]} if plain_only else members


def _sentence(choice: Choice, n_trees: int, n_splits: int) -> str:
    made = f"{n_trees} trees on {n_splits} splits" if n_splits > 1 else f"{n_trees} trees on one split"
    if not choice.comparisons:
        return f"{' + '.join(choice.members)}, {made}"
    said = []
    for name in (CASCADE, DECOMPOSED, NET):
        if name in choice.comparisons:
            gain, error = choice.comparisons[name]
            # One standard error is enough to choose by, and two are needed for words.
            verdict = "not distinguishable"
            if abs(gain) > 2 * error:
                verdict = "better alone" if gain > 0 else "worse alone"
            used = "blended" if name in choice.members else "left out"
            said.append(f"{name} {gain:+.2f} ± {error:.2f} over {PLAIN}: {verdict}, {used}")
    if PLAIN not in choice.members:
        said.append(f"{PLAIN} left out")
    return f"{'; '.join(said)}; {made}"


@dataclass(repr=False, eq=False, kw_only=True)
class PlainSearch(GrownCascadeClassifier):
    """A plain model that finds its number of trees itself.

    It grows until the loss of held-out events has stopped falling, and keeps `more` times as many trees as had the
    lowest loss; the trees of the search are those of the model.
    """

    n_trees: int = 2 * MOST_TREES  # never reached
    cascade: bool = False
    update_every: int = EVERY
    cut: str | float = "zero"
    more: float = 1.0  # trees of the model for each tree that lowers the loss

    def found(self) -> GrownCascadeClassifier:
        """Return the model, as if the number of its trees had been known."""
        names = GrownCascadeClassifier._get_param_names()
        model = GrownCascadeClassifier(**{**{name: getattr(self, name) for name in names}, "n_trees": self.n_trees_})
        for name, value in vars(self).items():
            if name.endswith("_") and not name.startswith("_"):
                setattr(model, name, value)
        model.history_ = History(self.history_[: self.n_trees_])
        return model

    def _judge(self, growth: Growth, n_trees: int, judged: list[float]) -> None:
        if n_trees % EVERY == 0 and not _has_risen(judged):
            judged.append(_loss(growth.score(), growth.sample, growth.splits[0][1]))

    def _should_stop(self, n_trees: int, judged: list[float]) -> bool:
        return _has_risen(judged) and n_trees >= self._n_kept(n_trees, judged)

    def _n_kept(self, n_trees: int, judged: list[float]) -> int:  # noqa: ARG002 - as the class above has it
        return round(self.more * _best(judged))


def count_trees(
    owner: Any,
    sample: TrainingSample,
    first: Task,
    library: str,
    params: dict[str, Any],
    *,
    checkpoint: Checkpoint | None,
    more: float = 1.0,
) -> tuple[int, dict[str, MemberFit]]:
    """Find the number of trees of a plain model on one split, or take it from the checkpoint of an earlier run.

    A search that grows trees has then made that model, which is returned too.
    """
    if checkpoint and "n_trees" in (state := checkpoint.state()):
        return int(state["n_trees"]), {}
    threads, ready = threads_for(owner.n_jobs, sample.n_cells), {}
    if library == HISTOGRAM:
        split = Binding(sample.X, sample.target, first.train, first.held_out, first.seed, threads)
        found = round(more * find_tree_count(sample, split, params))
    else:
        search = PlainSearch(library, params=params, more=more)
        work = partial(fit_task, owner, search, first, sample, threads=threads, checkpoint=None)
        (fit,) = run_parallel(work, [()], 1)
        found = fit.model.n_trees_
        ready[first.key] = fit._replace(model=fit.model.found())
    if checkpoint:  # in this order: a number without its fit would be trusted
        for fit in ready.values():
            keep_fit(checkpoint, fit)
        checkpoint.write({"fits": [], **checkpoint.state(), "n_trees": found}, {})
    return found, ready


def find_tree_count(sample: TrainingSample, binding: Binding, params: dict[str, Any]) -> int:
    """Find the number for scikit-learn's histogram boosting."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(**params, early_stopping=False, warm_start=True, random_state=binding.seed)
    table, judged = binding.rows(binding.train), binding.rows(binding.held_out)
    weight = Weigher.of(sample, binding.train)(sample.balanced(binding.train))
    losses: list[float] = []
    while not _has_risen(losses):
        end_if_given_up()
        with limit_threads(binding.n_threads):
            model.set_params(max_iter=(len(losses) + 1) * EVERY)
            model.fit(table, binding.target[binding.train], sample_weight=weight)
            score = np.asarray(model.predict_proba(judged)[:, 1])
        losses.append(_loss(score, sample, binding.held_out))
    return _best(losses)


def _has_risen(losses: list[float]) -> bool:
    """Whether the last looks brought no new minimum, or were enough."""
    return bool(losses) and (len(losses) - int(np.argmin(losses)) > PATIENCE or len(losses) * EVERY >= MOST_TREES)


def _best(losses: list[float]) -> int:
    return (int(np.argmin(losses)) + 1) * EVERY


def _loss(probability: Array, sample: TrainingSample, rows: IntArray) -> float:
    p = np.clip(probability.astype(np.float64), 1e-12, 1 - 1e-12)
    weight = sample.learner_weights(rows, sample.balanced(rows))
    return float(-np.average(np.log(np.where(sample.signal[rows], p, 1 - p)), weights=weight))
