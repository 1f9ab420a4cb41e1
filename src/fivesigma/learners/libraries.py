"""The registry of boosting libraries, and the choice of how a learner is trained."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from fivesigma._tools.extras import installed, need
from fivesigma._types import AnyArray
from fivesigma.errors import FivesigmaError, InputError, did_you_mean, shortened
from fivesigma.learners import catboost, lightgbm, xgboost
from fivesigma.learners.protocols import Binding, Grower, Library, Trainer
from fivesigma.learners.sklearn import SklearnTrainer

# In the order of preference: the first that is installed is the default.
LIBRARIES: dict[str, Library] = {
    library.name: library for library in (xgboost.LIBRARY, lightgbm.LIBRARY, catboost.LIBRARY)
}
_LONGEST = 200  # characters of a parameter; the parser of XGBoost ends the process at very deep brackets
HISTOGRAM = "histogram"  # scikit-learn's own boosting, which is always there and grows no cascade
_SINGLE = float(np.finfo(np.float32).max)
_SQUARABLE = 1e150  # of what is larger, no learner can form the variance
_NO_BINS = "window shape cannot be larger"  # what scikit-learn's binning says of a column without values

# Parameters that the cascade sets itself: why, and all the names that libraries know them by.
_TAKEN_WHY = {
    "the loss is logistic": "objective application app objective_type loss loss_function",
    "the starting score is fixed": "base_score boost_from_average",
    "the cascade weights the classes": "scale_pos_weight is_unbalance unbalance class_weight",
    "trees are grown one by one": "booster boosting boosting_type warm_start",
    "events are binned once": "tree_method",
    "use n_trees": "num_boost_round n_estimators num_iterations num_iteration num_trees num_tree num_round num_rounds "
    "n_iter iterations max_iter",
    "use random_state": "seed random_state random_seed",
    "use n_jobs": "nthread n_jobs num_threads num_thread thread_count",
    "use early_stopping": "early_stopping_rounds early_stopping_round early_stopping",
    "significance is measured each round": "metric metrics eval_metric",
}
_TAKEN = {name: why for why, names in _TAKEN_WHY.items() for name in names.split()}


def installed_library() -> str:
    """Name of the first library that is installed, or ``"histogram"``."""
    return next((name for name in LIBRARIES if installed(name)), HISTOGRAM)


def library_of(estimator: Any) -> Library | None:
    """The library that an estimator comes from, if it is a boosting library."""
    return LIBRARIES.get(type(estimator).__module__.partition(".")[0])


@cache
def known_parameters(library: str) -> frozenset[str]:
    """Names and aliases of all parameters that a tree booster of the library takes; empty if it does not tell."""
    if library == HISTOGRAM:
        return frozenset(_make(library, 1, {}).get_params())
    return frozenset(LIBRARIES[library].parameters())


def check_library(name: str, params: dict[str, Any] | None) -> dict[str, Any]:
    """Refuse a library that grows no trees one by one, and its parameters as `check_parameters` does."""
    if name not in LIBRARIES:
        raise InputError(f"library must be {' or '.join(LIBRARIES)}, got {name!r}{did_you_mean(str(name), LIBRARIES)}")
    return check_parameters(name, params)


def check_parameters(name: str, params: dict[str, Any] | None) -> dict[str, Any]:
    """Refuse parameters that the cascade sets itself, and those that the library does not know."""
    own: Mapping[str, str] = {}
    aliases: Mapping[str, str] = {}
    if name in LIBRARIES:
        need(name)
        own, aliases = LIBRARIES[name].refused, LIBRARIES[name].aliases
    known = known_parameters(name)
    given: dict[str, Any] = {}
    for key, value in check_mapping(params).items():
        refused = _TAKEN.get(key) or own.get(key)
        if refused:
            raise InputError(f"params[{key!r}] cannot be set: {refused}")
        # Under another name than that of the default, both would reach the library, and the default would win.
        canonical = aliases.get(key, key)
        if canonical in given:
            raise InputError(f"params has {canonical!r} under two names, one of them {key!r}; give one of them")
        if isinstance(value, str) and len(value) > _LONGEST:
            raise InputError(f"params[{key!r}] is a text of {len(value)} characters; no parameter of trees needs that")
        if known and canonical not in known:
            hint = did_you_mean(str(key), sorted(known))
            raise InputError(f"params[{key!r}] is not a parameter that {name} uses{hint}")
        given[canonical] = value
    return given


def tree_parameters(estimator: Any) -> dict[str, Any]:
    """`params` of an estimator together with those parameters of trees that it has as its own."""
    given = check_mapping(estimator.params)
    for name in ("learning_rate", "max_depth"):
        value = getattr(estimator, name, None)
        if value is None:
            continue
        if name in given:
            raise InputError(f"{name}={value!r} is given with params[{name!r}]={given[name]!r}; give one of them")
        given[name] = value
    return given


def check_mapping(params: Any) -> dict[str, Any]:
    """Refuse parameters of trees that are no dictionary."""
    if params is not None and not isinstance(params, dict):
        raise InputError(f"params must be a dictionary of the library's parameters, got {params!r}")
    return dict(params or {})


def _make(library: str, n_trees: int, params: Mapping[str, Any], kind: int = 0) -> Any:
    """A classifier, or a regressor if `kind` is 1, of the library, or of scikit-learn if it is ``"histogram"``."""
    if library == HISTOGRAM:
        module: Any = importlib.import_module("sklearn.ensemble")
        name = ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor")[kind]
        return getattr(module, name)(max_iter=n_trees, early_stopping=False, **params)
    own = LIBRARIES[library]
    return getattr(need(library), own.learners[kind])(**{own.size: n_trees, **params, **own.settings})


def make_like_grown(library: str, n_trees: int, **params: Any) -> Any:
    """A classifier with the settings of a grown booster, but for some."""
    defaults = LIBRARIES[library].defaults if library in LIBRARIES else {}
    return _make(library, n_trees, {**defaults, **params})


def default_learner(library: str | None = None, n_trees: int = 200) -> Any:
    """A classifier that a cascade retrains: of the best library that is installed, if none is named."""
    return _make(library or installed_library(), n_trees, {"learning_rate": 0.1})


def default_regressor(
    n_trees: int = 100, learning_rate: float = 0.1, depth: int = 4, *, library: str | None = None
) -> Any:
    """A regressor with gamma loss: of the best library that is installed, if none is named."""
    name = library or installed_library()
    gamma = {"loss": "gamma", "max_leaf_nodes": 2**depth - 1} if name == HISTOGRAM else LIBRARIES[name].gamma(depth)
    return _make(name, n_trees, {"learning_rate": learning_rate, **gamma}, kind=1)


def bind_grower(library: str, params: dict[str, Any], binding: Binding) -> Grower:
    """Bind a booster to its events."""
    return LIBRARIES[library].grower(params, binding)


def bind_learner(estimator: Any, binding: Binding) -> Trainer:
    """Bind a learner to its events, binned once where its library allows that."""
    library = library_of(estimator)
    if library is not None and library.can_bin_once(estimator):
        return library.trainer(estimator, binding)
    return SklearnTrainer(estimator, binding)


@contextmanager
def explain_errors(X: Any, names: AnyArray | None) -> Iterator[None]:
    """Turn an error of a boosting library into one of ours, at no cost while there is none."""
    try:
        yield
    except FivesigmaError:
        raise
    except Exception as err:
        library = type(err).__module__.partition(".")[0]
        empty = _NO_BINS in str(err)
        own = library not in LIBRARIES and not empty  # a learner of the user's, whose errors are the user's to see
        problem = _column(X, names, empty=empty, largest=_SQUARABLE if own else _SINGLE)
        if problem is None:
            if own:
                raise
            lines = [line for line in str(err).splitlines() if line.strip()] or [type(err).__name__]
            said = re.sub(r"^\[[\d:]+\] \S+ ", "", lines[0]).rstrip(".")
            problem = (
                "a feature has no value in the events of one split; leave it out"
                if empty
                else f"{library} cannot use these events: {shortened(said, 200)}"
            )
        raise InputError(problem) from err


def _column(X: Any, names: AnyArray | None, *, empty: bool, largest: float) -> str | None:
    """Say which column has no value, or one that is too large."""
    for k in range(X.shape[1]):
        try:
            column = np.asarray(X.iloc[:, k] if hasattr(X, "iloc") else X[:, k], dtype=np.float64)
        except (TypeError, ValueError):  # text, categories, a sparse column
            continue
        name = f"feature {k}" if names is None else f"feature {str(names[k])!r}"
        if empty and np.isnan(column).all():
            return f"{name} has no value in any event; leave it out"
        beyond = np.abs(column) > largest
        if not empty and beyond.any():
            row = int(np.argmax(beyond))
            return (
                f"{name} is {column[row]:g} in row {row}, and the learner takes at most {largest:.2g} in size: mark it "
                "as missing, or scale the feature"
            )
    return None
