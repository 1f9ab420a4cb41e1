"""The front door: folds, a plain model, a cascade and a decomposed learner, blended as held-out events advise."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import issparse

from fivesigma._tools.extras import installed, need
from fivesigma._tools.threads import threads_for
from fivesigma._types import Array
from fivesigma.errors import InputError, did_you_mean
from fivesigma.estimators.blended import BlendedClassifier, Choice, choose_blend, held_out_scores
from fivesigma.estimators.decomposed import DecomposedClassifier
from fivesigma.estimators.grown import GrownCascadeClassifier
from fivesigma.estimators.member_fits import MemberFit, Task, fit_task, keep_fit, plan, run_fits
from fivesigma.estimators.net_classifier import NetClassifier
from fivesigma.estimators.parallel import run_parallel, spread_seeds
from fivesigma.estimators.parameters import none_or, one_of, whole
from fivesigma.estimators.retrained import CascadeClassifier
from fivesigma.estimators.significance_classifier import SignificanceClassifier
from fivesigma.estimators.split_steps import Splits, TuningEvents
from fivesigma.estimators.training_sample import TrainingSample
from fivesigma.estimators.tree_count import EVERY, PlainSearch, find_tree_count
from fivesigma.learners import LIBRARIES, Binding, check_library, default_regressor
from fivesigma.learners.libraries import HISTOGRAM, check_mapping, installed_library, make_classifier, tree_parameters
from fivesigma.store.checkpoint import Checkpoint

PLAIN, CASCADE, DECOMPOSED, NET = "plain", "cascade", "decomposed", "net"
MORE_TREES = 1.5  # than are best for one model, where several on different folds are averaged
BINS = {"xgboost": {"max_bin": 128}}  # as good as its 256, and half the time with ten thousand events
WEIGHT_TREES = 30, 0.3, 3  # number, learning rate and depth: as good as 100, 0.1 and 4, for less time
FEWEST_FOR_NET = 1_000  # events with which a net is tried
WEIGHT_BINS = 32  # mean weights are smooth
CHOICES = ("auto", *LIBRARIES, HISTOGRAM)


def _net_choice(name: str, value: Any) -> None:
    if not (isinstance(value, bool) or value == "auto"):
        raise InputError(f"{name} must be True, False or 'auto', got {value!r}")


@dataclass(repr=False, eq=False)
class AutoClassifier(BlendedClassifier):
    """As much as these events allow, without a choice of yours.

    On the same folds a plain model, a grown cascade, a decomposed learner and, where torch is installed, a net are
    trained; each event is scored by models that did not see it. The number of trees is 1.5 times the one with which the
    loss of held-out events is lowest for one model, since new events are scored by the mean of several, which scatters
    less (with `by` they are scored by one, and the number is that of one). The cascade, which is done sooner, has the
    number of one model. All members but the net are blended, unless another blend of them is better by more than a
    standard error on held-out events; then the best one is. The net joins it, unless that is worse by more than a
    standard error. The cut is tuned on the held-out scores of all events. `choice_` says what was chosen and why.

    Parameters
    ----------
    utility : str or Utility, default="ams2"
        What to maximise.
    b_reg : float, optional
        Constant added to b, if `utility` is a name.
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
    pos_label : label, optional
        The signal. By default the larger number, or the signal of a known pair such as s/b.
    negative_weights : {"error", "zero", "abs"}, default="error"
        What learners see of negative weights; s and b always keep the sign.
    verbose : int, default=0
        1 shows a progress bar on stderr.
    checkpoint : path, optional
        Folder to which each finished fit is written; the same call resumes from there.
    random_state : int, RandomState or None, default=None
        Seed of splits and members.
    n_jobs : int, optional
        Cores to use: one by default, -1 for all.

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
    blend_ : Blend
        How their scores are averaged.
    held_out_score_ : array of shape (n_events,)
        Blended score of each event by models that were not fitted on it; NaN for events that were never held out.
        Members, weights and cut were chosen on these events, so that their significance is a little too high: by up to
        13 % with random labels and few events. Quote that of other events.
    held_out_scores_ : dict of str to array of shape (n_events,)
        The same for each member of the blend alone.
    member_significance_ : dict of str to float
        Significance of each of them on these events at its own best cut.
    history_ : History
        Rounds of all fits that were kept.
    cut_, selected_fraction_ : float
        Threshold on ``predict_proba(X)[:, 1]``, and the share of held-out events that it was tuned to select.
    classes_ : array of shape (2,)
        (background, signal).

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
        params = _checked_params(library, tree_parameters(self))
        params = {**BINS.get(library, {}), **params}
        split_seed, root = spread_seeds(self.random_state, 2)
        splits = sample.splits(self.cv, split_seed) if splits is None else splits
        more = MORE_TREES if self.by is None and len(splits) > 1 else 1.0
        first = plan([PLAIN], lambda _: splits[:1], root)[0]
        self.n_trees_, ready = self._count_trees(sample, first, library, params, more=more, checkpoint=checkpoint)
        members = _members(library, params, self.n_trees_, round(self.n_trees_ / more), plain_only=self.fast)
        if not self.fast and self._takes_net(sample):
            net = make_net(min(train.size for train, _ in splits), sample.feature_names)
            members[NET] = CascadeClassifier(net, cascade=False, cut="zero")
        tasks = plan(list(members), lambda _: splits, root)
        fits = run_fits(self, list(members.values()), tasks, sample, checkpoint, ready=ready)
        choice = self._choose(sample, fits, root)
        self.comparisons_ = choice.comparisons
        self.choice_ = _sentence(choice, self.n_trees_, len(splits))
        self._blend_members(sample, [fit for fit in fits if fit.task.name in choice.members])
        score: Array = self.held_out_score_[np.concatenate([rows for _, rows in splits])]
        return score

    def _count_trees(
        self,
        sample: TrainingSample,
        first: Task,
        library: str,
        params: dict[str, Any],
        *,
        more: float,
        checkpoint: Checkpoint | None,
    ) -> tuple[int, dict[str, MemberFit]]:
        """Take the number of trees as given, as an interrupted run found it, or as held-out events advise.

        A search that grows trees has then made the plain model of the first split, which is returned too.
        """
        if self.n_trees is not None:
            return int(self.n_trees), {}
        saved = checkpoint.read() if checkpoint else None
        if saved is not None and "n_trees" in saved[0]:
            return int(saved[0]["n_trees"]), {}
        threads, ready = threads_for(self.n_jobs, sample.n_cells), {}
        if library == HISTOGRAM:
            split = Binding(sample.X, sample.target, first.train, first.held_out, first.seed, threads)
            found = round(more * find_tree_count(sample, split, params))
        else:
            search = PlainSearch(library, params=params, more=more)
            work = partial(fit_task, self, search, first, sample, threads=threads, checkpoint=None)
            (fit,) = run_parallel(work, [()], 1)
            found = fit.model.n_trees_
            ready[first.key] = fit._replace(model=fit.model.found())
        if checkpoint:  # in this order: a number without its fit would be trusted
            for fit in ready.values():
                keep_fit(checkpoint, fit)
            state = (checkpoint.read() or ({}, {}))[0]
            checkpoint.write({"fits": [], **state, "n_trees": found}, {})
        return found, ready

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

    def _learners(self) -> tuple[()]:
        return ()


def make_net(n_events: int, names: Any) -> NetClassifier:
    """A net for so many training events: smaller steps for few, and fewer epochs for very many, which bounds its time.

    Steps and epochs were chosen on toys of 1,500 and 5,000 events.
    """
    epochs = int(np.clip(40_000 // n_events, 15, 30)) if n_events < 150_000 else max(3, 2_000_000 // n_events)
    return NetClassifier(
        momenta="auto",
        names=None if names is None else [str(name) for name in names],
        epochs=epochs,
        batch_size=int(np.clip(n_events // 32, 128, 1024)),
        weight_groups=4 if n_events >= 30_000 else 1,
    )


def _checked_params(library: str, params: dict[str, Any] | None) -> dict[str, Any]:
    """Refuse parameters that are set here."""
    if library != HISTOGRAM:
        return check_library(library, params)
    from sklearn.ensemble import HistGradientBoostingClassifier

    given, known = check_mapping(params), HistGradientBoostingClassifier().get_params()
    for name in given:
        if name in ("max_iter", "early_stopping", "warm_start", "random_state", "class_weight", "loss"):
            raise InputError(f"params[{name!r}] cannot be set: AutoClassifier sets it")
        if name not in known:
            hint = did_you_mean(str(name), known)
            raise InputError(f"params[{name!r}] is not a parameter of HistGradientBoostingClassifier{hint}")
    return given


def _members(
    library: str, params: dict[str, Any], n_trees: int, of_cascade: int, *, plain_only: bool
) -> dict[str, Any]:
    """The members by name, the simplest first; the cut is tuned on the blend, not on them."""
    defaults = LIBRARIES[library].defaults if library in LIBRARIES else {}
    classifier = make_classifier(library, n_trees, **{**defaults, **params})
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
    """What was chosen and why."""
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
