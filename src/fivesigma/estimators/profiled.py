"""The score that knows the systematics: one likelihood ratio, against the least favourable background."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit
from sklearn.base import MetaEstimatorMixin
from sklearn.utils import check_array

from fivesigma._types import Array, IntArray
from fivesigma.datasets.events import Events
from fivesigma.errors import InputError
from fivesigma.estimators.contrast_fits import HeldOutTables, default_learners, fit_contrasts
from fivesigma.estimators.moved_events import (
    NOMINAL,
    Contrast,
    FoldedEvents,
    HeldOutBins,
    SystematicsReader,
    TrainingSystematic,
    bin_edges,
)
from fivesigma.estimators.parameters import one_of
from fivesigma.estimators.running import spread_seeds
from fivesigma.estimators.significance_classifier import SignificanceClassifier
from fivesigma.estimators.split_steps import TuningEvents
from fivesigma.estimators.training_sample import Splits, TrainingSample
from fivesigma.learners.density_ratios import SHARE, fit_log_prior, log_odds, relative_shift
from fivesigma.learners.protocols import Model
from fivesigma.learners.sklearn import check_learner
from fivesigma.likelihood.least_favourable import (
    Solution,
    efficient_direction,
    efficient_score,
    least_favourable,
    likelihood_ratio,
)
from fivesigma.likelihood.shifts import YieldShifts, check_systematics
from fivesigma.significance import Utility
from fivesigma.store.checkpoint import Checkpoint

GOALS = ("discovery", "measurement")
ROUNDS = 3  # in which the pulls are updated
LEAST_COST = 0.005  # share of the significance that a systematic must change to have a part in the score
LEAST_WORTH = 0.002  # of it that all parts without which the score would do may be worth together
CONSTRAINED = 0.5  # width of a pull after the fit below which one asks whether it is one pull
PLAIN = "plain"

Shifts = tuple[Array, Array | None]  # over the yield, up and down; None where all are as large down as up


@dataclass(frozen=True)
class ProfiledRound:
    """One score on held-out events.

    Attributes
    ----------
    index : int
        Round 0 is the plain score.
    pulls : dict of str to float
        Pulls theta of the score; for a measurement the coefficients a of its efficient score.
    value : float
        Profiled significance in bins of the score on held-out events; for a measurement the uncertainty.
    """

    index: int
    pulls: dict[str, float]
    value: float


@dataclass(repr=False, eq=False)
class ProfiledClassifier(MetaEstimatorMixin, SignificanceClassifier):
    """Classifier whose score takes the systematics of a discovery, or of a measurement, into account.

    With systematics the hypothesis without signal is a background b + theta.Delta, where Delta_j is the shift of the
    j-th one and theta are its pulls. The best categories are intervals of t = ln (s + b)/(b + theta.Delta) at the
    least favourable pulls: those at which the background resembles signal plus background most. Pure events of an
    uncertain background get the lowest t, so that the score makes its own control regions.

    Classifiers give the ratios s/b and Delta_j/b: signal against background, a process whose yield is uncertain against
    the others, events up against events down. They are cross-fitted on folds. The held-out ratios of all events choose
    theta, and bins of t, filled with held-out events as they are, correct it in further rounds. The round with the
    largest profiled significance is kept; the plain score s/b is round 0.

    Edges must know the systematics too: ``fivesigma.categorise(..., systematics=...)``. One cut cannot profile.

    Parameters
    ----------
    estimator : classifier, optional
        Any classifier that takes ``sample_weight``. By default the booster of `AutoClassifier`, with as many trees as
        held-out events advise.
    goal : {"discovery", "measurement"}, default="discovery"
        Significance of the signal, or uncertainty of its strength mu at mu = 1. The score of a measurement is the
        efficient one, (s - a.Delta)/(s + b), where Delta is the shift of signal and background.
    shape_estimator : classifier, optional
        Tells events up from events down. By default `estimator`, or half as many shallow trees with strong
        regularisation where it is not given: the difference is small, and noise in it would look like a constraint.
    cv : int, float or splitter, default=5
        Folds. Every event is held out at most once.
    by : str, optional
        Name of a kept column of integers, such as an event number, by which folds are made; see `CascadePool`.
    cut : {"model", "plateau", "peak", "smooth"} or float, default="model"
        Cut of `predict`, tuned on held-out events for a known background.
    checkpoint : path, optional
        Folder to which each finished fit is written; the same call resumes from there.
    pos_label, negative_weights, verbose, random_state, n_jobs
        As in `CascadeClassifier`.

    Attributes
    ----------
    pulls_ : dict of str to float
        Pulls of the score by systematic; zero for those that have no part in it. For a measurement the coefficients a.
    bound_ : float
        Profiled significance (or uncertainty) without binning, as the ratios of held-out events have it: a plug-in
        estimate, which timid classifiers make too low.
    history_ : list of ProfiledRound
        Pulls, and significance (or uncertainty) on held-out events, of each round.
    choice_ : str
        What was chosen and why.
    left_out_ : list of str
        Systematics without a part in the score: each costs less than 0.5 % of the significance, or the score is worth
        as much without them to 0.5 %. They belong in the likelihood all the same.
    constraints_ : dict of str to float
        Width of each pull after a fit of bins of the score on held-out events, over that of its constraint. Where it is
        small, the gain relies on one pull for all processes and regions.
    held_out_score_ : array of shape (n_events,)
        ``predict_proba(X)[:, 1]`` of each event by models that were not fitted on it; NaN for events that were never
        held out. With ``by`` it is what `predict_proba` gives.
    models_ : list of Model
        Signal against background, one for each split.
    cut_, selected_fraction_, classes_
        As in `CascadeClassifier`.

    Examples
    --------
    Z is known to a tenth and lies where the signal lies, a little beside it. The score measures Z there:

    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from fivesigma import Normalisation, ProfiledClassifier
    >>> rng = np.random.default_rng(0)
    >>> process = np.repeat(["H", "W", "Z"], 4000)
    >>> X = rng.normal(size=(12000, 2)) + np.repeat([[2, 0], [0, 0], [2, 1]], 4000, axis=0)
    >>> y, w = process == "H", np.where(process == "H", 0.05, 1.0)
    >>> model = ProfiledClassifier(LogisticRegression(), random_state=0, n_jobs=1)
    >>> model = model.fit(X, y, w, process=process, systematics={"Z": Normalisation("Z", 0.1)})
    >>> print(model.choice_.replace("; ", chr(10)))
    the likelihood ratio of round 1, held-out significance 2.295
    the plain score has 1.838, a known background 3.356
    the data constrain Z to 0.27 of its size: is one pull right for all processes and regions? Else split it
    """

    estimator: Any = None
    _: KW_ONLY
    goal: str = "discovery"
    shape_estimator: Any = None
    cv: Any = 5
    by: str | None = None
    # The utility of a profiled likelihood ratio is no choice, and b_reg has no place in it.
    utility: str | Utility = field(default="ams2", init=False)
    b_reg: float | None = field(default=None, init=False)

    _checks: ClassVar = {**SignificanceClassifier._checks, "goal": one_of(GOALS)}
    _stored: ClassVar = {
        **SignificanceClassifier._stored,
        "models_": list,
        "log_prior_": float,
        "shift_models_": list,
        "shift_terms_": dict,
        "pulls_": dict,
        "bound_": float,
        "rounds_": list,
        "left_out_": list,
        "constraints_": dict,
        "choice_": str,
    }

    log_prior_: float = field(init=False)  # log s/b of all events, as held-out ones have it
    shift_models_: list[dict[str, Model]] = field(init=False)  # of each split, by systematic
    # How odds become shifts: kind, size, log of the prior odds of each side.
    shift_terms_: dict[str, tuple[Any, ...]] = field(init=False)
    pulls_: dict[str, float] = field(init=False)
    bound_: float = field(init=False)
    rounds_: list[tuple[dict[str, float], float]] = field(init=False)
    left_out_: list[str] = field(init=False)
    constraints_: dict[str, float] = field(init=False)
    choice_: str = field(init=False)

    def fit(  # noqa: PLR0917 - in the order of every estimator
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        process: Any = None,
        systematics: Mapping[str, Any] | None = None,
        free: Sequence[str] = (),
    ) -> Self:
        """Train on weighted events and their systematics.

        Parameters
        ----------
        X, y, sample_weight, process
            As in the other estimators; X may be `Events`.
        systematics : mapping of str to (up, down) or Normalisation, optional
            For each name the events one standard deviation up and down: `Events`, which are samples of their own and of
            which a process that is not there is as in the nominal events; a table like X or weights like sample_weight,
            of the same events in the same order. None as the second means as much down as up. Or the uncertain yield of
            some processes. Varied `Events` belong to the fold of the event with the same number (`by`) or the same
            identifier, else to a random one.
        free : sequence of str, default=()
            Names of systematics that have no constraint.

        Returns
        -------
        self
        """
        self.__fivesigma_check__()
        sample = self._check_sample(X, y, sample_weight, process)
        names = (free,) if isinstance(free, str) else tuple(free)
        given = check_systematics({} if systematics is None else systematics, names, scored=False)
        events = X if isinstance(X, Events) else None
        return self._fit_checked(X, replace(sample, systematics=given, free=names, events=events))

    def _fit(self, sample: TrainingSample, splits: Splits | None, checkpoint: Checkpoint | None) -> Array:
        if self.cut == "zero":
            raise InputError("cut='zero' is the sign of a margin, which this score does not have: use another cut")
        split_seed, search_seed, *seeds = spread_seeds(self.random_state, 4)
        splits = sample.splits(self.cv, split_seed) if splits is None else splits
        rows = np.concatenate([rows for _, rows in splits])
        tuning = TuningEvents.of(sample, rows, self.utility_)
        tuning.warn_if_small()
        if np.unique(rows).size < rows.size:
            raise InputError("cv holds some events out twice; ProfiledClassifier needs folds, or one split")
        home = np.full(sample.signal.size, -1, dtype=np.intp)
        for number, (_, held_out) in enumerate(splits):
            home[held_out] = number
        nominal = FoldedEvents(sample.X, sample.signal, sample.weight, sample.process, home)
        bins = HeldOutBins(nominal, self._read(sample, nominal, split_seed), sample.free, self.goal)
        check_sizes(bins)
        for learner in self._learners():
            check_learner(learner)
        learners = [self.estimator, self.estimator]
        if self.estimator is None:
            learners = default_learners(self, sample, splits, search_seed, checkpoint)
        if self.shape_estimator is not None:
            learners[1] = self.shape_estimator
        train = partial(fit_contrasts, self, n_splits=len(splits), checkpoint=checkpoint)

        contrast = Contrast.of_members(nominal, sample.signal)
        fits = train({PLAIN: (contrast, learners[0])}, stem=PLAIN, seed=seeds[0])
        self.models_ = [models[PLAIN] for models in fits]
        samples = bins.samples()
        unmoved_events = replace(nominal, moved=np.empty(0, dtype=np.intp))
        tables = [HeldOutTables([nominal]), HeldOutTables([*(samples | {NOMINAL: unmoved_events}).values()])]

        def scores(models: Sequence[Model], unmoved: Array | None = None) -> dict[str, Array]:
            """What the models say of all events, nominal and varied."""
            first = tables[0].probabilities(models)[0] if unmoved is None else unmoved
            return dict(zip(samples, tables[1].probabilities(models, first), strict=True))

        p = scores(self.models_)
        held = home >= 0
        self.log_prior_ = fit_log_prior(p[NOMINAL][held], sample.signal[held], sample.weight[held])
        r_s = {key: np.exp(log_odds(p[key], self.log_prior_)) for key in samples}
        plain = bins.fill(r_s)
        train_shifts = partial(train, stem="shift", seed=seeds[1])
        unmoved = self._fit_shifts(bins, plain, train_shifts, learners, tables[0])
        pulls = self._first_pulls(nominal, r_s[NOMINAL], self._shifts(unmoved, home.size), plain.free)
        names = list(self.shift_terms_)
        q = {key: scores([models[key] for models in self.shift_models_], unmoved[key]) for key in self.shift_models_[0]}
        r = {key: self._shifts({k: by[key] for k, by in q.items()}, e.signal.size) for key, e in samples.items()}
        self.rounds_, filled = [({}, bins.judge(plain).value)], [plain]
        rise = 1 if self.goal == "discovery" else -1
        for _ in range(ROUNDS if names else 0):
            shifts = bins.fill({key: self._excess(r_s[key], r[key], pulls) for key in samples})
            value = bins.judge(shifts).value
            self.rounds_.append((dict(zip(names, pulls.tolist(), strict=True)), value))
            filled.append(shifts)
            if len(self.rounds_) > 2 and not rise * value > rise * self.rounds_[-2][1]:
                break
            pulls = bins.judge(shifts, names).pulls
        best = max(self.history_, key=lambda one: rise * one.value)
        self.pulls_ = {**dict.fromkeys(sample.systematics, 0.0), **best.pulls}
        self.constraints_ = filled[best.index].constraints()
        self.choice_ = self._sentence(best, bins.judge(plain, []).value, plain.free)

        score = self._probability(self._excess(r_s[NOMINAL], r[NOMINAL], self._pull_vector()))
        self.held_out_score_ = np.where(held, score, np.nan)
        self._tune_on(tuning, score[rows])
        return np.asarray(score[rows])

    def _fit_shifts(
        self,
        bins: HeldOutBins,
        plain: YieldShifts,
        train: Callable[..., list[dict[str, Model]]],
        learners: Sequence[Any],
        table: HeldOutTables,
    ) -> dict[str, Array]:
        """Learn the shifts; return what the models say of the nominal events, held out."""
        # Systematics that cost nothing in bins of the plain score need no classifier.
        known, nominal = bins.judge(plain, []).value, bins.nominal
        used = [one for one in bins.systematics if abs(bins.judge(plain, [one.name]).value / known - 1) > LEAST_COST]
        kept = {one.name for one in used}
        self.left_out_ = [one.name for one in bins.systematics if one.name not in kept]
        moving = nominal if self.goal == "measurement" else nominal.where(~nominal.signal)
        bent = bins.bent(plain)
        found = {one.name: one.contrasts(moving, opposite=one.name not in bent) for one in used}
        contrasts = {_key(name, k): c for name, both in found.items() for k, c in enumerate(both)}
        # Where every event moves there is nothing to tell apart.
        trained = {key: c for key, c in contrasts.items() if np.isfinite(c.log_prior)}
        self.shift_models_ = train({key: (c, learners[c.kind != SHARE]) for key, c in trained.items()})
        p = {key: table.probabilities([models[key] for models in self.shift_models_])[0] for key in trained}
        priors = {key: c.log_prior for key, c in contrasts.items()}
        for one in used:
            if one.normalisation is not None and one.name in trained:
                held, moves = moving.home >= 0, np.isin(moving.kinds, one.normalisation.process)
                q = p[one.name] if moving is nominal else p[one.name][~nominal.signal]
                priors[one.name] = fit_log_prior(q[held], moves[held], moving.weight[held])
        self.shift_terms_ = {
            name: (both[0].kind, both[0].size, *(priors[_key(name, k)] for k in range(len(both))))
            for name, both in found.items()
        }
        return p

    def _first_pulls(self, nominal: FoldedEvents, r_s: Array, r: Shifts, free: Container[str]) -> Array:
        """Pulls by the ratios of held-out events; what hardly changes the score has no part in it."""
        weight, signal, names = nominal.representative, nominal.signal, list(self.shift_terms_)
        seen = weight > 0
        weight, signal, r_s = weight[seen], signal[seen], r_s[seen]
        r = r[0][:, seen], None if r[1] is None else r[1][:, seen]
        constraint = np.array([float(name not in free) for name in names])
        found = self._solve(weight, r_s, r, constraint)
        self.bound_, base = found.value, weight if self.goal == "measurement" else weight / (1 + r_s)

        def worth(pulls: Array) -> float:
            """Of bins of the score at some pulls, if the ratios are right."""
            score = self._excess(r_s, r, pulls)
            edges = bin_edges(score, signal, weight)
            add = partial(np.bincount, np.searchsorted(edges, score, side="right") - 1, minlength=edges.size - 1)
            n, b, of = (add(values) for values in (weight, weight / (1 + r_s), base))
            up, down = (None if side is None else np.array([add(base * row) for row in side]) / of for side in r)
            assert up is not None
            return self._solve(np.asarray(n, dtype=np.float64), n / b - 1, (up, down), constraint).value

        if len(names) > 1:
            single, pulls = 1 - np.eye(len(names)), found.pulls
            whole, alone = worth(pulls), [worth(pulls * mask) for mask in single]
            for k in np.argsort(np.abs(np.array(alone) - whole))[:-1]:
                if abs(worth(pulls * single[k]) / whole - 1) > LEAST_WORTH:
                    break
                pulls = pulls * single[k]
                self.left_out_.append(names[k])
        kept = [name for name in names if name not in self.left_out_]
        self.shift_terms_ = {name: self.shift_terms_[name] for name in kept}
        keys = [_key(name, side) for name, term in self.shift_terms_.items() for side in range(len(term) - 2)]
        self.shift_models_ = [{k: by[k] for k in keys if k in by} for by in self.shift_models_]
        return found.pulls[[names.index(name) for name in kept]]

    def _shifts(self, probability: Mapping[str, Array], n_events: int) -> Shifts:
        """Relative shifts of events, one row for each systematic of the score."""
        out = np.empty((2, len(self.shift_terms_), n_events))
        for row, (name, (kind, size, *priors)) in enumerate(self.shift_terms_.items()):
            for side, prior in enumerate(priors):
                p = probability.get(_key(name, side))
                odds = np.full(n_events, prior) if p is None else log_odds(p, prior)
                out[side, row] = relative_shift(kind, size, odds)
            if len(priors) == 1:
                out[1, row] = -out[0, row]
        bent = any(len(term) == 4 for term in self.shift_terms_.values())
        return out[0], out[1] if bent else None

    def _solve(self, weight: Array, r_s: Array, r: Shifts, constraint: Array) -> Solution:
        """Pulls of the score by held-out events, without bins."""
        if self.goal == "measurement":
            return efficient_direction(weight, r_s / (1 + r_s), _slopes(r), constraint)
        return least_favourable(weight, r_s, r[0], constraint, r[1])

    def _excess(self, r_s: Array, r: Shifts, pulls: Array) -> Array:
        """n/m - 1, or the efficient score: zero where signal plus background is like the background."""
        if self.goal == "measurement":
            return efficient_score(r_s / (1 + r_s), _slopes(r), pulls)
        return likelihood_ratio(r_s, r[0], pulls, r[1])

    def _pull_vector(self) -> Array:
        return np.array([self.pulls_[name] for name in self.shift_terms_])

    def _probability(self, excess: Array) -> Array:
        """A rising function of the score that spreads it: with a plain score about P(signal) at equal yields."""
        return np.asarray(expit(np.arcsinh(excess * np.exp(-self.log_prior_) / 2)))

    def _sentence(self, best: ProfiledRound, known: float, free: Container[str]) -> str:
        what = "significance" if self.goal == "discovery" else "uncertainty"
        score = "likelihood ratio" if self.goal == "discovery" else "efficient score"
        plain = self.rounds_[0][1]
        if not self.shift_terms_:
            said = "the plain score, since no systematic costs anything" if self.left_out_ else "the plain score"
            said += f"; held-out {what} {plain:.3f}"
        elif best.index == 0:
            other = self.rounds_[1][1]
            said = f"the plain score, held-out {what} {plain:.3f}; the {score} has {other:.3f}"
        else:
            said = (
                f"the {score} of round {best.index}, held-out {what} {best.value:.3f}; the plain score has {plain:.3f}"
            )
        said += f", a known background {known:.3f}" * bool(self.shift_terms_)
        if self.left_out_:
            said += f"; left out of the score, since they matter less than {LEAST_COST:.1%}: "
            said += ", ".join(self.left_out_)
        measured = [(name, width) for name, width in self.constraints_.items() if name not in free]
        narrow = [f"{name} to {width:.2f}" for name, width in measured if width < CONSTRAINED]
        if narrow and best.index:
            said += f"; the data constrain {', '.join(narrow)} of its size: is one pull right for all processes and "
            said += "regions? Else split it"
        return said

    @property  # type: ignore[misc]  # derived, not stored
    def history_(self) -> list[ProfiledRound]:  # type: ignore[override]  # rounds of pulls, not of a cascade
        """Pulls, and significance or uncertainty on held-out events, of each round."""
        return [ProfiledRound(index, pulls, value) for index, (pulls, value) in enumerate(self.rounds_)]

    def _learners(self) -> list[Any]:
        return [learner for learner in (self.estimator, self.shape_estimator) if learner is not None]

    def _read(self, sample: TrainingSample, nominal: FoldedEvents, seed: int) -> list[TrainingSystematic]:
        """Check the systematics; each varied event belongs to a split."""
        folds, ids = None, None
        if sample.events is not None:
            ids = sample.events.ids
            if self.by is not None:
                known = np.unique(sample.events.folds(int(self.cv), by=self.by))

                def folds(events: Events) -> IntArray:
                    return np.searchsorted(known, events.folds(int(self.cv), by=self.by))

        reader = SystematicsReader(nominal, sample.classes, ids, partial(_features, sample), folds, seed)
        return [reader.read(name, value) for name, value in sample.systematics.items()]

    def decision_function(self, X: Any) -> Array:
        """The score: t = ln (s + b)/(b + theta.Delta), or the efficient score of a measurement.

        Parameters
        ----------
        X : Events, or array, sparse matrix or frame of shape (n_events, n_features)
            As in `predict_proba`.

        Returns
        -------
        array of shape (n_events,)
        """
        excess = self._score_events(X, self._mean_excess)
        return excess if self.goal == "measurement" else np.log1p(excess)

    def __fivesigma_score__(self, X: Any, fold: int | None = None) -> Array:
        """Rise with the score of a checked table, between 0 and 1: not a posterior."""
        return self._probability(self._mean_excess(X, fold))

    def _mean_excess(self, X: Any, fold: int | None = None) -> Array:
        """Score of a table by the mean probabilities of all fits, or of the one that did not see a fold."""
        splits = range(len(self.models_)) if fold is None else [fold]
        fits = [{PLAIN: self.models_[k], **self.shift_models_[k]} for k in splits]
        p = {name: np.mean([models[name].signal_probability(X) for models in fits], axis=0) for name in fits[0]}
        r_s = np.exp(log_odds(p.pop(PLAIN), self.log_prior_))
        return self._excess(r_s, self._shifts(p, r_s.size), self._pull_vector())


def _key(name: str, side: int) -> str:
    """Name of the models of one side of a systematic; those that are opposite have one side."""
    return f"{name} (down)" if side else name


def _slopes(shifts: Shifts) -> Array:
    up, down = shifts
    return up if down is None else (up - down) / 2


def check_sizes(bins: HeldOutBins) -> None:
    """Refuse systematics that move the background by more than itself, before anything is trained."""
    one_bin = bins.fill({key: np.zeros(events.signal.size) for key, events in bins.samples().items()})
    one_bin.check()
    for side, moved in (("up", one_bin.up), ("down", one_bin.down)):
        for name, by in moved.items():
            for process, at in by.items():
                if at.sum() < 0 < one_bin.nominal[process].sum_of_weights.sum():
                    raise InputError(
                        f"{name} {side} makes the yield of {process!r} negative, {at.sum():.4g}; one standard "
                        "deviation cannot be that large: check the weights of the variation"
                    )


def _features(sample: TrainingSample, label: str, moved: Any) -> Any:
    """Table of varied events with the columns of the nominal ones."""
    names = None if sample.feature_names is None else [str(name) for name in sample.feature_names]
    try:
        if isinstance(moved, Events):
            table = moved.X if names is None else moved.table(names)
        elif hasattr(moved, "columns"):
            table = moved if names is None else moved[names]
            table = np.asarray(table) if isinstance(sample.X, np.ndarray) else table
        else:
            table = check_array(moved, accept_sparse=["csr", "csc"], dtype=None, ensure_all_finite="allow-nan")
        if type(table) is type(sample.X) is np.ndarray:
            table = table.astype(sample.X.dtype, copy=False)
    except (ValueError, KeyError) as err:
        raise InputError(f"{label}: {err}") from None
    if table.shape[1] != sample.X.shape[1] or type(table) is not type(sample.X):
        raise InputError(
            f"{label} is a {type(table).__name__} with {table.shape[1]} features, and the nominal events are a "
            f"{type(sample.X).__name__} with {sample.X.shape[1]}"
        )
    if type(table) is np.ndarray and table.dtype.kind == "f":
        new = np.flatnonzero(np.isnan(table).any(axis=0) & ~np.isnan(sample.X).any(axis=0))
        if new.size:
            column = new[0] if names is None else repr(names[new[0]])
            raise InputError(f"{label} has NaN in feature {column}, where the nominal events have none")
    return table
