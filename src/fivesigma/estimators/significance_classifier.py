"""What every estimator of fivesigma offers: a tuned cut in `predict`, and significance as a score."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import _safe_indexing, assert_all_finite, check_array, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from fivesigma._tools.extras import need
from fivesigma._types import AnyArray, Array, BoolArray
from fivesigma.cascade.rounds import History
from fivesigma.cut.best_cut import CutScan, scan
from fivesigma.cut.rules import DEFAULT_RULE, RULES
from fivesigma.datasets.digest import events_digest, recognise, rows_to_know_again
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError, TrainingEventsWarning
from fivesigma.estimators.parameters import Check, auto_or_number, cut_rule, jobs, none_or, one_of
from fivesigma.estimators.running import CallbackSupportMixin, with_callbacks
from fivesigma.estimators.split_steps import TuningEvents
from fivesigma.estimators.training_sample import Splits, TrainingSample
from fivesigma.learners.libraries import explain_errors, library_of
from fivesigma.likelihood.shifts import (
    Normalisation,
    Systematics,
    Varied,
    YieldShifts,
    scaled,
    with_variations,
    yield_shifts,
)
from fivesigma.scored.scored_events import ScoredEvents, signal_probability
from fivesigma.significance import Utility, resolve_utility
from fivesigma.store.checkpoint import Checkpoint
from fivesigma.yields import check_weights, rescale, signal_and_background, significance_of

CUTS = (*RULES, "zero")
_SHARED = 0.01  # of the events that may have the features of training events before it is said
CASCADE_CHECKS: dict[str, Check] = {"update_cut": one_of(("zero", "plateau")), "u_init": auto_or_number}


@dataclass(repr=False, eq=False, kw_only=True)
class SignificanceClassifier(CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """Base of the estimators: `fit` checks the events and tunes the cut, and subclasses train in `_fit`."""

    # Parameters that all estimators have; each class describes them.
    utility: str | Utility = "ams2"
    b_reg: float | None = None
    cv: Any = 0.25
    cut: str | float = "model"
    pos_label: Any = None
    negative_weights: str = "error"
    verbose: int = 0
    checkpoint: str | os.PathLike[str] | None = None
    random_state: Any = None
    n_jobs: int | None = None

    # What `fit` leaves behind.
    classes_: AnyArray = field(init=False)
    cut_: float = field(init=False)
    selected_fraction_: float = field(init=False)
    utility_: Utility = field(init=False)
    n_features_in_: int = field(init=False)
    history_: History = field(init=False)
    models_: list[Any] = field(init=False)
    held_out_score_: Array = field(init=False)
    training_rows_: AnyArray = field(init=False)

    _checks: ClassVar[Mapping[str, Check]] = {"cut": cut_rule(CUTS), "n_jobs": none_or(jobs)}
    _stored: ClassVar[Mapping[str, type | tuple[type, ...]]] = {
        "classes_": np.ndarray,
        "cut_": float,
        "selected_fraction_": float,
        "utility_": Utility,
        "n_features_in_": int,
    }

    @abstractmethod
    def _fit(self, sample: TrainingSample, splits: Splits | None, checkpoint: Checkpoint | None) -> Array:
        """Train, tune the cut, and return P(signal) of the held-out rows, each by models that were not fitted on it."""

    def _learners(self) -> Iterable[Any]:
        """Learners whose tags say which tables are taken; none if trees are grown here."""
        return ()

    def _checkpoint_interval(self) -> int:
        """Rounds between two writes of a checkpoint, if they decide what is trained."""
        return 0

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, process: Any = None, groups: Any = None) -> Self:
        """Train on weighted events and tune the cut.

        Parameters
        ----------
        X : Events, or array, sparse matrix or frame of shape (n_events, n_features)
            `Events` bring their labels, weights, processes and feature names along. What a table may hold (NaN, sparse
            rows, columns of a frame) is the learner's to decide. A `GrownCascadeClassifier` also takes an
            `EventStream`, with ``memory="bins"`` or ``"disk"`` and a fraction as `cv`.
        y : array-like of shape (n_events,)
            Two labels; needed unless X are `Events`.
        sample_weight : array-like of shape (n_events,), optional
            Physics weights: the expected yield of each event. One each if not given.
        process : array-like of shape (n_events,), optional
            Process of each event; splits are stratified by it.
        groups : array-like of shape (n_events,), optional
            Group of each event; no split parts a group, such as copies of one event or events of one file. Splitters
            such as GroupKFold get them.

        Returns
        -------
        self
        """
        self.__fivesigma_check__()
        self._fit_given(X, y, sample_weight, process, groups)
        return self

    def _fit_given(self, X: Any, y: Any, sample_weight: Any, process: Any, groups: Any) -> None:
        self._fit_checked(X, self._check_sample(X, y, sample_weight, process, groups))

    def _fit_checked(self, X: Any, sample: TrainingSample) -> Self:
        """Train on what was checked, and keep what tells how the events were read."""
        self._fit_sample(sample, self._splits_of(X, sample))
        for name in ("columns_", "data_hash_"):  # of an earlier fit
            if hasattr(self, name):
                delattr(self, name)
        self.training_rows_ = rows_to_know_again(sample.X)  # by which training events are known again
        if isinstance(X, Events):
            self.data_hash_ = sample.data_hash
            if X.columns is not None:  # so that other files are read alike
                self.columns_ = asdict(X.columns)
        return self

    def _splits_of(self, X: Any, sample: TrainingSample) -> Splits | None:
        """Splits that the events themselves decide, of the estimators with `by`; None for those that `cv` describes."""
        by = getattr(self, "by", None)
        if by is None:
            return None
        if not isinstance(X, Events):
            raise InputError(f"by={by!r} is a kept column of Events, and X is a {type(X).__name__}; fit Events")
        repeats = getattr(self, "n_repeats", 1)
        if isinstance(self.cv, bool) or not isinstance(self.cv, (int, np.integer)) or repeats != 1:
            raise InputError(f"by={by!r} needs an integer cv and n_repeats=1, got {self.cv!r} and {repeats!r}")
        return sample.splits(X.folds(int(self.cv), by=by), 0)

    def __fivesigma_check__(self) -> None:
        """Refuse parameters that cannot be used; `fit` does it first, and a pool for its members."""
        resolve_utility(self.utility, self.b_reg)
        for name, check in self._checks.items():
            check(name, getattr(self, name))

    @with_callbacks
    def _fit_sample(self, sample: TrainingSample, splits: Splits | None = None) -> Array:
        """Train on checked events; a pool calls it with splits of its own."""
        for name in ("cut_", "held_out_score_"):  # of an earlier fit: a fit that is broken off leaves no model
            if name in vars(self):
                delattr(self, name)
        self.utility_ = resolve_utility(self.utility, self.b_reg)
        self.classes_, self.n_features_in_ = sample.classes, sample.X.shape[1]
        if sample.feature_names is not None:
            self.feature_names_in_ = sample.feature_names
        described = () if self.checkpoint is None else (sample.digest, splits)  # digests take time
        with (
            Checkpoint.of(self, self._checkpoint_interval(), *described) as checkpoint,
            explain_errors(sample.X, sample.feature_names),
        ):
            return self._fit(sample, splits, checkpoint)

    def __fivesigma_score__(self, X: Any) -> Array:
        """P(signal) of a checked table: the mean over the trained models."""
        return np.asarray(np.mean([model.signal_probability(X) for model in self.models_], axis=0))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        # A learner without tags decides for itself what it takes.
        inner = [get_tags(e).input_tags for e in self._learners() if hasattr(e, "__sklearn_tags__")]
        tags.input_tags.allow_nan = all(t.allow_nan for t in inner)
        tags.input_tags.sparse = self._takes_sparse()
        return tags

    def _takes_sparse(self) -> bool:
        """Whether all learners take sparse tables; one without tags decides for itself."""
        learners = list(self._learners())
        return bool(learners) and all(get_tags(e).input_tags.sparse for e in learners if hasattr(e, "__sklearn_tags__"))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "cut_")

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy, as everywhere in scikit-learn; what is maximised is `significance`.

        Selecting nothing is right for almost all of the weight, so do not choose models by it: give
        ``scoring=fivesigma.make_scorer(...)`` to what chooses.

        Parameters
        ----------
        X : Events, or array, sparse matrix or frame of shape (n_events, n_features)
        y, sample_weight : array-like of shape (n_events,)
            Labels and weights, unless X are `Events`.

        Returns
        -------
        float
        """
        y, sample_weight, _ = _brought_along(X, y, sample_weight)
        return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))

    @property
    def feature_importances_(self) -> Array:
        """Share of each feature in the trained models, whose own measure it is: of boosters the total gain."""
        check_is_fitted(self)
        return self._mean_importance([_importance_of(model, self.n_features_in_) for model in self.models_])

    def _mean_importance(self, parts: Sequence[Array | None]) -> Array:
        """Mean of those that are known; an AttributeError if none is, as for an attribute that is not there."""
        known = [part for part in parts if part is not None]
        if not known:
            raise AttributeError(f"the learners of this {type(self).__name__} have no feature importances")
        return np.asarray(np.mean(known, axis=0))

    def predict(self, X: Any) -> AnyArray:
        """Labels at the tuned cut: the signal's where ``predict_proba(X)[:, 1] >= cut_``.

        Parameters
        ----------
        X : Events, or array, sparse matrix or frame of shape (n_events, n_features)

        Returns
        -------
        array of shape (n_events,)
        """
        selected = self.predict_proba(X)[:, 1] >= self.cut_
        return self.classes_[selected.astype(np.intp)]

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of (background, signal) at the class weights of training: a score, not a posterior.

        Parameters
        ----------
        X : Events, or array, sparse matrix or frame of shape (n_events, n_features)
            A model with `by` scores each of `Events` by the fits that did not see its fold.

        Returns
        -------
        array of shape (n_events, 2)
        """
        p = self._score_events(X, self.__fivesigma_score__)
        return np.column_stack([1.0 - p, p])

    def _score_events(self, X: Any, score: Callable[..., Array]) -> Array:
        """Score a table or, of `Events` with folds by number, the rows of each fold."""
        check_is_fitted(self)
        table, by = self._check_table(X, reset=False), getattr(self, "by", None)
        with explain_errors(table, getattr(self, "feature_names_in_", None)):
            if by is None or not isinstance(X, Events):
                return score(table)
            folds, out = X.folds(int(self.cv), by=by), np.empty(len(X))
            for fold in np.unique(folds):
                rows = np.flatnonzero(folds == fold)
                out[rows] = score(_safe_indexing(table, rows), int(fold))
            return out

    def decision_function(self, X: Any) -> Array:
        """P(signal) less the cut: positive exactly where `predict` says signal.

        Parameters
        ----------
        X : Events, or array, sparse matrix or frame of shape (n_events, n_features)

        Returns
        -------
        array of shape (n_events,)
        """
        # An event at the cut is selected; a model that is not fitted says so before its cut is asked for.
        return self.predict_proba(X)[:, 1] - float(np.nextafter(self.cut_, -np.inf))

    def significance(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        yields: tuple[float, float] | None = None,
        systematics: Mapping[str, tuple[Any, Any] | Normalisation] | None = None,
    ) -> float:
        """Significance of events at the fitted cut; a warning says where the model was trained on them.

        Parameters
        ----------
        X : Events, or array, sparse matrix or frame of shape (n_events, n_features)
        y, sample_weight : array-like of shape (n_events,)
            Labels and physics weights, unless X are `Events`; significance has no meaning without weights.
        yields : (float, float), optional
            Expected signal and background events that the weights are scaled to, class by class. If not given, the
            weights are taken as they are: a subset then stands for itself alone.
        systematics : mapping of str to (up, down), optional
            The events one standard deviation up and down; see `yield_shifts`. The significance is then that of a
            counting experiment whose background moves with them, profiled.

        Returns
        -------
        float
        """
        warn_of_training_events(self, X)
        if systematics is not None:
            return self.yield_shifts(X, y, sample_weight, systematics, yields=yields).significance
        y, sample_weight, _ = _brought_along(X, y, sample_weight)
        selected = self.predict_proba(X)[:, 1] >= self.cut_
        signal, weight = signal_and_weight(self, X, y, sample_weight, yields)
        return significance_of(self.utility_, *signal_and_background(weight, signal, selected), what="the cut")

    def yield_shifts(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        systematics: Mapping[str, tuple[Any, Any] | Normalisation],
        *,
        yields: tuple[float, float] | None = None,
        process: Any = None,
    ) -> YieldShifts:
        """Yields at the fitted cut, nominal and under systematic variations.

        Parameters
        ----------
        X, y, sample_weight, yields
            As in `significance`.
        systematics : mapping of str to (up, down)
            Each a table like X (features move) or weights like sample_weight (yields move), of the same events in the
            same order; or `Events`, a sample of its own with other events, of which a process that is not there is as
            in the nominal events; or a `Varied` that is scored already. None as the second means as much down as up.
        process : array-like of shape (n_events,), optional
            Process of each event, for yields by process.

        Returns
        -------
        YieldShifts
        """
        y, sample_weight, process = _brought_along(X, y, sample_weight, process)
        score = self.predict_proba(X)[:, 1]
        signal, weight = signal_and_weight(self, X, y, sample_weight, yields)
        given = scored_variations(self, signal, systematics)
        if yields is not None:  # varied weights are scaled by the same factors as the nominal ones
            given = scaled(given, signal, check_weights(sample_weight, signal.size), weight)
        return yield_shifts([self.cut_, np.inf], score, signal, weight, given, process=process)

    def tune_cut(
        self, scored: ScoredEvents, systematics: Systematics | None = None, *, rule: str | None = None
    ) -> CutScan:
        """Set the cut of `predict` on scored events, with systematics in mind if they are given.

        Parameters
        ----------
        scored : ScoredEvents
            Events that the model was not fitted on, as ``ScoredEvents.of(model, events)`` makes them, weighted to the
            yields of the experiment.
        systematics : mapping of str to (Varied, Varied or None), optional
            For each name the events one standard deviation up and down, scored by this model; see `fivesigma.scan`.
        rule : str, optional
            As in `fivesigma.scan`; by default that of `cut`, or the rule of `scan` where `cut` is no rule.

        Returns
        -------
        CutScan
            The scan that chose the cut; ``cut_`` and ``selected_fraction_`` are set by it.
        """
        check_is_fitted(self)
        own = self.cut if isinstance(self.cut, str) and self.cut in RULES else DEFAULT_RULE
        found = scan(scored, utility=self.utility_, rule=own if rule is None else rule, systematics=systematics)
        self.cut_, self.selected_fraction_ = found.cut, found.fraction
        return found

    def _check_sample(self, X: Any, y: Any, sample_weight: Any, process: Any, groups: Any = None) -> TrainingSample:
        y, sample_weight, process = _brought_along(X, y, sample_weight, process)
        if y is None:
            raise InputError("requires y to be passed, but the target y is None")
        table = self._check_table(X, reset=True)
        labels = column_or_1d(y, warn=True)
        check_consistent_length(table, labels)
        assert_all_finite(labels, input_name="y")
        check_classification_targets(labels)
        return TrainingSample.checked(
            table,
            labels,
            sample_weight,
            process,
            feature_names=getattr(self, "feature_names_in_", None),
            pos_label=X.signal if isinstance(X, Events) and self.pos_label is None else self.pos_label,
            negative=self.negative_weights,
            data_hash=events_digest(X) if isinstance(X, Events) else None,
            groups=groups,
        )

    def _check_table(self, X: Any, *, reset: bool) -> Any:
        """Check a table; a frame keeps its columns and types, so that the learner sees them."""
        if isinstance(X, Events):
            return self._check_events(X, reset=reset)
        X = _as_frame(X)
        if hasattr(X, "columns") and hasattr(X, "shape"):
            if all(library_of(learner) is not None for learner in self._learners()):
                refuse_text(X)
            validate_data(self, X, reset=reset, skip_check_array=True)
            if len(X) == 0:
                check_array(X)  # raises scikit-learn's sentence about empty input
            return X
        # Whether NaN can be used, the learner says: a Pipeline, for one, may impute what is missing.
        sparse = ["csr", "csc"] if self._takes_sparse() else False
        return validate_data(self, X, reset=reset, accept_sparse=sparse, ensure_all_finite="allow-nan")

    def _check_events(self, events: Events, *, reset: bool) -> Any:
        """Features of events, whose columns are found by name wherever names are known."""
        if reset:
            table: AnyArray = validate_data(self, events.X, reset=True, ensure_all_finite="allow-nan")
            self.feature_names_in_ = np.array(events.feature_names, dtype=object)
            return table
        fitted = getattr(self, "feature_names_in_", None)
        table = events.X if fitted is None else events.table([str(name) for name in fitted])
        if table.shape[1] != self.n_features_in_:
            raise InputError(
                f"the events have {table.shape[1]} features, and the model was trained with {self.n_features_in_}"
            )
        if fitted is None or hasattr(self, "data_hash_"):
            return table
        return need("polars").DataFrame(table, schema=[str(name) for name in fitted])  # its learner has seen frames

    def _keep_held_out(self, splits: Splits, probability: Array, n_events: int) -> None:
        """Keep the mean score of each event by models that were not fitted on it; NaN if it was never held out."""
        rows = np.concatenate([held_out for _, held_out in splits])
        with np.errstate(invalid="ignore"):  # 0/0 is NaN
            self.held_out_score_ = np.bincount(rows, probability, n_events) / np.bincount(rows, minlength=n_events)

    def _tune_on(self, held_out: TuningEvents, probability: Array) -> None:
        """Set the cut of `predict` by its rule, on held-out events."""
        self.cut_ = self._cut_on(held_out, probability)
        self.selected_fraction_ = float(np.mean(probability >= self.cut_))

    def _cut_on(self, held_out: TuningEvents, probability: Array) -> float:
        if self.cut == "zero":
            return 0.5
        return held_out.scan(probability, self.cut).cut if isinstance(self.cut, str) else float(self.cut)


def signal_and_weight(
    model: Any, X: Any, y: Any, sample_weight: Any, yields: tuple[float, float] | None
) -> tuple[BoolArray, Array]:
    """Check labels and weights of events that are not trained on."""
    labels = column_or_1d(y)
    check_consistent_length(X, labels)
    signal = _is_signal(model, "y", labels)
    weight = check_weights(sample_weight, labels.size)
    return signal, weight if yields is None else rescale(weight, signal, yields)


def warn_of_training_events(model: Any, X: Any) -> None:
    """Say so where a fitted model is judged on events that it was trained on, and scored with what it learned."""
    known = getattr(model, "training_rows_", None)  # models that older versions saved have none
    if known is None or (getattr(model, "by", None) is not None and isinstance(X, Events)):
        return  # by number each event is scored by a fit that did not see it
    names = getattr(model, "feature_names_in_", None)
    table = X.table(None if names is None else [str(name) for name in names]) if isinstance(X, Events) else X
    try:
        found = recognise(table, np.asarray(known, dtype=np.uint64))
    except (TypeError, ValueError):  # of text or of sparse rows nothing is known
        return
    if found.distinct and found.share > _SHARED:
        warnings.warn(
            f"the model was trained on {found}, so that their significance is too high; quote that of other events",
            TrainingEventsWarning,
            stacklevel=3,
        )


def _importance_of(model: Any, n_features: int) -> Array | None:
    """Importances of the features that sum to one, or None if the model knows none."""
    found = model.gains(n_features) if hasattr(model, "gains") else None
    if found is None or np.shape(found) != (n_features,):
        return None
    values = np.asarray(found, dtype=np.float64)
    return np.asarray(values / max(values.sum(), np.finfo(float).tiny))


def _as_frame(X: Any) -> Any:
    """A table that has columns but is no frame of pandas or polars, as one."""
    if type(X).__module__.partition(".")[0] == "pyarrow" and hasattr(X, "column_names"):
        return need("polars").from_arrow(X)
    if type(X).__name__ == "LazyFrame":
        raise InputError("X is a LazyFrame, whose rows are not computed yet; call its collect() first")
    return X


def refuse_text(X: Any) -> None:
    """Refuse columns of text, of which trees know nothing."""
    for name, kind in zip(X.columns, X.dtypes, strict=True):
        if str(kind).partition("(")[0].lower() in ("string", "str", "utf8", "object", "large_string"):
            raise InputError(f"column {str(name)!r} of X holds text; make it categorical, or a number, or leave it out")


def _brought_along(X: Any, y: Any, sample_weight: Any, process: Any = None) -> tuple[Any, Any, Any]:
    """Labels, weights and processes as given or, where they are not, as `Events` bring them along."""
    if not isinstance(X, Events):
        return y, sample_weight, process
    own = (X.y if X.labelled else None, X.weight, X.process)
    y, sample_weight, process = (
        theirs if given is None else given for given, theirs in zip((y, sample_weight, process), own, strict=True)
    )
    return y, sample_weight, process


def scored_variations(
    model: Any, signal: BoolArray, systematics: Mapping[str, tuple[Any, Any] | Normalisation]
) -> Systematics:
    """Score varied events."""

    def one(name: str, moved: Any) -> Varied:
        what = f"systematics[{name!r}]"
        if isinstance(moved, Varied):
            return moved if moved.y is None else replace(moved, y=_is_signal(model, what, moved.y))
        if isinstance(moved, Events):
            score = signal_probability(model, moved)  # also of a Pipeline, which does not take Events
            return Varied(score, moved.weight, _is_signal(model, what, moved.y), moved.process)
        if np.ndim(moved) == 1:
            return Varied(weight=moved)
        score = model.predict_proba(moved)[:, 1]
        if score.size != signal.size:
            raise InputError(f"{what} has {score.size} events for {signal.size} nominal ones")
        return Varied(score=score)

    return with_variations(systematics, one)


def _is_signal(model: Any, what: str, y: Any) -> BoolArray:
    labels = np.asarray(y)
    unknown = ~np.isin(labels, model.classes_)
    if unknown.any():
        raise InputError(f"{what} has labels that were not fitted: {np.unique(labels[unknown]).tolist()[:5]}")
    return np.asarray(labels == model.classes_[1])
