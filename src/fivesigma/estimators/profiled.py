"""The score that knows the systematics: one likelihood ratio, against the least favourable background."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, Self

import joblib
import numpy as np
from scipy.special import expit
from sklearn.base import MetaEstimatorMixin
from sklearn.utils import _safe_indexing, check_array
from sklearn.utils.validation import check_is_fitted

from fivesigma._tools.threads import spread_threads, threads_for
from fivesigma._types import AnyArray, Array, IntArray
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError, did_you_mean
from fivesigma.estimators.auto import BINS, _classifier, _installed_library
from fivesigma.estimators.significance_classifier import SignificanceClassifier
from fivesigma.estimators.callbacks import PoolProgress
from fivesigma.estimators.member_fits import derived_seed, finished, keep_value
from fivesigma.estimators.held_out_bins import NOMINAL, HeldOutBins
from fivesigma.estimators.moved_events import (
    Contrast,
    FoldedEvents,
    SystematicsReader,
    TrainingSystematic,
    home_of,
)
from fivesigma.estimators.parallel import run_parallel, spread_seeds
from fivesigma.estimators.parameters import one_of
from fivesigma.estimators.split_steps import Splits, TuningEvents
from fivesigma.estimators.training_sample import TrainingSample
from fivesigma.estimators.tree_count import PlainSearch, find_tree_count
from fivesigma.learners import Binding, check_learner
from fivesigma.learners.protocols import Model
from fivesigma.learners.density_ratios import fit_contrast, log_odds, relative_shift
from fivesigma.likelihood.least_favourable import (
    efficient_direction,
    efficient_score,
    least_favourable,
    likelihood_ratio,
)
from fivesigma.likelihood.shifts import check_size
from fivesigma.store import load_value
from fivesigma.store.checkpoint import Checkpoint

GOALS = ("discovery", "measurement")
PLAIN = "plain"
ROUNDS = 3  # updates of the pulls
LEAST_COST = 0.005  # share of the significance that a systematic must cost to have a part in the score

# Settings of the trees that learn shapes, by library: the difference is small, and noise in it is a fake constraint.
SHAPE_TREES: dict[str, dict[str, Any]] = {
    "xgboost": {"max_depth": 4, "min_child_weight": 50.0},
    "lightgbm": {"num_leaves": 15, "min_child_samples": 200},
    "histogram": {"max_leaf_nodes": 15, "min_samples_leaf": 200},
}


class ProfiledRound(NamedTuple):
    """One score on held-out events.

    Attributes
    ----------
    index : int
        Round 0 is the plain score.
    pulls : dict of str to float
        Pulls of the score (of a measurement: coefficients of its efficient score).
    value : float
        Profiled significance (or uncertainty) in bins of the score.
    """

    index: int
    pulls: dict[str, float]
    value: float


@dataclass(frozen=True)
class VariedSample(TrainingSample):
    """Training events with their systematics as they were given."""

    given: Mapping[str, Any] = field(default_factory=dict)
    free: tuple[str, ...] = ()
    events: Events | None = None

    @cached_property
    def digest(self) -> str:
        """Digest of the events and of all varied ones."""
        return str(joblib.hash((super().digest, dict(self.given), self.free), hash_name="sha1"))


class ProfiledClassifier(MetaEstimatorMixin, SignificanceClassifier):
    """Score."""

    utility = "ams2"
    b_reg = None

    _checks: ClassVar = {**SignificanceClassifier._checks, "goal": one_of(GOALS)}
    _stored: ClassVar = {
        **SignificanceClassifier._stored,
        "models_": list,
        "shift_models_": list,
        "shift_terms_": dict,
        "log_prior_": float,
        "pulls_": dict,
        "bound_": float,
        "choice_": str,
        "history_": list,
        "left_out_": list,
    }

    models_: list[Model]
    shift_models_: list[dict[str, Model]]
    shift_terms_: dict[str, tuple[str, float, float]]
    pulls_: dict[str, float]

    def __init__(
        self,
        estimator: Any = None,
        *,
        goal: str = "discovery",
        shape_estimator: Any = None,
        cv: Any = 5,
        by: str | None = None,
        cut: str | float = "model",
        pos_label: Any = None,
        negative_weights: str = "error",
        verbose: int = 0,
        checkpoint: str | os.PathLike[str] | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.goal = goal
        self.shape_estimator = shape_estimator
        self.cv = cv
        self.by = by
        self.cut = cut
        self.pos_label = pos_label
        self.negative_weights = negative_weights
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(  # noqa: PLR0917 - as every estimator has it
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        process: Any = None,
        systematics: Mapping[str, Any] | None = None,
        free: Sequence[str] = (),
    ) -> Self:
        """Train."""
        self.check_parameters()
        sample = self._check_sample(X, y, sample_weight, process)
        given = {} if systematics is None else systematics
        varied = VariedSample(
            **vars(sample), given=given, free=_check_free(free, given), events=X if isinstance(X, Events) else None
        )
        return self._fit_checked(X, varied)

    def _fit(self, sample: TrainingSample, splits: Splits | None, checkpoint: Checkpoint | None) -> Array:
        if not isinstance(sample, VariedSample):  # as a member of a pool
            sample = VariedSample(**vars(sample))
        split_seed, root, search_seed = spread_seeds(self.random_state, 3)
        splits = sample.splits(self.cv, split_seed) if splits is None else splits
        tuning = TuningEvents.of(sample, np.concatenate([rows for _, rows in splits]), self.utility_)
        tuning.warn_if_small()
        home = home_of(splits, sample.signal.size)
        nominal = FoldedEvents(sample.X, sample.signal, sample.weight, sample.process, home)
        systematics = self._read(sample, nominal, split_seed)
        bins = HeldOutBins(nominal, systematics, sample.free, self.goal)
        self._check_sizes(bins)
        learner, of_shapes = self._find_learners(sample, splits[0], search_seed, checkpoint)
        train = partial(self._train, len(splits), root, sample.n_cells, checkpoint)

        plain = {"": Contrast(nominal.where(sample.signal), nominal.where(~sample.signal), "odds")}
        self.models_ = [models[""] for models in train(plain, lambda _: learner)]
        self.log_prior_ = plain[""].log_prior
        samples = bins.samples()
        r_s = {key: np.exp(log_odds(_held_out(self.models_, events), self.log_prior_)) for key, events in samples.items()}
        shifts = bins.fill(r_s)
        first = bins.judge(shifts)
        known = bins.judge(shifts, []).value
        used = [one for one in systematics if _costs(bins.judge(shifts, [one.name]).value, known)]
        self.left_out_ = [one.name for one in systematics if one not in used]

        contrasts = {one.name: one.contrast(nominal, with_signal=self.goal == "measurement") for one in used}
        self.shift_terms_ = {name: (c.kind, c.size, c.log_prior) for name, c in contrasts.items()}
        trained = {name: c for name, c in contrasts.items() if np.isfinite(c.log_prior)}
        self.shift_models_ = train(trained, lambda c: learner if c.kind == "share" else of_shapes)
        r = {key: self._shifts(events.signal.size, lambda name, e=events: _held_out([m[name] for m in self.shift_models_], e)) for key, events in samples.items()}

        names = list(contrasts)
        constrained = np.array([name not in sample.free for name in names], dtype=np.bool_)
        held = (home >= 0) & (nominal.representative > 0)
        args = nominal.representative[held], r_s[NOMINAL][held], r[NOMINAL][:, held], constrained
        found = self._solve(*args)
        self.bound_ = found.value
        rounds = [ProfiledRound(0, {}, first.value)]
        pulls = found.pulls
        for index in range(1, ROUNDS + 1 if names else 1):
            scores = {key: self._excess(r_s[key], r[key], pulls) for key in samples}
            judged = bins.fill(scores)
            value = bins.judge(judged).value
            rounds.append(ProfiledRound(index, dict(zip(names, pulls.tolist(), strict=True)), value))
            pulls = bins.judge(judged, names).pulls
        self.history_ = rounds
        better = max if self.goal == "discovery" else min
        best = better(rounds, key=lambda r: r.value)
        self.pulls_ = {**dict.fromkeys(sample.given, 0.0), **best.pulls}
        self.choice_ = self._sentence(best, known)
        excess = self._excess(r_s[NOMINAL], r[NOMINAL], self._vector())
        probability = self._probability(excess)
        self.held_out_score_ = np.where(home >= 0, probability, np.nan)
        rows = np.concatenate([rows for _, rows in splits])
        self.tune_on(tuning, probability[rows])
        return probability[rows]

    def _solve(self, weight, r_s, r, constrained):
        if self.goal == "measurement":
            return efficient_direction(weight, r_s / (1 + r_s), r, constrained)
        return least_favourable(weight, r_s, r, constrained)

    def _excess(self, r_s: Array, r: Array, pulls: Array) -> Array:
        if self.goal == "measurement":
            return efficient_score(r_s / (1 + r_s), r, pulls)
        return likelihood_ratio(r_s, r, pulls)

    def _vector(self) -> Array:
        return np.array([self.pulls_[name] for name in self.shift_terms_])

    def _shifts(self, n: int, probability: Callable[[str], Array]) -> Array:
        out = np.empty((len(self.shift_terms_), n))
        for row, (name, (kind, size, prior)) in zip(out, self.shift_terms_.items(), strict=True):
            row[:] = relative_shift(kind, size, log_odds(probability(name), prior) if np.isfinite(prior) else np.full(n, prior))
        return out

    def _probability(self, excess: Array) -> Array:
        return np.asarray(expit(np.arcsinh(excess * np.exp(-self.log_prior_) / 2)))

    def _train(self, n_splits: int, root: int, n_cells: int, checkpoint: Checkpoint | None, contrasts: Mapping[str, Contrast], learner_of: Callable[[Contrast], Any]) -> list[dict[str, Model]]:
        tasks = [(name, k) for name in contrasts for k in range(n_splits)]
        workers, threads = spread_threads(self.n_jobs, len(tasks), n_cells)
        done = finished(checkpoint)
        keys = {task: f"{task[0] or PLAIN}-{task[1]}" if not task[0] else f"shift-{list(contrasts).index(task[0])}-{task[1]}" for task in tasks}
        with PoolProgress(self, dict.fromkeys(keys.values(), 1)).showing() as progress:
            def work(name: str, k: int) -> Model:
                key = keys[name, k]
                with progress.fit(key):
                    if checkpoint and key in done:
                        with checkpoint.resuming():
                            return load_value(checkpoint.folder / key, trusted=True)
                    X, first, weight = contrasts[name].training(k)
                    seed = derived_seed(root, *name.encode(), k)
                    model = fit_contrast(learner_of(contrasts[name]), X, first, weight, negative=self.negative_weights, seed=seed, n_threads=threads)
                    if checkpoint:
                        keep_value(checkpoint, key, model)
                    return model
            try:
                models = run_parallel(work, tasks, workers)
            except KeyboardInterrupt:
                if checkpoint:
                    checkpoint.say_interrupted(progress.finished, len(finished(checkpoint)), "fit")
                raise
        out: list[dict[str, Model]] = [{} for _ in range(n_splits)]
        for (name, k), model in zip(tasks, models, strict=True):
            out[k][name] = model
        return out

    def _read(self, sample: VariedSample, nominal: FoldedEvents, seed: int) -> list[TrainingSystematic]:
        folds = None
        if self.by is not None and sample.events is not None:
            known = np.unique(sample.events.folds(int(self.cv), by=self.by))
            folds = lambda events: np.searchsorted(known, events.folds(int(self.cv), by=self.by))
        ids = None if sample.events is None else sample.events.ids
        reader = SystematicsReader(nominal, sample.classes, ids, partial(self._features, sample), folds, seed)
        return reader.read(sample.given)

    def _features(self, sample: TrainingSample, label: str, moved: Any) -> Any:
        names = None if sample.feature_names is None else [str(name) for name in sample.feature_names]
        try:
            if isinstance(moved, Events):
                table = moved.X if names is None else moved.table(names)
            elif hasattr(moved, "columns"):
                table = moved if names is None else moved[names]
                if isinstance(sample.X, np.ndarray):
                    table = np.asarray(table)
            else:
                table = check_array(moved, ensure_all_finite="allow-nan", accept_sparse=["csr", "csc"], dtype=None)
        except (InputError, KeyError) as err:
            raise InputError(f"{label}: {err}") from None
        if table.shape[1] != sample.X.shape[1] or type(table) is not type(sample.X):
            raise InputError(
                f"{label} is a {type(table).__name__} with {table.shape[1]} features, and the nominal events are a "
                f"{type(sample.X).__name__} with {sample.X.shape[1]}"
            )
        return table

    @staticmethod
    def _check_sizes(bins: HeldOutBins) -> None:
        flat = {key: np.zeros(events.signal.size) for key, events in bins.samples().items()}
        total = bins.fill(flat)
        check_size(total.up, total.yields(signal=False), total.background_shifts())

    def _find_learners(self, sample: TrainingSample, split: tuple[IntArray, IntArray], seed: int, checkpoint: Checkpoint | None) -> tuple[Any, Any]:
        shape = self.shape_estimator
        if self.estimator is not None:
            check_learner(self.estimator)
            if shape is not None:
                check_learner(shape)
            return self.estimator, self.estimator if shape is None else shape
        library = _installed_library()
        params = {"max_bin": BINS} if library == "xgboost" else {}
        saved = checkpoint.read() if checkpoint else None
        if saved is not None and "n_trees" in saved[0]:
            n_trees = int(saved[0]["n_trees"])
        else:
            threads = threads_for(self.n_jobs, sample.n_cells)
            if library == "histogram":
                n_trees = find_tree_count(sample, Binding(sample.X, sample.target, *split, seed, threads), params)
            else:
                search = PlainSearch(library, params=params, negative_weights=self.negative_weights, random_state=seed, n_jobs=threads)
                run_parallel(lambda: search.fit_sample(sample, [split]), [()], 1)
                n_trees = search.n_trees_
            if checkpoint:
                checkpoint.write({"fits": [], "n_trees": n_trees}, {})
        few = {**params, **SHAPE_TREES[library]}
        return _classifier(library, params, n_trees), _classifier(library, few, max(1, n_trees // 2)) if shape is None else shape

    def _sentence(self, best: ProfiledRound, known: float) -> str:
        return f"round {best.index}: {best.value:.3f} against {self.history_[0].value:.3f} of the plain score, {known:.3f} known"

    def _learners(self) -> Iterable[Any]:
        return [e for e in (self.estimator, self.shape_estimator) if e is not None]

    def _splits_of(self, X: Any, sample: TrainingSample) -> Splits | None:
        if self.by is None:
            return None
        if not isinstance(X, Events):
            raise InputError(f"by={self.by!r} is a kept column of Events, and X is a {type(X).__name__}; fit Events")
        if isinstance(self.cv, bool) or not isinstance(self.cv, (int, np.integer)):
            raise InputError(f"by={self.by!r} needs an integer cv, got {self.cv!r}")
        return sample.splits(X.folds(int(self.cv), by=self.by), 0)

    def score_checked(self, X: Any) -> Array:
        return self._probability(self._excess_of(X, range(len(self.models_))))

    def _excess_of(self, X: Any, splits: Iterable[int]) -> Array:
        numbers = list(splits)
        p = np.mean([self.models_[k].signal_probability(X) for k in numbers], axis=0)
        r_s = np.exp(log_odds(p, self.log_prior_))
        r = self._shifts(p.size, lambda name: np.mean([self.shift_models_[k][name].signal_probability(X) for k in numbers], axis=0))
        return self._excess(r_s, r, self._vector())


def _held_out(models: Sequence[Model], events: FoldedEvents) -> Array:
    """P(first sample) of each event by the model that did not see it; a half for events that none holds out."""
    p = np.full(events.signal.size, 0.5)
    for k, model in enumerate(models):
        rows = np.flatnonzero(events.home == k)
        if rows.size:
            p[rows] = model.signal_probability(_safe_indexing(events.X, rows))
    return p


def _costs(value: float, known: float) -> bool:
    return abs(value / known - 1) > LEAST_COST


def _check_free(free: Sequence[str], given: Mapping[str, Any]) -> tuple[str, ...]:
    names = (free,) if isinstance(free, str) else tuple(free)
    for name in names:
        if name not in given:
            raise InputError(f"free names {name!r}, which is not among the systematics{did_you_mean(str(name), given)}")
    return tuple(dict.fromkeys([*names, *(k for k, v in given.items() if getattr(v, "fraction", 0) is None)]))
