"""What skops made, looked at before it is used: every tree, every booster and every random state in it.

Compiled code of scikit-learn follows the nodes of a tree without a look, and hands a table to the trees of an ensemble
without asking how many columns they want.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from fivesigma._types import AnyArray, BoolArray
from fivesigma.store.checks.refusal import UncheckedError, refuse_unless
from fivesigma.store.checks.scikit_types import OBJECTS
from fivesigma.store.checks.walks import check_depth

_MOST_THREADS = 1024
_THREADS = ("n_jobs", "nthread", "num_threads", "n_threads", "thread_count")
_METHODS = ("predict_proba", "decision_function", "predict")
_NOT_FOR_PREDICTION = ("predict", "file", "machine", "data", "valid", "input", "output", "model", "gpu", "device")


def check_objects(root: Any) -> None:
    """Refuse an estimator in which something leads out of its memory, or that holds what cannot be checked."""
    seen: dict[int, Any] = {}
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        waiting.extend(_parts(value))
        _check_state(value)
        mark, check = _CHECKS.get(type(value).__name__, ("", None))
        if check is not None and _name(value) in OBJECTS and mark in vars(value):  # without it, it is not fitted
            try:
                check(value)
            except (AttributeError, TypeError, ValueError, IndexError, KeyError) as err:
                raise UncheckedError(f"a {type(value).__name__} in it has not what prediction needs: {err}") from None


def _name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__name__}"


def _parts(value: Any) -> Iterator[Any]:
    """What a value is made of."""
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple | set):
        yield from value
    elif isinstance(value, np.ndarray):
        if value.dtype == object:
            yield from value.ravel().tolist()
    elif _name(value) in OBJECTS:
        yield from vars(value).values()


def _check_state(value: Any) -> None:
    """Check what can stand anywhere: numbers of threads and positions of random states."""
    if isinstance(value, np.random.RandomState):
        state: Any = value.get_state(legacy=False)
        position = state["state"]["pos"] if state["bit_generator"] == "MT19937" else -1
        refuse_unless(0 <= position <= 624, "it holds a random state at a position that is none")
    if isinstance(value, dict):
        check_threads(value)
    elif _name(value) in OBJECTS:
        check_threads(vars(value))


def check_threads(entries: Mapping[Any, Any]) -> None:
    """Refuse parameters that ask for more threads than a system gives: OpenMP ends the process then."""
    for key in _THREADS:
        threads = entries.get(key)
        fits = threads is None or (isinstance(threads, int | np.integer) and -_MOST_THREADS <= threads <= _MOST_THREADS)
        refuse_unless(fits, f"its {key} is not a number of threads")


def check_links(left: AnyArray, right: AnyArray, leaf: BoolArray) -> None:
    """Refuse nodes that lead out of their tree, or to where another node leads."""
    node = np.arange(leaf.size)
    parent = node.copy()
    inner = ~leaf
    refuse_unless(leaf.size >= 1, "a tree has no nodes")
    for child in (left[inner], right[inner]):
        after = (child > node[inner]) & (child < leaf.size)
        refuse_unless(after.all(), "a node's child does not come after the node within the tree")
        parent[child] = node[inner]
    reached = np.concatenate([left[inner], right[inner]]).astype(np.int64)
    refuse_unless(np.bincount(reached).max(initial=0) <= 1, "a node is reached in two ways")
    check_depth(parent)


def _check_tree(estimator: Any) -> None:
    tree = estimator.tree_
    refuse_unless(_name(tree) == "sklearn.tree._tree.Tree", "a tree is none")
    # The nodes of a tree that was read fill its memory; only then may they be looked at.
    refuse_unless(tree.node_count == tree.capacity >= 1, "a tree has not as many nodes as it says")
    refuse_unless(tree.n_features == _features(estimator), "a tree has other features than its estimator")
    left, right, feature = tree.children_left, tree.children_right, tree.feature
    leaf: BoolArray = left == -1
    refuse_unless(((right == -1) == leaf).all(), "a node has one child only")
    check_links(left, right, leaf)
    inner = feature[~leaf]
    refuse_unless(((inner >= 0) & (inner < tree.n_features)).all(), "a split is on a feature that is not there")
    refuse_unless(np.isfinite(tree.value).all() and not np.isnan(tree.threshold).any(), "a tree has values of NaN")
    refuse_unless(tree.n_outputs == 1, "a tree has several outputs")
    classes = getattr(estimator, "classes_", None)
    refuse_unless(tree.max_n_classes == (1 if classes is None else len(classes)), "a tree has other classes")


def _features(estimator: Any) -> int:
    n = estimator.n_features_in_
    refuse_unless(isinstance(n, int | np.integer) and n >= 1, "n_features_in_ is no number of features")
    return int(n)


def _check_forest(forest: Any) -> None:
    _check_trees_of(forest, list(forest.estimators_))


def _check_trees_of(ensemble: Any, trees: list[Any]) -> None:
    refuse_unless(trees, "an ensemble has no trees")
    classifier = hasattr(ensemble, "classes_") and "Gradient" not in type(ensemble).__name__
    for tree in trees:
        refuse_unless(_name(tree).startswith("sklearn.tree._classes."), "an ensemble has members that are no trees")
        refuse_unless(_features(tree) == _features(ensemble), "a tree has other features than its ensemble")
        same = not classifier or len(tree.classes_) == len(ensemble.classes_) == ensemble.n_classes_
        refuse_unless(same and hasattr(tree, "tree_"), "a tree has other classes than its ensemble")


def _check_boosting(model: Any) -> None:
    trees = model.estimators_
    fits = isinstance(trees, np.ndarray) and trees.ndim == 2 and trees.shape[1] == 1 == model.n_trees_per_iteration_
    refuse_unless(fits, "a booster has several outputs")
    _check_trees_of(model, trees.ravel().tolist())
    regression = all(type(tree).__name__ == "DecisionTreeRegressor" for tree in trees.ravel())
    refuse_unless(regression, "a booster has trees that classify")


def _check_histogram_boosting(model: Any) -> None:
    n_features = _features(model)
    refuse_unless(model.n_trees_per_iteration_ == 1, "a booster has several outputs")
    mapper = model._bin_mapper
    refuse_unless(type(mapper).__name__ == "_BinMapper", "a booster has no bins")
    refuse_unless(
        model.is_categorical_ is None and model._preprocessor is None and not np.any(mapper.is_categorical_),
        "it splits by categories",
    )
    refuse_unless(np.shape(mapper.is_categorical_) == (n_features,), "its bins are of other features")
    predictors = model._predictors
    refuse_unless(isinstance(predictors, list) and all(isinstance(p, list) for p in predictors), "it has no trees")
    for predictor in (p for row in predictors for p in row):
        refuse_unless(type(predictor).__name__ == "TreePredictor", "a booster has trees of another kind")
        nodes = predictor.nodes
        refuse_unless(isinstance(nodes, np.ndarray) and nodes.dtype == _record() and nodes.ndim == 1, "nodes are none")
        refuse_unless((nodes["is_leaf"] <= 1).all() and not nodes["is_categorical"].any(), "a split is by categories")
        leaf: BoolArray = nodes["is_leaf"] == 1
        check_links(nodes["left"].astype(np.int64), nodes["right"].astype(np.int64), leaf)
        feature = nodes["feature_idx"][~leaf]
        refuse_unless(((feature >= 0) & (feature < n_features)).all(), "a split is on a feature that is not there")
        refuse_unless(np.isfinite(nodes["value"][leaf]).all(), "a leaf has a value that is not finite")


def _record() -> np.dtype:
    from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE

    record: np.dtype = np.dtype(PREDICTOR_RECORD_DTYPE)
    return record


def _check_xgboost(model: Any) -> None:
    refuse_unless(_name(model._Booster) == "xgboost.core.Booster", "its booster is none")


def _check_lightgbm(model: Any) -> None:
    others = model._other_params
    refuse_unless(
        isinstance(others, dict) and not any(word in key for key in others for word in _NOT_FOR_PREDICTION),
        "it has parameters that are not for training",
    )
    booster = vars(model).get("_Booster")
    if booster is not None:
        refuse_unless(_name(booster) == "lightgbm.basic.Booster", "its booster is none")
        n = booster.num_feature()
        refuse_unless(model._n_features == n and model._n_features_in == n, f"it has not {n} features")


def _check_stacking(model: Any) -> None:
    refuse_unless(
        all(method in _METHODS for method in model.stack_method_), "it stacks by a method that is not for prediction"
    )


def _check_function(model: Any) -> None:
    for function in (model.func, model.inverse_func):
        refuse_unless(function is None or isinstance(function, np.ufunc), "its function is not one of NumPy's")
    refuse_unless(not model.kw_args, "its function has arguments")


# Each with the attribute that says that an estimator is fitted.
_CHECKS: dict[str, tuple[str, Callable[[Any], None]]] = {
    **dict.fromkeys(
        ("DecisionTreeClassifier", "DecisionTreeRegressor", "ExtraTreeClassifier", "ExtraTreeRegressor"),
        ("tree_", _check_tree),
    ),
    **dict.fromkeys(
        ("ExtraTreesClassifier", "ExtraTreesRegressor", "RandomForestClassifier", "RandomForestRegressor"),
        ("estimators_", _check_forest),
    ),
    **dict.fromkeys(("GradientBoostingClassifier", "GradientBoostingRegressor"), ("estimators_", _check_boosting)),
    **dict.fromkeys(
        ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor"), ("_predictors", _check_histogram_boosting)
    ),
    **dict.fromkeys(("XGBClassifier", "XGBRegressor"), ("_Booster", _check_xgboost)),
    **dict.fromkeys(("LGBMClassifier", "LGBMRegressor"), ("_other_params", _check_lightgbm)),
    **dict.fromkeys(("StackingClassifier", "StackingRegressor"), ("stack_method_", _check_stacking)),
    "FunctionTransformer": ("func", _check_function),
}
