"""The pool: cascades and plain models, blended; the paper's ensemble."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.metaestimators import _BaseComposition

from fivesigma._types import Array
from fivesigma.blend import BLENDS
from fivesigma.errors import InputError
from fivesigma.estimators.blended import BlendedClassifier
from fivesigma.estimators.grown import GrownCascadeClassifier
from fivesigma.estimators.member_fits import as_member, check_kept, check_members, derived_seed, plan, run_fits
from fivesigma.estimators.parameters import none_or, one_of, whole
from fivesigma.estimators.running import spread_seeds
from fivesigma.estimators.significance_classifier import SignificanceClassifier
from fivesigma.estimators.training_sample import Splits, TrainingSample
from fivesigma.store.checkpoint import Checkpoint


@dataclass(repr=False, eq=False)
class CascadePool(BlendedClassifier, _BaseComposition):
    """Blend of cascades and plain models.

    Parameters
    ----------
    estimators : list of (str, estimator)
        Members: cascades of fivesigma, plain models (``GrownCascadeClassifier(cascade=False)``), or any classifier that
        takes ``sample_weight``, which becomes the plain ``CascadeClassifier(classifier, cascade=False)``. All of them
        take the pool's utility, its policy for negative weights and its held-out events, which they are never trained
        on: a member's own ``utility``, ``b_reg``, ``cv``, ``refit``, ``pos_label``, ``negative_weights``,
        ``checkpoint``, ``random_state`` and ``n_jobs`` do not count.
    keep : int, optional
        Number of members to keep, those of the highest held-out significance; all by default.
    blend : {"rank", "margin", "probability"}, default="rank"
        What is averaged. Ranks are shares of held-out events below a score.
    weights : {"even", "fit"}, default="even"
        Weights of the members in the blend; ``"fit"`` finds non-negative ones on held-out scores.
    utility, b_reg, pos_label, negative_weights, verbose
        As in `CascadeClassifier`; they decide for all members.
    cv : float, int, splitter or iterable, default=0.25
        A fraction holds out the same events from all members. A number of folds bags: each member is trained once a
        fold, on folds of its own, and scores the events that it was not fitted on, so that all events have such scores.
        An array holds the fold number of each event, the same for all members.
    by : str, optional
        Name of a kept column of integers, such as an event number, if the pool is fitted to `Events`: the fold of an
        event is this number modulo `cv`, which must then be an integer. Of other `Events` each is scored by the fits
        that did not see its fold's events, so that nominal, varied and real events with the same number meet the same
        model; arrays, which have no numbers, are scored by the mean of all fits.
    n_repeats : int, default=1
        Repeats of the folds, each with new folds and seeds.
    cut : {"model", "plateau", "peak", "smooth", "zero"} or float, default="model"
        Cut of `predict`, tuned on the blended held-out scores; ``"zero"``, the sign of the margin, is not for ranks.
        A bagged pool keeps the tuned share of events rather than the score: the mean of all fits of a member is
        narrower than the scores of one fit on which the share was tuned.
    checkpoint : path, optional
        Folder to which each finished fit is written, and every 50 trees of a grown one; the same call resumes from
        there.
    random_state : int, RandomState or None, default=None
        Seed of splits and members; each member gets its own.
    n_jobs : int, optional
        Cores to use, by members and their learners together: one by default, -1 for all.

    Attributes
    ----------
    members_ : list of (str, estimator)
        Trained members that were kept; a bagged member stands here once for each of its fits.
    blend_ : Blend
        How their scores are averaged.
    member_significance_ : dict of str to float
        Significance of every member on held-out events at its own best cut. It is not that of new events: cascades
        chose u, rounds and early stopping on these, so it favours members that chose among more, and so does `keep`.
    held_out_score_ : array of shape (n_events,)
        Blended score of each event by models that were not fitted on it; NaN for events that were never held out.
        Members, weights and cut were chosen on these events, so that their significance is a little too high: by up to
        13 % with random labels and few events. Quote that of other events.
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

    estimators: Sequence[tuple[str, Any]] = ()
    _: KW_ONLY
    keep: int | None = None
    blend: str = "rank"
    weights: str = "even"
    by: str | None = None
    n_repeats: int = 1

    _checks: ClassVar = {
        **SignificanceClassifier._checks,
        "estimators": check_members,
        "n_repeats": whole(1),
        "keep": none_or(whole(1)),
        "weights": one_of(("even", "fit")),
        "blend": one_of(BLENDS),
    }

    @classmethod
    def paper_ten(cls, n_trees: int = 500, library: str = "xgboost", params: Any = None, **options: Any) -> CascadePool:
        """Return the paper's post-challenge recipe: five plain and five grown models of 500 trees, averaged.

        u is updated after each tree, as in the paper.

        Parameters
        ----------
        n_trees, library, params
            Of each model; see `GrownCascadeClassifier`.
        **options
            Of the pool.
        """
        shared: dict[str, Any] = {"n_trees": n_trees, "params": params}
        members = [
            (f"{name}-{k}", GrownCascadeClassifier(library, cascade=cascade, update_every=1, **shared))
            for name, cascade in (("plain", False), ("grown", True))
            for k in range(1, 6)
        ]
        return cls(members, **options)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters of the pool and, with names before them, of its members."""
        return dict(self._get_params("estimators", deep=deep))

    def set_params(self, **params: Any) -> CascadePool:
        """Set parameters of the pool or, with a name and two underscores before them, of its members."""
        self._set_params("estimators", **params)
        return self

    def _fit(self, sample: TrainingSample, splits: Splits | None, checkpoint: Checkpoint | None) -> Array:
        self._validate_names([name for name, _ in self.estimators])
        if self.cut == "zero" and self.blend == "rank":
            raise InputError(
                "cut='zero' is the sign of a margin and blend='rank' has none: use blend='margin' or another cut"
            )
        members = [as_member(estimator) for _, estimator in self.estimators]
        names = [name for name, _ in self.estimators]
        if checkpoint:
            check_kept(list(zip(names, members, strict=True)), self.utility_)
        (root,) = spread_seeds(self.random_state, 1)
        tasks = plan(names, self._splits(sample, splits, root), root)
        fits = run_fits(self, members, tasks, sample, checkpoint)
        splits = [(task.train, task.held_out) for task in tasks] if splits is None else splits
        options: dict[str, Any] = {"kind": self.blend, "keep": self.keep, "weigh": self.weights == "fit"}
        return self._blend_members(sample, fits, splits, **options)

    def _splits(self, sample: TrainingSample, given: Splits | None, root: int) -> Callable[[int], Splits]:
        """Splits of each member by its number, all repeats one after the other."""

        def repeats(member: int) -> Splits:
            seeds = (derived_seed(root, member, r) for r in range(self.n_repeats))
            return list(itertools.chain.from_iterable(sample.splits(self.cv, seed) for seed in seeds))

        if given is None and isinstance(self.cv, (int, np.integer)):  # only then has each member folds of its own
            return repeats
        common = repeats(0) if given is None else given
        return lambda _: common

    def _learners(self) -> Iterator[Any]:
        return (estimator for _, estimator in self.estimators)
